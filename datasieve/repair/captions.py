r"""Edits of one caption: text in, text out, with what was done. Nothing is invented; twice is the same as once.

Safe edits keep every word: encoding, invisible characters and HTML entities mended, blanks and separators tidied, tags
that stand twice kept once, the trigger word put in. Lossy edits drop words, whole phrases from the end: down to the
concept's level of detail, or to what the text encoder reads. Escapes such as `\(` and weights such as `(word:1.2)` are
never touched; sentences are never made into tags.
"""

from __future__ import annotations

import bisect
import html
import re
from collections.abc import Callable
from dataclasses import dataclass

from datasieve.captions.clip_tokens import CHUNK, Flavour, count_tokens
from datasieve.captions.granularity import size
from datasieve.captions.lexicon import PREPOSITIONS, is_participle, word_set
from datasieve.captions.measure import LONGEST
from datasieve.captions.phrases import content
from datasieve.captions.style import PLACEHOLDER, plain, style, words
from datasieve.errors import ConfigError

_INVISIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufeff\u200b\u200e\u200f\u2060\u00ad]")
_MARKUP = re.compile(r"<br\s*/?>|</?(?:p|div|span|em|strong|font|b|i|u)(?:\s[^<>]*)?>", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[A-Za-z]{2,8});")
_BLANKS = re.compile(r"[ \t\u00a0\u2000-\u200a\u3000]+")
_STOP_BEFORE_COMMA = re.compile(r"(?<=[a-z]{3})\.\s*,")
_COMMAS = re.compile(r"\s*,(?:\s*,)*\s*")

SETTINGS = word_set("outdoors indoors sky night day beach forest street room water grass city snow sunset")
STYLE_TAGS = word_set("masterpiece photorealistic realistic sketch monochrome greyscale painting anime photo")


@dataclass(frozen=True, slots=True)
class Wish:
    """What shall be done to captions besides the safe edits.

    Attributes:
        trigger: a word that every caption shall hold, "" for none.
        rename: a word that is replaced by the trigger word, "" for none.
        reorder: bring tags in order: trigger, subject and attributes, setting, style.
        lossy: drop trailing phrases that go beyond the concept's level of detail or the token limit.
        flavour: whose tokenizer counts.
        limit: tokens that are read, None for all.

    Raises ConfigError for a trigger that the safe edits would change, such as one with a comma.
    """

    trigger: str = ""
    rename: str = ""
    reorder: bool = False
    lossy: bool = False
    flavour: Flavour = "transformers"
    limit: int | None = CHUNK

    def __post_init__(self) -> None:
        if self.trigger and ("," in self.trigger or _safe(self.trigger, {}) != self.trigger):
            raise ConfigError(
                f"the trigger {self.trigger!r} cannot stand in a caption as it is",
                remedy="Choose a word without commas, markup or blanks around it.",
            )


@dataclass(frozen=True, slots=True)
class Edited:
    """An edited caption.

    Attributes:
        text: the new caption.
        done: what was done to it, in order; empty when nothing was.
        dropped: what was left out by lossy edits.
    """

    text: str
    done: tuple[str, ...]
    dropped: str = ""


def edit(caption: str, wish: Wish, usual: float | None = None) -> Edited:
    """Return `caption` edited line by line.

    Args:
        caption: the caption; line ends as "\\n".
        wish: what shall be done besides the safe edits.
        usual: size of the concept's usual caption where this one says far more (see granularity.py), else None.
    """
    done: dict[str, None] = {}
    dropped: list[str] = []
    lines = []
    for line in caption.split("\n"):
        new = line
        # The trigger can turn a sentence into tags, and cutting can leave a separator last: until nothing changes.
        for _ in range(MOST_ROUNDS):
            before = new
            new = _safe(new, done)
            new = _wished(new, wish, usual, done, dropped) if new else new
            if new == before:
                break
        if new:
            lines.append(new)
        elif line:
            done["blanks"] = None
    if len(lines) < len(caption.split("\n")) and caption:
        done["blanks"] = None
    return Edited("\n".join(lines), tuple(done), "; ".join(dropped))


MOST_ROUNDS = 10
"""Two or three are usual; an end for the case that two edits undo each other."""

_SAFE = "encoding", "blanks", "separators and repeated tags"


def _safe(line: str, done: dict[str, None]) -> str:
    """Apply the safe edits until nothing changes: one may lay bare what another mends."""
    before = None
    while before != line:
        before = line
        for name, change in zip(_SAFE, (mended, _tidied_blanks, tidied_tags), strict=True):
            changed = change(line)
            if changed != line:
                done[name] = None
            line = changed
    return line


def _wished(line: str, wish: Wish, usual: float | None, done: dict[str, None], dropped: list[str]) -> str:
    steps: dict[str, Callable[[str], str]] = {
        "trigger renamed": lambda text: renamed(text, wish.rename, wish.trigger),
        "trigger": lambda text: with_trigger(text, wish.trigger),
        "order": lambda text: reordered(text, wish.trigger) if wish.reorder else text,
    }
    for name, change in steps.items():
        new = change(line)
        if new != line:
            done[name] = None
        line = new
    if wish.lossy:
        if usual is not None:
            shorter, rest = levelled(line, usual)
            if rest:
                done["level of detail"] = None
                dropped.append(rest)
                line = shorter
        if wish.limit is not None:
            shorter, rest = fitted(line, wish.flavour, wish.limit)
            if rest:
                done["token limit"] = None
                dropped.append(rest)
                line = shorter
    return line


