"""CLIP models: found where they are said to be, shown what open_clip shows them, and never waiting for a network."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from skimage import data

from datasieve.embedding import clip_weights, open_embedder, open_text_space, openclip
from datasieve.errors import ConfigError, ModelError
from tests.embedding.clip_models import SIZE, STD, clip_folder, described

PHOTOS = [data.chelsea(), data.coffee(), data.astronaut()[:, 150:260], data.rocket()[:90], data.astronaut()[:40, :40]]


def opened(folder: Path) -> openclip.OpenClip:
    embedder = open_embedder("clip", "cpu", str(folder))
    assert isinstance(embedder, openclip.OpenClip), embedder
    return embedder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> openclip.OpenClip:
    return opened(clip_folder(tmp_path_factory.mktemp("clip")))


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("resize_mode", ["shortest", "longest", "squash"])
@pytest.mark.parametrize("side", [64, [64, 96]])
def test_pictures_are_shown_as_open_clip_shows_them(
    tmp_path: Path, side: Any, resize_mode: str, interpolation: str
) -> None:
    import open_clip

    settings = {"resize_mode": resize_mode, "interpolation": interpolation, "fill_color": 90}
    folder = clip_folder(tmp_path, described(side, **settings))
    reference, preprocess = open_clip.create_model_from_pretrained(f"local-dir:{folder}")
    inputs = torch.stack([preprocess(Image.fromarray(photo)) for photo in PHOTOS])
    with torch.inference_mode():
        expected = reference.eval().encode_image(inputs, normalize=True).numpy()
    embedder = opened(folder)
    apart = (embedder.inputs(PHOTOS) - inputs).abs() * 255 * STD[0]
    assert (apart.mean() < 0.5, apart.max() < 5) == (True, True), "levels of 255; Pillow rounds between its two passes"
    assert (embedder.images(PHOTOS) * expected).sum(1).min() > 1 - 1e-4


def test_texts_are_those_of_open_clips_tokenizer_and_tower(tmp_path: Path) -> None:
    import open_clip

    folder = clip_folder(tmp_path)
    texts = ["a photo of a cat", "", "blonde, glasses", "word " * 300, "a photo of a cat"]
    reference = open_clip.create_model(f"local-dir:{folder}").eval()
    with torch.inference_mode():
        expected = reference.encode_text(open_clip.get_tokenizer(f"local-dir:{folder}")(texts), normalize=True)
    found = opened(folder).texts(texts)
    assert np.abs(found - expected.numpy()).max() < 1e-5
    assert opened(folder).texts([]).shape == (0, SIZE)


def test_vectors_have_unit_length_and_do_not_depend_on_the_batch(
    model: openclip.OpenClip, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openclip, "BATCH", 2)
    texts = [f"a photo of {n} cats" for n in range(5)]
    for together, alone in (
        (model.images(PHOTOS), [model.images([photo]) for photo in PHOTOS]),
        (model.texts(texts), [model.texts([text]) for text in texts]),
    ):
        assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
        assert np.abs(together - np.concatenate(alone)).max() < 1e-5
    assert (model.size, model.centred, model.method) == (SIZE, False, "clip")


def test_patches_are_those_of_the_last_block(model: openclip.OpenClip) -> None:
    assert model.grid(PHOTOS[:2]).shape == (2, 4, 4, 64)


def test_a_cpu_without_matrix_units_computes_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "flags : avx2 avx512f")
    openclip.half_precision.cache_clear()
    try:
        assert openclip.half_precision("cpu") is None
        assert openclip.half_precision("cuda") == torch.float16
    finally:
        openclip.half_precision.cache_clear()


@pytest.fixture
def known(tmp_path: Path) -> Iterator[str]:
    """The name of a small model that open_clip knows while the test runs."""
    import open_clip

    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "small-model.json").write_text(json.dumps(described()["model_cfg"] | {"embed_dim": 40}))
    open_clip.add_model_config(tmp_path / "models")
    yield "small-model"
    open_clip.factory._MODEL_CONFIG_PATHS.remove(tmp_path / "models")
    open_clip.factory._rescan_model_configs()


def test_a_half_precision_folder_and_a_checkpoint_file_load(tmp_path: Path, known: str) -> None:
    import open_clip
    from safetensors.torch import save_file

    half = opened(clip_folder(tmp_path / "half", half=True))
    whole = opened(clip_folder(tmp_path / "whole"))
    assert (half.images(PHOTOS) * whole.images(PHOTOS)).sum(1).min() > 0.999
    assert half.identity != whole.identity
    reference = open_clip.create_model(known).eval()
    save_file({k: v.contiguous() for k, v in reference.state_dict().items()}, tmp_path / "mine.safetensors")
    named = f"{known}@{tmp_path / 'mine.safetensors'}"
    space = open_text_space("auto", "cpu", named)
    assert not isinstance(space, str)
    assert (space.method, space.size) == ("clip", 40)
    with torch.inference_mode():
        expected = reference.encode_text(open_clip.get_tokenizer(known)(["a cat"]), normalize=True)
    assert np.abs(space.texts(["a cat"]) - expected.numpy()).max() < 1e-5


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path: Path, known: str) -> None:
    class Shell:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    torch.save({"state_dict": {"a": Shell()}}, tmp_path / "evil.pt")
    with pytest.raises(ModelError, match=r"cannot load .*evil\.pt"):
        open_embedder("clip", "cpu", f"{known}@{tmp_path / 'evil.pt'}")
    assert not (tmp_path / "ran").exists()


def test_weights_of_another_model_are_refused_with_the_file(tmp_path: Path, known: str) -> None:
    folder = clip_folder(tmp_path)
    with pytest.raises(ModelError, match=r"open_clip_model\.safetensors"):
        open_embedder("clip", "cpu", f"{known}@{folder / 'open_clip_model.safetensors'}")


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("ViT-B-33/laion2b_s34b_b79k", "Perhaps: ViT-B-32"),
        ("ViT-B-32/laion9b", "laion2b_s34b_b79k"),
        ("ViT-B-32", "names no CLIP model and no folder"),
        ("./not/there", "names no CLIP model and no folder"),
        ("ViT-B-32@not-there.pt", "no file"),
    ],
)
def test_a_name_that_means_nothing_is_refused_with_what_would(spec: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        clip_weights.located(spec)
    assert complaint in str(refused.value)


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"open_clip_config\.json"):
        clip_weights.located(str(tmp_path))
    (tmp_path / "open_clip_config.json").write_text(json.dumps(described()))
    clip_weights.located.cache_clear()
    with pytest.raises(ModelError, match="holds no weights"):
        clip_weights.located(str(tmp_path))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a hub at an address that answers nobody."""
    from huggingface_hub import constants

    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.invalid")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HTTPS_PROXY", raising=False)
    monkeypatch.delenv("https_proxy", raising=False)
    clip_weights.located.cache_clear()
    openclip.open_clip_model.cache_clear()
    return tmp_path / "hub"


