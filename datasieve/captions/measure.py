"""Everything measured on one caption alone."""

from __future__ import annotations

from dataclasses import dataclass

from datasieve.captions import damage
from datasieve.captions.clip_tokens import CHUNK, Flavour, count_tokens, lost
from datasieve.captions.frequency import information
from datasieve.captions.phrases import content
from datasieve.captions.style import PLACEHOLDER, Style, is_unspaced, pieces, placeholders, plain, script, style, words

LONGEST = 100_000
"""Characters beyond which only tokens are counted; no trainer reads a hundredth of it."""
MOST_LOST = 10_000
"""Characters of unread text that are kept."""

COARSE, FINE = 2, 12
"""Details: up to the first a caption is coarse ("a red dog"), from the second on it is fine."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One caption's measurements.

    Attributes:
        style: "empty", "sentence", "tags" or "mixed".
        script: script of most letters, "" without letters.
        words: letters and digits between blanks, commas and underscores; None in scripts without blanks.
        tokens: CLIP tokens without start and end.
        tokens_lost: tokens beyond the limit.
        words_lost: the text that is not read because of the limit.
        chunks: passes of 75 tokens.
        objects, attributes, modifiers: see phrases.py; None in scripts without blanks.
        details: different words that say something; None in scripts without blanks.
        names: those words, in order.
        level: "none", "coarse", "medium" or "fine", by `details`.
        information: bits of the details' rarity in English; None when none of them is known.
        repeated: pieces between commas that stand more than once.
        repetition: share of repeated word pairs.
        picture_phrases: how often it says "a photo of" and the like.
        stray: separators that part nothing.
        damage: what is damaged in the text.
        placeholders: placeholder words.
    """

    style: Style
    script: str
    words: int | None
    tokens: int
    tokens_lost: int
    words_lost: str
    chunks: int
    objects: int | None
    attributes: int | None
    modifiers: int | None
    details: int | None
    names: tuple[str, ...]
    level: str | None
    information: float | None
    repeated: list[str]
    repetition: float | None
    picture_phrases: int
    stray: int
    damage: list[str]
    placeholders: list[str]


def level(details: int) -> str:
    """Return the granularity of a caption with so many details: "none", "coarse", "medium" or "fine"."""
    if details == 0:
        return "none"
    return "coarse" if details <= COARSE else "medium" if details < FINE else "fine"


def measure(text: str, flavour: Flavour = "transformers", limit: int | None = CHUNK) -> Measured:
    """Measure one caption, as the trainer reads it.

    Args:
        text: the caption.
        flavour: whose tokenizer counts.
        limit: tokens that are read; None when all are.
    """
    total = count_tokens(text, flavour)
    over, unread = lost(text, flavour, limit) if limit is not None and total > limit else (0, "")
    unread = unread if len(unread) <= MOST_LOST else unread[:MOST_LOST] + "…"
    if len(text) > LONGEST:
        return _tokens_only(total, over, unread)
    said = plain(text)
    found = pieces(said)
    kind = style(said)
    slots = placeholders(text)
    bare = PLACEHOLDER.sub(" ", said) if slots else said
    unspaced = is_unspaced(said)
    every = [] if unspaced else words(said)
    spoken = words(bare) if slots and not unspaced else every
    named = None if unspaced else content(bare)
    tagged = kind in ("tags", "mixed")
    return Measured(
        style=kind,
        script=script(said),
        words=None if unspaced else len(every),
        tokens=total,
        tokens_lost=over,
        words_lost=unread,
        chunks=max(1, -(-total // CHUNK)),
        objects=named.objects if named else None,
        attributes=named.attributes if named else None,
        modifiers=named.modifiers if named else None,
        details=len(named.details) if named else None,
        names=named.details if named else (),
        level=level(len(named.details)) if named else None,
        information=information(named.details) if named else None,
        repeated=damage.repeated(found) if len(found) > 1 else [],
        repetition=damage.repetition(spoken),
        picture_phrases=damage.picture_phrases(said),
        stray=damage.stray_separators(said) if "," in said and (tagged or kind == "empty" or ",," in said) else 0,
        damage=damage.kinds(text),
        placeholders=slots,
    )


def _tokens_only(total: int, over: int, unread: str) -> Measured:
    return Measured(
        style="sentence",
        script="",
        words=None,
        tokens=total,
        tokens_lost=over,
        words_lost=unread,
        chunks=-(-total // CHUNK),
        objects=None,
        attributes=None,
        modifiers=None,
        details=None,
        names=(),
        level=None,
        information=None,
        repeated=[],
        repetition=None,
        picture_phrases=0,
        stray=0,
        damage=[],
        placeholders=[],
    )
