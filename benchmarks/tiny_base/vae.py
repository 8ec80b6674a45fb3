"""First part of fixtures/tiny-sd: the autoencoder (64 x 64 pixels to 8 x 8 latents of 8 channels).

    python -m benchmarks.tiny_base.vae --data DATA --work FOLDER [--steps 4000]

Stops and goes on like benchmarks/tiny_clip/train.py, on the same pictures. The loss is the mean absolute error of the
pixels and of their differences to the right and below (edges), and a faint pull towards a standard normal.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.tiny_clip import pictures

CONFIG: dict[str, Any] = {
    "in_channels": 3,
    "out_channels": 3,
    "latent_channels": 8,
    "block_out_channels": (16, 32, 64, 96),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 1,
    "norm_num_groups": 8,
    "sample_size": 64,
}
BATCH = 16
RATE = 8e-4
KL = 1e-5


def build() -> Any:
    """Return the untrained autoencoder, seeded."""
    from diffusers import AutoencoderKL

    torch.manual_seed(0)
    return AutoencoderKL(**CONFIG).to(memory_format=torch.channels_last)


def pixels(batch: Any) -> torch.Tensor:
    """Return (B, 3, h, w) in [-1, 1] from (B, h, w, 3) uint8."""
    x = torch.from_numpy(batch).permute(0, 3, 1, 2).float() / 127.5 - 1
    return x.contiguous(memory_format=torch.channels_last)


def edges(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the differences to the right and below."""
    return x[..., 1:] - x[..., :-1], x[..., 1:, :] - x[..., :-1, :]


def loss_of(vae: Any, x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return the training loss of one batch."""
    posterior = vae.encode(x).latent_dist
    made = vae.decode(posterior.sample(generator)).sample
    sharp = sum((a - b).abs().mean() for a, b in zip(edges(made), edges(x), strict=True))
    return (made - x).abs().mean() + sharp + KL * posterior.kl().mean()


@torch.no_grad()
def measure(vae: Any, held: pictures.Pictures) -> dict[str, float]:
    """Return the mean absolute reconstruction error on held-out pictures, on [-1, 1], and the latents' spread."""
    x = pixels(held.draw(192, np.random.default_rng(78))[0])
    latents = torch.cat([vae.encode(part).latent_dist.mode() for part in x.split(32)])
    made = torch.cat([vae.decode(part).sample for part in latents.split(32)])
    return {"error": float((made.clamp(-1, 1) - x).abs().mean()), "latent_std": float(latents.std())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    store = options.work / "pictures.npz"
    if not store.is_file():
        pictures.collect(options.data, store)
    vae = build()
    optimizer = torch.optim.AdamW(vae.parameters(), lr=RATE, weight_decay=0.0, betas=(0.9, 0.98))
    state, start, spent = options.work / "vae.pt", 0, 0.0
    if state.is_file():
        kept = torch.load(state, weights_only=True)
        vae.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        start, spent = kept["step"], kept["seconds"]
    drawn, held = pictures.Pictures(store), pictures.Pictures(store, held_out=True)
    began = time.monotonic()
    for step in range(start, options.steps):
        rng = np.random.default_rng([4, step])
        share = min(1.0, (step + 1) / 100) * 0.5 * (1 + np.cos(np.pi * step / options.steps))
        for group in optimizer.param_groups:
            group["lr"] = float(RATE * max(share, 0.01))
        loss = loss_of(vae, pixels(drawn.draw(BATCH, rng)[0]), torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(vae.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % 200 == 0 or step + 1 == options.steps:
            seconds = spent + time.monotonic() - began
            facts = measure(vae, held) | {"step": step + 1, "loss": loss.item(), "seconds": round(seconds)}
            print(facts, flush=True)
            kept = {"model": vae.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1} | facts
            torch.save(kept | {"seconds": seconds}, state.with_suffix(".partial"))
            os.replace(state.with_suffix(".partial"), state)


if __name__ == "__main__":
    main()
