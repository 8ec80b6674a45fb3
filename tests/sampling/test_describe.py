"""What a sampler says of its batches, against counts made by hand."""

from __future__ import annotations

import itertools

import pytest

from datasieve.sampling import GradientBalancedBatchSampler, SemanticIsolationBatchSampler


def test_two_conflicting_clusters_are_described_as_counted_by_hand() -> None:
    sampler = SemanticIsolationBatchSampler([0] * 8 + [1] * 8, [(0, 1)], batch_size=4)
    found = sampler.describe()
    assert (found.steps, found.epoch_steps, found.batches, found.conflicts) == (4, 4, 4, 0)
    # Four steps of six pairs, of which one in two is a pair of different clusters.
    assert found.conflicts_random == 4 * 6 * 0.5
    # All four of one cluster: 2 * (8 choose 4) / (16 choose 4) = 140 / 1820 of random batches have no conflict.
    assert found.conflicted_steps_random == pytest.approx(1 - 140 / 1820, abs=0.06)
    assert (found.entropy, found.clusters_per_step, found.coverage, found.repeats) == (0.0, 1.0, 1.0, 0)
    assert found.cluster_share == {"cluster 0": 0.5, "cluster 1": 0.5}
    assert found.effective_images == pytest.approx(16)
    assert found.conflicts_avoided == 12


def test_entropy_is_that_of_the_clusters_of_a_step() -> None:
    sampler = SemanticIsolationBatchSampler([0, 0, 1, 1], batch_size=4)
    assert sampler.describe().entropy == 1.0
    assert sampler.describe().clusters_per_step == 2.0


def test_some_steps_can_be_described_and_the_sampler_stays_where_it_was() -> None:
    sampler = SemanticIsolationBatchSampler([0] * 40, batch_size=2, seed=3)
    begun = list(itertools.islice(sampler, 5))
    assert sampler.describe(steps=3).coverage == pytest.approx(6 / 40)
    assert sampler.state_dict()["yielded"] == 5
    assert list(SemanticIsolationBatchSampler([0] * 40, batch_size=2, seed=3))[:5] == begun
    with pytest.raises(ValueError, match="at least 1"):
        sampler.describe(0)


def test_an_image_with_a_large_gradient_has_a_large_expected_share_of_it() -> None:
    sampler = GradientBalancedBatchSampler(10, batch_size=2, repeats=[20] * 10)
    assert sampler.describe().gradient_share.tolist() == pytest.approx([0.1] * 10)
    sampler.update(range(10), [1.0] * 9 + [50.0], [500] * 10)
    covering = sampler.describe()
    sampler.set_epoch(1)
    balanced = sampler.describe()
    assert covering.gradient_share.argmax() == 9
    assert balanced.gradient_share[9] < 0.5 * covering.gradient_share[9]
    assert balanced.effective_images > covering.effective_images
