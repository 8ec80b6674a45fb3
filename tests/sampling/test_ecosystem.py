"""Inside accelerate and torchdata, where these are installed."""

from __future__ import annotations

import collections
import itertools
import os
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader

from datasieve.sampling import SemanticIsolationBatchSampler
from tests.sampling.test_cases import Numbers


def prepared(rank: int, world: int, folder: str, port: int) -> None:
    """Iterate over a loader that accelerate prepared, and write down what this process saw."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in place.items()} | {"OMP_NUM_THREADS": "1"})
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    seen: dict[int, list[list[list[int]]]] = {}
    for workers in (0, 2):
        sampler = SemanticIsolationBatchSampler([i % 2 for i in range(22)], [(0, 1)], batch_size=4)
        loader = DataLoader(Numbers(22), batch_sampler=sampler, num_workers=workers, persistent_workers=workers > 0)
        ready = accelerator.prepare(loader)
        seen[workers] = [[index.tolist() for index, _ in ready] for _ in range(2)]
        assert all(len(batches) == len(ready) for batches in seen[workers])
    torch.save({"seen": seen, "repeats": sampler.repeats}, f"{folder}/{rank}.pt")
    accelerator.wait_for_everyone()
    accelerator.end_training()


@pytest.mark.parametrize("world", [1, 2])
def test_accelerate_deals_out_every_image_and_steps_stay_free_of_conflict(world: int, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(prepared, args=(world, str(tmp_path), port), nprocs=world)
    ranks = [torch.load(tmp_path / f"{rank}.pt") for rank in range(world)]
    for workers, epoch in itertools.product((0, 2), (0, 1)):
        steps = list(zip(*(rank["seen"][workers][epoch] for rank in ranks), strict=True))
        shown = collections.Counter(i for step in steps for batch in step for i in batch)
        assert set(shown) == set(range(22))
        assert shown.total() - 22 == ranks[0]["repeats"]
        assert all(len({i % 2 for batch in step for i in batch}) == 1 for step in steps)


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("done", [3, 29, 30, 40])
def test_a_stateful_loader_resumes_in_the_middle_of_an_epoch(workers: int, done: int) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def loader() -> Any:
        sampler = SemanticIsolationBatchSampler([i % 2 for i in range(60)], [(0, 1)], batch_size=2, seed=3)
        return stateful.StatefulDataLoader(Numbers(60), batch_sampler=sampler, num_workers=workers)

    def take(source: Any, count: int) -> list[list[int]]:
        out: list[list[int]] = []
        while len(out) < count:
            out += [index.tolist() for index, _ in itertools.islice(source, count - len(out))]
        return out

    whole = take(loader(), 60)
    first, second = loader(), loader()
    begun = take(first, done)
    second.load_state_dict(first.state_dict())
    assert begun + take(second, 60 - done) == whole
