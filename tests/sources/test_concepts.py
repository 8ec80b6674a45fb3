from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasieve.sources.concepts import by_folders, first_tag
from tests.sources.layouts import JPEG, listed, put


@pytest.mark.parametrize(
    ("folders", "concepts"),
    [
        ([""], [""]),
        (["cat", "dog"], ["cat", "dog"]),
        (["", "cat"], ["", "cat"]),
        (["anna/day", "anna/night", "bob"], ["anna", "anna", "bob"]),
        (["people/anna/day", "people/bob"], ["anna", "bob"]),
        (["train/cat", "test/cat", "test/dog"], ["cat", "cat", "dog"]),
        (["train"], [""]),
        (["images", "test"], ["", ""]),
        (["photos/anna"], ["anna"]),
    ],
)
def test_auto_takes_the_first_folder_that_tells_images_apart(folders: list[str], concepts: list[str]) -> None:
    concept = by_folders(folders)
    assert [concept(f) for f in folders] == concepts


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=3).map("/".join), min_size=1, max_size=6))
def test_every_concept_is_a_folder_of_its_image(folders: list[str]) -> None:
    concept = by_folders(folders)
    assert all(concept(f) in ("", *f.split("/")) for f in folders)


@pytest.mark.parametrize(
    ("caption", "tag"), [("sks dog, on grass", "sks dog"), ("\n\n a cat", "a cat"), ("", ""), (", x", "")]
)
def test_the_first_tag_ends_at_the_first_comma(caption: str, tag: str) -> None:
    assert first_tag((caption,)) == tag


def test_each_way_of_telling_concepts(tmp_path: Path) -> None:
    put(tmp_path, {"x/cat/a.jpg": JPEG, "x/cat/a.txt": "sks cat, red", "x/dog/b.jpg": JPEG})
    expected = {"auto": ["cat", "dog"], "folder": ["x/cat", "x/dog"], "caption": ["sks cat", ""], "none": ["", ""]}
    for way, concepts in expected.items():
        assert [r.concept for r in listed(tmp_path, concept_by=way)[1].values()] == concepts
