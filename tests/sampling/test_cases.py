"""The sampler cases, one test each: length, loaders, fresh draws, remainders. And two real processes."""

from __future__ import annotations

import collections
import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from scipy.stats import chi2
from torch.utils.data import DataLoader, Dataset

from datasieve.sampling import GradientBalancedBatchSampler, SemanticIsolationBatchSampler


class Numbers(Dataset[tuple[int, float]]):
    """Item i is i, with a random number as a random crop would draw it."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, float(torch.rand(()))


@pytest.mark.parametrize(
    ("count", "world", "batch_size", "drop_last"),
    list(itertools.product([3, 7, 10], [1, 2, 3], [1, 2, 4], [False, True])),
)
def test_length_tells_truth(count: int, world: int, batch_size: int, drop_last: bool) -> None:
    ranks = [
        SemanticIsolationBatchSampler(
            [0] * count, batch_size=batch_size, drop_last=drop_last, num_replicas=world, rank=rank
        )
        for rank in range(world)
    ]
    batches = [list(sampler) for sampler in ranks]
    assert [len(b) for b in batches] == [len(sampler) for sampler in ranks] == [len(ranks[0])] * world
    expected = count // (world * batch_size) if drop_last else -(-count // (world * batch_size))
    assert len(ranks[0]) == expected
    assert all(0 <= i < count for rank in batches for batch in rank for i in batch)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("world", [1, 2])
def test_prepared_loader(workers: int, world: int) -> None:
    seen = collections.Counter[int]()
    for rank in range(world):
        sampler = SemanticIsolationBatchSampler(
            [i % 2 for i in range(22)], [(0, 1)], batch_size=4, num_replicas=world, rank=rank
        )
        loader = DataLoader(Numbers(22), batch_sampler=sampler, num_workers=workers, persistent_workers=workers > 0)
        batches = [index.tolist() for index, _ in loader]
        assert len(batches) == len(loader) == len(sampler)
        seen.update(itertools.chain(*batches))
    assert set(seen) == set(range(22))
    assert seen.total() - 22 == sampler.repeats


def test_fresh_draws_each_epoch() -> None:
    def epochs(seed: int) -> tuple[list[list[int]], list[float]]:
        sampler = SemanticIsolationBatchSampler([0] * 12, batch_size=2, seed=seed)
        torch.manual_seed(3)
        loader = DataLoader(Numbers(12), batch_sampler=sampler, num_workers=2, persistent_workers=True)
        orders, crops = [], []
        for _ in range(3):
            seen = [(index.tolist(), crop.tolist()) for index, crop in loader]
            orders.append(list(itertools.chain(*(index for index, _ in seen))))
            crops += list(itertools.chain(*(crop for _, crop in seen)))
        return orders, crops

    orders, crops = epochs(7)
    assert len({tuple(order) for order in orders}) == 3
    assert len(set(crops)) == len(crops)
    assert epochs(7)[0] == orders
    assert epochs(8)[0] != orders
    again = SemanticIsolationBatchSampler([0] * 12, batch_size=2, seed=7)
    again.set_epoch(2)
    assert list(itertools.chain(*again)) == orders[2]


def test_remainder_is_used() -> None:
    shapes = [(64, 64)] * 5 + [(48, 96)] * 4 + [(128, 32)]
    weights = np.array([1, 1, 1, 1, 1, 2, 2, 2, 2, 4.0])
    sampler = SemanticIsolationBatchSampler([0] * 10, buckets=shapes, weights=weights, batch_size=4, seed=7)
    seen = collections.Counter[int]()
    for _ in range(12):
        for batch in sampler:
            assert len({shapes[i] for i in batch}) == 1
            seen.update(batch)
    assert set(seen) == set(range(10))
    observed = np.array([seen[i] for i in range(10)])
    expected = weights / weights.sum() * observed.sum()
    assert ((observed - expected) ** 2 / expected).sum() < chi2.ppf(0.99, 9)


def test_frequencies_follow_the_weights_over_many_epochs_also_with_conflicts_and_repeats() -> None:
    clusters, shapes = [i % 3 for i in range(30)], [i % 4 == 0 for i in range(30)]
    weights, repeats = np.linspace(0.2, 3, 30), [1 + i % 2 for i in range(30)]
    sampler = SemanticIsolationBatchSampler(
        clusters, [(0, 1)], weights=weights, repeats=repeats, buckets=shapes, batch_size=2, seed=0
    )
    shown = np.sum([np.bincount(np.ravel(list(sampler)), minlength=30) for _ in range(400)], 0)
    expected = weights * repeats / (weights * repeats).sum() * shown.sum()
    np.testing.assert_allclose(shown, expected, rtol=0.15)


def test_without_weights_a_remainder_is_shown_in_every_epoch() -> None:
    shapes = [0] * 5 + [1] * 4 + [2]
    sampler = SemanticIsolationBatchSampler([0] * 10, buckets=shapes, batch_size=4)
    assert (len(sampler), sampler.repeats) == (4, 6)
    dropping = SemanticIsolationBatchSampler([0] * 10, buckets=shapes, batch_size=4, drop_last=True)
    assert (len(dropping), dropping.left_out) == (2, [9])
    assert {i for _ in range(12) for batch in dropping for i in batch} == set(range(9))
    assert SemanticIsolationBatchSampler([0, 0, 0], weights=[1.0, 0.0, 1.0]).left_out == [1]


def test_a_sampler_survives_pickling_in_the_middle_of_an_epoch() -> None:
    sampler = SemanticIsolationBatchSampler([i % 3 for i in range(20)], [(0, 1)], batch_size=2, seed=4)
    begun = list(itertools.islice(sampler, 3))
    copy = pickle.loads(pickle.dumps(sampler))
    copy.load_state_dict(copy.state_dict())
    assert begun + list(copy) == list(sampler)


def test_batches_handed_to_the_loader_ahead_of_training_are_not_lost_on_resume() -> None:
    def loader() -> tuple[SemanticIsolationBatchSampler, DataLoader[Any]]:
        sampler = SemanticIsolationBatchSampler([0] * 40, batch_size=2, seed=1)
        return sampler, DataLoader(Numbers(40), batch_sampler=sampler, num_workers=2, prefetch_factor=4)

    whole = [index.tolist() for index, _ in loader()[1]]
    sampler, first = loader()
    trained = [index.tolist() for index, _ in itertools.islice(first, 15)]
    resumed, second = loader()
    resumed.load_state_dict(sampler.state_dict(yielded=len(trained)))
    assert trained + [index.tolist() for index, _ in second] == whole


def test_a_torch_generator_gives_the_seed() -> None:
    def order(seed: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(seed)
        return list(SemanticIsolationBatchSampler([0] * 20, batch_size=2, generator=generator))

    assert order(1) == order(1) != order(2)


def test_arguments_that_cannot_be_are_refused() -> None:
    for options, words in (
        ({"batch_size": 0}, "at least 1"),
        ({"on_infeasible": "maybe"}, "on_infeasible"),
        ({"repeats": [1, -1]}, "whole numbers"),
        ({"repeats": [0, 0]}, "nothing to draw"),
        ({"weights": [1.0, float("nan")]}, "finite"),
        ({"weights": [0.0, 0.0]}, "no image to draw"),
        ({"buckets": [1]}, "1 entries for 2 images"),
        ({"num_replicas": 2, "rank": 2}, "no rank 2 of 2"),
        ({"num_replicas": 2}, "rank is needed"),
    ):
        with pytest.raises(ValueError, match=words):
            SemanticIsolationBatchSampler([0, 0], **options)


def test_a_state_of_another_sampler_is_refused() -> None:
    state = SemanticIsolationBatchSampler([0, 0, 1, 1], batch_size=2, seed=1).state_dict()
    SemanticIsolationBatchSampler([0, 0, 1, 1], batch_size=2, seed=1).load_state_dict(state)
    with pytest.raises(ValueError, match="seed 1, not 2"):
        SemanticIsolationBatchSampler([0, 0, 1, 1], batch_size=2, seed=2).load_state_dict(state)
    for clusters, options in (
        ([0, 1, 1, 1], {}),
        ([0, 0, 1, 1], {"accumulation": 2}),
        ([0, 0, 1, 1], {"buckets": [0, 0, 1, 1]}),
    ):
        with pytest.raises(ValueError, match="other images, clusters"):
            SemanticIsolationBatchSampler(clusters, batch_size=2, seed=1, **options).load_state_dict(state)


def train_on_two_processes(rank: int, folder: str) -> None:
    """Train a model under DDP on batches of both samplers, and write down what this rank saw."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.set_num_threads(1)
    clusters = [i % 3 for i in range(36)]
    isolating = SemanticIsolationBatchSampler(clusters, [(0, 1), (1, 2)], batch_size=3, accumulation=2, seed=9)
    balanced = GradientBalancedBatchSampler(36, batch_size=3, seed=9, cover_every=2)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    seen: dict[str, Any] = {"rank": isolating.rank, "isolating": [], "balanced": []}
    for name, sampler in (("isolating", isolating), ("balanced", balanced)):
        for _ in range(2):
            for index, _ in DataLoader(Numbers(36), batch_sampler=sampler):
                model(index[:, None].float()).mean().backward()  # hangs if ranks have unlike numbers of batches
                seen[name].append(index.tolist())
                if name == "balanced":
                    balanced.update(index, 1.0 + index, torch.full_like(index, 100 * rank))
    seen["weights"] = balanced.selection_weights().tolist()
    torch.save(seen, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_two_ddp_processes_on_gloo_agree_share_feedback_and_never_conflict(tmp_path: Path) -> None:
    mp.spawn(train_on_two_processes, args=(str(tmp_path),), nprocs=2)
    one, two = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert (one["rank"], two["rank"]) == (0, 1)
    assert one["weights"] == two["weights"]
    assert len(set(one["weights"])) > 20
    for name in ("isolating", "balanced"):
        half = len(one[name]) // 2
        assert set(itertools.chain(*one[name][:half], *two[name][:half])) == set(range(36))
    for i in range(0, len(one["isolating"]), 2):
        step = list(itertools.chain(*one["isolating"][i : i + 2], *two["isolating"][i : i + 2]))
        assert len(step) == 12
        assert {n % 3 for n in step} in ({0}, {1}, {2}, {0, 2})
