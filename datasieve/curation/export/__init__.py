"""Layouts that a chosen set can be written in, one file each.

A layout turns pictures into files: `files` yields every file below the set's folder, each from a picture's bytes or
from bytes of its own. `EXTENSIONS` are those its reader takes (None: any), and `CARRIES_CAPTIONS` whether captions come
along.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from datasieve.records import ImageRecord

LAYOUTS = ("folder", "kohya", "imagefolder", "diffusers", "webdataset")


@dataclass(frozen=True)
class Item:
    """One chosen picture.

    Attributes:
        record: where its bytes are, and what the dataset says of it.
        part: "train" or "validation".
        name: a safe file name with its true extension, unique within its concept and part, stems included.
        folder: its concept as a safe folder name; "" for none.
    """

    record: ImageRecord
    part: str
    name: str
    folder: str


@dataclass(frozen=True)
class File:
    """One file to write: a picture's bytes, or `content`.

    Attributes:
        path: relative, POSIX.
        item: the picture whose bytes it holds, which may be a link.
        content: bytes of its own.
    """

    path: str
    item: Item | None = None
    content: bytes = b""


class Layout(Protocol):
    """What each file of this folder exports."""

    EXTENSIONS: frozenset[str] | None
    CARRIES_CAPTIONS: bool

    def files(self, items: Sequence[Item], out: Path, resolution: int) -> Iterator[File]:
        """Yield every file of the set; `out` is where it will lie."""


def layout(name: str) -> Layout:
    """Return the layout of that name."""
    return cast(Layout, import_module(f"{__name__}.{name}"))


def caption_text(item: Item) -> str:
    """Return what a sidecar holds: every caption, one a line."""
    return "\n".join(item.record.captions)


def sidecar(path: str, item: Item, extension: str = ".txt") -> Iterator[File]:
    """Yield the caption file beside a picture, if there is a caption."""
    if item.record.captions:
        content = caption_text(item).encode("utf-8", "surrogateescape")
        yield File(path.rpartition(".")[0] + extension, content=content)
