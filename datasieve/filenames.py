"""Names that every file system and archive takes."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Container
from pathlib import PurePosixPath

LONGEST_NAME = 200
"""Bytes; with `.caption` and a suffix a name stays below the 255 that file systems allow."""

_UNSAFE = re.compile(r'[\x00-\x1f\x7f<>:"|?*\\]')


def safe_path(path: str) -> str:
    """Return a relative path that every file system and archive takes; most paths come back as they are.

    Members of shards (`shard.tar::member`) go into a folder named like the shard.
    """
    shard, mark, member = path.partition("::")
    if mark:
        path = f"{shard.removesuffix('.tar')}/{member}"
    parts = [_safe_name(part) for part in path.split("/") if part not in ("", ".", "..")]
    return "/".join(parts) or "image"


def _safe_name(name: str) -> str:
    clean = _UNSAFE.sub("_", unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode("utf-8")))
    clean = clean.rstrip(". ") or "_"
    stem, extension = os.path.splitext(clean)
    while len((stem + extension).encode()) > LONGEST_NAME:
        stem = stem[:-1]
    return stem + extension


def free_path(path: str, taken: Container[str]) -> str:
    """Return `path`, or one with a number before its extension when another image is written there."""
    if path.casefold() not in taken:
        return path
    pure, number = PurePosixPath(path), 2
    while (other := str(pure.with_name(f"{pure.stem}-{number}{pure.suffix}"))).casefold() in taken:
        number += 1
    return other
