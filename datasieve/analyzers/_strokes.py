"""Signs of fine strokes at five places of a picture, and the pattern of them that many pictures share."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Trits = npt.NDArray[np.int8]

PLACES = ("in the top left corner", "in the top right corner", "in the bottom left corner",
          "in the bottom right corner", "in the centre")  # fmt: skip
PATCH = (32, 64)
"""Height and width of a place in the picture reduced to 256 px."""
CELLS = 768
"""Pixels kept of a place: three of every eight."""
STROKE = 4.03
"""Grey levels from the mean of the four neighbours; no sixteenth, so that rounding of grey pictures cannot matter."""

ROUNDS = 8
"""Of power iteration."""


def stroke_signs(luma: Floats) -> Trits | None:
    """Return the signs of fine strokes at the five `PLACES`.

    Args:
        luma: (h, w) in grey levels 0..255.

    Returns:
        (5, `CELLS`) of -1 (darker than its surroundings), 0 and 1; None where the places would overlap too much.
    """
    high, wide = PATCH
    h, w = luma.shape
    if h < 3 * high or w < 2 * wide:
        return None
    y, x = np.mgrid[:high, :wide]
    kept = (3 * x + y) % 8 < 3
    signs = np.empty((len(PLACES), CELLS), np.int8)
    corners = ((0, 0), (0, w - wide), (h - high, 0), (h - high, w - wide), ((h - high) // 2, (w - wide) // 2))
    for n, (top, left) in enumerate(corners):
        rows = np.arange(top - 1, top + high + 1).clip(0, h - 1)
        columns = np.arange(left - 1, left + wide + 1).clip(0, w - 1)
        p = luma[rows[:, None], columns]
        detail = p[1:-1, 1:-1] - (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]) / 4
        signs[n] = ((detail > STROKE).astype(np.int8) - (detail < -STROKE))[kept]
    return signs


_PLACE_VALUES = np.array([1, 3, 9, 27, 81], np.uint8)
_DIGITS = (np.arange(256)[:, None] // _PLACE_VALUES % 3 - 1).astype(np.int8)


def pack(signs: Trits) -> str:
    """Write signs as text: five to a byte, base64; 1024 letters for five places."""
    digits = (signs.reshape(-1, 5) + 1).astype(np.uint8)
    return base64.b64encode((digits * _PLACE_VALUES).sum(1, dtype=np.uint8).tobytes()).decode("ascii")


def unpack(texts: Sequence[str]) -> Trits:
    """Read texts of `pack`: (n, 5, `CELLS`)."""
    data = np.frombuffer(b"".join(base64.b64decode(t) for t in texts), np.uint8)
    return _DIGITS[data].reshape(len(texts), len(PLACES), CELLS)


def common_strokes(signs: Trits) -> tuple[Floats, Floats]:
    """Find at each place the stroke pattern that most images share.

    Args:
        signs: (n, 5, `CELLS`) from `stroke_signs`.

    Returns:
        weights: (5, n) in [0, 1], how much each image carries the pattern of that place.
        patterns: (5, 5, `CELLS`): [a, b] is the weighted sum at place b with the weights found at place a.
    """
    units = _units(signs)
    weights = np.ones((len(PLACES), len(units)), np.float32)
    for a in range(len(PLACES)):
        strokes = units[:, a]
        own = (strokes**2).sum(1)
        for _ in range(ROUNDS):
            w = weights[a]
            agreement = _without_self(w @ strokes, strokes, w, own)
            weights[a] = np.maximum(agreement, 0) ** 2
            weights[a] /= max(float(weights[a].max()), 1e-9)
    return weights, np.einsum("an,nbc->abc", weights, units, optimize=True)


def agreements(signs: Trits, patterns: Floats, weights: Floats) -> Floats:
    """Return how well images carry each place's common pattern, (n, 5), about -1..1; noise stays below 0.15.

    Args:
        signs: (n, 5, `CELLS`).
        patterns: (5, 5, `CELLS`) from `common_strokes`.
        weights: (5, n), the weight with which each image took part in the patterns; 0 where it did not.
    """
    units = _units(signs)
    own = (units**2).sum(2)
    at = np.empty((len(PLACES), len(units), len(PLACES)), np.float32)
    for a in range(len(PLACES)):
        for b in range(len(PLACES)):
            at[a, :, b] = _without_self(patterns[a, b], units[:, b], weights[a], own[:, b])
    here = np.einsum("ana->na", at)
    result: Floats = here - np.maximum(np.median(at, axis=2), 0).T
    return result


def _units(signs: Trits) -> Floats:
    """Scale every place's strokes to length one; places with fewer than 64 strokes stay shorter."""
    strokes = signs.astype(np.float32)
    length = np.sqrt((strokes**2).sum(2, keepdims=True))
    return np.asarray(strokes / np.maximum(length, 8.0), np.float32)


def _without_self(pattern: Floats, strokes: Floats, weight: Floats, own: Floats) -> Floats:
    """Correlate strokes (n, c) with the pattern (c,) from which each image's weighted share is taken out."""
    dot = strokes @ pattern
    length = (pattern**2).sum() - 2 * weight * dot + weight**2 * own
    result: Floats = (dot - weight * own) / np.sqrt(np.maximum(length, 1e-6))
    return result
