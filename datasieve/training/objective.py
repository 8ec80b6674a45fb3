"""What is minimised: one loss per picture, so that pictures can be weighed.

The targets are those of Ho et al. 2020 (epsilon) and Salimans & Ho 2022 (v-prediction); the weighing of timesteps is
min-SNR-gamma (Hang et al. 2023).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from datasieve.training.base import Base


def noise_for(shape: torch.Size, seeds: list[int], *, offset: float = 0.0) -> torch.Tensor:
    """Return (B, C, h, w) standard normal noise; each picture's comes from its own seed, wherever it stands in a batch.

    Args:
        shape: of the latents.
        seeds: one for each picture.
        offset: strength of a shift that a whole channel shares (Guttenberg 2023), so that very dark and bright pictures
            can be learned.
    """
    made = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(shape[1:], generator=generator)
        if offset:
            noise = noise + offset * torch.randn((shape[1], 1, 1), generator=generator)
        made.append(noise)
    return torch.stack(made)


def timesteps_for(seeds: list[int], count: int) -> torch.Tensor:
    """Return (B,) timesteps, 0..count-1, each from its own seed."""
    return torch.tensor(
        [int(torch.randint(count, (1,), generator=torch.Generator().manual_seed(seed ^ 0x5F5F))) for seed in seeds]
    )


def signal_to_noise(base: Base, timesteps: torch.Tensor) -> torch.Tensor:
    """Return (B,) alpha_bar / (1 - alpha_bar) at the timesteps."""
    kept: torch.Tensor = base.noise.alphas_cumprod.to(timesteps.device)[timesteps].float()
    return kept / (1 - kept)


def target_of(base: Base, latents: torch.Tensor, noise: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
    """Return what the network should predict, shaped as the latents."""
    if base.prediction == "epsilon":
        return noise
    return torch.as_tensor(base.noise.get_velocity(latents, noise, timesteps))


def timestep_weights(base: Base, timesteps: torch.Tensor, gamma: float) -> torch.Tensor:
    """Return (B,) weights: min(SNR, gamma)/SNR for epsilon, min(SNR, gamma)/(SNR+1) for v; ones without gamma."""
    if gamma <= 0:
        return torch.ones(len(timesteps), device=timesteps.device)
    ratio = signal_to_noise(base, timesteps)
    return ratio.clamp(max=gamma) / (ratio if base.prediction == "epsilon" else ratio + 1)


def losses(
    base: Base,
    latents: torch.Tensor,
    text: torch.Tensor,
    noise: torch.Tensor,
    timesteps: torch.Tensor,
    masks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return (B,) each picture's mean squared error, float32.

    Args:
        base: the model with its adapter attached.
        latents: (B, C, h, w) scaled latents.
        text: (B, tokens, width) the text encoder's output.
        noise, timesteps: as drawn for each picture.
        masks: (B, h, w) weights of the places; each picture's error is the weighted mean, so a small mask counts as
            much as a large one.
    """
    noisy = base.noise.add_noise(latents, noise, timesteps)
    predicted = base.unet(noisy.to(base.dtype), timesteps, encoder_hidden_states=text.to(base.dtype)).sample
    # A base with twice the channels predicts a variance too, which is not trained.
    error: torch.Tensor = (predicted[:, : latents.shape[1]].float() - target_of(base, latents, noise, timesteps)) ** 2
    if masks is None:
        return error.mean(dim=(1, 2, 3))
    weights = masks[:, None].expand_as(error)
    return (error * weights).sum(dim=(1, 2, 3)) / weights.sum(dim=(1, 2, 3)).clamp(min=1e-8)
