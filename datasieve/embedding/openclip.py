"""CLIP models through open_clip: pictures and texts as vectors of one space.

Pictures are resized, cut and normalised on the device, as the model's own preprocessing does it (within 1e-3 of its
cosine: tests/embedding/test_openclip.py). No reference mean of many kinds of pictures comes with an arbitrary model, so
vectors are not centred: angles between them, and limits set for other embedders, mean nothing here.

Half precision is used where it is faster: on CUDA, and on CPUs with bfloat16 matrix units (AMX). Without those,
bfloat16 takes longer than float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError

from datasieve.embedding.clip_weights import ClipWeights, located, reachable
from datasieve.embedding.parallel import each
from datasieve.embedding.resizing import Fit, Interpolation, Picture, fitted
from datasieve.errors import ModelError

if TYPE_CHECKING:
    import torch

Floats = npt.NDArray[np.float32]

BATCH = 32
"""Texts per pass."""


class OpenClip:
    """See the module, `Embedder` and `TextSpace`.

    Attributes:
        scale: what the model was trained to multiply cosines by.

    Args:
        model: what open_clip made, in float32, with its preprocessing attached.
        tokenizer: texts to (N, context) token numbers.
        weights: where it came from.
        device: where it computes.
    """

    name = "clip"
    method = "clip"
    centred = False

    def __init__(self, model: Any, tokenizer: Any, weights: ClipWeights, device: str) -> None:
        self.identity = weights.identity
        self.size = weights.size
        self._dtype = half_precision(device)
        self.backend = "torch" if self._dtype is None else f"torch, {str(self._dtype).removeprefix('torch.')} autocast"
        self.scale = float(model.logit_scale.detach().exp())
        self._model = model.to(device).eval()
        self._tokenizer = tokenizer
        self._device = device
        self._preprocessing = dict(model.visual.preprocess_cfg)

    def images(self, pictures: Sequence[Picture]) -> Floats:
        """Return (B, size) unit vectors; arguments as in `Embedder`."""
        import torch

        with torch.inference_mode(), self._precision():
            return _unit(self._model.encode_image(self.inputs(pictures)))

    pictures = images

    def grid(self, pictures: Sequence[Picture]) -> Floats:
        """Return features of the patches after the last block, (B, h, w, channels); not normalised."""
        import torch

        with torch.inference_mode(), self._precision():
            found = self._model.visual.forward_intermediates(
                self.inputs(pictures), indices=1, intermediates_only=True, output_fmt="NCHW"
            )
        return np.asarray(found["image_intermediates"][-1].float().permute(0, 2, 3, 1).cpu().numpy(), np.float32)

    def texts(self, texts: Sequence[str]) -> Floats:
        """Return (N, size) unit vectors of N texts, cut off at the model's context; equal texts are computed once."""
        distinct = list(dict.fromkeys(texts))
        batches = [distinct[i : i + BATCH] for i in range(0, len(distinct), BATCH)]
        parts = list(each(self._texts, batches, self._device))
        found = np.concatenate(parts) if parts else np.zeros((0, self.size), np.float32)
        place = {text: row for row, text in enumerate(distinct)}
        return found[[place[text] for text in texts]]

    def _texts(self, texts: list[str]) -> Floats:
        import torch

        with torch.inference_mode(), self._precision():
            return _unit(self._model.encode_text(self._tokenizer(texts).to(self._device)))

    def inputs(self, pictures: Sequence[Picture]) -> torch.Tensor:
        """Return (B, 3, h, w) pictures as the model wants them, on its device."""
        import torch

        told = self._preprocessing
        size = told["size"]
        height, width = (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
        mode: Interpolation = "bilinear" if told.get("interpolation") == "bilinear" else "bicubic"
        fit: Fit = told.get("resize_mode") or "shortest"
        fill = int(told.get("fill_color") or 0)
        out = torch.empty(len(pictures), 3, height, width, device=self._device)
        for i, picture in enumerate(pictures):
            out[i] = fitted(picture, (height, width), mode, fit, fill, self._device)
        mean, std = (torch.tensor(told[k], device=self._device).view(-1, 1, 1) for k in ("mean", "std"))
        return out.div_(255).sub_(mean).div_(std)

    def _precision(self) -> AbstractContextManager[Any]:
        import torch

        if self._dtype is None:
            return nullcontext()
        return torch.autocast(self._device.split(":")[0], self._dtype)


def _unit(vectors: torch.Tensor) -> Floats:
    import torch.nn.functional as functional

    return np.asarray(functional.normalize(vectors.float(), dim=-1).cpu().numpy(), np.float32)


@lru_cache(maxsize=2)
def half_precision(device: str) -> torch.dtype | None:
    """Return the type that is faster than float32 on a device; None where there is none."""
    import torch

    if device.startswith("cuda"):
        return torch.float16
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return None
    return torch.bfloat16 if "amx_bf16" in flags else None


@lru_cache(maxsize=2)
def open_clip_model(spec: str, device: str) -> OpenClip | str:
    """Return the CLIP model that `spec` names (`clip_weights.located`), or one sentence why it cannot be had.

    Raises ConfigError for a model that is not known, ModelError for weights that cannot be read or do not fit it.
    """
    weights = located(spec)
    if isinstance(weights, str):
        return weights
    import open_clip

    local = weights.model.startswith("local-dir:")
    try:
        # Checkpoints are read with weights_only: nothing in them is ever executed.
        model = open_clip.create_model(
            weights.model,
            pretrained=None if local else str(weights.file),
            force_quick_gelu=weights.quick_gelu,
            force_preprocess_cfg=dict(weights.preprocessing),
        )
        tokenizer = open_clip.get_tokenizer(weights.model, **_without_network(weights.model))
    except _UNFIT as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        remedy = "Check that the file is whole and belongs to this model."
        raise ModelError(f"cannot load {weights.file}: {reason}", remedy=remedy) from error
    return OpenClip(model, tokenizer, weights, device)


_UNFIT = (OSError, RuntimeError, ValueError, KeyError, TypeError, AssertionError, SafetensorError, UnpicklingError)
"""What open_clip and its readers raise for broken files, and for weights of another model."""


def _without_network(model: str) -> dict[str, bool]:
    """Return what keeps a tokenizer that comes from the hub from waiting for a network that is not there."""
    import open_clip
    from huggingface_hub import constants

    config = None if model.startswith("local-dir:") else open_clip.get_model_config(model)
    from_hub = bool(config and config.get("text_cfg", {}).get("hf_tokenizer_name"))
    return {"local_files_only": True} if from_hub and not reachable(constants.ENDPOINT) else {}
