"""The embedded text path: pictures and texts in one space without a CLIP, over the classes both can be told in.

A picture is what Lite0's classifier takes it for; a text is the classes whose names mean much the same. After ConSE
("convex combination of semantic embeddings": Norouzi et al., ICLR 2014), taken both ways: ConSE places the picture
among the sentence vectors of its classes and compares there; here the text is placed among the classes too, and both
are compared class by class, which tells a photo's own caption from others' better (docs/caption-agreement.md).

 - A picture: the square roots of the 20 largest class probabilities, less the 21st so that nothing jumps where a class
   enters or leaves the twenty; unit length.
 - A text: its cosines to the names of the classes (all-MiniLM-L6-v2), sharpened by a softmax; square roots, less their
   mean; unit length.

It tells kinds of objects. It sees no attribute (glasses, hair, colour), no style and no relation, and nothing that none
of the 1000 classes is akin to.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from datasieve.embedding import lite0
from datasieve.embedding.lite0_network import CLASSES, Floats, softmax
from datasieve.errors import ModelError

if TYPE_CHECKING:
    from datasieve.embedding.resizing import Picture
    from datasieve.embedding.sentences import Sentences

METHOD = "conse"
SIZE = CLASSES
KEPT = 20
"""Classes of a picture that count."""

SHARPNESS = 20.0
"""Of the softmax over a text's cosines to class names. Chosen on the subjects at even places (docs)."""

NAMES_FILE = Path(__file__).with_name("class_names.npz")


class Conse:
    """Pictures and texts as class profiles: the `TextSpace` that needs no download.

    Args:
        sentences: gives texts' vectors.
        device: where Lite0 computes pictures' classes; it is opened when the first picture comes.
    """

    method = METHOD
    size = SIZE

    def __init__(self, sentences: Sentences, device: str) -> None:
        self.identity = f"{lite0.identity()}, {sentences.identity}"
        self._sentences = sentences
        self._device = device

    def pictures(self, pictures: Sequence[Picture]) -> Floats:
        """Return (B, 1000) unit vectors of B pictures, each (h, w, 3) uint8 sRGB of any size. Raises ModelError."""
        network = lite0.open_lite0(self._device)
        if isinstance(network, str):
            raise ModelError(network)
        return picture_profiles(network.outputs(pictures).logits)

    def texts(self, texts: Sequence[str]) -> Floats:
        """Return (N, 1000) unit vectors of N texts."""
        return text_profiles(self._sentences.texts(texts))


def picture_profiles(logits: Floats) -> Floats:
    """Return (B, 1000) unit vectors, never negative, of the classifier's logits (B, 1000)."""
    probabilities = softmax(logits)
    cut = np.partition(probabilities, -KEPT - 1, axis=1)[:, -KEPT - 1, None]
    return _unit(np.sqrt(np.maximum(probabilities - cut, 0)))


def text_profiles(vectors: Floats) -> Floats:
    """Return (N, 1000) unit vectors of the sentence vectors (N, 384) of texts."""
    if not len(vectors):
        return np.zeros((0, SIZE), np.float32)
    weights = np.sqrt(softmax(SHARPNESS * (vectors @ class_names().T)))
    return _unit(weights - weights.mean(1, keepdims=True))


@lru_cache(maxsize=1)
def class_names() -> Floats:
    """Return the sentence vectors of the class names, (1000, 384), at unit length (benchmarks/class_names.py)."""
    with np.load(NAMES_FILE, allow_pickle=False) as stored:
        return _unit(stored["vectors"].astype(np.float32))


def _unit(vectors: npt.NDArray[np.float32]) -> Floats:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9), np.float32)
