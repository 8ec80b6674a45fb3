"""Stable Diffusion 1.x and 2.x from one checkpoint file, as A1111 and ComfyUI keep them.

The network and the autoencoder are converted by diffusers from configurations that stand here, so that nothing is asked
of a hub; the text encoder's names are translated here.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasieve.errors import ModelError

if TYPE_CHECKING:
    import torch

VAE: dict[str, Any] = {
    "_class_name": "AutoencoderKL",
    "in_channels": 3,
    "out_channels": 3,
    "latent_channels": 4,
    "block_out_channels": [128, 256, 512, 512],
    "down_block_types": ["DownEncoderBlock2D"] * 4,
    "up_block_types": ["UpDecoderBlock2D"] * 4,
    "layers_per_block": 2,
    "sample_size": 512,
    "scaling_factor": 0.18215,
}
_UNET: dict[str, Any] = {
    "_class_name": "UNet2DConditionModel",
    "in_channels": 4,
    "out_channels": 4,
    "block_out_channels": [320, 640, 1280, 1280],
    "down_block_types": ["CrossAttnDownBlock2D"] * 3 + ["DownBlock2D"],
    "up_block_types": ["UpBlock2D"] + ["CrossAttnUpBlock2D"] * 3,
    "layers_per_block": 2,
}
FAMILIES: dict[int, dict[str, dict[str, Any]]] = {
    768: {
        "unet": _UNET | {"cross_attention_dim": 768, "attention_head_dim": 8, "sample_size": 64},
        "vae": VAE,
        "text": {"layers": 12, "heads": 12, "act": "quick_gelu"},
    },
    1024: {
        "unet": _UNET
        | {
            "cross_attention_dim": 1024,
            "attention_head_dim": [5, 10, 20, 20],
            "use_linear_projection": True,
            "sample_size": 64,
        },
        # The last of OpenCLIP ViT-H's 24 layers is not used.
        "vae": VAE,
        "text": {"layers": 23, "heads": 16, "act": "gelu"},
    },
}
"""Configurations by the width of the text that the network reads: 768 is SD 1.x, 1024 is SD 2.x."""

UNET, AUTOENCODER = "model.diffusion_model.", "first_stage_model."
CLIP_L, OPEN_CLIP = "cond_stage_model.transformer.text_model.", "cond_stage_model.model."
_LAYERS = {
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "attn.out_proj": "self_attn.out_proj",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}


def load_single_file(file: Path) -> dict[str, Any]:
    """Return {"unet", "vae", "text_encoder", "tokenizer", "scheduler"} of a checkpoint.

    Raises ModelError when the file is damaged, holds code, or is no SD 1.x or 2.x.
    """
    state = read_checkpoint(file)
    width = next((v.shape[1] for k, v in state.items() if k.startswith(UNET) and k.endswith("attn2.to_k.weight")), None)
    if width is None:
        raise ModelError(
            f"{file} holds no Stable Diffusion network (no key below {UNET})",
            remedy="Name a whole checkpoint, not a LoRA, an embedding or an autoencoder.",
        )
    if width not in FAMILIES:
        known = "this is SDXL, which is not supported yet" if width == 2048 else f"its text is {width} wide"
        raise ModelError(f"{file} is neither SD 1.x nor 2.x: {known}", remedy="Name another --base.")
    family = FAMILIES[width]
    from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel

    with tempfile.TemporaryDirectory() as folder:
        for name in ("unet", "vae"):
            (Path(folder) / name).mkdir()
            (Path(folder) / name / "config.json").write_text(json.dumps(family[name]), encoding="utf-8")
        options: dict[str, Any] = {"config": folder, "local_files_only": True}
        try:
            unet = UNet2DConditionModel.from_single_file(
                {k: v for k, v in state.items() if k.startswith(UNET)}, subfolder="unet", **options
            )
            vae = AutoencoderKL.from_single_file(
                {k: v for k, v in state.items() if k.startswith(AUTOENCODER)}, subfolder="vae", **options
            )
        except (KeyError, ValueError, RuntimeError, OSError, AttributeError) as error:
            reason = str(error).strip().split("\n")[0]
            raise ModelError(f"{file} cannot be converted: {reason}", remedy="Is the checkpoint whole?") from None
    parts = {
        "unet": unet.float(),
        "vae": vae.float(),
        "text_encoder": text_encoder(state, width, family["text"], file),
        "tokenizer": tokenizer(pad_with_end=width != 1024),
    }
    schedule = {"num_train_timesteps": 1000, "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"}
    kind = "epsilon" if width == 768 else _prediction(parts)
    parts["scheduler"] = DDPMScheduler(**schedule, clip_sample=False, steps_offset=1, prediction_type=kind)
    if kind == "v_prediction":  # the model that predicts velocity is the one made for 768 pixels
        parts["unet"].register_to_config(sample_size=96)
    return parts


def read_checkpoint(file: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a `.safetensors` or `.ckpt` file; nothing in it is executed. Raises ModelError."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if file.suffix == ".safetensors":
            return dict(load_file(file))
        found = torch.load(file, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError, RuntimeError, EOFError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"{file} cannot be read: {reason}", remedy="It may be damaged; get it again.") from None
    except Exception:  # torch's own refusal of pickles that hold more than tensors
        raise ModelError(
            f"{file} holds more than tensors, which could run code, and is not opened",
            remedy="Get the model as .safetensors.",
        ) from None
    state = found.get("state_dict", found) if isinstance(found, dict) else {}
    return {k: v for k, v in state.items() if isinstance(v, torch.Tensor)}


def text_encoder(state: dict[str, torch.Tensor], width: int, shape: dict[str, Any], file: Path) -> Any:
    """Return transformers' CLIPTextModel with the checkpoint's text tower. Raises ModelError when it is not there."""
    from transformers import CLIPTextConfig, CLIPTextModel

    table = next((v for k, v in state.items() if k.endswith("token_embedding.weight")), None)
    if table is None:
        raise ModelError(f"{file} holds no text encoder", remedy="Name a whole checkpoint.")
    config = CLIPTextConfig(
        vocab_size=table.shape[0],
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        hidden_act=shape["act"],
        bos_token_id=49406,
        eos_token_id=49407,
    )
    model = CLIPTextModel(config)
    inner = getattr(model, "text_model", model)
    mine = {k.removeprefix(CLIP_L): v for k, v in state.items() if k.startswith(CLIP_L)}
    if not mine:
        mine = _from_open_clip({k.removeprefix(OPEN_CLIP): v for k, v in state.items() if k.startswith(OPEN_CLIP)})
    wanted = inner.state_dict()
    missing = [k for k in wanted if k not in mine and not k.endswith("position_ids")]
    if missing:
        raise ModelError(f"{file} lacks {len(missing)} parts of the text encoder, such as {missing[0]}")
    inner.load_state_dict({k: mine[k].float() for k in wanted if k in mine}, strict=False)
    return model


def _from_open_clip(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return OpenCLIP's text tower under transformers' names."""
    named = {
        "token_embedding.weight": "embeddings.token_embedding.weight",
        "positional_embedding": "embeddings.position_embedding.weight",
        "ln_final.weight": "final_layer_norm.weight",
        "ln_final.bias": "final_layer_norm.bias",
    }
    found = {named[k]: v for k, v in state.items() if k in named}
    for key, value in state.items():
        parts = key.split(".")
        if parts[:2] != ["transformer", "resblocks"]:
            continue
        layer, rest = f"encoder.layers.{parts[2]}", ".".join(parts[3:])
        if rest.startswith("attn.in_proj_"):
            end = rest.removeprefix("attn.in_proj_")
            for name, part in zip("qkv", value.chunk(3), strict=True):
                found[f"{layer}.self_attn.{name}_proj.{end}"] = part
        else:
            stem, _, end = rest.rpartition(".")
            found[f"{layer}.{_LAYERS.get(stem, stem)}.{end}"] = value
    return found


