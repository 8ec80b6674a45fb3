"""CLIP's tokens: how many a caption makes, and which of its words a trainer never sees.

The vocabulary is the file that the installed open_clip package brings (MIT); neither open_clip nor torch is imported.
Two programs read it, and they differ before the first token: open_clip mends the encoding with ftfy and resolves HTML
entities, transformers only composes letters (NFC). "&amp;" is one token for the first and three for the second.

Both are followed token by token (tests compare with both programs). Where it fails: capitals of scripts that are newer
than this Python's Unicode, which transformers puts in lower case.
"""

from __future__ import annotations

import functools
import gzip
import heapq
import html
import importlib.util
import re as plain_re
import unicodedata
from pathlib import Path
from typing import Literal

import regex

from datasieve.errors import DatasieveError

Flavour = Literal["open_clip", "transformers"]

CHUNK = 75
"""Tokens of a caption that one pass of CLIP's text encoder reads, besides its start and end tokens (77 in all)."""

_CACHED_PIECES = 200_000
_LONG = 100
"""Letters beyond which a piece is no word that comes again."""
_MERGES = 49152 - 256 - 2

_PIECES = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
_PATTERNS: dict[Flavour, regex.Pattern[str]] = {
    "open_clip": regex.compile("<start_of_text>|<end_of_text>|" + _PIECES, regex.IGNORECASE),
    "transformers": regex.compile(_PIECES),
}
_NEWER = (
    "\u0558\u058b-\u058c\u088f\u0c5c\u0cdc\u208f\u209d-\u209f\ua7ce-\ua7cf\ua7d2\ua7d4\ua7dd\ua7e2\ua7f1"
    "\uab6c-\uab6d\U000107bb-\U000107bf\U00010940-\U00010959\U00010ec5-\U00010ec7\U00010ed9-\U00010eee"
    "\U00011b0a\U00011db0-\U00011ddb\U00011de0-\U00011de9\U00011df1\U0001246f\U00012475-\U0001247f"
    "\U00012550-\U00012686\U00016ea0-\U00016eb8\U00016ebb-\U00016ed3\U00016ff2-\U00016ff6"
    "\U000187f8-\U000187ff\U00018cd6-\U00018cda\U00018d09-\U00018d20\U00018d80-\U00018df2"
    "\U00018e00-\U00019191\U000191a0-\U000191d2\U0001b123-\U0001b128\U0001b168\U0001d6a6\U0001df1f-\U0001df24"
    "\U0001df2b-\U0001df81\U0001df90-\U0001df96\U0001dfcd-\U0001dfff\U0001e6c0-\U0001e6de"
    "\U0001e6e0-\U0001e6e2\U0001e6e4-\U0001e6e5\U0001e6e7-\U0001e6ed\U0001e6f0-\U0001e6f4"
    "\U0001e6fe-\U0001e6ff\U0002b73a-\U0002b73f\U0002b81e\U0002cea2-\U0002cead\U000323b0-\U00033479"
    "\U0003d000-\U0003fc3f"
)
"""Letters and numbers from after Unicode 16: the regex package knows them, the tokenizers of transformers do not."""
_NEWER_LETTER = plain_re.compile(f"[{_NEWER}]")
# transformers cuts its special tokens out first, open_clip only where a run of signs does not swallow them.
_TEXT_TOKEN = r"<\|(?:start|end)oftext\|>"
_CAREFUL = regex.compile(
    rf"{_TEXT_TOKEN}|'s|'t|'re|'ve|'m|'ll|'d|(?:(?![{_NEWER}])\p{{L}})+|(?![{_NEWER}])\p{{N}}|"
    rf"(?:(?!{_TEXT_TOKEN})(?:[^\s\p{{L}}\p{{N}}]|[{_NEWER}]))+"
)
_SPECIAL = frozenset(("<start_of_text>", "<end_of_text>", "<|startoftext|>", "<|endoftext|>"))

