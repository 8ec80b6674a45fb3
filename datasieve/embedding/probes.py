"""Zero-shot probes: which value of an attribute does each picture show, and does a concept contradict itself?

Needs a CLIP model: the embedded text path sees no attributes. As published (Radford et al., ICML 2021, section 3.1.4):
texts of one value are averaged, cosines are sharpened by the model's own scale, and a softmax over the values is the
picture's answer. Answers that are not clear are none. How far such answers can be trusted differs from model to model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from datasieve.embedding.attributes import KIND, VOCABULARY, Attribute

Floats = npt.NDArray[np.float32]

CLEAR = 4.0
"""Times as probable as the runner-up an answer must be to count: a probability of 0.8 where there are two."""

LEAST_CLEAR = 0.5
"""Of a concept's pictures, that must have a clear answer; else the question does not suit them."""

FEWEST = 2
"""Pictures that must show a value before it contradicts another."""

LEAST_SHARE = 0.1
"""Of the clear answers, that must show it."""


class Texts(Protocol):
    """Turns texts into vectors of the pictures' space. `scale` sharpens cosines to logits."""

    scale: float

    def texts(self, texts: Sequence[str]) -> Floats:
        """Return (N, size) unit vectors of N texts."""


class Contradiction(NamedTuple):
    """Values of one attribute that pictures of one concept show.

    Attributes:
        attribute: what was asked.
        counts: value -> pictures that clearly show it, most frequent first; two values or more.
        share: of the clear answers, those that show another value than the most frequent, 0 to 0.5 and more.
    """

    attribute: Attribute
    counts: dict[str, int]
    share: float

    def __str__(self) -> str:
        (first, most), *rest = self.counts.items()
        others = " and ".join(f"{number} '{name}'" for name, number in rest)
        return f"{most} '{first}' against {others}"


def answers(pictures: Floats, values: Floats, scale: float) -> Floats:
    """Return the probabilities (N, K) that pictures (N, d) show each of K values, whose vectors are (K, d)."""
    logits = scale * (pictures @ values.T)
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True), np.float32)


def shown(probabilities: Floats, attribute: Attribute) -> list[str | None]:
    """Return the value that each picture clearly shows, None where none is clear."""
    best = probabilities.argmax(1)
    runner_up, first = np.sort(probabilities, axis=1)[:, -2:].T
    clear = first >= CLEAR * runner_up
    return [attribute.options[i].name if sure else None for i, sure in zip(best.tolist(), clear.tolist(), strict=True)]


def contradiction(values: Sequence[str | None], attribute: Attribute) -> Contradiction | None:
    """Return how the clear values of one concept's pictures contradict each other, None when they do not."""
    told = [value for value in values if value is not None]
    counts = {option.name: told.count(option.name) for option in attribute.options}
    least = max(FEWEST, LEAST_SHARE * len(told))
    kept = {n: c for n, c in sorted(counts.items(), key=lambda item: -item[1]) if c >= least}
    if len(kept) < 2 or len(told) < LEAST_CLEAR * len(values):
        return None
    return Contradiction(attribute, kept, 1 - max(kept.values()) / len(told))


class Probes:
    """Attributes asked of pictures; the texts of each are embedded once.

    Args:
        space: a CLIP model.
    """

    def __init__(self, space: Texts) -> None:
        self._space = space
        self._values: dict[Attribute, Floats] = {}

    def answers(self, pictures: Floats, attribute: Attribute) -> Floats:
        """Return the probabilities (n, K) that pictures (n, d) show each of an attribute's K values."""
        return answers(pictures, self._vectors(attribute), self._space.scale)

    def contradictions(self, pictures: Floats, more: Sequence[Attribute] = ()) -> list[Contradiction]:
        """Return what the pictures (n, d) of one concept contradict each other in, the vocabulary's order first.

        Attributes of persons, animals or objects are asked when that kind is the most probable over all pictures.
        `more` are attributes that the concept's captions name.
        """
        kinds = self.answers(pictures, KIND)
        usual = KIND.options[int(kinds.mean(0).argmax())].name
        asked = [a for a in (*VOCABULARY, *more) if a.kind in ("", usual)]
        answered = [(KIND, kinds), *((a, self.answers(pictures, a)) for a in asked)]
        found = [contradiction(shown(probabilities, a), a) for a, probabilities in answered]
        return [one for one in found if one is not None]

    def _vectors(self, attribute: Attribute) -> Floats:
        """Return the unit vectors of an attribute's values, (K, d): each the mean of its texts."""
        if attribute not in self._values:
            vectors = iter(self._space.texts([text for option in attribute.options for text in option.texts]))
            means = np.stack([sum(next(vectors) for _ in option.texts) for option in attribute.options])
            self._values[attribute] = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-9)
        return self._values[attribute]
