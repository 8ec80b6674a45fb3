"""How much of the frame the subject takes: the mix of close-ups and wide shots."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING

from datasieve.reporting.plots._ink import HUES, measured
from datasieve.reporting.text import safe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from datasieve.report import Report

ORDER = ("detail", "portrait", "half", "full", "wide")
"""Scale classes from near to far; others a report may hold follow by name."""


def scales_data(report: Report) -> tuple[dict[str, int], list[float]]:
    """Return images by scale class, near to far, and the subject's share of each frame (0 to 1).

    Raises ReportError when the subject was not measured.
    """
    table = measured(report, "subject.scale", "subject.share")
    counts = collections.Counter(c for c in table["subject.scale"].to_pylist() if c)
    order = [*(c for c in ORDER if c in counts), *sorted(c for c in counts if c not in ORDER)]
    return {name: counts[name] for name in order}, [s for s in table["subject.share"].to_pylist() if s is not None]


def scales(report: Report) -> Figure:
    """Return two charts: images by scale class, and how the subject's share is spread. Raises as `scales_data`."""
    from matplotlib.figure import Figure

    counts, shares = scales_data(report)
    made = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = made.subplots(1, 2)
    bars = left.bar([safe(name) for name in counts], list(counts.values()), color=HUES[0])
    left.bar_label(bars, fontsize=8)
    left.set_title("Scale of the subject, near to far", fontsize=10)
    right.hist([100 * share for share in shares], bins=20, range=(0, 100), color=HUES[0])
    right.set_xlabel("% of the frame")
    right.set_title("Share of the frame that the subject takes", fontsize=10)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return made