# What ftfy and html.unescape leave as it is: printable ASCII without an ampersand.
_UNTOUCHED = plain_re.compile(r"[\n\t\x20-\x25\x27-\x7e]*")
_BLANKS = plain_re.compile(r"[ \t\n\v\f\r\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
"""Unicode's White_Space, which is less than Python's `str.split` takes (not the separators U+001C to U+001F)."""


@functools.cache
def _byte_letters() -> dict[int, str]:
    """Return CLIP's letter for each byte: printable ones stand for themselves, others from U+0100 on."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = {byte: chr(byte) for byte in shown}
    hidden = [byte for byte in range(256) if byte not in letters]
    return letters | {byte: chr(256 + i) for i, byte in enumerate(hidden)}


def vocabulary_file() -> Path:
    """Return open_clip's vocabulary file. Raises DatasieveError when the package is not installed whole."""
    found = importlib.util.find_spec("open_clip")
    for place in (found.submodule_search_locations or ()) if found else ():
        path = Path(place) / "bpe_simple_vocab_16e6.txt.gz"
        if path.is_file():
            return path
    raise DatasieveError("CLIP's vocabulary is not there", remedy="Install it with: pip install open_clip_torch")


@functools.cache
def merge_ranks() -> dict[tuple[str, str], int]:
    """Return CLIP's byte pair merges and their order, the first the most frequent."""
    lines = gzip.decompress(vocabulary_file().read_bytes()).decode("utf-8").split("\n")[1 : _MERGES + 1]
    ranks = {}
    for rank, line in enumerate(lines):
        first, second = line.split()
        ranks[first, second] = rank
    return ranks


def split_piece(piece: str) -> list[str]:
    """Return the tokens of one piece (a word, a digit, or a run of signs) as CLIP spells them.

    Pairs are merged in the order of their rank, from the left, with a heap: n log n for a "word" of a megabyte too.
    """
    letters = _byte_letters()
    symbols = [letters[byte] for byte in piece.encode("utf-8", "replace")]
    symbols[-1] += "</w>"
    ranks = merge_ranks()
    after = [*range(1, len(symbols)), -1]
    before = list(range(-1, len(symbols) - 1))
    alive = [True] * len(symbols)
    heap = [(rank, i) for i in range(len(symbols) - 1) if (rank := ranks.get((symbols[i], symbols[i + 1]))) is not None]
    heapq.heapify(heap)
    while heap:
        rank, i = heapq.heappop(heap)
        j = after[i]
        if not alive[i] or j < 0 or ranks.get((symbols[i], symbols[j])) != rank:
            continue
        symbols[i] += symbols[j]
        alive[j] = False
        after[i] = after[j]
        if after[j] >= 0:
            before[after[j]] = i
        for left in (before[i], i):
            if left >= 0 and after[left] >= 0:
                new = ranks.get((symbols[left], symbols[after[left]]))
                if new is not None:
                    heapq.heappush(heap, (new, left))
    return [symbol for symbol, here in zip(symbols, alive, strict=True) if here]


_counts: dict[str, int] = dict.fromkeys(_SPECIAL, 1)


@functools.lru_cache(maxsize=2)
def _count_long(piece: str) -> int:
    return len(split_piece(piece))


def _count_piece(piece: str) -> int:
    if len(piece) > _LONG:
        return _count_long(piece)
    count = len(split_piece(piece))
    if len(_counts) >= _CACHED_PIECES:
        # Memory stays flat over a million captions; the frequent pieces are soon back.
        _counts.clear()
        _counts.update(dict.fromkeys(_SPECIAL, 1))
    _counts[piece] = count
    return count


def cleaned(text: str, flavour: Flavour) -> str:
    """Return `text` as the tokenizer of that flavour sees it, before it is put in lower case."""
    if flavour == "transformers":
        return _BLANKS.sub(" ", text if text.isascii() else unicodedata.normalize("NFC", text))
    if not _UNTOUCHED.fullmatch(text):
        import ftfy

        text = html.unescape(html.unescape(ftfy.fix_text(text)))
    return " ".join(text.split())


def _lower(text: str, flavour: Flavour) -> str:
    if flavour == "transformers" and "Σ" in text:  # letter by letter: no final sigma
        return "".join(letter.lower() for letter in text)
    return text.lower()


def _pattern(text: str, flavour: Flavour) -> regex.Pattern[str]:
    if flavour == "transformers" and ("oftext|>" in text or (not text.isascii() and _NEWER_LETTER.search(text))):
        return _CAREFUL
    return _PATTERNS[flavour]


def count_tokens(text: str, flavour: Flavour) -> int:
    """Return how many CLIP tokens `text` makes, without the start and end tokens."""
    known = _counts
    total = 0
    lower = _lower(cleaned(text, flavour), flavour)
    for piece in _pattern(lower, flavour).findall(lower):
        count = known.get(piece)
        total += _count_piece(piece) if count is None else count
    return total


def tokens(text: str, flavour: Flavour) -> list[str]:
    """Return the CLIP tokens of `text` as the vocabulary spells them (`</w>` ends a word)."""
    out: list[str] = []
    lower = _lower(cleaned(text, flavour), flavour)
    for piece in _pattern(lower, flavour).findall(lower):
        out += [piece] if piece in _SPECIAL else split_piece(piece)
    return out


def lost(text: str, flavour: Flavour, limit: int = CHUNK) -> tuple[int, str]:
    """Return how many tokens lie beyond `limit`, and the text that is not read because of it.

    The text begins with the first word of which not every token is read: half a word is no word. It has the blanks
    and the mended encoding of `cleaned`.
    """
    clean = cleaned(text, flavour)
    lower = _lower(clean, flavour)
    total, start = 0, -1
    for match in _pattern(lower, flavour).finditer(lower):
        piece = match[0]
        total += _counts[piece] if piece in _counts else _count_piece(piece)
        if total > limit and start < 0:
            start = match.start()
    if start < 0:
        return 0, ""
    return total - limit, (clean if len(clean) == len(lower) else lower)[start:]
