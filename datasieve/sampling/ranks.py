"""Which of several processes a sampler works for."""

from __future__ import annotations

import sys
from typing import Any, Literal

import torch.distributed as dist


def place(num_replicas: int | None, rank: int | Literal["all"] | None) -> tuple[int, int | Literal["all"]]:
    """Return number of ranks and the rank, found out where they are None.

    accelerate's `prepare` deals out batches itself, every process taking each n-th of one common sequence. A sampler
    that took its own share before would lose the others' then, so under accelerate the default is "all".

    Raises ValueError for a rank that does not exist.
    """
    joined = dist.is_available() and dist.is_initialized()
    count = num_replicas if num_replicas is not None else dist.get_world_size() if joined else 1
    if rank is None:
        if num_replicas is not None and num_replicas > 1 and not joined:
            raise ValueError(f'with num_replicas={num_replicas} the rank is needed: a number, or "all"')
        rank = "all" if _accelerate_deals() else dist.get_rank() if joined and count > 1 else 0
    if count < 1 or (rank != "all" and not 0 <= rank < count):
        raise ValueError(f"there is no rank {rank} of {count}")
    return count, rank


def gathered(value: Any) -> list[Any]:
    """Return `value` of every process, in the order of ranks; alone, a list of one. All processes must call it."""
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return [value]
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, value)
    return everyone


def _accelerate_deals() -> bool:
    state = sys.modules.get("accelerate.state")
    return state is not None and bool(getattr(state.PartialState, "_shared_state", None))
