"""What is trained: something small that hangs on a frozen base and can be taken off without a trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

    from datasieve.training.base import Base


class Adapter(Protocol):
    """One way of teaching a base something new.

    Attributes:
        kind: "ti" or "hypernetwork".
        learns_text: the text encoder's output changes with the parameters, so it cannot be computed ahead.
    """

    kind: str
    learns_text: bool

    def attach(self, base: Base) -> None:
        """Hang on the base. Raises ModelError when a width does not fit."""

    def detach(self) -> None:
        """Take every hook off: the base then computes what it did before, bit for bit."""

    def named_parameters(self) -> Iterable[tuple[str, torch.nn.Parameter]]:
        """The trained parameters, float32."""

    def state(self) -> Mapping[str, torch.Tensor]:
        """What has to be kept to go on later."""

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Put back what `state` gave. Raises ModelError when names or shapes differ."""

    def train(self, training: bool) -> None:
        """Switch between training (dropout on, strength 1) and use."""

    def tokens(self, captions: Sequence[str]) -> torch.Tensor:
        """Return (B, 77) token ids of captions; ids beyond the table stand for learned vectors."""

    def after_step(self) -> None:
        """Apply what constrains the parameters after each optimizer step."""

    def export(self, path: Path, *, step: int) -> list[Path]:
        """Write what other tools load, whole or not at all, read it back to compare, and return the files."""
