"""The colour analyzer on casts, exposures and encodings made by hand from real photos."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from skimage import data
from skimage.color import rgb2lab

from datasieve.analyzers import colour
from datasieve.analyzers._groups import centres, in_spreads
from datasieve.batch import Batch, Decoded
from datasieve.config import Settings
from datasieve.policy import judge
from datasieve.records import ImageRecord, Location, image_id

Picture = npt.NDArray[np.uint8]
PHOTOS = [
    np.asarray(photo()) for photo in (data.astronaut, data.coffee, data.chelsea, data.rocket, data.hubble_deep_field)
]
ILLUMINANT_A, D50, D75 = ((0.44757, 0.40745), 2856), ((0.34567, 0.35850), 5003), ((0.29902, 0.31485), 7504)
D65_KELVIN = 6504


def working(picture: Picture) -> Picture:
    """Reduce a picture as the decoder does."""
    image = Image.fromarray(picture)
    scale = 512 / max(image.size)
    if scale < 1:
        size = (round(image.width * scale), round(image.height * scale))
        image = image.resize(size, Image.Resampling.BOX)
    return np.asarray(image)


def measure(pictures: Sequence[Picture]) -> list[dict[str, Any]]:
    records = [ImageRecord(image_id(f"{i}.png"), f"{i}.png", Location(f"{i}.png")) for i in range(len(pictures))]
    values = colour.ANALYZER.measure(Batch(records, [Decoded(pixels=working(p)) for p in pictures]))
    return [{name: column[i] for name, column in values.items()} for i in range(len(pictures))]


def to_linear(picture: Picture) -> npt.NDArray[np.float64]:
    v = picture / 255.0
    return np.where(v <= 0.04045, v / 12.92, ((v + 0.055) / 1.055) ** 2.4)


def to_picture(linear: npt.NDArray[np.float64]) -> Picture:
    v = np.clip(linear, 0, 1)
    encoded = np.where(v <= 0.0031308, v * 12.92, 1.055 * v ** (1 / 2.4) - 0.055)
    return np.rint(encoded * 255).astype(np.uint8)


def under(picture: Picture, xy: tuple[float, float]) -> Picture:
    """Return a picture as if white were the chromaticity xy: a scaling of linear sRGB (von Kries)."""
    x, y = xy
    xyz_to_rgb = np.array([[3.2406, -1.5372, -0.4986], [-0.9689, 1.8758, 0.0415], [0.0557, -0.2040, 1.0570]])
    gains = xyz_to_rgb @ np.array([x / y, 1, (1 - x - y) / y])
    return to_picture(to_linear(picture) * gains / gains.max())


def measured_set(pictures: Sequence[Picture], concepts: Sequence[str] | None = None) -> pa.Table:
    """Return what the report would hold of these pictures, comparisons included."""
    rows = measure(pictures)
    table = pa.table({name: pa.array([r[name] for r in rows], from_pandas=True) for name in rows[0]})
    table = table.append_column("concept", pa.array(concepts or ["toy"] * len(rows)))
    found = colour.ANALYZER.compare(table, Settings())
    for name, values in found.columns.items():
        table = table.append_column(name, pa.array(values, from_pandas=True))
    return table.append_column("path", pa.array([f"{i}" for i in range(len(rows))]))


def fired(table: pa.Table) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for finding in judge(table, colour.ANALYZER.rules, "image", Settings().words()):
        out.setdefault(finding.rule, []).append(str(finding.path))
    return out


@pytest.mark.parametrize("illuminant", [ILLUMINANT_A, D50, D75], ids=["A", "D50", "D75"])
def test_a_hand_made_cast_is_read_as_the_shift_of_its_illuminant(illuminant: tuple[tuple[float, float], int]) -> None:
    xy, kelvin = illuminant
    before, after = measure(PHOTOS), measure([under(p, xy) for p in PHOTOS])
    shifts = [b["colour.mired"] - a["colour.mired"] for a, b in zip(before, after, strict=True)]
    assert np.median(shifts) == pytest.approx(1e6 / kelvin - 1e6 / D65_KELVIN, abs=30)


def test_a_lamp_on_a_neutral_scene_is_a_cast_and_daylight_is_none() -> None:
    generator = np.random.default_rng(0)
    grey = np.kron(generator.integers(40, 220, (32, 32)), np.ones((8, 8)))[..., None].repeat(3, 2).astype(np.uint8)
    neutral, lamp = measure([grey, under(grey, ILLUMINANT_A[0])])
    assert neutral["colour.cast"] == pytest.approx(0, abs=1)
    assert neutral["colour.cct"] == pytest.approx(D65_KELVIN, rel=0.01)
    assert neutral["colour.light-angle"] == pytest.approx(0, abs=0.2)
    assert lamp["colour.cct"] == pytest.approx(2856, rel=0.03)
    assert lamp["colour.cast"] == pytest.approx(1e6 / 2856 - 1e6 / D65_KELVIN, abs=10)
    assert [lamp[f"colour.light-{c}"] for c in ("red", "blue")] == sorted(
        (lamp["colour.light-red"], lamp["colour.light-blue"]), reverse=True
    )


def test_lightness_saturation_and_channel_statistics_agree_with_scikit_image() -> None:
    photo = data.astronaut()[:128, :128]
    row = measure([photo.repeat(4, 0).repeat(4, 1)])[0]  # statistics are taken at a quarter of 512 px
    lab = rgb2lab(photo)
    assert row["colour.lightness"] == pytest.approx(lab[..., 0].mean(), abs=0.1)
    assert row["colour.saturation"] == pytest.approx(np.hypot(lab[..., 1], lab[..., 2]).mean(), abs=0.1)
    low, high = np.percentile(lab[..., 0], (5, 95))
    assert row["colour.contrast"] == pytest.approx(high - low, abs=0.3)
    assert row["colour.highlight"] == pytest.approx(np.percentile(lab[..., 0], 99), abs=0.3)
    for i, channel in enumerate(("red", "green", "blue")):
        assert row[f"colour.mean-{channel}"] == pytest.approx(photo[..., i].mean() / 255, abs=1e-4)
        assert row[f"colour.std-{channel}"] == pytest.approx(photo[..., i].std() / 255, abs=1e-4)


def test_clipped_shares_are_those_of_a_picture_half_white_and_a_quarter_black() -> None:
    picture = np.full((64, 128, 3), 128, np.uint8)
    picture[:, :64] = 255
    picture[32:, 64:] = 0
    row = measure([picture])[0]
    assert row["colour.clipped-high"] == pytest.approx(0.5)
    assert row["colour.clipped-low"] == pytest.approx(0.25)


def test_a_photo_left_in_linear_light_has_the_deeper_tones() -> None:
    photo = data.coffee()
    right, wrong = measure([photo, np.rint(to_linear(photo) * 255).astype(np.uint8)])
    assert wrong["colour.depth"] > right["colour.depth"] + 0.1


def test_flat_and_black_pictures_say_why_their_light_is_unknown() -> None:
    flat, black = measure([np.full((64, 64, 3), (200, 90, 30), np.uint8), np.zeros((64, 64, 3), np.uint8)])
    assert np.isnan(flat["colour.cast"])
    assert "no edges" in flat["colour.unmeasured"]
    assert np.isnan(black["colour.cct"])
    assert "clipped nor black" in black["colour.unmeasured"]
    assert black["colour.clipped-low"] == 1


def crops(count: int) -> list[Picture]:
    """Return crops of one photo, as a set of one subject in one light."""
    photo = data.coffee()
    return [photo[20 * i : 20 * i + 260, 30 * i : 30 * i + 360].copy() for i in range(count)]


def test_the_one_picture_under_a_lamp_is_found_by_its_set() -> None:
    pictures = crops(7)
    assert "colour.cast-outlier" not in fired(measured_set(pictures))
    pictures[3] = under(pictures[3], ILLUMINANT_A[0])
    assert fired(measured_set(pictures))["colour.cast-outlier"] == ["3"]


def test_each_concept_is_its_own_measure() -> None:
    warm = [under(p, ILLUMINANT_A[0]) for p in crops(5)]
    table = measured_set([*crops(5), *warm], ["day"] * 5 + ["lamp"] * 5)
    assert "colour.cast-outlier" not in fired(table)
    assert max(table["colour.light-distance"].to_pylist()) < 6


def test_a_cast_shared_by_a_whole_concept_is_told_of_the_concept() -> None:
    neutral = np.random.default_rng(1).integers(30, 220, (5, 24, 24))
    day = [np.kron(n, np.ones((6, 6)))[..., None].repeat(3, 2).astype(np.uint8) for n in neutral]
    lamp = [under(p, ILLUMINANT_A[0]) for p in day]
    rows = measure([*day, *lamp])
    table = pa.table({name: pa.array([r[name] for r in rows], from_pandas=True) for name in rows[0]})
    table = table.append_column("concept", pa.array(["day"] * 5 + ["lamp"] * 5))
    shared = colour.ANALYZER.compare(table, Settings()).concepts["colour.shared-cast"]
    assert shared["day"] == pytest.approx(0, abs=2)
    assert shared["lamp"] == pytest.approx(196, abs=12)
    concepts = pa.table({"concept": list(shared), "colour.shared-cast": list(shared.values())})
    found = judge(concepts, colour.ANALYZER.rules, "concept", Settings().words())
    assert [(f.rule, f.concept) for f in found] == [("colour.shared-cast", "lamp")]


def test_too_few_images_have_no_centre() -> None:
    table = measured_set(crops(3))
    assert table["colour.light-deviation"].null_count == 3
    assert fired(table).keys() & {"colour.cast-outlier", "colour.outlier"} == set()


def test_distances_are_those_worked_out_by_hand() -> None:
    values = np.array([[0.0], [0.1], [0.2], [0.3], [1.0], [np.nan]])
    groups = ["a"] * 6
    assert centres(values, groups)[0, 0] == pytest.approx(0.2)
    away = np.abs(values - centres(values, groups))[:, 0]
    # Distances 0.2 0.1 0 0.1 0.8: their median is 0.1.
    assert in_spreads(away, groups, 0.01)[4] == pytest.approx(8)
    assert in_spreads(away, groups, 0.4)[4] == pytest.approx(2)
    assert np.isnan(in_spreads(away, groups, 0.4)[5])


def test_a_group_too_small_is_judged_by_the_whole_set() -> None:
    values = np.array([[0.0], [0.1], [0.2], [0.3], [1.0]])
    assert centres(values, ["a", "a", "a", "a", "b"])[4, 0] == pytest.approx(0.2)


def test_saving_as_jpeg_moves_the_light_little() -> None:
    photo = data.coffee()
    buffer = io.BytesIO()
    Image.fromarray(photo).save(buffer, "JPEG", quality=95)
    before, after = measure([photo, np.asarray(Image.open(buffer))])
    assert after["colour.mired"] == pytest.approx(before["colour.mired"], abs=6)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 40))
def test_any_picture_gives_numbers_in_range_or_a_reason(seed: int, height: int, width: int) -> None:
    picture = np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)
    row = measure([picture])[0]
    for column in colour.ANALYZER.columns:
        if column.stage == "measure":
            value = row[column.name]
            if np.isnan(value):
                assert row["colour.unmeasured"] or column.name in ("colour.cct", "colour.mired", "colour.depth")
            else:
                assert column.low is None or value >= column.low - 1e-9
                assert column.high is None or value <= column.high + 1e-9
