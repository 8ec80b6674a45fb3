"""Optimizers and the course of the learning rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from datasieve.errors import ConfigError

if TYPE_CHECKING:
    from datasieve.training.base import Base
    from datasieve.training.settings import TrainSettings


def rate_at(settings: TrainSettings, step: int) -> float:
    """Return the learning rate of a step: a linear rise over the warm-up, then the schedule down to 0."""
    warm = int(settings.warmup * settings.steps)
    if step < warm:
        return settings.learning_rate * (max(step, 0) + 1) / (warm + 1)
    share = (step - warm) / max(1, settings.steps - warm)
    match settings.schedule:
        case "linear":
            return settings.learning_rate * max(0.0, 1 - share)
        case "cosine":
            return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
        case _:
            return settings.learning_rate


def make_optimizer(settings: TrainSettings, parameters: Sequence[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimizer of a run. Raises ConfigError when its package is not installed."""
    options: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    match settings.optimizer:
        case "adamw8bit":
            try:
                from bitsandbytes.optim import AdamW8bit
            except ImportError:
                raise ConfigError(
                    "the optimizer adamw8bit needs bitsandbytes, which is not installed",
                    remedy="Install it with: pip install bitsandbytes. Or use --optimizer adamw.",
                ) from None
            small: torch.optim.Optimizer = AdamW8bit(list(parameters), **options)
            return small
        case "prodigy":
            try:
                from prodigyopt import Prodigy
            except ImportError:
                raise ConfigError(
                    "the optimizer prodigy needs prodigyopt, which is not installed",
                    remedy="Install it with: pip install prodigyopt. Or use --optimizer adamw.",
                ) from None
            own: torch.optim.Optimizer = Prodigy(list(parameters), **options)
            return own
        case _:
            return torch.optim.AdamW(list(parameters), **options)


def make_scaler(settings: TrainSettings, base: Base) -> Any:
    """Return the gradient scaler: at work only with fp16, whose small gradients would vanish."""
    enabled = settings.precision == "fp16"
    if enabled and base.device.type == "cpu":
        raise ConfigError("fp16 trains on GPUs only", remedy="Use --precision bf16 or fp32 on this machine.")
    return torch.amp.GradScaler(base.device.type, enabled=enabled)
