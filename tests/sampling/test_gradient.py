"""Balance by gradient: what the weights are, and what they do to an epoch."""

from __future__ import annotations

import collections
import itertools
import json
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datasieve.sampling import GradientBalancedBatchSampler, IsolationGradientSampler
from datasieve.sampling.gradient_history import GradientHistory


def test_weights_are_the_softmax_of_minus_beta_z() -> None:
    history = GradientHistory(4)
    history.z, history.heard, history.observations = np.array([-1.0, 0.0, 1.0, 2.0]), np.zeros(4, int), 0
    expected = torch.softmax(-0.7 * torch.tensor([-1.0, 0.0, 1.0, 2.0], dtype=torch.double), 0).numpy()
    np.testing.assert_allclose(history.weights(0.7), 4 * expected)


def test_the_timestep_that_was_drawn_does_not_count_against_an_image() -> None:
    generator = np.random.default_rng(0)
    history = GradientHistory(20)
    for _ in range(300):
        index, t = generator.integers(0, 20, 8), generator.integers(0, 1000, 8)
        # Norms follow the timestep by a factor of up to e^4; image 3 is e times larger at any timestep.
        norms = np.exp(t / 250 + 0.3 * generator.standard_normal(8) + (index == 3))
        history.update(index, norms, t)
    z = history.current()
    assert z.argmax() == 3
    assert z[3] > 1.5
    assert np.abs(np.delete(z, 3)).max() < 1.0


def test_one_wild_norm_moves_an_image_by_no_more_than_the_clip() -> None:
    history = GradientHistory(2, smoothing=1.0)
    history.update([0] * 50, np.linspace(0.9, 1.1, 50), [500] * 50)
    history.update([1], [1e30], [500])
    assert history.current()[1] <= 3.0


def test_what_is_known_of_an_image_fades_by_half_in_a_half_life() -> None:
    history = GradientHistory(10, half_life=2.0)
    history.update([0, 1], [1.0, 9.0], [10, 10])
    before = history.current()[1]
    history.update([0] * 20, [1.0] * 20, [900] * 20)  # twenty norms are two epochs of ten images
    assert history.current()[1] == pytest.approx(before / 2)


def test_a_zero_gradient_is_a_finding_and_never_a_high_weight() -> None:
    history = GradientHistory(5)
    history.update([0, 1, 2, 3, 4], [1.0, 0.0, 2.0, float("nan"), 4.0], [5] * 5)
    assert [(f.index, f.zero, f.not_finite) for f in history.findings()] == [(1, 1, 0), (3, 0, 1)]
    assert history.weights(0.7)[1] <= 1.0
    assert np.isfinite(history.weights(0.7)).all()


def test_images_with_large_gradients_appear_less_and_every_image_appears_in_every_fourth_epoch() -> None:
    sampler = GradientBalancedBatchSampler(40, batch_size=4, seed=1, cover_every=4)
    shown = collections.Counter[int]()
    for epoch in range(12):
        batches = list(sampler)
        assert len(batches) == len(sampler) == 10
        if epoch % 4 == 0:
            assert set(itertools.chain(*batches)) == set(range(40))
        else:
            shown.update(itertools.chain(*batches))
        norms = [8.0 if i < 10 else 1.0 for batch in batches for i in batch]
        sampler.update(list(itertools.chain(*batches)), norms, [100] * len(norms))
    large = sum(shown[i] for i in range(10)) / 10
    small = sum(shown[i] for i in range(10, 40)) / 30
    assert large < small / 2
    assert sampler.describe().gradient_share.sum() == pytest.approx(1)


def test_showings_of_a_weighted_epoch_are_those_expected_of_the_weights() -> None:
    sampler = GradientBalancedBatchSampler(10, batch_size=5, seed=0, beta=0.7, repeats=[10] * 10)
    sampler.update(range(10), np.exp(np.arange(10) / 3), [0] * 10)
    expected = sampler.selection_weights() / sampler.selection_weights().sum() * 100
    shown = np.bincount(sampler.batches_of(1).reshape(-1), minlength=10)
    assert np.abs(shown - expected).max() < 1


def test_importance_weights_undo_the_selection_on_average_and_are_off_by_default() -> None:
    loss = np.arange(1.0, 11.0)
    sampler = GradientBalancedBatchSampler(10, batch_size=5, seed=0, repeats=[50] * 10, importance=True)
    sampler.update(range(10), np.exp(loss / 4), [0] * 10)
    sampler.set_epoch(1)
    drawn = np.array(list(sampler)).reshape(-1)
    corrected = (loss[drawn] * sampler.importance_weights(drawn)).mean()
    assert corrected == pytest.approx(loss.mean(), rel=0.02)
    assert loss[drawn].mean() < 0.9 * loss.mean()
    plain = GradientBalancedBatchSampler(10, batch_size=5)
    assert plain.importance_weights([1, 2]).tolist() == [1.0, 1.0]


def composed(**options: object) -> IsolationGradientSampler:
    """Return a sampler of three clusters, two of which conflict."""
    clusters = [i % 3 for i in range(30)]
    return IsolationGradientSampler(clusters, [(0, 1)], batch_size=4, seed=2, **options)


def test_the_composed_sampler_keeps_both_promises() -> None:
    sampler = composed(cover_every=2)
    for epoch in range(6):
        batches = list(sampler)
        for batch in batches:
            assert len({i % 3 for i in batch} & {0, 1}) < 2
            sampler.update(batch, [5.0 if i < 6 else 1.0 for i in batch], [0] * 4)
        assert epoch % 2 or set(itertools.chain(*batches)) == set(range(30))
    assert sampler.selection_weights()[:6].max() < sampler.selection_weights()[6:].min()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 40), st.sampled_from(["json", "pickle"]))
def test_resuming_with_feedback_gives_the_same_rest_and_the_same_later_epochs(done: int, through: str) -> None:
    def run(sampler: IsolationGradientSampler, total: int) -> list[list[int]]:
        out: list[list[int]] = []
        while len(out) < total:
            for batch in sampler:
                out.append(batch)
                sampler.update(batch, [1.0 + i for i in batch], [i * 30 for i in batch])
                if len(out) == total:
                    break
        return out

    whole = composed()
    expected = run(composed(), 50)
    begun = run(whole, done)
    state = whole.state_dict()
    if through == "json":
        resumed = composed()
        resumed.load_state_dict(json.loads(json.dumps(state)))
    else:
        resumed = pickle.loads(pickle.dumps(whole))
        resumed.load_state_dict(state)
    assert begun + run(resumed, 50 - done) == expected


def test_feedback_that_cannot_be_is_refused() -> None:
    sampler = GradientBalancedBatchSampler(3, batch_size=1)
    with pytest.raises(ValueError, match="0 to 2"):
        sampler.update([3], [1.0])
    with pytest.raises(ValueError, match="negative"):
        sampler.update([0], [-1.0])
    with pytest.raises(ValueError, match="2 indices, 1 gradient norms"):
        sampler.update([0, 1], [1.0])
    with pytest.raises(ValueError, match="drop_last"):
        IsolationGradientSampler([0, 1], batch_size=1, drop_last=True)
