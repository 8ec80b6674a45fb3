import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from datasieve.errors import ModelError
from datasieve.training.base import check_base, load_base

from .conftest import TINY_SD


def test_a_folder_is_loaded_frozen_in_float32_and_known(base):
    assert base.family == "own"
    assert (base.text_width, base.factor, base.resolution, base.prediction) == (112, 8, 64, "epsilon")
    for part in (base.unet, base.vae, base.text_encoder):
        assert not part.training
        assert all(not p.requires_grad and p.dtype == torch.float32 for p in part.parameters())


def test_the_tokenizer_is_clips_own(base):
    import open_clip

    for text in ("a photo of a red apple", "don't, <toy>; 12 çava", "MiXeD case"):
        ids = base.tokenizer(text, padding="max_length", truncation=True, max_length=77).input_ids
        theirs = open_clip.tokenize([text])[0].tolist()
        end = theirs.index(49407)
        assert ids[: end + 1] == theirs[: end + 1]


def test_parts_that_do_not_fit_are_named_on_both_sides(base):
    unet = SimpleNamespace(config=SimpleNamespace(cross_attention_dim=768, in_channels=9, out_channels=4))
    odd = replace(base, unet=unet, prediction="sample", tokenizer=["two", "words"])
    with pytest.raises(ModelError) as caught:
        check_base(odd)
    for said in ("768", "112", "9 channels", "makes 8", "'sample'", "knows 2 tokens", "49408 rows"):
        assert said in caught.value.message


def test_weights_that_are_not_finite_are_told_before_the_first_step(base):
    kept = base.vae.conv_out.bias if hasattr(base.vae, "conv_out") else base.vae.decoder.conv_out.bias
    before = kept.detach().clone()
    with torch.no_grad():
        kept[0] = float("inf")
    try:
        with pytest.raises(ModelError, match="inf or NaN"):
            check_base(base)
    finally:
        with torch.no_grad():
            kept.copy_(before)


def test_a_folder_that_is_no_model_says_what_it_should_hold(tmp_path):
    with pytest.raises(ModelError, match="has no folder 'unet'"):
        load_base(tmp_path)


def test_a_name_that_is_nowhere_is_told_at_once_without_asking_the_network():
    with pytest.raises(ModelError, match="no base model nobody/nothing"):
        load_base("nobody/nothing")


def test_a_damaged_part_is_named(tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(TINY_SD, copy)
    weights = copy / "unet" / "diffusion_pytorch_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelError, match="unet"):
        load_base(copy)


def test_a_config_of_another_width_is_caught_before_training(tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(TINY_SD, copy)
    file = copy / "vae" / "config.json"
    config = json.loads(file.read_text()) | {"latent_channels": 4}
    file.write_text(json.dumps(config))
    with pytest.raises(ModelError, match="vae"):
        load_base(copy)
