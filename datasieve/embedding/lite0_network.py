"""EfficientNet-Lite0 as a list of convolutions, and the two programs that compute it: torch and OpenVINO.

The network is plain enough (convolution, batch norm, ReLU6, addition) to be written out. Batch norms are folded into
their convolutions, and OpenVINO is given the graph itself: that takes half a second, where tracing and converting
timm's module takes four to twenty, and needs neither timm nor a folder to keep the result in.

Architecture: Tan, Le, "EfficientNet", ICML 2019, table 1, without squeeze-and-excitation and with ReLU6 (the "Lite"
variants of the TPU repository, 2020). Padding is TensorFlow's "same".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from datasieve.embedding.parallel import cores

if TYPE_CHECKING:
    import torch

Floats = npt.NDArray[np.float32]

_STAGES = ((3, 1, 1), (3, 2, 2), (5, 2, 2), (3, 2, 3), (5, 1, 3), (5, 2, 4), (3, 1, 1))
"""Kernel, first stride and repeats of each; all but the first expand their channels first."""

_GRID_STAGE = 4
"""The last stage at a stride of 16 px."""

_EPSILON = 1e-3
"""Of the batch norms, as they were trained."""

FEATURES, CLASSES = 1280, 1000


class Outputs(NamedTuple):
    """What the network makes of (B, 3, H, W) normalised pictures.

    Attributes:
        pooled: (B, 1280) features of the last convolution, averaged with more weight where more is to be seen.
        logits: (B, 1000) ImageNet classes, before the softmax.
        grid: (B, 112, H / 16, W / 16) features of the patches.
        last: (B, 1280, H / 32, W / 32) features of the last convolution, before they are pooled.
    """

    pooled: Floats
    logits: Floats
    grid: Floats
    last: Floats


Run = Callable[["torch.Tensor"], Outputs]


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution with its batch norm folded in.

    Attributes:
        weight: (out, in / groups, k, k).
        bias: (out,).
        stride: 1 or 2.
        groups: 1, or the number of channels.
        active: followed by ReLU6.
    """

    weight: Floats
    bias: Floats
    stride: int
    groups: int
    active: bool


@dataclass(frozen=True, slots=True)
class Block:
    """Convolutions in a row; `residual` adds their input to their output, `grid` marks the patches' features."""

    convolutions: tuple[Convolution, ...]
    residual: bool = False
    grid: bool = False


@dataclass(frozen=True, slots=True)
class Lite0Layers:
    """The whole network: blocks, then pooling, then the classifier (1000, 1280) and its bias (1000,)."""

    blocks: tuple[Block, ...]
    classifier: Floats
    classifier_bias: Floats


def layers(state: Mapping[str, torch.Tensor]) -> Lite0Layers:
    """Fold a state dict of EfficientNet-Lite0, whose tensors stand in the order of computation.

    Raises:
        ValueError: the tensors are not those of EfficientNet-Lite0.
    """
    tensors = iter([t.numpy() for t in state.values() if t.ndim])  # without the counters of the batch norms

    def convolution(kernel: int = 1, stride: int = 1, active: bool = True) -> Convolution:
        weight, scale, shift, mean, variance = (next(tensors, np.zeros(0)) for _ in range(5))
        if weight.shape[2:] != (kernel, kernel) or not len(weight) == len(scale) == len(variance):
            raise ValueError(f"a weight is {weight.shape}, not of {kernel} x {kernel} with a batch norm")
        factor = scale / np.sqrt(variance + _EPSILON)
        folded = (weight * factor[:, None, None, None]).astype(np.float32)
        groups = len(weight) if weight.shape[1] == 1 else 1
        return Convolution(folded, (shift - mean * factor).astype(np.float32), stride, groups, active)

    blocks = [Block((convolution(3, 2),))]
    for stage, (kernel, first_stride, repeats) in enumerate(_STAGES):
        for repeat in range(repeats):
            inner = [convolution()] if stage else []
            inner += [convolution(kernel, first_stride if repeat == 0 else 1), convolution(active=False)]
            last = stage == _GRID_STAGE and repeat == repeats - 1
            blocks.append(Block(tuple(inner), residual=repeat > 0, grid=last))
    blocks.append(Block((convolution(),)))
    classifier, bias = (np.asarray(next(tensors, np.zeros(0)), np.float32) for _ in range(2))
    if classifier.shape != (CLASSES, FEATURES) or next(tensors, None) is not None:
        raise ValueError(f"the classifier is {classifier.shape}, not {(CLASSES, FEATURES)}")
    return Lite0Layers(tuple(blocks), classifier, bias)


