"""What went wrong with a caption as text: encoding, HTML, control characters, stray separators, repetition.

Encoding damage is told by ftfy: text that becomes shorter or plainer when its bytes are read again as UTF-8 was read
once too often as something else. Curly quotes, ligatures and wide letters are no damage, though ftfy would change
them. Fails on single accented letters that are legal both ways.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from datasieve.captions.lexicon import SHOWS
from datasieve.captions.style import LONGEST_TAG

_ENTITY = re.compile(
    r"&(?:#\d{1,7}|#x[0-9a-f]{1,6}|(?:amp|lt|gt|quot|apos|nbsp|eacute|uuml|ouml|auml|hellip|mdash));", re.I
)
_TAG = re.compile(r"</?(?:a|b|i|u|p|br|div|span|em|strong|img|font|li|ul|td|tr|h[1-6])(?:\s[^<>]*)?/?>", re.I)
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff]")
_INVISIBLE = re.compile("[\u200b\u200e\u200f\u2060\u00ad]")
_STRAY = re.compile(r"[,.;]\s*,|,\s*[.;](?!\.)|^\s*,|,\s*$")
_SUSPECT = re.compile("[\x80-\xff\u0152-\u017e\u0192\u02c6\u02dc\u2013-\u2122]")


def kinds(text: str) -> list[str]:
    """Return what is damaged in `text`: any of "encoding", "HTML", "control characters", "invisible characters"."""
    found = []
    if not text.isascii():
        if "\ufffd" in text or _is_mojibake(text):
            found.append("encoding")
        if _INVISIBLE.search(text):
            found.append("invisible characters")
    if ("&" in text and _ENTITY.search(text)) or ("<" in text and _TAG.search(text)):
        found.append("HTML")
    if not text.isprintable() and _CONTROL.search(text):
        found.append("control characters")
    return found


def _is_mojibake(text: str) -> bool:
    if not _SUSPECT.search(text):
        return False
    import ftfy

    return ftfy.fix_encoding(text) != text


def stray_separators(text: str) -> int:
    """Return how many separators of `text` part nothing: a comma at an end, two together, a stop before one."""
    count = 0
    while "," in text:
        text, found = _STRAY.subn(lambda m: "," if len(m[0].strip()) > 1 else "", text.strip())
        if not found:
            break
        count += found
    return count


def repeated(pieces: Sequence[str]) -> list[str]:
    """Return the pieces (tags, clauses) that stand more than once, without regard to case, "_", plurals and word order.

    So near-duplicates count too: "cat_ears", "Cat ear" and "ears cat" say the same.
    """
    first: dict[str, str] = {}
    again: dict[str, None] = {}
    for piece in pieces:
        key = piece.lower().replace("_", " ").replace("-", " ")
        parts = key.split()
        if len(parts) <= LONGEST_TAG:
            key = " ".join(sorted([word.rstrip("s") for word in parts]))
        if first.setdefault(key, piece) is not piece:
            again[key] = None
    return [first[key] for key in again if key]


def picture_phrases(text: str) -> int:
    """Return how often `text` says that it is a picture: "a photo of", "an image of"."""
    before = text.lower().split(" of ")[:-1]
    return sum(part[part.rfind(" ") + 1 :].strip("\n,.;:(") in SHOWS for part in before)


def repetition(words: Sequence[str]) -> float | None:
    """Return the share (0 to 1) of runs of two words that stood before; None below 12 words.

    Ordinary captions stay below 0.2; a captioner that stutters ("white, black, white, black...") comes near 1.
    """
    if len(words) < 12:
        return None
    lower = [word.lower() for word in words]
    pairs = list(pairwise(lower))
    return 1 - len(set(pairs)) / len(pairs)
