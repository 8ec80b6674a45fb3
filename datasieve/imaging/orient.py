"""Turning a stored picture the way its orientation tag asks (TIFF 6.0, tag 274: 1..8)."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Scalar = TypeVar("Scalar", bound=np.generic)


def oriented(pixels: npt.NDArray[Scalar], orientation: int) -> npt.NDArray[Scalar]:
    """Return the displayed picture of stored `pixels` (h, w, ...), as a view. Values other than 2..8 change nothing."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return pixels


def stored(pixels: npt.NDArray[Scalar], orientation: int) -> npt.NDArray[Scalar]:
    """Return the stored picture of displayed `pixels`: the inverse of `oriented`."""
    return oriented(pixels, {6: 8, 8: 6}.get(orientation, orientation))


def displayed_size(width: int, height: int, orientation: int) -> tuple[int, int]:
    """Return (width, height) after orientation."""
    return (height, width) if orientation in (5, 6, 7, 8) else (width, height)
