"""What a sampler's batches are like, found out by simulating one of its epochs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from datasieve.sampling.groups import Floats, Groups, Ints

if TYPE_CHECKING:
    from datasieve.sampling.planned import PlannedBatchSampler


@dataclass(frozen=True, slots=True)
class Description:
    """Simulated batches in numbers; a *step* is an effective batch, all that one optimizer step sees on all ranks.

    Attributes:
        images: images that the sampler may draw.
        batch_size, effective_batch_size: images of a batch, and of a step.
        steps: steps simulated; batches: batches of one rank in them.
        epoch_steps: steps of a whole epoch.
        conflicts: conflicting pairs of images that share a step.
        conflicts_random: how many there would be in as many steps of the same size drawn at random (expected).
        conflicted_steps_random: share of such random steps that would hold at least one conflict, estimated.
        entropy: mean entropy of the clusters in a step, in bits; 0 when a step holds one cluster.
        clusters_per_step: mean number of clusters in a step.
        cluster_share: name of each cluster -> its share of all showings.
        coverage: share of the images that were shown.
        repeats: showings in a whole epoch beyond what is asked, to fill batches.
        left_out: indices that no epoch shows.
        blocking: clusters that keep batches from being filled without conflict, and how many images go with each.
        gradient_share: (N,) expected share of each image in the summed gradient norm; of showings when no gradient
            norm was fed back.
        effective_images: 1 / sum of squared gradient shares: that many equal images would share like this.
    """

    images: int
    batch_size: int
    effective_batch_size: int
    steps: int
    batches: int
    epoch_steps: int
    conflicts: int
    conflicts_random: float
    conflicted_steps_random: float
    entropy: float
    clusters_per_step: float
    cluster_share: dict[str, float]
    coverage: float
    repeats: int
    left_out: list[int]
    blocking: list[tuple[str, int]]
    gradient_share: Floats
    effective_images: float

    @property
    def conflicts_avoided(self) -> float:
        """Conflicting pairs that random batches would have had, less those there are."""
        return self.conflicts_random - self.conflicts


def describe(sampler: PlannedBatchSampler, steps: int | None = None) -> Description:
    """Simulate the sampler's current epoch, or its first `steps` steps. The sampler is left as it was."""
    if steps is not None and steps < 1:
        raise ValueError(f"steps must be at least 1, not {steps}")
    table = sampler.table
    groups = table.groups
    planned = sampler.plan(sampler.epoch).indices.reshape(-1, sampler.effective_batch_size)
    rows = planned if steps is None else planned[:steps]
    shown = np.bincount(rows.reshape(-1), minlength=len(table.pair))
    per_step = [np.unique(groups.of_image[step], return_counts=True)[1] for step in rows]
    norms = sampler.expected_gradients()
    share = shown * norms
    share = share / max(float(share.sum()), 1e-300)
    by_group = np.bincount(groups.of_image, shown, len(groups))
    pairs = sampler.effective_batch_size * (sampler.effective_batch_size - 1) / 2
    return Description(
        images=len(table.active),
        batch_size=sampler.batch_size,
        effective_batch_size=sampler.effective_batch_size,
        steps=len(rows),
        batches=len(rows) * sampler.accumulation,
        epoch_steps=len(planned),
        conflicts=sum(groups.conflicting_pairs(step) for step in rows),
        conflicts_random=len(rows) * pairs * groups.conflict_share(),
        conflicted_steps_random=_random_conflicts(groups, table.active, sampler.effective_batch_size, sampler.seed),
        entropy=float(np.mean([_entropy(counts) for counts in per_step])) if per_step else 0.0,
        clusters_per_step=float(np.mean([len(counts) for counts in per_step])) if per_step else 0.0,
        cluster_share={n: float(v) for n, v in zip(groups.names, by_group / max(by_group.sum(), 1), strict=True)},
        coverage=float((shown[table.active] > 0).mean()),
        repeats=sampler.repeats,
        left_out=sampler.left_out,
        blocking=sampler.blocking,
        gradient_share=share,
        effective_images=float(1 / (share**2).sum()) if share.any() else 0.0,
    )


def _entropy(counts: Ints) -> float:
    share = counts / counts.sum()
    return float(-(share * np.log2(share)).sum()) + 0.0


def _random_conflicts(groups: Groups, active: Ints, size: int, seed: int, trials: int = 200) -> float:
    """Return the share of random steps with a conflict, out of `trials`."""
    generator = np.random.default_rng([seed & (2**64 - 1), 1])
    hits = 0
    for _ in range(trials):
        rows = (
            active[generator.integers(0, len(active), size)]
            if size > len(active)
            else _distinct(active, size, generator)
        )
        hits += groups.conflicting_pairs(rows) > 0
    return hits / trials


def _distinct(active: Ints, size: int, generator: np.random.Generator) -> Ints:
    return active[generator.choice(len(active), size, replace=False)]
