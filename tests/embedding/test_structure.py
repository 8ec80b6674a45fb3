"""Conflict, clusters and spread on vectors whose structure is known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import silhouette_score

from datasieve.embedding import structure

Vectors = npt.NDArray[np.float32]


def around(direction: int, count: int, spread: float, seed: int = 0, dimensions: int = 64) -> Vectors:
    """Return unit vectors scattered about one axis."""
    values = np.random.default_rng(seed + direction).normal(0, spread, (count, dimensions))
    values[:, direction] += 1
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)


def test_the_one_among_many_has_the_largest_conflict_and_does_not_move_the_others() -> None:
    same = around(0, 9, 0.05)
    alone = structure.conflicts(same)
    together = structure.conflicts(np.concatenate([same, around(1, 1, 0.05)]))
    assert together.argmax() == 9
    assert together[9] == pytest.approx(1.0, abs=0.15)  # at a right angle
    assert np.abs(together[:9] - alone).max() < 0.05


def test_conflict_worked_out_by_hand() -> None:
    angles = np.radians([0, 10, 20, 90])
    vectors = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    # From the first, the middle of 10, 20 and 90 degrees is 20; the others, less the odd one, lie about 15 degrees off.
    expected = 1 - (np.cos(np.radians(20)) + np.cos(np.radians(15))) / 2
    assert structure.conflicts(vectors)[0] == pytest.approx(expected, abs=0.01)


def test_three_images_have_no_majority() -> None:
    assert np.isnan(structure.conflicts(around(0, 3, 0.1))).all()
    assert (structure.clusters(around(0, 3, 0.1), 0.3, 65) == 0).all()


def test_deviations_are_robust_standard_deviations() -> None:
    scores = np.array([0.1, 0.2, 0.3, 0.4, 0.9, np.nan])
    # Median 0.3, absolute deviations 0.2 0.1 0 0.1 0.6: MAD 0.1.
    assert structure.deviations(scores, 0.01)[4] == pytest.approx(0.6 / 0.14826)
    assert structure.deviations(scores, 0.5)[4] == pytest.approx(0.6 / 0.5)
    assert np.isnan(structure.deviations(scores, 0.5)[5])


@pytest.mark.parametrize(("first", "second"), [(2, 2), (5, 3), (40, 8), (1200, 900)])
def test_two_things_are_two_clusters_the_larger_first(first: int, second: int) -> None:
    vectors = np.concatenate([around(1, second, 0.05), around(0, first, 0.05)])
    labels = structure.clusters(vectors, 0.3, 65)
    assert len(set(labels[:second])) == len(set(labels[second:])) == 1
    assert labels[0] != labels[-1]
    if first > second:
        assert labels[-1] == 0


@pytest.mark.parametrize("count", [4, 5, 12, 200, 3000])
def test_one_thing_is_one_cluster(count: int) -> None:
    assert (structure.clusters(around(0, count, 0.1), 0.3, 65) == 0).all()


def test_groups_nearer_than_the_angle_are_one() -> None:
    tilted = around(0, 6, 0.01)
    tilted[3:, 1] += 0.8  # about 39 degrees from the others
    tilted /= np.linalg.norm(tilted, axis=1, keepdims=True)
    assert structure.clusters(tilted, 0.3, 30).max() == 1
    assert structure.clusters(tilted, 0.3, 65).max() == 0


def test_a_single_odd_image_is_no_cluster() -> None:
    labels = structure.clusters(np.concatenate([around(0, 8, 0.05), around(1, 1, 0.05)]), 0.3, 65)
    assert labels.max() == 0


def test_the_silhouette_is_that_of_scikit_learn() -> None:
    vectors = np.concatenate([around(0, 7, 0.2), around(1, 4, 0.2), around(2, 5, 0.2)])
    labels = np.array([0] * 7 + [1] * 4 + [2] * 5)
    distance = np.clip(1 - vectors.astype(float) @ vectors.T.astype(float), 0, 2)
    np.fill_diagonal(distance, 0)
    assert structure.silhouette(labels, distance) == pytest.approx(
        silhouette_score(distance, labels, metric="precomputed"), abs=1e-9
    )


def test_the_effective_rank_counts_directions() -> None:
    assert structure.effective_rank(np.eye(5, 9, dtype=np.float32)) == pytest.approx(5)
    assert structure.effective_rank(np.ones((6, 4), np.float32)) == pytest.approx(1)


def test_angles_between_groups() -> None:
    assert structure.angle(around(0, 50, 0.01), around(1, 50, 0.01)) == pytest.approx(90, abs=1)
    assert structure.angle(around(0, 50, 0.01), -around(0, 50, 0.01)) == pytest.approx(180, abs=1)


def test_what_most_have_in_common_is_not_moved_by_what_is_unlike_it() -> None:
    same, other = around(0, 6, 0.05), around(1, 3, 0.05)
    cosine = structure.core(np.concatenate([same, other]))
    assert (cosine[:6] > 0.9).all()
    assert (np.abs(cosine[6:]) < 0.3).all()


def test_in_a_mixed_concept_odd_images_do_not_stretch_their_own_measure() -> None:
    scores = np.array([0.3, 0.35, 0.4, 0.9, 0.95])
    assert structure.deviations(scores, 0.08, 0.12)[4] == pytest.approx(0.55 / 0.12)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(2, 16))
def test_any_vectors_get_scores_in_range_and_dense_labels(seed: int, count: int, dimensions: int) -> None:
    values = np.random.default_rng(seed).normal(size=(count, dimensions)).astype(np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    scores = structure.conflicts(values)
    assert np.isnan(scores).all() if count < 4 else ((scores >= -1e-6) & (scores <= 2 + 1e-6)).all()
    labels = structure.clusters(values, 0.3, 65)
    assert set(labels) == set(range(labels.max() + 1))


def test_copies_are_no_majority_and_no_cluster() -> None:
    things = np.concatenate([around(0, 5, 0.15), np.repeat(around(1, 1, 0.05), 6, axis=0)])
    distinct = np.array([True] * 6 + [False] * 5)
    assert structure.conflicts(things)[0] > 0.8, "six copies outvote five pictures"
    assert structure.conflicts(things, distinct)[0] < 0.7
    assert structure.clusters(things, 0.3, 65).max() == 1
    assert structure.clusters(things, 0.3, 65, distinct).max() == 0
