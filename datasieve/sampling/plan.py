"""One epoch's batches, from tables alone: NumPy, no state, no pixels.

The same table, layout, seed and epoch give the same plan in every process and on every platform: random numbers come
from NumPy's PCG64, and what decides on order are integers and operations that IEEE 754 defines to the last bit (so
weights that were computed elsewhere must be the same to the last bit too). Two plans exist.

*Cover*: every image at least as often as its demand asks; a cell that does not divide into full batches shows images
again from the start of its shuffled order, first borrowing from groups that its pool does not conflict with.

*Draw*: showings in proportion to weights, by systematic sampling (Madow 1949): the number of rounds of a pool, of
batches of a bucket and of showings of an image are each the floor or the ceiling of their expectation, and right on
average. An image whose group is also lent to other pools has its weight divided evenly among them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from datasieve.sampling.groups import Floats, Ints
from datasieve.sampling.layout import Layout, Table, narrow


class Plan(NamedTuple):
    """The batches of one epoch.

    Attributes:
        indices: (rounds, batches of a round, images of a batch) image indices.
        relaxed: (rounds,) True where conflicting images may have been let in.
    """

    indices: Ints
    relaxed: npt.NDArray[np.bool_]


def epoch_generator(seed: int, epoch: int) -> np.random.Generator:
    """Return the source of random numbers of one epoch."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed & (2**64 - 1), epoch])))


def cover(table: Table, layout: Layout, generator: np.random.Generator, *, drop_last: bool = False) -> Plan:
    """Return an epoch that shows every active image as often as it is demanded, or (`drop_last`) only full rounds."""
    order = _shuffled(table, generator)
    cell = layout.cell_of_pair[table.pair[order]]
    order = order[np.argsort(narrow(cell, len(layout.cell_pool)), kind="stable")]
    have = layout.cell_demand
    cell_batches = _whole_rounds(layout, generator) if drop_last else layout.cell_batches
    slots = cell_batches * layout.batch_size
    first_have, first_slot = _starts(have), _starts(slots)
    out = np.empty(int(slots.sum()), np.int64)
    within = np.arange(len(order)) - np.repeat(first_have, have)
    target = within + np.repeat(first_slot, have)
    if drop_last:
        kept = within < np.repeat(slots, have)
        out[target[kept]] = order[kept]
    else:
        out[target] = order
    short = np.flatnonzero(slots > have)
    borrowing = np.array([c in layout.lent or c in layout.forced for c in short.tolist()], bool)
    alone = short[~borrowing]
    missing = slots[alone] - have[alone]
    step = np.arange(int(missing.sum())) - np.repeat(_starts(missing), missing)
    out[np.repeat(first_slot[alone] + have[alone], missing) + step] = order[
        np.repeat(first_have[alone], missing) + step % np.repeat(have[alone], missing)
    ]
    for c in short[borrowing].tolist():
        own = order[first_have[c] : first_have[c] + have[c]]
        room = slice(first_slot[c] + have[c], first_slot[c] + slots[c])
        out[room] = _filled(table, layout, c, own, int(slots[c] - have[c]), generator)
    relaxed = np.zeros(len(layout.rounds), bool)
    relaxed[layout.cell_pool[list(layout.forced)]] = True
    rounds = np.bincount(layout.cell_pool, cell_batches, len(layout.rounds)).astype(np.int64) // layout.batches
    return _dealt(out, layout, rounds, relaxed, generator)


def draw(table: Table, layout: Layout, weights: Floats, rounds: int, generator: np.random.Generator) -> Plan:
    """Return an epoch of `rounds` rounds in which showings are in proportion to weights.

    Args:
        table, layout: the images and their cells.
        weights: (N,) not negative; expected showings are weight times demand, scaled to the slots there are.
        rounds: rounds of the epoch.
        generator: where random numbers come from.
    """
    image = generator.permutation(table.active)
    lent_cell, lent_pair = _loans(layout)
    shares = np.bincount(lent_pair, minlength=len(layout.cell_of_pair)) + 1
    cell = layout.cell_of_pair[table.pair[image]]
    if lent_pair.size:
        spans = table.pair_start[lent_pair + 1] - table.pair_start[lent_pair]
        step = np.arange(int(spans.sum())) - np.repeat(_starts(spans), spans)
        loaned = table.by_pair[np.repeat(table.pair_start[lent_pair], spans) + step]
        mixed = generator.permutation(len(image) + len(loaned))
        image = np.concatenate([image, loaned])[mixed]
        cell = np.concatenate([cell, np.repeat(lent_cell, spans)])[mixed]
    order = np.argsort(narrow(cell, len(layout.cell_pool)), kind="stable")
    image, cell = image[order], cell[order]
    weight = weights[image] * table.demand[image] / shares[table.pair[image]]
    cells, pools = len(layout.cell_pool), len(layout.rounds)
    of_cell = np.bincount(cell, weight, cells)
    of_pool = np.bincount(layout.cell_pool, of_cell, pools)
    pool_rounds = _systematic(of_pool, np.zeros(pools, np.int64), np.array([rounds]), generator)
    cell_batches = _systematic(of_cell, layout.cell_pool, pool_rounds * layout.batches, generator)
    slots = cell_batches * layout.batch_size
    times = _systematic(weight, cell, slots, generator)
    out = np.repeat(image, times)
    if times.max(initial=0) > 1:  # showings of one image go far apart instead of side by side
        nth = np.arange(len(out)) - np.repeat(_starts(times), times)
        place = (nth + generator.random(len(out))) / np.repeat(times, times)
        out = out[np.lexsort((place, np.repeat(cell, times)))]
    return _dealt(out, layout, pool_rounds, np.zeros(pools, bool), generator)


