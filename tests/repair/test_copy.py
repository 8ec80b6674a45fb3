"""What a fix writes into a copy: captions, formats, sizes, crops, light; that it is repeated, taken back, killed."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from skimage import data

from datasieve.cli import main
from datasieve.config import Settings
from datasieve.errors import OutputError
from datasieve.repair import Options, light, plan, white_balance
from datasieve.repair.beside import edits
from datasieve.repair.carry_out import carry_out
from datasieve.repair.journal import JOURNAL, Journal
from datasieve.repair.making import made
from datasieve.repair.run import fix
from datasieve.repair.undo import undo
from datasieve.sources import open_source

QUICK = Settings(embedder="none")


def digests(folder: Path) -> dict[str, str]:
    return {
        p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A photo, a sideways one and one with transparency, with captions of which one is damaged."""
    folder = tmp_path / "set"
    folder.mkdir()
    Image.fromarray(data.astronaut()[::2, ::2]).save(folder / "astronaut.jpg")
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.rot90(data.chelsea()).copy()).save(folder / "cat.jpg", exif=exif)
    clear = np.dstack([data.rocket()[::2, ::2], np.full((214, 320), 255, np.uint8)])
    clear[:, :100, 3] = 0
    Image.fromarray(clear).save(folder / "rocket.png")
    (folder / "astronaut.txt").write_bytes("an astronaut,, cafÃ©, orange,orange\r\n".encode())
    (folder / "cat.txt").write_bytes(b"a cat\r\n")
    return folder


def written(photos: Path, out: str = "out", **options: object) -> Path:
    return fix(photos, photos.parent / out, settings=QUICK, options=Options(**options)).clean  # type: ignore[arg-type]


def planned(photos: Path, options: Options, rows: dict[str, dict[str, object]], **more: object) -> list[plan.Action]:
    """Plan from rows made by hand: sound images, with what `rows` says besides (path -> columns)."""
    records = list(open_source(photos).records)
    table = {}
    for record in records:
        with Image.open(record.location.file) as image:
            size = {"width": image.width, "height": image.height, "format": image.format}
        digest = hashlib.blake2b(record.location.read(), digest_size=16).hexdigest()
        base = {"status": "ok", "content": digest, "concept": "", "error": None, "path": record.path, **size}
        table[record.image_id] = base | rows.get(record.path, {})
    return plan.plan(records, table, [], options, **more)  # type: ignore[arg-type]


def test_captions_are_mended_in_the_copy_and_provenance_says_how(photos: Path) -> None:
    out = written(photos)
    assert (out / "astronaut.txt").read_bytes() == "an astronaut, café, orange\r\n".encode()
    assert (out / "cat.txt").read_bytes() == b"a cat\r\n"
    assert (out / "astronaut.jpg").read_bytes() == (photos / "astronaut.jpg").read_bytes()
    rows = pd.read_parquet(out / "provenance.parquet").set_index("path")
    (step,) = json.loads(rows.loc["astronaut.jpg", "steps"])
    assert step["repair"] == "captions"
    assert "encoding" in step["parameters"]["done"]
    assert "captions.repeated-tags" in step["rules"]
    assert rows.loc["astronaut.jpg", "action"] == "copy"

    row = rows.loc["cat.jpg"]
    again, _ = made(
        (photos / "cat.jpg").read_bytes(), "cat.jpg", row["action"], json.loads(row["steps"]), row["result"]
    )
    assert hashlib.blake2b(again, digest_size=16).hexdigest() == row["result_hash"], "provenance repeats it bit for bit"


def test_captions_follow_select_and_ignore(photos: Path) -> None:
    records = list(open_source(photos).records)

    def changed(wanted: tuple[str, ...]) -> bool:
        return bool(edits(photos, records, {}, Options(), QUICK, lambda rule: rule in wanted))

    assert changed(("captions.damaged",))
    assert not changed(("files.rotated",))


def test_long_captions_are_cut_only_with_normalize(photos: Path) -> None:
    (photos / "cat.txt").write_text(", ".join(f"a cat that likes the number {n}" for n in range(30)))
    records = list(open_source(photos).records)
    plain = edits(photos, records, {}, Options(), QUICK, lambda _: True)["cat.jpg"]
    assert not plain.done
    cut = edits(photos, records, {}, Options(normalize=True), QUICK, lambda _: True)["cat.jpg"]
    assert cut.done
    assert set(cut.done) <= {"level of detail", "token limit"}
    assert cut.dropped.endswith("number 29")


def test_captions_of_a_table_become_text_files(photos: Path) -> None:
    (photos / "cat.txt").unlink()
    (photos / "metadata.jsonl").write_text('{"file_name": "cat.jpg", "text": "cat, orange fur,, cat"}\n')
    found = edits(photos, list(open_source(photos).records), {}, Options(), QUICK, lambda _: True)
    assert found["cat.jpg"].files == {".txt": b"cat, orange fur"}


