"""Checkpoints: everything that a run needs to go on as if it had never stopped.

Random numbers need not be kept: each picture's noise, timestep, prompt and mirroring come from the run's seed, the step
and the place in the batch, so the step's number is enough.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from datasieve.errors import ModelError, OutputError
from datasieve.storage import atomic_path

KEPT = 3
"""Checkpoints that stay; older ones are removed."""


def save(folder: Path, state: Mapping[str, Any]) -> Path:
    """Write `state`, which holds a "step", as one file, whole or not at all; remove old ones. Raises OutputError."""
    path = folder / f"step-{state['step']:07d}.pt"
    try:
        with atomic_path(path) as temporary:
            torch.save(dict(state), temporary)
    except RuntimeError as error:  # torch's own writer meets a full disk so
        raise OutputError(f"cannot write {path}: {error}", remedy="Free some space; --resume goes on.") from error
    for old in found(folder)[:-KEPT]:
        with contextlib.suppress(OSError):
            old.unlink()
    return path


def found(folder: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    return sorted(folder.glob("step-*.pt"))


def load(path: Path) -> dict[str, Any]:
    """Read a checkpoint; nothing in it is executed. Raises ModelError when it is damaged or none of ours."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ModelError(
            f"the checkpoint {path} cannot be read: {str(error).splitlines()[0]}",
            remedy="Remove it: the one before it is used then.",
        ) from None
    if not isinstance(state, dict) or "step" not in state or "adapter" not in state:
        raise ModelError(f"{path} is no checkpoint of datasieve", remedy="Remove it.")
    return state
