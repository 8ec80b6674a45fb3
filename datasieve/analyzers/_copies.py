"""From signatures to copies: propose pairs by their hashes, verify them by alignment, choose representatives.

Plain NumPy, usable without the pipeline: `find_copies` takes 32 x 32 signatures from anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from datasieve.analyzers._signature import (
    Levels,
    coefficients,
    hashes,
    likeness,
    structure,
    turn,
    turn_coefficients,
)
from datasieve.neighbours import near_hashes

NEAR, FLIP, ROTATION = "near", "flip", "rotation"
KINDS = (NEAR, FLIP, FLIP, ROTATION, ROTATION, ROTATION, ROTATION, ROTATION)
"""Kind of pair for each of `_signature.TURNS`."""
_INVERSE = (0, 1, 2, 3, 5, 4, 6, 7)

MIN_DETAIL = 2.0
"""Grey levels; pictures with less are never near copies. The plainest of 361 real photos and drawings has 6."""
CUT = 0.03
"""Share of each side that the second hash leaves out: the middle of the slight crops that cutting borders makes."""
_CUTS = (0.0, CUT)
REACH = ((50_000, 1, 10), (300_000, 1, 6), (1 << 62, 0, 4))
"""Up to so many images -> radius in a band, and bits in which two hashes may differ. Copies differ in 0 to 4."""
MOST_CHECKS = 50_000
"""Pairs verified at most, plus one per image; those with the most alike hashes first."""

MIN_CORRELATION = 0.985
MAX_LOCAL = 1.0
MAX_CONTRAST = 0.8
"""Limits on `Likeness` for a copy."""
FEW_CELLS = 0.066
STRICT_CONTRAST = 0.1
"""Pictures with less `structure` than this must agree this well: they show too little to judge by."""
_TIE = 0.0005
"""A picture that is its own mirror image counts as unturned unless turning fits better than by this."""

_CHUNK = 256
_HASH_CHUNK = 4_096


@dataclass(frozen=True, slots=True)
class Match:
    """Two rows that show one picture.

    Attributes:
        first, second: the rows; `second` looks like `first` turned by `turn`.
        turn: number in `_signature.TURNS`.
        score: correlation once aligned, 0..1.
    """

    first: int
    second: int
    turn: int
    score: float

    @property
    def kind(self) -> str:
        """One of `NEAR`, `FLIP`, `ROTATION`."""
        return KINDS[self.turn]

    def between(self, first: int, second: int) -> Match:
        """Return the same relation between other rows."""
        return replace(self, first=first, second=second)

    def reversed(self) -> Match:
        """Return how `first` follows from `second`."""
        return Match(self.second, self.first, _INVERSE[self.turn], self.score)


def find_copies(
    read: Callable[[npt.NDArray[np.int64]], Levels], level: npt.NDArray[np.float64]
) -> tuple[list[Match], str]:
    """Return all near, mirrored and turned copies among N pictures, each pair once, first < second.

    Args:
        read: gives the signatures (n, 32, 32) of some rows; called for a bounded number of rows at a time.
        level: (N,) detail of each picture in grey levels; those below `MIN_DETAIL` take no part.

    Returns:
        The pairs in order of rows, and a sentence on what was not compared, "" when everything was.
    """
    rows = np.flatnonzero(level >= MIN_DETAIL)
    a, b, form, cut, distance, capped = _candidates(read, rows)
    spared = []
    if capped:
        spared.append(f"{capped} look-ups met more alike images than are compared, so some near copies may be missed")
    most = MOST_CHECKS + len(rows)
    if len(a) > most:
        spared.append(f"of {len(a)} alike pairs the {most} most alike were verified")
        keep = np.sort(np.argsort(distance, kind="stable")[:most])
        a, b, form, cut = a[keep], b[keep], form[keep], cut[keep]
    if len(rows) > REACH[0][0]:
        spared.append("in a set this large only very alike hashes were compared")
    best: dict[tuple[int, int], Match] = {}
    for begin in range(0, len(a), _CHUNK):
        part = slice(begin, begin + _CHUNK)
        score = _verify(read, a[part], b[part], form[part], cut[part])
        for i in np.flatnonzero(score > 0):
            match = Match(int(a[part][i]), int(b[part][i]), int(form[part][i]), min(float(score[i]), 1.0))
            if match.first > match.second:
                match = match.reversed()
            key = (match.first, match.second)
            if key not in best or _worth(match) > _worth(best[key]):
                best[key] = match
    return [best[key] for key in sorted(best)], "; ".join(spared)


def _worth(match: Match) -> float:
    return match.score + _TIE * (match.kind == NEAR)


def _candidates(
    read: Callable[[npt.NDArray[np.int64]], Levels], rows: npt.NDArray[np.int64]
) -> tuple[
    npt.NDArray[np.int64],
    npt.NDArray[np.int64],
    npt.NDArray[np.int64],
    npt.NDArray[np.float64],
    npt.NDArray[np.uint8],
    int,
]:
    """Return a, b, turn of a, cut of a and hash distance of the pairs to verify, and how many look-ups were capped."""
    _, radius, reach = next(r for r in REACH if len(rows) <= r[0])
    known = _all_hashes(read, rows)
    index = known[0, 0]
    parts = []
    capped = 0
    for number, cut in enumerate(_CUTS):
        for form in range(8):
            if not cut and form == 5:
                continue  # the quarter turn to the left meets these pairs from their other end
            queries = None if not cut and not form else known[number, form]
            found = near_hashes(index, queries, max_distance=reach, radius=radius)
            capped += found.capped
            # Uncropped, a turn that undoes itself meets each pair from both ends.
            once = found.a != found.b if cut or form == 4 else found.a < found.b
            parts.append((found.a[once], found.b[once], form, cut, found.distance[once]))
    a = rows[np.concatenate([p[0] for p in parts])]
    b = rows[np.concatenate([p[1] for p in parts])]
    forms = np.concatenate([np.full(len(p[0]), p[2], np.int64) for p in parts])
    cuts = np.concatenate([np.full(len(p[0]), p[3]) for p in parts])
    return a, b, forms, cuts, np.concatenate([p[4] for p in parts]), capped


def _all_hashes(read: Callable[[npt.NDArray[np.int64]], Levels], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Return the hashes of all pictures for each cut and turn, (2, 8, N)."""
    out = np.empty((len(_CUTS), 8, len(rows)), np.uint64)
    for begin in range(0, len(rows), _HASH_CHUNK):
        part = slice(begin, begin + _HASH_CHUNK)
        pictures = read(rows[part])
        for number, cut in enumerate(_CUTS):
            low = coefficients(pictures, cut)
            for form in range(8):
                out[number, form, part] = hashes(turn_coefficients(low, form))
    return out


