"""The small base, renamed as A1111 and ComfyUI keep checkpoints, must load as the same model."""

import json
import pickle
import re

import pytest
import torch
from safetensors.torch import save_file

from datasieve.errors import ModelError
from datasieve.training import single_file
from datasieve.training.base import load_base

from .conftest import TINY_SD

RESNET = {"norm1": "in_layers.0", "conv1": "in_layers.2", "time_emb_proj": "emb_layers.1", "norm2": "out_layers.0",
          "conv2": "out_layers.3", "conv_shortcut": "skip_connection"}  # fmt: skip
UNET = {
    "conv_in": "input_blocks.0.0",
    "time_embedding.linear_1": "time_embed.0",
    "time_embedding.linear_2": "time_embed.2",
    "conv_norm_out": "out.0",
    "conv_out": "out.2",
    "down_blocks.0.resnets.0": "input_blocks.1.0",
    "down_blocks.0.attentions.0": "input_blocks.1.1",
    "down_blocks.0.downsamplers.0.conv": "input_blocks.2.0.op",
    "down_blocks.1.resnets.0": "input_blocks.3.0",
    "mid_block.resnets.0": "middle_block.0",
    "mid_block.attentions.0": "middle_block.1",
    "mid_block.resnets.1": "middle_block.2",
    "up_blocks.0.resnets.0": "output_blocks.0.0",
    "up_blocks.0.resnets.1": "output_blocks.1.0",
    "up_blocks.0.upsamplers.0.conv": "output_blocks.1.1.conv",
    "up_blocks.1.resnets.0": "output_blocks.2.0",
    "up_blocks.1.attentions.0": "output_blocks.2.1",
    "up_blocks.1.resnets.1": "output_blocks.3.0",
    "up_blocks.1.attentions.1": "output_blocks.3.1",
}


def unet_name(key):
    place = max((k for k in UNET if key.startswith(f"{k}.")), key=len)
    rest = key[len(place) + 1 :]
    if ".resnets." in f".{place}." or place.startswith("mid_block.resnets"):
        part, end = rest.rsplit(".", 1)
        rest = f"{RESNET[part]}.{end}"
    return f"model.diffusion_model.{UNET[place]}.{rest}"


def vae_name(key):
    key = re.sub(r"down_blocks\.(\d)\.resnets\.(\d)", r"down.\1.block.\2", key)
    key = re.sub(r"down_blocks\.(\d)\.downsamplers\.0", r"down.\1.downsample", key)
    key = re.sub(r"up_blocks\.(\d)\.resnets\.(\d)", lambda m: f"up.{3 - int(m[1])}.block.{m[2]}", key)
    key = re.sub(r"up_blocks\.(\d)\.upsamplers\.0", lambda m: f"up.{3 - int(m[1])}.upsample", key)
    key = re.sub(r"mid_block\.resnets\.(\d)", lambda m: f"mid.block_{int(m[1]) + 1}", key)
    key = key.replace("mid_block.attentions.0", "mid.attn_1").replace("conv_shortcut", "nin_shortcut")
    key = key.replace("conv_norm_out", "norm_out")
    for ours, theirs in (("group_norm", "norm"), ("to_q", "q"), ("to_k", "k"), ("to_v", "v"), ("to_out.0", "proj_out")):
        key = key.replace(f"attn_1.{ours}.", f"attn_1.{theirs}.")
    return f"first_stage_model.{key}"


@pytest.fixture(scope="module")
def state(base):
    named = {unet_name(k): v for k, v in base.unet.state_dict().items()}
    for key, value in base.vae.state_dict().items():
        name = vae_name(key)
        square = ".attn_1." in name and name.endswith("weight") and ".norm." not in name
        named[name] = value[:, :, None, None] if square else value
    named |= {f"{single_file.CLIP_L}{k}": v for k, v in base.text_layers.state_dict().items()}
    return {k: v.clone().contiguous() for k, v in named.items()}


