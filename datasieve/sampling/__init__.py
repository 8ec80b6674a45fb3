"""Batches for training: free of conflicts, of one latent shape, and balanced by gradient. See docs/sampling.md."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasieve.sampling.dataset import ReportDataset
    from datasieve.sampling.gradient import GradientBalancedBatchSampler, IsolationGradientSampler
    from datasieve.sampling.gradient_norms import LinearGradNorms, expanded, expanded_norms, proxy_agreement
    from datasieve.sampling.infeasible import IsolationInfeasible
    from datasieve.sampling.isolation import SemanticIsolationBatchSampler
    from datasieve.sampling.stream import IsolatingBatcher

_HOMES = {
    "GradientBalancedBatchSampler": "gradient",
    "IsolationGradientSampler": "gradient",
    "IsolatingBatcher": "stream",
    "IsolationInfeasible": "infeasible",
    "LinearGradNorms": "gradient_norms",
    "ReportDataset": "dataset",
    "expanded": "gradient_norms",
    "expanded_norms": "gradient_norms",
    "proxy_agreement": "gradient_norms",
    "SemanticIsolationBatchSampler": "isolation",
}

__all__ = [
    "GradientBalancedBatchSampler",
    "IsolatingBatcher",
    "IsolationGradientSampler",
    "IsolationInfeasible",
    "LinearGradNorms",
    "ReportDataset",
    "SemanticIsolationBatchSampler",
    "expanded",
    "expanded_norms",
    "proxy_agreement",
]


def __getattr__(name: str) -> Any:
    # Names load on first use: the plan is NumPy, and whoever wants only that should not wait for torch.
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
