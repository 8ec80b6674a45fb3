"""How well does a sample's loss stand in for its gradient norm?

    python benchmarks/gradient_proxy.py [--photos fixtures/demo] [--samples 2000]

A small denoiser with cross-attention over token vectors is trained for some seconds to predict the noise in
16 x 16 pictures cut from real photos, on the cosine schedule of 1000 timesteps (Nichol, Dhariwal 2021). Then, for the
learned vectors of textual inversion and for a LoRA-like update of rank 4 on its linear layers, the exact per-sample
gradient norm is set against the loss for draws of picture, timestep and noise. Printed is Spearman's rank correlation,
raw and within timestep bins (which is what selection uses). A model of this size says whether the proxy can be trusted
at all, not what it would be worth for Stable Diffusion: measure it there with `proxy_agreement`.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from datasieve.sampling import LinearGradNorms, expanded, expanded_norms, proxy_agreement

SIDE, WIDTH, VECTORS, TIMESTEPS, BATCH = 16, 96, 4, 1000, 64


class Denoiser(nn.Module):
    """Patches attend to each other and to token vectors; every linear layer has an update of rank 4 beside it."""

    def __init__(self) -> None:
        super().__init__()
        patch = 4 * 4 * 3
        self.enter, self.leave = nn.Linear(patch, WIDTH), nn.Linear(WIDTH, patch)
        self.place = nn.Parameter(0.1 * torch.randn(16, WIDTH))
        self.time = nn.Sequential(nn.Linear(32, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.layers = nn.ModuleList(Adapted(WIDTH, WIDTH) for _ in range(10))

    def forward(self, x: torch.Tensor, t: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Return the predicted noise of (B, 3, 16, 16) pictures at (B,) timesteps under (B, n, width) tokens."""
        patches = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(len(x), 16, -1)
        frequency = torch.exp(torch.arange(16) * (-math.log(1000.0) / 16))
        angle = t[:, None] * frequency
        h = self.enter(patches) + self.place + self.time(torch.cat([angle.sin(), angle.cos()], 1))[:, None]
        for i in (0, 5):
            q, k, v, up, down = self.layers[i : i + 5]
            unit = nn.functional.layer_norm(h, (WIDTH,))
            source = torch.cat([unit, tokens], 1)
            h = h + torch.softmax(q(unit) @ k(source).mT / WIDTH**0.5, -1) @ v(source)
            h = h + down(nn.functional.silu(up(nn.functional.layer_norm(h, (WIDTH,)))))
        out = self.leave(h).reshape(len(x), 4, 4, 3, 4, 4).permute(0, 3, 1, 4, 2, 5)
        return out.reshape(len(x), 3, SIDE, SIDE)


class Adapted(nn.Module):
    """A linear layer with a low-rank update that starts near zero."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs)
        self.down, self.up = nn.Linear(inputs, 4, bias=False), nn.Linear(4, outputs, bias=False)
        nn.init.normal_(self.up.weight, std=1e-3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


def crops(photos: Path, count: int, generator: np.random.Generator) -> torch.Tensor:
    """Return (count, 3, 16, 16) random crops of the photos in [-1, 1]."""
    paths = sorted(p for p in photos.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    pictures = []
    for path in paths:
        try:
            pictures.append(np.asarray(Image.open(path).convert("RGB").resize((96, 96))))
        except OSError:
            continue  # the demo set holds damaged files on purpose
    out = np.empty((count, SIDE, SIDE, 3), np.float32)
    for i in range(count):
        y, x = generator.integers(0, 96 - SIDE, 2)
        out[i] = pictures[int(generator.integers(len(pictures)))][y : y + SIDE, x : x + SIDE]
    return torch.from_numpy(out).permute(0, 3, 1, 2) / 127.5 - 1


def losses(
    model: Denoiser, x: torch.Tensor, t: torch.Tensor, noise: torch.Tensor, tokens: torch.Tensor
) -> torch.Tensor:
    """Return (B,) mean squared errors of the predicted noise."""
    level = torch.cos((t / TIMESTEPS + 0.008) / 1.008 * math.pi / 2).square().clamp(1e-4, 1)[:, None, None, None]
    return (model(level.sqrt() * x + (1 - level).sqrt() * noise, t, tokens) - noise).square().mean((1, 2, 3))


def main() -> None:
    """Train, measure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, default=Path("fixtures/demo"))
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()
    torch.manual_seed(0)
    pictures = crops(options.photos, 4096, np.random.default_rng(0))
    model, vectors = Denoiser(), nn.Parameter(0.5 * torch.randn(VECTORS, WIDTH))
    optimizer = torch.optim.Adam([*model.parameters(), vectors], 1e-3)

    def draw(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = pictures[torch.randint(len(pictures), (count,))]
        return x, torch.randint(TIMESTEPS, (count,)), torch.randn(count, 3, SIDE, SIDE)

    for _ in range(options.steps):
        optimizer.zero_grad()
        losses(model, *draw(BATCH), vectors.expand(BATCH, -1, -1)).mean().backward()
        optimizer.step()
    watched = [part for layer in model.layers for part in (layer.down, layer.up)]
    loss, place, token_norm, lora_norm = [], [], [], []
    while sum(map(len, loss)) < options.samples:
        x, t, noise = draw(BATCH)
        copies = expanded(vectors, BATCH)
        with LinearGradNorms(watched, BATCH) as watch:
            each = losses(model, x, t, noise, copies)
            each.sum().backward()
        loss.append(each.detach().numpy())
        place.append(t.numpy())
        token_norm.append(expanded_norms(copies).numpy())
        lora_norm.append(watch.norms().numpy())
    print(f"final loss {np.concatenate(loss).mean():.3f} after {options.steps} steps\n")
    print("| trained | rank correlation, raw | within timestep bins | samples |\n| --- | ---: | ---: | ---: |")
    for name, norms in (("token vectors", token_norm), ("LoRA, rank 4", lora_norm)):
        found = proxy_agreement(np.concatenate(loss), np.concatenate(norms), np.concatenate(place).tolist())
        print(f"| {name} | {found.raw:.2f} | {found.within_timesteps:.2f} | {found.samples:,} |")


if __name__ == "__main__":
    main()
