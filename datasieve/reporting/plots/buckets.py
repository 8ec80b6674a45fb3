"""The shapes in which a trainer will show the pictures, and how many fall into each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from datasieve.errors import ReportError
from datasieve.reporting.plots._ink import HUES, WARNING, figure, measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from datasieve.report import Report


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket.

    Attributes:
        width, height: in px.
        images: pictures in it.
        fill: pictures times repeats.
        crop_share: mean share of a picture's area that is cut away, 0 to 1.
        enlarged: pictures that are resized by a factor above 1.
        shortfall: samples it lacks to fill one batch.
    """

    width: int
    height: int
    images: int
    fill: int
    crop_share: float
    enlarged: int
    shortfall: int


def buckets_data(report: Report) -> list[Bucket]:
    """Return the buckets, the fullest first. Raises ReportError when buckets were not computed."""
    names = ("width", "height", "fill", "crop-share", "scale", "shortfall")
    table = measured(report, *(f"buckets.{name}" for name in names))
    table = table.filter(table["buckets.width"].is_valid())
    if not len(table):
        why = (report.run.get("unmeasured") or {}).get("buckets", "no picture could be read")
        raise ReportError(f"{report.path} tells no buckets: {why}", remedy="Audit with another --trainer.")
    values = np.stack([np.asarray(table[f"buckets.{n}"].to_numpy(), np.float64) for n in names], axis=1)
    sizes, which = np.unique(values[:, :2], axis=0, return_inverse=True)
    found = []
    for number, (width, height) in enumerate(sizes):
        mine = values[which.reshape(-1) == number]
        enlarged = int((mine[:, 4] > 1).sum())
        cut = float(mine[:, 3].mean())
        found.append(Bucket(int(width), int(height), len(mine), int(mine[0, 2]), cut, enlarged, int(mine[0, 5])))
    return sorted(found, key=lambda bucket: (-bucket.images, bucket.width, bucket.height))


def buckets(report: Report, most: int = 24) -> Figure:
    """Return bars of the fullest buckets; those too empty for one batch are hatched. Raises as `buckets_data`."""
    found = buckets_data(report)
    shown = found[:most]
    made, axes = figure(8, 1.2 + 0.3 * len(shown))
    bars = axes.barh(
        [f"{b.width} x {b.height}" for b in shown],
        [b.images for b in shown],
        color=[WARNING if b.shortfall else HUES[0] for b in shown],
        hatch=["//" if b.shortfall else "" for b in shown],
        edgecolor="white",
    )
    axes.bar_label(bars, [f"{b.images:,} images, {b.crop_share:.0%} cut away" for b in shown], padding=3, fontsize=8)
    axes.margins(x=0.25)
    axes.invert_yaxis()
    more = f" ({most} of {len(found)})" if len(found) > most else ""
    axes.set_title(f"Buckets{more}; hatched: fewer samples than one batch", fontsize=10)
    return made
