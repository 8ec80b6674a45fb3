"""Sorting isolation groups into pools without conflict: an epoch draws each effective batch from one pool.

This is graph colouring, weighted by images: groups go in order of size to the allowed pool that holds fewest images
(longest-processing-time first), and a second pass with the pools of the first one open from the start evens them out.
A pool that cannot fill an effective batch with different images borrows from groups that conflict with none of its
own; if that is not enough, its groups are taken apart and each borrows for itself. What is still short then is blocked
by its conflicts, not by the way pools were made (up to the greed of the borrowing, which takes large groups first).
Finding the fewest pools is NP-hard; what is promised is what was constructed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from datasieve.sampling.groups import Groups, Ints


@dataclass(frozen=True, slots=True)
class Pools:
    """One way of sorting groups into pools.

    Attributes:
        of_group: (G,) the pool of each group, 0 to P - 1.
        count: P.
        lent: pool -> groups that it may borrow images from, most useful first; compatible with all in the pool and
            with each other.
        blocked: pool -> different images that an effective batch of it can hold at most, where that is too few.
        size: the largest batch size at which every pool can fill its batches with different images; 0 if none.
    """

    of_group: Ints
    count: int
    lent: dict[int, Ints]
    blocked: dict[int, int]
    size: int


def make_pools(
    groups: Groups, counts: Ints, batch_size: int, batches: int, generator: np.random.Generator, jitter: float
) -> Pools:
    """Sort groups into pools for rounds of `batches` batches of `batch_size` images.

    Args:
        groups: G groups.
        counts: (G, K) images of each group in each bucket.
        batch_size: images of a batch.
        batches: batches of an effective batch (ranks times accumulation).
        generator: where ties and jitter come from.
        jitter: groups are ordered by size, raised by up to this share at random, so that other draws give other pools.
    """
    weight = groups.size * (1 + jitter * generator.random(len(groups)))
    order = np.argsort(-weight, kind="stable")
    of_group, count = _colour(groups, order, 0)
    if count > 1:
        again, second = _colour(groups, order, count)
        if second <= count:
            of_group, count = again, second
    per_bucket = counts.sum(0)
    lent: dict[int, Ints] = {}
    blocked: dict[int, int] = {}
    size = batch_size
    queue = list(range(count))
    taken_apart: set[int] = set()
    members_of = _members(of_group, count)
    while queue:
        pool = queue.pop()
        members = members_of[pool]
        own = counts[members].sum(0)
        reach = _reach(own, own, per_bucket, batches)
        if reach >= batch_size:
            continue
        borrowed = _borrow(groups, counts, members, batch_size, batches)
        supply = own + counts[borrowed].sum(0)
        reach = _reach(own, supply, per_bucket, batches)
        if reach < batch_size and len(members) > 1 and pool not in taken_apart:
            for group in members[1:].tolist():
                of_group[group] = count
                members_of.append(np.array([group]))
                queue.append(count)
                count += 1
            members_of[pool] = members[:1]
            taken_apart.add(pool)
            queue.append(pool)
            continue
        if borrowed.size:
            lent[pool] = borrowed
        if reach < batch_size:
            blocked[pool] = int(min(_reach_images(own, supply, per_bucket, batch_size), int(supply.sum())))
            size = min(size, reach)
    return Pools(of_group, count, lent, blocked, size)


def _colour(groups: Groups, order: Ints, pools: int) -> tuple[Ints, int]:
    """Return each group's pool and the number of pools, opening a new one only where no open one is allowed."""
    of_group = np.full(len(groups), -1, np.int64)
    load = np.zeros(max(pools, 16))
    used: dict[int, list[int]] = {}
    sizes, concepts = groups.size, groups.concept.tolist()
    start = groups.start.tolist()
    for group in order.tolist():
        free = load[:pools].copy()
        near = of_group[groups.neighbour[start[group] : start[group + 1]]]
        free[near[near >= 0]] = np.inf
        concept = concepts[group]
        if concept >= 0:
            free[used.setdefault(concept, [])] = np.inf
        pool = int(free.argmin()) if pools else 0
        if not pools or free[pool] == np.inf:
            pool, pools = pools, pools + 1
            if pools > len(load):
                load = np.concatenate([load, np.zeros(len(load))])
        of_group[group] = pool
        load[pool] += sizes[group]
        if concept >= 0:
            used[concept].append(pool)
    filled, of_group = np.unique(of_group, return_inverse=True)
    return of_group.reshape(-1).astype(np.int64), len(filled)


def _members(of_group: Ints, count: int) -> list[Ints]:
    order = np.argsort(of_group, kind="stable")
    edges = np.searchsorted(of_group[order], np.arange(1, count))
    return [part.astype(np.int64) for part in np.split(order, edges)]


def _reach(own: Ints, supply: Ints, per_bucket: Ints, batches: int) -> int:
    """Return the largest batch size that this supply fills with different images.

    A bucket that is small in the whole set sets no limit here: its shortage is not due to conflicts, and is filled by
    showing images again. The same holds for a set that is smaller than an effective batch.
    """
    unlimited = np.iinfo(np.int64).max
    short = (own > 0) & (supply < per_bucket)
    by_bucket = int(supply[short].min()) if short.any() else unlimited
    whole = int(supply.sum())
    by_round = unlimited if whole == int(per_bucket.sum()) else whole // batches
    return min(by_bucket, by_round)


def _reach_images(own: Ints, supply: Ints, per_bucket: Ints, batch_size: int) -> int:
    """Return the fewest different images that a batch of one of the pool's buckets can be filled with."""
    tight = (own > 0) & (supply < np.minimum(per_bucket, batch_size))
    return int(supply[tight].min()) if tight.any() else int(supply.sum())


def _borrow(groups: Groups, counts: Ints, members: Ints, batch_size: int, batches: int) -> Ints:
    """Return groups that can join `members` without a conflict, until batches can be filled or none is left.

    Greedy: those with most images in the members' buckets first.
    """
    own = counts[members].sum(0)
    supply, per_bucket = own.copy(), counts.sum(0)
    open_groups = ~groups.against(members)
    open_groups[members] = False
    useful = counts[:, own > 0].sum(1)
    candidates = np.flatnonzero(open_groups)
    candidates = candidates[np.lexsort((candidates, -groups.size[candidates], -useful[candidates]))]
    chosen: list[int] = []
    while candidates.size and _reach(own, supply, per_bucket, batches) < batch_size:
        first = int(candidates[0])
        chosen.append(first)
        supply = supply + counts[first]
        candidates = candidates[1:]
        candidates = candidates[~groups.against(np.array([first]))[candidates]]
    return np.array(chosen, np.int64)


def blocking(groups: Groups, pools: Pools) -> list[tuple[str, int]]:
    """Return the names of the groups that block, and how many different images a batch with them can hold."""
    found: Iterable[tuple[str, int]] = (
        (groups.names[group], images)
        for pool, images in pools.blocked.items()
        for group in np.flatnonzero(pools.of_group == pool).tolist()
    )
    return sorted(found, key=lambda pair: (pair[1], pair[0]))


def group_counts(groups: Groups, bucket: npt.NDArray[np.int64], buckets: int) -> Ints:
    """Return (G, K) images of each group in each bucket."""
    keys = groups.of_image * buckets + bucket
    return np.bincount(keys, minlength=len(groups) * buckets).reshape(len(groups), buckets).astype(np.int64)
