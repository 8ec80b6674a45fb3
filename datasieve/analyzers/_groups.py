"""Where each image stands within its concept: robust centres, and distances in units of the usual one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

Floats = npt.NDArray[np.float64]

MIN_IMAGES = 4
"""Images needed for a robust centre."""


def centres(values: Floats, groups: Sequence[str]) -> Floats:
    """Return the robust centre of each row's group: the median of every column over its measured rows, (N, C).

    Groups of fewer than `MIN_IMAGES` measured rows take the centre of the whole set; NaN where that is too small too.

    Args:
        values: (N, C), NaN where not measured.
        groups: N names.
    """
    known = np.asarray(~np.isnan(values).any(-1))
    out = np.full(values.shape, np.nan)
    if known.sum() >= MIN_IMAGES:
        out[:] = np.median(values[known], axis=0)
    for rows in rows_of(groups):
        own = values[rows][known[rows]]
        if len(own) >= MIN_IMAGES:
            out[rows] = np.median(own, axis=0)
    return out


def in_spreads(distances: Floats, groups: Sequence[str], floor: float) -> Floats:
    """Return distances from a centre as multiples of their group's median distance, never of less than `floor`.

    Groups of fewer than `MIN_IMAGES` measured rows take the median distance of the whole set. (N,) like the distances.
    """
    known = ~np.isnan(distances)
    out = np.full(distances.shape, np.nan)
    if known.sum() >= MIN_IMAGES:
        out = distances / max(float(np.median(distances[known])), floor)
    for rows in rows_of(groups):
        own = distances[rows][known[rows]]
        if len(own) >= MIN_IMAGES:
            out[rows] = distances[rows] / max(float(np.median(own)), floor)
    return out


def rows_of(groups: Sequence[str]) -> list[npt.NDArray[np.intp]]:
    """Return the row numbers of each group."""
    if not groups:
        return []
    _, group = np.unique(np.array([str(g) for g in groups]), return_inverse=True)
    order = np.argsort(group, kind="stable")
    return list(np.split(order, np.flatnonzero(np.diff(group[order])) + 1))


COPIES = ("duplicates.exact-of", "duplicates.near-of", "duplicates.flip-of")
"""Columns that hold the path of the image that an image is a copy of."""


def originals(table: pa.Table, concepts: Sequence[str]) -> npt.NDArray[np.intp]:
    """Return a number per row of `table`, equal for copies of one picture within one concept, (N,)."""
    paths = table["path"].to_pylist()
    links = [table[c].to_pylist() for c in COPIES if c in table.column_names]
    first = {path: next((o for o in of if o is not None), None) for path, *of in zip(paths, *links, strict=True)}
    numbers: dict[tuple[str, str], int] = {}
    out = np.zeros(len(paths), np.intp)
    for row, (path, concept) in enumerate(zip(paths, concepts, strict=True)):
        root = path
        for _ in COPIES:  # a byte-equal copy may lead to a near copy, and that to a mirrored one
            root = first.get(root) or root
        out[row] = numbers.setdefault((concept, root), len(numbers))
    return out
