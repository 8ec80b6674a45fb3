"""Which groups conflict: by concept, by pair, by angle."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from datasieve.sampling import IsolationInfeasible, SemanticIsolationBatchSampler
from datasieve.sampling.groups import Groups, make_groups


def conflicting(groups: Groups) -> set[tuple[int, int]]:
    """Return the pairs of images that conflict, each with the lower index first."""
    count = len(groups.of_image)
    pairs = itertools.combinations(range(count), 2)
    return {(a, b) for a, b in pairs if groups.conflicting_pairs(np.array([a, b]))}


def test_without_concepts_only_the_listed_pairs_bind() -> None:
    embeddings = np.ones((3, 2))
    groups = make_groups(["x", "y", "z"], [("z", "x")], embeddings=embeddings)
    assert conflicting(groups) == {(0, 2)}


def test_two_clusters_of_one_concept_never_meet_at_any_angle() -> None:
    groups = make_groups([0, 1, 0, 1], concepts=["cat", "cat", "dog", "cow"])
    assert conflicting(groups) == {(0, 1)}


def test_a_listed_pair_binds_these_clusters_in_every_concept() -> None:
    groups = make_groups([0, 1, 0, 1], [(0, 1)], concepts=["a", "b", "c", "d"])
    assert conflicting(groups) == {(0, 1), (0, 3), (1, 2), (2, 3)}


@pytest.mark.parametrize(("degrees", "meet"), [(59, False), (61, True)])
def test_concepts_closer_than_sixty_degrees_seen_from_the_reference_do_not_meet(degrees: float, meet: bool) -> None:
    a = np.radians(degrees)
    embeddings = np.array([[1, 0, 0], [np.cos(a), np.sin(a), 0]])
    groups = make_groups([0, 1], concepts=["cat", "dog"], embeddings=embeddings, reference=[0, 0, 0])
    assert (conflicting(groups) == set()) is meet


def test_angles_are_seen_from_the_mean_of_the_set_when_no_reference_is_given() -> None:
    # All four directions lie within 12 degrees of each other; seen from their mean they are at right angles or more.
    tilt = np.array([[0.1, 0], [0, 0.1], [-0.1, 0], [0, -0.1]])
    embeddings = np.column_stack([tilt, np.ones(4)])
    names = ["a", "b", "c", "d"]
    assert conflicting(make_groups([0] * 4, concepts=names, embeddings=embeddings)) == set()
    origin = make_groups([0] * 4, concepts=names, embeddings=embeddings, reference=np.zeros(3))
    assert len(conflicting(origin)) == 6


def test_the_share_of_conflicting_random_pairs_is_counted_right() -> None:
    generator = np.random.default_rng(4)
    clusters, concepts = generator.integers(0, 4, 30), generator.integers(0, 3, 30)
    groups = make_groups(clusters, [(0, 1), (2, 3)], concepts)
    hits = [groups.conflicting_pairs(np.array([a, b])) for a in range(30) for b in range(30)]
    assert groups.conflict_share() == pytest.approx(np.mean(hits))


def test_a_cluster_that_conflicts_with_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="cluster 3 with itself"):
        make_groups([3, 4], [(3, 3)])


def test_an_image_without_a_cluster_or_with_a_broken_embedding_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        make_groups([0.0, np.nan])
    with pytest.raises(ValueError, match="NaN or infinite"):
        make_groups([0, 1], concepts=["a", "b"], embeddings=[[1.0, np.inf], [0.0, 1.0]])
    with pytest.raises(ValueError, match="3 entries, clusters has 2"):
        make_groups([0, 1], concepts=["a", "b", "c"])


def test_infeasible_batches_are_refused_with_a_size_that_works_and_the_clusters_that_block() -> None:
    clusters = [0] * 50 + [1] * 3
    with pytest.raises(IsolationInfeasible, match=r"cluster 1 of 'cat' \(at most 3\)") as caught:
        SemanticIsolationBatchSampler(clusters, concepts=["cat"] * 53, batch_size=8)
    assert caught.value.feasible_batch_size == 3
    assert caught.value.blocking == [("cluster 1 of 'cat'", 3)]
    assert isinstance(caught.value, ValueError)
    works = SemanticIsolationBatchSampler(clusters, concepts=["cat"] * 53, batch_size=3)
    assert all(len(set(batch)) == 3 for batch in works)


def test_the_effective_batch_counts_not_the_batch() -> None:
    clusters = [0] * 50 + [1] * 8
    assert len(SemanticIsolationBatchSampler(clusters, [(0, 1)], batch_size=4, accumulation=2)) == 16
    with pytest.raises(IsolationInfeasible, match=r"4 \(16 images a step\)") as caught:
        SemanticIsolationBatchSampler(clusters, [(0, 1)], batch_size=4, accumulation=2, num_replicas=2, rank=0)
    assert caught.value.feasible_batch_size == 2


def test_shrink_lowers_the_batch_size_and_says_so() -> None:
    sampler = SemanticIsolationBatchSampler([0] * 5 + [1] * 3, [(0, 1)], batch_size=8, on_infeasible="shrink")
    assert (sampler.requested_batch_size, sampler.batch_size) == (8, 3)
    assert {len(batch) for batch in sampler} == {3}


def test_relax_lets_in_as_few_conflicting_images_as_fill_one_batch() -> None:
    sampler = SemanticIsolationBatchSampler([0] * 40 + [1] * 3, [(0, 1)], batch_size=4, on_infeasible="relax")
    assert sampler.violations == 3
    mixed = [batch for batch in sampler if len({i < 40 for i in batch}) == 2]
    assert [sorted(i >= 40 for i in batch) for batch in mixed] == [[False, True, True, True]]


def test_a_small_cluster_borrows_from_compatible_ones_before_it_repeats_itself() -> None:
    # Cluster 2 conflicts with 0 only, so its batches can be filled from cluster 1.
    clusters = [0] * 20 + [1] * 20 + [2] * 2
    sampler = SemanticIsolationBatchSampler(clusters, [(0, 2), (0, 1)], batch_size=8, seed=3)
    assert all(len(set(batch)) == 8 for batch in sampler)


def test_images_of_one_set_that_is_too_small_are_shown_again_without_complaint() -> None:
    sampler = SemanticIsolationBatchSampler([0, 0, 0], batch_size=4)
    assert [sorted(set(batch)) for batch in sampler] == [[0, 1, 2]]
    assert sampler.repeats == 1
