from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from datasieve.errors import InputError
from datasieve.records import image_id
from datasieve.sources import open_source
from datasieve.sources.ingest import Ledger
from datasieve.sources.names import IMAGE_EXTENSIONS, check_names, image_content, odd, split
from tests.sources.layouts import JPEG, PNG, listed, notes, put


def test_every_still_picture_format_of_pillow_is_listed() -> None:
    Image.init()
    opened = {e for e, name in Image.registered_extensions().items() if name in Image.OPEN}
    # Video, scientific containers and page descriptions: known to the plug-in list, not to be trained on.
    others = {".mpg", ".mpeg", ".h5", ".hdf", ".grib", ".bufr", ".iim", ".emf", ".wmf", ".ps"}
    assert opened - others <= IMAGE_EXTENSIONS
    assert {".heic", ".heif", ".avif", ".jxl"} <= IMAGE_EXTENSIONS


def test_extensions_compare_without_case(tmp_path: Path) -> None:
    put(tmp_path, {"A.JPG": JPEG, "A.txt": "a", "b.JpEg": JPEG, "b.TXT": "b", "C.PNG": PNG, "C.Caption": "c"})
    ingest, found = listed(tmp_path)
    assert {p: r.captions for p, r in found.items()} == {"A.JPG": ("a",), "b.JpEg": ("b",), "C.PNG": ("c",)}
    assert [n.rule for n in ingest.notes] == ["layout.caption-mixed"]


def test_content_decides_where_the_extension_says_nothing(tmp_path: Path) -> None:
    put(
        tmp_path,
        {"scan": JPEG, "photo.original": PNG, "thing.blob": b"no picture", "BMW": b"BMW is a car, not a bitmap"},
    )
    ingest, found = listed(tmp_path)
    assert list(found) == ["photo.original", "scan"]
    assert ingest.passed_over == {"not an image": 2}


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "JPEG2000", "AVIF"])
def test_signatures_are_those_of_files_that_pillow_writes(tmp_path: Path, kind: str) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "x", kind)
    assert image_content((tmp_path / "x").read_bytes()[:32])


def test_empty_and_broken_images_are_records(tmp_path: Path) -> None:
    put(tmp_path, {"empty.jpg": b"", "noise.png": b"no picture at all"})
    (tmp_path / "dangling.jpg").symlink_to(tmp_path / "gone.jpg")
    ingest, found = listed(tmp_path)
    assert list(found) == ["dangling.jpg", "empty.jpg", "noise.png"]
    assert ingest.total == 3


def test_what_is_passed_over_is_counted_by_reason(tmp_path: Path) -> None:
    put(
        tmp_path,
        {"a.jpg": JPEG, "._a.jpg": b"x", "._a.txt": b"x", "__MACOSX/._b.jpg": b"x", "__MACOSX/d/._c.jpg": b"x"},
    )
    put(tmp_path, {"Thumbs.db": b"x", "desktop.ini": b"x", ".DS_Store": b"x", ".hidden.jpg": JPEG, ".git/x.jpg": JPEG})
    put(tmp_path, {"a.npz": b"x", "a_sdxl.safetensors": b"x", "notes.md": "x", "set.zip": b"x", "a.dng": b"II*\0"})
    put(tmp_path, {"a-masklabel.png": PNG})
    ingest, found = listed(tmp_path)
    assert list(found) == ["a.jpg"]
    expected = {"archive shadow": 4, "system file": 3, "hidden": 2, "cache": 2, "not an image": 1, "archive": 1}
    assert ingest.passed_over == {**expected, "raw photo": 1, "mask": 1}
    assert [n.path for n in notes(ingest, "archive")] == ["set.zip"]


def test_reports_are_passed_over_but_other_run_json_are_not(tmp_path: Path) -> None:
    put(tmp_path, {"a.jpg": JPEG, "old-report/run.json": '{"datasieve": "0.1.0"}', "old-report/thumb.jpg": JPEG})
    put(tmp_path, {"mine/run.json": '{"other": 1}', "mine/b.jpg": JPEG, "odd/run.json": "not json", "odd/c.jpg": JPEG})
    ingest, found = listed(tmp_path)
    assert list(found) == ["a.jpg", "mine/b.jpg", "odd/c.jpg"]
    assert ingest.passed_over["report"] == 1
    with pytest.raises(InputError, match="report of datasieve"):
        open_source(tmp_path / "old-report")


def test_brackets_stars_and_question_marks_are_letters(tmp_path: Path) -> None:
    root = put(tmp_path / "set [a-c]", {"what*/1 [x].png": PNG, "what*/1 [x].txt": "one", "why?/#2 100%.png": PNG})
    ingest, found = listed(root)
    assert {p: r.captions for p, r in found.items()} == {"what*/1 [x].png": ("one",), "why?/#2 100%.png": ()}
    assert ingest.notes == []


def test_links_are_followed_and_circles_are_left_with_a_note(tmp_path: Path) -> None:
    root = put(tmp_path / "set", {"cats/a.jpg": JPEG})
    outside = put(tmp_path / "elsewhere", {"b.jpg": JPEG})
    (root / "dogs").symlink_to(outside)
    (root / "c.jpg").symlink_to(outside / "b.jpg")
    (root / "cats" / "back").symlink_to(root)
    ingest, found = listed(root)
    assert list(found) == ["c.jpg", "cats/a.jpg", "dogs/b.jpg"]
    assert [n.path for n in notes(ingest, "symlink-loop")] == ["cats/back"]


