"""Other tools read what is written: diffusers with its own loader, the rest as their readers are described."""

import warnings

import pytest
import torch
from safetensors.torch import load_file

from datasieve.training.formats.embeddings import Embedding, read_embeddings, readers, write_embedding

WIDTH = 48
V = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(3))
WORD = Embedding("<my-cat>", {"text": V}, step=9)
SDXL = Embedding("<my-cat>", {"clip_l": V, "clip_g": torch.ones(2, 64)})
FILES = {"datasieve": "a.safetensors", "a1111": "a.pt", "diffusers": "a.safetensors", "onetrainer": "a.safetensors"}


@pytest.fixture
def pipeline(tmp_path_factory):
    """The smallest pipeline, of random weights: the loader needs its text encoder and its real tokenizer."""
    from diffusers import AutoencoderKL, DDPMScheduler, StableDiffusionPipeline, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    from datasieve.training.single_file import tokenizer

    blocks = {"block_out_channels": (32, 32), "norm_num_groups": 16}
    down, up = ("DownEncoderBlock2D",) * 2, ("UpDecoderBlock2D",) * 2
    text = CLIPTextConfig(
        vocab_size=49408, hidden_size=WIDTH, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2
    )
    return StableDiffusionPipeline(
        vae=AutoencoderKL(down_block_types=down, up_block_types=up, **blocks),
        text_encoder=CLIPTextModel(text),
        tokenizer=tokenizer(),
        unet=UNet2DConditionModel(
            sample_size=8,
            cross_attention_dim=WIDTH,
            layers_per_block=1,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            **blocks,
        ),
        scheduler=DDPMScheduler(steps_offset=1, clip_sample=False),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def load(pipeline, file, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers tells of the mean that it fills new rows with, which go at once
        pipeline.load_textual_inversion(file, **options)


def rows(pipeline):
    ids = pipeline.tokenizer.convert_tokens_to_ids(["<my-cat>", "<my-cat>_1"])
    return pipeline.text_encoder.get_input_embeddings().weight[ids]


@pytest.mark.parametrize(
    ("form", "name", "options"),
    [
        ("diffusers", "learned_embeds.safetensors", {}),
        ("diffusers", "learned_embeds.bin", {}),
        ("a1111", "a.pt", {}),
        ("datasieve", "a.safetensors", {"token": "<my-cat>"}),
        ("onetrainer", "a.safetensors", {"token": "<my-cat>"}),
    ],
)
def test_diffusers_own_loader_takes_each_form(pipeline, tmp_path, form, name, options):
    assert len(pipeline.tokenizer) == 49408  # the real vocabulary; transformers 5 gives one of 2 words without a word
    write_embedding(tmp_path / name, WORD, form)
    load(pipeline, str(tmp_path / name), **options)
    assert torch.equal(rows(pipeline), V)
    assert pipeline.maybe_convert_prompt("a <my-cat>", pipeline.tokenizer) == "a <my-cat> <my-cat>_1"


def test_diffusers_takes_each_part_of_an_sdxl_file(pipeline, tmp_path):
    write_embedding(tmp_path / "a.safetensors", SDXL, "datasieve")
    part = load_file(tmp_path / "a.safetensors")["clip_l"]
    load(
        pipeline,
        part,
        token="<my-cat>",
        text_encoder=pipeline.text_encoder,
        tokenizer=pipeline.tokenizer,
    )
    assert torch.equal(rows(pipeline), V)


def test_what_diffusers_loads_into_a_half_precision_encoder_is_rounded_there_and_not_in_the_file(pipeline, tmp_path):
    write_embedding(tmp_path / "learned_embeds.safetensors", WORD, "diffusers")
    pipeline.text_encoder.half()
    load(pipeline, str(tmp_path / "learned_embeds.safetensors"))
    assert torch.equal(rows(pipeline), V.half())
    assert torch.equal(read_embeddings(tmp_path / "learned_embeds.safetensors")[0].vectors["text"], V)


def contents(file):
    return load_file(file) if file.suffix == ".safetensors" else torch.load(file, weights_only=True)


def a1111(found):
    if "string_to_param" in found:
        assert len(found["string_to_param"]) == 1
        return next(iter(found["string_to_param"].values()))
    if "clip_g" in found and "clip_l" in found:
        return found["clip_l"]
    assert isinstance(next(iter(found.values())), torch.Tensor)
    assert len(found) == 1
    return next(iter(found.values()))


def kohya(found):
    if "clip_l" in found:
        return found["clip_l"]
    return next(iter(found["string_to_param"].values())) if "string_to_param" in found else next(iter(found.values()))


def comfy_ui(found):
    if "string_to_param" in found:
        return next(iter(found["string_to_param"].values()))
    return found["clip_l"] if "clip_l" in found else next(iter(found.values()))


def onetrainer(found):
    return found["clip_l"] if "clip_l" in found else found["emp_params"]


READERS = {"A1111": a1111, "kohya": kohya, "ComfyUI": comfy_ui, "OneTrainer": onetrainer}


@pytest.mark.parametrize("tool", READERS)
@pytest.mark.parametrize("form", FILES)
def test_each_reader_that_is_named_finds_the_vectors(tmp_path, form, tool):
    write_embedding(tmp_path / FILES[form], WORD, form)
    found = contents(tmp_path / FILES[form])
    if tool in readers(WORD, form):
        value = READERS[tool](found)
        assert torch.equal(value, V)
        assert value.dtype == torch.float32
    else:
        assert tool == "OneTrainer"
        assert "emp_params" not in found


@pytest.mark.parametrize("tool", READERS)
def test_each_reader_finds_the_vectors_of_two_encoders(tmp_path, tool):
    write_embedding(tmp_path / "a.safetensors", SDXL, "datasieve")
    assert tool in readers(SDXL, "datasieve")
    assert torch.equal(READERS[tool](contents(tmp_path / "a.safetensors")), V)
