"""Bars, blank pictures and repeated marks, drawn by hand on real photos."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFont
from skimage import data

from datasieve.analyzers import _strokes, frame
from datasieve.batch import Batch, Decoded
from datasieve.config import Settings
from datasieve.policy import judge
from datasieve.records import ImageRecord, Location, image_id

Picture = npt.NDArray[np.uint8]


def scenes() -> list[Picture]:
    """Return eight unlike pictures of 384 x 512 px out of real photos."""
    photos = [data.astronaut(), data.coffee(), data.chelsea(), data.rocket(), data.hubble_deep_field()]
    photos += [data.immunohistochemistry(), data.retina(), data.astronaut()[::-1, 100:]]
    return [np.asarray(Image.fromarray(p).resize((512, 384), Image.Resampling.LANCZOS)) for p in photos]


def measure(pictures: Sequence[Picture]) -> list[dict[str, Any]]:
    records = [ImageRecord(image_id(f"{i}.png"), f"{i}.png", Location(f"{i}.png")) for i in range(len(pictures))]
    values = frame.ANALYZER.measure(Batch(records, [Decoded(pixels=p) for p in pictures]))
    return [{name: column[i] for name, column in values.items()} for i in range(len(pictures))]


def compared(pictures: Sequence[Picture], concepts: Sequence[str] | None = None) -> pa.Table:
    rows = measure(pictures)
    table = pa.table({name: [r[name] for r in rows] for name in rows[0]})
    table = table.append_column("concept", pa.array(concepts or ["toy"] * len(rows)))
    for name, values in frame.ANALYZER.compare(table, Settings()).columns.items():
        table = table.append_column(name, pa.array(values, from_pandas=True))
    return table.append_column("path", pa.array([str(i) for i in range(len(rows))]))


def marked(picture: Picture, text: str = "(c) stockpix") -> Picture:
    """Stamp a half-transparent text into the bottom right corner."""
    image = Image.fromarray(picture).convert("RGBA")
    layer = Image.new("RGBA", image.size)
    draw, font = ImageDraw.Draw(layer), ImageFont.load_default(28)
    at = (image.width - draw.textlength(text, font=font) - 12, image.height - 42)
    draw.text(at, text, font=font, fill=(255, 255, 255, 160))
    return np.asarray(Image.alpha_composite(image, layer).convert("RGB"))


@pytest.mark.parametrize("colour", [(0, 0, 0), (255, 255, 255), (30, 60, 90)])
def test_bars_are_measured_on_the_sides_where_they_are(colour: tuple[int, int, int]) -> None:
    picture = data.chelsea()[:256, :256].copy()
    picture[:32] = colour
    picture[-16:] = colour
    row = measure([picture])[0]
    assert row["frame.border-sides"] == "top, bottom"
    assert row["frame.border-top"] == pytest.approx(32 / 256, abs=1 / 128)
    assert row["frame.border-bottom"] == pytest.approx(16 / 256, abs=1 / 128)
    assert row["frame.border-share"] == pytest.approx(48 / 256, abs=1 / 64)


def test_a_frame_on_four_sides_leaves_the_share_outside() -> None:
    picture = np.full((256, 256, 3), 255, np.uint8)
    picture[26:230, 26:230] = data.astronaut()[:204, :204]
    row = measure([picture])[0]
    assert set(str(row["frame.border-sides"]).split(", ")) == set(frame.SIDES)
    assert row["frame.border-share"] == pytest.approx(1 - (204 / 256) ** 2, abs=0.02)


def test_pictures_without_bars_have_none_and_neither_has_a_plain_backdrop() -> None:
    backdrop = np.full((256, 256, 3), 240, np.uint8)
    y, x = np.mgrid[:256, :256]
    disk = (y - 128) ** 2 + (x - 128) ** 2 < 70**2
    backdrop[disk] = (180, 40, 40)
    for row in measure([*scenes(), backdrop]):
        assert row["frame.border-share"] == 0
        assert row["frame.border-sides"] == ""


def test_one_colour_is_blank_and_a_faint_picture_is_not() -> None:
    flat = np.full((128, 128, 3), 77, np.uint8)
    faint = flat.copy()
    faint[40:80, 40:80] += 6
    assert [r["frame.blank"] for r in measure([flat, faint])] == [True, False]


def test_a_mark_on_every_picture_is_found_with_its_place() -> None:
    table = compared([marked(p) for p in scenes()])
    found = [f for f in judge(table, frame.ANALYZER.rules, "image", Settings().words()) if f.rule == "frame.watermark"]
    assert len(found) >= 7
    assert "bottom right" in found[0].message


def test_a_mark_on_half_of_the_pictures_is_found_on_these_only() -> None:
    pictures = [marked(p) if i % 2 else p for i, p in enumerate(scenes())]
    scores = compared(pictures)["frame.watermark"].to_pylist()
    assert min(scores[1::2]) > frame.AGREE > max(scores[0::2])


def test_pictures_without_a_mark_share_none() -> None:
    assert max(compared(scenes())["frame.watermark"].to_pylist()) < frame.AGREE


def test_copies_of_one_picture_agree_everywhere_and_are_no_mark() -> None:
    assert max(compared([data.astronaut()] * 5)["frame.watermark"].to_pylist()) < frame.AGREE


def test_two_pictures_are_too_few_and_the_report_says_so() -> None:
    rows = measure(scenes()[:2])
    table = pa.table({"frame.signature": [r["frame.signature"] for r in rows], "concept": ["a", "a"]})
    found = frame.ANALYZER.compare(table, Settings())
    assert np.isnan(found.columns["frame.watermark"]).all()
    assert "at least 3" in found.unmeasured["frame.watermark"]


def test_tiny_and_narrow_pictures_say_why() -> None:
    tiny, narrow = measure([np.zeros((8, 200, 3), np.uint8), np.zeros((64, 512, 3), np.uint8)])
    assert "16 px" in tiny["frame.unmeasured"]
    assert tiny["frame.border-share"] is None
    assert "watermark" in narrow["frame.unmeasured"]


@given(st.integers(0, 2**32 - 1))
def test_packed_signs_are_unpacked_unchanged(seed: int) -> None:
    signs = np.random.default_rng(seed).integers(-1, 2, (5, _strokes.CELLS)).astype(np.int8)
    assert np.array_equal(_strokes.unpack([_strokes.pack(signs)])[0], signs)
