"""How much the captions say: how many name nothing, a thing or two, some details, or a whole scene."""

from __future__ import annotations

import collections
import itertools
from typing import TYPE_CHECKING

from datasieve.reporting.captions import LEVELS
from datasieve.reporting.plots._ink import HUES, QUIET, measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from datasieve.report import Report

WORDS = {"none": "says nothing", "coarse": "1 or 2 details", "medium": "3 to 11 details", "fine": "12 details or more"}
STEPS = (0, 3, 6, 11, 21, 41, 61)
"""First number of words of each bar of the histogram."""


def granularity_data(report: Report) -> tuple[dict[str, int], list[tuple[str, int]], int]:
    """Return captions by level, captions by number of words ("3-5" -> how many), and images without a caption.

    Raises ReportError when captions were not measured.
    """
    table = measured(report, "status", "captions.granularity", "captions.words", "captions.style")
    rows = [row for row in table.to_pylist() if row["status"] != "ignored"]
    levels = collections.Counter(row["captions.granularity"] for row in rows)
    ends = [f"{a}-{b - 1}" for a, b in itertools.pairwise(STEPS)] + [f"{STEPS[-1]} and more"]
    counts = [0] * len(STEPS)
    for row in rows:
        if row["captions.words"] is not None:
            counts[sum(row["captions.words"] >= step for step in STEPS) - 1] += 1
    without = sum(row["captions.style"] is None for row in rows)
    return {level: levels[level] for level in LEVELS}, list(zip(ends, counts, strict=True)), without


def granularity(report: Report) -> Figure:
    """Return two histograms: captions by how much they say, and by how many words. Raises as `granularity_data`."""
    from matplotlib.figure import Figure

    levels, words, without = granularity_data(report)
    made = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = made.subplots(1, 2)
    names = ["no caption", *(WORDS[level] for level in LEVELS)]
    bars = left.barh(names, [without, *levels.values()], color=[QUIET, *[HUES[0]] * len(LEVELS)])
    left.bar_label(bars, padding=3, fontsize=8)
    left.invert_yaxis()
    left.set_title("How much the captions say", fontsize=10)
    bars = right.bar([name for name, _ in words], [number for _, number in words], color=HUES[0])
    right.bar_label(bars, fontsize=8)
    right.tick_params(axis="x", labelsize=8, rotation=30)
    right.set_title("Words in a caption", fontsize=10)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return made
