"""The compression analyzer on JPEG made by Pillow and on noise of known strength."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from skimage import data

from datasieve.analyzers import compression
from datasieve.batch import Batch, Decoded
from datasieve.records import ImageRecord, Location, image_id

Picture = npt.NDArray[np.uint8]
PHOTOS = [data.astronaut(), data.coffee(), data.rocket()]
LIMITS = {rule.id: rule.limit for rule in compression.ANALYZER.rules}


def measure(picture: Picture) -> dict[str, Any]:
    h, w = picture.shape[:2]
    tiles = np.zeros((0, 64, 64, 3), np.uint8)
    if min(h, w) >= 64:
        ys, xs = (sorted({round(i * ((n - 64) // 8) / 3) * 8 for i in range(4)}) for n in (h, w))
        tiles = np.stack([picture[y : y + 64, x : x + 64] for y in ys for x in xs])
    record = ImageRecord(image_id("a.png"), "a.png", Location("a.png"))
    values = compression.ANALYZER.measure(Batch([record], [Decoded(pixels=picture[:512, :512], tiles=tiles)]))
    return {name: column[0] for name, column in values.items()}


def squeezed(picture: Picture, quality: int) -> Picture:
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "JPEG", quality=quality)
    return np.asarray(Image.open(buffer))


@pytest.mark.parametrize("photo", PHOTOS, ids=["astronaut", "coffee", "rocket"])
def test_blocks_grow_as_the_quality_falls_and_stay_below_the_limit_at_good_quality(photo: Picture) -> None:
    limit = LIMITS["compression.blocking"]
    good, fair, bad = (measure(squeezed(photo, q))["compression.blocking"] for q in (92, 30, 8))
    assert good < fair < bad
    assert good < limit < bad


def test_a_grid_that_a_crop_has_moved_is_still_found() -> None:
    moved = squeezed(data.astronaut(), 8)[3:, 5:]
    assert measure(moved)["compression.blocking"] > LIMITS["compression.blocking"]


def test_the_ratio_is_that_worked_out_by_hand() -> None:
    # Blocks of 0 and 10: every boundary is a step of 10, there are no other steps, so (10 + 1) / (0 + 1).
    board = (np.indices((128, 128)) // 8).sum(0) % 2 * 10 + 100
    assert measure(board[..., None].repeat(3, 2).astype(np.uint8))["compression.blocking"] == pytest.approx(
        11, rel=0.01
    )


@pytest.mark.parametrize("sigma", [4.0, 10.0, 25.0])
def test_noise_of_known_strength_is_read_back(sigma: float) -> None:
    grey = np.random.default_rng(0).normal(128, sigma, (256, 256))[..., None].repeat(3, 2)
    row = measure(np.clip(np.rint(grey), 0, 255).astype(np.uint8))
    assert row["compression.noise"] == pytest.approx(sigma, rel=0.15)


def test_a_smooth_ramp_has_no_noise() -> None:
    ramp = np.linspace(40, 200, 256)[None, :, None].repeat(256, 0).repeat(3, 2).astype(np.uint8)
    assert measure(ramp)["compression.noise"] < 0.6


def test_what_is_too_small_or_clipped_says_so() -> None:
    small = measure(np.full((40, 40, 3), 100, np.uint8))
    assert np.isnan(small["compression.blocking"])
    assert "64 px" in small["compression.unmeasured"]
    white = measure(np.full((128, 128, 3), 255, np.uint8))
    assert np.isnan(white["compression.noise"])
    assert "clipped" in white["compression.unmeasured"]
    assert white["compression.blocking"] == pytest.approx(1)
