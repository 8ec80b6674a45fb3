"""Words and numbers fit for a terminal: names that cannot steer it, numbers with their units, near misses."""

from __future__ import annotations

import difflib
import sys
import unicodedata
from collections.abc import Iterable

from rich.cells import cell_len

_JOINERS = "\u200c\u200d"
_UNITS = {"kelvin": "K", "degree": "°", "degrees": "°", "pixel": "px", "pixels": "px"}
_ASCII = str.maketrans({"…": "...", "·": "-", "✗": "x", "→": ">", "≤": "<=", "≥": ">=", "–": "-", "°": " degrees"})


def safe(text: str) -> str:
    r"""Return `text` on one line, unable to move the cursor, change colours or turn the writing direction.

    Control characters, line separators, direction marks and bytes that are not UTF-8 become escapes such as `\n`,
    `\x1b` and `\u202e`. Emoji and their joiners stay.
    """
    if text.isprintable():
        return text
    return "".join(_escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    if letter in _JOINERS or unicodedata.category(letter) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return letter
    if 0xDC80 <= ord(letter) <= 0xDCFF:  # how Python carries a byte of a file name that is not UTF-8
        return f"\\x{ord(letter) - 0xDC00:02x}"
    return letter.encode("unicode_escape").decode("ascii")


def shortened(text: str, width: int) -> str:
    """Return `safe(text)` in at most `width` terminal cells, its middle replaced by an ellipsis if need be.

    The end of a path tells more than its beginning, so two thirds of the space go to the end.
    """
    text = safe(text)
    if cell_len(text) <= width:
        return text
    room = max(width - 1, 1)
    head, tail = "", ""
    for letter in text:
        if cell_len(head + letter) > room // 3:
            break
        head += letter
    for letter in reversed(text):
        if cell_len(letter + tail) > room - cell_len(head):
            break
        tail = letter + tail
    return f"{head}…{tail}"


def number(value: float | bool | str | None, unit: str = "") -> str:
    """Return `value` with `unit` for people: three significant digits, shares in per cent, "not measured" for None."""
    if value is None:
        return "not measured"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return safe(value) or '""'
    if unit == "share":
        return f"{_digits(100 * value)} %"
    mark = _UNITS.get(unit, unit)
    return _digits(value) + (mark if mark == "°" else f" {mark}" if mark else "")


def _digits(value: float) -> str:
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def count(items: int, one: str, many: str = "") -> str:
    """Return "1 image", "1,234 images"."""
    return f"{items:,} {one if items == 1 else many or one + 's'}"


def spoken(seconds: float) -> str:
    """Return a duration: "0.4 s", "12 s", "3 min 20 s", "2 h 5 min"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def near(word: str, known: Iterable[str], *, most: int = 5) -> list[str]:
    """Return up to `most` of `known` that look like `word` (difflib), also by their last part alone, best first."""
    names = list(dict.fromkeys(known))
    by_case: dict[str, str] = {}
    for name in names:
        for form in (name, name.rpartition("/")[2], name.partition(".")[2]):
            if form:
                by_case.setdefault(form.casefold(), name)
    found = difflib.get_close_matches(word.casefold(), list(by_case), n=2 * most, cutoff=0.6)
    inside = [name for name in names if word and word.casefold() in name.casefold()]
    return list(dict.fromkeys([*(by_case[form] for form in found), *inside]))[:most]


def did_you_mean(word: str, known: Iterable[str], otherwise: str) -> str:
    """Return the remedy for an unknown `word`: the names like it, or `otherwise`."""
    matches = near(word, known)
    return f"Did you mean {', '.join(matches)}?" if matches else otherwise


def write_out(text: str, *, machine: bool = False) -> None:
    """Write `text` to stdout; a reader that went away (`| head`) is no error.

    For machines it is UTF-8 whatever the terminal speaks. For people, what the terminal cannot show becomes plain
    letters or escapes.
    """
    stream = sys.stdout
    encoding = "utf-8" if machine else (stream.encoding or "utf-8")
    if encoding.lower().replace("-", "") not in ("utf8", "utf16", "utf32"):
        text = text.translate(_ASCII)
    content = text.encode(encoding, "backslashreplace")
    try:
        stream.flush()
        stream.buffer.write(content if content.endswith(b"\n") else content + b"\n")
        stream.flush()
    except BrokenPipeError:
        _silence()


def _silence() -> None:
    import os

    # Python flushes stdout once more at exit and would complain then.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
