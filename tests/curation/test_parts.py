import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasieve.curation.choose import quotas
from datasieve.curation.conditions import parse
from datasieve.curation.diversity import coverage, facility_location, k_centre, radius
from datasieve.curation.split import components, hold_out
from datasieve.errors import ConfigError


def unit(*angles):
    radians = np.radians(angles)
    return np.stack([np.cos(radians), np.sin(radians)], 1).astype(np.float32)


COLUMNS = ["frame.border-share", "width", "concept"]


@pytest.mark.parametrize(
    ("text", "row", "want"),
    [
        ("frame.border-share < 0.1", {"frame.border-share": 0.05}, True),
        ("frame.border-share<0.1", {"frame.border-share": 0.1}, False),
        ("width >= 512", {"width": 512}, True),
        ("concept == red toy", {"concept": "red toy"}, True),
        ("concept != 'red toy'", {"concept": "red toy"}, False),
        ("width > 1", {"width": None}, None),
        ("frame.border-share > 0", {"frame.border-share": float("nan")}, None),
    ],
)
def test_a_condition_compares_a_column_with_a_number_or_a_word(text, row, want):
    assert parse(text, COLUMNS).holds(row) is want


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("width", "no condition"),
        ("widht > 1", "did you mean width"),
        ("concept < red", "only == and != can do"),
        ("__import__('os') == 1", "no condition|no column"),
    ],
)
def test_what_is_no_condition_is_refused(text, said):
    with pytest.raises(ConfigError, match=said):
        parse(text, COLUMNS)


def test_k_centre_takes_the_farthest_each_time():
    vectors = unit(0, 10, 20, 90, 180)
    assert k_centre(vectors, 3).tolist() == [0, 4, 3]


def test_k_centre_passes_over_a_bad_picture_for_one_nearly_as_far():
    vectors = unit(0, 170, 180)
    assert k_centre(vectors, 2).tolist() == [0, 2]
    assert k_centre(vectors, 2, [1, 1, 0.1]).tolist() == [0, 1]


def test_facility_location_takes_the_middle_of_each_bunch():
    turned = unit(-8, 0, 8)
    none = np.zeros(3, np.float32)
    vectors = np.concatenate([np.stack([turned[:, 0], none, turned[:, 1]], 1), np.stack([none, *turned.T], 1)])
    assert set(facility_location(vectors, 2).tolist()) == {1, 4}


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 200), st.integers(2, 9), st.integers(1, 4))
def test_greedy_choices_are_as_good_as_their_theorems_promise(seed, n, k):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, 3)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    k = min(k, n)
    every = [np.array(c) for c in itertools.combinations(range(n), k)]
    # Gonzalez: twice the best radius, in a metric; chords are one, and their square is twice the cosine distance.
    best = min(radius(vectors, c) for c in every)
    assert np.sqrt(radius(vectors, k_centre(vectors, k))) <= 2 * np.sqrt(best) + 1e-3
    # Nemhauser: 1 - 1/e of the best value, where values are counted from -1.
    most = max(coverage(vectors, c) for c in every)
    assert coverage(vectors, facility_location(vectors, k)) + 1 >= (1 - 1 / np.e) * (most + 1) - 1e-5


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 100), st.integers(1, 30), st.integers(1, 40))
def test_a_choice_has_the_wanted_number_of_different_pictures(seed, n, k):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(n, 4)).astype(np.float32)
    vectors[n // 2 :] = vectors[0]  # many copies
    for pick in (k_centre, facility_location):
        taken = pick(vectors, k)
        assert len(taken) == len(set(taken.tolist())) == min(k, n)


@pytest.mark.parametrize(
    ("sizes", "most", "level", "want"),
    [
        ([10, 10], 10, False, [5, 5]),
        ([30, 10], 8, False, [6, 2]),
        ([3, 100], 10, True, [3, 7]),
        ([3, 100], None, True, [3, 3]),
        ([5, 5, 5], 10, True, [4, 3, 3]),
        ([2, 3], 10, False, [2, 3]),
    ],
)
def test_quotas_are_in_proportion_or_level(sizes, most, level, want):
    assert sorted(quotas(sizes, most, level=level)) == sorted(want)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(1, 100), st.booleans())
def test_quotas_never_exceed_what_is_there_and_add_up(sizes, most, level):
    found = quotas(sizes, most, level=level)
    assert all(0 <= f <= s for f, s in zip(found, sizes, strict=True))
    assert sum(found) == min(most, sum(sizes))


def test_components_are_what_hangs_together():
    found = components(5, [(0, 1), (1, 4)])
    assert found[0] == found[1] == found[4]
    assert len({found[0], found[2], found[3]}) == 3


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.sampled_from("ab"), min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=15),
    st.floats(0, 0.5),
    st.integers(0, 9),
)
def test_no_pair_is_parted_and_no_more_is_held_out_than_asked(concepts, pairs, share, seed):
    edges = [(a, b) for a, b in pairs if max(a, b) < len(concepts)]
    held = hold_out(concepts, edges, share, seed)
    assert all(held[a] == held[b] for a, b in edges)
    for concept in set(concepts):
        mine = [h for h, c in zip(held, concepts, strict=True) if c == concept]
        assert sum(mine) <= len(mine) * share + 0.5
