"""What isolation does to a model small enough to see through: linear softmax on embeddings with contradictory targets.

    python benchmarks/sampler_conflict.py [--seeds 10]

Four concepts of two clusters each. All images of a concept share most of their embedding, but its two clusters ask
for different classes: within a concept the gradients pull against each other. The same model is trained by SGD on
random batches (torch's RandomSampler) and on isolated ones, from the same start, for the same number of steps.

Measured while training, as means over seeds with standard errors:
    conflict rate       share of pairs of images of a batch whose own gradients point against each other (cosine < -0.1)
    alignment           norm of the batch's gradient over the mean norm of its images' gradients; 1 is one direction
    loss variance       variance over steps of each concept's loss in the batches, as a training log shows it
    whole-set variance  variance over steps of each concept's loss over all its images, after each step
    final loss          over the whole set, after the last step
This is a check of the mechanism, not a forecast for diffusion models.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import BatchSampler, RandomSampler

from datasieve.sampling import SemanticIsolationBatchSampler

Array = npt.NDArray[np.float64]
CONCEPTS, CLUSTER_SIZE, WIDTH, BATCH, STEPS, RATE = 4, 32, 32, 8, 400, 0.5
MEASURES = ("conflict rate", "alignment", "loss variance", "whole-set variance", "final loss")


@dataclass(frozen=True)
class Problem:
    """Images as embeddings: (N, d) x, (N, classes) one-hot y, and (N,) concept and cluster."""

    x: Array
    y: Array
    concept: npt.NDArray[np.int64]
    cluster: npt.NDArray[np.int64]


def problem(seed: int) -> Problem:
    """Return unit-length embeddings: concept direction, a fifth as much cluster direction, and noise."""
    generator = np.random.default_rng(seed)
    concept = np.repeat(np.arange(CONCEPTS), 2 * CLUSTER_SIZE)
    cluster = np.tile(np.repeat([0, 1], CLUSTER_SIZE), CONCEPTS)
    axes = np.linalg.qr(generator.standard_normal((WIDTH, 3 * CONCEPTS)))[0].T
    x = axes[concept] + 0.2 * axes[CONCEPTS + 2 * concept + cluster]
    x += 0.05 * generator.standard_normal(x.shape)
    return Problem(
        x / np.linalg.norm(x, axis=1, keepdims=True), np.eye(2 * CONCEPTS)[2 * concept + cluster], concept, cluster
    )


def forever(sampler: object) -> Iterator[list[int]]:
    """Yield batches, epoch after epoch."""
    while True:
        yield from sampler  # type: ignore[misc]  # both kinds of sampler can be iterated


def train(data: Problem, batches: Iterator[list[int]]) -> dict[str, float]:
    """Train from zero for STEPS steps and return the measures."""
    weights = np.zeros((data.x.shape[1], data.y.shape[1]))
    conflicts, alignment = [], []
    logged: list[list[float]] = [[] for _ in range(CONCEPTS)]
    whole: list[list[float]] = [[] for _ in range(CONCEPTS)]
    for _ in range(STEPS):
        rows = np.array(next(batches))
        x, error = data.x[rows], softmax(data.x[rows] @ weights) - data.y[rows]
        # The gradient of one image is the outer product of x and its error, so inner products factor.
        inner = (x @ x.T) * (error @ error.T)
        norms = np.sqrt(np.diag(inner))
        pairs = np.triu_indices(len(rows), 1)
        conflicts.append((inner[pairs] < -0.1 * np.outer(norms, norms)[pairs]).mean())
        alignment.append(np.sqrt(max(inner.sum(), 0)) / norms.sum())
        loss = cross_entropy(data, weights)
        for c in range(CONCEPTS):
            mine = rows[data.concept[rows] == c]
            if mine.size:
                logged[c].append(loss[mine].mean())
        weights -= RATE * x.T @ error / len(rows)
        after = cross_entropy(data, weights)
        for c in range(CONCEPTS):
            whole[c].append(after[data.concept == c].mean())
    half = STEPS // 2  # the second half: no longer the fall from the start
    values = (
        np.mean(conflicts),
        np.mean(alignment),
        np.mean([np.var(v[len(v) // 2 :]) for v in logged]),
        np.mean([np.var(v[half:]) for v in whole]),
        np.mean(cross_entropy(data, weights)),
    )
    return dict(zip(MEASURES, map(float, values), strict=True))


def softmax(scores: Array) -> Array:
    """Return (N, classes) probabilities."""
    raised = np.exp(scores - scores.max(1, keepdims=True))
    return np.asarray(raised / raised.sum(1, keepdims=True))


def cross_entropy(data: Problem, weights: Array) -> Array:
    """Return (N,) loss of each image."""
    return np.asarray(-np.log((softmax(data.x @ weights) * data.y).sum(1)))


def compare(seed: int) -> dict[str, dict[str, float]]:
    """Return the measures of random and of isolated batches on the same problem."""
    data = problem(seed)
    generator = torch.Generator().manual_seed(seed)
    random = BatchSampler(RandomSampler(range(len(data.x)), generator=generator), BATCH, drop_last=True)
    isolated = SemanticIsolationBatchSampler(data.cluster, concepts=data.concept, batch_size=BATCH, seed=seed)
    return {"random": train(data, forever(random)), "isolated": train(data, forever(isolated))}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    runs = [compare(seed) for seed in range(parser.parse_args().seeds)]
    print("| measure | random | isolated |\n| --- | --- | --- |")
    for name in MEASURES:
        cells = []
        for kind in ("random", "isolated"):
            values = np.array([run[kind][name] for run in runs])
            cells.append(f"{values.mean():.3g} ± {values.std(ddof=1) / np.sqrt(len(values)):.1g}")
        print(f"| {name} | {cells[0]} | {cells[1]} |")


if __name__ == "__main__":
    main()
