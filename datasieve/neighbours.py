"""Which of many 64-bit hashes lie within a few bits of each other, without comparing all with all.

Multi-index hashing: a hash is cut into four bands of 16 bits. Two hashes that differ in at most 4 (r + 1) - 1 bits
have, by the pigeonhole principle, a band in which they differ in at most r bits. So it is enough to look into the
buckets of equal bands (r = 0, certain up to 3 bits) or of bands with one bit turned (r = 1, certain up to 7 bits) and
to count bits only there. Pairs further apart, up to `max_distance`, are found when a band happens to be close enough.

All steps are sorts, table look-ups and runs of candidates; nothing loops over hashes in Python. Work grows with the
number of hashes times the size of a bucket, which for hashes that spread evenly is N / 65,536. Buckets that are far
larger than that, from images that all look alike to the hash, are looked at only in part; how many is returned.

Source: Norouzi, Punjani, Fleet, "Fast search in Hamming space with multi-index hashing", CVPR 2012.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]

BANDS = 4
BAND_BITS = 16
BUCKET_CAP = 512
"""Members of one bucket that one hash is compared with at most, as long as buckets of even hashes are smaller."""

_CHUNK = 1 << 21


class Neighbours(NamedTuple):
    """Pairs of rows that lie close together.

    Attributes:
        a: rows of the queries (or of the hashes, when they were joined with themselves: then a < b).
        b: rows of the hashes.
        distance: differing bits.
        capped: how many look-ups met a bucket too large to be compared in full; 0 means nothing was left out.
    """

    a: Rows
    b: Rows
    distance: npt.NDArray[np.uint8]
    capped: int


def count_bits(values: Hashes) -> npt.NDArray[np.uint8]:
    """Return the number of set bits of each 64-bit value."""
    if hasattr(np, "bitwise_count"):
        counted: npt.NDArray[np.uint8] = np.bitwise_count(values)
        return counted
    # NumPy 1.26: add neighbouring fields of 1, 2 and 4 bits, then all eight bytes by one multiplication.
    v = values - ((values >> np.uint64(1)) & np.uint64(0x5555555555555555))
    v = (v & np.uint64(0x3333333333333333)) + ((v >> np.uint64(2)) & np.uint64(0x3333333333333333))
    v = (v + (v >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    total: npt.NDArray[np.uint8] = ((v * np.uint64(0x0101010101010101)) >> np.uint64(56)).astype(np.uint8)
    return total


def near_hashes(
    hashes: Hashes,
    queries: Hashes | None = None,
    *,
    max_distance: int = 7,
    radius: int = 1,
    cap: int | None = None,
) -> Neighbours:
    """Return pairs of hashes that differ in at most `max_distance` bits, sorted by a, then b, each once.

    Args:
        hashes: (N,) uint64.
        queries: (M,) uint64; None joins `hashes` with themselves and leaves out a row with itself.
        max_distance: 0..64 bits. Complete up to 4 * (radius + 1) - 1 bits, if `capped` is 0; beyond, what is met.
        radius: 0 or 1, bits in which a band may differ; 1 costs about seventeen times as much.
        cap: members of one bucket compared at most; None chooses `BUCKET_CAP` or 16 times the size of an even
            bucket, whichever is more.

    Raises:
        ValueError: for another radius, or max_distance out of range.
    """
    if radius not in (0, 1):
        raise ValueError(f"radius is {radius}, not 0 or 1")
    if not 0 <= max_distance <= 64:
        raise ValueError(f"max_distance is {max_distance}, not within 0..64")
    if cap is None:
        cap = max(BUCKET_CAP, (16 * len(hashes)) >> BAND_BITS)
    found_a: list[Rows] = []
    found_b: list[Rows] = []
    capped = 0
    asked = hashes if queries is None else queries
    for band in range(BANDS):
        # Sorted by band and, within one bucket, by the whole hash, so that a capped look-up still meets equal hashes.
        order = _sorted_rows(hashes, band)
        members = hashes[order]
        starts = np.zeros((1 << BAND_BITS) + 1, np.int64)
        np.cumsum(np.bincount(_band(members, band), minlength=1 << BAND_BITS), out=starts[1:])
        query_order = order if queries is None else _sorted_rows(queries, band)
        probes = asked[query_order]
        keys = _band(probes, band)
        for turned in (0, *(1 << bit for bit in range(BAND_BITS if radius else 0))):
            rows = np.arange(len(probes), dtype=np.int64)
            if queries is None and turned:
                rows = rows[(keys & turned) == 0]  # the other half would meet the same pairs again
            target = keys[rows] ^ turned
            low, high = starts[target], starts[target + 1]
            if queries is None and not turned:
                low = rows + 1
            over = high - low > cap
            capped += int(over.sum())
            high = np.where(over, low + cap, high)
            for q, m in _runs(rows, low, high):
                near = count_bits(probes[q] ^ members[m]) <= max_distance
                found_a.append(query_order[q[near]])
                found_b.append(order[m[near]])
    a = np.concatenate(found_a) if found_a else np.zeros(0, np.int64)
    b = np.concatenate(found_b) if found_b else np.zeros(0, np.int64)
    if queries is None:
        a, b = np.minimum(a, b), np.maximum(a, b)
    pair = np.unique(a * np.int64(max(len(hashes), 1)) + b)
    a, b = pair // max(len(hashes), 1), pair % max(len(hashes), 1)
    return Neighbours(a, b, count_bits(asked[a] ^ hashes[b]), capped)


def _band(hashes: Hashes, band: int) -> Rows:
    shifted = hashes >> np.uint64(BAND_BITS * band)
    keys: Rows = (shifted & np.uint64((1 << BAND_BITS) - 1)).astype(np.int64)
    return keys


def _sorted_rows(hashes: Hashes, band: int) -> Rows:
    """Return rows ordered by the band, then by the other bits: the band is turned to the top and all 64 bits sorted."""
    up = np.uint64(64 - BAND_BITS * (band + 1))
    turned = hashes if not up else (hashes << up) | (hashes >> (np.uint64(64) - up))
    rows: Rows = np.argsort(turned, kind="stable").astype(np.int64)
    return rows


def _runs(rows: Rows, low: Rows, high: Rows) -> Iterator[tuple[Rows, Rows]]:
    """Yield (row, i) for every i in low[k] <= i < high[k] of every rows[k], in chunks of bounded size."""
    some = high > low
    rows, low, lengths = rows[some], low[some], (high - low)[some]
    ends = np.cumsum(lengths)
    first = 0
    while first < len(rows):
        done = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, done + _CHUNK, side="right")))
        size = lengths[first:last]
        begins = np.repeat(low[first:last] - (ends[first:last] - size - done), size)
        yield np.repeat(rows[first:last], size), begins + np.arange(len(begins), dtype=np.int64)
        first = last
