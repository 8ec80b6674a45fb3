"""Put the trained parts together as fixtures/tiny-sd: a diffusers folder with fp16 weights.

    python -m benchmarks.tiny_base.assemble --work FOLDER [--out fixtures/tiny-sd]

The text encoder is fixtures/tiny-clip's text tower, in transformers' layout. transformers 5 saves a model that was
built fresh under flat names, which older versions load as random weights without an error; so names get `text_model.`
again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from benchmarks.tiny_base import vae as autoencoder
from benchmarks.tiny_clip.train import CONFIG as CLIP

UNET: dict[str, Any] = {
    "sample_size": 8,
    "in_channels": 8,
    "out_channels": 8,
    "block_out_channels": (128, 160),
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    "layers_per_block": 1,
    "cross_attention_dim": CLIP["text_cfg"]["width"],
    "attention_head_dim": 8,
    "norm_num_groups": 32,
}
NOISE: dict[str, Any] = {
    "num_train_timesteps": 1000,
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "prediction_type": "epsilon",
    "clip_sample": False,
    "steps_offset": 1,
}


def text_encoder(clip_state: dict[str, torch.Tensor]) -> Any:
    """Return transformers' CLIPTextModel with the weights of open_clip's text tower."""
    from transformers import CLIPTextConfig, CLIPTextModel

    text = CLIP["text_cfg"]
    model = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=text["vocab_size"],
            hidden_size=text["width"],
            intermediate_size=4 * text["width"],
            num_hidden_layers=text["layers"],
            num_attention_heads=text["heads"],
            max_position_embeddings=text["context_length"],
            hidden_act="gelu",
            bos_token_id=49406,
            eos_token_id=49407,
            pad_token_id=49407,
            projection_dim=CLIP["embed_dim"],
        )
    )
    state = {
        "embeddings.token_embedding.weight": clip_state["token_embedding.weight"],
        "embeddings.position_embedding.weight": clip_state["positional_embedding"],
        "final_layer_norm.weight": clip_state["ln_final.weight"],
        "final_layer_norm.bias": clip_state["ln_final.bias"],
    }
    pairs = {
        "ln_1": "layer_norm1",
        "ln_2": "layer_norm2",
        "attn.out_proj": "self_attn.out_proj",
        "mlp.c_fc": "mlp.fc1",
        "mlp.c_proj": "mlp.fc2",
    }
    for i in range(text["layers"]):
        theirs, ours = f"transformer.resblocks.{i}", f"encoder.layers.{i}"
        for end in ("weight", "bias"):
            for a, b in pairs.items():
                state[f"{ours}.{b}.{end}"] = clip_state[f"{theirs}.{a}.{end}"]
            q, k, v = clip_state[f"{theirs}.attn.in_proj_{end}"].chunk(3)
            state |= {f"{ours}.self_attn.{n}_proj.{end}": part for n, part in zip("qkv", (q, k, v), strict=True)}
    inner = getattr(model, "text_model", model)
    missing, unexpected = inner.load_state_dict({k: v.float() for k, v in state.items()}, strict=False)
    assert not unexpected, unexpected
    assert all("position_ids" in name for name in missing), missing
    return model.eval()


def tokenizer() -> Any:
    """Return transformers' CLIPTokenizer with the vocabulary that open_clip ships."""
    import gzip

    import open_clip
    from transformers import CLIPTokenizer

    file = Path(open_clip.__file__).parent / "bpe_simple_vocab_16e6.txt.gz"
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        merges = [tuple(line.split()) for line in lines.read().split("\n")[1 : 49152 - 256 - 2 + 1]]
    letters = list(open_clip.tokenizer.bytes_to_unicode().values())
    words = [*letters, *(f"{c}</w>" for c in letters), *("".join(m) for m in merges)]
    vocabulary = {word: i for i, word in enumerate([*words, "<|startoftext|>", "<|endoftext|>"])}
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=77)


def load_vae(work: Path) -> tuple[Any, float]:
    """Return the trained autoencoder and the factor that brings its latents to unit variance."""
    vae = autoencoder.build()
    kept = torch.load(work / "vae.pt", weights_only=True)
    vae.load_state_dict(kept["model"])
    return vae.eval(), 1 / kept["latent_std"]


def build_unet() -> Any:
    """Return the untrained network, seeded."""
    from diffusers import UNet2DConditionModel

    torch.manual_seed(0)
    return UNet2DConditionModel(**UNET).to(memory_format=torch.channels_last)


def assemble(work: Path, out: Path, unet_state: dict[str, torch.Tensor]) -> None:
    """Write the folder."""
    from diffusers import DDIMScheduler, StableDiffusionPipeline
    from safetensors.torch import load_file, save_file

    vae, scale = load_vae(work)
    vae.register_to_config(scaling_factor=round(scale, 5))
    unet = build_unet()
    unet.load_state_dict(unet_state)
    clip = torch.load(work / "clip.pt", weights_only=True)["model"]
    pipeline = StableDiffusionPipeline(
        vae=vae,
        text_encoder=text_encoder(clip),
        tokenizer=tokenizer(),
        unet=unet,
        scheduler=DDIMScheduler(**NOISE, set_alpha_to_one=False),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).to(torch.float16)
    pipeline.save_pretrained(out, safe_serialization=True)
    file = out / "text_encoder" / "model.safetensors"
    weights = {k if k.startswith("text_model.") else f"text_model.{k}": v for k, v in load_file(file).items()}
    save_file(weights, str(file), metadata={"format": "pt"})
    for config in out.rglob("*.json"):  # no path of the machine it was made on
        text = json.loads(config.read_text(encoding="utf-8"))
        if isinstance(text, dict) and "_name_or_path" in text:
            del text["_name_or_path"]
            config.write_text(json.dumps(text, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("fixtures/tiny-sd"))
    options = parser.parse_args()
    kept = torch.load(options.work / "unet.pt", weights_only=True)
    assemble(options.work, options.out, kept["mean"])


if __name__ == "__main__":
    main()
