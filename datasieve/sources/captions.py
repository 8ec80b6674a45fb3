r"""Sidecar captions: text files beside the images.

Which file: the image's stem with `.txt` or `.caption`, extension in any case, stem in any Unicode form. When both are
there `.txt` is read, since most trainers read that one, and a differing `.caption` is noted. A near miss (`a.jpg.txt`,
another case) is noted and not read, since no trainer reads it.

What text: UTF-8, with or without a byte-order mark; UTF-16 and UTF-32 by their marks, UTF-16 also by its pattern of
zero bytes; else Windows-1252. Line ends become "\n", blanks around the whole text go, lines stay lines. An empty
file is the caption "", which is not the same as having none. Where it fails: other 8-bit encodings are read as
Windows-1252, which the note says is a guess.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator

from datasieve.sources.ingest import Ledger
from datasieve.sources.names import CAPTION_EXTENSIONS, is_document, join, nfc, split
from datasieve.sources.walk import Folder
from datasieve.storage import readable

HUGE = 10_000
"""Characters beyond which a caption is noted: about 2,500 tokens, five times what any text encoder here reads."""

MOST_BYTES = 64 * 2**20
"""No caption file is read further than this."""

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le", "UTF-32"),
    (codecs.BOM_UTF32_BE, "utf-32-be", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "UTF-16"),
)


def decode(raw: bytes) -> tuple[str, str]:
    """Return the text of `raw` and what is wrong with its encoding ("" for plain UTF-8). Never fails.

    Letters that cannot be told are U+FFFD in UTF-16 and UTF-32; the five bytes that Windows-1252 leaves undefined
    are kept as the control characters with their number.
    """
    if raw.startswith(codecs.BOM_UTF8):
        text, problem = decode(raw[3:])
        return text, problem or "begins with a byte-order mark, which trainers take for a part of the first word"
    for mark, codec, name in _MARKS:
        if raw.startswith(mark):
            return raw[len(mark) :].decode(codec, "replace"), f"is {name}, not UTF-8"
    if (guessed := _unmarked_utf16(raw)) is not None:
        return raw.decode(guessed, "replace"), "is UTF-16 without a byte-order mark, not UTF-8"
    try:
        return raw.decode("utf-8"), ""
    except UnicodeDecodeError as error:
        text = "".join(_cp1252(byte) for byte in raw)
        wrong = f"byte 0x{raw[error.start]:02x} at position {error.start}"
        return text, f"is not UTF-8 ({wrong}); it was read as Windows-1252, which is a guess"


def _unmarked_utf16(raw: bytes) -> str | None:
    """Return the codec of UTF-16 text without a mark, which has zeros in most of its even or of its odd places."""
    head = raw[:2048]
    if len(raw) % 2 or len(raw) < 4 or b"\0" not in head:
        return None
    half = len(head) // 2
    even, odd = head[0::2].count(0), head[1::2].count(0)
    if odd * 2 > half and even * 10 < half:
        return "utf-16-le"
    return "utf-16-be" if even * 2 > half and odd * 10 < half else None


def _cp1252(byte: int) -> str:
    try:
        return bytes((byte,)).decode("cp1252")
    except UnicodeDecodeError:
        return chr(byte)


def tidy(text: str) -> str:
    r"""Return `text` with every line end as "\n" and without blanks around the whole."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.strip("\ufeff \t\n\v\f")


def read_caption(raw: bytes, path: str, ledger: Ledger) -> str:
    """Return the caption that the bytes of the file `path` hold, and note what a trainer would stumble over."""
    text, problem = decode(raw)
    if problem:
        ledger.note("caption-encoding", path, f"{readable(path)} {problem}")
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    caption = tidy(plain)
    if "\n" in plain and caption:
        _note_lines(plain, caption, path, ledger)
    if len(caption) > HUGE:
        ledger.note("caption-huge", path, f"{readable(path)} has {len(caption):,} characters")
    return caption


def _note_lines(plain: str, caption: str, path: str, ledger: Ledger) -> None:
    first = plain.split("\n", 1)[0].strip()
    lines = [line.strip() for line in caption.split("\n") if line.strip()]
    if not first:
        lost = "a blank first line: a trainer that reads only the first line gets an empty caption"
        ledger.note("caption-lines", path, f"{readable(path)} has {lost} and loses {_quote(lines)}")
    elif len(lines) > 1:
        lost = f"{len(lines)} lines: a trainer that reads only the first loses {_quote(lines[1:])}"
        ledger.note("caption-lines", path, f"{readable(path)} has {lost}")


def _quote(lines: list[str]) -> str:
    shown = "; ".join(repr(line if len(line) <= 60 else line[:57] + "...") for line in lines[:3])
    return shown + (f" and {len(lines) - 3} more" if len(lines) > 3 else "")


