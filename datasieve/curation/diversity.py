"""Few pictures that stand for many: k-centre and facility location on embeddings, weighed by quality.

k-centre takes the picture farthest from those taken, again and again (Gonzalez 1985: at most twice the best possible
radius). Facility location takes the one that makes the whole set better represented (Nemhauser et al. 1978: at least
63 % of the best value), lazily (Minoux 1978): gains only shrink, so most need not be computed again.
"""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

EXACT = 20_000
"""Pictures up to which facility location compares every pair; beyond, each is represented among a random sample."""


def k_centre(vectors: Vectors, count: int, quality: npt.ArrayLike | None = None) -> Ints:
    """Return (count,) indices, in the order they were taken; the first is the best picture.

    Args:
        vectors: (N, d) unit vectors.
        count: how many, at most N.
        quality: (N,) from 0 to 1: a distance counts times quality, so a bad picture must be far off to be taken.
    """
    n = len(vectors)
    worth = np.ones(n) if quality is None else np.asarray(quality, float)
    taken = [int(np.argmax(worth))]
    free = np.ones(n, bool)
    nearest = np.full(n, np.inf)
    for _ in range(min(count, n) - 1):
        free[taken[-1]] = False
        # Copies lie at distance 0, or a rounding error below; among them quality still decides.
        nearest = np.minimum(nearest, np.maximum(1 - vectors @ vectors[taken[-1]], 0))
        taken.append(int(np.argmax(np.where(free, (nearest + 1e-9) * worth, -1.0))))
    return np.array(taken, np.int64)


def facility_location(
    vectors: Vectors, count: int, quality: npt.ArrayLike | None = None, *, seed: int = 0, strength: float = 0.1
) -> Ints:
    """Return (count,) indices that represent all pictures best, in the order they were taken.

    The value of a choice is the sum over all pictures of the cosine to the nearest one chosen, plus `strength` times
    the quality of the chosen.

    Args:
        vectors: (N, d) unit vectors.
        count: how many, at most N.
        quality: (N,) from 0 to 1; None: all alike.
        seed: of the sample that stands for all pictures beyond `EXACT`.
        strength: what quality counts.
    """
    n = len(vectors)
    worth = (np.zeros(n) if quality is None else np.asarray(quality, float)) * strength
    represented = vectors
    if n > EXACT:
        represented = vectors[np.random.default_rng(seed).choice(n, EXACT // 4, replace=False)]
    best = np.full(len(represented), -1.0, np.float32)

    def gain(i: int) -> float:
        return float(np.maximum(represented @ vectors[i] - best, 0).sum()) + float(worth[i])

    # The first gains of all at once, in blocks; then a picture is looked at again only when it leads.
    gains = np.empty(n)
    for start in range(0, n, 1024):
        part = vectors[start : start + 1024] @ represented.T
        gains[start : start + 1024] = np.maximum(part + 1, 0).sum(1) + worth[start : start + 1024]
    heap = [(-g, i) for i, g in enumerate(gains.tolist())]
    heapq.heapify(heap)
    taken: list[int] = []
    while heap and len(taken) < min(count, n):
        _, i = heapq.heappop(heap)
        fresh = gain(i)
        if heap and fresh < -heap[0][0] - 1e-9:
            heapq.heappush(heap, (-fresh, i))
            continue
        taken.append(i)
        best = np.maximum(best, represented @ vectors[i])
    return np.array(taken, np.int64)


def radius(vectors: Vectors, chosen: Ints) -> float:
    """Return the largest cosine distance of any picture to the nearest chosen one, 0..2."""
    nearest = np.full(len(vectors), 2.0, np.float32)
    for i in chosen:
        nearest = np.minimum(nearest, 1 - vectors @ vectors[i])
    return float(nearest.max(initial=0))


def coverage(vectors: Vectors, chosen: Ints) -> float:
    """Return the mean cosine of all pictures to the nearest chosen one, -1..1."""
    best = np.full(len(vectors), -1.0, np.float32)
    for i in chosen:
        best = np.maximum(best, vectors @ vectors[i])
    return float(best.mean())
