"""What a sampler promises for every set of images, batch size, rank and seed."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from datasieve.sampling import IsolationInfeasible, SemanticIsolationBatchSampler
from tests.sampling.strategies import ImageSet, image_sets

FEW = settings(max_examples=40, deadline=None)
SHAPES = {
    "batch_size": st.integers(1, 5),
    "accumulation": st.integers(1, 3),
    "replicas": st.integers(1, 3),
    "seed": st.integers(0, 2**40),
}


def built(images: ImageSet, **options: Any) -> SemanticIsolationBatchSampler:
    """Return a sampler with as large batches as the conflicts allow; skips the sets where not even one image fits."""
    try:
        return SemanticIsolationBatchSampler(**images.arguments(), on_infeasible="shrink", **options)
    except IsolationInfeasible as error:
        assume(error.feasible_batch_size > 0)
        raise


def every_rank(images: ImageSet, epoch: int, replicas: int, **options: Any) -> list[list[list[int]]]:
    """Return the batches of one epoch for each rank."""
    out = []
    for rank in range(replicas):
        sampler = built(images, num_replicas=replicas, rank=rank, **options)
        sampler.set_epoch(epoch)
        out.append(list(sampler))
    return out


def steps(ranks: list[list[list[int]]], accumulation: int) -> list[list[int]]:
    """Return what each optimizer step sees on all ranks."""
    together = [list(itertools.chain(*batches)) for batches in zip(*ranks, strict=True)]
    return [list(itertools.chain(*together[i : i + accumulation])) for i in range(0, len(together), accumulation)]


@FEW
@given(image_sets(), *SHAPES.values())
def test_no_two_images_of_an_optimizer_step_conflict(
    images: ImageSet, batch_size: int, accumulation: int, replicas: int, seed: int
) -> None:
    options = {"batch_size": batch_size, "accumulation": accumulation, "seed": seed}
    for epoch in (0, 1):
        for step in steps(every_rank(images, epoch, replicas, **options), accumulation):
            assert not [(a, b) for a, b in itertools.combinations(set(step), 2) if images.conflict(a, b)]


@FEW
@given(image_sets(), *SHAPES.values())
def test_every_image_is_shown_as_often_as_asked_and_the_rest_is_counted(
    images: ImageSet, batch_size: int, accumulation: int, replicas: int, seed: int
) -> None:
    options = {"batch_size": batch_size, "accumulation": accumulation, "seed": seed}
    told = built(images, num_replicas=replicas, rank=0, **options).repeats
    for epoch in (0, 3):
        shown = collections.Counter(itertools.chain(*itertools.chain(*every_rank(images, epoch, replicas, **options))))
        assert all(shown[i] >= often for i, often in enumerate(images.demand()))
        assert sum(shown.values()) - sum(images.demand()) == told


@FEW
@given(image_sets(), *SHAPES.values(), st.booleans())
def test_batches_are_full_of_one_shape_and_as_many_as_len_says_on_every_rank(
    images: ImageSet, batch_size: int, accumulation: int, replicas: int, seed: int, drop_last: bool
) -> None:
    options = {"batch_size": batch_size, "accumulation": accumulation, "seed": seed, "drop_last": drop_last}
    sampler = built(images, num_replicas=replicas, rank=0, **options)
    for epoch in (0, 1, 2):
        for batches in every_rank(images, epoch, replicas, **options):
            assert len(batches) == len(sampler)
            assert all(len(batch) == sampler.batch_size for batch in batches)
            if images.buckets is not None:
                assert all(len({images.buckets[i] for i in batch}) == 1 for batch in batches)
    assert len(sampler) % accumulation == 0


@FEW
@given(image_sets(), *SHAPES.values())
def test_what_is_called_feasible_fills_every_step_with_different_images(
    images: ImageSet, batch_size: int, accumulation: int, replicas: int, seed: int
) -> None:
    plain = dataclasses.replace(images, buckets=None, repeats=None)
    options = {"accumulation": accumulation, "seed": seed, "num_replicas": replicas, "rank": "all"}
    try:
        sampler = SemanticIsolationBatchSampler(**plain.arguments(), batch_size=batch_size, **options)
        blocked = []
    except IsolationInfeasible as error:
        assume(error.feasible_batch_size > 0)
        blocked = error.blocking
        sampler = SemanticIsolationBatchSampler(**plain.arguments(), batch_size=error.feasible_batch_size, **options)
    assert bool(blocked) == (sampler.batch_size < batch_size)
    size = sampler.effective_batch_size
    for step in sampler.batches_of(1).reshape(-1, size).tolist():
        assert len(set(step)) == min(size, len(plain.clusters))


@FEW
@given(image_sets(), *SHAPES.values())
def test_drop_last_shows_no_image_more_often_than_asked_and_names_what_it_never_shows(
    images: ImageSet, batch_size: int, accumulation: int, replicas: int, seed: int
) -> None:
    options = {"batch_size": batch_size, "accumulation": accumulation, "seed": seed, "drop_last": True}
    left_out = set(built(images, num_replicas=replicas, rank=0, **options).left_out)
    for epoch in range(3):
        shown = collections.Counter(itertools.chain(*itertools.chain(*every_rank(images, epoch, replicas, **options))))
        assert all(times <= images.demand()[i] for i, times in shown.items())
        assert not left_out & set(shown)


@FEW
@given(image_sets(), *SHAPES.values())
def test_a_sampler_for_all_ranks_yields_their_batches_in_turn(
    images: ImageSet, batch_size: int, accumulation: int, replicas: int, seed: int
) -> None:
    options = {"batch_size": batch_size, "accumulation": accumulation, "seed": seed}
    together = list(built(images, num_replicas=replicas, rank="all", **options))
    apart = every_rank(images, 0, replicas, **options)
    assert together == list(itertools.chain(*zip(*apart, strict=True)))


@FEW
@given(image_sets(), st.integers(1, 5), st.integers(0, 99), st.data())
def test_resuming_anywhere_gives_the_batches_that_were_left(
    images: ImageSet, batch_size: int, seed: int, data: st.DataObject
) -> None:
    whole = built(images, batch_size=batch_size, seed=seed)
    expected = list(whole) + list(whole)
    first = built(images, batch_size=batch_size, seed=seed)
    done = data.draw(st.integers(0, len(expected) - 1))
    begun: list[list[int]] = []
    while len(begun) < done:
        begun += itertools.islice(first, done - len(begun))
    state = json.loads(json.dumps(first.state_dict()))
    second = built(images, batch_size=batch_size, seed=seed)
    second.load_state_dict(state)
    rest = list(second)
    while len(begun) + len(rest) < len(expected):
        rest += list(second)
    assert begun + rest == expected


@FEW
@given(image_sets(), st.lists(st.integers(0, 6), min_size=40, max_size=40), st.integers(1, 4), st.integers(0, 99))
def test_with_weights_batches_stay_free_of_conflicts_and_of_one_shape(
    images: ImageSet, weights: list[int], batch_size: int, seed: int
) -> None:
    chosen = [float(w) for w in weights[: len(images.clusters)]]
    assume(any(chosen))
    sampler = built(images, batch_size=batch_size, seed=seed, weights=chosen)
    for batches in (list(sampler), list(sampler)):
        assert len(batches) == len(sampler)
        for batch in batches:
            assert all(chosen[i] > 0 for i in batch)
            assert not [(a, b) for a, b in itertools.combinations(set(batch), 2) if images.conflict(a, b)]
            assert images.buckets is None or len({images.buckets[i] for i in batch}) == 1


@FEW
@given(image_sets(), *SHAPES.values())
def test_relaxed_batches_count_every_violation(
    images: ImageSet, batch_size: int, accumulation: int, replicas: int, seed: int
) -> None:
    options = {"batch_size": batch_size, "accumulation": accumulation, "seed": seed, "num_replicas": replicas}
    sampler = SemanticIsolationBatchSampler(**images.arguments(), on_infeasible="relax", rank=0, **options)
    ranks = [
        list(SemanticIsolationBatchSampler(**images.arguments(), on_infeasible="relax", rank=rank, **options))
        for rank in range(replicas)
    ]
    found = sum(
        images.conflict(a, b) for step in steps(ranks, accumulation) for a, b in itertools.combinations(step, 2)
    )
    assert sampler.violations == found == sampler.describe().conflicts


ORDER = """
import numpy
from datasieve.sampling import SemanticIsolationBatchSampler
sampler = SemanticIsolationBatchSampler(
    clusters=[i % 7 for i in range(200)], concepts=["ab"[i % 2] for i in range(200)], conflicts=[(1, 4), (0, 5)],
    buckets=[i % 3 for i in range(200)], batch_size=3, seed=5,
)
print(list(sampler)[:4], len(sampler))
"""


@pytest.mark.parametrize("salt", ["0", "1"])
def test_the_order_is_the_same_in_every_process(salt: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ORDER],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONHASHSEED": salt},
    )
    scope: dict[str, Any] = {}
    printed: list[Any] = []
    scope["print"] = lambda *values: printed.extend(values)
    exec(ORDER, scope)
    assert done.stdout.strip() == " ".join(map(str, printed))


def test_the_order_is_the_one_that_older_runs_resume_from_whatever_numpy_and_platform() -> None:
    sampler = SemanticIsolationBatchSampler([i % 4 for i in range(16)], [(0, 1)], batch_size=3, seed=11)
    assert list(sampler) == [[3, 7, 13], [10, 0, 2], [6, 4, 12], [5, 11, 15], [13, 1, 9], [2, 8, 14]]
