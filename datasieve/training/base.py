"""The base model: loaded, recognised, and checked before the first step.

A base is a diffusers folder, a hub id, or one checkpoint file. It is never changed: adapters hang on it by hooks.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasieve.errors import MissingExtra, ModelError

if TYPE_CHECKING:
    import torch

TEXT_WIDTHS = {768: "sd1", 1024: "sd2", 1280: "sdxl"}
"""Width of the text encoder's tokens by model family (Stable Diffusion 1.x, 2.x, XL's second encoder)."""


@dataclass(frozen=True)
class Base:
    """A frozen latent diffusion model with one text encoder.

    Attributes:
        path: what was loaded.
        family: "sd1", "sd2", or "own" when the text width is nobody's.
        identity: changes when the weights do; caches are kept under it.
        unet, vae, text_encoder: diffusers' and transformers' modules, in evaluation mode, without gradients.
        tokenizer: CLIP's.
        noise: diffusers' scheduler settings for training, as a DDPMScheduler.
        prediction: "epsilon" or "v_prediction".
    """

    path: str
    family: str
    identity: str
    unet: Any
    vae: Any
    text_encoder: Any
    tokenizer: Any
    noise: Any
    prediction: str
    device: torch.device
    dtype: torch.dtype

    @property
    def text_width(self) -> int:
        """Numbers in one token vector."""
        return int(self.token_table.weight.shape[1])

    @property
    def token_table(self) -> Any:
        """The embedding layer of the text encoder's tokens."""
        return self.text_encoder.get_input_embeddings()

    @property
    def text_layers(self) -> Any:
        """The transformer itself: transformers 5 flattened CLIPTextModel, older ones wrap it in `text_model`."""
        return getattr(self.text_encoder, "text_model", self.text_encoder)

    @property
    def factor(self) -> int:
        """Pixels along one side of a latent."""
        return int(2 ** (len(self.vae.config.block_out_channels) - 1))

    @property
    def resolution(self) -> int:
        """The side in pixels that the base was made for."""
        return int(self.unet.config.sample_size) * self.factor


def load_base(path: str | Path, *, device: str = "cpu", dtype: str = "fp32") -> Base:
    """Load a base and check that its parts fit each other.

    Args:
        path: a diffusers folder, a `.safetensors` or `.ckpt` file, or the id of a model in the hub's cache.
        device: where it computes.
        dtype: "fp32", "bf16" or "fp16", of the network; the autoencoder stays fp32, whose range pictures can need.

    Raises:
        MissingExtra: the extra `train` is not installed.
        ModelError: there is no such model, a part is missing or damaged, or parts do not fit.
    """
    try:
        import torch
        from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
        from transformers import CLIPTextModel, CLIPTokenizer
    except ImportError as error:
        raise MissingExtra(str(error.name), extra="train", purpose="Training") from None
    to = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    folder = Path(path)
    if folder.is_file():
        from datasieve.training.single_file import load_single_file

        parts = load_single_file(folder)
    else:
        kinds = {
            "unet": UNet2DConditionModel,
            "vae": AutoencoderKL,
            "text_encoder": CLIPTextModel,
            "tokenizer": CLIPTokenizer,
            "scheduler": DDPMScheduler,
        }
        # The file's own dtype would be taken otherwise: an fp16 checkpoint must not be trained in fp16 unasked.
        parts = {n: _part(kind, path, n, torch.float32 if n == "vae" else to) for n, kind in kinds.items()}
    for name in ("unet", "vae", "text_encoder"):
        parts[name].requires_grad_(False).eval().to(device)
    for name in ("unet", "vae"):  # convolutions are quicker so, on processors and on tensor cores
        parts[name].to(memory_format=torch.channels_last)
    width = parts["text_encoder"].get_input_embeddings().weight.shape[1]
    base = Base(
        path=str(path),
        family=TEXT_WIDTHS.get(width, "own"),
        identity=_identity(parts),
        unet=parts["unet"],
        vae=parts["vae"],
        text_encoder=parts["text_encoder"],
        tokenizer=parts["tokenizer"],
        noise=parts["scheduler"],
        prediction=str(parts["scheduler"].config.prediction_type),
        device=torch.device(device),
        dtype=to,
    )
    check_base(base)
    return base


