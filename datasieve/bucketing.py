"""Aspect-ratio buckets, as each trainer makes them: the size a picture is trained at, and what that costs it.

All functions work on arrays of widths and heights as displayed and know nothing of files. Sources: the bucket code of
kohya's sd-scripts (the convention most tools follow), OneTrainer/mgds, ai-toolkit; A1111 and diffusers' textual
inversion script make no buckets and squash to a square.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

STEP = 64
"""Sides of kohya's buckets are multiples of this (its default, and what latents of 8 x 8 blocks like)."""

ONETRAINER_ASPECTS = (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0)

SQUASHING = ("a1111", "diffusers")
"""Trainers that bring every picture to the square whatever its shape."""

COARSE_BASES = ("sdxl", "sd3", "flux")
"""Base models for which OneTrainer's buckets have sides in multiples of 64."""

UNKNOWN = ("simpletuner",)
"""Trainers whose buckets depend on settings that cannot be told from here."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What becomes of each picture, one entry per picture.

    Attributes:
        width, height: the bucket, in pixels.
        scale: factor by which the picture is resized; above 1 it is enlarged. Of the two axes the smaller change.
        crop_share: share of the picture's area that is cropped away, 0 to 1.
        squash: by what factor its shape is distorted; 1 is none, 2 means twice as wide or as tall.
    """

    width: Ints
    height: Ints
    scale: Floats
    crop_share: Floats
    squash: Floats


def fit(trainer: str | None, width: Ints, height: Ints, resolution: int, *, coarse: bool = False) -> Fit | None:
    """Return what `trainer` makes of pictures of these sizes; None when that is not known.

    Args:
        trainer: name of the trainer; None means datasieve's own, which follows kohya.
        width, height: displayed sizes in pixels, at least 1.
        resolution: training resolution in pixels.
        coarse: the base needs sides in multiples of 64 where the trainer makes a difference (SDXL, SD3, Flux).
    """
    if trainer in UNKNOWN:
        return None
    sizes = np.stack([width, height], 1).astype(np.int64)
    unique, back = np.unique(sizes, axis=0, return_inverse=True)
    back = back.reshape(-1)
    w, h = unique[:, 0], unique[:, 1]
    if trainer in SQUASHING:
        side = np.full(len(unique), resolution, np.int64)
        across, down = resolution / w, resolution / h
        shape = np.maximum(across, down) / np.minimum(across, down)
        result = Fit(side, side, np.minimum(across, down), np.zeros(len(unique)), shape)
    elif trainer == "onetrainer":
        result = covered(w, h, *_nearest(h / w, *_onetrainer(resolution, 64 if coarse else 8), inverse=True))
    elif trainer == "ai-toolkit":
        result = covered(w, h, *_ai_toolkit(w, h, resolution))
    else:
        buckets = kohya_buckets(resolution)
        bucket_w, bucket_h = choose_kohya(w, h, buckets)
        result = covered(w, h, bucket_w, bucket_h)
    return Fit(*(getattr(result, name)[back] for name in Fit.__slots__))


def kohya_buckets(
    resolution: int, *, smallest: int | None = None, largest: int | None = None, step: int = STEP
) -> list[tuple[int, int]]:
    """Return kohya's list of (width, height) buckets, sorted.

    Its defaults, 256 and 1024 at resolution 512, are kept in proportion at other resolutions: sides from half to twice
    the resolution. Every bucket's area is at most the resolution's square.
    """
    area = resolution * resolution
    low = (smallest or max(step, resolution // 2)) // step * step
    high = -(-(largest or resolution * 2) // step) * step
    side = math.isqrt(area) // step * step
    found = {(side, side)} if side else set()
    for width in range(low, high + 1, step):
        height = min(high, area // width // step * step)
        if height >= low:
            found |= {(width, height), (height, width)}
    return sorted(found)


def choose_kohya(width: Ints, height: Ints, buckets: Sequence[tuple[int, int]]) -> tuple[Ints, Ints]:
    """Return each picture's bucket: its own size if listed, else the one whose width/height differs least."""
    table = np.array(buckets, np.int64)
    chosen = _nearest(width / height, table[:, 0], table[:, 1], inverse=False)
    listed = set(buckets)
    own = np.array([pair in listed for pair in zip(width.tolist(), height.tolist(), strict=True)], bool)
    return np.where(own, width, chosen[0]), np.where(own, height, chosen[1])


def _nearest(ratio: Floats, bucket_w: Ints, bucket_h: Ints, *, inverse: bool) -> tuple[Ints, Ints]:
    """Return the buckets whose aspect (height/width if `inverse`) differs least from `ratio`; ties take the first."""
    ratios = bucket_h / bucket_w if inverse else bucket_w / bucket_h
    best = np.empty(len(ratio), np.int64)
    for start in range(0, len(ratio), 65536):  # bounded memory for sets of millions
        part = slice(start, start + 65536)
        best[part] = np.abs(ratio[part, None] - ratios[None]).argmin(1)
    return bucket_w[best], bucket_h[best]


def _onetrainer(resolution: int, step: int) -> tuple[Ints, Ints]:
    aspects = sorted({*ONETRAINER_ASPECTS, *(1 / a for a in ONETRAINER_ASPECTS)})
    roots = np.sqrt(np.array(aspects))
    height = np.rint(resolution * roots / step).astype(np.int64) * step
    width = np.rint(resolution / roots / step).astype(np.int64) * step
    return width, height


def _ai_toolkit(width: Ints, height: Ints, resolution: int) -> tuple[Ints, Ints]:
    """Never enlarges: both sides go down to a multiple of 64, or up where the area still fits the resolution's."""
    area = resolution * resolution
    down = np.minimum(1.0, np.sqrt(area / (width * height)))
    w, h = width * down, height * down
    best_w = np.maximum(STEP, np.floor(w / STEP).astype(np.int64) * STEP)
    best_h = np.maximum(STEP, np.floor(h / STEP).astype(np.int64) * STEP)
    floor_w, floor_h = best_w.copy(), best_h.copy()
    for add_w, add_h in ((STEP, 0), (0, STEP), (STEP, STEP)):
        candidate_w, candidate_h = floor_w + add_w, floor_h + add_h
        fits = (candidate_w * candidate_h <= area) & (candidate_w <= width) & (candidate_h <= height)
        better = fits & (candidate_w * candidate_h > best_w * best_h)
        best_w, best_h = np.where(better, candidate_w, best_w), np.where(better, candidate_h, best_h)
    return best_w, best_h


def covered(width: Ints, height: Ints, bucket_w: Ints, bucket_h: Ints) -> Fit:
    """Return the fit of pictures resized until they cover their bucket, then cropped at the centre."""
    scale = np.maximum(bucket_w / width, bucket_h / height)
    # Sides are rounded half up to whole pixels, and never fall short of the bucket.
    resized_w = np.maximum(bucket_w, np.floor(width * scale + 0.5).astype(np.int64))
    resized_h = np.maximum(bucket_h, np.floor(height * scale + 0.5).astype(np.int64))
    crop = 1 - (bucket_w * bucket_h) / (resized_w * resized_h)
    return Fit(bucket_w, bucket_h, scale, crop, np.ones(len(width)))
