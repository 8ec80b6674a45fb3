"""What the captions say, what of them is read, and whether those of one concept fit together.

"a dog" beside a description of thirty words breaks what token-level training rests on: that the words of a caption
account for everything but the concept. Damaged text, words cut off at the token limit, missing placeholders and
captions that contradict each other are cheaper to mend than pictures.

Method and sources stand in `datasieve.captions`, part by part. Everything is measured when the set is compared, since
captions change while the images' content does not, and since `--trainer` decides what is read. kohya's first line and
OneTrainer's random line (the longest is measured) are followed. Fails where the module for each part says so; above all
objects, attributes and details are told by English rules, and T5's tokens are not counted.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from datasieve.analyzers import Comparison
from datasieve.analyzers._caption_rules import RULES
from datasieve.captions.conflicts import contradictions, traits
from datasieve.captions.granularity import Captioned, granularity, size, words_of
from datasieve.captions.measure import LONGEST, Measured, measure
from datasieve.captions.reading import flavour, readings, token_limit
from datasieve.captions.style import pieces, placeholders, plain
from datasieve.captions.variety import batch_entropy, fused, never_varying
from datasieve.schema import Column, Kind

if TYPE_CHECKING:
    import pyarrow as pa

    from datasieve.config import Settings

_TOKENIZER = "Radford et al. 2021, arXiv:2103.00020; the vocabulary of open_clip"
FEWEST_PLACEHOLDERS = 0.2
"""Share of captions that must hold one; rarer ones are what captioners leave behind ("<unk>")."""
FEWEST_DETAILS_IDENTICAL = 4
"""Captions that say less may well fit two pictures."""


def _column(
    name: str,
    kind: Kind,
    unit: str,
    description: str,
    low: float | None = None,
    high: float | None = None,
    source: str = "",
) -> Column:
    return Column(f"captions.{name}", kind, unit, description, low, high, source, stage="compare")


_OWN = (
    _column("style", "string", "", "how it is written: empty, sentence, tags or mixed"),
    _column("script", "string", "", "script of most letters, such as latin, cyrillic or han"),
    _column("words", "int", "words", "words, parted by blanks, commas and underscores", 0),
    _column("tokens", "int", "tokens", "CLIP tokens, without the start and end token", 0, source=_TOKENIZER),
    _column("tokens-lost", "int", "tokens", "tokens beyond those the trainer reads", 0, source=_TOKENIZER),
    _column("words-lost", "string", "", "the text that is not read because of the limit"),
    _column("chunks", "int", "chunks", "passes of 75 tokens that the whole caption takes", 1),
    _column("objects", "int", "phrases", "phrases that name a thing", 0),
    _column("attributes", "int", "words", "words that describe a thing", 0),
    _column("modifiers", "int", "phrases", "prepositional phrases and -ing forms", 0),
    _column("details", "int", "words", "different words that say something", 0),
    _column("granularity", "string", "", "none (0 details), coarse (1 or 2), medium, fine (12 and more)"),
    _column(
        "specificity", "float", "bits/word", "mean rarity of the details in English text", 0, source="wordfreq 3.1"
    ),
    _column("repeated-tags", "int", "pieces", "pieces between commas that stand more than once", 0),
    _column("repeated-names", "string", "", "those pieces"),
    _column("repetition", "float", "share", "share of word pairs that stood before; from 12 words on", 0, 1),
    _column("picture-phrases", "int", "phrases", "how often it says 'a photo of' and the like", 0),
    _column("stray-separators", "int", "separators", "separators that part nothing", 0),
    _column("damage", "string", "", "what is damaged in the text; null when nothing is"),
)
_BESIDE = (
    _column("unmeasured", "string", "", "why details and words could not be told; null if they were"),
    _column("none", "bool", "", "no image of the set has a caption, this one included"),
    _column("missing", "bool", "", "the image has no caption, and others of the set have one"),
    _column("empty", "bool", "", "the caption holds no word"),
    _column("damaged", "bool", "", "the text is damaged"),
    _column("says-nothing", "bool", "", "the caption names nothing, and others of its concept do"),
    _column("granularity-distance", "float", "doublings", "how far its size is from its concept's usual", 0),
    _column("granularity-outlier", "float", "doublings", "the same, for captions with words in them", 0),
    _column("size", "float", "doublings", "mean of log2(1 + details) and log2(1 + words)", 0),
    _column("usual-size", "float", "doublings", "size of a usual caption of its concept", 0),
    _column("usual-words", "int", "words", "words of a usual caption of its concept", 0),
    _column("contradiction", "bool", "", "it says of the concept what its other captions deny"),
    _column("contradicts", "string", "", "trait, what it says, what the others say"),
    _column("identical", "int", "images", "other files of other content with the same caption", 0),
    _column("placeholder", "string", "", "the placeholder of its concept"),
    _column("placeholders", "int", "words", "how often the caption holds it", 0),
    _column("placeholder-missing", "bool", "", "its concept's captions hold a placeholder, this one does not"),
)


class Captions:
    """Measures captions and compares those of each concept."""

    version = 1
    views = ()
    needs = ()
    columns = (*_OWN, *_BESIDE)
    rules = RULES

    def compare(self, table: pa.Table, settings: Settings) -> Comparison:
        """Return every caption's measurements, and for each concept its granularity and variety."""
        captions: list[str | None] = table["caption"].to_pylist()
        found = Comparison(columns={c.name: [None] * len(captions) for c in self.columns})
        columns: dict[str, Any] = {name.removeprefix("captions."): v for name, v in found.columns.items()}
        if not any(caption is not None for caption in captions):
            if captions:
                found.unmeasured["captions"] = "no image has a caption"
                columns["none"] = [status != "ignored" for status in table["status"].to_pylist()]
                columns["unmeasured"] = ["no caption"] * len(captions)
                found.columns = {f"captions.{name}": values for name, values in columns.items()}
            return found
        if settings.base in ("sd3", "flux"):
            found.unmeasured["captions.tokens"] = (
                f"only CLIP's tokens are counted; the T5 encoder of {settings.base} reads more"
            )
        keys = _measure(captions, columns, found, settings)
        rows: dict[str, list[int]] = collections.defaultdict(list)
        for i, (concept, status) in enumerate(
            zip(table["concept"].to_pylist(), table["status"].to_pylist(), strict=True)
        ):
            if status != "ignored":
                rows[concept].append(i)
                columns["missing"][i] = captions[i] is None
        content = table["content"].to_pylist()
        for concept, members in rows.items():
            own = [captions[i] for i in members]
            _compare_granularity(found, concept, members, own, columns)
            _compare_statements(members, own, content, columns)
            _compare_placeholders(members, own, columns)
            _compare_variety(found, concept, members, own, columns, [keys[i] for i in members], settings.batch_size)
        return found


