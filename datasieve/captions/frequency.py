"""How rare English words are, from a bundled table (data/NOTICE.md tells its source and licence: CC BY-SA 4.0)."""

from __future__ import annotations

import functools
import gzip
import math
from collections.abc import Sequence
from importlib.resources import files


@functools.cache
def _bits() -> dict[str, float]:
    """Return word -> -log2 of its frequency in English text."""
    packed = (files("datasieve.captions") / "data" / "english_frequency.txt.gz").read_bytes()
    table = {}
    for line in gzip.decompress(packed).decode("ascii").splitlines():
        centibels, *listed = line.split(" ")
        table.update(dict.fromkeys(listed, int(centibels) / 100 * math.log2(10)))
    return table


def rarity(word: str) -> float | None:
    """Return -log2 of the frequency of `word` (lower case) in bits, None when it is not among the 25,000 listed."""
    return _bits().get(word)


def information(words: Sequence[str]) -> float | None:
    """Return the mean rarity of `words` in bits per word; None when none is listed.

    Words that are not listed are left out rather than guessed: they may be rare words, names, or misspelt.
    """
    table = _bits()
    known = [table[word] for word in words if word in table]
    return sum(known) / len(known) if known else None
