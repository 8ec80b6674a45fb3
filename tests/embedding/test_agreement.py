"""Fits of captions and pictures: each number beside a plain calculation of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasieve.embedding import agreement


def unit(values: np.ndarray) -> np.ndarray:
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)


def pictures_and_texts(count: int, seed: int, noise: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Return `count` pictures and their captions, near one another, in 32 dimensions."""
    generator = np.random.default_rng(seed)
    texts = generator.normal(size=(count, 32))
    return unit(texts + noise * generator.normal(size=texts.shape)), unit(texts)


def plain_fits(pictures: np.ndarray, texts: np.ndarray) -> np.ndarray:
    cosine = (pictures @ texts.T).astype(np.float64)
    over_texts = (cosine - cosine.mean(1, keepdims=True)) / cosine.std(1, keepdims=True)
    over_pictures = (cosine - cosine.mean(0)) / cosine.std(0)
    return (over_texts + over_pictures) / 2


@settings(max_examples=25, deadline=None)
@given(st.integers(8, 40), st.integers(0, 10_000), st.integers(1, 40))
def test_every_number_is_the_one_a_whole_matrix_gives(count: int, seed: int, block: int) -> None:
    pictures, texts = pictures_and_texts(count, seed)
    caption = np.random.default_rng(seed).integers(0, count, count)
    matrix = plain_fits(pictures, texts)
    own = matrix[np.arange(count), caption]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agreement, "_ROWS", block)
        found = agreement.fits(pictures, texts, caption)
    assert np.allclose(found.cosine, (pictures * texts[caption]).sum(1), atol=1e-5)
    assert np.allclose(found.fit, own, atol=1e-3)
    assert np.abs(found.rank - 1 - (matrix > own[:, None]).sum(1)).max() <= 1, "ties within rounding"
    better = np.minimum((matrix > own[:, None]).mean(1), (matrix[:, caption] > own).mean(0))
    assert np.abs(found.misfit - better).max() <= 1 / count + 1e-9
    smaller = (matrix < own[:, None] - 1e-6).sum(1) / (count - 1)
    assert found.separation == pytest.approx(np.median(smaller), abs=2 / count)
    assert np.allclose(agreement.all_fits(pictures, texts), matrix, atol=1e-3)


def test_two_swapped_captions_are_each_others_partners_and_no_others_are() -> None:
    pictures, texts = pictures_and_texts(20, 3)
    caption = np.arange(20)
    assert (agreement.fits(pictures, texts, caption).partner == -1).all()
    assert max(plain_fits(pictures, texts)[[7, 14], [14, 7]]) < 0, "neither fits the other's picture"
    caption[[7, 14]] = caption[[14, 7]]
    found = agreement.fits(pictures, texts, caption)
    assert np.flatnonzero(found.partner >= 0).tolist() == [7, 14]
    assert (found.partner[7], found.partner[14]) == (14, 7)
    matrix = plain_fits(pictures, texts)
    assert found.swap[7] == pytest.approx(matrix[7, 7] + matrix[14, 14] - matrix[7, 14] - matrix[14, 7], abs=1e-3)
    assert found.misfit[[7, 14]].min() > 0.2
    assert np.median(found.rank) == 1


def test_images_that_share_a_caption_are_never_swapped() -> None:
    pictures, texts = pictures_and_texts(9, 1)
    found = agreement.fits(np.concatenate([pictures, pictures]), texts, np.array([*range(1, 9), 0] * 2))
    for row, other in enumerate(found.partner.tolist()):
        assert other < 0 or row % 9 != other % 9


def test_a_set_of_one_and_the_same_picture_gives_numbers_and_no_swap() -> None:
    pictures, texts = pictures_and_texts(8, 2)
    found = agreement.fits(np.repeat(pictures[:1], 8, 0), texts, np.arange(8))
    assert np.isfinite(found.fit).all()
    assert (found.partner == -1).all()


def test_interference_is_the_fall_of_the_cosine_and_of_the_top_1_recall() -> None:
    right = np.eye(4, dtype=np.float32)
    wrong = right[[1, 0, 2, 3]]  # two captions name the other's subject
    found = agreement.interference(right, right, wrong)
    assert found.similarity_drop == pytest.approx(0.5)
    assert (found.recall, found.recall_drop) == (1.0, 0.5)
    none = agreement.interference(right, right, right)
    assert (none.similarity_drop, none.recall_drop) == (0.0, 0.0)
