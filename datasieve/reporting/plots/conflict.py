"""How alike the concepts are, and the groups within them: a heat map of cosines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from datasieve.errors import InputError
from datasieve.reporting.likeness import matrix
from datasieve.reporting.text import safe, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from datasieve.report import Report

MOST = 60
"""Rows that still have readable labels."""


def conflict_data(report: Report, most: int = MOST) -> tuple[list[str], list[int], npt.NDArray[np.float64], int]:
    """Return names, sizes and cosines (C, C) of at most `most` groups, and how many groups there are in all.

    Groups of a concept that has several are kept before others, larger ones before smaller ones.
    Raises ReportError when no embedder ran, InputError when there is only one group.
    """
    names, sizes, cosines = matrix(report)
    if len(names) < 2:
        raise InputError(
            f"{report.path} holds one concept that is one group", remedy="A matrix needs two concepts or groups."
        )
    split = [", group " in name for name in names]
    kept = np.sort(np.lexsort((-np.array(sizes), ~np.array(split)))[:most])
    return [names[i] for i in kept], [sizes[i] for i in kept], cosines[np.ix_(kept, kept)], len(names)


def conflict(report: Report) -> Figure:
    """Return the matrix as a heat map: blue unlike, red alike, the cosine in each field when there is room.

    Groups of one concept that are unlike contradict each other; concepts that are alike leak into each other.
    Raises as `conflict_data`.
    """
    from matplotlib.figure import Figure

    names, sizes, cosines, total = conflict_data(report)
    labels = [f"{shortened(safe(name), 32)} ({size})" for name, size in zip(names, sizes, strict=True)]
    side = 2.5 + 0.42 * len(names)
    figure = Figure(figsize=(side + 1.5, side), layout="constrained")
    axes = figure.subplots()
    picture = axes.imshow(cosines, cmap="RdBu_r", vmin=-1, vmax=1)  # told apart with every kind of colour vision
    axes.set_xticks(range(len(names)), labels, rotation=60, ha="right", rotation_mode="anchor", parse_math=False)
    axes.set_yticks(range(len(names)), labels, parse_math=False)
    if len(names) <= 24:
        for row in range(len(names)):
            for column in range(len(names)):
                value = cosines[row, column]
                colour = "white" if abs(value) > 0.6 else "black"
                axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=7)
    more = f" ({len(names)} of {total} groups)" if total > len(names) else ""
    axes.set_title(f"Likeness of what the images show{more}\ncosine of mean directions; number of images in brackets")
    figure.colorbar(picture, ax=axes, shrink=0.7)
    return figure