def torch_program(network: Lite0Layers, device: str) -> Run:
    """Return the network as torch computes it on a device, in float32 and channels-last."""
    import torch
    import torch.nn.functional as functional

    weights = {id(c): _on(device, c) for b in network.blocks for c in b.convolutions}
    classifier = torch.from_numpy(network.classifier).to(device)
    classifier_bias = torch.from_numpy(network.classifier_bias).to(device)

    def apply(values: torch.Tensor, convolution: Convolution) -> torch.Tensor:
        weight, bias = weights[id(convolution)]
        stride = convolution.stride
        (top, bottom), (left, right) = (_same(n, weight.shape[-1], stride) for n in values.shape[-2:])
        padding = (top, left)
        if (top, left) != (bottom, right):
            values, padding = functional.pad(values, (left, right, top, bottom)), (0, 0)
        values = functional.conv2d(values, weight, bias, stride, padding, groups=convolution.groups)
        return values.clamp_(0, 6) if convolution.active else values

    def run(pictures: torch.Tensor) -> Outputs:
        with torch.inference_mode():
            values = pictures.to(device).contiguous(memory_format=torch.channels_last)
            grid = values
            for block in network.blocks:
                out = values
                for convolution in block.convolutions:
                    out = apply(out, convolution)
                values = out + values if block.residual else out
                grid = values if block.grid else grid
            seen = values.sum(1, keepdim=True)
            pooled = (values * (seen / seen.amax((2, 3), keepdim=True).clamp_min(1e-9))).mean((2, 3))
            logits = functional.linear(values.mean((2, 3)), classifier, classifier_bias)
            found = (t.float().cpu().numpy() for t in (pooled, logits, grid, values))
            return Outputs(*(np.ascontiguousarray(a, np.float32) for a in found))

    return run


def _on(device: str, convolution: Convolution) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    weight = torch.from_numpy(convolution.weight).to(device).contiguous(memory_format=torch.channels_last)
    return weight, torch.from_numpy(convolution.bias).to(device)


def _same(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return TensorFlow's "same" padding before and after: the odd pixel goes behind."""
    whole = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return whole // 2, whole - whole // 2


def openvino_program(network: Lite0Layers, side: int) -> Run:
    """Return the network as OpenVINO computes it on the CPU, for pictures of `side` x `side` px."""
    import openvino
    from openvino import opset13 as ops

    source = ops.parameter([-1, 3, side, side], np.float32)
    values: Any = source
    grid: Any = source
    for block in network.blocks:
        out = values
        for convolution in block.convolutions:
            out = _operation(ops, out, convolution)
        values = ops.add(out, values) if block.residual else out
        grid = values if block.grid else grid
    space = np.array([2, 3], np.int64)
    seen = ops.reduce_sum(values, np.array([1], np.int64), keep_dims=True)
    most = ops.maximum(ops.reduce_max(seen, space, keep_dims=True), np.float32(1e-9))
    pooled = ops.reduce_mean(ops.multiply(values, ops.divide(seen, most)), space)
    mean = ops.reduce_mean(values, space)
    logits = ops.add(ops.matmul(mean, ops.constant(network.classifier), False, True), network.classifier_bias)
    model = openvino.Model([pooled, logits, grid, values], [source], "lite0")
    options = {"INFERENCE_NUM_THREADS": cores(), "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(model, "CPU", options).create_infer_request()
    # One at a time: two threads that give OpenVINO 2026.4 their inputs at the same moment wait for each other for ever.
    alone = threading.Lock()

    def run(pictures: torch.Tensor) -> Outputs:
        with alone:
            found = request.infer([np.ascontiguousarray(pictures.numpy())])
            return Outputs(*(np.array(found[i], np.float32) for i in range(len(Outputs._fields))))

    return run


def _operation(ops: Any, values: Any, convolution: Convolution) -> Any:
    """Return the nodes of one convolution, its bias and its ReLU6."""
    stride, nought = [convolution.stride] * 2, [0, 0]
    if convolution.groups == 1:
        node = ops.convolution(values, convolution.weight, stride, nought, nought, [1, 1], "same_upper")
    else:
        weight = convolution.weight[:, None]  # groups, out of each, in of each, k, k
        node = ops.group_convolution(values, weight, stride, nought, nought, [1, 1], "same_upper")
    node = ops.add(node, convolution.bias[None, :, None, None])
    return ops.clamp(node, 0.0, 6.0) if convolution.active else node


def softmax(logits: Floats) -> Floats:
    """Return class probabilities (B, C) of logits (B, C)."""
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True), np.float32)
