"""Repairing a set where it lies: nothing is lost, whatever happens, and it can be taken back."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from skimage import data

from datasieve.cli import main
from datasieve.config import Settings
from datasieve.errors import InputError, OutputError
from datasieve.repair import in_place
from datasieve.repair.run import Fixed, fix
from datasieve.repair.undo import undo

QUICK = Settings(embedder="none")


def digests(folder: Path) -> dict[str, str]:
    return {
        p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A sound photo, a sideways one, an exact copy, a cut-off file; one caption is damaged."""
    folder = tmp_path / "set"
    folder.mkdir()
    Image.fromarray(data.astronaut()[::2, ::2]).save(folder / "astronaut.jpg")
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.rot90(data.chelsea()).copy()).save(folder / "cat.jpg", exif=exif)
    Image.fromarray(data.rocket()[::2, ::2]).save(folder / "rocket.jpg")
    (folder / "again.jpg").write_bytes((folder / "rocket.jpg").read_bytes())
    (folder / "cut.jpg").write_bytes((folder / "rocket.jpg").read_bytes()[:3000])
    for file in sorted(folder.glob("*.jpg")):
        file.with_suffix(".txt").write_text(f"a photo of {file.stem}\n")
    (folder / "astronaut.txt").write_bytes("an astronaut,, cafÃ©, orange,orange\r\n".encode())
    return folder


def repaired(photos: Path) -> Fixed:
    return fix(photos, backup=photos.parent / "kept", settings=QUICK)


def test_the_set_is_repaired_and_undo_brings_every_byte_back(photos: Path) -> None:
    before = digests(photos)
    done = repaired(photos)
    assert {a.record.path: a.kind for a in done.actions} == {
        "again.jpg": "copy",
        "astronaut.jpg": "copy",
        "cat.jpg": "change",
        "cut.jpg": "quarantine",
        "rocket.jpg": "set aside",
    }
    assert sorted(digests(photos)) == ["again.jpg", "again.txt", "astronaut.jpg", "astronaut.txt", "cat.png", "cat.txt"]
    assert (photos / "astronaut.txt").read_bytes() == "an astronaut, café, orange\r\n".encode()
    with Image.open(photos / "cat.png") as turned:
        assert turned.size == (451, 300)
    kept = digests(photos.parent / "kept" / "originals")
    assert kept == {p: before[p] for p in kept}
    assert {"cat.jpg", "rocket.jpg", "rocket.txt", "cut.jpg", "cut.txt", "astronaut.txt"} == set(kept)
    assert (photos.parent / "kept" / "provenance.parquet").is_file()

    changed = digests(photos)
    again = repaired(photos)
    assert {a.kind for a in again.actions} == {"copy"}
    assert digests(photos) == changed

    assert not undo(photos.parent / "kept").left
    assert digests(photos) == before
    assert undo(photos.parent / "kept").restored == []
    assert digests(photos) == before


@pytest.mark.parametrize("point", ["during the backup", "during the swap", "before the last line"])
def test_a_run_that_is_stopped_anywhere_is_finished_by_the_next(
    photos: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    before = digests(photos)
    name, after = {
        "during the backup": ("_copied", 2),
        "during the swap": ("hash_of", 18),
        "before the last line": ("write_swap", 1),
    }[point]
    real, calls = getattr(in_place, name), 0

    def stopping(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls > after:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(in_place, name, stopping)
    with pytest.raises(KeyboardInterrupt):
        repaired(photos)
    monkeypatch.setattr(in_place, name, real)
    if point == "during the backup":
        assert digests(photos) == before, "before the whole backup is there nothing is changed"
    repaired(photos)
    assert sorted(digests(photos)) == ["again.jpg", "again.txt", "astronaut.jpg", "astronaut.txt", "cat.png", "cat.txt"]
    assert not (photos.parent / "kept" / "staged").exists()
    undo(photos.parent / "kept")
    assert digests(photos) == before


def test_undo_leaves_what_somebody_changed_since_and_says_so(photos: Path) -> None:
    before = digests(photos)
    repaired(photos)
    (photos / "cat.txt").write_text("my own words")  # not touched by the fix: none of undo's business
    (photos / "astronaut.txt").write_text("other words")
    (photos / "cat.png").write_bytes(b"painted over")
    done = undo(photos.parent / "kept")
    assert sorted(done.left) == ["astronaut.txt", "cat.png"]
    assert (photos / "astronaut.txt").read_text() == "other words"
    assert digests(photos)["cat.jpg"] == before["cat.jpg"]
    assert main(["undo", str(photos.parent / "kept")]) == 1


def test_a_second_fix_does_not_bury_the_first_originals(photos: Path) -> None:
    repaired(photos)
    exif = Image.Exif()
    exif[0x0112] = 3
    Image.fromarray(data.coffee()[::2, ::2]).save(photos / "coffee.jpg", exif=exif)
    with pytest.raises(OutputError, match="originals of an earlier fix"):
        repaired(photos)


def test_it_refuses_what_it_could_not_give_back(photos: Path) -> None:
    for place in (photos, photos / "kept", photos.parent):
        with pytest.raises(OutputError, match="dataset"):
            fix(photos, backup=place, settings=QUICK)
    strange = photos.parent / "strange"
    strange.mkdir()
    (strange / "thesis.doc").write_text("years of work")
    with pytest.raises(OutputError, match="did not write"):
        fix(photos, backup=strange, settings=QUICK)
    (photos / "cat.png").write_text("not a picture, and not in the plan")
    (photos / "cat.png").rename(photos / "cat.png.part")
    target = photos.parent / "elsewhere.jpg"
    (photos / "cat.jpg").rename(target)
    os.symlink(target, photos / "cat.jpg")
    with pytest.raises(InputError, match="is a link"):
        repaired(photos)
    assert target.is_file()


def test_a_set_whose_images_are_named_in_a_table_is_not_repaired_in_place(photos: Path) -> None:
    (photos / "metadata.jsonl").write_text('{"file_name": "cat.jpg", "text": "a cat"}\n')
    with pytest.raises(InputError, match="imagefolder"):
        repaired(photos)


def test_a_damaged_backup_is_never_put_back(photos: Path) -> None:
    repaired(photos)
    (photos.parent / "kept" / "originals" / "cat.jpg").write_bytes(b"rotten")
    with pytest.raises(OutputError, match=r"cat\.jpg is missing or damaged"):
        undo(photos.parent / "kept")
    with pytest.raises(InputError, match="not what a fix wrote"):
        undo(photos)


def test_a_dry_run_touches_neither_set_nor_backup(photos: Path) -> None:
    before = digests(photos)
    fix(photos, backup=photos.parent / "kept", settings=QUICK, dry_run=True)
    assert digests(photos) == before
    assert not (photos.parent / "kept").exists()


def test_the_command_wants_both_or_neither(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fix", str(photos), "--in-place"]) == 2
    assert main(["fix", str(photos), "--backup", str(photos.parent / "kept")]) == 2
    assert "--in-place and --backup FOLDER go together" in capsys.readouterr().err
    assert main(["fix", str(photos), "--in-place", "--backup", "x", "--out", "y"]) == 2