MOST_LETTERS = 300_000
"""Characters of a caption that are read at all: 800 times what a text encoder takes, and two seconds' work at worst."""


def _measure(
    captions: Sequence[str | None], columns: dict[str, Any], found: Comparison, settings: Settings
) -> list[int]:
    """Fill the columns of each caption by itself, and return a number that is the same where the same is said."""
    whose, limit = flavour(settings.trainer, settings.base), token_limit(settings.trainer)
    keys = [0] * len(captions)
    for i, caption in enumerate(captions):
        if caption is None:
            columns["unmeasured"][i] = "no caption"
            continue
        texts = readings(caption[:MOST_LETTERS], settings.trainer)
        one = max((measure(text, whose, limit) for text in texts), key=lambda m: m.tokens)
        keys[i] = hash(one.names or caption)
        values = {
            "style": one.style,
            "script": one.script or None,
            "words": one.words,
            "tokens": one.tokens,
            "tokens-lost": one.tokens_lost,
            "words-lost": one.words_lost or None,
            "chunks": one.chunks,
            "objects": one.objects,
            "attributes": one.attributes,
            "modifiers": one.modifiers,
            "details": one.details,
            "granularity": one.level,
            "specificity": one.information,
            "repeated-tags": len(one.repeated),
            "repeated-names": ", ".join(one.repeated) or None,
            "repetition": one.repetition,
            "picture-phrases": one.picture_phrases,
            "stray-separators": 0 if one.style == "empty" else one.stray,
            "damage": ", ".join(one.damage) or None,
            "empty": one.style == "empty",
            "damaged": bool(one.damage),
            "unmeasured": _why(one, caption),
        }
        for name, value in values.items():
            columns[name][i] = value
    for why, number in collections.Counter(columns["unmeasured"]).items():
        if why is not None and why != "no caption":
            before = found.unmeasured.get("captions")
            found.unmeasured["captions"] = f"{before}; " if before else ""
            found.unmeasured["captions"] += f"words of {number} caption(s): {why}"
    return keys


def _compare_granularity(
    found: Comparison,
    concept: str,
    members: Sequence[int],
    own: Sequence[str | None],
    columns: dict[str, Any],
) -> None:
    captioned = [_captioned(caption, i, columns) for i, caption in zip(members, own, strict=True)]
    result = granularity(captioned)
    usual = round(words_of(result.usual))
    for i, distance, one in zip(members, result.distances, captioned, strict=True):
        columns["granularity-distance"][i] = distance
        columns["usual-words"][i] = usual
        columns["usual-size"][i] = result.usual
        if one.tags is not None:
            columns["granularity-outlier"][i] = distance
            columns["size"][i] = one.size
    for name, value in (
        ("granularity-spread", result.spread),
        ("granularity-dip-p", result.dip_p),
        ("granularity-break", result.broken),
    ):
        if value is not None:
            found.concepts.setdefault(f"captions.{name}", {})[concept] = value