def captioned(
    folder: Folder, ledger: Ledger, *, extensions: tuple[str, ...] = CAPTION_EXTENSIONS
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (name, captions) for every image of `folder`, in its order; afterwards note captions left over.

    Args:
        folder: as listed.
        ledger: takes the notes.
        extensions: extensions that are read (lower case, with dot), the preferred first.
    """
    sidecars = Sidecars(folder, ledger, extensions)
    for name in folder.images:
        yield name, sidecars.captions(name)
    sidecars.close()


class Sidecars:
    """The caption files of one folder, looked up by image."""

    def __init__(self, folder: Folder, ledger: Ledger, extensions: tuple[str, ...] = CAPTION_EXTENSIONS) -> None:
        self.folder = folder
        self.ledger = ledger
        self.extensions = extensions
        self.unused = dict.fromkeys(folder.captions)
        self.by_stem: dict[str, list[str]] = {}
        for name in folder.captions:
            self.by_stem.setdefault(nfc(split(name)[0]), []).append(name)

    def captions(self, image: str) -> tuple[str, ...]:
        """Return the captions of `image`: none, or the text of the file that wins."""
        stem = split(image)[0]
        found = self.by_stem.get(nfc(stem))
        if not found:
            return ()
        for name in found:
            self.unused.pop(name, None)
        path = join(self.folder.path, image)
        # The stem as the image writes it goes before another Unicode form, lower case before upper.
        ranked = sorted(
            (n for n in found if split(n)[1] in self.extensions),
            key=lambda n: (self.extensions.index(split(n)[1]), split(n)[0] != stem, n.lower() != n, n),
        )
        texts = [(name, text) for name in ranked if (text := self._read(name)) is not None]
        if not texts:
            self._note_unread(path, found)
            return ()
        winner, caption = texts[0]
        if split(winner)[0] != stem:
            self.ledger.forms.append((path, winner))
        if differing := [name for name, text in texts[1:] if text != caption]:
            self.ledger.note(
                "caption-conflict",
                path,
                f"{readable(path)} has two captions that differ: {readable(winner)} is used, "
                f"{', '.join(map(readable, differing))} is not ({self.extensions[0]} goes first)",
            )
        return (caption,)

    def _note_unread(self, path: str, found: list[str]) -> None:
        if others := [name for name in found if split(name)[1] not in self.extensions]:
            self.ledger.note(
                "caption-name",
                path,
                f"{readable(path)} has {', '.join(map(readable, others))} beside it, "
                f"but this dataset says that captions end in {' or '.join(self.extensions)}",
            )

    def _read(self, name: str) -> str | None:
        path = join(self.folder.path, name)
        try:
            with open(os.path.join(self.folder.location, name), "rb") as handle:
                raw = handle.read(MOST_BYTES + 1)
        except OSError as error:
            self.ledger.note("caption-unreadable", path, f"{readable(path)} cannot be read: {error.strerror}")
            return None
        if len(raw) > MOST_BYTES:
            self.ledger.note("caption-huge", path, f"{readable(path)} has more than 64 MiB; the rest was not read")
        return read_caption(raw[:MOST_BYTES], path, self.ledger)

    def close(self) -> None:
        """Note captions that no image took, and a folder that mixes the two extensions."""
        used = [name for name in self.folder.captions if name not in self.unused]
        kinds = {ending: sum(split(name)[1] == ending for name in used) for ending in CAPTION_EXTENSIONS}
        if all(kinds.values()):
            self.ledger.note(
                "caption-mixed",
                self.folder.path,
                f"the folder {readable(self.folder.path) or '.'} mixes captions: "
                f"{kinds['.txt']} end in .txt, {kinds['.caption']} in .caption; a trainer reads only one kind",
            )
        if self.unused:
            self._note_left_over()

    def _note_left_over(self) -> None:
        images: dict[str, str] = {}
        for picture in self.folder.images:
            images.setdefault(nfc(split(picture)[0]).casefold(), picture)
        for picture in self.folder.images:
            images.setdefault(nfc(picture).casefold(), picture)
        lonely: list[str] = []
        for name in self.unused:
            stem = nfc(split(name)[0]).casefold()
            guesses = (images.get(key) for key in (stem, split(stem)[0], stem.strip()))
            if (image := next(filter(None, guesses), None)) is not None:
                right = split(image)[0] + split(name)[1]
                path = join(self.folder.path, image)
                self.ledger.note(
                    "caption-name",
                    path,
                    f"{readable(name)} seems meant as the caption of {readable(path)}, "
                    f"but trainers look for {readable(right)}; it was not used",
                )
            elif is_document(name):
                self.ledger.pass_over("not an image")
            else:
                lonely.append(name)
        self.ledger.pass_over("caption without image", len(lonely))
        if not self.folder.images:
            # One or two texts in a folder without images are about the dataset; many are captions gone astray.
            if len(lonely) < 3 or is_document(os.path.basename(self.folder.path)):
                return
            where = readable(self.folder.path) or "."
            shown = ", ".join(map(readable, lonely[:3]))
            self.ledger.note(
                "caption-orphan",
                self.folder.path,
                f"the folder {where} has {len(lonely)} caption files and no image: {shown}",
            )
        else:
            for name in lonely:
                path = join(self.folder.path, name)
                self.ledger.note("caption-orphan", path, f"{readable(path)} has no image beside it")