def test_in_their_own_format_jpegs_stay_jpegs(photos: Path) -> None:
    out = written(photos, images="source")
    with Image.open(out / "cat.jpg") as turned:
        assert turned.format == "JPEG"
        assert turned.size == (451, 300)
        assert turned.info.get("icc_profile")
        assert not turned.getexif()
    assert pd.read_parquet(out / "provenance.parquet").set_index("path").loc["cat.jpg", "result"] == "cat.jpg"


def test_buckets_are_filled_exactly_and_a_second_fix_finds_nothing_to_do(photos: Path) -> None:
    options = Options(resize=True, resolution=256)
    out = written(photos, resize=True, resolution=256)
    sizes = {}
    for file in (*out.glob("*.png"), *out.glob("*.jpg")):
        with Image.open(file) as image:
            sizes[file.name] = image.size
    assert sizes == {"astronaut.jpg": (256, 256), "cat.png": (320, 192), "rocket.png": (320, 192)}
    again = fix(out, settings=QUICK, options=options, dry_run=True)
    assert {a.kind for a in again.actions} == {"copy"}


def test_what_would_be_enlarged_stays_and_is_named(photos: Path) -> None:
    actions = planned(photos, Options(resize=True, resolution=512), {})
    assert {a.record.path: a.kind for a in actions} == dict.fromkeys(("astronaut.jpg", "cat.jpg", "rocket.png"), "copy")
    assert all("enlarged" in a.skipped["resize"] for a in actions)


def subject(left: float, top: float, right: float, bottom: float, scale: str) -> dict[str, object]:
    sides = {"subject.left": left, "subject.top": top, "subject.right": right, "subject.bottom": bottom}
    return {**sides, "subject.certainty": 0.9, "subject.scale": scale}


def test_the_audit_knows_a_close_up_for_what_it_is(photos: Path) -> None:
    for number, pixels in enumerate(
        (data.astronaut(), data.coffee(), data.rocket()[:400], data.immunohistochemistry())
    ):
        Image.fromarray(pixels).save(photos / f"large{number}.png")
    box = subject(0.3, 0.3, 0.6, 0.7, "full")
    rows = {record.path: box for record in open_source(photos).records}
    actions = planned(photos, Options(balance=True, resolution=128), rows)
    made_new = [a for a in actions if a.is_cut_out]
    assert [a.derived_from for a in made_new] == ["large0.png"]
    entries = list(carry_out(actions, photos.parent / "out", photos.parent / "aside", 10**8, "x"))
    assert entries[-1]["derived_from"] == "large0.png"
    with Image.open(photos.parent / "out" / "large0-close.png") as close:
        assert close.size == (round(0.3 * 512 / 0.92), round(0.4 * 512 / 0.92))
    assert open_source(photos.parent / "out").derived == {"large0-close.png": "large0.png"}


def toy(shade: float, ground: tuple[float, float, float], place: int) -> np.ndarray:
    """A red ball with a highlight on a speckled ground, linear light, as encoded pixels."""
    noise = np.random.default_rng(place)
    picture = np.ones((240, 320, 3), np.float32) * np.array(ground, np.float32)
    picture *= (0.75 + 0.5 * noise.random((240, 320, 1))).astype(np.float32)
    rows, columns = np.mgrid[:240, :320]
    away = np.hypot(rows - 120 - place, columns - 160 + 2 * place) / 80
    ball = np.array([0.5, 0.03, 0.03], np.float32) * shade * np.clip(1.2 - away, 0.1, 1)[..., None]
    ball += (0.3 * np.exp(-((away - 0.3) ** 2) * 40))[..., None]
    return light.encoded(np.where((away < 1)[..., None], ball, picture).astype(np.float32))


GROUNDS = (
    (0.4, 0.4, 0.42),
    (0.3, 0.32, 0.3),
    (0.5, 0.48, 0.5),
    (0.35, 0.35, 0.35),
    (0.25, 0.26, 0.28),
    (0.45, 0.45, 0.4),
)


def test_red_toys_in_good_light_stay_bit_for_bit_and_one_under_a_lamp_joins_them(tmp_path: Path) -> None:
    folder = tmp_path / "toys"
    folder.mkdir()
    for number, ground in enumerate(GROUNDS):
        Image.fromarray(toy(0.8 + number / 20, ground, 3 * number)).save(folder / f"{number}.png")
    before = digests(folder)
    done = fix(folder, settings=QUICK, options=Options(normalize=True), ignore=("duplicates",))
    assert {n: d for n, d in digests(done.clean).items() if n in before} == before

    good = toy(0.9, (0.4, 0.4, 0.4), 5)
    lamp = white_balance.adaptation([1, 1, 1], [1.8, 0.85, 0.25]).T.astype(np.float32)
    Image.fromarray(light.encoded(light.linear(good) @ lamp)).save(folder / "lamp.png")
    done = fix(folder, settings=QUICK, options=Options(normalize=True), ignore=("duplicates",))
    kinds = {a.record.path: a.kind for a in done.actions}
    assert kinds == {**dict.fromkeys(before, "copy"), "lamp.png": "change"}
    with Image.open(folder / "lamp.png") as spoilt, Image.open(done.clean / "lamp.png") as mended:
        away = [np.abs(np.asarray(im, float) - good).mean() for im in (spoilt, mended)]
    assert away[1] < 0.4 * away[0]


