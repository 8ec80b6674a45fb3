"""Pictures from a base and its adapters: what a run has learned, to look at."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from PIL import Image

    from datasieve.training.base import Base


@torch.no_grad()
def generate(
    base: Base,
    prompts: Sequence[str],
    tokens: Callable[[Sequence[str]], torch.Tensor],
    *,
    seeds: Sequence[int],
    steps: int = 25,
    guidance: float = 5.0,
    negative: str = "",
    size: tuple[int, int] | None = None,
    batch_size: int = 8,
) -> list[Image.Image]:
    """Return one picture for each prompt and seed, prompts outermost.

    The same seed gives the same picture whatever else is in the batch.

    Args:
        base: with its adapters attached.
        prompts: what to draw.
        tokens: an adapter's `tokens`.
        seeds: of the starting noise.
        steps: of DPM-Solver++ (Lu et al. 2022).
        guidance: scale of classifier-free guidance (Ho & Salimans 2022); 1 is without.
        negative: the prompt that guidance leads away from.
        size: (width, height) in pixels; None takes the base's.
        batch_size: pictures at a time.
    """
    from diffusers import DPMSolverMultistepScheduler
    from PIL import Image

    width, height = size or (base.resolution, base.resolution)
    shape = (base.unet.config.in_channels, height // base.factor, width // base.factor)
    jobs = [(prompt, seed) for prompt in prompts for seed in seeds]
    pictures: list[Image.Image] = []
    for start in range(0, len(jobs), batch_size):
        part = jobs[start : start + batch_size]
        scheduler = DPMSolverMultistepScheduler.from_config(base.noise.config)
        with warnings.catch_warnings():  # its way of making arrays is out of date with NumPy
            warnings.simplefilter("ignore", DeprecationWarning)
            scheduler.set_timesteps(steps, device=base.device)
        noise = [torch.randn(shape, generator=torch.Generator().manual_seed(seed)) for _, seed in part]
        latents = torch.stack(noise).to(base.device) * scheduler.init_noise_sigma
        words = [prompt for prompt, _ in part]
        text = base.text_encoder(tokens([*words, *[negative] * len(words)]).to(base.device))[0].to(base.dtype)
        for moment in scheduler.timesteps:
            doubled = scheduler.scale_model_input(torch.cat([latents, latents]), moment).to(base.dtype)
            told, free = base.unet(doubled, moment, encoder_hidden_states=text).sample.float().chunk(2)
            told, free = told[:, : shape[0]], free[:, : shape[0]]
            latents = scheduler.step(free + guidance * (told - free), moment, latents).prev_sample
        config = base.vae.config
        unscaled = latents / config.scaling_factor + (getattr(config, "shift_factor", None) or 0.0)
        decoded = base.vae.decode(unscaled.float()).sample
        array = ((decoded.clamp(-1, 1) + 1) * 127.5).round().byte().permute(0, 2, 3, 1).cpu().numpy()
        pictures += [Image.fromarray(picture) for picture in array]
    return pictures


def grid(pictures: Sequence[Image.Image], columns: int, gap: int = 4) -> Image.Image:
    """Return the pictures side by side, `columns` in a row, on white."""
    from PIL import Image

    width, height = pictures[0].size
    rows = -(-len(pictures) // columns)
    sheet = Image.new("RGB", (columns * (width + gap) + gap, rows * (height + gap) + gap), "white")
    for i, picture in enumerate(pictures):
        sheet.paste(picture, (gap + i % columns * (width + gap), gap + i // columns * (height + gap)))
    return sheet
