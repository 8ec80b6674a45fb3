"""Small datasets, written by the tests that need them."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from datasieve.records import ImageRecord
from datasieve.rules import Note
from datasieve.sources import open_source
from datasieve.sources.ingest import Ingest

# The smallest file that every format sniffer takes for a JPEG; listing never decodes it.
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + bytes(40)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


def put(root: Path, files: dict[str, bytes | str]) -> Path:
    """Write `files` (relative path -> content) below `root` and return it."""
    for name, content in files.items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def shard(path: Path, members: list[tuple[str, bytes]]) -> Path:
    """Write a tar with `members` in their order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def listed(path: Path, **options: str) -> tuple[Ingest, dict[str, ImageRecord]]:
    """Open and exhaust a dataset; return it with its records by path."""
    ingest = open_source(path, **options)  # type: ignore[arg-type]  # concept_by is a literal
    records = list(ingest.records)
    found = {r.path: r for r in records}
    assert len(found) == len(records), "a path came twice"
    return ingest, found


def notes(ingest: Ingest, rule: str) -> list[Note]:
    """Return the notes of layout.<rule>."""
    return [n for n in ingest.notes if n.rule == f"layout.{rule}"]
