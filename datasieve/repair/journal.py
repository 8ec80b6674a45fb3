"""The journal of a folder that fixes write into: which files there are ours, and what they were made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from datasieve.pipeline.worker import content_hash
from datasieve.sources.walk import FIX_JOURNAL
from datasieve.storage import TEMPORARY_PREFIX, cannot_write, to_json, write_text

JOURNAL = FIX_JOURNAL
"""What was written so far, one line a file; the mark by which a folder is known to be ours."""


class Journal:
    """The files that fixes have written into a folder.

    A file is noted before it is written, so that after a crash none of ours is taken for a stranger's.

    Attributes:
        entries: relative path -> what it was made from and of.
        hashes: relative path of every file, captions and masks included -> the contents it may have from us.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / JOURNAL
        self.entries: dict[str, dict[str, Any]] = {}
        self.hashes: dict[str, set[str]] = {}
        self._whole = True
        if self.path.is_file():
            text = self.path.read_text(encoding="utf-8", errors="replace")
            self._whole = not text or text.endswith("\n")
            for line in text.splitlines():
                try:
                    self._take(json.loads(line))
                except (ValueError, TypeError, KeyError, AttributeError):
                    continue  # the line that a crash cut off; its file is made again

    def _take(self, entry: dict[str, Any]) -> None:
        self.entries[entry["result"]] = entry
        for path, digest in ((entry["result"], entry["result_hash"]), *entry["with"].items()):
            self.hashes.setdefault(path, set()).add(digest)

    def add(self, entry: dict[str, Any]) -> None:
        """Note one file, at once. Raises OutputError."""
        self._take(entry)
        line = to_json(entry, indent=None) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as handle:
                handle.write(line if self._whole else "\n" + line)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        self._whole = True

    def rewrite(self) -> None:
        """Write the entries anew, without the lines they replace."""
        write_text(self.path, "".join(to_json(e, indent=None) + "\n" for e in self.entries.values()))


def hash_of(file: Path) -> str | None:
    """Return the hash of a file's bytes, None when there is no such file."""
    return content_hash(file.read_bytes()) if file.is_file() else None


def remove_leftovers(folder: Path) -> None:
    """Remove the unfinished files that a killed run left behind."""
    for file in folder.rglob(f"{TEMPORARY_PREFIX}*") if folder.is_dir() else ():
        if file.is_file() and not file.is_symlink():
            file.unlink(missing_ok=True)
