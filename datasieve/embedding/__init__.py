"""Embedders: from pictures to vectors in which nearness is likeness of meaning.

`open_embedder` gives the one that was asked for, or says in one sentence why there is none. What an embedder needs is
imported when it is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from datasieve.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from datasieve.embedding.resizing import Picture

NAMES = ("lite0", "none")


class Embedder(Protocol):
    """A network that turns pictures into vectors.

    Attributes:
        name: what it is called in settings and reports.
        identity: name, weights and version: vectors of different identities must not be compared.
        backend: what computes it.
        size: length of a vector.
        centred: vectors are centred on a reference mean over many kinds of pictures. Embeddings of one network lie in
            a narrow cone, so angles between them mean something only then.
    """

    name: str
    identity: str
    backend: str
    size: int
    centred: bool

    def images(self, pictures: Sequence[Picture]) -> npt.NDArray[np.float32]:
        """Return (B, size) unit vectors of B pictures, each (h, w, 3) uint8 sRGB of any size."""

    def grid(self, pictures: Sequence[Picture]) -> npt.NDArray[np.float32]:
        """Return features of the patches, (B, h, w, channels), top left first."""


def checked(name: str) -> str:
    """Return `name` if there is such an embedder. Raises ConfigError."""
    if name not in ("auto", *NAMES):
        raise ConfigError(f"there is no embedder {name!r}", remedy=f"Choose from: auto, {', '.join(NAMES)}.")
    return name


def open_embedder(name: str, device: str) -> Embedder | str:
    """Return the embedder of that name on a device, or one sentence why it cannot be had."""
    if checked(name) == "none":
        return "embedder is set to none"
    from datasieve.embedding import lite0

    return lite0.open_lite0(device)