def test_without_network_and_weights_the_reason_comes_at_once(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given_up = threading.Event()

    def hang(*_: object) -> None:
        given_up.wait(60)
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", hang)
    monkeypatch.setattr(clip_weights, "SECONDS", 0.2)
    monkeypatch.setattr(clip_weights.reachable, "__defaults__", (0.2,))
    started = time.monotonic()
    told = open_embedder("clip", "cpu")
    given_up.set()
    assert time.monotonic() - started < 30, "most of it for importing open_clip"
    assert isinstance(told, str)
    assert "hub.invalid cannot be reached" in told
    assert "hf download laion/CLIP-ViT-B-32-laion2B-s34B-b79K open_clip_model.safetensors" in told


def test_weights_in_the_hubs_cache_are_found_without_asking_it(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "create_connection", lambda *_: pytest.fail("the network was asked"))
    repository = hub / "models--laion--CLIP-ViT-B-32-laion2B-s34B-b79K"
    revision = "0123456789abcdef0123456789abcdef01234567"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(revision)
    (repository / "snapshots" / revision).mkdir(parents=True)
    (repository / "snapshots" / revision / "open_clip_model.safetensors").write_bytes(b"weights")
    found = clip_weights.located("")
    assert isinstance(found, clip_weights.ClipWeights)
    assert found.identity == "ViT-B-32/laion2b_s34b_b79k (0123456789ab)"
    assert (found.size, found.quick_gelu) == (512, False)


def test_an_offline_hub_is_not_asked(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(socket, "create_connection", lambda *_: pytest.fail("the network was asked"))
    assert "HF_HUB_OFFLINE is set" in str(clip_weights.located("ViT-L-14/openai"))


def test_a_host_is_reachable_when_it_listens_and_a_proxy_stands_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clip_weights, "getproxies", dict)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert clip_weights.reachable(f"http://{address}")
        monkeypatch.setattr(clip_weights, "getproxies", lambda: {"https": f"http://{address}"})
        assert clip_weights.reachable("https://hub.invalid")
    assert not clip_weights.reachable(f"http://{address}", 0.5)


def test_checkpoints_that_differ_anywhere_in_size_or_sampled_blocks_are_told_apart(tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(bytes(300_000))
    first = clip_weights.fingerprint(file)
    file.write_bytes(bytes(299_999) + b"x")
    assert clip_weights.fingerprint(file) != first
    file.write_bytes(bytes(300_001))
    assert clip_weights.fingerprint(file) != first
    file.write_bytes(b"")
    assert clip_weights.fingerprint(file)
