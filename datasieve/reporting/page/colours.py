"""The part of the page on light and size: colour casts as a chart, buckets as shapes."""

from __future__ import annotations

from typing import Any

import numpy as np

from datasieve.errors import DatasieveError
from datasieve.report import Report
from datasieve.reporting.page.pictures import Pictures
from datasieve.reporting.plots.buckets import Bucket, buckets_data
from datasieve.reporting.plots.colour_casts import DAYLIGHT, KELVINS, colour_casts_data
from datasieve.reporting.text import number

MOST = 400
WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 16, 56
MOST_BUCKETS = 12
_GAP = 84
"""Least distance of two marks of the axis in units of the chart."""


def casts(report: Report, pictures: Pictures) -> dict[str, Any] | None:
    """Return the chart of light as points, marks and the set's centre; None when no light is known."""
    try:
        data = colour_casts_data(report)
    except DatasieveError:
        return None
    rows = np.flatnonzero(data.flagged)[: MOST // 2]
    others = np.flatnonzero(~data.flagged)
    kept = np.unique(np.linspace(0, len(others) - 1, min(len(others), MOST - len(rows))).astype(int))
    rows = np.concatenate([others[kept] if len(others) else others, rows])
    low, high = _padded(data.mired[rows], 40, DAYLIGHT)
    bottom, top = _padded(data.duv[rows], 0.02, 0.0)

    def x(mired: float) -> float:
        return LEFT + (mired - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(duv: float) -> float:
        return TOP + (top - duv) / (top - bottom) * (HEIGHT - TOP - BOTTOM)

    points = []
    for i in rows:
        flagged = bool(data.flagged[i])
        r, g, b = (np.clip(data.light[i], 0, 1) ** (1 / 2.2) * 255).round().astype(int).tolist()
        points.append(
            {
                "x": f"{x(data.mired[i]):.1f}",
                "y": f"{y(data.duv[i]):.1f}",
                "fill": f"#{r:02x}{g:02x}{b:02x}",
                "odd": flagged,
                "picture": pictures.of(data.image_ids[i]),
                "note": f"{1e6 / data.mired[i]:,.0f} K, Duv {data.duv[i]:+.3f}" + (", colour cast" if flagged else ""),
            }
        )
    points.sort(key=lambda p: (float(str(p["x"])), float(str(p["y"]))))
    kelvins: list[dict[str, str]] = []
    for kelvin in KELVINS:
        at = x(1e6 / kelvin)
        if LEFT <= at <= WIDTH - RIGHT and (not kelvins or abs(at - float(kelvins[-1]["x"])) >= _GAP):
            kelvins.append({"x": f"{at:.1f}", "text": f"{kelvin:,} K"})
    step = 0.01 if top - bottom < 0.08 else 0.02
    first = int(np.ceil(bottom / step))
    duvs = [
        {"y": f"{y(k * step):.1f}", "text": f"{k * step:+.2f}" if k else "0"}
        for k in range(first, int(np.floor(top / step)) + 1)
    ]
    mired, duv = data.centre
    spread = (np.median(np.abs(data.mired - mired)) * 1.4826, np.median(np.abs(data.duv - duv)) * 1.4826)
    return {
        "points": points, "kelvins": kelvins, "duvs": duvs, "width": WIDTH, "height": HEIGHT,
        "left": LEFT, "right": WIDTH - RIGHT, "top": TOP, "bottom": HEIGHT - BOTTOM,
        "daylight": f"{x(DAYLIGHT):.1f}", "zero": f"{y(0.0):.1f}",
        "centre": {"x": f"{x(mired):.1f}", "y": f"{y(duv):.1f}",
                   "rx": f"{max(spread[0] / (high - low) * (WIDTH - LEFT - RIGHT), 2):.1f}",
                   "ry": f"{max(spread[1] / (top - bottom) * (HEIGHT - TOP - BOTTOM), 2):.1f}",
                   "kelvin": f"{1e6 / mired:,.0f} K", "duv": f"{duv:+.3f}"},
        "shown": len(points), "total": len(data.paths), "flagged": int(data.flagged.sum()), "unknown": data.unknown,
    }  # fmt: skip


def _padded(values: Any, least: float, inside: float) -> tuple[float, float]:
    """Return a range around the values and `inside`, at least `least` wide."""
    low, high = min(float(values.min()), inside), max(float(values.max()), inside)
    pad = max((high - low) * 0.06, (least - (high - low)) / 2, 1e-6)
    return low - pad, high + pad


def _told(bucket: Bucket) -> str:
    said = [f"{number(round(bucket.crop_share, 3), 'share')} cut away"] if bucket.crop_share >= 0.0005 else []
    said += [f"{bucket.enlarged:,} enlarged"] if bucket.enlarged else []
    said += [f"{bucket.shortfall:,} short of one batch"] if bucket.shortfall else []
    return ", ".join(said) or "nothing cut away"


def buckets(report: Report) -> dict[str, Any] | None:
    """Return the fullest buckets with their shape; None when they could not be told."""
    try:
        found = buckets_data(report)
    except DatasieveError:
        return None
    longest, most = max(max(b.width, b.height) for b in found), found[0].images
    rows = [
        {
            "name": f"{b.width} × {b.height}",
            "width": f"{22 * b.width / longest:.1f}",
            "height": f"{22 * b.height / longest:.1f}",
            "count": f"{b.images:,}",
            "percent": f"{100 * b.images / most:.1f}",
            "told": _told(b),
            "lacking": b.shortfall,
        }
        for b in found[:MOST_BUCKETS]
    ]
    return {"rows": rows, "total": len(found), "shown": len(rows)}