def check_base(base: Base) -> None:
    """Compare the dimensions at which the parts meet. Raises ModelError naming both sides."""
    unet, vae = base.unet.config, base.vae.config
    faults = []
    if unet.cross_attention_dim != base.text_width:
        faults.append(
            f"the UNet reads text of width {unet.cross_attention_dim}, the text encoder gives {base.text_width}"
        )
    if unet.in_channels != vae.latent_channels:
        hint = " (an inpainting or depth model)" if unet.in_channels in (9, 5) and vae.latent_channels == 4 else ""
        faults.append(f"the UNet takes {unet.in_channels} channels{hint}, the autoencoder makes {vae.latent_channels}")
    if unet.out_channels not in (unet.in_channels, 2 * unet.in_channels):
        faults.append(f"the UNet returns {unet.out_channels} channels for {unet.in_channels}")
    if base.prediction not in ("epsilon", "v_prediction"):
        faults.append(f"prediction type {base.prediction!r} is not one of epsilon, v_prediction")
    # Under transformers 5 a tokenizer built with the old argument names has a vocabulary of two, silently.
    rows = base.token_table.weight.shape[0]
    if len(base.tokenizer) > rows or len(base.tokenizer) < 0.9 * rows:
        faults.append(f"the tokenizer knows {len(base.tokenizer)} tokens, the text encoder's table has {rows} rows")
    if faults:
        raise ModelError(f"{base.path} cannot be trained on: " + "; ".join(faults), remedy="Name another --base.")
    for name, module in (("unet", base.unet), ("text_encoder", base.text_encoder), ("vae", base.vae)):
        for key, value in module.named_parameters():
            if not value.isfinite().all():
                raise ModelError(
                    f"{base.path}: {name}/{key} holds inf or NaN as {str(value.dtype).removeprefix('torch.')}",
                    remedy="Load it with --precision fp32, or get the checkpoint again.",
                )


def _part(kind: Any, path: str | Path, name: str, dtype: torch.dtype) -> Any:
    """Load one part of a diffusers folder, from disk alone."""
    from huggingface_hub.errors import HfHubHTTPError

    where = Path(path)
    if where.is_dir() and not (where / name).is_dir():
        raise ModelError(
            f"{where} has no folder {name!r}, so it is no diffusers model",
            remedy="Name a folder that holds unet, vae, text_encoder, tokenizer and scheduler, or one checkpoint file.",
        )
    options: dict[str, Any] = {"subfolder": name, "local_files_only": True}
    if name in ("unet", "vae"):
        options |= {"torch_dtype": dtype, "low_cpu_mem_usage": False}
    elif name == "text_encoder":
        options |= {"dtype": dtype}
    try:
        return _quietly(kind.from_pretrained, str(path), **options)
    except (OSError, ValueError, RuntimeError, KeyError, HfHubHTTPError) as error:
        if not where.exists():
            raise ModelError(
                f"there is no base model {path}: no such folder or file, and the hub's cache does not hold it",
                remedy="Name a diffusers folder or checkpoint, or download it first: hf download " + str(path),
            ) from None
        reason = str(error).strip().split("\n")[0]
        raise ModelError(
            f"{where / name} cannot be loaded: {reason}", remedy="The folder may be damaged; get it again."
        ) from None


def _quietly(load: Any, path: str, **options: Any) -> Any:
    """Call a loader of diffusers or transformers without its progress bars, and its notes on its own options."""
    import warnings

    from diffusers.utils import logging as of_diffusers
    from transformers.utils import logging as of_transformers

    of_diffusers.disable_progress_bar()
    of_transformers.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return load(path, **options)
    finally:
        of_diffusers.enable_progress_bar()
        of_transformers.enable_progress_bar()


def _identity(parts: dict[str, Any]) -> str:
    """Return 16 hex digits that change when the autoencoder or the text encoder does."""
    digest = hashlib.sha256()
    for name in ("vae", "text_encoder"):
        config = (
            {k: v for k, v in parts[name].config.to_dict().items() if not k.startswith("_")}
            if hasattr(parts[name].config, "to_dict")
            else {k: v for k, v in dict(parts[name].config).items() if not k.startswith("_")}
        )
        digest.update(json.dumps(config, sort_keys=True, default=str).encode())
        for key, value in parts[name].state_dict().items():
            # Sums in double precision: quick, and no retrained tensor has the same two.
            flat = value.detach().double().flatten()
            digest.update(f"{key}{float(flat.sum()):.17g}{float(flat.abs().sum()):.17g}".encode())
    return digest.hexdigest()[:16]
