"""The set as a map: pictures that look alike lie near one another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from datasieve.reporting.likeness import groups, unit_vectors
from datasieve.reporting.plots._ink import HUES, MARKERS, QUIET, figure
from datasieve.reporting.text import safe, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from datasieve.report import Report

MOST = 400
"""Pictures on the map; of larger sets an even sample."""
FEW = 30
"""Pictures below which neighbourhoods mean little and the two main directions are shown instead."""
NAMED = len(HUES) * len(MARKERS)
"""Groups with a marker of their own."""


@dataclass(frozen=True, slots=True)
class EmbeddingMap:
    """Places of pictures.

    Attributes:
        image_ids, paths, groups: of each picture shown.
        places: (n, 2) in [0, 1].
        named: groups in the order of their size; the first `NAMED` have markers of their own.
        total: pictures with a vector, shown or not.
        method: how the places were found, in words.
    """

    image_ids: list[str]
    paths: list[str]
    groups: list[str]
    places: npt.NDArray[np.float64]
    named: list[str]
    total: int
    method: str


def embedding_map_data(report: Report, most: int = MOST) -> EmbeddingMap:
    """Return the map of at most `most` pictures, evenly spaced over the set. Raises ReportError without vectors."""
    table = report.embeddings()
    total = len(table)
    names = groups(report, table)
    rows = np.unique(np.linspace(0, max(total - 1, 0), min(total, most)).astype(int))
    shown = table.take(rows)
    places, method = _places(unit_vectors(shown["embedding"]))
    own = [names[i] for i in rows]
    counted = sorted(set(own), key=lambda name: (-own.count(name), name))
    return EmbeddingMap(shown["image_id"].to_pylist(), shown["path"].to_pylist(), own, places, counted, total, method)


def _places(vectors: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float64], str]:
    """Return places (n, 2) in [0, 1] and the method; the same vectors always give the same places."""
    centred = vectors.astype(np.float64) - vectors.mean(0)
    left, size, _ = np.linalg.svd(centred, full_matrices=False)
    main = left * size
    if len(main) and main.shape[1] < 2:
        main = np.pad(main, ((0, 0), (0, 2 - main.shape[1])))
    if len(vectors) < FEW:
        places, method = main[:, :2], "the two directions in which the pictures differ most (PCA)"
    else:
        places, method = _neighbours(main[:, :50]), "t-SNE: near means alike, far says little"
    low, high = places.min(0), places.max(0)
    return (places - low) / np.maximum(high - low, 1e-9), method


def _neighbours(main: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return t-SNE places (L. van der Maaten, G. Hinton, JMLR 9, 2008, 2579-2605) from the main components."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    # One thread: the sums are small, and threads that wait for each other cost more than they save.
    with threadpool_limits(1):
        perplexity = min(30.0, (len(main) - 1) / 4)
        return np.asarray(TSNE(2, init="pca", random_state=0, perplexity=perplexity, max_iter=500).fit_transform(main))


def embedding_map(report: Report) -> Figure:
    """Return the map, a marker and hue for each of the largest groups, named where its pictures lie.

    Raises ReportError when no embedder ran.
    """
    data = embedding_map_data(report)
    made, axes = figure(8, 6)
    own = np.array(data.groups, dtype=object)
    for number, name in enumerate(data.named):
        at = data.places[own == name]
        named = number < NAMED and len(data.named) > 1
        axes.scatter(
            at[:, 0],
            at[:, 1],
            s=22,
            marker=MARKERS[number // len(HUES) % len(MARKERS)] if named else ".",
            color=HUES[number % len(HUES)] if named else QUIET,
            alpha=0.85,
        )
        if named:
            x, y = np.median(at, axis=0)
            axes.annotate(
                shortened(safe(name), 28), (x, y), ha="center", va="bottom", fontsize=8, parse_math=False,
                bbox={"boxstyle": "round,pad=0.2", "fc": "white", "ec": "none", "alpha": 0.75},
            )  # fmt: skip
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    shown = f"{len(data.paths):,} of {data.total:,} pictures" if data.total > len(data.paths) else "every picture"
    axes.set_title(f"What looks like what: {shown}\n{data.method}", fontsize=10)
    return made
