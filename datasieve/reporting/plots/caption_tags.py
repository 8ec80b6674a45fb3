"""Which words of the captions stand together: what never stands alone is learned as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from datasieve.captions.variety import document_frequency
from datasieve.errors import ReportError
from datasieve.reporting.captions import said
from datasieve.reporting.plots._ink import figure, measured
from datasieve.reporting.text import safe, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from datasieve.report import Report

MOST_CAPTIONS = 5000
"""Captions that are read; of larger sets an even sample."""
LONGEST = 2000
"""Characters of a caption that are read."""


def caption_tags_data(report: Report, most: int = 12) -> tuple[list[str], npt.NDArray[np.int64], int]:
    """Return what is named most, in how many captions each two stand (T, T), and how many captions were read.

    Entry (i, i) is the number of captions with tag i. Raises ReportError when there are no captions, or when nothing
    stands in three of them.
    """
    table = measured(report, "caption", "captions.style")
    table = table.filter(table["caption"].is_valid())
    if len(table) > MOST_CAPTIONS:
        table = table.take(np.linspace(0, len(table) - 1, MOST_CAPTIONS).astype(int))
    tags = [said(row["caption"][:LONGEST], row["captions.style"]) for row in table.to_pylist()]
    frequency = document_frequency(tags)
    often = [tag for tag, n in sorted(frequency.items(), key=lambda item: (-item[1], item[0])) if n >= 3][:most]
    if not often:
        raise ReportError(
            f"{report.path}: nothing stands in three captions", remedy="Caption the images, then audit them again."
        )
    holds = np.array([[tag in own for tag in often] for own in tags], np.int64)
    return often, holds.T @ holds, len(tags)


def caption_tags(report: Report) -> Figure:
    """Return the co-occurrence as a heat map: the share of the row's captions that hold the column's word too.

    Raises as `caption_tags_data`.
    """
    names, counts, total = caption_tags_data(report)
    share = counts / np.maximum(np.diag(counts), 1)[:, None]
    side = 2.2 + 0.42 * len(names)
    made, axes = figure(side + 1, side)
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    labels = [shortened(safe(name), 24) for name in names]
    axes.set_xticks(range(len(names)), labels, rotation=60, ha="right", rotation_mode="anchor", parse_math=False)
    rows = [f"{label} ({n})" for label, n in zip(labels, np.diag(counts), strict=True)]
    axes.set_yticks(range(len(names)), rows, parse_math=False)
    for row, values in enumerate(share):
        for column, value in enumerate(values):
            colour = "white" if value > 0.6 else "black"
            axes.text(column, row, f"{value:.0%}", ha="center", va="center", color=colour, fontsize=7)
    axes.set_title(
        f"Of the captions with the word at the left, how many hold the other\n{total:,} captions", fontsize=10
    )
    return made
