"""Second part of fixtures/tiny-sd: the network that denoises, told by tiny-clip's frozen text tower.

    python -m benchmarks.tiny_base.unet --data DATA --work FOLDER [--steps 6000] [--pool 30000]

Wants FOLDER/clip.pt and FOLDER/vae.pt. Latents of `--pool` augmented pictures are computed once, and drawn from; what
is kept in the end is an exponential mean of the weights. Stops and goes on.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.tiny_base import assemble
from benchmarks.tiny_base.vae import pixels
from benchmarks.tiny_clip import pictures

BATCH = 32
RATE = 6e-4
EMA = 0.998
UNTOLD = 0.1  # share of empty prompts, for guidance


@torch.no_grad()
def make_pool(store: Path, vae: Any, scale: float, tokenizer: Any, size: int, *, held_out: bool) -> dict[str, Any]:
    """Return {"mean", "std": (N, 8, 8, 8) fp16 scaled latents, "ids": (N, 77) int32}."""
    drawn, rng = pictures.Pictures(store, held_out=held_out), np.random.default_rng([6, int(held_out)])
    means, stds, ids = [], [], []
    for _ in range(0, size, 64):
        images, captions, _ = drawn.draw(64, rng)
        posterior = vae.encode(pixels(images)).latent_dist
        means.append((posterior.mean * scale).half())
        stds.append((posterior.std * scale).half())
        found = tokenizer(captions, padding="max_length", truncation=True, max_length=77, return_tensors="pt")
        ids.append(found.input_ids.to(torch.int32))
    return {"mean": torch.cat(means), "std": torch.cat(stds), "ids": torch.cat(ids)}


def pools(options: argparse.Namespace, vae: Any, scale: float, tokenizer: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the pools to train and to measure on, kept in the work folder."""
    file = options.work / "pool.pt"
    if file.is_file():
        kept = torch.load(file, weights_only=True)
        return kept["train"], kept["held"]
    store = options.work / "pictures.npz"
    train = make_pool(store, vae, scale, tokenizer, options.pool, held_out=False)
    held = make_pool(store, vae, scale, tokenizer, 512, held_out=True)
    torch.save({"train": train, "held": held}, file)
    return train, held


def loss_of(unet: Any, noise_scheduler: Any, latents: torch.Tensor, text: torch.Tensor, generator: Any) -> torch.Tensor:
    """Return the mean squared error of the predicted noise."""
    noise = torch.randn(latents.shape, generator=generator)
    moments = torch.randint(1000, (len(latents),), generator=generator)
    noisy = noise_scheduler.add_noise(latents, noise, moments).contiguous(memory_format=torch.channels_last)
    return ((unet(noisy, moments, encoder_hidden_states=text).sample - noise) ** 2).mean()


def main() -> None:
    from diffusers import DDPMScheduler

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--pool", type=int, default=30000)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    vae, scale = assemble.load_vae(options.work)
    clip = torch.load(options.work / "clip.pt", weights_only=True)["model"]
    tokenizer, text_encoder = assemble.tokenizer(), assemble.text_encoder(clip)
    train, held = pools(options, vae, scale, tokenizer)
    empty = tokenizer([""], padding="max_length", max_length=77, return_tensors="pt").input_ids
    scheduler = DDPMScheduler(**assemble.NOISE)
    unet = assemble.build_unet()
    print(
        f"{sum(p.numel() for p in unet.parameters()) / 1e6:.1f} M parameters, pool of {len(train['ids'])}", flush=True
    )
    optimizer = torch.optim.AdamW(unet.parameters(), lr=RATE, weight_decay=0.01)
    mean = {k: v.detach().clone() for k, v in unet.state_dict().items()}
    state, start, spent = options.work / "unet.pt", 0, 0.0
    if state.is_file():
        kept = torch.load(state, weights_only=True)
        unet.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        mean, start, spent = kept["mean"], kept["step"], kept["seconds"]
    began = time.monotonic()
    for step in range(start, options.steps):
        generator = torch.Generator().manual_seed(1000 + step)
        share = min(1.0, (step + 1) / 200) * 0.5 * (1 + np.cos(np.pi * step / options.steps))
        for group in optimizer.param_groups:
            group["lr"] = float(RATE * max(share, 0.02))
        rows = torch.randint(len(train["ids"]), (BATCH,), generator=generator)
        drawn = torch.randn(train["mean"][rows].shape, generator=generator)
        latents = train["mean"][rows].float() + train["std"][rows].float() * drawn
        ids = train["ids"][rows].long()
        ids[torch.rand(BATCH, generator=generator) < UNTOLD] = empty
        with torch.no_grad():
            text = text_encoder(ids)[0]
        loss = loss_of(unet, scheduler, latents, text, generator)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(unet.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            decay = min(EMA, (1 + step) / (10 + step))
            for key, value in unet.state_dict().items():
                mean[key].lerp_(value, 1 - decay)
        if (step + 1) % 100 == 0 or step + 1 == options.steps:
            kept_own = {k: v.clone() for k, v in unet.state_dict().items()}
            unet.load_state_dict(mean)
            with torch.no_grad():
                fixed = torch.Generator().manual_seed(1)
                text = torch.cat([text_encoder(part.long())[0] for part in held["ids"].split(128)])
                parts = zip(held["mean"].float().split(128), text.split(128), strict=True)
                measured = [loss_of(unet, scheduler, a, b, fixed).item() for a, b in parts]
            unet.load_state_dict(kept_own)
            seconds = spent + time.monotonic() - began
            facts = {
                "step": step + 1,
                "loss": loss.item(),
                "held_out_loss": float(np.mean(measured)),
                "seconds": seconds,
            }
            print(facts, flush=True)
            kept = facts | {"model": unet.state_dict(), "optimizer": optimizer.state_dict(), "mean": mean}
            torch.save(kept, state.with_suffix(".partial"))
            os.replace(state.with_suffix(".partial"), state)


if __name__ == "__main__":
    main()
