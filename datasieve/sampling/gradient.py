"""Batch samplers that show images with large gradients less, so that no few of them own the training.

Selection weight is softmax(-beta z), z of `GradientHistory`. Every k-th epoch is drawn without weights and covers the
set, so no image is left unseen for longer than that. Feedback counts from the next epoch on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from datasieve.sampling import ranks
from datasieve.sampling.columns import Copies, arrays_of
from datasieve.sampling.gradient_history import GradientHistory, ZeroGradient
from datasieve.sampling.groups import Floats, make_groups
from datasieve.sampling.isolation import SemanticIsolationBatchSampler, bucket_codes, shares, whole_repeats
from datasieve.sampling.planned import Options, PlannedBatchSampler

if TYPE_CHECKING:
    from typing_extensions import Self

    from datasieve.report import Report

    Values = Sequence[float] | npt.NDArray[Any] | torch.Tensor

BETA = 0.7
COVER_EVERY = 4


class _Balanced(PlannedBatchSampler):
    """What both gradient samplers add to a planned one."""

    beta: float
    cover_every: int
    importance: bool
    history: GradientHistory
    _frozen: tuple[int, Floats | None] | None

    def _balance(self, beta: float, cover_every: int, importance: bool, timesteps: int) -> None:
        if not 0 <= beta <= 5:
            raise ValueError(f"beta must lie in 0 to 5, not {beta}")
        if cover_every < 1:
            raise ValueError(f"cover_every must be at least 1, not {cover_every}")
        if self.drop_last:
            # A covering epoch that drops images would break the guarantee.
            raise ValueError("drop_last cannot be had together with the guarantee that every image is shown")
        self.beta, self.cover_every, self.importance = beta, cover_every, importance
        self.history = GradientHistory(len(self.table.pair), timesteps=timesteps)
        self._frozen = None
        # Covering and weighted epochs have the same length: that of the covering ones.
        self.rounds = self.covering_rounds

    def update(self, indices: Values, grad_norms: Values, timesteps: Values | None = None) -> None:
        """Feed back gradient norms of images just trained on; with several ranks, every rank must call it.

        Args:
            indices: (n,) images, as the batches gave them.
            grad_norms: (n,) norm of each image's own gradient (`datasieve.sampling.gradient_norms`), or a proxy.
            timesteps: (n,) the timestep drawn for each.
        """
        own = (_array(indices), _array(grad_norms), None if timesteps is None else _array(timesteps))
        every = ranks.gathered(own) if self.num_replicas > 1 else [own]
        index, norm = (np.concatenate([part[i] for part in every]) for i in (0, 1))
        place = None if timesteps is None else np.concatenate([part[2] for part in every])
        self.history.update(index, norm, place)

    def importance_weights(self, indices: Values) -> npt.NDArray[np.float64]:
        """Return (n,) factors for the losses of these images that undo the uneven selection, 1 on average.

        All 1 unless `importance` is on: they make the expected gradient that of even showing again, and raise its
        variance, which is what the selection lowers.
        """
        index = _array(indices).astype(np.int64)
        weights = self._frozen[1] if self.importance and self._frozen is not None else None
        if weights is None:
            return np.ones(len(index))
        active = self.table.active
        showings = weights * self.table.demand
        even = float(showings[active].sum() / self.table.demand[active].sum())
        return np.asarray(even / weights[index])

    @property
    def zero_gradients(self) -> list[ZeroGradient]:
        """Images whose gradient was zero or not finite: look at these, nothing is learned from them."""
        return self.history.findings()

    def selection_weights(self) -> Floats:
        """Return (N,) the weights that the next weighted epoch will draw by, 1 on average over the softmax."""
        balanced = self.history.weights(self.beta)
        return balanced if self.weights is None else balanced * self.weights

    @property
    def left_out(self) -> list[int]:
        """Indices that no epoch shows: those with 0 repeats."""
        return [int(i) for i in np.flatnonzero(self.table.demand == 0)]

    def expected_gradients(self) -> Floats:
        """Return (N,) gradient norms relative to their timestep bin: exp of z times the bins' mean spread."""
        _, spread = self.history.statistics()
        return np.asarray(np.exp(self.history.current() * float(np.mean(spread))))

    def state_dict(self, yielded: int | None = None) -> dict[str, Any]:
        """Return what is needed to go on: place, gradient history, and the weights of the epoch that is running."""
        epoch, weights = self._frozen or (None, None)
        frozen = {"epoch": epoch, "weights": None if weights is None else weights.tolist()}
        return super().state_dict(yielded) | {"history": self.history.state(), "frozen": frozen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        super().load_state_dict(state)
        self.history.load(state["history"])
        epoch, weights = state["frozen"]["epoch"], state["frozen"]["weights"]
        self._frozen = None if epoch is None else (epoch, None if weights is None else np.asarray(weights, np.float64))

    def _weights_of(self, epoch: int) -> Floats | None:
        if self._frozen is not None and self._frozen[0] == epoch:
            return self._frozen[1]
        return None if epoch % self.cover_every == 0 else self.selection_weights()

    def _begin(self, epoch: int, state: dict[str, Any] | None) -> npt.NDArray[np.int64]:
        # Weights are frozen while an epoch runs: feedback arriving meanwhile must not change what is left of it.
        if state is None:
            self._frozen = None
        self._frozen = epoch, self._weights_of(epoch)
        return super()._begin(epoch, state)


class GradientBalancedBatchSampler(_Balanced):
    """Yields batches in which images with large gradients appear less often.

    Args:
        count: number of images N.
        batch_size, seed, buckets, repeats, accumulation, num_replicas, rank, generator: as in
            `SemanticIsolationBatchSampler`.
        weights: (N,) further weights, multiplied with those from gradients in weighted epochs.
        beta: how strongly; 0 is not at all, 0.5 to 0.8 is sensible.
        cover_every: every so many epochs, one shows each image.
        importance: `importance_weights` returns other than ones.
        timesteps: of the noise schedule.
    """

    def __init__(
        self,
        count: int,
        batch_size: int = 1,
        seed: int | None = None,
        *,
        beta: float = BETA,
        cover_every: int = COVER_EVERY,
        importance: bool = False,
        timesteps: int = 1000,
        buckets: Sequence[Any] | npt.NDArray[Any] | None = None,
        repeats: Sequence[int] | npt.NDArray[np.integer] | None = None,
        weights: Sequence[float] | npt.NDArray[np.floating] | None = None,
        accumulation: int = 1,
        num_replicas: int | None = None,
        rank: int | Literal["all"] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        if count < 1:
            raise ValueError(f"count must be at least 1, not {count}")
        bucket, kinds = bucket_codes(buckets, count)
        demand = whole_repeats(repeats, count)
        options = Options(batch_size, False, accumulation, num_replicas, rank, "error", seed, generator)
        groups = make_groups(np.zeros(count, np.int8))
        super().__init__(groups, bucket, kinds, demand, shares(weights, demand), options)
        self._balance(beta, cover_every, importance, timesteps)

    @classmethod
    def from_report(
        cls,
        report: Report,
        *,
        batch_size: int = 1,
        weights: str | npt.ArrayLike | None = None,
        copies: Copies = "keep",
        **options: Any,
    ) -> Self:
        """Build the sampler from a report; index i is the i-th usable image, as in `ReportDataset`.

        Args:
            report: a finished audit; its buckets and repeats are kept.
            batch_size: images of a batch.
            weights, copies: which columns are read and how, see `datasieve.sampling.columns.arrays_of`.
            options: those of the class.
        """
        read = arrays_of(report, clusters="concept", weights=weights, copies=copies)
        given = {"buckets": read.buckets, "repeats": read.repeats, "weights": read.weights, **options}
        return cls(len(read.clusters), batch_size, **given)


class IsolationGradientSampler(_Balanced, SemanticIsolationBatchSampler):
    """Yields batches that are free of conflicts and balanced by gradient.

    Args:
        arguments, options: those of `SemanticIsolationBatchSampler`.
        beta, cover_every, importance, timesteps: as in `GradientBalancedBatchSampler`.
    """

    def __init__(
        self,
        *arguments: Any,
        beta: float = BETA,
        cover_every: int = COVER_EVERY,
        importance: bool = False,
        timesteps: int = 1000,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._balance(beta, cover_every, importance, timesteps)


def _array(values: Values) -> npt.NDArray[Any]:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().double().numpy() if values.is_floating_point() else values.detach().cpu().numpy()
    return np.asarray(values).reshape(-1)
