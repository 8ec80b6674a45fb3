"""Stored pixels of any file as 8-bit RGBA, one array for every source, so that equal pictures have equal bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from PIL import Image

from datasieve.batch import TILE_SIDE, TILES_PER_AXIS
from datasieve.imaging.icc import lab_to_rgb

Pixels = npt.NDArray[np.uint8]


def eight_bits(image: Image.Image, bits: int, *, dither: bool = False) -> Image.Image:
    """Bring a loaded picture of any mode to L, RGB, RGBA or CMYK with 8 bits a channel, scaled and never clipped.

    Integers of `bits` bits are scaled over their full range (16 bits: value / 257, rounded). Integers beyond 16 bits
    and floats outside [0, 1] have no agreed white: they are stretched between their extremes. `dither` adds triangular
    noise of one step before rounding, the same for the same picture, so that smooth areas do not turn into bands
    (Lipshitz, Wannamaker and Vanderkooy, "Quantization and Dither", J. Audio Eng. Soc. 40, 1992).
    """
    mode = image.mode
    if mode.startswith("I") or mode == "F":
        values = np.asarray(image).astype(np.float64)
        values = np.nan_to_num(values, posinf=0.0, neginf=0.0)
        low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
        if mode == "F":
            bounds = (0.0, 1.0) if low >= 0 and high <= 1 else (0.0, 255.0) if low >= 0 and high <= 255 else (low, high)
        else:
            top = 2.0 ** min(max(bits, 8), 16) - 1
            bounds = (
                (0.0, top) if low >= 0 and high <= top else (0.0, 65535.0) if 0 <= low <= high <= 65535 else (low, high)
            )
        scale = 255 / (bounds[1] - bounds[0] or 1)
        levels = (values - bounds[0]) * scale
        if dither:
            noise = np.random.default_rng(0)
            levels += noise.random(levels.shape) - noise.random(levels.shape)
        return Image.fromarray(np.rint(levels).clip(0, 255).astype(np.uint8))
    if mode == "LAB":
        return lab_to_rgb(image)
    if mode in ("LA", "La", "PA", "RGBa") or "transparency" in image.info:
        return image.convert("RGBA")
    if mode in ("L", "RGB", "RGBA", "CMYK"):
        return image
    if mode == "P" and image.palette is not None and image.palette.mode == "RGBA":
        return image.convert("RGBA")
    if mode == "1":
        return image.convert("L")
    return image.convert("RGB")


def rgba(image: Image.Image) -> Pixels:
    """Return (h, w, 4) pixels of an L, RGB, RGBA or CMYK picture (CMYK by the plain formula), opaque alpha 255."""
    if image.mode == "CMYK":
        image = image.convert("RGB")
    return np.asarray(image.convert("RGBA"))


def without_copy(pixels: Pixels, mode: str = "RGBX") -> Image.Image:
    """Return a Pillow image over contiguous (h, w, 4) pixels that shares their memory."""
    height, width = pixels.shape[:2]
    return Image.frombuffer(mode, (width, height), pixels, "raw", mode, 0, 1)


def tiles(pixels: Pixels) -> Pixels:
    """Cut the native tiles described by `datasieve.batch.Tiles` from stored pixels (h, w, 3 or more).

    Returns (n, 64, 64, 3), n from 0 (a side is under 64) to 16.
    """
    rows, columns = _corners(pixels.shape[0]), _corners(pixels.shape[1])
    out = np.empty((len(rows) * len(columns), TILE_SIDE, TILE_SIDE, 3), np.uint8)
    for i, (y, x) in enumerate((y, x) for y in rows for x in columns):
        out[i] = pixels[y : y + TILE_SIDE, x : x + TILE_SIDE, :3]
    return out


def _corners(length: int) -> list[int]:
    """Return up to `TILES_PER_AXIS` distinct multiples of 8, spread from the first to the last that fits."""
    steps = (length - TILE_SIDE) // 8
    if steps < 0:
        return []
    return sorted({8 * round(steps * i / (TILES_PER_AXIS - 1)) for i in range(TILES_PER_AXIS)})
