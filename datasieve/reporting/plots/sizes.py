"""How large the pictures are, against the size they will be trained at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from datasieve.config import RESOLUTIONS
from datasieve.errors import ReportError
from datasieve.reporting.plots._ink import HUES, WARNING, figure, measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from datasieve.report import Report


def sizes_data(report: Report) -> tuple[npt.NDArray[np.int64], int]:
    """Return width and height (n, 2) of the usable pictures in px, and the training resolution in px.

    Raises ReportError when no picture could be read.
    """
    table = measured(report, "status", "width", "height")
    rows = [(r["width"], r["height"]) for r in table.to_pylist() if r["status"] == "ok" and r["width"] and r["height"]]
    if not rows:
        raise ReportError(f"{report.path} holds no readable picture", remedy="Audit a set that has some.")
    settings = report.run.get("settings") or {}
    return np.array(rows, np.int64), int(settings.get("resolution") or RESOLUTIONS[str(settings.get("base", "sd15"))])


def sizes(report: Report) -> Figure:
    """Return the chart: width against height, both logarithmic, and the training resolution. Raises as `sizes_data`."""
    pictures, side = sizes_data(report)
    made, axes = figure(6.5, 6)
    pairs, counts = np.unique(pictures, axis=0, return_counts=True)
    small = pairs.min(1) < side
    for chosen, colour, marker, name in ((~small, HUES[0], "o", "large enough"), (small, WARNING, "v", "too small")):
        number = int(counts[chosen].sum())
        if number:
            areas = 14 + 60 * np.sqrt(counts[chosen] / counts.max())
            axes.scatter(
                pairs[chosen, 0],
                pairs[chosen, 1],
                s=areas,
                color=colour,
                marker=marker,
                alpha=0.6,
                label=f"{name}: {number:,}",
            )
    axes.axvline(side, color="#555", linewidth=0.8, linestyle=":")
    axes.axhline(side, color="#555", linewidth=0.8, linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel="width, px", ylabel="height, px")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.0f}")
        axis.set_minor_formatter("{x:,.0f}")
    axes.tick_params(which="both", labelsize=8)
    axes.legend(fontsize=8)
    axes.set_title(f"Sizes of the pictures; dotted: {side} px, the training resolution", fontsize=10)
    return made
