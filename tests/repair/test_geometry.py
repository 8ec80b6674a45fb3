"""Windows, sizes and scales: where a picture is cut and what becomes of its pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skimage import data

from datasieve.repair import Centre, Options, Picture, balance, crop, resize

NOBODY = Centre()
BUCKETS = Options(resize=True, resolution=512)


def row(
    width: int, height: int, box: tuple[float, float, float, float] | None = None, **more: object
) -> dict[str, Any]:
    sides = dict(zip(("left", "top", "right", "bottom"), box or (), strict=False))
    known = {f"subject.{side}": value for side, value in sides.items()}
    known |= {"subject.certainty": 0.9} if box else {}
    return {"width": width, "height": height, "path": "a.png", "concept": "", **known, **more}


def test_a_picture_becomes_its_bucket_in_the_convention_of_kohya() -> None:
    # 3:2 at 512: of kohya's list 640 x 384 (1.667) is nearer to 1.5 than 576 x 448 (1.286).
    step = resize.parameters(row(3000, 2000), NOBODY, BUCKETS)
    assert isinstance(step, dict)
    assert (step["width"], step["height"]) == (640, 384)
    # Covering: the width decides, 3000 px become 640; of the 2000 rows 384 / 640 * 3000 = 1800 are kept, in the middle.
    assert step["window"] == pytest.approx([0, 100, 3000, 1900])
    assert step["around"] == "centre"


def test_a_picture_that_has_its_size_is_left_alone() -> None:
    assert resize.parameters(row(512, 512), NOBODY, BUCKETS) == ""


def test_enlarging_is_refused_unless_asked_for() -> None:
    assert "enlarged 2.00 times" in str(resize.parameters(row(256, 256), NOBODY, BUCKETS))
    step = resize.parameters(row(256, 256), NOBODY, Options(resize=True, upscale=True))
    assert isinstance(step, dict)
    assert (step["width"], step["height"]) == (512, 512)


def test_the_window_goes_to_the_subject_only_as_far_as_it_must() -> None:
    # 640 x 384 of 1000 x 1000: a window 600 high, from 200 to 800 in the middle.
    middle = resize.placed(1000, 1000, 1000, 600, (0.3, 0.3, 0.7, 0.7))
    assert middle == (0, 200, 1000, 800)
    below = resize.placed(1000, 1000, 1000, 600, (0.3, 0.5, 0.7, 0.9))
    assert below == (0, 300, 1000, 900)
    tall = resize.placed(1000, 1000, 1000, 600, (0.3, 0.1, 0.7, 0.9))
    assert tall == (0, 200, 1000, 800)


unit = st.floats(0, 1)


@given(st.integers(64, 4000), st.integers(64, 4000), unit, unit, unit, unit, unit, unit)
def test_a_window_lies_in_the_picture_and_holds_what_fits(
    width: int, height: int, wide: float, high: float, a: float, b: float, c: float, d: float
) -> None:
    part = max(1.0, wide * width), max(1.0, high * height)
    box = min(a, b), min(c, d), max(a, b), max(c, d)
    left, top, right, bottom = resize.placed(width, height, *part, box)
    assert left >= -1e-6
    assert top >= -1e-6
    assert right <= width + 1e-6
    assert bottom <= height + 1e-6
    if (box[2] - box[0]) * width <= part[0]:
        assert left <= box[0] * width + 1e-6
        assert right >= box[2] * width - 1e-6


def test_an_uncertain_subject_is_not_followed() -> None:
    sure = resize.parameters(row(1000, 1400, (0.1, 0.7, 0.9, 0.99)), NOBODY, BUCKETS)
    unsure = resize.parameters(row(1000, 1400, (0.1, 0.7, 0.9, 0.99)) | {"subject.certainty": 0.2}, NOBODY, BUCKETS)
    assert isinstance(sure, dict)
    assert isinstance(unsure, dict)
    assert (sure["around"], unsure["around"]) == ("subject", "centre")
    assert sure["window"][1] > unsure["window"][1]


STEP = {"window": [0.0, 0.0, 256.0, 256.0], "width": 64, "height": 64, "around": "centre"}


def test_reducing_leaves_no_moire() -> None:
    stripes = np.zeros((256, 256, 3), np.uint8)
    stripes[:, ::2] = 200
    small = resize.apply(Picture(stripes), {**STEP, "light": "encoded"}).pixels
    assert small.shape == (64, 64, 3)
    assert np.abs(small[:, 4:-4].astype(int) - 100).max() <= 2


def test_in_linear_light_fine_detail_keeps_its_light() -> None:
    stripes = np.zeros((256, 256, 3), np.uint8)
    stripes[:, ::2] = 255
    small = resize.apply(Picture(stripes), {**STEP, "light": "linear"}).pixels
    # Half the light is 0.5 linear, 188 encoded (IEC 61966-2-1).
    assert np.abs(small[:, 4:-4].astype(int) - 188).max() <= 2


def test_mask_and_transparency_go_with_the_picture() -> None:
    photo = data.astronaut()[:256, :256]
    alpha = np.zeros((256, 256), np.uint8)
    alpha[:, 128:] = 255
    hidden = photo.copy()
    hidden[:, :128] = (255, 0, 255)
    out = resize.apply(Picture(hidden, alpha, alpha), {**STEP, "light": "encoded"})
    assert out.alpha is not None
    assert out.mask is not None
    assert np.array_equal(out.mask, out.alpha)
    assert (out.alpha[:, :28] == 0).all()
    assert (out.alpha[:, 36:] == 255).all()
    clean = resize.apply(Picture(photo), {**STEP, "light": "encoded"}).pixels
    edge = np.abs(out.pixels[:, 33].astype(int) - clean[:, 33]).mean()
    assert edge < 12, "the magenta under the transparent half does not bleed in"


def test_a_cropped_row_tells_where_the_subject_is_now() -> None:
    cut = crop.cropped_row(row(1000, 500, (0.2, 0.2, 0.6, 0.8)), (100, 50, 900, 450))
    assert (cut["width"], cut["height"]) == (800, 400)
    assert [cut[f"subject.{s}"] for s in ("left", "top", "right", "bottom")] == pytest.approx(
        [0.125, 0.125, 0.625, 0.875]
    )


def concept(scales: list[str], size: int = 4000) -> dict[str, dict[str, Any]]:
    boxes = {"wide": (0.4, 0.4, 0.5, 0.55), "full": (0.3, 0.2, 0.6, 0.9), "portrait": (0.05, 0.02, 0.95, 1.0)}
    return {
        f"{i}": row(size + 10 * i, size + 10 * i, boxes[scale]) | {"subject.scale": scale, "path": f"{i}.png"}
        for i, scale in enumerate(scales)
    }


def test_a_missing_close_up_is_cut_out_of_the_largest_picture() -> None:
    rows = concept(["full"] * 5)
    made = balance.crops(rows, 512)
    assert [(c.image_id, c.kind) for c in made] == [("4", "close")]
    left, top, right, bottom = made[0].window
    width, height = rows["4"]["width"], rows["4"]["height"]
    assert left <= 0.3 * width
    assert right >= 0.6 * width
    assert top <= 0.2 * height
    assert bottom >= 0.9 * height
    assert (bottom - top) * balance.FILL["close"] == pytest.approx(0.7 * height, abs=2)


def test_full_shots_come_from_wide_ones_and_nothing_comes_from_small_ones() -> None:
    kinds = {crop.kind for crop in balance.crops(concept(["wide"] * 3 + ["portrait"] * 2), 512)}
    assert kinds == {"full"}
    assert balance.crops(concept(["wide"] * 5, size=600), 512) == []


def test_where_nothing_is_missing_or_too_little_is_known_nothing_is_made() -> None:
    assert balance.crops(concept(["full", "full", "portrait", "wide"]), 512) == []
    assert balance.crops(concept(["full"] * 3), 512) == []
    assert balance.crops({"a": row(4000, 4000)}, 512) == []
