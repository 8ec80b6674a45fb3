"""What is said about files, and which rules fire on them."""

import io
import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from datasieve.analyzers.files import ANALYZER, RULES, measure_file
from datasieve.batch import Batch, DecodeRequest
from datasieve.imaging.decode import decode
from datasieve.records import ImageRecord, Location, image_id
from datasieve.rules import Rule, fill

TORTURE = Path(__file__).parents[2] / "fixtures" / "torture"
BY_ID = {r.id: r for r in RULES}
Row = dict[str, float | int | bool | str | None]


def photo(size: tuple[int, int] = (640, 600)) -> Image.Image:
    values = np.random.default_rng(2).integers(0, 256, (size[1] // 40 + 1, size[0] // 40 + 1, 3)).astype(np.uint8)
    return Image.fromarray(values).resize(size)


def encoded(image: Image.Image, form: str, **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def measured(data: bytes, name: str = "a.jpg") -> Row:
    record = ImageRecord(image_id(name), name, Location("/nowhere"))
    columns = ANALYZER.measure(Batch([record], [decode(data, name, DecodeRequest())]))
    return {k: v[0] for k, v in columns.items()}


def fires(rule: Rule, row: Row) -> bool:
    value = row[rule.column]
    if value is None:
        return False
    if rule.side == "is":
        return bool(value == rule.limit)
    assert isinstance(value, int | float)
    assert isinstance(rule.limit, int | float)
    return value > rule.limit if rule.side == "above" else value < rule.limit


def fired(data: bytes, name: str = "a.jpg") -> set[str]:
    row = measured(data, name)
    return {r.id.removeprefix("files.") for r in RULES if fires(r, row)}


def rgba(hidden: bool = False) -> bytes:
    values = np.asarray(photo().convert("RGBA")).copy()
    values[:200, :, 3] = 0
    if not hidden:
        values[:200, :, :3] = 0
    return encoded(Image.fromarray(values), "PNG")


def tagged(**tags: int) -> bytes:
    exif = Image.Exif()
    if "orientation" in tags:
        exif[0x0112] = tags["orientation"]
    if "colour_space" in tags:
        exif.get_ifd(0x8769)[0xA001] = tags["colour_space"]
    if "latitude" in tags:
        exif.get_ifd(0x8825)[2] = (tags["latitude"], 0, 0)
    return encoded(photo(), "JPEG", exif=exif.tobytes())


def moving() -> bytes:
    return encoded(photo(), "WEBP", save_all=True, append_images=[photo().rotate(90)])


def bomb() -> bytes:
    return (TORTURE / "broken" / "bomb_20000x20000_1bit.png").read_bytes()


def damaged() -> bytes:
    return (TORTURE / "broken" / "badbitcount.bmp").read_bytes()


GOOD = encoded(photo(), "JPEG", quality=92)
HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(64)

FAULTY: list[tuple[str, Callable[[], bytes], str, set[str]]] = [
    ("truncated", lambda: GOOD[: len(GOOD) // 2], "a.jpg", set()),
    ("empty", lambda: b"", "a.jpg", set()),
    ("unreadable", damaged, "a.bmp", set()),
    ("not-image", lambda: b"<!doctype html><p>404", "a.jpg", set()),
    ("no-decoder", lambda: HEIC, "a.heic", set()),
    ("refused", bomb, "a.png", set()),
    ("wrong-extension", lambda: GOOD, "a.png", set()),
    ("animated", moving, "a.webp", set()),
    ("pages", lambda: encoded(photo(), "TIFF", save_all=True, append_images=[photo()]), "a.tif", set()),
    ("small", lambda: encoded(photo((600, 500)), "JPEG"), "a.jpg", set()),
    ("tiny", lambda: encoded(photo((80, 60)), "JPEG"), "a.jpg", {"small"}),
    ("aspect", lambda: encoded(photo((2000, 600)), "JPEG"), "a.jpg", set()),
    ("alpha", rgba, "a.png", set()),
    ("hidden-colour", lambda: rgba(hidden=True), "a.png", {"alpha"}),
    ("rotated", lambda: tagged(orientation=6), "a.jpg", set()),
    ("profile", lambda: (TORTURE / "icc" / "displayp3_converted.jpg").read_bytes(), "a.jpg", {"small"}),
    ("profile-broken", lambda: encoded(photo(), "JPEG", icc_profile=bytes(300)), "a.jpg", set()),
    ("uncalibrated", lambda: tagged(colour_space=65535), "a.jpg", set()),
    ("bit-depth", lambda: encoded(Image.fromarray(np.arange(640 * 600, dtype=np.uint16).reshape(600, 640)), "PNG"),
     "a.png", {"grey"}),
    ("grey", lambda: encoded(photo().convert("L"), "JPEG"), "a.jpg", set()),
    ("cmyk", lambda: encoded(photo().convert("CMYK"), "JPEG"), "a.jpg", set()),
    ("gps", lambda: tagged(latitude=48), "a.jpg", set()),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "make", "name", "also"), FAULTY, ids=[f[0] for f in FAULTY])
def test_each_fault_fires_its_rule_and_no_other(
    fault: str, make: Callable[[], bytes], name: str, also: set[str]
) -> None:
    assert fired(make(), name) - also == {fault}


def test_every_rule_has_a_faulty_file() -> None:
    assert {f[0] for f in FAULTY} == {r.id.removeprefix("files.") for r in RULES}


@pytest.mark.parametrize(("form", "name"), [("JPEG", "a.JPG"), ("PNG", "b.png"), ("WEBP", "c.webp"), ("TIFF", "d.tif")])
def test_a_good_photo_is_left_in_peace(form: str, name: str) -> None:
    assert fired(encoded(photo(), form), name) == set()


def test_opaque_alpha_and_an_upright_tag_are_left_in_peace() -> None:
    assert fired(encoded(photo().convert("RGBA"), "PNG"), "a.png") == set()
    assert fired(tagged(orientation=1, colour_space=1)) == set()


def test_broken_exif_alone_is_no_finding() -> None:
    block = b"Exif\0\0garbage"
    data = GOOD[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + GOOD[2:]
    assert fired(data) == set()
    assert "exif-broken" in str(measured(data)["files.notes"])


def test_the_numbers_are_those_of_the_file() -> None:
    row = measured(tagged(orientation=6))
    assert (row["files.width-stored"], row["files.height-stored"], row["files.short-side"]) == (640, 600, 600)
    assert row["files.aspect"] == pytest.approx(640 / 600)
    assert (row["files.orientation"], row["files.orientation-source"]) == (6, "exif")
    assert measured(GOOD)["files.bytes"] == len(GOOD)


@pytest.mark.parametrize("quality", [1, 30, 49, 50, 75, 90, 95, 100])
@pytest.mark.parametrize(("code", "ratio"), [(0, "4:4:4"), (1, "4:2:2"), (2, "4:2:0")])
def test_jpeg_settings_are_read_back(quality: int, code: int, ratio: str) -> None:
    row = measured(encoded(photo(), "JPEG", quality=quality, subsampling=code))
    assert (row["files.jpeg-quality"], row["files.jpeg-subsampling"]) == (quality, ratio)


def test_the_smallest_training_side_follows_the_base_model() -> None:
    assert BY_ID["files.small"].limits == {"sd15": 512, "sd21": 768, "sdxl": 1024, "sd3": 1024, "flux": 1024}


def test_an_undecodable_file_has_a_reason_and_no_invented_numbers() -> None:
    row = measured(b"")
    assert row["files.unmeasured"]
    assert all(row[f"files.{n}"] is None for n in ("grey", "alpha-share", "aspect", "short-side", "bit-depth"))


def test_a_file_that_could_not_be_opened_is_unreadable_not_empty() -> None:
    from datasieve.batch import Decoded

    row = measure_file(Decoded(status="unreadable", error="The file cannot be opened."))
    assert (row["unreadable"], row["empty"]) == (True, False)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_messages_can_be_filled_from_a_row(rule: Rule) -> None:
    row = measured(GOOD)
    words = {**row, "value": 2.0, "limit": 1.0, "error": "why", "format": "JPEG", "base": "sd15"}
    for text in (rule.message, rule.remedy):
        filled = fill(text, words)
        assert "{" not in filled
        assert filled.endswith(".") if "{error}" not in text else True


def test_values_are_json_scalars() -> None:
    json.dumps(measured(GOOD), allow_nan=False)


def test_reading_the_rules_imports_no_torch() -> None:
    code = "import sys, datasieve.analyzers.files; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
