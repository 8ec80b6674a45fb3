"""A batch sampler whose epochs are planned as a whole: what training loops expect of any sampler, over `plan`.

The order of one epoch is a pure function of tables, seed and epoch; here come ranks, lengths, epochs and resuming.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
import xxhash
from torch.utils.data import Sampler

from datasieve.sampling import ranks
from datasieve.sampling.groups import Floats, Groups, Ints
from datasieve.sampling.infeasible import IsolationInfeasible
from datasieve.sampling.layout import make_layout, make_table
from datasieve.sampling.plan import Plan, cover, draw, epoch_generator
from datasieve.sampling.pools import Pools, blocking, make_pools

if TYPE_CHECKING:
    from datasieve.sampling.describe import Description

Policy = Literal["error", "shrink", "relax"]

VARIANTS = 4
"""Ways of making pools that epochs choose from, so that clusters do not meet the same company every time."""

MANY_GROUPS = 10_000
"""From here on one way must do: making pools takes tens of microseconds a group."""

JITTER = 0.5
_CHUNK = 1024


@dataclass(frozen=True, slots=True)
class Options:
    """How batches are made, as `SemanticIsolationBatchSampler` explains each."""

    batch_size: int
    drop_last: bool
    accumulation: int
    num_replicas: int | None
    rank: int | Literal["all"] | None
    on_infeasible: Policy
    seed: int | None
    generator: torch.Generator | None


class PlannedBatchSampler(Sampler[list[int]]):
    """Yields the batches of planned epochs on one rank.

    Args:
        groups: which of the N images may meet.
        bucket, buckets: (N,) number of each image's latent shape, and how many shapes there are.
        demand: (N,) how often an epoch shows each image.
        weights: (N,) or None, see `SemanticIsolationBatchSampler`.
        options: how batches are made.
    """

    def __init__(
        self, groups: Groups, bucket: Ints, buckets: int, demand: Ints, weights: Floats | None, options: Options
    ) -> None:
        if options.batch_size < 1 or options.accumulation < 1:
            raise ValueError(
                f"batch_size and accumulation must be at least 1, not {options.batch_size} and {options.accumulation}"
            )
        if options.on_infeasible not in ("error", "shrink", "relax"):
            raise ValueError(f'on_infeasible must be "error", "shrink" or "relax", not {options.on_infeasible!r}')
        if not demand.any():
            raise ValueError("repeats is 0 for every image: there is nothing to draw")
        self.num_replicas, self.rank = ranks.place(options.num_replicas, options.rank)
        self.batch_size = self.requested_batch_size = options.batch_size
        self.accumulation = options.accumulation
        self.drop_last = options.drop_last
        self.seed = _seed(options.seed, options.generator)
        self.weights = weights
        self.epoch = 0
        self._digest: str | None = None
        self._begun = 0
        self._yielded = 0
        self._resume: dict[str, Any] | None = None
        self.table = make_table(groups, bucket, buckets, demand)
        self._build(options.on_infeasible)

    def _build(self, policy: Policy) -> None:
        """Make pools and layouts; settle the batch size."""
        table, batches = self.table, self.accumulation * self.num_replicas
        counts = table.counts()
        while True:
            source = epoch_generator(self.seed, 0)
            found = [
                make_pools(table.groups, counts, self.batch_size, batches, source, JITTER if i else 0.0)
                for i in range(VARIANTS if len(table.groups) <= MANY_GROUPS else 1)
            ]
            best = max(pools.size for pools in found)
            if best >= self.batch_size or policy == "relax":
                break
            blocked = blocking(table.groups, max(found, key=lambda pools: pools.size))
            if policy == "error" or best < 1:
                feasible = _constructed(best, table.groups, counts, batches, source)
                raise IsolationInfeasible(self.batch_size, self.batch_size * batches, feasible, blocked)
            self.batch_size = best
        self.blocking = blocking(table.groups, max(found, key=lambda pools: pools.size))
        layouts = [
            make_layout(table, pools, self.batch_size, batches, drop_last=self.drop_last, relax=policy == "relax")
            for pools in found
            if pools.size == best
        ]
        # Epochs have one length, so only ways of making pools that come to about the same number of rounds are kept.
        fewest = min(layout.total_rounds for layout in layouts)
        if self.drop_last:
            most = max(layout.total_rounds for layout in layouts)
            self._layouts = [layout for layout in layouts if layout.total_rounds == most]
        else:
            near = [layout for layout in layouts if layout.total_rounds <= fewest * 1.01]
            most = max(layout.total_rounds for layout in near)
            self._layouts = [layout.with_rounds(most) for layout in near]
        self.rounds = self.covering_rounds = most
        if self.weights is not None:
            showings, step = int(table.demand.sum()), self.batch_size * batches
            self.rounds = showings // step if self.drop_last else -(-showings // step)

    @property
    def effective_batch_size(self) -> int:
        """Images of one optimizer step: batch size times accumulation times ranks."""
        return self.batch_size * self.accumulation * self.num_replicas

    @property
    def repeats(self) -> int:
        """Showings of an epoch, over all ranks, beyond what is demanded: what fills up short batches."""
        return max(0, self.rounds * self.effective_batch_size - int(self.table.demand.sum()))

    @property
    def left_out(self) -> list[int]:
        """Indices that no epoch shows: repeats or weight 0, or (`drop_last`) too few of their kind to fill a round."""
        never = self.table.demand == 0
        if self.weights is not None:
            never |= self.weights == 0
        elif self.drop_last:
            hopeless = np.ones(len(never), bool)
            for layout in self._layouts:
                fills = (layout.cell_batches > 0) & (layout.rounds[layout.cell_pool] > 0)
                hopeless &= ~fills[layout.cell_of_pair][self.table.pair]
            never |= hopeless
        return [int(i) for i in np.flatnonzero(never)]

    @property
    def violations(self) -> int:
        """Pairs of conflicting images that share an optimizer step in the current epoch; 0 unless relaxed."""
        plan = self.plan(self.epoch)
        if not plan.relaxed.any():
            return 0
        flat = plan.indices[plan.relaxed].reshape(-1, self.effective_batch_size)
        return sum(self.table.groups.conflicting_pairs(rows) for rows in flat)

    @property
    def sampler(self) -> PlannedBatchSampler:
        """Itself: Lightning and accelerate look here for `set_epoch`."""
        return self

    def __len__(self) -> int:
        """Return the number of batches that an epoch yields here."""
        return self.rounds * self.accumulation * (self.num_replicas if self.rank == "all" else 1)

    def __iter__(self) -> EpochIterator:
        """Start the current epoch, where `load_state_dict` left off if it did. The next one follows at its end."""
        if self._resume is None:
            self._yielded = 0
        return EpochIterator(self)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration yields. Needed only to skip or repeat: they follow by themselves."""
        if epoch != self.epoch:
            self._resume = None
        self.epoch = int(epoch)

    def state_dict(self, yielded: int | None = None) -> dict[str, Any]:
        """Return what `load_state_dict` needs to go on in the middle of an epoch.

        Args:
            yielded: batches of the epoch begun last that were trained on. By default those handed to the loader,
                which with workers is ahead of training by prefetch_factor times workers.
        """
        epoch, done = (self.epoch, self._yielded) if yielded is None else (self._begun, yielded)
        if yielded is not None and yielded >= len(self):
            epoch, done = epoch + 1, 0
        return {"epoch": epoch, "yielded": done, "seed": self.seed, "plan": self._fingerprint()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken. Raises ValueError when it is of a sampler with another plan."""
        if state["seed"] != self.seed:
            raise ValueError(f"this state is of a sampler with seed {state['seed']}, not {self.seed}")
        if state["plan"] != self._fingerprint():
            raise ValueError("this state is of a sampler with other images, clusters, buckets, weights or batch sizes")
        self.epoch = self._begun = int(state["epoch"])
        self._resume = dict(state)
        self._yielded = int(state["yielded"])

    def _fingerprint(self) -> str:
        """Return 16 hex digits of all that the order depends on besides seed and epoch."""
        if self._digest is None:
            table, groups = self.table, self.table.groups
            digest = xxhash.xxh3_64(
                f"{self.batch_size} {self.accumulation} {self.num_replicas} {self.drop_last}".encode()
            )
            arrays = [groups.of_image, groups.concept, groups.start, groups.neighbour, table.bucket, table.demand]
            for array in arrays if self.weights is None else [*arrays, self.weights]:
                digest.update(np.ascontiguousarray(array).data)
            self._digest = digest.hexdigest()
        return self._digest

    def _begin(self, epoch: int, state: dict[str, Any] | None) -> npt.NDArray[np.int64]:
        """Return the batches of an epoch that starts now, or goes on from `state`."""
        self._begun = epoch
        return self.batches_of(epoch)

    def _finish(self, epoch: int) -> None:
        """Go to the next epoch, unless somebody chose another one meanwhile."""
        if self.epoch == epoch:
            self.epoch, self._yielded = epoch + 1, 0

    def batches_of(self, epoch: int) -> npt.NDArray[np.int64]:
        """Return the batches of an epoch on this rank, (batches, batch size)."""
        return self._dealt(self.plan(epoch))

    def _weights_of(self, epoch: int) -> Floats | None:
        """Return the weights that an epoch draws by, or None for an epoch that covers the set."""
        return self.weights

    def plan(self, epoch: int, weights: Floats | None = None) -> Plan:
        """Return the batches of an epoch on all ranks; `weights` (N,) stands in for those it would draw by."""
        source = epoch_generator(self.seed, epoch)
        layout = self._layouts[int(source.integers(len(self._layouts)))]
        weights = self._weights_of(epoch) if weights is None else weights
        if weights is None:
            return cover(self.table, layout, source, drop_last=self.drop_last)
        return draw(self.table, layout, weights, self.rounds, source)

    def _dealt(self, plan: Plan) -> npt.NDArray[np.int64]:
        rounds = plan.indices.reshape(-1, self.accumulation, self.num_replicas, self.batch_size)
        mine = rounds if self.rank == "all" else rounds[:, :, self.rank]
        return mine.reshape(-1, self.batch_size)

    def expected_gradients(self) -> Floats:
        """Return (N,) the gradient norm expected of each image, up to a factor; 1 where nothing is known."""
        return np.ones(len(self.table.pair))

    def describe(self, steps: int | None = None) -> Description:
        """Simulate the current epoch, or its first `steps` optimizer steps, and say what its batches are like."""
        from datasieve.sampling.describe import describe

        return describe(self, steps)


class EpochIterator(Iterator[list[int]]):
    """Yields the batches of one epoch; at its end the sampler goes to the next epoch.

    It has a state of its own, as torchdata's StatefulDataLoader asks of iterators.

    It starts with its first batch, not before: DataLoader makes two iterators and throws one away.
    """

    def __init__(self, sampler: PlannedBatchSampler) -> None:
        self.sampler = sampler
        self.epoch = sampler.epoch
        self.yielded = self._base = 0
        self._batches: npt.NDArray[np.int64] | None = None
        self._chunk: list[list[int]] = []

    def _start(self) -> npt.NDArray[np.int64]:
        sampler = self.sampler
        state, sampler._resume = sampler._resume, None
        self.epoch = sampler.epoch
        self.yielded = self._base = sampler._yielded = 0 if state is None else int(state["yielded"])
        return sampler._begin(self.epoch, state)

    def __iter__(self) -> EpochIterator:
        return self

    def __next__(self) -> list[int]:
        if self._batches is None:
            self._batches = self._start()
        if self.yielded - self._base >= len(self._chunk):
            # Python lists are made a chunk at a time: those of a whole epoch would take several times its memory.
            self._base = self.yielded
            self._chunk = self._batches[self._base : self._base + _CHUNK].tolist()
            if not self._chunk:
                self.sampler._finish(self.epoch)
                raise StopIteration
        batch = self._chunk[self.yielded - self._base]
        self.yielded += 1
        self.sampler._yielded = self.yielded
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Return the sampler's state at this place."""
        if self._batches is None:
            return self.sampler.state_dict()
        return self.sampler.state_dict() | {"epoch": self.epoch, "yielded": self.yielded}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on at that place."""
        self.sampler.load_state_dict(state)
        self._batches, self._chunk = None, []


def _constructed(size: int, groups: Groups, counts: Ints, batches: int, source: np.random.Generator) -> int:
    """Return the largest batch size up to `size` for which pools were in fact made."""
    while size > 0:
        pools: Pools = make_pools(groups, counts, size, batches, source, 0.0)
        if pools.size >= size:
            return size
        size = pools.size
    return 0


def _seed(seed: int | None, generator: torch.Generator | None) -> int:
    if seed is not None:
        return int(seed)
    if generator is None:
        return 0
    return int(torch.randint(2**62, (), generator=generator))