def test_undo_takes_back_what_is_ours_and_nothing_else(photos: Path) -> None:
    out = written(photos)
    (out / "notes.md").write_text("mine")
    (out / "cat.txt").write_text("my own words")
    done = undo(out)
    assert done.left == {"cat.txt": "was changed since"}
    assert sorted(digests(out)) == [JOURNAL, "cat.txt", "notes.md", "provenance.parquet"]
    (out / "cat.txt").unlink()
    assert not undo(out).left
    assert sorted(digests(out)) == ["notes.md"]


def test_undo_keeps_the_last_of_its_kind(photos: Path) -> None:
    out = written(photos)
    (photos / "astronaut.jpg").unlink()
    done = undo(out)
    assert set(done.left) == {"astronaut.jpg", "astronaut.txt"}
    assert "source is gone" in done.left["astronaut.jpg"]
    assert (out / "astronaut.jpg").is_file()


def test_what_a_person_changed_in_the_copy_is_not_overwritten(photos: Path) -> None:
    out = written(photos)
    (out / "cat.txt").write_text("my own words")
    with pytest.raises(OutputError, match=r"cat\.txt has been changed since datasieve wrote it"):
        written(photos)
    assert (out / "cat.txt").read_text() == "my own words"


KILLED = """
import os, signal, sys
from datasieve.config import Settings
from datasieve.repair import carry_out
from datasieve.repair.run import fix
put, count = carry_out._put, 0
def dying(*arguments):
    global count
    count += 1
    if count == int(sys.argv[3]):
        with carry_out.atomic_path(arguments[0] / "cat.png") as half:
            half.write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
    put(*arguments)
carry_out._put = dying
fix(sys.argv[1], sys.argv[2], settings=Settings(embedder="none"))
"""


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_a_killed_fix_is_finished_by_the_next_as_if_nothing_had_been(photos: Path) -> None:
    whole = written(photos, "whole")
    command = [sys.executable, "-c", KILLED, str(photos), str(photos.parent / "out"), "3"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert list((photos.parent / "out").glob(".writing-*"))
    out = written(photos)
    mine = {n: d for n, d in digests(out).items() if n not in (JOURNAL, "provenance.parquet")}
    assert mine == {n: d for n, d in digests(whole).items() if n not in (JOURNAL, "provenance.parquet")}


def test_a_line_that_was_cut_off_does_not_swallow_the_next(tmp_path: Path) -> None:
    first = {"result": "a.png", "result_hash": "1", "with": {}}
    Journal(tmp_path).add(first)
    with (tmp_path / JOURNAL).open("a") as handle:
        handle.write('{"result": "b.p')
    Journal(tmp_path).add({**first, "result": "c.png"})
    assert set(Journal(tmp_path).entries) == {"a.png", "c.png"}


def test_a_full_disk_and_a_place_where_nothing_can_be_written_are_named(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OutputError, match=r"cannot write /proc/.*\n.*Choose a folder you may write to"):
        fix(photos, "/proc/nobody/out", settings=QUICK)

    def full(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    actions = planned(photos, Options(), {})
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutputError, match=r"cannot write .*astronaut.*No space left.*\n.*a rerun continues"):
        list(carry_out(actions, photos.parent / "out", photos.parent / "aside", 10**8, "x"))


def test_the_plan_is_told_as_a_table_and_as_json(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fix", str(photos), "--dry-run", "-q", "--normalize", "--resize", "--resolution", "128"]) == 0
    text = capsys.readouterr().out
    assert "3 images" in text
    assert "3  resize" in text
    assert "1  captions  astronaut.jpg" in text
    assert "Only the report was written" in text
    assert main(["fix", str(photos), "--dry-run", "-q", "--format", "json"]) == 0
    told = {image["path"]: image for image in json.loads(capsys.readouterr().out)["images"]}
    assert told["cat.jpg"]["steps"][0]["parameters"] == {"orientation": 6}
    assert told["cat.jpg"]["result"] == "cat.png"
    assert sorted(p.name for p in photos.parent.iterdir()) == ["set", "set-report"]
    assert main(["fix", str(photos), "--upscale"]) == 2


def test_path_and_copy_have_defaults(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos)
    assert main(["fix", "-q"]) == 0
    assert (photos.parent / "set-clean" / "cat.png").is_file()
    assert main(["undo", "../set-clean"]) == 0
    assert not (photos.parent / "set-clean").exists()