def mended(text: str) -> str:
    """Return `text` with wrecked encoding mended (ftfy), HTML resolved and invisible characters taken out."""
    if text.isascii() and text.isprintable() and "&" not in text and "<" not in text:
        return text
    import ftfy

    before = None
    while before != text:
        before = text
        text = ftfy.fix_encoding(text)
        text = _ENTITY.sub(lambda m: html.unescape(m[0]), text)
        text = _MARKUP.sub(" ", text)
        text = _INVISIBLE.sub("", text)
    return text


def _tidied_blanks(text: str) -> str:
    return _BLANKS.sub(" ", text).strip()


def tidied_tags(text: str) -> str:
    """Return `text` with one comma and one blank between tags and each tag once.

    Sentences only lose commas that part nothing.
    """
    if "," not in text:
        return text
    kind = style(plain(text))
    if kind == "empty":
        return ""
    if kind == "sentence":
        return re.sub(r",(?:\s*,)+", ",", text).strip(" ,")
    text = _COMMAS.sub(", ", _STOP_BEFORE_COMMA.sub(",", text)).strip(", ")
    kept: dict[str, str] = {}
    for tag in text.split(", "):
        kept.setdefault(" ".join(tag.lower().replace("_", " ").split()), tag)
    return ", ".join(kept.values())


def renamed(text: str, old: str, new: str) -> str:
    """Return `text` with the whole word `old` replaced by `new`; "mycharacter" is left alone when `old` is "mychar"."""
    if not old or not new:
        return text
    return re.sub(rf"(?<![\w-]){re.escape(old)}(?![\w-])", lambda _: new, text)


def holds(text: str, trigger: str) -> bool:
    """Tell whether `text` holds the trigger as a whole word."""
    return re.search(rf"(?<![\w-]){re.escape(trigger)}(?![\w-])", text) is not None


def with_trigger(text: str, trigger: str) -> str:
    """Return `text` with the trigger first, unless it holds it already."""
    return text if not trigger or holds(text, trigger) else f"{trigger}, {text}"


def reordered(text: str, trigger: str) -> str:
    """Return tags in the order trigger, subject and attributes, setting, style; sentences are left as they are."""
    if style(plain(text)) != "tags":
        return text

    def rank(tag: str) -> int:
        if trigger and holds(tag, trigger):
            return 0
        parts = set(words(tag.lower()))
        if parts & STYLE_TAGS:
            return 3
        return 2 if parts & SETTINGS or "background" in parts else 1

    return ", ".join(sorted(text.split(", "), key=rank))


def phrase_starts(text: str) -> list[int]:
    """Return where `text` may be cut: before commas, prepositions (but "of") and -ing forms outside brackets."""
    starts = []
    depth = 0
    for match in re.finditer(r"[()\[\]<>]|,|[^\s,()\[\]<>]+", text):
        token = match[0]
        if token in "([<":
            depth += 1
        elif token in ")]>":
            depth = max(0, depth - 1)
        elif depth == 0 and match.start() > 0:
            word = token.lower()
            if token == "," or (word in PREPOSITIONS and word != "of") or is_participle(word):
                starts.append(match.start())
    return starts


def levelled(text: str, usual: float) -> tuple[str, str]:
    """Return `text` without the trailing phrases that take it beyond the `usual` size, and what was dropped.

    The last phrase goes first; the first phrase always stays, and so does everything once the size is no larger.
    """
    starts = [start for start in phrase_starts(text) if text[:start].rstrip(" ,")]
    if not starts or _size(text) <= usual:
        return text, ""
    # Sizes grow with the text, so the longest beginning that fits is found by halving.
    fitting = bisect.bisect_right(starts, usual, key=lambda start: _size(text[:start]))
    start = starts[max(0, fitting - 1)]
    return text[:start].rstrip(" ,"), text[start:].strip(" ,")


def _size(text: str) -> float:
    bare = PLACEHOLDER.sub(" ", plain(text))
    return size(len(content(bare).details), len(words(bare)))


def fitted(text: str, flavour: Flavour, limit: int) -> tuple[str, str]:
    """Return the longest beginning of `text` that ends with a phrase and makes at most `limit` tokens, and the rest.

    A text whose first phrase alone is too long is cut before the first word that does not fit.
    """
    if count_tokens(text, flavour) <= limit:
        return text, ""
    head = text[:LONGEST]
    blanks = [match.start() for match in re.finditer(r"\s", head)]
    for cuts in (phrase_starts(head), blanks):
        # Tokens grow with the text, so the longest beginning that fits is found by halving.
        fitting = bisect.bisect_right(cuts, limit, key=lambda cut: count_tokens(head[:cut].rstrip(" ,"), flavour))
        kept = head[: cuts[fitting - 1]].rstrip(" ,") if fitting else ""
        if kept:
            return kept, text[cuts[fitting - 1] :].strip(" ,")
    return text, ""
