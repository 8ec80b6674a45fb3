"""How well captions fit their own pictures, beside all other captions and pictures of the set. NumPy only.

Cosines of pictures and texts have biases of their own: some captions are near every picture, some pictures near every
caption. So a fit is the cosine in standard deviations, once over the captions for the picture, once over the pictures
for the caption, and the mean of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]

FEWEST = 8
"""Distinct captions from which on there is something to stand out from."""

FITTING = 0.3
"""Fit from which on a caption may stay: it and its picture are in no swap."""

K = 10
"""Of the recall: a caption is found when it is among so many that fit its picture best."""

_LEAST_SCALE = 1e-3
"""Standard deviation of cosines below which they are all the same."""

_ROWS = 512
"""Pictures compared at once."""


class Fits(NamedTuple):
    """What `fits` finds, one value a picture.

    Attributes:
        cosine: of the picture and its caption, -1 to 1.
        fit: the same in standard deviations (module).
        rank: how many captions fit the picture at least as well: 1 is the best.
        misfit: the smaller of two shares, 0 to 1: captions that fit the picture better, pictures that the caption fits
            better.
        swap: by how much two pictures' fits rise in sum when they swap captions, with the partner of the largest rise;
            NaN where that is not mutual or where one of the two fits (`FITTING`).
        partner: the row of that picture, -1 without one.

    `separation` of all of them, 0 to 1: how often a caption fits its own picture better than another caption of the
    set does (the area under the ROC curve of one picture), in the median over pictures, so that some wrong captions do
    not lower it. Near 0.5 most captions are mixed up, or the models know too little of such pictures.
    """

    cosine: Floats
    fit: Floats
    rank: npt.NDArray[np.intp]
    misfit: Floats
    swap: Floats
    partner: npt.NDArray[np.intp]
    separation: float


def cosines(pictures: Vectors, texts: Vectors, caption: npt.NDArray[np.intp]) -> Floats:
    """Return the cosine of each picture (N, d) and its caption: row `caption[i]` of the texts (M, d)."""
    return np.asarray(np.einsum("nd,nd->n", pictures, texts[caption]), np.float64)


def fits(pictures: Vectors, texts: Vectors, caption: npt.NDArray[np.intp]) -> Fits:
    """Compare pictures (N, d) with the set's distinct captions (M, d); `caption` (N,) tells each picture's own row.

    Needs M >= `FEWEST`. Time and nothing else grows with N x M.
    """
    own = cosines(pictures, texts, caption)
    scale = _Scale(pictures, texts)
    everyone = np.arange(len(pictures))
    fit = scale.fit(own, everyone, caption)
    better_captions, better_pictures = np.zeros((2, len(pictures)), np.intp)
    for rows, found in scale.blocks():
        better_captions[rows] = (found > fit[rows, None] + 1e-9).sum(1)
        better_pictures += (found[:, caption] > fit + 1e-9).sum(0)
    misfit = np.minimum(better_captions / len(texts), better_pictures / len(pictures))
    swap, partner = _swaps(scale, fit, caption)
    separation = 1 - float(np.median(better_captions)) / (len(texts) - 1)
    return Fits(own, fit, better_captions + 1, misfit, swap, partner, separation)


def all_fits(pictures: Vectors, texts: Vectors) -> Floats:
    """Return the fits (N, M) of pictures (N, d) to texts (M, d)."""
    return _Scale(pictures, texts).among(np.arange(len(pictures)), np.arange(len(texts)))


class Interference(NamedTuple):
    """What a kind of conflict in captions does to how they fit.

    Attributes:
        similarity_drop: mean fall of the cosine of picture and caption.
        recall: share of pictures for which their own right caption is the best of all right ones, 0 to 1.
        recall_drop: how much of it is lost when each picture's own caption is the conflicting one.
    """

    similarity_drop: float
    recall: float
    recall_drop: float


def interference(pictures: Vectors, right: Vectors, wrong: Vectors) -> Interference:
    """Measure a conflict: pictures (N, d), their right captions (N, d), and the same with the conflict in (N, d).

    Pictures with equal right captions count as found by either. Mean similarity drop and loss of top-1 text recall are
    the two numbers by which work on concept interference tells its size.
    """
    cosine = (pictures @ right.T).astype(np.float64)
    same = (right @ right.T) > 1 - 1e-5
    own = np.diag(cosine)
    conflicting = cosines(pictures, wrong, np.arange(len(wrong)))
    best_other = np.where(same, -np.inf, cosine).max(1)
    before, after = float((own > best_other).mean()), float((conflicting > best_other).mean())
    return Interference(float((own - conflicting).mean()), before, before - after)


class _Scale:
    """Means and standard deviations of the cosines, over the captions for each picture and over pictures for each."""

    def __init__(self, pictures: Vectors, texts: Vectors) -> None:
        self.pictures, self.texts = pictures, texts
        self.row_mean, self.row_scale = _moments(pictures, texts)
        self.column_mean, self.column_scale = _moments(texts, pictures)

    def fit(self, cosine: Floats, rows: npt.NDArray[np.intp], columns: npt.NDArray[np.intp]) -> Floats:
        """Return cosines in standard deviations; shapes broadcast."""
        for_picture = (cosine - self.row_mean[rows]) / self.row_scale[rows]
        for_caption = (cosine - self.column_mean[columns]) / self.column_scale[columns]
        return np.asarray((for_picture + for_caption) / 2, np.float64)

    def among(self, rows: npt.NDArray[np.intp], columns: npt.NDArray[np.intp]) -> Floats:
        """Return the fits of some pictures (n) to some captions (m), (n, m)."""
        cosine = (self.pictures[rows] @ self.texts[columns].T).astype(np.float64)
        return self.fit(cosine, rows[:, None], columns[None])

    def blocks(self) -> Iterator[tuple[npt.NDArray[np.intp], Floats]]:
        """Yield rows and their fits to all captions."""
        everything = np.arange(len(self.texts))
        for start in range(0, len(self.pictures), _ROWS):
            rows = np.arange(start, min(start + _ROWS, len(self.pictures)))
            yield rows, self.among(rows, everything)


def _moments(these: Vectors, others: Vectors) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of each one's cosines to all others, without making them."""
    many = others.astype(np.float64)
    mean = these @ many.mean(0)
    spread = many.T @ many / len(many)
    square = np.einsum("nd,de,ne->n", these, spread, these, optimize=True)
    return mean, np.maximum(np.sqrt(np.maximum(square - mean**2, 0)), _LEAST_SCALE)


def _swaps(scale: _Scale, fit: Floats, caption: npt.NDArray[np.intp]) -> tuple[Floats, npt.NDArray[np.intp]]:
    swap, partner = np.full(len(fit), np.nan), np.full(len(fit), -1, np.intp)
    loose = np.flatnonzero(fit < FITTING)
    if len(loose) < 2:
        return swap, partner
    swapped = scale.among(loose, caption[loose])
    rise = swapped + swapped.T - fit[loose, None] - fit[None, loose]
    rise[caption[loose][:, None] == caption[loose][None]] = -np.inf
    best = rise.argmax(1)
    for row, other in enumerate(best.tolist()):
        if best[other] == row and rise[row, other] > 0.01:
            swap[loose[row]], partner[loose[row]] = rise[row, other], loose[other]
    return swap, partner
