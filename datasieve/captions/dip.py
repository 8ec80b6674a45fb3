"""Hartigan's dip: how far a sample is from every distribution with one hump, and how often chance does that.

Source: J. A. Hartigan and P. M. Hartigan, "The Dip Test of Unimodality", Annals of Statistics 13 (1985) 70-84; the
algorithm is P. M. Hartigan's AS 217 (Applied Statistics 34, 1985, 320-325). The p-value is against the uniform
distribution, the hardest one-humped case, from a table of simulated quantiles of sqrt(n) times the dip.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import numpy.typing as npt

SIZES = (20, 30, 50, 100, 200, 500, 2000)
PROBABILITIES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
QUANTILES: tuple[tuple[float, ...], ...] = (
    (0.1118, 0.2544, 0.287, 0.3281, 0.3811, 0.4349, 0.4704, 0.5106, 0.5403, 0.5669, 0.6187),
    (0.0913, 0.2593, 0.2923, 0.3363, 0.39, 0.4458, 0.4829, 0.5265, 0.5558, 0.5838, 0.6449),
    (0.0707, 0.2671, 0.3006, 0.3458, 0.4013, 0.4589, 0.4976, 0.5418, 0.5723, 0.5996, 0.6651),
    (0.05, 0.2741, 0.3082, 0.3548, 0.4113, 0.4722, 0.5123, 0.5588, 0.593, 0.6251, 0.6905),
    (0.0354, 0.2794, 0.3142, 0.3614, 0.4193, 0.4808, 0.5232, 0.5706, 0.603, 0.6336, 0.6952),
    (0.0224, 0.2848, 0.3193, 0.3683, 0.4268, 0.4899, 0.5313, 0.5804, 0.6139, 0.6419, 0.722),
    (0.0112, 0.2894, 0.3247, 0.3729, 0.4337, 0.4997, 0.5426, 0.5936, 0.6264, 0.6518, 0.7125),
)
"""sqrt(n) times the dip of uniform samples: a row per size, a column per probability; from 12,000 samples up."""

MOST = 2000
"""Larger samples are thinned to so many evenly spaced order statistics, which keeps their shape."""


def dip(values: npt.NDArray[np.float64]) -> float:
    """Return the dip of a sample: from 1/(2n), a single hump, to 1/4, two far points.

    Args:
        values: (n,) numbers, n at least 1.
    """
    x = np.sort(values)
    if len(x) > MOST:
        x = x[np.linspace(0, len(x) - 1, MOST).round().astype(int)]
    n = len(x)
    if n < 4 or x[0] == x[-1]:
        return 1 / (2 * n)
    return _dip([float(v) for v in x])


def _dip(x: list[float]) -> float:
    """AS 217 on sorted values: narrow the modal interval until the fits on both sides stop getting worse."""
    n = len(x)
    minorant = _hull(x, range(n))
    majorant = _hull(x, range(n - 1, -1, -1))
    low, high, worst = 0, n - 1, 1.0
    while True:
        gcm = _chain(minorant, high, low)  # knots of the greatest convex minorant, from high down to low
        lcm = _chain(majorant, low, high)  # knots of the least concave majorant, from low up to high
        distance, ig, ih = _farthest(x, gcm, lcm)
        if distance < worst:
            break
        worst = max(worst, _left_error(x, gcm[ig:]), _right_error(x, lcm[ih:]))
        if low == gcm[ig] and high == lcm[ih]:
            break
        low, high = gcm[ig], lcm[ih]
    return worst / (2 * n)


def _hull(x: list[float], order: range) -> list[int]:
    """Return for each point (x[i], i) the knot before it: of the lower hull going up, of the upper going down."""
    before = [order[0]] * len(x)
    for j in order[1:]:
        step = order.step
        before[j] = j - step
        while True:
            k = before[j]
            m = before[k]
            if k == order[0] or (x[j] - x[k]) * (k - m) < (x[k] - x[m]) * (j - k):
                break
            before[j] = m
    return before


def _chain(before: list[int], start: int, end: int) -> list[int]:
    chain = [start]
    while (chain[-1] > end) if start > end else (chain[-1] < end):
        chain.append(before[chain[-1]])
    return chain


def _farthest(x: list[float], gcm: list[int], lcm: list[int]) -> tuple[float, int, int]:
    """Return the largest distance between both hulls at their knots, and the knots around it."""
    if len(gcm) == 2 and len(lcm) == 2:
        return 1.0, 1, 1
    far, ig, ih = 0.0, len(gcm) - 1, len(lcm) - 1
    ix, iv = len(gcm) - 2, 1
    while True:
        g, c = gcm[ix], lcm[iv]
        if g > c:
            below = gcm[ix + 1]
            d = (c - below + 1) - (x[c] - x[below]) * (g - below) / (x[g] - x[below])
            iv += 1
            if d >= far:
                far, ig, ih = d, ix + 1, iv - 1
        else:
            before = lcm[iv - 1]
            d = (x[g] - x[before]) * (c - before) / (x[c] - x[before]) - (g - before - 1)
            ix -= 1
            if d >= far:
                far, ig, ih = d, ix + 1, iv
        ix, iv = max(ix, 0), min(iv, len(lcm) - 1)
        if gcm[ix] == lcm[iv]:
            return far, ig, ih


def _left_error(x: list[float], gcm: list[int]) -> float:
    worst = 0.0
    for end, begin in pairwise(gcm):
        most = 1.0
        if end - begin > 1 and x[end] != x[begin]:
            slope = (end - begin) / (x[end] - x[begin])
            most = max(1.0, *((k - begin + 1) - (x[k] - x[begin]) * slope for k in range(begin, end + 1)))
        worst = max(worst, most)
    return worst


def _right_error(x: list[float], lcm: list[int]) -> float:
    worst = 0.0
    for begin, end in pairwise(lcm):
        most = 1.0
        if end - begin > 1 and x[end] != x[begin]:
            slope = (end - begin) / (x[end] - x[begin])
            most = max(1.0, *((x[k] - x[begin]) * slope - (k - begin - 1) for k in range(begin, end + 1)))
        worst = max(worst, most)
    return worst


def p_value(value: float, n: int) -> float:
    """Return how often a uniform sample of `n` (at least 20) has a dip of `value` or more.

    Interpolated in 1/sqrt(n) and in the quantiles; 0.001 stands for 0.001 or less.
    """
    size = min(max(n, SIZES[0]), MOST)
    at = [
        np.interp(1 / math.sqrt(size), [1 / math.sqrt(s) for s in reversed(SIZES)], column[::-1])
        for column in zip(*QUANTILES, strict=True)
    ]
    below = float(np.interp(math.sqrt(size) * value, at, PROBABILITIES))
    return max(0.001, 1 - below)
