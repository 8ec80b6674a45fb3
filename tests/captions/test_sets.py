"""Captions beside each other: granularity, the dip, contradictions, variety."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasieve.captions.conflicts import contradictions, traits
from datasieve.captions.dip import dip, p_value
from datasieve.captions.granularity import FAR, Captioned, granularity, size
from datasieve.captions.variety import batch_entropy, never_varying

DETAILED, BARE = Captioned(size(8, 16), False, True), Captioned(size(1, 2), False, True)
MISSING = Captioned(0.0, None, False)


@pytest.mark.parametrize(
    ("sample", "expected"),
    [  # computed by the R package's C code, through diptest 0.12 for Python
        (list(range(1, 11)), 0.05),
        ([0, 0, 0, 0, 1, 1, 1, 1], 0.25),
        ([1, 1.1, 1.3, 1.4, 1.6, 5, 5.2, 5.3, 5.5, 5.9], 0.19767441860465113),
        ([0, 1, 1.5, 2, 2.2, 2.3, 2.5, 3, 4, 6, 9], 0.045454545454545456),
    ],
)
def test_the_dip_equals_the_reference_program(sample: list[float], expected: float) -> None:
    assert dip(np.array(sample, float)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("value", "n", "expected"),
    [(0.0663666, 20, 0.690), (0.126296, 30, 0.0002), (0.0393364, 60, 0.734), (0.0324097, 100, 0.665)],
)
def test_p_values_agree_with_the_reference_program(value: float, n: int, expected: float) -> None:
    assert p_value(value, n) == pytest.approx(expected, abs=0.03)


@given(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=60))
def test_the_dip_is_bounded_and_does_not_see_scale_or_order(values: list[float]) -> None:
    sample = np.array(values)
    found = dip(sample)
    assert 1 / (2 * len(values)) - 1e-12 <= found <= 0.25 + 1e-12
    assert dip(sample[::-1]) == found
    assert dip(-sample) == pytest.approx(found, abs=0.02)


def test_a_consistent_set_is_not_broken_in_either_style() -> None:
    for style in (DETAILED, BARE, Captioned(size(9, 11), True, True)):
        found = granularity([style] * 6)
        assert max(d for d in found.distances if d is not None) < FAR
        assert found.spread is not None
        assert found.spread < 0.6


def test_the_odd_caption_is_the_far_one() -> None:
    found = granularity([DETAILED] * 5 + [BARE, MISSING])
    distances = [d for d in found.distances if d is not None]
    assert max(distances[:5]) < FAR < min(distances[5:])
    assert found.broken is not None
    assert found.spread is not None
    assert 0.6 < found.broken < found.spread  # a missing caption is no second level
    missing = granularity([DETAILED] * 5 + [MISSING])
    assert missing.broken is not None
    assert missing.broken < 0.6 < missing.distances[-1]  # type: ignore[operator]


def test_tags_among_sentences_are_far_though_they_say_as_much() -> None:
    tags = Captioned(size(8, 16), True, True)
    assert granularity([DETAILED] * 4 + [tags]).distances[-1] == pytest.approx(1.5, abs=0.3)


def test_twenty_captions_are_tested_for_two_groups() -> None:
    rng = np.random.default_rng(0)
    one = [Captioned(size(int(d), 2 * int(d)), False, True) for d in rng.poisson(8, 60) + 1]
    two = one[:30] + [BARE] * 30
    assert granularity(one).dip_p > 0.05  # type: ignore[operator]
    assert granularity(one).broken is None
    assert granularity(two).dip_p < 0.05  # type: ignore[operator]
    assert granularity(two).broken is not None


def test_of_two_groups_far_apart_only_the_smaller_stands_out() -> None:
    found = granularity([DETAILED] * 16 + [BARE] * 14).distances
    assert max(found[:16]) < FAR < min(found[16:])  # type: ignore[type-var]
    found = granularity([DETAILED] * 14 + [BARE] * 16).distances
    assert max(found[14:]) < FAR < min(found[:14])  # type: ignore[type-var]


def test_a_set_without_captions_or_with_one_is_not_compared() -> None:
    assert granularity([MISSING] * 3).distances == [None] * 3
    assert granularity([DETAILED]).distances == [None]


def test_another_colour_of_the_same_thing_contradicts() -> None:
    captions = [
        "a red backpack on grass",
        "a photo of a red backpack",
        "a red backpack by a white wall",
        "a blue backpack",
    ]
    found = contradictions([traits(c) for c in captions])
    assert found[:3] == ["", "", ""]
    assert found[3] == "colour of the backpack: blue, elsewhere red"


def test_hair_and_glasses_contradict_and_backgrounds_do_not() -> None:
    captions = ["1girl, blonde_hair, glasses"] * 4 + ["1girl, black_hair, no glasses"]
    assert contradictions([traits(c) for c in captions])[4] == (
        "glasses: absent, elsewhere present; hair colour: black, elsewhere blonde"
    )
    walls = [f"a dog in front of a {colour} wall" for colour in ("red", "red", "red", "red", "white")]
    assert contradictions([traits(c) for c in walls]) == [""] * 5


def test_a_style_with_many_subjects_does_not_contradict_itself() -> None:
    captions = [f"a {colour} car" for colour in ("red", "red", "blue", "green", "white")]
    assert contradictions([traits(c) for c in captions]) == [""] * 5


def test_batch_entropy_by_hand() -> None:
    assert batch_entropy(["a"] * 9, 4) == 0
    assert batch_entropy(list(range(9)), 4) == pytest.approx(2)
    assert batch_entropy(["a", "b", "c"], 1) == 0
    # Two of {a, a, b}: alike in one of three draws.
    assert batch_entropy(["a", "a", "b"], 2) == pytest.approx(2 / 3)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(1, 16))
def test_batch_entropy_lies_between_none_and_all(captions: list[int], batch: int) -> None:
    most = math.log2(min(batch, len(captions)))
    assert -1e-9 <= batch_entropy(captions, batch) <= most + 1e-9


def test_tags_that_never_vary() -> None:
    sets = [frozenset({"sks", "indoors", str(i)}) for i in range(8)]
    assert never_varying(sets) == ["indoors", "sks"]
    assert never_varying(sets[:7]) == []
