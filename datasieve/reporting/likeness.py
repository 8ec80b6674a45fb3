"""What looks like what: the matrix of concepts and their groups as a picture, and the neighbours of one image."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from datasieve.embedding import structure
from datasieve.errors import InputError, ReportError
from datasieve.report import Report
from datasieve.reporting.text import safe, shortened
from datasieve.storage import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 60
"""Rows that still have readable labels; of more, the largest groups are drawn."""


def vectors(report: Report) -> tuple[list[str], list[str], structure.Vectors]:
    """Return paths, names of groups (concept, and its cluster where it has several) and centred vectors.

    Raises ReportError when no embedder ran.
    """
    table = report.embeddings()
    clusters = {r["path"]: r["semantics.cluster"] for r in report.images(["path", "semantics.cluster"]).to_pylist()}
    paths: list[str] = table["path"].to_pylist()
    concepts = [c or "" for c in table["concept"].to_pylist()]
    several = {c for c, path in zip(concepts, paths, strict=True) if clusters.get(path)}
    groups = [
        f"{c or 'the set'}, group {(clusters.get(path) or 0) + 1}" if c in several else c or "the set"
        for c, path in zip(concepts, paths, strict=True)
    ]
    column = table["embedding"].combine_chunks()
    flat = np.asarray(column.flatten().to_numpy(zero_copy_only=False), np.float32).reshape(len(paths), -1)
    return paths, groups, flat


def matrix(report: Report) -> tuple[list[str], list[int], npt.NDArray[np.float64]]:
    """Return names, sizes and the cosines (C, C) between the mean directions of all groups.

    Two groups of one concept that are unlike contradict each other; two concepts that are alike leak into each other.
    """
    _, groups, values = vectors(report)
    names = sorted(set(groups))
    members = [np.flatnonzero(np.array(groups, dtype=object) == name) for name in names]
    means = np.stack([values[m].mean(0) for m in members]).astype(np.float64)
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-9)
    return names, [len(m) for m in members], means @ means.T


def conflict(report: Report) -> Figure:
    """Return the matrix as a heat map: blue unlike, red alike, the cosine in each field when there is room.

    Raises InputError when there is only one group.
    """
    from matplotlib.figure import Figure

    names, sizes, cosines = matrix(report)
    if len(names) < 2:
        raise InputError(
            f"{report.path} holds one concept that is one group", remedy="A matrix needs two concepts or groups."
        )
    kept = np.sort(np.argsort(sizes)[::-1][:MOST])
    cosines, labels = cosines[np.ix_(kept, kept)], [f"{shortened(safe(names[i]), 32)} ({sizes[i]})" for i in kept]
    side = 2.5 + 0.42 * len(kept)
    figure = Figure(figsize=(side + 1.5, side), layout="constrained")
    axes = figure.subplots()
    picture = axes.imshow(cosines, cmap="RdBu_r", vmin=-1, vmax=1)  # told apart with every kind of colour vision
    axes.set_xticks(range(len(kept)), labels, rotation=60, ha="right", rotation_mode="anchor", parse_math=False)
    axes.set_yticks(range(len(kept)), labels, parse_math=False)
    if len(kept) <= 24:
        for row in range(len(kept)):
            for column in range(len(kept)):
                value = cosines[row, column]
                colour = "white" if abs(value) > 0.6 else "black"
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=7)
    more = f" (the {MOST} largest of {len(names)})" if len(names) > MOST else ""
    axes.set_title(f"Likeness of what the images show{more}\ncosine of mean directions; number of images in brackets")
    figure.colorbar(picture, ax=axes, shrink=0.7)
    return figure


def draw_matrix(report: Report, final: Path) -> None:
    """Write the heat map as PNG, SVG or PDF, by the name's ending. Raises InputError for another ending."""
    if final.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f"{final} is no .png, .svg or .pdf", remedy="Name the picture so with --out.")
    figure = conflict(report)
    with atomic_path(final) as temporary:
        figure.savefig(temporary, dpi=150, format=final.suffix[1:].lower())


def similar(report: Report, path: str, count: int) -> list[dict[str, Any]]:
    """Return the images most alike in meaning to one: rows of path, group and cosine, the nearest first.

    Raises ReportError when the image has no vector.
    """
    paths, groups, values = vectors(report)
    if path not in paths:
        raise ReportError(f"{report.path} holds no vector of {path}", remedy="It could not be read, or is not there.")
    own = paths.index(path)
    cosines = values @ values[own]
    order = [int(i) for i in np.argsort(-cosines, kind="stable") if i != own][:count]
    return [{"path": paths[i], "group": groups[i], "cosine": float(cosines[i])} for i in order]
