"""Batches composed from a stream."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from datasieve.sampling import IsolatingBatcher, IsolationInfeasible

Sample = tuple[int, int, str, int]


def batcher(samples: list[Sample], **options: object) -> IsolatingBatcher[Sample]:
    """Return a batcher of samples (number, cluster, concept, bucket) whose clusters 0 and 1 conflict."""
    return IsolatingBatcher(
        samples, cluster=lambda s: s[1], concept=lambda s: s[2], bucket=lambda s: s[3], conflicts=[(0, 1)], **options
    )


def conflict(a: Sample, b: Sample) -> bool:
    """Tell whether two samples may not meet, from the definition."""
    return {a[1], b[1]} == {0, 1} or (a[2] == b[2] and a[1] != b[1])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab"), st.integers(0, 1)), max_size=60),
    st.integers(1, 4),
    st.integers(0, 8),
    st.sampled_from(["shrink", "relax"]),
)
def test_every_sample_comes_out_once_in_batches_of_one_shape_and_conflicts_are_counted(
    drawn: list[tuple[int, str, int]], batch_size: int, more: int, policy: str
) -> None:
    samples = [(i, *rest) for i, rest in enumerate(drawn)]
    stream = batcher(samples, batch_size=batch_size, buffer=batch_size + more, on_infeasible=policy)
    batches = list(stream)
    assert sorted(s[0] for batch in batches for s in batch) == list(range(len(samples)))
    assert all(len({s[3] for s in batch}) == 1 and len(batch) <= batch_size for batch in batches)
    found = sum(conflict(a, b) for batch in batches for a, b in itertools.combinations(batch, 2))
    assert found == stream.count.violations
    assert policy == "relax" or found == 0
    assert sum(len(batch) < batch_size for batch in batches) == stream.count.short


def test_no_more_samples_wait_than_the_buffer_holds() -> None:
    read, given_out, most = 0, 0, 0

    def source() -> Iterator[Sample]:
        nonlocal read
        for i in range(500):
            read += 1
            yield i, i % 3, "x", i % 2

    class Stream(IterableDataset[Sample]):
        def __iter__(self) -> Iterator[Sample]:
            return source()

    for batch in batcher(Stream(), batch_size=8, buffer=48):  # type: ignore[arg-type]  # any iterable will do
        most = max(most, read - given_out)
        given_out += len(batch)
    assert most <= 48
    assert given_out == 500


def test_a_full_buffer_without_a_batch_stops_the_stream_unless_told_otherwise() -> None:
    stuck = [(i, i, "one concept", 0) for i in range(20)]
    with pytest.raises(IsolationInfeasible, match="at most 1"):
        list(batcher(stuck, batch_size=2, buffer=10))


def test_what_is_left_at_the_end_is_yielded_short_or_dropped_and_counted() -> None:
    samples = [(i, 0, "x", 0) for i in range(10)]
    kept = batcher(samples, batch_size=4)
    assert [len(b) for b in kept] == [4, 4, 2]
    dropping = batcher(samples, batch_size=4, drop_last=True)
    assert [len(b) for b in dropping] == [4, 4]
    assert (kept.count.short, dropping.count.dropped) == (1, 2)


class Divided(IterableDataset[Sample]):
    """A stream that divides itself among loader workers, as shards do."""

    def __iter__(self) -> Iterator[Sample]:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        return iter([(i, i % 2, "x", 0) for i in range(first, 60, step)])


def second(sample: Sample) -> int:
    """Return the cluster."""
    return sample[1]


def test_it_goes_into_a_loader_with_workers() -> None:
    stream = IsolatingBatcher(Divided(), 4, cluster=second, conflicts=[(0, 1)])
    batches = list(DataLoader(stream, batch_size=None, num_workers=2))
    assert sorted(s[0] for batch in batches for s in batch) == list(range(60))
    assert all(len({s[1] for s in batch}) == 1 for batch in batches)
