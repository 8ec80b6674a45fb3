"""What the vectors of one concept look like together: conflict, clusters, spread. NumPy only.

All vectors are of unit length and centred by their embedder. Centring on the audited set itself would put any two
halves of it 180 degrees apart, whatever they show.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]

MIN_IMAGES = 4
"""Images of a concept from which on there is a majority to disagree with."""

REFERENCES = 512
"""A large concept is represented by so many of its images, evenly spaced."""

_ROUNDS = 5
"""Rounds of weighting; the scores stand still after three or four."""

MOST_CLUSTERS = 6
LINKED = 1500
"""Images up to which clusters are linked exactly; larger concepts are linked on an even sample of so many."""


def conflicts(vectors: Vectors, distinct: npt.NDArray[np.bool_] | None = None) -> Floats:
    """Return how far each image is from what its concept shows, (n,) in [0, 2]; NaN below `MIN_IMAGES`.

    1 minus the mean of two cosines: the median one to the other images, which half of them could be anything without
    moving, and the one to what most of them have in common (`core`). Either alone ranks odd images worse. Only
    `distinct` images, (n,) True where an image is no copy of another, have a say; all have a score.
    """
    n = len(vectors)
    chosen = _sample(n, distinct, REFERENCES)
    if len(chosen) < MIN_IMAGES:
        return np.full(n, np.nan)
    likeness = (vectors @ vectors[chosen].T).astype(np.float64)
    likeness[chosen, np.arange(len(chosen))] = np.nan
    return np.asarray(1 - (np.nanmedian(likeness, axis=1) + core(vectors, distinct)) / 2)


def core(vectors: Vectors, distinct: npt.NDArray[np.bool_] | None = None) -> Floats:
    """Return each image's cosine to what the others have in common, (n,) in [-1, 1].

    The common direction is the mean of the others, each weighted by the square of its own cosine to it (a few rounds
    from equal weights), so that what is unlike the rest has no say in what the rest is; copies have none either.
    """
    say = np.ones(len(vectors)) if distinct is None else distinct.astype(np.float64)
    weights, cosine = say, say
    for _ in range(_ROUNDS):
        total = weights @ vectors
        # Without the image itself: |t - w v|^2 = |t|^2 - 2 w t.v + w^2 for unit v.
        along = vectors @ total.astype(np.float32) - weights
        length = np.sqrt(np.maximum(total @ total - 2 * weights * (along + weights) + weights**2, 1e-18))
        cosine = np.clip(along / length, -1, 1)
        weights = say * np.maximum(cosine, 1e-3) ** 2
    return np.asarray(cosine, np.float64)


def deviations(scores: Floats, floor: float, ceiling: float = np.inf) -> Floats:
    """Return scores as robust standard deviations above their median; NaN stays.

    The standard deviation is 1.4826 MAD, held between `floor`, for concepts whose images are all but equal, and
    `ceiling`, for concepts so mixed that their odd images stretch the measure that is to find them.
    """
    known = np.isfinite(scores)
    if not known.any():
        return scores
    middle = np.median(scores[known])
    spread = 1.4826 * np.median(np.abs(scores[known] - middle))
    return np.asarray((scores - middle) / np.clip(float(spread), floor, ceiling))


def _sample(n: int, distinct: npt.NDArray[np.bool_] | None, most: int) -> npt.NDArray[np.intp]:
    """Return the rows of distinct images, at most `most` of them, evenly spaced."""
    rows = np.arange(n) if distinct is None else np.flatnonzero(distinct)
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(int)]


def clusters(
    vectors: Vectors, least: float, least_angle: float, distinct: npt.NDArray[np.bool_] | None = None
) -> npt.NDArray[np.intp]:
    """Return cluster numbers (n,), largest cluster first; all 0 when the concept is one.

    Average linkage on cosine distance is cut into 2 to `MOST_CLUSTERS` parts of at least two images. Of the cuts the
    one with the largest mean silhouette is taken (P. J. Rousseeuw, "Silhouettes", J. Comput. Appl. Math. 20, 1987,
    53-65), and only if that exceeds `least`; parts whose mean directions are less than `least_angle` degrees apart are
    then joined. A single odd image is no cluster (it has its conflict) and stays with the nearest one. Only `distinct`
    images are linked, for copies of one picture would make a cluster of it; the others join the nearest cluster.
    """
    n = len(vectors)
    chosen = _sample(n, distinct, LINKED)
    if len(chosen) < MIN_IMAGES:
        return np.zeros(n, np.intp)
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    part = vectors[chosen].astype(np.float64)
    distance = np.clip(1 - part @ part.T, 0, 2)
    np.fill_diagonal(distance, 0)
    distance = (distance + distance.T) / 2
    tree = linkage(squareform(distance, checks=False), "average")
    best, labels = least, np.zeros(len(part), np.intp)
    # Odd images split off first, so more cuts are looked at than clusters are wanted.
    for k in range(2, min(len(part), 4 * MOST_CLUSTERS) + 1):
        cut = merged(fcluster(tree, k, "maxclust") - 1, distance)
        if 2 <= len(np.unique(cut)) <= MOST_CLUSTERS and (value := silhouette(cut, distance)) > best + 1e-9:
            best, labels = value, cut
    labels = joined(labels, part, least_angle)
    centroids = np.stack([part[labels == c].mean(0) for c in np.unique(labels)])
    number = np.argmax(vectors @ centroids.T.astype(np.float32), axis=1)
    number[chosen] = np.searchsorted(np.unique(labels), labels)
    order = np.argsort(-np.bincount(number, minlength=len(centroids)), kind="stable")
    rank = np.empty(len(order), np.intp)
    rank[order] = np.arange(len(order))
    return np.asarray(rank[number])


def joined(labels: npt.NDArray[np.intp], vectors: npt.NDArray[Any], least_angle: float) -> npt.NDArray[np.intp]:
    """Return labels in which the two nearest clusters were joined until all are `least_angle` degrees apart."""
    while len(names := np.unique(labels)) > 1:
        pairs = [(angle(vectors[labels == a], vectors[labels == b]), a, b) for a, b in combinations(names, 2)]
        nearest, a, b = min(pairs)
        if nearest >= least_angle:
            break
        labels = np.where(labels == b, a, labels)
    return labels


def merged(labels: npt.NDArray[np.intp], distance: Floats) -> npt.NDArray[np.intp]:
    """Return labels in which single images have joined the cluster of two or more that is nearest on average."""
    names, counts = np.unique(labels, return_counts=True)
    kept = names[counts >= 2]
    if not len(kept):
        return np.zeros_like(labels)
    mean = np.stack([distance[:, labels == c].mean(1) for c in kept], axis=1)
    alone = np.isin(labels, names[counts < 2])
    return np.where(alone, kept[mean.argmin(1)], labels)


def silhouette(labels: npt.NDArray[np.intp], distance: Floats) -> float:
    """Return the mean silhouette, -1 to 1, of labels (n,) under distances (n, n); every cluster has two or more."""
    names = np.unique(labels)
    total = np.stack([distance[:, labels == c].sum(1) for c in names], axis=1)
    size = np.array([(labels == c).sum() for c in names])
    own = np.searchsorted(names, labels)
    row = np.arange(len(labels))
    within = total[row, own] / (size[own] - 1)
    others = total / size
    others[row, own] = np.inf
    nearest = others.min(1)
    return float(((nearest - within) / np.maximum(np.maximum(nearest, within), 1e-12)).mean())


def effective_rank(vectors: Vectors) -> float:
    """Return the number of directions that the vectors (n, d) fill, 1 to n: the exponential of the entropy of their
    squared singular values (O. Roy, M. Vetterli, "The Effective Rank", EUSIPCO 2007).
    """
    if len(vectors) > REFERENCES:
        vectors = vectors[np.linspace(0, len(vectors) - 1, REFERENCES).astype(int)]
    power = np.linalg.svd(vectors.astype(np.float64), compute_uv=False) ** 2
    share = power[power > 1e-12] / power.sum()
    return float(np.exp(-(share * np.log(share)).sum()))


def angle(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """Return the angle in degrees, 0 to 180, between the mean directions of two groups of centred vectors."""
    one, other = a.mean(0), b.mean(0)
    cosine = float(one @ other / max(float(np.linalg.norm(one) * np.linalg.norm(other)), 1e-9))
    return float(np.degrees(np.arccos(np.clip(cosine, -1, 1))))
