"""`train`, `generate` and `convert` as a user meets them."""

import json
import shutil

import pytest
import torch
from PIL import Image

from datasieve.cli import main

from .conftest import DUCKS, TINY_SD


@pytest.fixture
def set_of_ducks(tmp_path):
    folder = tmp_path / "ducks"
    shutil.copytree(DUCKS, folder)
    return folder


QUICK = ["--steps", "2", "--batch-size", "2", "-q"]


def test_a_folder_becomes_a_file_that_draws(set_of_ducks, tmp_path, capsys):
    run = tmp_path / "run"
    ti = ["train", "ti", "--data", str(set_of_ducks), "--base", str(TINY_SD), "--out", str(run)]
    assert main([*ti, "--token", "<duck>", "--init", "duck", *QUICK]) == 0
    said = capsys.readouterr().out
    assert "Steps      2 (finished)" in said
    assert (run / "run.safetensors").is_file()
    assert json.loads((run / "run.json").read_text())["template"] == "subject"
    with Image.open(run / "samples" / "step-0000002.png") as sheet:
        assert sheet.size == (276, 208)
    # The same command again does not write over what was learned.
    assert main([*ti, *QUICK]) == 2
    assert "--resume" in capsys.readouterr().err
    grid = tmp_path / "grid.png"
    learned = str(run / "run.safetensors")
    draw = ["generate", "--base", str(TINY_SD), "--with", learned, "--seeds", "0,1", "--steps", "2"]
    assert main([*draw, "--prompt", "a photo of <duck>", "--compare", "--out", str(grid)]) == 0
    with Image.open(grid) as drawn:
        assert drawn.size == (140, 140)
    assert main([*draw, "--prompt", "x", "--out", str(grid)]) == 2
    assert "--force" in capsys.readouterr().err


def test_a_hypernetwork_is_written_for_a1111_and_converted_to_safetensors(set_of_ducks, tmp_path, capsys):
    run = tmp_path / "style"
    train = ["train", "hypernetwork", "--data", str(set_of_ducks), "--base", str(TINY_SD), "--out", str(run)]
    assert main([*train, "--init", "duck", *QUICK]) == 0
    found = torch.load(run / "style.pt", weights_only=True)
    assert {112, 128, 160} <= set(found)
    assert main(["convert", str(run / "style.pt"), str(tmp_path / "style.safetensors")]) == 0
    assert "widths 112, 128, 160" in capsys.readouterr().out
    assert main(["convert", str(run / "style.pt"), str(tmp_path / "style.safetensors")]) == 2


def test_the_settings_that_are_printed_are_the_settings_that_are_read(tmp_path, capsys):
    options = ["train", "ti", "--data", "x", "--base", "y", "--rate", "0.001", "--token", "a=<a>", "--token", "b=<b>"]
    assert main([*options, "--write-config"]) == 0
    file = tmp_path / "ti.toml"
    file.write_text(capsys.readouterr().out, encoding="utf-8")
    assert main(["train", "ti", "--data", "x", "--base", "y", "--config", str(file), "--write-config"]) == 0
    assert capsys.readouterr().out == file.read_text(encoding="utf-8")
    assert "learning-rate = 0.001" in file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--data", "{ducks}", "--base", "nowhere/nothing"], "no base model nowhere/nothing"),
        (["--data", "{ducks}", "--base", "{base}", "--template", "nonsense"], "nonsense"),
        (["--data", "{ducks}/nothing", "--base", "{base}"], "does not exist"),
        (["--data", "{ducks}", "--base", "{base}", "--rate", "11"], "learning-rate"),
        (["--data", "{ducks}", "--base", "{base}", "--resume"], "no run to go on with"),
        (["--data", "{ducks}", "--base", "{base}", "--token", "duck"], "already is a word"),
        (["--data", "{ducks}", "--base", "{base}", "--template", "caption"], "<concept>"),
    ],
)
def test_what_cannot_be_trained_says_why_and_leaves_nothing(set_of_ducks, tmp_path, capsys, arguments, said):
    if "caption" in arguments:
        for file in set_of_ducks.glob("*.jpg"):
            file.with_suffix(".txt").write_text("a yellow thing", encoding="utf-8")
    filled = [a.format(ducks=set_of_ducks, base=TINY_SD) for a in arguments]
    out = tmp_path / "run"
    assert main(["train", "ti", *filled, "--out", str(out), *QUICK]) == 2
    assert said in capsys.readouterr().err
    assert not out.exists() or not list(out.glob("*.safetensors"))


def test_several_concepts_need_a_token_each(set_of_ducks, tmp_path, capsys):
    whole = tmp_path / "both"
    for name in ("red", "blue"):
        shutil.copytree(set_of_ducks, whole / name)
    arguments = ["train", "ti", "--data", str(whole), "--base", str(TINY_SD), "--out", str(tmp_path / "run"), *QUICK]
    assert main([*arguments, "--token", "<x>"]) == 2
    assert "2 concepts (blue, red)" in capsys.readouterr().err
    assert main([*arguments, "--token", "red=<r>", "--token", "blue=<b>", "--init", "toy"]) == 0
    assert {f.name for f in (tmp_path / "run").glob("*.safetensors")} == {"run-r.safetensors", "run-b.safetensors"}


def test_an_embedding_for_another_base_is_refused(tmp_path, capsys):
    from datasieve.training.formats.embeddings import Embedding, write_embedding

    write_embedding(tmp_path / "sd15.safetensors", Embedding("<x>", {"text": torch.ones(1, 768)}), "datasieve")
    draw = ["generate", "--base", str(TINY_SD), "--with", str(tmp_path / "sd15.safetensors"), "--prompt", "<x>"]
    assert main([*draw, "--out", str(tmp_path / "a.png")]) == 2
    assert "768 wide" in capsys.readouterr().err
    assert not (tmp_path / "a.png").exists()
