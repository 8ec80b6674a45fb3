"""How much each caption of a concept says, against what its others say.

Size of a caption: the mean of log2(1 + details) and log2(1 + words), so that one step is a doubling both of what is
said and of how long it takes. The usual size of a concept is the median over its captions that are read whole, with one
pseudo-caption of `TYPICAL` size among them: it decides where a handful of captions cannot ("a dog" beside 30 words).
Where they fall into two groups far apart, it is the median of the larger group.
A caption's distance is its own size less that, `OTHER_STYLE` more when it is tags among sentences or the reverse.
From 20 captions on, where the dip test finds a single group, a wide one's own spread is the unit of its distances.

A missing or empty caption has size 0. Captions in scripts without blanks have no size.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from datasieve.captions.dip import dip, p_value

TYPICAL = (math.log2(1 + 7) + math.log2(1 + 14)) / 2
"""Size of an ordinary caption: 7 details in 14 words, the median of the tuning half of planted sets."""
OTHER_STYLE = 1.5
"""What another style counts as, in doublings: tags and sentences are further apart than a doubling."""
APART = 1.2
"""Doublings between the means of two groups from which the larger one alone is the usual."""
ORDINARY = 0.35
"""Spread (1.4826 times the median deviation) up to which distances are taken as they are."""
FAR = 0.75
"""Distance in doublings beyond which a caption stands out."""
FEWEST_FOR_DIP = 20
SHARE_APART = 0.1
"""Share of captions beyond FAR that is a second group by itself: a fifth of 20 captions escapes the dip test."""
GROUPS = 0.05
"""p-value of the dip below which captions count as more than one group."""


@dataclass(frozen=True, slots=True)
class Captioned:
    """What granularity needs to know of one image's caption.

    Attributes:
        size: see the module; 0 for none or an empty one, None when it cannot be told.
        tags: the caption is made of tags; None for a missing or empty caption.
        whole: there is a caption and the trainer reads all of it.
    """

    size: float | None
    tags: bool | None
    whole: bool


@dataclass(frozen=True, slots=True)
class Granularity:
    """A concept's granularity.

    Attributes:
        distances: doublings from the usual, one per caption; None where it cannot be told.
        usual: the usual size.
        spread: root mean square of the distances; None below 2 captions.
        dip_p: p-value of the dip test on the sizes of captions with words, None below 20 of them.
        broken: the spread of captions with words, where they fall into groups (dip p < 0.05, or a tenth of
            them far away) or are too few to test.
    """

    distances: list[float | None]
    usual: float
    spread: float | None
    dip_p: float | None
    broken: float | None


def size(details: int, words: int) -> float:
    """Return the size of a caption in doublings."""
    return (math.log2(1 + details) + math.log2(1 + words)) / 2


def words_of(size: float) -> float:
    """Return how many words an ordinary caption of that size has: two for each detail."""
    return max(0.0, float(2 * (2**size - 1) / math.sqrt(2)))


def granularity(captions: Sequence[Captioned]) -> Granularity:
    """Compare the captions of one concept."""
    whole = [c.size for c in captions if c.whole and c.size is not None]
    usual = _usual(whole)
    if not whole or len(captions) < 2:
        return Granularity([None] * len(captions), usual, None, None, None)
    styles = Counter(c.tags for c in captions if c.whole and c.tags is not None)
    tagged = styles[True] > styles[False]
    worded = [c.size for c in captions if c.tags is not None and c.size is not None]
    dip_p = p_value(dip(_continuous(worded)), len(worded)) if len(worded) >= FEWEST_FOR_DIP else None
    wide = 1.0
    if dip_p is not None and dip_p >= GROUPS:
        wide = max(1.0, 1.4826 * float(np.median(np.abs(np.array(whole) - usual))) / ORDINARY)
    distances: list[float | None] = []
    for c in captions:
        if c.size is None:
            distances.append(None)
            continue
        other = c.tags is not None and c.tags != tagged
        distances.append((abs(c.size - usual) + OTHER_STYLE * other) / wide)
    said = [d for d, c in zip(distances, captions, strict=True) if c.tags is not None]
    apart = sum(d is not None and d > FAR for d in said) > SHARE_APART * len(said)
    broken = _rms(said) if dip_p is None or dip_p < GROUPS or apart else None
    return Granularity(distances, usual, _rms(distances), dip_p, broken)


def _usual(sizes: Sequence[float]) -> float:
    """Return the usual size: the median, or that of the larger group where there are two far apart."""
    if len(sizes) < 2:
        return float(sizes[0]) if sizes else TYPICAL
    values = np.sort([*sizes, TYPICAL])
    n = len(values)
    below = np.cumsum(values)[:-1]
    left = np.arange(1, n)
    means = below / left, (values.sum() - below) / (n - left)
    between = left * (n - left) * (means[1] - means[0]) ** 2
    cut = int(np.argmax(between))
    if means[1][cut] - means[0][cut] > APART:
        low, high = values[: cut + 1], values[cut + 1 :]
        if len(low) == len(high):
            return float(np.median(low if TYPICAL in low else high))
        values = low if len(low) > len(high) else high
    return float(np.median(values))


def _rms(distances: Sequence[float | None]) -> float | None:
    known = np.array([d for d in distances if d is not None])
    return float(np.sqrt(np.mean(known**2))) if len(known) else None


def _continuous(sizes: Sequence[float]) -> npt.NDArray[np.float64]:
    """Return the sizes with ties spread halfway to their neighbours: counts are lumpy, and lumps look like humps."""
    values, many = np.unique(np.round(sizes, 6), return_counts=True)
    if len(values) == 1:
        return np.asarray(sizes, np.float64)
    between = (values[1:] + values[:-1]) / 2
    # A lump far from the next is narrow, or spreading it would fill the very gap that the dip looks for.
    low = np.maximum(np.concatenate([values[:1], between]), values - 0.1)
    high = np.minimum(np.concatenate([between, values[-1:]]), values + 0.1)
    parts = [a + (np.arange(m) + 0.5) / m * (b - a) for a, b, m in zip(low, high, many, strict=True)]
    return np.concatenate(parts)
