from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sources.layouts import JPEG, listed, notes, put


def jsonl(*rows: object) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


TEXTS = ["a red thing, on a table", 'a "blue" thing', "a green thing\nby a window", "plain"]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_captions_come_back_exactly(tmp_path: Path, kind: str) -> None:
    rows = [{"file_name": f"{i}.png", "text": text} for i, text in enumerate(TEXTS)]
    put(tmp_path, {row["file_name"]: JPEG for row in rows})
    if kind == "jsonl":
        put(tmp_path, {"metadata.jsonl": jsonl(*rows)})
    elif kind == "csv":
        with open(tmp_path / "metadata.csv", "w", newline="", encoding="utf-8-sig") as handle:
            writer = csv.DictWriter(handle, ["file_name", "text"])
            writer.writeheader()
            writer.writerows(rows)
    else:
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "metadata.parquet")
    ingest, found = listed(tmp_path)
    assert ingest.layout == "imagefolder"
    assert [r.captions for r in found.values()] == [(text,) for text in TEXTS]
    assert ingest.notes == []


NAME = st.text(st.characters(categories=["L", "N", "S", "P"], exclude_characters='/\0\\"'), min_size=1, max_size=12)
NAMES = st.lists(NAME.map(lambda n: "x" + n), min_size=1, max_size=4, unique_by=str.casefold)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(NAMES, st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30), st.sampled_from(["jsonl", "csv"]))
def test_any_name_and_caption_survive(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], text: str, kind: str
) -> None:
    root = tmp_path_factory.mktemp("set")
    put(root, {f"{n}.png": JPEG for n in names})
    if kind == "jsonl":
        put(root, {"metadata.jsonl": jsonl(*({"file_name": f"{n}.png", "text": text} for n in names))})
    else:
        with open(root / "metadata.csv", "w", newline="", encoding="utf-8") as handle:
            csv.writer(handle).writerows([["file_name", "text"], *([f"{n}.png", text] for n in names)])
    _, found = listed(root)
    assert len(found) == len(names)
    assert {r.captions for r in found.values()} == {(text.strip("\ufeff \t\n\v\f"),)}


def test_the_nearest_metadata_counts(tmp_path: Path) -> None:
    put(tmp_path, {"a.png": JPEG, "in/b.png": JPEG, "in/deep/c.png": JPEG, "out/d.png": JPEG})
    top = [{"file_name": n, "text": "top"} for n in ("a.png", "./out/d.png", "in/b.png")]
    put(tmp_path, {"metadata.jsonl": jsonl(*top), "in/metadata.csv": "file_name,text\nb.png,near\ndeep/c.png,near\n"})
    ingest, found = listed(tmp_path)
    assert {p: r.captions[0] for p, r in found.items()} == {
        "a.png": "top",
        "in/b.png": "near",
        "in/deep/c.png": "near",
        "out/d.png": "top",
    }
    (note,) = notes(ingest, "metadata-mismatch")
    assert "nearer" in note.message


def test_columns_of_many_names_lists_of_captions_and_a_concept(tmp_path: Path) -> None:
    row = {"image_file_name": "a.png", "captions": ["one", "two"], "concept": "toy"}
    put(tmp_path, {"a.png": JPEG, "b.png": JPEG, "c.png": JPEG})
    put(tmp_path, {"metadata.jsonl": jsonl(row, {"file_names": ["b.png", "c.png"], "prompt": 4})})
    _, found = listed(tmp_path)
    assert [(r.captions, r.concept) for r in found.values()] == [(("one", "two"), "toy"), (("4",), ""), (("4",), "")]


def test_orphans_are_named_on_both_sides(tmp_path: Path) -> None:
    put(tmp_path, {"a.png": JPEG, "b.png": JPEG, "c.png": JPEG})
    rows = [
        {"file_name": n, "text": t} for n, t in [("a.png", "x"), ("gone.png", "y"), ("c.png", "z"), ("c.png", "other")]
    ]
    put(tmp_path, {"metadata.jsonl": jsonl(*rows)})
    ingest, found = listed(tmp_path)
    assert found["c.png"].captions == ("z",)
    assert [n.path for n in notes(ingest, "metadata-orphan")] == ["b.png"]
    assert [n.path for n in notes(ingest, "caption-conflict")] == ["c.png"]
    (note,) = notes(ingest, "metadata-mismatch")
    assert note.path == "metadata.jsonl"
    assert "metadata.jsonl:2 names 'gone.png'" in note.message


@pytest.mark.parametrize(
    ("image", "written", "reason"),
    [
        ("train/{}.jpg", "train/{}.jpg", "'train/' in front"),
        ("train/images/{}.jpg", "{}.jpg", "put 'images/' in front"),
        ("train/images/{}.jpg", "images\\{}.jpg", "not \\"),
    ],
)
def test_a_prefix_that_spoils_every_row_is_explained_in_one_note(
    tmp_path: Path, image: str, written: str, reason: str
) -> None:
    put(tmp_path, {image.format(i): JPEG for i in range(3)})
    put(tmp_path, {"train/metadata.jsonl": jsonl(*({"file_name": written.format(i), "text": "x"} for i in range(3)))})
    ingest, found = listed(tmp_path)
    assert len(found) == 3
    (note,) = notes(ingest, "metadata-mismatch")
    assert note.path == "train/metadata.jsonl"
    assert "3 of 3 rows" in note.message
    assert reason in note.message


