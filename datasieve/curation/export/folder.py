"""Plain folders: one for each concept, captions beside the pictures as `.txt`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from datasieve.curation.export import File, Item, sidecar

EXTENSIONS: frozenset[str] | None = None
CARRIES_CAPTIONS = True


def files(items: Sequence[Item], out: Path, resolution: int) -> Iterator[File]:
    """See `Layout.files`. Held-out pictures go into a folder `validation`."""
    parts = {item.part for item in items}
    for item in items:
        head = ["validation"] if item.part == "validation" else (["train"] if len(parts) > 1 else [])
        path = "/".join([*head, *([item.folder] if item.folder else []), item.name])
        yield File(path, item)
        yield from sidecar(path, item)