def _verify(
    read: Callable[[npt.NDArray[np.int64]], Levels],
    a: npt.NDArray[np.int64],
    b: npt.NDArray[np.int64],
    form: npt.NDArray[np.int64],
    cut: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Return the correlation of each pair that shows one picture, 0 of the others."""
    unique, place = np.unique(np.concatenate([a, b]), return_inverse=True)
    pictures = read(unique)
    first, second = pictures[place[: len(a)]], pictures[place[len(a) :]]
    turned = np.empty_like(first)
    for number in range(8):
        chosen = form == number
        turned[chosen] = turn(first[chosen], number)
    alike = likeness(turned, second, cut)
    few = np.minimum(structure(turned), structure(second)) < FEW_CELLS
    same = alike.correlation >= MIN_CORRELATION
    same &= alike.local <= MAX_LOCAL
    same &= alike.contrast <= np.where(few, STRICT_CONTRAST, MAX_CONTRAST)
    return np.where(same, alike.correlation, 0.0)


def choose(order: Sequence[int], matches: Iterable[Match]) -> dict[int, Match]:
    """Return for every redundant row its best match with a representative (`first`), which never is redundant itself.

    Rows are taken in `order`; one that matches no representative yet becomes one. So each copy points at a picture
    that it was really compared with, also along chains of pictures that change little by little.
    """
    known: dict[int, list[Match]] = {}
    for match in matches:
        known.setdefault(match.second, []).append(match)
        known.setdefault(match.first, []).append(match.reversed())
    redundant: dict[int, Match] = {}
    kept: set[int] = set()
    for row in order:
        possible = [m for m in known.get(row, ()) if m.first in kept]
        if possible:
            redundant[row] = max(possible, key=lambda m: m.score)
        else:
            kept.add(row)
    return redundant


def components(count: int, links: Sequence[tuple[int, int]]) -> tuple[list[int | None], list[int]]:
    """Return the number of each row's group of linked rows (None when alone) and the group's size.

    Groups are numbered from 0 in the order of their first rows.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    if not count:
        return [], []
    ends = np.array(links, np.int64).reshape(-1, 2)
    graph = coo_matrix((np.ones(len(ends), np.int8), (ends[:, 0], ends[:, 1])), shape=(count, count))
    _, label = connected_components(graph, directed=False)
    sizes = np.bincount(label)[label]
    numbers: dict[int, int] = {}
    group = [numbers.setdefault(int(n), len(numbers)) if s > 1 else None for n, s in zip(label, sizes, strict=True)]
    return group, [int(s) for s in sizes]