@pytest.fixture(autouse=True)
def small_family(monkeypatch):
    read = {n: json.loads((TINY_SD / n / "config.json").read_text()) for n in ("unet", "vae", "text_encoder")}
    text = {"layers": 4, "heads": 7, "act": "gelu"}
    family = {"unet": read["unet"], "vae": read["vae"], "text": text}
    monkeypatch.setitem(single_file.FAMILIES, 112, family)


@pytest.mark.parametrize("form", ["safetensors", "ckpt"])
def test_a_checkpoint_file_loads_as_the_folder_does(base, state, tmp_path, form):
    file = tmp_path / f"model.{form}"
    if form == "safetensors":
        save_file(state, str(file))
    else:
        torch.save({"state_dict": state, "global_step": 7}, file)
    # The published families' other numbers are in the configurations; only the prediction type is measured.
    loaded = load_base(file)
    for name in ("unet", "vae"):
        want, found = getattr(base, name).state_dict(), getattr(loaded, name).state_dict()
        assert all(torch.equal(want[key], found[key]) for key in want), name
    ids = base.tokenizer(["a red apple"], padding="max_length", return_tensors="pt").input_ids
    assert torch.equal(loaded.tokenizer(["a red apple"], padding="max_length", return_tensors="pt").input_ids, ids)
    with torch.no_grad():
        assert torch.allclose(base.text_encoder(ids)[0], loaded.text_encoder(ids)[0], atol=1e-6)


def test_openclips_text_tower_is_understood_as_transformers(base):
    ours = base.text_layers.state_dict()
    theirs = {
        "token_embedding.weight": ours["embeddings.token_embedding.weight"],
        "positional_embedding": ours["embeddings.position_embedding.weight"],
        "ln_final.weight": ours["final_layer_norm.weight"],
        "ln_final.bias": ours["final_layer_norm.bias"],
    }
    for i in range(4):
        old, new = f"encoder.layers.{i}", f"transformer.resblocks.{i}"
        for end in ("weight", "bias"):
            parts = [ours[f"{old}.self_attn.{n}_proj.{end}"] for n in "qkv"]
            theirs[f"{new}.attn.in_proj_{end}"] = torch.cat(parts)
            for a, b in (("ln_1", "layer_norm1"), ("ln_2", "layer_norm2"), ("attn.out_proj", "self_attn.out_proj"),
                         ("mlp.c_fc", "mlp.fc1"), ("mlp.c_proj", "mlp.fc2")):  # fmt: skip
                theirs[f"{new}.{a}.{end}"] = ours[f"{old}.{b}.{end}"]
    found = single_file._from_open_clip(theirs)
    assert all(torch.equal(found[key], ours[key]) for key in found)
    assert {k for k in ours if not k.endswith("position_ids")} == set(found)


class Evil:
    def __reduce__(self):
        return (print, ("this must never be printed",))


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path, capsys):
    file = tmp_path / "evil.ckpt"
    file.write_bytes(pickle.dumps({"state_dict": Evil()}))
    with pytest.raises(ModelError, match=r"evil\.ckpt"):
        load_base(file)
    torch.save({"state_dict": {"a": Evil()}}, file)
    with pytest.raises(ModelError, match="not opened"):
        load_base(file)
    assert "never be printed" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"\x08\0\0\0\0\0\0\0{}      ", b"nonsense" * 10])
def test_a_damaged_file_is_told_by_name(tmp_path, content):
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        load_base(file)


def test_what_is_no_checkpoint_says_what_is_missing(tmp_path):
    file = tmp_path / "lora.safetensors"
    save_file({"lora_unet_down.weight": torch.zeros(2, 2)}, str(file))
    with pytest.raises(ModelError, match="no Stable Diffusion network"):
        load_base(file)


def test_sdxl_is_recognised_and_declined(state, tmp_path):
    wide = {"model.diffusion_model.input_blocks.4.1.transformer_blocks.0.attn2.to_k.weight": torch.zeros(2, 2048)}
    save_file(wide, str(tmp_path / "xl.safetensors"))
    with pytest.raises(ModelError, match="SDXL"):
        load_base(tmp_path / "xl.safetensors")
