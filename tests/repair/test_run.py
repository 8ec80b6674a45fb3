"""`fix` as a whole: what is written, what is left alone, and what happens when things go wrong."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageCms
from skimage import data

from datasieve.errors import OutputError
from datasieve.repair import Options
from datasieve.repair.carry_out import JOURNAL
from datasieve.repair.run import fix


def digests(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def jpeg(pixels: np.ndarray, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=92, **options)
    return buffer.getvalue()


def pixels_of(file: Path) -> np.ndarray:
    with Image.open(file) as image:
        return np.asarray(image)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of six sound photos with captions."""
    folder = tmp_path / "set"
    folder.mkdir()
    coffee = data.coffee()
    pictures = {
        "astronaut": data.astronaut(),
        "cat": data.chelsea(),
        "coffee": coffee[:, :520],
        "rocket": data.rocket(),
        "retina": data.retina()[::2, ::2],
        "cells": data.immunohistochemistry(),
    }
    for name, pixels in pictures.items():
        (folder / f"{name}.jpg").write_bytes(jpeg(pixels))
        (folder / f"{name}.txt").write_bytes(f"a photo of {name}\r\n".encode())
    return folder


def test_sound_images_and_their_captions_are_copied_byte_for_byte(photos: Path) -> None:
    before = digests(photos)
    done = fix(photos, photos.parent / "out", options=Options(normalize=True), ignore=("colour",))
    assert {a.kind for a in done.actions} == {"copy"}
    written = {n: d for n, d in digests(photos.parent / "out").items() if n.endswith((".jpg", ".txt"))}
    assert written == before
    assert digests(photos) == before
    assert not done.aside.exists()


