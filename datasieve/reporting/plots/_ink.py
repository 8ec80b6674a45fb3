"""What the charts share: how a column is asked for, an empty figure, colours and markers that do without colour."""

from __future__ import annotations

from typing import TYPE_CHECKING

from datasieve.errors import ReportError

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from datasieve.report import Report

HUES = ("#1f6f8b", "#b3541e", "#5b7f2b", "#7a4fa3", "#a8324a", "#8a6d00")
"""Dark enough for 3:1 on white, and told apart with the usual kinds of colour vision; markers differ besides."""
MARKERS = ("o", "s", "^", "D")
QUIET, WARNING = "#8c8a85", "#a3231f"


def measured(report: Report, *names: str) -> pa.Table:
    """Return columns of images.parquet, all rows.

    Raises ReportError, with the remedy, when the audit did not measure one of them.
    """
    known = report.columns()
    missing = [name for name in names if name not in known]
    table = None if missing else report.images(list(dict.fromkeys(names)))
    if table is not None and all(table[name].null_count == len(table) for name in table.column_names):
        missing = list(table.column_names)
    if table is None or missing:
        raise ReportError(
            f"{report.path} has not measured {', '.join(missing)}",
            remedy="Audit the set again with this version; run.json tells what could not be measured and why.",
        )
    return table


def figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure of that many inches with one plain pair of axes."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained")
    axes = made.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return made, axes
