"""diffusers' DreamBooth and Textual Inversion scripts: a folder of pictures and nothing else.

Their textual_inversion.py opens every file of the folder as a picture, so captions cannot lie there; it has templates
of its own, and DreamBooth one prompt for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from datasieve.curation.export import File, Item

EXTENSIONS: frozenset[str] | None = frozenset([".png", ".jpg", ".jpeg", ".webp", ".bmp"])
CARRIES_CAPTIONS = False


def files(items: Sequence[Item], out: Path, resolution: int) -> Iterator[File]:
    """See `Layout.files`: one folder a concept below `instance`, held-out pictures below `validation`."""
    for item in items:
        head = "instance" if item.part == "train" else "validation"
        yield File("/".join([head, *([item.folder] if item.folder else []), item.name]), item)
