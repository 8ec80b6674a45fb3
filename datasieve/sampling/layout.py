"""How many batches each pool and bucket gets: the part of an epoch's plan that does not change from epoch to epoch.

A *cell* is what one pool holds in one bucket; a batch comes from one cell. A *round* is an effective batch, ranks times
accumulation batches that one optimizer step sees together, all of one pool. Sizes are in images, one per showing: an
image with three repeats counts three times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from datasieve.sampling.groups import Groups, Ints
from datasieve.sampling.pools import Pools, group_counts

Codes = npt.NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class Table:
    """The images of a sampler, sorted by *pair*: what one group holds in one bucket.

    Attributes:
        groups: the isolation groups.
        bucket: (N,) bucket of each image, 0 to K - 1.
        buckets: K.
        demand: (N,) how often an epoch shows each image at least; images with 0 are never shown.
        active: the images with a demand, ascending.
        pair: (N,) pair of each image.
        pair_group, pair_bucket: (M,) what each pair is.
        by_pair: active images, sorted by pair; pair m is `by_pair[pair_start[m]:pair_start[m + 1]]`.
        pair_start: (M + 1,).
    """

    groups: Groups
    bucket: Ints
    buckets: int
    demand: Ints
    active: Ints
    pair: npt.NDArray[np.int32]
    pair_group: Ints
    pair_bucket: Ints
    by_pair: Ints
    pair_start: Ints

    def counts(self) -> Ints:
        """Return (G, K) active images of each group in each bucket."""
        if len(self.active) == len(self.pair):
            return group_counts(self.groups, self.bucket, self.buckets)
        keys = self.groups.of_image[self.active] * self.buckets + self.bucket[self.active]
        flat = np.bincount(keys, minlength=len(self.groups) * self.buckets)
        return flat.reshape(len(self.groups), self.buckets).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Layout:
    """The cells of one way of making pools.

    Attributes:
        pools: the pools.
        batch_size, batches: images of a batch; batches of a round.
        rounds: (P,) rounds of each pool in an epoch that covers the set.
        cell_of_pair: (M,) cell of each pair.
        cell_pool: (C,) pool of each cell, ascending.
        cell_demand: (C,) showings that an epoch asks of it.
        cell_batches: (C,) its batches in an epoch that covers the set; with `drop_last` before whole rounds are cut.
        lent: cell -> pairs it may borrow from without conflict, best first.
        forced: cell -> pairs that it takes images from although they conflict (policy "relax").
    """

    pools: Pools
    batch_size: int
    batches: int
    rounds: Ints
    cell_of_pair: Ints
    cell_pool: Ints
    cell_demand: Ints
    cell_batches: Ints
    lent: dict[int, Ints]
    forced: dict[int, Ints]

    @property
    def total_rounds(self) -> int:
        """Rounds of an epoch that covers the set."""
        return int(self.rounds.sum())

    def with_rounds(self, total: int) -> Layout:
        """Return the layout with rounds added to its fullest cell until there are `total`."""
        more = total - self.total_rounds
        if more <= 0:
            return self
        cell = int(self.cell_demand.argmax())
        rounds, cell_batches = self.rounds.copy(), self.cell_batches.copy()
        rounds[self.cell_pool[cell]] += more
        cell_batches[cell] += more * self.batches
        return replace(self, rounds=rounds, cell_batches=cell_batches)


def make_table(groups: Groups, bucket: Ints, buckets: int, demand: Ints) -> Table:
    """Return the table of N images: their groups, buckets and demands, all (N,)."""
    keys = groups.of_image * buckets + bucket
    present = np.flatnonzero(np.bincount(keys, minlength=len(groups) * buckets))
    lookup = np.empty(len(groups) * buckets, np.int32)
    lookup[present] = np.arange(len(present), dtype=np.int32)
    pair = lookup[keys]
    active = np.flatnonzero(demand > 0)
    by_pair = active[np.argsort(narrow(pair[active], len(present)), kind="stable")]
    pair_start = np.searchsorted(pair[by_pair], np.arange(len(present) + 1))
    return Table(
        groups, bucket, buckets, demand, active, pair, present // buckets, present % buckets, by_pair, pair_start
    )


def narrow(codes: npt.NDArray[np.integer], count: int) -> npt.NDArray[np.integer]:
    """Return codes below `count` in 16 bits where they fit: NumPy sorts those by radix, several times faster."""
    return codes.astype(np.uint16) if count <= 1 << 16 else codes


def make_layout(table: Table, pools: Pools, batch_size: int, batches: int, *, drop_last: bool, relax: bool) -> Layout:
    """Lay out one epoch.

    Args:
        table: the images.
        pools: which groups may meet.
        batch_size: images of a batch.
        batches: batches of a round.
        drop_last: leave out what does not fill a round, instead of showing images again.
        relax: pools that are blocked fill their batches with conflicting images.
    """
    keys = pools.of_group[table.pair_group] * table.buckets + table.pair_bucket
    cells, cell_of_pair = np.unique(keys, return_inverse=True)
    cell_of_pair = cell_of_pair.reshape(-1).astype(np.int64)
    cell_pool = cells // table.buckets
    of_image = cell_of_pair[table.pair[table.active]]
    demand = np.bincount(of_image, table.demand[table.active], len(cells)).astype(np.int64)
    if drop_last:
        cell_batches = demand // batch_size
        rounds = np.bincount(cell_pool, cell_batches, pools.count).astype(np.int64) // batches
    else:
        cell_batches = -(-demand // batch_size)
        used = np.bincount(cell_pool, cell_batches, pools.count).astype(np.int64)
        rounds = -(-used // batches)
        # The batches that complete a pool's last round come from its fullest cell.
        by_fullness = np.lexsort((demand, cell_pool))
        fullest = by_fullness[np.searchsorted(cell_pool[by_fullness], np.arange(pools.count), "right") - 1]
        cell_batches[fullest] += rounds * batches - used
    lent: dict[int, Ints] = {}
    forced: dict[int, Ints] = {}
    for cell in _cells_of(cell_pool, [*pools.lent, *pools.blocked]):
        pool, bucket = int(cell_pool[cell]), int(cells[cell] % table.buckets)
        same = table.pair_bucket == bucket
        friends = pools.lent.get(pool, np.empty(0, np.int64))
        rank = np.full(len(table.groups), -1, np.int64)
        rank[friends] = np.arange(len(friends))
        of_pair = rank[table.pair_group]
        found = np.flatnonzero(same & (of_pair >= 0))
        if found.size:
            lent[cell] = found[np.argsort(of_pair[found])]
        if relax and pool in pools.blocked:
            others = same & (of_pair < 0) & (pools.of_group[table.pair_group] != pool)
            if others.any():
                forced[cell] = np.flatnonzero(others)
    return Layout(pools, batch_size, batches, rounds, cell_of_pair, cell_pool, demand, cell_batches, lent, forced)


def _cells_of(cell_pool: Ints, pools: list[int]) -> list[int]:
    """Return the cells of some pools, each once."""
    found: list[int] = np.flatnonzero(np.isin(cell_pool, pools)).tolist()
    return found
