"""All 16 bits of a colour picture, which Pillow reads but hands over as 8.

Pillow unpacks a 16-bit colour PNG or TIFF through a raw mode that keeps the upper byte of each value: `RGB;16B` (most
significant byte first) or `RGB;16L`. Read once more through the other of the two, the same file gives the lower bytes.
Both decodes are Pillow's own, with all its filters, interlacing and compressions.

Then 16 bits become 8 with triangular dither, so that a smooth sky stays smooth (Lipshitz, Wannamaker and Vanderkooy,
"Quantization and Dither", J. Audio Eng. Soc. 40, 1992): rounding alone would make bands of it as soon as a later step
changes its tone.
"""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
from PIL import Image

SWAPPED = {"16B": "16L", "16L": "16B"}
MODES = ("RGB", "RGBA")


def sixteen_bits(data: bytes, formats: tuple[str, ...]) -> npt.NDArray[np.uint16] | None:
    """Return (h, w, 3 or 4) values of a 16-bit colour PNG or TIFF as stored; None for every other file.

    The file has been decoded once already: errors of the decoder are not caught here.
    """
    with Image.open(io.BytesIO(data), formats=formats) as upper, Image.open(io.BytesIO(data), formats=formats) as lower:
        modes = [_raw_mode(tile.args) for tile in upper.tile]
        if upper.mode not in MODES or not modes or any(mode is None for mode in modes):
            return None
        # Pillow keeps the first byte of big-endian values, the second of little-endian ones.
        lower.tile = [tile._replace(args=_with_raw_mode(tile.args)) for tile in lower.tile]
        high, low = (np.asarray(image).astype(np.uint16) for image in (upper, lower))
    return np.asarray(high << 8 | low, np.uint16)


def _raw_mode(args: object) -> str | None:
    """Return the byte order "16B" or "16L" of a tile's raw mode, None when it has not 16 bits."""
    raw = args if isinstance(args, str) else args[0] if isinstance(args, tuple) and args else None
    if not isinstance(raw, str):
        return None
    name, _, order = raw.partition(";")
    order = order.replace("16N", "16L" if np.little_endian else "16B")
    return order if name in MODES and order in SWAPPED else None


def _with_raw_mode(args: object) -> object:
    """Return the arguments of a tile with the other byte order."""
    raw = args if isinstance(args, str) else args[0]  # type: ignore[index]
    order = _raw_mode(args)
    assert order is not None
    other = f"{raw.partition(';')[0]};{SWAPPED[order]}"
    return other if isinstance(args, str) else (other, *args[1:])  # type: ignore[index]


def dithered(levels: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Return levels in [0, 255] rounded to 8 bits with triangular noise of one step, the same for the same picture."""
    noise = np.random.default_rng(0)
    noisy = levels + noise.random(levels.shape, np.float32) - noise.random(levels.shape, np.float32)
    return np.asarray(np.rint(noisy).clip(0, 255), np.uint8)