def test_a_sideways_photo_is_turned_and_loses_its_tag(photos: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    (photos / "cat.jpg").write_bytes(jpeg(np.rot90(data.chelsea()), exif=exif))
    fix(photos, photos.parent / "out", select=("files.rotated",))
    with Image.open(photos.parent / "out" / "cat.png") as turned:
        assert turned.getexif().get(0x0112, 1) == 1
        assert turned.size == (451, 300)
        assert np.abs(np.asarray(turned, float) - data.chelsea()).mean() < 4  # JPEG's loss


def test_a_wide_gamut_photo_becomes_srgb_as_littlecms_converts_it(photos: Path) -> None:
    profile = (Path(__file__).parents[2] / "fixtures" / "torture" / "icc" / "displayp3_converted.jpg").read_bytes()
    (photos / "wide.jpg").write_bytes(profile)
    fix(photos, photos.parent / "out", select=("files.profile",))
    with Image.open(photos / "wide.jpg") as source:
        wanted = ImageCms.profileToProfile(
            source.convert("RGB"),
            ImageCms.ImageCmsProfile(io.BytesIO(source.info["icc_profile"])),
            ImageCms.createProfile("sRGB"),
            renderingIntent=ImageCms.Intent.RELATIVE_COLORIMETRIC,
            flags=ImageCms.Flags.BLACKPOINTCOMPENSATION,
        )
    assert wanted is not None
    raw = (photos.parent / "out" / "wide.png").read_bytes()
    assert b"sRGB" in raw[:64]
    with Image.open(io.BytesIO(raw)) as result:
        assert "icc_profile" not in result.info
        assert np.abs(np.asarray(result, int) - np.asarray(wanted, int)).max() <= 2


def test_copies_and_broken_files_are_set_aside_with_the_reason(photos: Path) -> None:
    (photos / "again.jpg").write_bytes((photos / "cat.jpg").read_bytes())
    (photos / "cut.jpg").write_bytes((photos / "rocket.jpg").read_bytes()[:9000])
    done = fix(photos, photos.parent / "out")
    kinds = {a.record.path: a.kind for a in done.actions if a.kind != "copy"}
    assert kinds == {"cat.jpg": "set aside", "cut.jpg": "quarantine"}  # again.jpg comes first by name
    aside = photos.parent / "out-set-aside"
    assert (aside / "copies" / "cat.jpg").read_bytes() == (photos / "cat.jpg").read_bytes()
    assert (aside / "copies" / "cat.txt").exists()
    rows = pd.read_parquet(photos.parent / "out" / "provenance.parquet").set_index("path")
    assert rows.loc["cat.jpg", "reason"] == "It is a copy of again.jpg."
    assert "ends too early" in rows.loc["cut.jpg", "reason"]


def test_transparency_is_flattened_or_kept_as_a_mask(photos: Path) -> None:
    cat = np.dstack([data.chelsea(), np.full((300, 451), 255, np.uint8)])
    cat[:, :200, 3] = 0
    Image.fromarray(cat).save(photos / "clear.png")
    fix(photos, photos.parent / "flat", options=Options(background=(10, 20, 30)))
    flat = pixels_of(photos.parent / "flat" / "clear.png")
    assert flat.shape == (300, 451, 3)
    assert (flat[:, :200] == (10, 20, 30)).all()
    assert np.array_equal(flat[:, 200:], data.chelsea()[:, 200:])
    fix(photos, photos.parent / "masked", options=Options(alpha="mask"))
    mask = pixels_of(photos.parent / "masked" / "clear-masklabel.png")
    assert np.array_equal(mask, cat[..., 3])


def test_gps_goes_and_the_pixels_stay(photos: Path) -> None:
    exif = Image.Exif()
    exif.get_ifd(0x8825)[1] = "N"
    exif.get_ifd(0x8825)[2] = (51.0, 30.0, 0.0)
    exif[0x013B] = "Somebody"
    (photos / "cat.jpg").write_bytes(jpeg(data.chelsea(), exif=exif))
    done = fix(photos, photos.parent / "out", select=("files.gps",))
    assert {a.record.path: a.kind for a in done.actions}["cat.jpg"] == "strip"
    result = photos.parent / "out" / "cat.jpg"
    assert b"Somebody" not in result.read_bytes()
    with Image.open(result) as stripped, Image.open(photos / "cat.jpg") as original:
        assert not stripped.getexif()
        assert np.array_equal(np.asarray(stripped), np.asarray(original))


def test_only_with_normalize_bars_are_trimmed(photos: Path) -> None:
    barred = data.astronaut().copy()
    barred[:64] = barred[-64:] = 0
    (photos / "barred.jpg").write_bytes(jpeg(barred))
    plain = fix(photos, photos.parent / "a", select=("frame",))
    assert {a.kind for a in plain.actions} == {"copy"}
    fix(photos, photos.parent / "b", options=Options(normalize=True), select=("frame",))
    with Image.open(photos.parent / "b" / "barred.png") as trimmed:
        assert trimmed.width == 512
        assert 380 - 8 <= trimmed.height <= 384


def test_a_second_fix_changes_nothing_and_a_fix_of_the_result_only_copies(photos: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 3
    (photos / "cat.jpg").write_bytes(jpeg(data.chelsea(), exif=exif))
    options = Options(normalize=True)
    first = fix(photos, photos.parent / "out", options=options)
    once = digests(photos.parent / "out")
    times = {p: p.stat().st_mtime_ns for p in (photos.parent / "out").glob("*.png")}
    fix(photos, photos.parent / "out", options=options)
    assert digests(photos.parent / "out") == once
    assert {p: p.stat().st_mtime_ns for p in times} == times, "nothing was made again"
    again = fix(photos.parent / "out", options=options, dry_run=True)
    assert {a.kind for a in again.actions} == {"copy"}
    assert first.after is not None


def test_an_interrupted_fix_goes_on_where_it_stopped(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from datasieve.repair import carry_out

    whole_run = fix(photos, photos.parent / "whole")
    put, count = carry_out._put, 0

    def failing(*arguments: object) -> None:
        nonlocal count
        count += 1
        if count > 5:
            raise KeyboardInterrupt
        put(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(carry_out, "_put", failing)
    with pytest.raises(KeyboardInterrupt):
        fix(photos, photos.parent / "out")
    monkeypatch.setattr(carry_out, "_put", put)
    fix(photos, photos.parent / "out")
    pictures = {n: d for n, d in digests(photos.parent / "out").items() if n.endswith((".jpg", ".png", ".txt"))}
    wanted = digests(whole_run.clean)
    assert pictures == {n: d for n, d in wanted.items() if n in pictures or n.endswith((".jpg", ".txt"))}


def test_what_is_no_longer_wanted_goes_but_not_what_a_person_changed(photos: Path) -> None:
    (photos / "again.jpg").write_bytes((photos / "cat.jpg").read_bytes())
    fix(photos, photos.parent / "out", ignore=("duplicates",))
    edited = photos.parent / "out" / "cat.txt"
    edited.write_text("my own words")
    fix(photos, photos.parent / "out")
    assert not (photos.parent / "out" / "cat.jpg").exists()
    assert edited.read_text() == "my own words"


def test_it_refuses_to_write_into_its_source_or_over_strangers(photos: Path) -> None:
    for folder in (photos, photos / "clean", photos.parent):
        with pytest.raises(OutputError, match=r"dataset|did not write"):
            fix(photos, folder)
    strange = photos.parent / "strange"
    strange.mkdir()
    (strange / "thesis.doc").write_text("years of work")
    with pytest.raises(OutputError, match="did not write"):
        fix(photos, strange)
    (strange / "thesis.doc").rename(strange / "cat.jpg")
    (strange / JOURNAL).touch()
    with pytest.raises(OutputError, match=r"cat\.jpg is not a file that datasieve wrote"):
        fix(photos, strange)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_target_is_named(photos: Path) -> None:
    target = photos.parent / "locked"
    target.mkdir(mode=0o500)
    with pytest.raises(OutputError, match="locked"):
        fix(photos, target / "out")


def test_a_dry_run_writes_nothing_but_the_report(photos: Path) -> None:
    before = set(photos.parent.iterdir())
    fix(photos, photos.parent / "out", dry_run=True)
    assert {p.name for p in set(photos.parent.iterdir()) - before} == {"set-report"}


def test_shards_become_a_folder_with_captions(tmp_path: Path) -> None:
    import tarfile

    source = tmp_path / "in"
    source.mkdir()
    with tarfile.open(source / "0.tar", "w") as tar:
        for name, content in (("a.jpg", jpeg(data.chelsea())), ("a.txt", b"a cat"), ("b.jpg", jpeg(data.rocket()))):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    fix(source, tmp_path / "out")
    assert (tmp_path / "out" / "0" / "a.jpg").read_bytes() == jpeg(data.chelsea())
    assert (tmp_path / "out" / "0" / "a.txt").read_text() == "a cat"


def test_provenance_tells_source_result_and_steps(photos: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 8
    (photos / "cat.jpg").write_bytes(jpeg(data.chelsea(), exif=exif))
    done = fix(photos, photos.parent / "out", select=("files.rotated",))
    row = pd.read_parquet(done.clean / "provenance.parquet").set_index("path").loc["cat.jpg"]
    result = (done.clean / row["result"]).read_bytes()
    assert row["result_hash"] == hashlib.blake2b(result, digest_size=16).hexdigest()
    source = (photos / "cat.jpg").read_bytes()
    assert row["source_hash"] == hashlib.blake2b(source, digest_size=16).hexdigest()
    assert json.loads(row["steps"]) == [
        {"repair": "upright", "rules": ["files.rotated"], "parameters": {"orientation": 8}}
    ]
    assert json.loads(row["before"])["files.orientation"] == 8
    assert json.loads(row["after"])["files.orientation"] == 1
    shutil.rmtree(done.clean)
