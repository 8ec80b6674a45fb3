"""Batches without conflicts from a stream: for sets too large to index, with a buffer of bounded size.

Samples wait in the buffer, sorted by bucket and cluster. As soon as clusters that go together hold a batch in one
bucket, it is yielded: the sample that has waited longest decides which bucket and cluster a batch is built around.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch.utils.data import IterableDataset

from datasieve.sampling.infeasible import IsolationInfeasible
from datasieve.sampling.planned import Policy

Sample = TypeVar("Sample")
Kind = tuple[Hashable, Hashable]


@dataclass(slots=True)
class StreamCount:
    """What a pass over the stream came to.

    Attributes:
        samples: samples read.
        batches: batches yielded.
        short: batches with fewer samples than asked ("shrink", and the rest at the end of the stream).
        violations: conflicting pairs of samples in one batch ("relax").
        dropped: samples left over at the end with `drop_last`.
    """

    samples: int = 0
    batches: int = 0
    short: int = 0
    violations: int = 0
    dropped: int = 0


class IsolatingBatcher(IterableDataset[list[Sample]], Generic[Sample]):
    """Composes batches from a stream. Use it as a dataset with `DataLoader(..., batch_size=None)`, or iterate over it.

    With several loader workers each composes batches from its own part of the stream, as the stream divides itself.

    Args:
        source: the stream: an IterableDataset, a WebDataset pipeline, any iterable that can be started again.
        batch_size: samples of a batch.
        cluster: returns a sample's isolation cluster.
        conflicts: pairs of clusters that must not meet.
        concept: returns a sample's concept; two clusters of one concept then never meet.
        bucket: returns a sample's latent shape; a batch has one.
        buffer: samples that may wait at most, at least a batch.
        on_infeasible: when the buffer is full and no batch can be made: "error" raises, "shrink" yields a short batch,
            "relax" fills one with conflicting samples and counts them.
        drop_last: drop what is left at the end instead of yielding short batches.

    Attributes:
        count: what the pass that runs or ran last came to; in loader workers it stays in the worker.
    """

    def __init__(
        self,
        source: Iterable[Sample],
        batch_size: int,
        *,
        cluster: Callable[[Sample], Hashable],
        conflicts: Iterable[tuple[Hashable, Hashable]] = (),
        concept: Callable[[Sample], Hashable] | None = None,
        bucket: Callable[[Sample], Hashable] | None = None,
        buffer: int = 1000,
        on_infeasible: Policy = "error",
        drop_last: bool = False,
    ) -> None:
        super().__init__()
        if batch_size < 1 or buffer < batch_size:
            raise ValueError(f"buffer must hold at least a batch of at least 1, not {buffer} and {batch_size}")
        if on_infeasible not in ("error", "shrink", "relax"):
            raise ValueError(f'on_infeasible must be "error", "shrink" or "relax", not {on_infeasible!r}')
        self.source, self.batch_size, self.buffer = source, batch_size, buffer
        self.cluster, self.concept, self.bucket = cluster, concept, bucket
        self.on_infeasible, self.drop_last = on_infeasible, drop_last
        self.pairs = {pair for a, b in conflicts for pair in ((a, b), (b, a))}
        if any(a == b for a, b in self.pairs):
            raise ValueError("conflicts lists a cluster with itself: its samples could never share a batch")
        self.count = StreamCount()

    def __iter__(self) -> Iterator[list[Sample]]:
        """Start the stream and yield its batches. Raises IsolationInfeasible, see `on_infeasible`."""
        self.count = count = StreamCount()
        waiting = _Waiting(self._conflict)
        for sample in self.source:
            count.samples += 1
            concept = self.concept(sample) if self.concept else None
            bucket = self.bucket(sample) if self.bucket else None
            waiting.add(bucket, (concept, self.cluster(sample)), sample)
            # Only the bucket that has grown can have come to hold a batch.
            kinds = waiting.full(bucket, self.batch_size)
            if kinds:
                yield self._counted(waiting.take(bucket, kinds, self.batch_size))
            elif waiting.total >= self.buffer:
                yield self._forced(waiting)
        if self.drop_last:
            count.dropped = waiting.total
            return
        while waiting.total:
            bucket = waiting.oldest()
            kinds = waiting.compatible(bucket, self.batch_size)
            yield self._counted(waiting.take(bucket, kinds, self.batch_size))

    def _forced(self, waiting: _Waiting) -> list[Sample]:
        """Return a batch although the buffer holds no full one without conflict."""
        bucket = waiting.oldest()
        kinds = waiting.compatible(bucket, self.batch_size)
        if self.on_infeasible == "error":
            most = waiting.held(bucket, kinds)
            raise IsolationInfeasible(
                self.batch_size, self.batch_size, most, [(f"cluster {k[1]}", most) for k in kinds]
            )
        if self.on_infeasible == "relax":
            kinds += [kind for kind in waiting.kinds(bucket) if kind not in kinds]
        return self._counted(waiting.take(bucket, kinds, self.batch_size))

    def _counted(self, taken: list[tuple[Kind, Sample]]) -> list[Sample]:
        kinds = collections.Counter(kind for kind, _ in taken)
        self.count.batches += 1
        self.count.short += len(taken) < self.batch_size
        self.count.violations += sum(
            kinds[a] * kinds[b] for a, b in itertools.combinations(kinds, 2) if self._conflict(a, b)
        )
        return [sample for _, sample in taken]

    def _conflict(self, a: Kind, b: Kind) -> bool:
        same_concept = self.concept is not None and a[0] == b[0]
        return (same_concept and a[1] != b[1]) or (a[1], b[1]) in self.pairs


class _Waiting:
    """The buffer: bucket -> kind (concept, cluster) -> samples with the number of their arrival."""

    def __init__(self, conflict: Callable[[Kind, Kind], bool]) -> None:
        self._conflict = conflict
        self._queues: dict[Hashable, dict[Kind, collections.deque[tuple[int, Any]]]] = {}
        self._arrivals = itertools.count()
        self._sizes: collections.Counter[Hashable] = collections.Counter()
        self.total = 0

    def add(self, bucket: Hashable, kind: Kind, sample: Any) -> None:
        queues = self._queues.setdefault(bucket, {})
        queues.setdefault(kind, collections.deque()).append((next(self._arrivals), sample))
        self._sizes[bucket] += 1
        self.total += 1

    def kinds(self, bucket: Hashable) -> list[Kind]:
        """Return the kinds that wait in a bucket, the one that has waited longest first."""
        queues = self._queues[bucket]
        return sorted(queues, key=lambda kind: queues[kind][0][0])

    def oldest(self) -> Hashable:
        """Return the bucket of the sample that has waited longest."""
        return min(self._queues, key=lambda bucket: min(queue[0][0] for queue in self._queues[bucket].values()))

    def full(self, bucket: Hashable, enough: int) -> list[Kind]:
        """Return kinds that go together and hold `enough` samples, or none.

        They are sought around the one that has waited longest, then around the fullest, so that one rare cluster does
        not hold up the rest.
        """
        if self._sizes[bucket] < enough:
            return []
        queues = self._queues[bucket]
        for order in (self.kinds(bucket), sorted(queues, key=lambda kind: -len(queues[kind]))):
            kinds = self.compatible(bucket, enough, order)
            if self.held(bucket, kinds) >= enough:
                return kinds
        return []

    def compatible(self, bucket: Hashable, enough: int, order: list[Kind] | None = None) -> list[Kind]:
        """Return kinds that go together, taken in `order` (longest waiting first) until they hold `enough`."""
        chosen: list[Kind] = []
        samples = 0
        for kind in self.kinds(bucket) if order is None else order:
            if samples < enough and not any(self._conflict(kind, other) for other in chosen):
                chosen.append(kind)
                samples += len(self._queues[bucket][kind])
        return chosen

    def held(self, bucket: Hashable, kinds: list[Kind]) -> int:
        """Return how many samples of these kinds wait in a bucket."""
        return sum(len(self._queues[bucket][kind]) for kind in kinds)

    def take(self, bucket: Hashable, kinds: list[Kind], most: int) -> list[tuple[Kind, Any]]:
        """Take up to `most` samples of these kinds out of a bucket: of each in turn, the oldest first."""
        queues = self._queues[bucket]
        taken: list[tuple[Kind, Any]] = []
        turn = collections.deque(kinds)
        while turn and len(taken) < most:
            kind = turn.popleft()
            taken.append((kind, queues[kind].popleft()[1]))
            if queues[kind]:
                turn.append(kind)
            else:
                del queues[kind]
        if not queues:
            del self._queues[bucket]
        self._sizes[bucket] -= len(taken)
        self.total -= len(taken)
        return taken
