"""The light of every picture: colour temperature, distance from the black-body locus, and the set's own centre."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from datasieve.errors import ReportError
from datasieve.reporting.plots._ink import HUES, QUIET, WARNING, figure, measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from datasieve.report import Report

RULES = ("colour.cast", "colour.cast-outlier")
"""Rules whose findings are marked."""
KELVINS = (2000, 2500, 3000, 4000, 5000, 6500, 8000, 12000, 20000)
"""Marks of the axis of colour temperature, which is even in mired: equal steps look about equally large."""
DAYLIGHT = 1e6 / 6504


@dataclass(frozen=True, slots=True)
class Casts:
    """The light of the pictures that have one.

    Attributes:
        image_ids, paths: of each picture.
        mired: (n,) correlated colour temperature, 1e6 / kelvin.
        duv: (n,) distance from the black-body locus in CIE 1960 uv, positive greenish.
        light: (n, 3) the light in linear sRGB, each scaled to a largest channel of 1.
        flagged: (n,) the picture has a finding of `RULES`.
        centre: the set's medians of mired and duv.
        unknown: pictures whose light could not be told.
    """

    image_ids: list[str]
    paths: list[str]
    mired: npt.NDArray[np.float64]
    duv: npt.NDArray[np.float64]
    light: npt.NDArray[np.float64]
    flagged: npt.NDArray[np.bool_]
    centre: tuple[float, float]
    unknown: int


def colour_casts_data(report: Report) -> Casts:
    """Return the light of every picture. Raises ReportError when colours were not measured, or of no picture."""
    channels = [f"colour.light-{c}" for c in ("red", "green", "blue")]
    table = measured(report, "image_id", "path", "status", "colour.mired", "colour.duv", *channels)
    table = table.filter([status == "ok" for status in table["status"].to_pylist()])
    mired, duv, *rgb = (
        np.asarray(table[name].to_numpy(), np.float64) for name in ("colour.mired", "colour.duv", *channels)
    )
    known = np.isfinite(mired) & np.isfinite(duv)
    if not known.any():
        raise ReportError(f"{report.path} holds no picture whose light is known", remedy="Audit the set again.")
    findings = report.findings().select(["rule", "image_id"]).to_pylist()
    marked = {row["image_id"] for row in findings if row["rule"] in RULES}
    ids = table["image_id"].to_pylist()
    light = np.nan_to_num(np.stack(rgb, axis=1), nan=1.0)
    light /= np.maximum(light.max(1, keepdims=True), 1e-9)
    flagged = np.array([image in marked for image in ids], bool)
    paths = table["path"].to_pylist()
    return Casts(
        [i for i, k in zip(ids, known, strict=True) if k],
        [p for p, k in zip(paths, known, strict=True) if k],
        mired[known],
        duv[known],
        light[known],
        flagged[known],
        (float(np.median(mired[known])), float(np.median(duv[known]))),
        int((~known).sum()),
    )


def colour_casts(report: Report) -> Figure:
    """Return the chart: warm light to the right, greenish above; a cross at the set's own centre, odd ones ringed.

    Raises as `colour_casts_data`.
    """
    data = colour_casts_data(report)
    made, axes = figure(8, 5)
    axes.axhline(0, color=QUIET, linewidth=0.8)
    axes.axvline(DAYLIGHT, color=QUIET, linewidth=0.8, linestyle=":")
    dots = np.clip(data.light, 0, 1) ** (1 / 2.2)
    axes.scatter(data.mired, data.duv, s=26, c=dots, edgecolors="#555", linewidths=0.4)
    axes.scatter(
        data.mired[data.flagged], data.duv[data.flagged], s=80, marker="D", facecolors="none", edgecolors=WARNING,
        label=f"colour cast ({int(data.flagged.sum())})",
    )  # fmt: skip
    x, y = data.centre
    axes.scatter([x], [y], s=170, marker="+", color=HUES[0], linewidths=2.2, label=f"the set's centre, {1e6 / x:.0f} K")
    low, high = data.mired.min() - 15, data.mired.max() + 15
    ticks: list[int] = []
    for kelvin in KELVINS:  # from the right; a mark that would touch the one before it is left out
        at = 1e6 / kelvin
        if low <= at <= high and (not ticks or 1e6 / ticks[-1] - at >= 0.07 * (high - low)):
            ticks.append(kelvin)
    axes.set_xticks([1e6 / k for k in ticks], [f"{k:,} K" for k in ticks])
    axes.set_xlim(low, high)
    axes.set_xlabel("colour temperature: bluish left, orange right (even in mired; dotted: daylight)")
    axes.set_ylabel("Duv: greenish above 0, pinkish below")
    axes.legend(fontsize=8)
    axes.set_title("The light of every picture", fontsize=10)
    return made
