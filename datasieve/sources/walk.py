"""Walking a tree of folders: in a fixed order, through links, past what is no image, never round in circles."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from datasieve.sources.ingest import Ledger
from datasieve.sources.names import (
    CAPTION_EXTENSIONS,
    IMAGE_EXTENSIONS,
    join,
    looks_like_image,
    odd,
    reason_no_image,
    shadow,
    split,
)
from datasieve.storage import readable

PROVENANCE, FIX_JOURNAL = "provenance.parquet", ".datasieve-fix.jsonl"
CURATION, CURATION_MARK = "curation.parquet", ".datasieve-curation.json"
"""What `fix` leaves in the copies it writes: passed over when they are audited."""

_MASKS = ("-masklabel", "-condlabel")
_TABLES = frozenset({".json", ".jsonl", ".csv", ".tsv", ".parquet", ".toml"})
_Identity = tuple[int, int]


@dataclass
class Folder:
    """One folder as listed; every list is sorted by code point.

    Attributes:
        path: relative POSIX path, "" for the root.
        location: absolute path.
        images: names of images.
        captions: names of .txt and .caption files.
        tables: names of files that may hold metadata (.json, .jsonl, .csv, .tsv, .parquet, .toml).
        shards: names of .tar files.
        archives: names of archives that are not opened.
    """

    path: str
    location: str
    images: list[str] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    shards: list[str] = field(default_factory=list)
    archives: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Step:
    path: str
    location: str
    above: tuple[_Identity, ...]
    linked: bool


def walk(root: str, ledger: Ledger, *, path: str = "", skip: frozenset[str] = frozenset()) -> Iterator[Folder]:
    """Yield every folder at and below `root`, parents first, brothers sorted by code point.

    Links to folders are followed. A link back to a folder that contains it, and a folder already listed through
    another link, are noted and not entered. Hidden folders, `__MACOSX`, `__pycache__` and report folders of
    datasieve are passed over.

    Args:
        root: absolute path.
        ledger: takes counts and notes.
        path: relative POSIX path that `root` has in the dataset.
        skip: absolute paths of folders not to enter.
    """
    steps = [_Step(path, root, (), False)]
    through_links: set[_Identity] = set()
    while steps:
        step = steps.pop()
        try:
            status = os.stat(step.location)
            with os.scandir(step.location) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            ledger.note(
                "unreadable-folder",
                step.path,
                f"the folder {readable(step.path) or '.'} cannot be read: {error.strerror}",
            )
            ledger.pass_over("unreadable folder")
            continue
        identity = (status.st_dev, status.st_ino)
        if step.linked:
            if identity in step.above:
                ledger.note("symlink-loop", step.path, f"{readable(step.path)} links back to a folder that contains it")
                ledger.pass_over("link")
                continue
            if identity in through_links:
                ledger.note(
                    "symlink-loop", step.path, f"{readable(step.path)} links to a folder already listed through a link"
                )
                ledger.pass_over("link")
                continue
            through_links.add(identity)
        if any(entry.name == "run.json" for entry in entries) and is_report(step.location):
            ledger.pass_over("report")
            continue
        folder, below = _sort_entries(step, entries, (*step.above, identity), ledger)
        steps.extend(s for s in reversed(below) if s.location not in skip)
        yield folder


def _sort_entries(
    step: _Step, entries: list[os.DirEntry[str]], above: tuple[_Identity, ...], ledger: Ledger
) -> tuple[Folder, list[_Step]]:
    """Return the folder of `entries` and the folders below it; what is neither is counted."""
    folder = Folder(step.path, step.location)
    below: list[_Step] = []
    for entry in entries:
        name = entry.name
        if _is_dir(entry):
            path = join(step.path, name)
            if name == "__MACOSX":
                ledger.pass_over("archive shadow", _count(entry.path))
            elif (reason := shadow(name)) is not None:
                ledger.pass_over(reason)
            elif name == "__pycache__":
                ledger.pass_over("cache")
            else:
                if what := odd(name):
                    ledger.note("odd-name", path, f"the folder name {readable(name)!r} {what}")
                below.append(_Step(path, entry.path, above, step.linked or entry.is_symlink()))
            continue
        if name == FIX_JOURNAL and _is_file(entry):
            ledger.derived |= _derived(step.path, entry.path)
        if (reason := shadow(name)) is not None:
            ledger.pass_over(reason)
            continue
        _, extension = split(name)
        if not _is_file(entry):
            ledger.pass_over("not a file")
        elif extension in IMAGE_EXTENSIONS:
            folder.images.append(name)
        elif extension in CAPTION_EXTENSIONS:
            folder.captions.append(name)
        elif extension == ".tar":
            folder.shards.append(name)
        elif (name == PROVENANCE and os.path.isfile(os.path.join(step.location, FIX_JOURNAL))) or (
            name == CURATION and os.path.isfile(os.path.join(step.location, CURATION_MARK))
        ):
            ledger.pass_over("datasieve's own")
        elif extension in _TABLES and reason_no_image(name) != "cache":
            folder.tables.append(name)
        elif (reason := reason_no_image(name)) is not None:
            ledger.pass_over(reason)
            if reason == "archive":
                folder.archives.append(name)
        elif looks_like_image(entry.path):
            folder.images.append(name)
        else:
            ledger.pass_over("not an image")
    _drop_masks(folder, ledger)
    return folder, below


def _derived(folder: str, journal: str) -> dict[str, str]:
    """Return path -> path of its source, for the images that a fix cut out of others, as its journal tells."""
    found = {}
    try:
        with open(journal, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if '"derived_from": "' in line:
                    entry = json.loads(line)
                    if isinstance(entry, dict) and entry.get("derived_from"):
                        found[join(folder, str(entry.get("result")))] = join(folder, str(entry["derived_from"]))
    except (OSError, ValueError, RecursionError):
        return found  # what a crash cut off; the fix goes on from there
    return found


def _drop_masks(folder: Folder, ledger: Ledger) -> None:
    """Pass over masks and condition images, which lie beside their image and are not to be learned."""
    masks = {n for n in folder.images if split(n)[0].endswith(_MASKS)}
    if masks:
        stems = {split(n)[0] for n in folder.images if n not in masks}
        masks = {n for n in masks if split(n)[0].rsplit("-", 1)[0] in stems}
        folder.images = [n for n in folder.images if n not in masks]
        ledger.pass_over("mask", len(masks))


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Tell whether opening is harmless: a file, or a link whose target is gone. Never a pipe or a device."""
    try:
        return entry.is_file() or (entry.is_symlink() and not os.path.exists(entry.path))
    except OSError:
        return True  # a link to itself: unreadable, to be reported as such


def _count(location: str) -> int:
    return sum(len(files) for _, _, files in os.walk(location))


def is_report(location: str) -> bool:
    """Tell whether the folder holds a datasieve report: a run.json with the key "datasieve"."""
    try:
        with open(os.path.join(location, "run.json"), "rb") as handle:
            run = json.load(handle)
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(run, dict) and "datasieve" in run