@pytest.mark.parametrize("written", ["../a.png", "/etc/a.png", "https://x.org/a.png"])
def test_paths_that_leave_the_folder_are_refused(tmp_path: Path, written: str) -> None:
    put(tmp_path, {"a.png": JPEG, "metadata.jsonl": jsonl({"file_name": written, "text": "x"})})
    ingest, found = listed(tmp_path)
    assert found["a.png"].captions == ()
    assert "metadata.jsonl:1" in notes(ingest, "metadata-mismatch")[0].message


def test_a_bad_line_costs_that_line_and_is_numbered(tmp_path: Path) -> None:
    lines = ['{"file_name": "0.png"} {"file_name": "1.png"}', '{"file_name": "2.png", "text": "two', "", '["3.png"]']
    lines += ['{"file_name": "4.png", "text": 4}', '{"text": "nobody"}', '{"file_name": "5.png", "text": "five"}']
    put(tmp_path, {**{f"{i}.png": JPEG for i in range(6)}, "metadata.jsonl": "\n".join(lines)})
    ingest, found = listed(tmp_path)
    assert len(found) == 6
    assert found["5.png"].captions == ("five",)
    named = {n.message.split(":")[1] for n in notes(ingest, "metadata-malformed")}
    assert named == {"1", "2", "4", "6"}
    assert {n.path for n in notes(ingest, "metadata-malformed")} == {"metadata.jsonl"}


def test_thousands_of_bad_lines_are_not_thousands_of_notes(tmp_path: Path) -> None:
    put(tmp_path, {"a.png": JPEG, "metadata.jsonl": jsonl({"file_name": "a.png", "text": "x"}) + "oops\n" * 5000})
    ingest, _ = listed(tmp_path)
    assert len(notes(ingest, "metadata-malformed")) == 21
    assert "4980 more" in notes(ingest, "metadata-malformed")[-1].message


def test_csv_with_too_many_cells_names_the_first_line_of_the_row(tmp_path: Path) -> None:
    text = 'file_name,text\na.png,"two\nlines"\nb.png,no, quotes\nc.png,fine\n'
    put(tmp_path, {"a.png": JPEG, "b.png": JPEG, "c.png": JPEG, "metadata.csv": text})
    ingest, found = listed(tmp_path)
    assert [r.captions for r in found.values()] == [("two\nlines",), (), ("fine",)]
    assert "metadata.csv:4:" in notes(ingest, "metadata-malformed")[0].message


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("captions_v2.jsonl", jsonl({"image": "0.png", "caption": "x"})),
        ("labels.csv", "path,text\nsub/0.png,x\n"),
        ("metadata.jsonl", jsonl({"image": "0.png", "caption": "x"})),
    ],
)
def test_metadata_that_nobody_reads_is_pointed_out(tmp_path: Path, name: str, content: str) -> None:
    put(tmp_path, {"sub/0.png" if "sub" in content else "0.png": JPEG, name: content, "prices.csv": "a,b\n1,2\n"})
    ingest, found = listed(tmp_path)
    assert ingest.layout == "folder"
    assert [r.captions for r in found.values()] == [()]
    assert [n.path for n in notes(ingest, "metadata-unused")] == [name]


def test_metadata_goes_before_a_sidecar_and_says_so(tmp_path: Path) -> None:
    put(tmp_path, {"a.png": JPEG, "a.txt": "side", "b.png": JPEG, "b.txt": "only"})
    put(tmp_path, {"metadata.jsonl": jsonl({"file_name": "a.png", "text": "meta"})})
    ingest, found = listed(tmp_path)
    assert [r.captions for r in found.values()] == [("meta",), ("only",)]
    assert [n.path for n in notes(ingest, "caption-conflict")] == ["a.png"]


def test_a_long_caption_in_csv_is_no_obstacle(tmp_path: Path) -> None:
    put(tmp_path, {"a.png": JPEG, "metadata.csv": "file_name,text\na.png," + "x" * 300_000 + "\n"})
    ingest, found = listed(tmp_path)
    assert len(found["a.png"].captions[0]) == 300_000
    assert [n.path for n in notes(ingest, "caption-huge")] == ["a.png"]


def test_parquet_that_is_none_is_noted(tmp_path: Path) -> None:
    put(tmp_path, {"a.png": JPEG, "metadata.parquet": b"PAR1 no table"})
    ingest, found = listed(tmp_path)
    assert list(found) == ["a.png"]
    assert [n.path for n in notes(ingest, "metadata-malformed")] == ["metadata.parquet"]
