"""How much the captions of a concept differ: expected entropy of a batch, tags that never vary, identical captions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import combinations


def batch_entropy(captions: Sequence[Hashable], batch_size: int) -> float:
    """Return the expected entropy in bits of the captions in a batch drawn without replacement.

    0 when all are alike (or the batch holds one), log2(batch) when all differ. A batch larger than the set is the set.
    Exact: each caption's number in the batch is hypergeometric, and -sum x/b log2 x/b is averaged over it.

    Args:
        captions: what counts as the same caption, one per image.
        batch_size: images per batch.
    """
    n = len(captions)
    b = min(batch_size, n)
    if b <= 1:
        return 0.0
    counts = Counter(Counter(captions).values())
    whole = _log_choose(n, b)
    bits = 0.0
    for count, classes in counts.items():
        for x in range(max(1, b - (n - count)), min(count, b) + 1):
            chance = math.exp(_log_choose(count, x) + _log_choose(n - count, b - x) - whole)
            bits -= classes * chance * x / b * math.log2(x / b)
    return max(0.0, bits)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def document_frequency(tags: Sequence[frozenset[str]]) -> Counter[str]:
    """Return in how many captions each tag stands."""
    counts: Counter[str] = Counter()
    for own in tags:
        counts.update(own)
    return counts


def never_varying(tags: Sequence[frozenset[str]], fewest: int = 8) -> list[str]:
    """Return the tags that stand in every caption, sorted; none below `fewest` captions."""
    if len(tags) < fewest:
        return []
    return sorted(tag for tag, count in document_frequency(tags).items() if count == len(tags))


def fused(tags: Sequence[frozenset[str]], share: float = 0.95, fewest: int = 8) -> list[str]:
    """Return the tags that stand in at least `share` of captions that all hold the trigger word, sorted.

    Such a tag is as good as the trigger itself to the text encoder. None below `fewest` captions.

    Args:
        tags: the tags of the captions with the trigger word, without it.
    """
    if len(tags) < fewest:
        return []
    return sorted(tag for tag, count in document_frequency(tags).items() if count >= share * len(tags))


def together(tags: Sequence[frozenset[str]], most: int = 12) -> list[tuple[str, str, int, float, float]]:
    """Return which of the most frequent tags stand together more often than chance would have it.

    Only tags that vary are paired: what stands in every caption stands beside everything.

    Args:
        tags: the tags of each caption.
        most: so many pairs, the strongest first.

    Returns:
        (a, b, captions with both, share of a's captions that hold b, lift): lift is how many times as often as if
        they were independent. Pairs in fewer than 3 captions are left out.
    """
    n = len(tags)
    frequency = document_frequency(tags)
    often = sorted((tag for tag, count in frequency.items() if 3 <= count < n), key=lambda t: (-frequency[t], t))[:60]
    pairs: Counter[tuple[str, str]] = Counter()
    chosen = set(often)
    for own in tags:
        pairs.update(combinations(sorted(own & chosen), 2))
    found = []
    for (a, b), count in pairs.items():
        first, second = (a, b) if frequency[a] <= frequency[b] else (b, a)
        lift = count * n / (frequency[a] * frequency[b])
        if count >= 3 and lift > 1:
            found.append((first, second, count, count / frequency[first], lift))
    return sorted(found, key=lambda pair: (-pair[4], -pair[2], pair[0], pair[1]))[:most]
