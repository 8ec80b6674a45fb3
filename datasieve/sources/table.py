"""A list of images: a text file with one path a line, or CSV, TSV, JSON lines or Parquet with a column of paths.

The path column is the first of file_name, path, file, filename, image, image_path, filepath, img; a CSV without such a
column is taken as a text file. Paths count from the list's folder, or are absolute. Captions and concepts come from
their columns if there are such (see rows.py), else captions from sidecar files. In a text file every character is part
of the path, also `#`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from datasieve.config import ConceptBy
from datasieve.errors import InputError
from datasieve.records import ImageRecord
from datasieve.sources import concepts, rows
from datasieve.sources.captions import HUGE, Sidecars, decode
from datasieve.sources.ingest import EXAMPLES, Ledger, record
from datasieve.sources.names import IMAGE_EXTENSIONS, check_names, looks_like_image, split
from datasieve.sources.walk import Folder, walk
from datasieve.storage import readable

PATH_COLUMNS = ("file_name", "path", "file", "filename", "image", "image_path", "filepath", "file_path", "img")
LIST_EXTENSIONS = frozenset({".txt", ".lst", ".list", ".csv", ".tsv", ".jsonl", ".parquet"})


@dataclass(slots=True)
class Listed:
    """One image of a list.

    Attributes:
        line: where it is in the list.
        file: absolute path.
        captions: None when the list has no captions.
        concept: None when the list names none.
    """

    line: int
    file: str
    captions: tuple[str, ...] | None
    concept: str | None


def read_list(file: Path, ledger: Ledger) -> list[Listed]:
    """Return the images that `file` lists and that are there, each once; note the others. Raises InputError."""
    base = str(file.parent)
    found: dict[str, Listed] = {}
    missing = 0
    for line, written, captions, concept in _entries(file, ledger):
        where = f"{readable(file.name)}:{line}"
        location = _locate(base, written)
        if location is None:
            missing += 1
            if missing <= EXAMPLES:
                ledger.note("metadata-mismatch", file.name, f"{where} names {readable(written)!r}, which is not there")
        elif location in found:
            first = found[location]
            if first.captions == captions:
                ledger.note(
                    "metadata-mismatch",
                    file.name,
                    f"{where} names {readable(written)!r} again (first in line {first.line})",
                )
            else:
                ledger.note(
                    "caption-conflict",
                    os.path.relpath(location, base).replace(os.sep, "/"),
                    f"{where} gives {readable(written)!r} another caption than line {first.line}; the first is used",
                )
        elif split(location)[1] not in IMAGE_EXTENSIONS and not looks_like_image(location):
            ledger.pass_over("not an image")
        else:
            found[location] = Listed(line, location, captions, concept)
    if missing > EXAMPLES:
        more = f"{missing - EXAMPLES} more lines of {readable(file.name)} name files that are not there"
        ledger.note("metadata-mismatch", file.name, more)
    return list(found.values())


def _locate(base: str, written: str) -> str | None:
    for path in (written, written.strip(), written.replace("\\", "/")):
        location = os.path.normpath(os.path.join(base, path))
        if (
            path
            and "\0" not in path
            and (os.path.isfile(location) or (os.path.islink(location) and not os.path.exists(location)))
        ):
            return location
    return None


def _entries(file: Path, ledger: Ledger) -> Iterator[tuple[int, str, tuple[str, ...] | None, str | None]]:
    if rows.is_table(file.name):
        first = rows.first_rows(str(file), file.name)
        columns = {column: None for row in first for column in row.cells}
        column = next((c for c in PATH_COLUMNS if c in columns), None)
        if column is None and split(file.name)[1] not in (".csv", ".tsv"):
            raise InputError(
                f"{file} has no column of paths (columns: {', '.join(columns) or 'none'})",
                remedy=f"Call the column one of: {', '.join(PATH_COLUMNS)}.",
            )
        if column is not None:
            has_captions = any(c in columns for c in rows.CAPTION_COLUMNS)
            for row in rows.read_rows(str(file), file.name, ledger):
                written = row.cells.get(column)
                if isinstance(written, str) and written:
                    captions = rows.captions_in(row.cells) if has_captions else None
                    yield row.line, written, captions, rows.concept_in(row.cells)
                else:
                    message = f"{readable(file.name)}:{row.line}: no {column}; this line was left out"
                    ledger.note("metadata-malformed", file.name, message)
            return
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}", remedy="Check the file's permissions.") from error
    text, problem = decode(raw)
    if problem and not problem.startswith("begins with"):
        # The names on disk are bytes; taking these as they are finds the files whatever the encoding.
        text = text if b"\0" in raw else raw.decode("utf-8", "surrogateescape")
        ledger.note("caption-encoding", file.name, f"{readable(file.name)} {problem}")
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line.rstrip("\r"), None, None


def root_of(file: Path, listed: list[Listed]) -> str:
    """Return the folder that paths are relative to: the list's, or the nearest that holds all images as well."""
    folders = {os.path.dirname(entry.file) for entry in listed}
    try:
        return os.path.commonpath([str(file.parent), *sorted(folders)])
    except ValueError:  # several drives
        return str(file.parent)


def list_records(listed: list[Listed], root: str, ledger: Ledger, concept_by: ConceptBy) -> Iterator[ImageRecord]:
    """Yield the records in the list's order; afterwards count images beside them that the list leaves out."""
    located: dict[str, str] = {}
    names: dict[str, list[str]] = {}
    for entry in listed:
        folder, name = os.path.split(entry.file)
        names.setdefault(folder, []).append(name)
        if folder not in located:
            path = (
                os.path.relpath(folder, root)
                if os.path.splitdrive(folder)[0] == os.path.splitdrive(root)[0]
                else folder[3:]
            )
            located[folder] = "" if path == "." else path.replace(os.sep, "/")
    concept = concepts.by_folders(located.values())
    sidecars: dict[str, Sidecars] = {}
    for folder, images in names.items():
        check_names(located[folder], sorted(images), ledger)
    for entry in listed:
        folder, name = os.path.split(entry.file)
        group = located[folder]
        path = f"{group}/{name}" if group else name
        if folder not in sidecars:
            there = next(walk(folder, Ledger(), path=group), Folder(group, folder))
            ledger.pass_over("not listed by metadata", len(set(there.images) - set(names[folder])))
            sidecars[folder] = Sidecars(there, ledger)
        captions = entry.captions if entry.captions is not None else sidecars[folder].captions(name)
        if entry.captions and max(map(len, entry.captions)) > HUGE:
            ledger.note(
                "caption-huge",
                path,
                f"the caption of {readable(path)} has {max(map(len, entry.captions)):,} characters",
            )
        automatic = entry.concept if entry.concept is not None else concept(group)
        yield record(
            path,
            entry.file,
            concept=concepts.choose(concept_by, folder=group, captions=captions, automatic=automatic),
            captions=captions,
            group=group,
        )