def tokenizer(*, pad_with_end: bool = True) -> Any:
    """Return transformers' CLIPTokenizer with the vocabulary that open_clip ships.

    Args:
        pad_with_end: SD 1.x fills prompts up with the end token, SD 2.x with "!" (id 0).
    """
    import gzip

    import open_clip
    from transformers import CLIPTokenizer

    file = Path(open_clip.__file__).parent / "bpe_simple_vocab_16e6.txt.gz"
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        merges = [tuple(line.split()) for line in lines.read().split("\n")[1:48895]]
    letters = list(open_clip.tokenizer.bytes_to_unicode().values())
    words = [*letters, *(f"{c}</w>" for c in letters), *("".join(merge) for merge in merges)]
    vocabulary = {word: i for i, word in enumerate([*words, "<|startoftext|>", "<|endoftext|>"])}
    options = {} if pad_with_end else {"pad_token": "!"}
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=77, **options)


def _prediction(parts: dict[str, Any]) -> str:
    """Tell epsilon from v-prediction, which a checkpoint does not say.

    At the last timestep the input is nearly pure noise: a network that predicts noise returns its input, one that
    predicts velocity nearly the negative picture.
    """
    import torch

    ids = torch.full((1, 77), 49407)
    ids[0, 0] = 49406
    with torch.no_grad():
        text = parts["text_encoder"](ids)[0]
        noise = torch.randn((1, parts["unet"].config.in_channels, 32, 32), generator=torch.Generator().manual_seed(0))
        told = parts["unet"](noise, torch.tensor([999]), encoder_hidden_states=text).sample
    likeness = torch.nn.functional.cosine_similarity(told.flatten(), noise.flatten(), dim=0)
    return "epsilon" if float(likeness) > 0.5 else "v_prediction"