def _compare_variety(
    found: Comparison,
    concept: str,
    members: Sequence[int],
    own: Sequence[str | None],
    columns: dict[str, Any],
    said: Sequence[int],
    batch_size: int,
) -> None:
    """Batch entropy of what captions say, raw and per log2(batch); tags in every caption."""
    batch = min(batch_size, len(said))
    if batch > 1:
        bits = batch_entropy(said, batch)
        found.concepts.setdefault("captions.batch-entropy-bits", {})[concept] = bits
        found.concepts.setdefault("captions.batch-entropy", {})[concept] = bits / math.log2(batch)
    tagged = [caption for caption, i in zip(own, members, strict=True) if caption and columns["style"][i] == "tags"]
    if tagged and len(tagged) >= 0.8 * len([caption for caption in own if caption]):
        beside = [_tags(caption) for caption in tagged if placeholders(caption)]
        for name, tags in (("never-varying", never_varying([_tags(c) for c in tagged])), ("fused", fused(beside))):
            if tags:
                found.concepts.setdefault(f"captions.{name}", {})[concept] = len(tags)
                found.concepts.setdefault(f"captions.{name}-names", {})[concept] = ", ".join(tags)


def _why(one: Measured, caption: str) -> str | None:
    """Return why words and details of a caption are not known, None when they are."""
    if len(caption) > MOST_LETTERS:
        return f"{len(caption):,} characters, of which only the tokens of the first {MOST_LETTERS:,} were counted"
    if len(caption) > LONGEST:
        return f"more than {LONGEST:,} characters, of which only the tokens were counted"
    return "a script without blanks between words" if one.words is None else None


def _captioned(caption: str | None, i: int, columns: dict[str, Any]) -> Captioned:
    if caption is None or columns["style"][i] == "empty":
        return Captioned(0.0, None, False)
    details, words = columns["details"][i], columns["words"][i]
    if details is None or words is None:
        return Captioned(None, None, False)
    return Captioned(size(details, words), columns["style"][i] == "tags", columns["tokens-lost"][i] == 0)


def _tags(caption: str) -> frozenset[str]:
    """Return the tags of a caption in one spelling, without placeholders."""
    said = (piece for piece in pieces(plain(caption)) if piece and not placeholders(piece))
    return frozenset(" ".join(piece.lower().replace("_", " ").split()) for piece in said)


def _compare_statements(
    members: Sequence[int],
    own: Sequence[str | None],
    content: Sequence[str | None],
    columns: dict[str, Any],
) -> None:
    """Contradictions, identical descriptions, and captions that say nothing, within one concept."""
    pool: dict[frozenset[tuple[str, frozenset[str]]], dict[str, frozenset[str]]] = {}
    stated = []
    for caption in own:
        one = traits(caption) if caption and len(caption) <= LONGEST else {}
        stated.append(pool.setdefault(frozenset(one.items()), one))  # few differ: a million take no more memory
    for i, text, caption in zip(members, contradictions(stated), own, strict=True):
        if caption:
            columns["contradiction"][i] = bool(text)
            columns["contradicts"][i] = text or None
    spelled = [hash(" ".join(caption.lower().split())) if caption else 0 for caption in own]
    files: dict[int, set[str | None]] = collections.defaultdict(set)
    for i, caption, spelling in zip(members, own, spelled, strict=True):
        if caption:
            files[spelling].add(content[i])
    told_apart = sum(len(contents) == 1 for contents in files.values()) > len(members) / 2
    anything = any(columns["details"][i] for i in members)
    for i, caption, spelling in zip(members, own, spelled, strict=True):
        details = columns["details"][i]
        if not caption or details is None or columns["style"][i] == "empty":
            continue
        columns["says-nothing"][i] = anything and details == 0
        if told_apart and details >= FEWEST_DETAILS_IDENTICAL:
            columns["identical"][i] = len(files[spelling]) - 1


def _compare_placeholders(members: Sequence[int], own: Sequence[str | None], columns: dict[str, Any]) -> None:
    """Find the concept's placeholder, and the captions that lack or double it."""
    held = [placeholders(caption) if caption else [] for caption in own]
    counts = collections.Counter(word for words in held for word in set(words) if word != "[filewords]")
    if not counts:
        return
    if sum(map(bool, held)) < FEWEST_PLACEHOLDERS * sum(map(bool, own)):
        return
    word = max(counts, key=lambda word: (counts[word], word))
    for i, caption, words in zip(members, own, held, strict=True):
        columns["placeholder"][i] = word
        if caption:
            columns["placeholders"][i] = max(collections.Counter(words).values(), default=0)
            columns["placeholder-missing"][i] = not counts.keys() & set(words)


ANALYZER = Captions()