def test_folders_that_all_link_to_each_other_do_not_multiply(tmp_path: Path) -> None:
    names = [f"d{i}" for i in range(8)]
    for name in names:
        put(tmp_path, {f"{name}/x.jpg": JPEG})
    for a in names:
        for b in names:
            if a != b:
                (tmp_path / a / f"to_{b}").symlink_to(tmp_path / b)
    _, found = listed(tmp_path)
    # Each folder once by itself and once through a link.
    assert len(found) == 16


def test_a_link_to_itself_is_an_unreadable_image_not_a_crash(tmp_path: Path) -> None:
    put(tmp_path, {"a.jpg": JPEG})
    (tmp_path / "self.jpg").symlink_to(tmp_path / "self.jpg")
    assert list(listed(tmp_path)[1]) == ["a.jpg", "self.jpg"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_never_opened(tmp_path: Path) -> None:
    put(tmp_path, {"a.jpg": JPEG})
    os.mkfifo(tmp_path / "pipe.jpg")
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "a.txt")
    ingest, found = listed(tmp_path)
    assert list(found) == ["a.jpg"]
    assert ingest.passed_over == {"not a file": 3}


def test_a_folder_that_cannot_be_read_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, {"a.jpg": JPEG, "locked/b.jpg": JPEG})
    real = os.scandir

    def refuse(path: str | os.PathLike[str]) -> object:
        if os.fspath(path).endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    ingest, found = listed(tmp_path)
    assert list(found) == ["a.jpg"]
    assert [n.path for n in notes(ingest, "unreadable-folder")] == ["locked"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_bytes_that_are_not_utf8_are_kept_and_noted(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/caf\xe9.jpg", "wb") as handle:
        handle.write(JPEG)
    ingest, found = listed(tmp_path)
    (record,) = found.values()
    assert os.fsencode(record.path) == b"caf\xe9.jpg"
    assert record.location.read() == JPEG
    (note,) = notes(ingest, "odd-name")
    note.message.encode("utf-8")


@pytest.mark.parametrize(
    "name", ["a\nb.jpg", "a\x1b[31m.jpg", "x" * 197 + ".jpg", "猫" * 66 + ".jpg", "a\u202egpj.exe.jpg", "a.jpg "]
)
def test_odd_names_are_called_odd(name: str) -> None:
    assert odd(name)


@pytest.mark.parametrize(
    "name", ["love🙏.png", "👩‍👩‍👧.png", "猫 写真.png", "100%25 sure?.png", "#1 + b & c.png", "x" * 196 + ".jpg"]
)
def test_unusual_but_valid_names_are_not(name: str) -> None:
    assert odd(name) == ""


@pytest.mark.parametrize(
    ("names", "rules"),
    [
        (["a.jpg", "a.png"], ["layout.same-stem"]),
        (["IMG.jpg", "img.JPG"], ["layout.case-clash"]),
        (["caf\u00e9.jpg", "cafe\u0301.jpg"], ["layout.case-clash"]),
        (["a.b.jpg", "a.c.jpg", "b.jpg"], []),
    ],
)
def test_names_that_clash_are_noted_on_the_later_one(names: list[str], rules: list[str]) -> None:
    ledger = Ledger()
    check_names("sub", names, ledger)
    assert [n.rule for n in ledger.notes] == rules
    assert all(n.path == f"sub/{names[1]}" for n in ledger.notes)


def test_namesakes_in_two_folders_are_two_images(tmp_path: Path) -> None:
    put(tmp_path, {"day/img.png": PNG, "night/img.png": PNG, "img.png": PNG})
    ingest, found = listed(tmp_path)
    assert len({r.image_id for r in found.values()}) == 3
    assert all(r.image_id == image_id(p) for p, r in found.items())
    assert ingest.notes == []


def test_the_order_is_not_that_of_the_operating_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, {f"{d}/{n}.jpg": JPEG for d in ("b", "a", "a/z", "C") for n in ("2", "10", "x")})
    expected = list(listed(tmp_path)[1])
    assert expected == sorted(expected, key=lambda p: (p.split("/")[:-1], p))

    class Backwards(list[os.DirEntry[str]]):
        def __enter__(self) -> Backwards:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def close(self) -> None:
            pass

    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: Backwards(reversed(list(real(path)))))
    assert list(listed(tmp_path)[1]) == expected


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=20))
def test_stem_and_extension_put_together_are_the_name(name: str) -> None:
    stem, extension = split(name)
    assert (stem + extension).lower() == name.lower() or len(name.lower()) != len(name)
    assert "." not in extension[1:]


def test_a_dataset_is_not_touched(tmp_path: Path) -> None:
    put(tmp_path, {"a.jpg": JPEG, "a.txt": "\ufeffx", "metadata.jsonl": '{"file_name": "a.jpg", "text": "y"}\n'})
    before = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in tmp_path.rglob("*")}
    listed(tmp_path)
    assert {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in tmp_path.rglob("*")} == before


@pytest.mark.parametrize("name", ["missing", "empty", "texts", "picture.jpg", "strange.xyz"])
def test_nothing_usable_is_refused_with_a_remedy(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    put(tmp_path, {"texts/a.md": "x", "picture.jpg": JPEG, "strange.xyz": "x"})
    with pytest.raises(InputError) as caught:
        open_source(tmp_path / name)
    assert name in caught.value.message
    assert caught.value.remedy
