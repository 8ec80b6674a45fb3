"""Captions of one concept that contradict each other about it.

Only what a subject keeps from picture to picture is compared: the colour that the first phrase of a caption gives its
object ("a red backpack", and "with a red strap" right behind it), the colour and length of hair, the colour of eyes,
fur and skin, and marks such as glasses that are named in some captions and denied in others. A caption contradicts when
two thirds of the captions that name the trait, three at least, say the same and it says another. Where there is no such
majority the concept is taken for one of many subjects (a style), and nothing is said.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from datasieve.captions.lexicon import COLOURS, FUNCTION_WORDS, SHOWS, SYNONYMS, is_participle, word_set

KEPT = word_set("hair eyes eye fur skin beard")
MARKS = word_set("glasses sunglasses beard moustache mustache freckles scar tattoo tattoos piercing horns tail")
MAJORITY = 2 / 3
FEWEST = 3

_TOKEN = re.compile(r"[^\W_]+|[,.;:!?()\n]")
_LENGTHS = frozenset(("long", "short", "shoulder"))
_DENIED = re.compile(r"(?:\bno|\bwithout(?: any| a)?|\bnot wearing(?: any| a)?)[ _]([a-z]+)")


def traits(text: str) -> dict[str, frozenset[str]]:
    """Return what `text` says of traits that a subject keeps: trait -> values ("hair colour" -> {"blonde"})."""
    found: dict[str, set[str]] = {}
    lower = text.lower()
    phrase: list[str] = []
    phrases = 0
    with_part = False  # the phrase right behind the first, after "with": a part of the subject
    tokens = [*_TOKEN.findall(lower), "."]
    for token in tokens:
        if token[0].isalnum() and token not in FUNCTION_WORDS and not is_participle(token):
            phrase.append(token)
            continue
        if token == "and" and phrase and phrase[-1] in COLOURS:
            continue  # "black and white dog" is one phrase
        said = [word for word in phrase if word not in SHOWS]
        phrase = []
        if said:
            _read_phrase(said, "first" if not phrases else "part" if with_part else "other", found)
            phrases += 1
            with_part = False
        if phrases == 1 and token == "with":
            with_part = True
    if marks := MARKS.intersection(tokens):
        denied = {match[1] for match in _DENIED.finditer(lower)}
        for mark in marks:
            found.setdefault(mark, set()).add("absent" if mark in denied else "present")
    return {trait: frozenset(values) for trait, values in found.items()}


def _read_phrase(phrase: Sequence[str], place: str, found: dict[str, set[str]]) -> None:
    colours = {SYNONYMS.get(word, word) for word in phrase if word in COLOURS}
    head = phrase[-1]
    if head in KEPT:
        if colours:
            found.setdefault(f"{head} colour", set()).update(colours)
        if lengths := _LENGTHS.intersection(phrase):
            found.setdefault(f"{head} length", set()).update(lengths)
    elif place != "other" and colours and head not in COLOURS:
        found.setdefault(f"colour of the {head}", set()).update(colours)


def contradictions(stated: Sequence[Mapping[str, frozenset[str]]]) -> list[str]:
    """Return for each caption of one concept what in it contradicts the others, "" when nothing does.

    Args:
        stated: the `traits` of each caption.
    """
    naming: dict[str, list[tuple[int, frozenset[str]]]] = {}
    for i, one in enumerate(stated):
        for trait, values in one.items():
            naming.setdefault(trait, []).append((i, values))
    said: dict[int, list[str]] = {}
    for trait in sorted(naming):
        named = naming[trait]
        usual = _majority(values for _, values in named) if len(named) > FEWEST else None
        if usual is None:
            continue
        for i, values in named:
            if values - usual and usual - values:
                said.setdefault(i, []).append(f"{trait}: {_listed(values)}, elsewhere {_listed(usual)}")
    return ["; ".join(said.get(i, ())) for i in range(len(stated))]


def _majority(values: Iterable[frozenset[str]]) -> frozenset[str] | None:
    every = list(values)
    counts = Counter(every)
    usual, _ = max(counts.items(), key=lambda item: (item[1], sorted(item[0])))
    agreeing = counts[usual]
    return usual if agreeing >= FEWEST and agreeing >= MAJORITY * len(every) else None


def _listed(values: Iterable[str]) -> str:
    return " and ".join(sorted(values))
