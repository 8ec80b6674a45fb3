"""Train fixtures/tiny-clip: a small image-text model in open_clip's format, on two CPU cores.

    python -m benchmarks.tiny_clip.train --data DATA --work FOLDER [--steps 2500] [--out fixtures/tiny-clip]

Stops and goes on: the state is saved in FOLDER every hundred steps, and the same command continues. It is no general
CLIP: it knows emoji, a few photos and colours, and exists so that everything that takes a CLIP runs on trained weights
without a download. The token table is made by `token_table` and stays frozen.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from benchmarks.tiny_clip import pictures, token_table

CONFIG: dict[str, Any] = {
    "embed_dim": 128,
    "vision_cfg": {"image_size": 64, "layers": 4, "width": 192, "head_width": 32, "patch_size": 8},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 112, "heads": 7, "layers": 4},
}
BATCH = 96
RATE = 1e-3


def build(table: npt.NDArray[np.float32]) -> Any:
    """Return the model with the frozen token table in place."""
    from open_clip.model import CLIP

    torch.manual_seed(0)
    model = CLIP(**CONFIG)
    with torch.no_grad():
        model.token_embedding.weight.copy_(torch.from_numpy(table))
    model.token_embedding.weight.requires_grad_(False)
    return model


def normalised(batch: npt.NDArray[np.uint8]) -> torch.Tensor:
    """Return (B, 3, h, w) as the model wants it, from (B, h, w, 3) uint8."""
    from open_clip.constants import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD

    x = torch.from_numpy(batch).permute(0, 3, 1, 2).float() / 255
    mean, std = torch.tensor(OPENAI_DATASET_MEAN), torch.tensor(OPENAI_DATASET_STD)
    return ((x - mean[:, None, None]) / std[:, None, None]).contiguous()


def contrastive(model: Any, images: torch.Tensor, tokens: torch.Tensor, same: torch.Tensor) -> torch.Tensor:
    """CLIP's loss (Radford et al. 2021); pairs that show the same base picture are no negatives of each other."""
    a, b, scale = model(images, tokens)[:3]
    logits = scale * a @ b.T
    logits = logits.masked_fill(same & ~torch.eye(len(a), dtype=torch.bool), -1e4)
    target = torch.arange(len(a))
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


@torch.no_grad()
def measure(model: Any, drawn: pictures.Pictures, tokenizer: Any) -> dict[str, float]:
    """Return top-1 and top-5 recall of the own caption among 200 distinct held-out base pictures."""
    rng = np.random.default_rng(77)
    images, captions, chosen = drawn.draw(1000, rng)
    _, first = np.unique(chosen, return_index=True)
    first = np.sort(first)[:200]
    model.eval()
    a, b = model(normalised(images[first]), tokenizer([captions[i] for i in first]))[:2]
    model.train()
    rank = ((a @ b.T) > (a * b).sum(1, keepdim=True)).sum(1)
    return {"among": len(first), "top1": float((rank < 1).float().mean()), "top5": float((rank < 5).float().mean())}


def save(model: Any, out: Path, facts: dict[str, Any]) -> None:
    """Write open_clip's config and fp16 safetensors, and what is known about the model."""
    from safetensors.torch import save_file

    out.mkdir(parents=True, exist_ok=True)
    weights = {k: v.detach().half().contiguous() for k, v in model.state_dict().items() if k != "attn_mask"}
    save_file(weights, str(out / "open_clip_model.safetensors"), metadata={"format": "pt"})
    from open_clip.constants import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD

    preprocess = {
        "mean": OPENAI_DATASET_MEAN,
        "std": OPENAI_DATASET_STD,
        "interpolation": "bicubic",
        "resize_mode": "shortest",
    }
    config = {"model_cfg": CONFIG, "preprocess_cfg": preprocess}
    (out / "open_clip_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (out / "facts.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("fixtures/tiny-clip"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    store = options.work / "pictures.npz"
    if not store.is_file():
        pictures.collect(options.data, store)
    table = token_table.make(CONFIG["text_cfg"]["width"], options.work / "table.npy")
    from open_clip import SimpleTokenizer

    tokenizer = SimpleTokenizer()
    model = build(table)
    learned = [p for p in model.parameters() if p.requires_grad]
    flat = [p for p in learned if p.ndim < 2]
    deep = [p for p in learned if p.ndim >= 2]
    optimizer = torch.optim.AdamW(
        [{"params": deep, "weight_decay": 0.1}, {"params": flat, "weight_decay": 0.0}], lr=RATE
    )
    state, start, spent = options.work / "clip.pt", 0, 0.0
    if state.is_file():
        kept = torch.load(state, weights_only=True)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        start, spent = kept["step"], kept["seconds"]
    drawn, held = pictures.Pictures(store), pictures.Pictures(store, held_out=True)
    began = time.monotonic()
    for step in range(start, options.steps):
        rng = np.random.default_rng([3, step])  # every step draws by its own number: a resumed run is the same run
        share = min(1.0, (step + 1) / 100) * 0.5 * (1 + np.cos(np.pi * step / options.steps))
        for group in optimizer.param_groups:
            group["lr"] = float(RATE * max(share, 0.01))
        images, captions, chosen = drawn.draw(BATCH, rng)
        same = torch.from_numpy(chosen[:, None] == chosen[None, :])
        loss = contrastive(model, normalised(images), tokenizer(captions), same)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, np.log(100))
        if (step + 1) % 100 == 0 or step + 1 == options.steps:
            seconds = spent + time.monotonic() - began
            facts = measure(model, held, tokenizer) | {"step": step + 1, "loss": loss.item(), "seconds": round(seconds)}
            print(facts, flush=True)
            kept = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "step": step + 1,
                "seconds": seconds,
            }
            torch.save(kept, state.with_suffix(".partial"))
            os.replace(state.with_suffix(".partial"), state)
            save(model, options.out, facts)


if __name__ == "__main__":
    main()
