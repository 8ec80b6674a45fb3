"""`datasieve doctor`: true about this machine, and calm about what is missing."""

from __future__ import annotations

import json
import sys

import pytest

from datasieve.cli import main
from datasieve.reporting import diagnosis


def test_it_tells_what_is_there(capsys):
    import torch

    assert main(["doctor", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["python"] == sys.version.split()[0]
    assert found["torch"]["version"] == torch.__version__
    assert found["torch"]["device"] == ("cuda" if torch.cuda.is_available() else "cpu")
    assert found["cores"] >= 1
    assert found["disk"]["free_bytes"] > 0
    assert all(state["usable"] or "pip install" in state["remedy"] for state in found["decoders"].values())


def test_text_says_the_same_in_words(capsys):
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for word in ("torch", "JPEG XL", "HEIC", "AVIF", "EfficientNet-Lite0", "Free disk", "Configuration"):
        assert word in out


def test_without_torch_it_still_reports_and_exits_with_2(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["doctor"]) == 2
    out = capsys.readouterr().out
    assert "pip install torch" in out
    assert "Free disk" in out


def test_only_whole_open_clip_weights_count(monkeypatch, tmp_path):
    whole = tmp_path / "models--laion--CLIP-ViT-B-32" / "snapshots" / "abc"
    cut = tmp_path / "models--laion--CLIP-ViT-L-14" / "snapshots" / "abc"
    other = tmp_path / "models--gpt2" / "snapshots" / "abc"
    for folder in (whole, cut, other):
        folder.mkdir(parents=True)
    (whole / "open_clip_model.safetensors").write_bytes(b"1234")
    (whole / "open_clip_config.json").write_text("{}")
    (cut / "open_clip_pytorch_model.bin").symlink_to(tmp_path / "blobs" / "gone")
    (other / "model.safetensors").write_bytes(b"1234")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    [found] = diagnosis.open_clip_weights()
    assert (found["name"], found["bytes"], found["usable"]) == ("laion/CLIP-ViT-B-32", 4, True)


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"HF_HUB_CACHE": "/a"}, "/a"),
        ({"HF_HOME": "/b"}, "/b/hub"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
    ],
)
def test_the_hub_cache_is_where_the_hub_puts_it(monkeypatch, variables, place):
    for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert diagnosis.hub_cache().as_posix() == place


def test_a_broken_settings_file_is_told_not_raised(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool")
    state = diagnosis.config_state(tmp_path)
    assert state["file"] is None
    assert "pyproject.toml" in state["error"]
