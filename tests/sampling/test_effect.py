"""What isolation does to a linear softmax model with contradictory targets (benchmarks/sampler_conflict.py)."""

from __future__ import annotations

import pytest

from benchmarks.sampler_conflict import compare


@pytest.mark.parametrize("seed", [0, 1])
def test_isolated_batches_hold_no_opposed_gradients_and_learn_as_much(seed: int) -> None:
    found = compare(seed)
    # Of the pairs in a random batch of 8 out of 256 images, 32 / 255 are of the other cluster of the same concept.
    assert found["random"]["conflict rate"] == pytest.approx(32 / 255, rel=0.1)
    assert found["isolated"]["conflict rate"] == 0
    assert found["isolated"]["alignment"] > 1.3 * found["random"]["alignment"]
    assert found["isolated"]["final loss"] == pytest.approx(found["random"]["final loss"], rel=0.1)
