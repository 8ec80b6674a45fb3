"""Undoing a fix: originals that were replaced in place come back, and of a copy goes what is ours.

What somebody changed since is left where it is and named. Of a copy nothing goes whose source is not there any more:
it may be the last of its kind.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasieve.errors import InputError
from datasieve.repair.in_place import read_swap, restore
from datasieve.repair.journal import JOURNAL, Journal, hash_of, remove_leftovers
from datasieve.sources.walk import PROVENANCE
from datasieve.storage import confined


@dataclass
class Undone:
    """What an undo did; paths are relative.

    Attributes:
        folder: the dataset that was restored, or the copy that was taken back.
        in_place: whether originals were restored.
        restored, removed: files brought back, files taken away.
        left: files that stay, and why.
    """

    folder: Path
    in_place: bool
    restored: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)


def undo(folder: str | Path) -> Undone:
    """Undo the fix that wrote `folder`: the backup of a fix in place, or a clean copy. Twice is the same as once.

    Raises:
        InputError: the folder is neither.
        OutputError: a file cannot be written, or the backup is damaged.
    """
    place = Path(folder)
    swap = read_swap(place)
    if swap is not None:
        restored, removed, left = restore(place, swap)
        changed = dict.fromkeys(left, f"was changed since; the original is in {place}")
        return Undone(Path(swap.dataset), True, restored, removed, changed)
    if not (place / JOURNAL).is_file():
        raise InputError(
            f"{place} is not what a fix wrote",
            remedy="Name the clean copy, or the folder that was given with --backup.",
        )
    done = Undone(place, False)
    for root in (place, place.parent / f"{place.name}-set-aside"):
        if (root / JOURNAL).is_file():
            _take_back(root, done)
    return done


def _take_back(root: Path, done: Undone) -> None:
    journal = Journal(root)
    for name, entry in list(journal.entries.items()):
        reason = _keep(entry)
        ours = {name: entry["result_hash"], **entry["with"]}
        for path, digest in ours.items():
            file = confined(root, path)
            there = hash_of(file)
            if there is None:
                continue
            why = reason or ("" if there == digest else "was changed since")
            if why:
                done.left[path] = why
                continue
            file.unlink()
            done.removed.append(path)
        if not any((root / path).exists() for path in ours):
            del journal.entries[name]
    remove_leftovers(root)
    if journal.entries:
        journal.rewrite()
        return
    (root / PROVENANCE).unlink(missing_ok=True)
    (root / JOURNAL).unlink()
    for below in sorted((p for p in root.rglob("*") if p.is_dir()), reverse=True):
        if not any(below.iterdir()):
            below.rmdir()
    if not any(root.iterdir()):
        root.rmdir()


def _keep(entry: dict[str, Any]) -> str:
    """Return why the files of an entry must stay although they are ours; "" when they need not."""
    source = Path(str(entry.get("from", "")))
    if "::" in str(entry["path"]):
        return "" if source.is_file() else "its source is gone"
    return "" if hash_of(source) == entry["source_hash"] else "its source is gone or has changed"
