"""The norm of each sample's own gradient, out of the one backward pass that training does anyway.

Textual inversion: the learned vectors enter the model once per sample, (B, n, d) instead of (n, d). The gradient of
that expanded tensor is every sample's own, and its sum is the parameter's. Exact, at the cost of B n d numbers.

Hypernetworks and LoRA: for a linear layer y = W x the gradient of sample b is the sum over its positions t of
delta_t x_t', so its squared norm is the sum over all pairs of positions of (x_t . x_s)(delta_t . delta_s) (Goodfellow
2015, arXiv:1510.01799; for sequences Li et al. 2022, arXiv:2110.05679, "ghost norm"). A layer that is applied several
times (A1111's hypernetworks are) sums over the positions of all its uses.

Both need samples that do not see each other (no batch normalisation). Where memory is short, a sample's loss stands in
for its norm; `proxy_agreement` measures how well it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from datasieve.sampling.gradient_history import GradientHistory


def expanded(vectors: torch.Tensor, batch: int) -> torch.Tensor:
    """Return the learned vectors once per sample, remembering each sample's gradient.

    Args:
        vectors: (n, d), the parameter.
        batch: B.

    Returns:
        (B, n, d). Put sample b's slice into sample b's prompt; after backward, `vectors` has its usual gradient and
        `expanded_norms` reads those of the samples.
    """
    copies = vectors.unsqueeze(0).expand(batch, *vectors.shape).clone()
    copies.retain_grad()
    return copies


def expanded_norms(copies: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """Return (B,) gradient norms of the samples, of what `expanded` returned, after backward.

    Args:
        copies: (B, n, d).
        scale: factor; B when the loss was the mean over samples.

    Raises:
        ValueError: there was no backward pass through them.
    """
    if copies.grad is None:
        raise ValueError("no gradient has reached the expanded vectors: call this after backward")
    norms: torch.Tensor = torch.linalg.vector_norm(copies.grad.detach().flatten(1).float(), dim=1) * scale
    return norms


class LinearGradNorms:
    """Watches linear layers during forward and backward, and gives each sample's gradient norm over all of them.

        with LinearGradNorms(adapter.modules_to_watch, batch=4) as watch:
            losses(batch).mean().backward()
        norms = watch.norms(scale=4)

    Args:
        layers: `nn.Linear` layers of the adapter whose weights are trained.
        batch: samples in the batch, B; inputs are (B, ..., features) or flattened from that.

    Raises:
        TypeError: a layer is no `nn.Linear`.
    """

    def __init__(self, layers: Iterable[nn.Module], batch: int) -> None:
        self.layers = list(layers)
        self.batch = batch
        for layer in self.layers:
            if not isinstance(layer, nn.Linear):
                raise TypeError(f"gradient norms are known for nn.Linear only, not {type(layer).__name__}")
        self._uses: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []

    def __enter__(self) -> LinearGradNorms:
        self._uses = {place: [] for place in range(len(self.layers))}
        for place, layer in enumerate(self.layers):
            self._hooks.append(layer.register_forward_hook(self._watcher(place)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _watcher(self, place: int) -> Callable[[nn.Module, Any, torch.Tensor], None]:
        def forward(layer: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            if not output.requires_grad:  # evaluation, or the first pass of gradient checkpointing
                return
            x = inputs[0].detach()

            def backward(delta: torch.Tensor) -> None:
                self._uses[place].append((x, delta.detach()))

            output.register_hook(backward)  # type: ignore[no-untyped-call]  # torch leaves it untyped

        return forward

    def norms(self, scale: float = 1.0) -> torch.Tensor:
        """Return (B,) norms over weights and biases of all layers, and forget what was seen.

        Args:
            scale: factor; B when the loss was the mean over samples.

        Raises:
            ValueError: no gradient has passed through any layer.
        """
        total: torch.Tensor | None = None
        for place, layer in enumerate(self.layers):
            if not self._uses[place]:
                continue
            x = torch.cat([a.reshape(self.batch, -1, a.shape[-1]) for a, _ in self._uses[place]], 1).float()
            delta = torch.cat([d.reshape(self.batch, -1, d.shape[-1]) for _, d in self._uses[place]], 1).float()
            self._uses[place] = []
            squared = torch.zeros(self.batch, device=x.device)
            if layer.weight.requires_grad:
                squared = squared + _weight_squares(x, delta)
            if layer.bias is not None and layer.bias.requires_grad:
                squared = squared + delta.sum(1).square().sum(1)
            total = squared if total is None else total + squared.to(total.device)
        if total is None:
            raise ValueError("no gradient has passed through the watched layers: call this after backward")
        return total.clamp_min(0).sqrt() * scale


def _weight_squares(x: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
    """Return (B,) squared norms of delta' x for inputs (B, T, i) and output gradients (B, T, o), the cheaper way."""
    positions, features = x.shape[1], x.shape[2] * delta.shape[2]
    if positions * (x.shape[2] + delta.shape[2]) < features:
        return ((x @ x.mT) * (delta @ delta.mT)).sum((1, 2))
    return (delta.mT @ x).square().sum((1, 2))


@dataclass(frozen=True, slots=True)
class ProxyAgreement:
    """How well losses rank samples as their gradient norms do.

    Attributes:
        raw: Spearman's rank correlation of loss and norm.
        within_timesteps: the same after both were standardised within timestep bins, which is what selection uses.
        samples: how many were compared.
    """

    raw: float
    within_timesteps: float
    samples: int


def proxy_agreement(
    losses: Sequence[float] | npt.NDArray[Any], norms: Sequence[float] | npt.NDArray[Any], timesteps: Sequence[int]
) -> ProxyAgreement:
    """Measure on (n,) samples whether their losses may stand in for their gradient norms.

    Raises:
        ValueError: fewer than three samples, lengths differ, or a value is not above 0.
    """
    from scipy.stats import spearmanr

    loss, norm, place = (np.asarray(v, np.float64).reshape(-1) for v in (losses, norms, timesteps))
    if not len(loss) == len(norm) == len(place) or len(loss) < 3:
        raise ValueError("losses, norms and timesteps must be of one length, at least 3")
    if not (loss > 0).all() or not (norm > 0).all():
        raise ValueError("losses and norms must be above 0")
    standard = []
    for values in (loss, norm):
        history = GradientHistory(len(values), smoothing=1.0)
        history.update(np.arange(len(values)), values, place)
        standard.append(history.current())
    return ProxyAgreement(float(spearmanr(loss, norm).statistic), float(spearmanr(*standard).statistic), len(loss))
