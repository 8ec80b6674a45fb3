"""Signs of a run that is about to collapse, read from its log as it is written.

Two signs, after the practitioners' write-ups on TI and hypernetwork collapse; their limits are provisional here.

*Loss curvature.* Whether the loss bends upwards: of the medians a, b, c of three neighbouring windows,
((c - b) - (b - a)) / (|c - b| + |b - a| + noise), between -1 and 1; where that is positive, times the share of the
whole movement that is a rise, 2 (c - b) over the same denominator. A straight line gives 0 whatever its slope, and so
does a fall that levels off; a fall that turns into an equal rise gives 1, or less as far as the windows' own scatter
could have made it. Losses are divided
by what the run lost at like timesteps at its beginning (`RelativeLoss`), without which they say more about timesteps
than about training.

*Variance drift.* The variance of the entries of the token vectors, relative to the vocabulary's, over the last five
records: falling faster than 0.03 a record while below 0.012 means that the vectors fade away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

CURVATURE_ALERT = 0.85
CURVATURE_PAUSE = 0.9
CURVATURE_WITH_DRIFT = 0.7
DRIFT_WINDOW = 5
DRIFT_SLOPE = -0.03
DRIFT_VARIANCE = 0.012

REFERENCE_BINS = 10
REFERENCE_COUNT = 20

Action = Literal["none", "alert", "pause", "roll back"]


def curvature(losses: Sequence[float], window: int = 25) -> float:
    """Return how the loss bends, -1..1 (see above); 0 while there are fewer than three windows.

    Args:
        losses: relative losses, oldest first.
        window: records of one window.
    """
    if len(losses) < 3 * window:
        return 0.0
    parts = np.asarray(losses[-3 * window :], float).reshape(3, window)
    a, b, c = np.median(parts, axis=1)
    # Standard error of a median from the median absolute deviation: 1.2533 * 1.4826 * MAD / sqrt(n).
    spread = np.median(np.abs(parts - np.median(parts, axis=1, keepdims=True)), axis=1).mean()
    noise = 2 * 1.2533 * 1.4826 * spread / np.sqrt(window)
    movement = max(abs(c - b) + abs(b - a) + noise, 1e-12)
    bend = ((c - b) - (b - a)) / movement
    return float(bend * np.clip(2 * (c - b) / movement, 0, 1) if bend > 0 else bend)


def drifts(variances: Sequence[float]) -> bool:
    """Tell whether the token vectors fade.

    Args:
        variances: of the vectors' entries, divided by the vocabulary's, oldest first.
    """
    if len(variances) < DRIFT_WINDOW:
        return False
    last = np.asarray(variances[-DRIFT_WINDOW:], float)
    scale = max(float(np.abs(last).max()), 1e-12)
    slope = float(np.polyfit(np.arange(DRIFT_WINDOW), last / scale, 1)[0])
    return slope < DRIFT_SLOPE and float(last[-1]) < DRIFT_VARIANCE


class RelativeLoss:
    """Losses as shares of the mean of the first `REFERENCE_COUNT` losses within the same tenth of the timesteps."""

    def __init__(self, timesteps: int) -> None:
        self.timesteps = timesteps
        self.sums = [0.0] * REFERENCE_BINS
        self.counts = [0] * REFERENCE_BINS

    def of(self, losses: Sequence[float], timesteps: Sequence[int]) -> float:
        """Return the mean relative loss of a step's pictures, and learn from them while the reference is filling."""
        shares = []
        for loss, moment in zip(losses, timesteps, strict=True):
            i = min(moment * REFERENCE_BINS // self.timesteps, REFERENCE_BINS - 1)
            if self.counts[i] < REFERENCE_COUNT:
                self.sums[i] += loss
                self.counts[i] += 1
            shares.append(loss / max(self.sums[i] / self.counts[i], 1e-12))
        return float(np.mean(shares))

    def state(self) -> dict[str, list[float] | list[int]]:
        """Return what `load` takes."""
        return {"sums": list(self.sums), "counts": list(self.counts)}

    def load(self, state: dict[str, list[float] | list[int]]) -> None:
        """Go on from a state."""
        self.sums = [float(v) for v in state["sums"]]
        self.counts = [int(v) for v in state["counts"]]


def judge(losses: Sequence[float], variances: Sequence[float], window: int = 25) -> tuple[Action, float, bool]:
    """Return what to do, the curvature, and whether the vectors drift."""
    bend, fading = curvature(losses, window), drifts(variances)
    if fading and bend > CURVATURE_WITH_DRIFT:
        return "roll back", bend, fading
    if bend > CURVATURE_PAUSE:
        return "pause", bend, fading
    if bend > CURVATURE_ALERT or fading:
        return "alert", bend, fading
    return "none", bend, fading
