from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasieve.errors import InputError
from datasieve.sources import open_source
from datasieve.sources.kohya import repeats_of
from tests.sources.layouts import JPEG, listed, notes, put


@given(
    st.integers(1, 10**6), st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), max_size=20)
)
def test_repeats_and_class_tokens_are_split_at_the_first_underscore(number: int, tokens: str) -> None:
    assert repeats_of(f"{number}_{tokens}") == (number, tokens.strip())


@pytest.mark.parametrize("name", ["dog", "_cat", "0_none", "-1_dog", "x_dog", "10", "1.5_dog", ""])
def test_other_folders_are_ignored_by_kohya(name: str) -> None:
    assert repeats_of(name) is None


def test_repeats_folders_and_what_the_trainer_would_not_see(tmp_path: Path) -> None:
    files = [
        "10_red toy/a.png",
        "3_dog/b.png",
        "3_dog/nested/c.png",
        "dog/d.png",
        "_cat/e.png",
        "0_none/f.png",
        "g.png",
    ]
    put(tmp_path, dict.fromkeys([*files, "3_dog/h.tif", "3_dog/i.JpEg", "3_dog/j.JPG"], JPEG))
    ingest, found = listed(tmp_path)
    assert ingest.layout == "kohya"
    assert (found["10_red toy/a.png"].repeats, found["10_red toy/a.png"].concept) == (10, "red toy")
    assert (found["3_dog/b.png"].repeats, found["3_dog/b.png"].concept) == (3, "dog")
    assert found["3_dog/nested/c.png"].repeats == 1
    unseen = {"3_dog/nested/c.png", "dog/d.png", "_cat/e.png", "0_none/f.png", "g.png", "3_dog/h.tif", "3_dog/i.JpEg"}
    assert {n.path for n in notes(ingest, "folder-ignored")} == unseen
    assert len(found) == ingest.total == 10


@pytest.mark.parametrize(
    "folders", [["2021_rome", "2022_oslo"], ["01_beach", "02_city"], ["cat", "dog"], ["sub/10_dog"]]
)
def test_years_and_running_numbers_are_not_repeats(tmp_path: Path, folders: list[str]) -> None:
    put(tmp_path, {f"{f}/a.jpg": JPEG for f in folders})
    ingest, found = listed(tmp_path)
    assert ingest.layout == "folder"
    assert {r.repeats for r in found.values()} == {1}
    assert ingest.notes == []


TOML = """
[general]
caption_extension = ".txt"
num_repeats = 2
[[datasets]]
resolution = 512
  [[datasets.subsets]]
  image_dir = 'img/toy'
  num_repeats = 7
  class_tokens = 'red toy'
  [[datasets.subsets]]
  image_dir = 'img/dog'
[[datasets]]
num_repeats = 4
  [[datasets.subsets]]
  image_dir = '5_cat'
  caption_extension = '.caption'
  [[datasets.subsets]]
  image_dir = 'img/dog'
  [[datasets.subsets]]
  image_dir = 'gone'
"""


def test_toml_values_are_handed_down_and_the_lower_wins(tmp_path: Path) -> None:
    put(
        tmp_path,
        {"set.toml": TOML, "img/toy/a.png": JPEG, "img/toy/a.txt": "x", "img/dog/b.png": JPEG, "5_cat/c.png": JPEG},
    )
    put(tmp_path, {"5_cat/c.txt": "not read", "img/toy/deep/d.png": JPEG, "elsewhere/e.png": JPEG})
    ingest, found = listed(tmp_path / "set.toml")
    assert ingest.layout == "kohya-toml"
    assert [(r.path, r.repeats, r.concept, r.captions) for r in found.values()] == [
        ("img/toy/a.png", 7, "red toy", ("x",)),
        ("img/toy/deep/d.png", 1, "red toy", ()),
        ("img/dog/b.png", 2, "dog", ()),
        # With a TOML the number in the folder's name means nothing.
        ("5_cat/c.png", 4, "5_cat", ()),
    ]
    assert [n.path for n in notes(ingest, "folder-ignored")] == ["img/toy/deep/d.png"]
    assert [n.path for n in notes(ingest, "caption-name")] == ["5_cat/c.png"]
    assert "twice" in notes(ingest, "metadata-mismatch")[0].message
    assert "gone" in notes(ingest, "unreadable-folder")[0].message


def test_a_subset_inside_another_is_listed_once(tmp_path: Path) -> None:
    text = "[[datasets]]\n[[datasets.subsets]]\nimage_dir='a'\n[[datasets.subsets]]\nimage_dir='a/b'\nnum_repeats=3\n"
    put(tmp_path, {"s.toml": text, "a/1.png": JPEG, "a/b/2.png": JPEG})
    _, found = listed(tmp_path / "s.toml")
    assert {p: r.repeats for p, r in found.items()} == {"a/1.png": 1, "a/b/2.png": 3}


def test_a_subset_beside_the_toml_moves_the_root(tmp_path: Path) -> None:
    put(tmp_path, {"cfg/s.toml": "[[datasets]]\n[[datasets.subsets]]\nimage_dir='../pics'\n", "pics/1.png": JPEG})
    ingest, found = listed(tmp_path / "cfg" / "s.toml")
    assert ingest.root == tmp_path
    assert list(found) == ["pics/1.png"]


@pytest.mark.parametrize(
    "text",
    [
        "not toml",
        "[general]\n",
        "[[datasets]]\n",
        "[[datasets]]\n[[datasets.subsets]]\nnum_repeats=1\n",
        "datasets = 3\n",
    ]
    + [
        f"[[datasets]]\n[[datasets.subsets]]\nimage_dir='a'\n{line}\n"
        for line in ("num_repeats=0", "caption_extension=1")
    ]
    + ["[[datasets]]\n[[datasets.subsets]]\nimage_dir='gone'\n"],
)
def test_a_toml_that_cannot_be_used_is_refused_with_a_remedy(tmp_path: Path, text: str) -> None:
    put(tmp_path, {"s.toml": text, "a/1.png": JPEG})
    with pytest.raises(InputError) as caught:
        open_source(tmp_path / "s.toml")
    assert "s.toml" in caught.value.message
    assert caught.value.remedy


def test_a_toml_in_an_audited_folder_is_pointed_out(tmp_path: Path) -> None:
    put(tmp_path, {"set.toml": "[[datasets]]\n", "pyproject.toml": "[project]\n", "a.png": JPEG})
    ingest, _ = listed(tmp_path)
    assert [n.path for n in notes(ingest, "metadata-unused")] == ["set.toml"]
