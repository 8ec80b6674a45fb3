"""Per-sample gradient norms against torch.func: vmap over grad, one sample at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.utils.checkpoint import checkpoint

from datasieve.sampling import LinearGradNorms, expanded, expanded_norms, proxy_agreement


def oracle(model: nn.Module, loss_of: object, *inputs: torch.Tensor) -> torch.Tensor:
    """Return (B,) exact norms over all parameters of `model` that are trained."""
    trained = {n: p.detach() for n, p in model.named_parameters() if p.requires_grad}

    def one(parameters: dict[str, torch.Tensor], *sample: torch.Tensor) -> torch.Tensor:
        return loss_of(lambda x: functional_call(model, parameters, (x,)), *(s.unsqueeze(0) for s in sample)).sum()

    each = vmap(grad(one), in_dims=(None, *[0] * len(inputs)))(trained, *inputs)
    return sum(g.flatten(1).square().sum(1) for g in each.values()).sqrt()


def test_expanded_vectors_give_each_samples_norm_and_the_usual_gradient_in_one_backward() -> None:
    torch.manual_seed(0)
    vectors = nn.Parameter(torch.randn(3, 8))
    words, target = torch.randn(5, 6, 8), torch.randn(5, 4)
    read = torch.randn(8, 4)

    def losses(inserted: torch.Tensor, prompt: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        tokens = torch.cat([inserted, prompt], 1)
        mixed = torch.softmax(tokens @ tokens.mT, -1) @ tokens  # attention, so the vectors act on every word
        return (torch.tanh(mixed).mean(1) @ read - wanted).square().mean(1)

    copies = expanded(vectors, 5)
    losses(copies, words, target).mean().backward()
    alone = vmap(grad(lambda v, w, t: losses(v[None], w[None], t[None]).sum()), in_dims=(None, 0, 0))
    exact = alone(vectors.detach(), words, target)
    torch.testing.assert_close(expanded_norms(copies, scale=5), exact.flatten(1).norm(dim=1))
    torch.testing.assert_close(vectors.grad, exact.mean(0))


class Shared(nn.Module):
    """A hypernetwork's shape: one two-layer network used at two places of different length, with a residual."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 12, bias=bias), nn.Linear(12, 6, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        once = x + self.second(torch.relu(self.first(x)))
        pooled = once.unflatten(1, (2, -1)).mean(1)
        return pooled + self.second(torch.relu(self.first(pooled)))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("length", [2, 40])
def test_linear_norms_equal_vmap_for_layers_used_twice(bias: bool, length: int) -> None:
    torch.manual_seed(1)
    model = Shared(bias)
    x, target = torch.randn(4, length, 6), torch.randn(4, length // 2, 6)

    def losses(call: object, inputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return (call(inputs) - wanted).square().mean((1, 2))

    with LinearGradNorms([model.first, model.second], batch=4) as watch:
        losses(model, x, target).mean().backward()
    torch.testing.assert_close(watch.norms(scale=4), oracle(model, losses, x, target), rtol=1e-4, atol=1e-6)


class LowRank(nn.Module):
    """A frozen layer with a trained update of rank two, as LoRA adds it."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.down, self.up = nn.Linear(32, 32), nn.Linear(32, 2, bias=False), nn.Linear(2, 32, bias=False)
        self.base.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.base(x) + 0.5 * self.up(self.down(x)))


def test_linear_norms_equal_vmap_for_lora() -> None:
    torch.manual_seed(2)
    model = LowRank()
    x, target = torch.randn(6, 3, 32), torch.randn(6, 3, 32)

    def losses(call: object, inputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return (call(inputs) - wanted).square().mean((1, 2))

    with LinearGradNorms([model.down, model.up], batch=6) as watch:
        with torch.no_grad():
            model(x)  # a look without gradients, such as a preview, leaves no trace
        losses(model, x, target).sum().backward()
    torch.testing.assert_close(watch.norms(), oracle(model, losses, x, target), rtol=1e-4, atol=1e-6)
    assert not model.down._forward_hooks


@pytest.mark.parametrize("precise", [True, False])
def test_linear_norms_hold_under_gradient_checkpointing_and_autocast(precise: bool) -> None:
    torch.manual_seed(3)
    model = Shared(bias=True)
    x, target = torch.randn(4, 8, 6), torch.randn(4, 4, 6)

    def losses(call: object, inputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return (call(inputs).float() - wanted).square().mean((1, 2))

    with LinearGradNorms([model.first, model.second], batch=4) as watch, torch.autocast("cpu", enabled=not precise):
        losses(lambda inputs: checkpoint(model, inputs, use_reentrant=False), x, target).sum().backward()
    exact = oracle(model, losses, x, target)
    torch.testing.assert_close(watch.norms(), exact, rtol=1e-4 if precise else 0.05, atol=1e-6)


def test_norms_before_backward_and_of_other_layers_are_refused() -> None:
    with pytest.raises(ValueError, match="after backward"):
        expanded_norms(expanded(nn.Parameter(torch.ones(1, 2)), 3))
    with pytest.raises(TypeError, match="not Conv2d"):
        LinearGradNorms([nn.Conv2d(1, 1, 1)], batch=1)
    layer = nn.Linear(2, 2)
    with LinearGradNorms([layer], batch=1) as watch, pytest.raises(ValueError, match="after backward"):
        watch.norms()


def test_a_proxy_that_only_follows_the_timestep_does_not_agree_within_timesteps() -> None:
    generator = np.random.default_rng(0)
    t = generator.integers(0, 1000, 2000)
    norms = np.exp(t / 300) * np.exp(0.2 * generator.standard_normal(2000))
    follower = np.exp(t / 300) * np.exp(0.2 * generator.standard_normal(2000))
    agreement = proxy_agreement(follower, norms, t)
    assert agreement.raw > 0.9
    assert abs(agreement.within_timesteps) < 0.3
    perfect = proxy_agreement(norms**2, norms, t)
    assert perfect.within_timesteps > 0.99
