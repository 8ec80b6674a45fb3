"""Linear light and back, for repairs that work in it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from datasieve.repair import Pixels

Floats = npt.NDArray[np.float32]


def _table() -> Floats:
    v = np.arange(256) / 255
    return np.where(v <= 0.04045, v / 12.92, ((v + 0.055) / 1.055) ** 2.4).astype(np.float32)


LINEAR = _table()
"""Linear light of each encoded level (IEC 61966-2-1)."""

_STEPS = 1 << 14
_ENCODED = (np.searchsorted((LINEAR[1:] + LINEAR[:-1]) / 2, (np.arange(_STEPS + 1)) / _STEPS)).astype(np.uint8)
"""Nearest encoded level of linear light in steps of 1/16384; near black a step is below one level."""


def linear(pixels: Pixels) -> Floats:
    """Return linear light in [0, 1] of encoded sRGB levels."""
    return LINEAR[pixels]


def encoded(light: Floats) -> Pixels:
    """Return the nearest sRGB levels of linear light, clipped to [0, 1]."""
    return _ENCODED[np.rint(np.clip(light, 0, 1) * _STEPS).astype(np.uint16)]
