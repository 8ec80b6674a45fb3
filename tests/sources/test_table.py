from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from datasieve.errors import InputError
from datasieve.sources import open_source
from tests.sources.layouts import JPEG, listed, notes, put


def test_a_text_file_lists_paths_in_its_own_order(tmp_path: Path) -> None:
    put(tmp_path, {"b/#1, x.jpg": JPEG, "b/#1, x.txt": "side", "a.jpg": JPEG, "left out.jpg": JPEG})
    text = f"\ufeffb/#1, x.jpg\r\n\r\n{tmp_path}/a.jpg\r\ngone.jpg\r\n./a.jpg\r\n"
    put(tmp_path, {"list.txt": text})
    ingest, found = listed(tmp_path / "list.txt")
    assert (ingest.layout, ingest.root, ingest.total) == ("list", tmp_path, 2)
    assert [(r.path, r.captions, r.concept) for r in found.values()] == [
        ("b/#1, x.jpg", ("side",), "b"),
        ("a.jpg", (), ""),
    ]
    messages = [n.message for n in notes(ingest, "metadata-mismatch")]
    assert messages[0].startswith("list.txt:4 names 'gone.jpg'")
    assert messages[1].startswith("list.txt:5 names './a.jpg' again")
    assert ingest.passed_over == {"not listed by metadata": 1}


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_tables_bring_captions_and_concepts(tmp_path: Path, kind: str) -> None:
    put(tmp_path, {"x/a.jpg": JPEG, "x/b.jpg": JPEG, "x/a.txt": "not this"})
    file = tmp_path / f"list.{kind}"
    if kind == "parquet":
        rows = {
            "image": ["x/a.jpg", "x/b.jpg"],
            "caption": ["one, two", None],
            "concept": ["toy", "dog"],
            "raw": [b"1", b"2"],
        }
        pq.write_table(pa.table(rows), file)
    elif kind == "jsonl":
        file.write_text(
            '{"image": "x/a.jpg", "caption": "one, two", "concept": "toy"}\n{"image": "x/b.jpg", "concept": "dog"}\n'
        )
    else:
        comma = "," if kind == "csv" else "\t"
        file.write_text(
            "\n".join(
                comma.join(r)
                for r in [("image", "caption", "concept"), ("x/a.jpg", '"one, two"', "toy"), ("x/b.jpg", "", "dog")]
            )
        )
    _, found = listed(file)
    empty = ("",) if kind in ("csv", "tsv") else ()
    assert [(r.path, r.captions, r.concept) for r in found.values()] == [
        ("x/a.jpg", ("one, two",), "toy"),
        ("x/b.jpg", empty, "dog"),
    ]


def test_a_csv_without_header_is_a_list_of_paths(tmp_path: Path) -> None:
    put(tmp_path, {"a.jpg": JPEG, "b, c.jpg": JPEG, "list.csv": "a.jpg\nb, c.jpg\n"})
    assert list(listed(tmp_path / "list.csv")[1]) == ["a.jpg", "b, c.jpg"]


def test_images_outside_move_the_root_so_that_paths_stay_below_it(tmp_path: Path) -> None:
    put(tmp_path, {"lists/l.txt": "../pics/a.jpg\n", "pics/a.jpg": JPEG})
    ingest, found = listed(tmp_path / "lists" / "l.txt")
    assert ingest.root == tmp_path
    assert list(found) == ["pics/a.jpg"]


def test_names_in_the_encoding_of_the_disk_are_found(tmp_path: Path) -> None:
    try:
        with open(bytes(tmp_path) + b"/caf\xe9.jpg", "wb") as handle:
            handle.write(JPEG)
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    put(tmp_path, {"l.txt": b"caf\xe9.jpg\n"})
    assert len(listed(tmp_path / "l.txt")[1]) == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [("l.txt", "gone.jpg\n"), ("l.txt", ""), ("l.jsonl", '{"x": 1}\n'), ("l.parquet", b"no"), ("l.txt", "x.md\n")],
)
def test_a_list_of_nothing_is_refused_with_a_remedy(tmp_path: Path, name: str, content: bytes | str) -> None:
    put(tmp_path, {"a.jpg": JPEG, "x.md": "x", name: content})
    with pytest.raises(InputError) as caught:
        open_source(tmp_path / name)
    assert name in caught.value.message
    assert caught.value.remedy


def test_many_missing_files_are_not_as_many_notes(tmp_path: Path) -> None:
    put(tmp_path, {"a.jpg": JPEG, "l.txt": "a.jpg\n" + "".join(f"{i}.jpg\n" for i in range(100))})
    ingest, _ = listed(tmp_path / "l.txt")
    assert len(notes(ingest, "metadata-mismatch")) == 21