def _shuffled(table: Table, generator: np.random.Generator) -> Ints:
    """Return every showing that is demanded, in random order; showings of one image are spread over the order."""
    demand = table.demand[table.active]
    if demand.max(initial=0) <= 1:
        return generator.permutation(table.active)
    image = np.repeat(table.active, demand)
    nth = np.arange(len(image)) - np.repeat(_starts(demand), demand)
    return image[np.argsort((nth + generator.random(len(image))) / np.repeat(demand, demand), kind="stable")]


def _whole_rounds(layout: Layout, generator: np.random.Generator) -> Ints:
    """Return the batches of each cell after batches that fill no round are taken away, at random."""
    cell = np.repeat(np.arange(len(layout.cell_pool)), layout.cell_batches)
    pool = layout.cell_pool[cell]
    order = np.lexsort((generator.random(len(cell)), pool))
    per_pool = np.bincount(pool, minlength=len(layout.rounds))
    place = np.arange(len(cell)) - np.repeat(_starts(per_pool), per_pool)
    kept = order[place < np.repeat(layout.rounds * layout.batches, per_pool)]
    return np.bincount(cell[kept], minlength=len(layout.cell_pool)).astype(np.int64)


def _filled(table: Table, layout: Layout, cell: int, own: Ints, room: int, generator: np.random.Generator) -> Ints:
    """Return `room` images to fill up a cell: borrowed ones, then (relaxed) conflicting ones, then its own again.

    Conflicting ones only until a batch can be filled with different images.
    """
    borrowed = _sample(table, layout.lent.get(cell), room, generator)
    room -= len(borrowed)
    different = len(np.unique(own)) + len(borrowed)
    forced = _sample(table, layout.forced.get(cell), min(room, layout.batch_size - different), generator)
    room -= len(forced)
    again = np.concatenate([own, borrowed])
    return np.concatenate([borrowed, forced, again[np.arange(room) % len(again)]])


def _sample(table: Table, pairs: Ints | None, most: int, generator: np.random.Generator) -> Ints:
    """Return up to `most` different images of some pairs."""
    if pairs is None or most <= 0:
        return np.empty(0, np.int64)
    spans = table.pair_start[pairs + 1] - table.pair_start[pairs]
    chosen = generator.choice(int(spans.sum()), min(most, int(spans.sum())), replace=False)
    which = np.searchsorted(np.cumsum(spans), chosen, "right")
    found: Ints = table.by_pair[table.pair_start[pairs[which]] + chosen - _starts(spans)[which]]
    return found


def _loans(layout: Layout) -> tuple[Ints, Ints]:
    """Return cells that borrow and the pairs they borrow from, one entry a loan."""
    cells = [np.full(len(pairs), cell, np.int64) for cell, pairs in layout.lent.items()]
    none = np.empty(0, np.int64)
    return np.concatenate([none, *cells]), np.concatenate([none, *layout.lent.values()])


def _systematic(weight: npt.NDArray[Any], part: Ints, totals: Ints, generator: np.random.Generator) -> Ints:
    """Divide whole numbers by weight: within each part (ascending in `part`) counts add up to its total.

    Each count is the floor or ceiling of its expectation. A part without weight divides nothing.
    """
    sums = np.bincount(part, weight, len(totals))
    expected = weight * np.divide(totals, sums, out=np.zeros(len(totals)), where=sums > 0)[part]
    whole = np.cumsum(expected)
    sizes = np.bincount(part, minlength=len(totals))
    last = np.cumsum(sizes) - 1
    before = np.concatenate([[0.0], whole])[last - sizes + 1]
    offset = generator.random(len(totals))
    reached = np.floor(whole - before[part] + offset[part]).astype(np.int64)
    reached = np.minimum(reached, totals[part])
    filled = sizes > 0
    reached[last[filled]] = np.where(sums > 0, totals, 0)[filled]  # rounding must not lose or add one
    counts: Ints = np.diff(reached, prepend=0)
    starts = (last - sizes + 1)[filled]
    counts[starts] = reached[starts]
    return counts


def _starts(sizes: Ints) -> Ints:
    starts: Ints = np.cumsum(sizes) - sizes
    return starts


def _dealt(
    out: Ints, layout: Layout, rounds: Ints, relaxed: npt.NDArray[np.bool_], generator: np.random.Generator
) -> Plan:
    """Cut showings that are sorted by pool into rounds, and shuffle the rounds."""
    shape = (-1, layout.batches, layout.batch_size)
    order = generator.permutation(int(rounds.sum()))
    return Plan(out.reshape(shape)[order], np.repeat(relaxed, rounds)[order])
