"""Small CLIP models with random weights, made by open_clip from a description and saved as it saves them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SIZE = 48
MEAN, STD = [0.48, 0.46, 0.41], [0.27, 0.26, 0.28]


def described(side: Any = 64, **preprocessing: Any) -> dict[str, Any]:
    """Return an open_clip_config.json of a two-layer model."""
    return {
        "model_cfg": {
            "embed_dim": SIZE,
            "vision_cfg": {"image_size": side, "layers": 2, "width": 64, "patch_size": 16, "head_width": 32},
            "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
        },
        "preprocess_cfg": {"mean": MEAN, "std": STD, **preprocessing},
    }


def clip_folder(folder: Path, config: Mapping[str, Any] | None = None, *, half: bool = False, seed: int = 0) -> Path:
    """Write a model's description and its random weights; return the folder."""
    import open_clip
    import torch
    from safetensors.torch import save_file

    config = config or described()
    torch.manual_seed(seed)
    model = open_clip.CLIP(**config["model_cfg"])
    state = {k: v.half() if half and v.is_floating_point() else v for k, v in model.state_dict().items()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "open_clip_config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file({k: v.contiguous() for k, v in state.items()}, folder / "open_clip_model.safetensors")
    return folder
