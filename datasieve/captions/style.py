r"""How a caption is written: sentences, tags or both; weights, escapes and network tags; trigger words.

Tags follow the boorus and A1111's prompts: separated by commas, words joined by underscores, brackets that belong to a
tag escaped (`\(`), emphasis as `(word:1.2)`, `((word))` or `[word]`, alternatives as `[a|b]`, networks as
`<lora:name:1>`. Nothing here depends on the language, except that sentences are told by English function words; in
another language a list of short pieces between commas still counts as tags.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

from datasieve.captions.lexicon import FUNCTION_WORDS

Style = Literal["empty", "sentence", "tags", "mixed"]

NETWORK = re.compile(r"<(?:lora|lyco|hypernet):[^<>\n]*>", re.IGNORECASE)
"""Tags that load a network in A1111. A trainer reads them as ordinary text."""

_WEIGHT = re.compile(r":\s*[+-]?\d*\.?\d+\s*(?=\))")
_ALTERNATIVES = re.compile(r"(?<!\\)\[([^\[\]\\]*\|[^\[\]\\]*)\]")
_INSIDE_WORD = re.compile(r"(?<=\w)(?<!\\)[()\[\]](?=\w)")
_EMPHASIS = re.compile(r"(?<!\\)[()\[\]]")
_ESCAPE = re.compile(r"\\([()\[\]\\])")
_TEMPLATE = re.compile(r"\[(?:name|filewords|trigger)\]")

CONVENTIONAL = ("sks", "ohwx", "zwx", "shs")
"""Rare tokens that tutorials use as trigger words; in capitals they are other words (the SKS is a rifle)."""

_HTML = "a|b|i|u|p|br|hr|em|strong|span|div|img|font|li|ul|ol|td|tr|table|sub|sup|code|pre|h[1-6]"
PLACEHOLDER = re.compile(
    rf"<(?!(?i:{_HTML})>)[\w-]+(?:\s[\w-]+)?>|\[(?i:name|filewords|trigger|V\d?)\]|"
    rf"(?<![\w-])(?:{'|'.join(CONVENTIONAL)})(?![\w-])"
)
"""Words that stand for a concept by convention: `<my-cat>`, `[V]`, `sks`, and the slots of templates."""

_WORD = re.compile(r"[^\W_]+(?:['’\-.][^\W_]+)*")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_NOT_ASCII = re.compile("[^\x00-\x7f]")
_BETWEEN_TAGS = re.compile(r"[,、，\n]")
_SENTENCE_END = re.compile(r"[.!?。！？](?:\s|$)")

LONGEST_TAG = 4
"""A piece between commas with more words than this is no tag. Booru tags rarely have more."""


def plain(text: str) -> str:
    r"""Return `text` as it would be said: no weights, brackets of emphasis, escapes or network tags.

    "(red hair:1.2), hero \(old\), <lora:x:1>" becomes "red hair, hero (old), "; template slots are kept.
    """
    if "<" in text:
        text = NETWORK.sub(" ", text)
    if "(" not in text and "[" not in text and "\\" not in text:
        return text
    if _TEMPLATE.search(text) is None:
        text = _ALTERNATIVES.sub(lambda m: m[1].replace("|", " "), text)
    if "(" in text:
        text = _WEIGHT.sub("", text)
    if _TEMPLATE.search(text) is None:
        text = _EMPHASIS.sub("", _INSIDE_WORD.sub(" ", text))
    return _ESCAPE.sub(r"\1", text)


def pieces(text: str) -> list[str]:
    """Return what stands between the commas and line ends, without blanks around; empty pieces are kept."""
    return [piece.strip() for piece in _BETWEEN_TAGS.split(text)]


def words(text: str) -> list[str]:
    """Return the words of `text`: letters and digits, joined by hyphens, dots and apostrophes; "_" parts them."""
    return _WORD.findall(text)


def is_tag(piece: str) -> bool:
    """Tell whether a piece between commas may be a tag: few words, none of them a function word but inside names."""
    if _SENTENCE_END.search(piece):
        return False
    parts = piece.split()
    if not parts or len(parts) > LONGEST_TAG:
        return False
    return "_" in piece or not any(part.lower() in FUNCTION_WORDS for part in parts)


def style(text: str) -> Style:
    """Return how `text` (see `plain`) is written.

    "tags": two pieces or more between commas, four fifths of them tags (or one word with underscores). "mixed": two
    tags or more beside longer pieces. Everything else with a word in it is "sentence".
    """
    found = [piece for piece in pieces(text) if piece]
    if not found or not any(letter.isalnum() for letter in text):
        return "empty"
    if len(found) == 1:
        return "tags" if "_" in found[0] and is_tag(found[0]) else "sentence"
    tags = sum(map(is_tag, found))
    if tags >= 0.8 * len(found):
        return "tags"
    return "mixed" if tags >= 2 and tags >= 0.4 * len(found) else "sentence"


def placeholders(text: str) -> list[str]:
    """Return the placeholder words of `text`, in order and as often as they stand there."""
    if "<" in text or "[" in text or any(word in text for word in CONVENTIONAL):
        return PLACEHOLDER.findall(text)
    return []


def is_unspaced(text: str) -> bool:
    """Tell whether `text` is mostly in a script without blanks between words (Chinese, Japanese, Thai...)."""
    if text.isascii() or not (found := len(_UNSPACED.findall(text))):
        return False
    return found > 0.3 * sum(map(str.isalpha, text))


def script(text: str) -> str:
    """Return the script of most letters: "latin", "cyrillic", "han", "kana", "hangul", "arabic"...; "" for none."""
    if text.isascii():
        return "latin" if any(map(str.isalpha, text)) else ""
    head = text[:2000]
    others = [letter for letter in _NOT_ASCII.findall(head) if letter.isalpha()]
    counts = {"latin": sum(map(str.isalpha, head)) - len(others)}
    for letter in others:
        name = unicodedata.name(letter, "other").split()[0].lower()
        name = {"cjk": "han", "hiragana": "kana", "katakana": "kana"}.get(name, name)
        counts[name] = counts.get(name, 0) + 1
    most = max(counts, key=lambda name: (counts[name], name))
    return most if counts[most] else ""
