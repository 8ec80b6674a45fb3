"""The plan of an epoch, alone: tables in, indices out."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from datasieve.sampling.groups import make_groups
from datasieve.sampling.layout import make_layout, make_table
from datasieve.sampling.plan import cover, draw, epoch_generator
from datasieve.sampling.pools import make_pools


def test_planning_needs_no_torch() -> None:
    code = "import datasieve.sampling.plan, datasieve.sampling.columns, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.floats(0.01, 5)), min_size=1, max_size=40),
    st.integers(1, 4),
    st.integers(1, 2),
    st.integers(0, 9),
)
def test_without_conflict_and_buckets_an_image_is_drawn_its_expected_times_rounded_down_or_up(
    images: list[tuple[int, int, float]], batch_size: int, batches: int, rounds: int
) -> None:
    clusters, demand, weights = (np.array(v) for v in zip(*images, strict=True))
    groups = make_groups(clusters)
    table = make_table(groups, np.zeros(len(images), np.int64), 1, demand)
    pools = make_pools(groups, table.counts(), batch_size, batches, epoch_generator(0, 0), 0.0)
    layout = make_layout(table, pools, batch_size, batches, drop_last=False, relax=False)
    planned = draw(table, layout, weights, rounds, epoch_generator(1, 2)).indices
    assert planned.shape == (rounds, batches, batch_size)
    shown = np.bincount(planned.reshape(-1), minlength=len(images))
    expected = weights * demand / (weights * demand).sum() * planned.size
    assert (np.abs(shown - expected) < 1 + 1e-9).all()


def test_showings_of_one_image_are_spread_over_the_epoch() -> None:
    groups = make_groups(np.zeros(50, int))
    table = make_table(groups, np.zeros(50, np.int64), 1, np.full(50, 4))
    pools = make_pools(groups, table.counts(), 5, 1, epoch_generator(0, 0), 0.0)
    layout = make_layout(table, pools, 5, 1, drop_last=False, relax=False)
    # Four showings of 50 images in random order would meet in about 5 * 4 / 2 * 3 / 199 * 40 = 6 pairs a plan.
    pairs = [
        sum(
            len(batch) - len(set(batch)) for batch in cover(table, layout, epoch_generator(0, e)).indices[:, 0].tolist()
        )
        for e in range(50)
    ]
    assert np.mean(pairs) < 1
