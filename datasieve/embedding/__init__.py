"""Embedders: from pictures to vectors in which nearness is likeness of meaning.

`open_embedder` gives the one that was asked for, or says in one sentence why there is none; `open_text_space` the space
in which pictures can be compared with texts. What they need is imported when they are opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from datasieve.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from datasieve.embedding.resizing import Picture

NAMES = ("lite0", "clip", "none")


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


class TextSpace(Protocol):
    """Pictures and texts as unit vectors of one space: the cosine of two tells how well they fit each other.

    Cosines of different methods, and those between two pictures and between a picture and a text, must not be compared.

    Attributes:
        method: "clip" for a CLIP model, "conse" for the embedded text path, which sees kinds of objects alone.
        identity: models, weights and versions.
        size: length of a vector.
    """

    method: str
    identity: str
    size: int

    def pictures(self, pictures: Sequence[Picture]) -> npt.NDArray[np.float32]:
        """Return (B, size) unit vectors of B pictures, each (h, w, 3) uint8 sRGB of any size."""

    def texts(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return (N, size) unit vectors of N texts."""


def checked(name: str) -> str:
    """Return `name` if there is such an embedder. Raises ConfigError."""
    if name not in ("auto", *NAMES):
        raise ConfigError(f"there is no embedder {name!r}", remedy=f"Choose from: auto, {', '.join(NAMES)}.")
    return name


def chosen(name: str, clip: str = "") -> str:
    """Return the embedder that a name stands for: "auto" is the CLIP model when one is named, else Lite0.

    Raises ConfigError for an unknown name.
    """
    return ("clip" if clip else "lite0") if checked(name) == "auto" else name


def open_embedder(name: str, device: str, clip: str = "") -> Embedder | str:
    """Return the embedder of that name on a device, or one sentence why it cannot be had.

    Args:
        name: "auto" or one of `NAMES`.
        device: "cpu", "cuda" or "cuda:N".
        clip: which CLIP model (`clip_weights.located`); "" is the default one.

    Raises ConfigError for a model that is not known, ModelError for weights that cannot be read.
    """
    kind = chosen(name, clip)
    if kind == "none":
        return "embedder is set to none"
    if kind == "clip":
        from datasieve.embedding import openclip

        return openclip.open_clip_model(clip, device)
    from datasieve.embedding import lite0

    return lite0.open_lite0(device)


def open_text_space(name: str, device: str, clip: str = "") -> TextSpace | str:
    """Return the space of pictures and texts that belongs to an embedder, or one sentence why there is none.

    With a CLIP model that is its own space, else the embedded text path (extra `text`). Arguments and errors as in
    `open_embedder`.
    """
    kind = chosen(name, clip)
    if kind == "none":
        return "embedder is set to none"
    if kind == "clip":
        from datasieve.embedding import openclip

        return openclip.open_clip_model(clip, device)
    from datasieve.embedding import conse
    from datasieve.embedding.sentences import open_sentences

    sentences = open_sentences(device)
    return sentences if isinstance(sentences, str) else conse.Conse(sentences, device)
