"""Batches in which no two images conflict, as an ordinary batch sampler for torch's DataLoader.

What is promised, and what is not, is in docs/sampling.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from datasieve.sampling.columns import CLUSTERS, Copies, arrays_of
from datasieve.sampling.groups import Floats, codes, make_groups
from datasieve.sampling.planned import Options, PlannedBatchSampler, Policy

if TYPE_CHECKING:
    from typing_extensions import Self

    from datasieve.report import Report


class SemanticIsolationBatchSampler(PlannedBatchSampler):
    """Yields batches of indices of which no two conflict, over everything that one optimizer step sees.

    Args:
        clusters: (N,) isolation cluster of each image, numbers or words.
        conflicts: pairs of clusters that must never meet.
        concepts: (N,) concept of each image: two clusters of one concept never meet. None: only the pairs bind.
        embeddings: (N, d) embeddings: with `concepts`, clusters of two concepts closer than `min_angle_deg` never meet.
        batch_size: images of a batch.
        seed: of the random order; None draws one from `generator`, or is 0.
        min_angle_deg: in degrees, between cluster means as seen from `reference`.
        reference: (d,) None: the mean of the unit-length embeddings.
        buckets: (N,) latent shape of each image, numbers or words; a batch has one.
        repeats: (N,) how often an epoch shows each image (kohya's repeats); 0 leaves it out.
        weights: (N,) showings are in proportion to weight times repeats. With weights an epoch no longer promises
            every image, and images may recur within a batch.
        drop_last: leave out what does not fill a round, other images each epoch, instead of showing images again.
        accumulation: batches of one rank that one optimizer step sees.
        num_replicas, rank: as in DistributedSampler; by default from torch.distributed when it is initialised, and
            otherwise 1 and 0. With rank "all" every process gets the batches of all ranks in turn, for loaders that
            deal them out: the default when accelerate is in use, as its `prepare` does that.
        on_infeasible: when conflicts leave too few images to fill a batch: "error" raises, "shrink" lowers the batch
            size to one that works, "relax" lets conflicting images in where it must, and counts them.
        generator: draws the seed when none is given.

    Raises:
        ValueError: lengths differ, or a number is out of range.
        IsolationInfeasible: see `on_infeasible`.
    """

    def __init__(
        self,
        clusters: Sequence[Any] | npt.NDArray[Any],
        conflicts: Iterable[tuple[Any, Any]] = (),
        concepts: Sequence[Any] | npt.NDArray[Any] | None = None,
        embeddings: npt.ArrayLike | None = None,
        batch_size: int = 1,
        seed: int | None = None,
        *,
        min_angle_deg: float = 60.0,
        reference: npt.ArrayLike | None = None,
        buckets: Sequence[Any] | npt.NDArray[Any] | None = None,
        repeats: Sequence[int] | npt.NDArray[np.integer] | None = None,
        weights: Sequence[float] | npt.NDArray[np.floating] | None = None,
        drop_last: bool = False,
        accumulation: int = 1,
        num_replicas: int | None = None,
        rank: int | Literal["all"] | None = None,
        on_infeasible: Policy = "error",
        generator: torch.Generator | None = None,
    ) -> None:
        groups = make_groups(
            clusters, conflicts, concepts, embeddings, min_angle_deg=min_angle_deg, reference=reference
        )
        count = len(groups.of_image)
        bucket, kinds = bucket_codes(buckets, count)
        demand = whole_repeats(repeats, count)
        options = Options(batch_size, drop_last, accumulation, num_replicas, rank, on_infeasible, seed, generator)
        super().__init__(groups, bucket, kinds, demand, shares(weights, demand), options)

    @classmethod
    def from_report(
        cls,
        report: Report,
        *,
        batch_size: int = 1,
        clusters: str = CLUSTERS,
        weights: str | npt.ArrayLike | None = None,
        copies: Copies = "keep",
        **options: Any,
    ) -> Self:
        """Build the sampler from a report; index i is the i-th usable image, as in `ReportDataset`.

        Args:
            report: a finished audit.
            batch_size: images of a batch.
            clusters, weights, copies: which columns are read and how, see `datasieve.sampling.columns.arrays_of`.
            options: those of the class.

        Raises:
            ReportError: the report lacks the column of clusters, or another that is asked for.
        """
        read = arrays_of(report, clusters=clusters, weights=weights, copies=copies)
        given = {field.name: getattr(read, field.name) for field in fields(read)}
        return cls(**{**given, "batch_size": batch_size, **options})


def bucket_codes(buckets: Sequence[Any] | npt.NDArray[Any] | None, count: int) -> tuple[npt.NDArray[np.int64], int]:
    """Return (N,) the number of each image's bucket, and how many there are.

    Buckets are single values, or (width, height) pairs. Raises ValueError unless there is one an image.
    """
    if buckets is None:
        return np.zeros(count, np.int64), 1
    array = np.asarray(buckets)
    if array.ndim == 2 and array.shape[1] == 2 and array.dtype.kind in "iu":
        array = array[:, 0].astype(np.int64) * (1 << 32) + array[:, 1].astype(np.int64)
    labels, code = codes(array, "buckets")
    if len(code) != count:
        raise ValueError(f"buckets has {len(code)} entries for {count} images")
    return code, len(labels)


def whole_repeats(repeats: Sequence[int] | npt.NDArray[np.integer] | None, count: int) -> npt.NDArray[np.int64]:
    """Return (N,) repeats, 1 where none are given. Raises ValueError unless they are whole numbers of at least 0."""
    if repeats is None:
        return np.ones(count, np.int64)
    array = np.asarray(repeats)
    if array.shape != (count,) or array.dtype.kind not in "iu" or array.min() < 0:
        raise ValueError(f"repeats must be {count} whole numbers of at least 0")
    return array.astype(np.int64)


def shares(weights: Sequence[float] | npt.NDArray[np.floating] | None, demand: npt.NDArray[np.int64]) -> Floats | None:
    """Return (N,) weights. Raises ValueError unless they are finite, not negative and leave something to draw."""
    if weights is None:
        return None
    array = np.asarray(weights, np.float64)
    if array.shape != demand.shape or not np.isfinite(array).all() or array.min() < 0:
        raise ValueError(f"weights must be {len(demand)} finite numbers of at least 0")
    if not (array * demand).any():
        raise ValueError("weights and repeats leave no image to draw")
    return array
