"""`datasieve convert`: what it says, what it refuses, and that it leaves nothing behind when it fails."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from datasieve.cli import main

V = torch.randn(2, 8)
A1111 = {"string_to_token": {"*": 265}, "string_to_param": {"*": V}, "name": "my-cat", "step": 700, "notes": "mine"}


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(A1111, "cat.pt")
    save_file({"clip_l": V, "clip_g": torch.ones(2, 9)}, "sdxl.safetensors")
    save_file(
        {"bundle_emb.a.clip_l": V, "bundle_emb.b.clip_l": V + 1, "lora_unet_x.alpha": torch.ones(1)}, "lora.safetensors"
    )
    weights = {"linear.0.weight": torch.ones(8, 8), "linear.0.bias": torch.ones(8)}
    torch.save({8: (weights, weights), "layer_structure": [1, 1], "activation_func": "softplus"}, "style.pt")
    return tmp_path


@pytest.mark.parametrize(
    ("target", "options", "keys"),
    [
        ("b.safetensors", [], ["emb_params"]),
        ("learned_embeds.safetensors", [], ["my-cat"]),
        ("b.safetensors", ["--to", "diffusers", "--name", "<cat>"], ["<cat>"]),
        ("b.safetensors", ["--to", "onetrainer"], ["emp_params"]),
    ],
)
def test_the_targets_name_or_the_option_gives_the_form(files, target, options, keys):
    assert main(["convert", "cat.pt", target, *options]) == 0
    assert list(load_file(target)) == keys


def test_it_tells_what_was_read_written_and_left_out_and_who_reads_it(files, capsys):
    assert main(["convert", "cat.pt", "learned_embeds.safetensors"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Read     embedding 'my-cat', text 2 x 8, step 700, A1111's hash ")
    assert lines[1] == (
        "Written  learned_embeds.safetensors, the form diffusers, which is read by diffusers, A1111, ComfyUI, kohya"
    )
    assert lines[2] == "Left out the entry notes, the step"
    assert lines[3].startswith("Note     diffusers will know it as 'my-cat'")


def test_a_file_for_two_encoders_names_the_tools_that_read_it(files, capsys):
    assert main(["convert", "sdxl.safetensors", "b.safetensors"]) == 0
    assert set(load_file("b.safetensors")) == {"clip_l", "clip_g"}
    assert "read by A1111, ComfyUI, kohya, OneTrainer, diffusers (each part" in capsys.readouterr().out


def test_of_several_embeddings_one_is_chosen_by_name(files, capsys):
    assert main(["convert", "lora.safetensors", "b.pt"]) == 2
    assert "several embeddings: a, b" in capsys.readouterr().err
    assert main(["convert", "lora.safetensors", "b.pt", "--name", "b"]) == 0
    assert torch.equal(torch.load("b.pt")["string_to_param"]["*"], V + 1)
    assert "Left out a LoRA" in capsys.readouterr().out


def test_a_hypernetwork_says_which_tools_know_its_activation(files, capsys):
    assert main(["convert", "style.pt", "style.safetensors"]) == 0
    assert main(["convert", "style.safetensors", "again.pt"]) == 0
    assert "the form a1111, which is read by A1111\n" in capsys.readouterr().out
    assert torch.load("again.pt")[8][0].keys() == torch.load("style.pt")[8][0].keys()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cat.pt", "sdxl.safetensors"], "there already"),
        (["cat.pt", "b.png"], "written as .safetensors, not as b.png"),
        (["cat.pt", "b.pt", "--to", "onetrainer"], "onetrainer is written as .safetensors"),
        (["style.pt", "b.safetensors", "--to", "diffusers"], "no form for hypernetworks"),
        (["sdxl.safetensors", "b.pt"], "SD 1 and 2's text encoder"),
        (["none.pt", "b.pt"], "cannot read none.pt"),
        ([".", "b.pt"], "cannot read ."),
    ],
)
def test_what_cannot_be_done_ends_with_2_and_writes_nothing(files, capsys, arguments, said):
    before = sorted((f.name, f.read_bytes()) for f in files.iterdir())
    assert main(["convert", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert sorted((f.name, f.read_bytes()) for f in files.iterdir()) == before


def test_force_replaces_the_target(files):
    assert main(["convert", "cat.pt", "sdxl.safetensors", "--force"]) == 0
    assert list(load_file("sdxl.safetensors")) == ["emb_params"]


def test_the_forms_are_those_that_can_be_written():
    from datasieve.cli.convert import FORMS
    from datasieve.training.formats import embeddings, hypernetworks

    assert FORMS == embeddings.FORMS
    assert set(hypernetworks.FORMS) <= set(FORMS)
