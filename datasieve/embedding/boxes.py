"""The box that fits a map of probabilities best."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@lru_cache(maxsize=4)
def _spans(side: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the first cell and the one after the last of every span within `side` cells."""
    first, last = np.triu_indices(side)
    return first, last + 1


def best_boxes(maps: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    """Return the boxes (B, 4) in shares of the picture (left, top, right, bottom) and their expected overlap (B,).

    Maps (B, n, n) hold the probability that a cell is part of what is sought. The overlap of a box is expected to be
    the probability inside it over its area and the probability outside it (intersection over union); every box whose
    edges lie on the grid is tried.
    """
    count, side = maps.shape[:2]
    first, last = _spans(side)
    boxes, overlaps = np.empty((count, 4), np.float32), np.empty(count, np.float32)
    area = np.outer(last - first, last - first).astype(np.float32)
    for i, found in enumerate(maps):
        summed = np.zeros((side + 1, side + 1), np.float32)
        summed[1:, 1:] = found.cumsum(0).cumsum(1)
        rows = summed[last] - summed[first]
        inside = rows[:, last] - rows[:, first]
        overlap = area + summed[-1, -1]
        overlap -= inside
        np.divide(inside, overlap, out=overlap)
        down, across = np.unravel_index(int(overlap.argmax()), overlap.shape)
        boxes[i] = np.array([first[across], first[down], last[across], last[down]]) / side
        overlaps[i] = overlap[down, across]
    return boxes, overlaps
