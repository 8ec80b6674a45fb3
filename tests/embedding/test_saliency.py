"""Where the subject is: maps, boxes and what agrees, against plain counting and real photos."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from skimage import data

from datasieve.embedding import cosaliency, lite0, saliency
from datasieve.embedding.boxes import best_boxes


def opened() -> lite0.Lite0:
    embedder = lite0.open_lite0("cpu")
    assert isinstance(embedder, lite0.Lite0)
    return embedder


def set_into(ground: np.ndarray, picture: np.ndarray, top: int, left: int) -> np.ndarray:
    out = ground.copy()
    out[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
    return out


GROUND = np.repeat(np.linspace(90, 160, 448).astype(np.uint8)[:, None, None], 448, 1).repeat(3, 2)
CAT = data.chelsea()[20:260, 80:320]


def slow_best(found: np.ndarray) -> tuple[float, tuple[int, int, int, int]]:
    n, best = len(found), (-1.0, (0, 0, 0, 0))
    for top in range(n):
        for bottom in range(top + 1, n + 1):
            for left in range(n):
                for right in range(left + 1, n + 1):
                    inside = found[top:bottom, left:right].sum()
                    overlap = inside / ((bottom - top) * (right - left) + found.sum() - inside)
                    best = max(best, (float(overlap), (left, top, right, bottom)))
    return best


@given(arrays(np.float64, (5, 5), elements=st.floats(0, 1, width=16)))
@settings(max_examples=40, deadline=None)
def test_the_best_box_is_the_one_that_trying_all_finds(found: np.ndarray) -> None:
    [box], [overlap] = best_boxes(found[None])
    assert overlap == pytest.approx(slow_best(found)[0], abs=1e-6)
    left, top, right, bottom = np.rint(box * 5).astype(int)
    inside = found[top:bottom, left:right].sum()
    assert overlap == pytest.approx(inside / ((bottom - top) * (right - left) + found.sum() - inside), abs=1e-6)


def test_a_certain_box_is_returned_with_an_overlap_of_one() -> None:
    found = np.zeros((14, 14))
    found[3:9, 5:12] = 1
    [box], [overlap] = best_boxes(found[None])
    assert np.allclose(box * 14, [5, 3, 12, 9])
    assert overlap == pytest.approx(1)


def test_a_cat_set_into_plain_ground_is_boxed_where_it_was_set() -> None:
    for top, left in ((20, 20), (20, 188), (188, 20), (188, 188), (104, 104)):
        kept = saliency.kept(opened().outputs([set_into(GROUND, CAT, top, left)]))
        [box] = cosaliency.located(kept, np.zeros(1, np.intp)).boxes
        true = np.array([left, top, left + 240, top + 240]) / 448
        assert np.abs(box - true).max() < 0.12, (top, left, box, true)


def test_other_pictures_tell_which_of_two_things_is_the_subject() -> None:
    """A cat beside a cup: the share of the map on the cat rises when the other pictures are of that cat."""
    cup = data.coffee()[60:260, 150:350]
    both = set_into(set_into(GROUND, CAT[::2, ::2], 160, 20), cup[:180, :180], 140, 250)
    cats = [set_into(GROUND, CAT, top, 104) for top in (20, 104, 188)]
    kept = saliency.kept(opened().outputs([both, *cats]))
    alone = cosaliency.located(kept[:1], np.zeros(1, np.intp)).maps[0]
    among = cosaliency.located(kept, np.arange(4)).maps[0]
    cat, cup_there = slice(1, 4), slice(8, 13)
    lead = [m[5:9, cat].mean() / m[5:9, cup_there].mean() for m in (alone, among)]
    assert lead[1] > 1.03 * lead[0]


def test_copies_are_no_other_pictures() -> None:
    kept = saliency.kept(opened().outputs([set_into(GROUND, CAT, 20, 20)]))
    one = cosaliency.located(kept, np.zeros(1, np.intp))
    copies = cosaliency.located(np.repeat(kept, 3, 0), np.zeros(3, np.intp))
    assert np.allclose(copies.maps, one.maps, atol=1e-6)


def test_a_concept_of_many_is_located_in_chunks_as_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = saliency.kept(opened().outputs([set_into(GROUND, CAT, 20 + 20 * i, 20 + 25 * i) for i in range(6)]))
    whole = cosaliency.located(kept, np.arange(6))
    monkeypatch.setattr(cosaliency, "CHUNK", 2)
    for a, b in zip(whole, cosaliency.located(kept, np.arange(6)), strict=True):
        assert np.allclose(a, b, atol=1e-5)


def test_likeness_is_the_best_cosine_averaged_over_those_with_a_say() -> None:
    generator = np.random.default_rng(3)
    patches, others = (
        saliency.unit(torch.from_numpy(generator.normal(size=(n, 3, 3, 32)).astype(np.float32))) for n in (2, 3)
    )
    say = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    found = saliency.likeness(patches, others, say).numpy()
    best = np.einsum("bijd,nkld->bnijkl", patches, others).max((4, 5))
    assert np.allclose(found[0], (best[0, 0] + best[0, 2]) / 2, atol=1e-6)
    assert np.allclose(found[1], best[1, 1], atol=1e-6)


def test_maps_that_are_the_same_at_every_scale_agree_wholly() -> None:
    found = np.random.default_rng(1).uniform(0, 1, (14, 14))
    assert cosaliency.consistency(np.stack([found] * 3)) == (1.0, 0.0)


def test_consistency_by_hand() -> None:
    """Halves of a 2 x 2 map: {left column} and {top row} share one of three places."""
    left, top = np.array([[0.8, 0.2], [0.8, 0.2]]), np.array([[0.8, 0.8], [0.2, 0.2]])
    overlap, divergence = cosaliency.consistency(np.stack([left, top]))
    assert overlap == pytest.approx(1 / 3)
    # Shares 0.4, 0.1: the places that differ give 0.4 ln 4 - 0.1 ln 4.
    assert divergence == pytest.approx(0.3 * np.log(4))


def test_maps_are_written_and_read_back_to_a_64th() -> None:
    found = np.random.default_rng(2).uniform(0, 1, (14, 14))
    text = cosaliency.written(found)
    assert len(text) == 196
    assert text.isascii()
    assert np.abs(cosaliency.read(text) - found).max() <= 0.5 / 63 + 1e-6
    with pytest.raises(ValueError):
        cosaliency.read("not a map")


def test_two_analyzers_of_one_batch_cost_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = opened()
    passes = []
    network = embedder.network
    monkeypatch.setattr(embedder, "network", lambda x: passes.append(len(x)) or network(x))
    pictures = [CAT.copy(), GROUND.copy()]
    vectors = embedder.images(pictures)
    embedder.outputs(list(pictures))
    assert passes == [2]
    assert np.allclose(embedder.images(pictures[::-1])[::-1], vectors, atol=1e-3)
    assert passes == [2, 2], "other pictures are seen anew"
