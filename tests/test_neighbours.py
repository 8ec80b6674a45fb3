"""The search in Hamming space finds what comparing all with all finds, and stays bounded when everything is alike."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from datasieve.neighbours import count_bits, near_hashes

HASHES = arrays(np.uint64, st.integers(0, 40), elements=st.integers(0, 2**64 - 1))


def by_hand(queries: np.ndarray, hashes: np.ndarray, limit: int) -> dict[tuple[int, int], int]:
    found = {}
    for i, a in enumerate(queries.tolist()):
        for j, b in enumerate(hashes.tolist()):
            if bin(a ^ b).count("1") <= limit:
                found[i, j] = bin(a ^ b).count("1")
    return found


def as_dict(found) -> dict[tuple[int, int], int]:
    return dict(zip(zip(found.a.tolist(), found.b.tolist(), strict=True), found.distance.tolist(), strict=True))


def planted(count: int, copies: int, bits: int, seed: int) -> tuple[np.ndarray, set[tuple[int, int]]]:
    """Random hashes whose last `copies` are the first ones with `bits` random bits turned."""
    generator = np.random.default_rng(seed)
    hashes = generator.integers(0, 2**64, count, dtype=np.uint64)
    for i in range(copies):
        mask = sum(1 << int(bit) for bit in generator.choice(64, bits, replace=False))
        hashes[count - copies + i] = hashes[i] ^ np.uint64(mask)
    return hashes, {(i, count - copies + i) for i in range(copies)}


@given(HASHES)
def test_bits_are_counted_as_python_counts_them(values: np.ndarray) -> None:
    assert count_bits(values).tolist() == [bin(v).count("1") for v in values.tolist()]


@given(HASHES)
def test_bits_are_counted_without_numpy_2(values: np.ndarray) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(np, "bitwise_count", raising=False)
        assert count_bits(values).tolist() == [bin(v).count("1") for v in values.tolist()]


@settings(max_examples=40, deadline=None)
@given(HASHES, st.data())
def test_all_pairs_within_the_guaranteed_distance_are_found(hashes: np.ndarray, data: st.DataObject) -> None:
    radius = data.draw(st.integers(0, 1))
    limit = 4 * (radius + 1) - 1
    if len(hashes):  # random hashes are 32 bits apart, so some near ones are made
        sources = data.draw(st.lists(st.integers(0, len(hashes) - 1), max_size=20))
        masks = [sum({1 << data.draw(st.integers(0, 63)) for _ in range(limit)}) for _ in sources]
        made = np.array([int(hashes[s]) ^ m for s, m in zip(sources, masks, strict=True)], np.uint64)
        hashes = np.concatenate([hashes, made])
    found = near_hashes(hashes, max_distance=limit, radius=radius)
    expected = {k: d for k, d in by_hand(hashes, hashes, limit).items() if k[0] < k[1]}
    assert as_dict(found) == expected
    assert found.capped == 0
    assert as_dict(near_hashes(hashes, hashes, max_distance=limit, radius=radius)) == by_hand(hashes, hashes, limit)


def test_seven_turned_bits_are_always_found_among_many() -> None:
    hashes, pairs = planted(20_000, 300, 7, seed=1)
    assert pairs <= as_dict(near_hashes(hashes, max_distance=7)).keys()


def test_three_turned_bits_are_always_found_by_the_faster_search() -> None:
    hashes, pairs = planted(20_000, 300, 3, seed=2)
    assert pairs <= as_dict(near_hashes(hashes, max_distance=3, radius=0)).keys()


def test_nothing_beyond_the_distance_is_returned() -> None:
    hashes, pairs = planted(2_000, 200, 6, seed=3)
    assert not pairs & as_dict(near_hashes(hashes, max_distance=5)).keys()


def test_equal_hashes_by_the_thousand_stay_bounded_and_are_reported() -> None:
    hashes = np.full(3_000, 0x0123456789ABCDEF, np.uint64)
    found = near_hashes(hashes, max_distance=0, radius=0, cap=10)
    assert found.capped > 0
    assert len(found.a) <= 4 * 10 * 3_000
    # The chain holds: everyone but the last still meets a neighbour, so the group stays one group.
    assert set(found.a.tolist()) | set(found.b.tolist()) == set(range(3_000))


def test_work_grows_with_the_number_and_not_with_its_square(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasieve.neighbours as neighbours

    seen = []

    def counting(values: np.ndarray) -> np.ndarray:
        seen.append(len(values))
        return count_bits(values)

    monkeypatch.setattr(neighbours, "count_bits", counting)
    hashes, _ = planted(50_000, 0, 0, seed=4)
    near_hashes(hashes, max_distance=7)
    # All with all would be 1.25 billion; even buckets of 16 bits give 4 x 8.5 x N^2 / 2^16.
    assert sum(seen) < 2_000_000


@pytest.mark.parametrize(("radius", "limit"), [(2, 7), (-1, 7), (1, -1), (1, 65)])
def test_impossible_requests_are_refused(radius: int, limit: int) -> None:
    with pytest.raises(ValueError):
        near_hashes(np.zeros(2, np.uint64), max_distance=limit, radius=radius)
