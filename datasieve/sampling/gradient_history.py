"""What is known of each image's gradient: its norm against others at the same timestep, and how old that is.

Raw gradient norms of a diffusion model mostly follow the timestep that was drawn. So the logarithm of each norm is
standardised within its timestep bin, by a running mean and spread that forget; the clipped result z says how large the
image's gradient is among gradients of its kind. Per image, z is an exponential moving average, and fades to 0 (the
average image) while nothing new is heard of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from datasieve.sampling.groups import Floats, Ints

CLIP = 3.0
PRIOR = 8.0
"""As many observations as the mean over all bins counts for in a bin's own mean: bins start out alike."""


@dataclass(frozen=True, slots=True)
class ZeroGradient:
    """An image whose gradient was zero or not finite: a fault of data or loss, never a reason to show it more.

    Attributes:
        index: which image.
        zero: times its gradient was zero: nothing can be learned from it (masked out, constant, detached).
        not_finite: times it was NaN or infinite.
    """

    index: int
    zero: int
    not_finite: int


class GradientHistory:
    """Standardised log gradient norms of N images.

    Args:
        count: N.
        bins: timestep bins.
        timesteps: timesteps of the noise schedule; they are divided evenly among the bins.
        smoothing: weight of a new z in the image's moving average, in (0, 1].
        half_life: epochs (as many fed-back norms as there are images) in which an unheard z halves.
        memory: observations after which a bin's statistics begin to forget.
    """

    def __init__(
        self,
        count: int,
        *,
        bins: int = 10,
        timesteps: int = 1000,
        smoothing: float = 0.3,
        half_life: float = 3.0,
        memory: int = 1000,
    ) -> None:
        if count < 1 or bins < 1 or timesteps < 1 or memory < 2:
            raise ValueError("count, bins, timesteps must be at least 1 and memory at least 2")
        if not 0 < smoothing <= 1 or half_life <= 0:
            raise ValueError("smoothing must lie in (0, 1] and half_life above 0")
        self.bins, self.timesteps = bins, timesteps
        self.smoothing, self.half_life, self.memory = smoothing, half_life, memory
        self.z = np.zeros(count)
        self.heard = np.full(count, -1, np.int64)
        self.zero = np.zeros(count, np.int64)
        self.not_finite = np.zeros(count, np.int64)
        self.observations = 0
        self.bin_count = np.zeros(bins)
        self.bin_mean = np.zeros(bins)
        self.bin_square = np.zeros(bins)

    def update(self, indices: npt.ArrayLike, norms: npt.ArrayLike, timesteps: npt.ArrayLike | None = None) -> None:
        """Take in gradient norms.

        Args:
            indices: (n,) images; one may occur several times.
            norms: (n,) gradient norms, at least 0, in any one unit.
            timesteps: (n,) timestep that was drawn for each; None puts all into one bin.

        Raises:
            ValueError: lengths differ, an index does not exist, or a norm is negative.
        """
        index = np.asarray(indices, np.int64).reshape(-1)
        norm = np.asarray(norms, np.float64).reshape(-1)
        place = np.zeros(len(index)) if timesteps is None else np.asarray(timesteps, np.float64).reshape(-1)
        if not len(index) == len(norm) == len(place):
            raise ValueError(f"{len(index)} indices, {len(norm)} gradient norms and {len(place)} timesteps")
        if len(index) and (index.min() < 0 or index.max() >= len(self.z)):
            raise ValueError(f"indices must lie in 0 to {len(self.z) - 1}")
        if (norm < 0).any():
            raise ValueError("a gradient norm is negative")
        np.add.at(self.not_finite, index[~np.isfinite(norm)], 1)
        np.add.at(self.zero, index[norm == 0], 1)
        self.observations += len(index)
        usable = np.isfinite(norm) & (norm > 0)
        index, log = index[usable], np.log(norm[usable])
        bins = np.clip(place[usable] * self.bins / self.timesteps, 0, self.bins - 1).astype(np.int64)
        self._learn(bins, log)
        mean, spread = self.statistics()
        z = np.clip((log - mean[bins]) / spread[bins], -CLIP, CLIP)
        seen, back, times = np.unique(index, return_inverse=True, return_counts=True)
        new = np.bincount(back.reshape(-1), z, len(seen)) / np.maximum(times, 1)
        # What is stale counts less against what is new, so an image that was long unseen is judged afresh.
        age = (self.observations - self.heard[seen]) / len(self.z)
        keep = np.where(self.heard[seen] < 0, 0.0, (1 - self.smoothing) ** times * np.exp2(-age / self.half_life))
        self.z[seen] = keep * self.z[seen] + (1 - keep) * new
        self.heard[seen] = self.observations

    def current(self) -> Floats:
        """Return (N,) z now: faded by its age, 0 for images never heard of."""
        age = (self.observations - self.heard) / len(self.z)
        return np.where(self.heard < 0, 0.0, self.z * np.exp2(-age / self.half_life))

    def weights(self, beta: float) -> Floats:
        """Return (N,) softmax(-beta z) times N: 1 on average.

        An image whose gradient was zero so far weighs what the average z does, but never more than 1.
        """
        score = np.exp(-beta * self.current())
        silent = (self.zero > 0) & (self.heard < 0)
        weight: Floats = score * (len(score) / score.sum())
        return np.where(silent, np.minimum(weight, 1.0), weight)

    def findings(self) -> list[ZeroGradient]:
        """Return the images with zero or non-finite gradients, worst first."""
        faulty = np.flatnonzero((self.zero > 0) | (self.not_finite > 0))
        order = faulty[np.lexsort((faulty, -(self.zero + self.not_finite)[faulty]))]
        return [ZeroGradient(int(i), int(self.zero[i]), int(self.not_finite[i])) for i in order]

    def state(self) -> dict[str, Any]:
        """Return all that is known, as lists and numbers (safe for torch.load with weights_only)."""
        return {name: getattr(self, name).tolist() for name in _ARRAYS} | {"observations": self.observations}

    def load(self, state: dict[str, Any]) -> None:
        """Take over a `state`. Raises ValueError when it is of another number of images or bins."""
        arrays = {name: np.asarray(state[name], getattr(self, name).dtype) for name in _ARRAYS}
        for name, array in arrays.items():
            if array.shape != getattr(self, name).shape:
                raise ValueError(
                    f"this gradient history has {name} of shape {array.shape}, not {getattr(self, name).shape}"
                )
        for name, array in arrays.items():
            setattr(self, name, array)
        self.observations = int(state["observations"])

    def _learn(self, bins: Ints, log: Floats) -> None:
        """Take logarithms of norms into the running mean and mean square of their bins."""
        count = np.bincount(bins, minlength=self.bins)
        mean = np.bincount(bins, log, self.bins) / np.maximum(count, 1)
        square = np.bincount(bins, log**2, self.bins) / np.maximum(count, 1)
        total = np.minimum(self.bin_count, self.memory) + count
        share = np.divide(count, total, out=np.zeros(self.bins), where=total > 0)
        self.bin_mean += share * (mean - self.bin_mean)
        self.bin_square += share * (square - self.bin_square)
        self.bin_count = total.astype(np.float64)

    def statistics(self) -> tuple[Floats, Floats]:
        """Return mean and spread of each bin; bins with few observations lean on the others."""
        total = max(float(self.bin_count.sum()), 1.0)
        variance = np.maximum(self.bin_square - self.bin_mean**2, 0.0)
        overall_mean = float((self.bin_count * self.bin_mean).sum()) / total
        within = float((self.bin_count * variance).sum()) / total
        own = self.bin_count / (self.bin_count + PRIOR)
        mean = own * self.bin_mean + (1 - own) * overall_mean
        pooled = own * variance + (1 - own) * within
        return mean, np.sqrt(np.maximum(pooled, 1e-4))


_ARRAYS = ("z", "heard", "zero", "not_finite", "bin_count", "bin_mean", "bin_square")
