"""Hugging Face's imagefolder: metadata.jsonl, metadata.csv or metadata.parquet beside the images.

A row's `file_name` (also `file_names`, `*_file_name`, `*_file_names`) is a relative path below the metadata file;
for every image the nearest metadata file at or above it counts. Rows without image and images without row are noted;
such images are audited all the same, with a sidecar caption if they have one. The captions of one metadata file are
held in memory while its folder is listed.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from datasieve.config import ConceptBy
from datasieve.errors import InputError
from datasieve.records import ImageRecord
from datasieve.sources import concepts, rows
from datasieve.sources.captions import HUGE, captioned
from datasieve.sources.ingest import EXAMPLES, Ledger, record
from datasieve.sources.names import check_names, join, nfc, split
from datasieve.sources.walk import Folder
from datasieve.storage import readable

METADATA_NAMES = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
"""In the order of preference when a folder has several."""


@dataclass
class _Entry:
    """What metadata says about one image.

    Attributes:
        line: line in the metadata file.
        written: the path as written.
        captions: every caption.
        concept: None when the row names none.
        used: an image took it.
    """

    line: int
    written: str
    captions: tuple[str, ...]
    concept: str | None
    used: bool = False


@dataclass
class _Metadata:
    """One metadata file: `entries` by composed path below `folder`."""

    folder: str
    path: str
    entries: dict[str, _Entry] = field(default_factory=dict)


def find_metadata(folders: Iterable[Folder], ledger: Ledger | None = None) -> dict[str, str]:
    """Return folder path -> name of the metadata file that counts there; with `ledger`, note those passed by."""
    found: dict[str, str] = {}
    for folder in folders:
        for name in METADATA_NAMES:
            if name not in folder.tables:
                continue
            path = join(folder.path, name)
            if folder.path in found:
                if ledger is not None:
                    other = found[folder.path]
                    ledger.note("metadata-unused", path, f"{readable(path)} is not used: {other} beside it goes first")
                continue
            first = rows.first_rows(os.path.join(folder.location, name), path)
            columns = list(dict.fromkeys(column for row in first for column in row.cells))
            if _file_columns(columns) or not columns:
                found[folder.path] = name
            elif ledger is not None:
                ledger.note(
                    "metadata-unused",
                    path,
                    f"{readable(path)} is not used: it has no column file_name "
                    f"(columns: {', '.join(map(repr, columns[:8]))})",
                )
    return found


def _file_columns(columns: Iterable[str]) -> list[str]:
    named = [c for c in columns if c in ("file_name", "file_names")]
    return named or [c for c in columns if c.endswith(("_file_name", "_file_names"))]


def list_records(
    folders: Sequence[Folder], ledger: Ledger, concept_by: ConceptBy, metadata: Mapping[str, str]
) -> Iterator[ImageRecord]:
    """Yield the records of `folders`; `metadata` is what `find_metadata` returned, empty for a plain folder."""
    concept = concepts.by_folders(f.path for f in folders if f.images)
    present = {nfc(join(f.path, n)) for f in folders for n in f.images} if metadata else set()
    opened: dict[str, _Metadata] = {}
    for folder in folders:
        for finished in [p for p in opened if not _below(folder.path, p)]:
            _note_unmatched(opened.pop(finished), present, ledger)
        if folder.path in metadata:
            opened[folder.path] = _read(folder, metadata[folder.path], ledger)
        nearest = max((p for p in opened if _below(folder.path, p)), key=len, default=None)
        table = opened[nearest] if nearest is not None else None
        check_names(folder.path, folder.images, ledger)
        for name, sidecar in captioned(folder, ledger):
            path = join(folder.path, name)
            entry = _look_up(table, path, ledger) if table is not None else None
            captions = _one_source(entry, sidecar, path, table, ledger)
            automatic = concept(folder.path) if entry is None or entry.concept is None else entry.concept
            yield record(
                path,
                os.path.join(folder.location, name),
                concept=concepts.choose(concept_by, folder=folder.path, captions=captions, automatic=automatic),
                captions=captions,
                group=folder.path,
            )
        _note_unused_tables(folder, folders, ledger)
        for name in (*folder.archives, *folder.shards):
            path = join(folder.path, name)
            ledger.note("archive", path, f"{readable(path)} was not opened: there are loose images in this dataset")
        ledger.pass_over("archive", len(folder.shards))
    for table in opened.values():
        _note_unmatched(table, present, ledger)


def _below(path: str, above: str) -> bool:
    return above in ("", path) or path.startswith(above + "/")


def _one_source(
    entry: _Entry | None, sidecar: tuple[str, ...], path: str, table: _Metadata | None, ledger: Ledger
) -> tuple[str, ...]:
    if entry is None or table is None:
        return sidecar
    if sidecar and entry.captions and sidecar[0] not in entry.captions:
        ledger.note(
            "caption-conflict",
            path,
            f"{readable(path)} has a caption in {readable(table.path)} and another in a file beside it; "
            "the metadata is used",
        )
    return entry.captions or sidecar


def _read(folder: Folder, name: str, ledger: Ledger) -> _Metadata:
    table = _Metadata(folder.path, join(folder.path, name))
    refused: dict[str, int] = {}
    nameless = rows.BadLines(table.path, ledger)
    try:
        for row in rows.read_rows(os.path.join(folder.location, name), table.path, ledger):
            files = [f for column in _file_columns(row.cells) for f in _as_list(row.cells[column])]
            if not files:
                nameless.add(row.line, "no file_name")
            for written in files:
                if written.startswith("/") or "://" in written or ".." in written.split("/"):
                    refused[written] = row.line
                else:
                    _add(table, row, written, ledger)
    except InputError as error:
        ledger.note("metadata-malformed", table.path, error.message)
    nameless.close()
    for written, line in list(refused.items())[:EXAMPLES]:
        ledger.note(
            "metadata-mismatch",
            table.path,
            f"{readable(table.path)}:{line} names {readable(written)!r}: "
            "only relative paths below the metadata file are allowed",
        )
    return table


def _as_list(value: object) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [v for v in values if isinstance(v, str) and v.strip()]


def _add(table: _Metadata, row: rows.Row, written: str, ledger: Ledger) -> None:
    key = nfc(posixpath.normpath(written))
    entry = _Entry(row.line, written, rows.captions_in(row.cells), rows.concept_in(row.cells))
    path = join(table.folder, posixpath.normpath(written))
    where = f"{readable(table.path)}:{row.line}"
    if any(len(caption) > HUGE for caption in entry.captions):
        ledger.note("caption-huge", path, f"the caption in {where} has {max(map(len, entry.captions)):,} characters")
    first = table.entries.setdefault(key, entry)
    if first is entry:
        return
    lines = f"lines {first.line} and {row.line}"
    if first.captions == entry.captions:
        ledger.note("metadata-mismatch", table.path, f"{where} names {readable(written)!r} again ({lines})")
    else:
        ledger.note(
            "caption-conflict",
            path,
            f"{readable(path)} has two captions in {readable(table.path)} ({lines}); the first is used",
        )


def _look_up(table: _Metadata, path: str, ledger: Ledger) -> _Entry | None:
    relative = path[len(table.folder) + 1 :] if table.folder else path
    entry = table.entries.get(nfc(relative))
    if entry is None:
        ledger.note("metadata-orphan", path, f"{readable(path)} has no row in {readable(table.path)}")
        return None
    entry.used = True
    if posixpath.normpath(entry.written) != relative:
        ledger.forms.append((path, entry.written))
    return entry


def _note_unmatched(table: _Metadata, present: set[str], ledger: Ledger) -> None:
    """Note rows that no image took: those with one cause together, the others by name and line."""
    left = [(key, entry) for key, entry in table.entries.items() if not entry.used]
    causes: dict[str, list[_Entry]] = {}
    plain: list[_Entry] = []
    by_name = {posixpath.basename(path): path for path in sorted(present, reverse=True)} if left else {}
    for key, entry in left:
        cause = _cause(key, table, present, by_name)
        (causes.setdefault(cause, []) if cause else plain).append(entry)
    for cause, entries in causes.items():
        number = f"{len(entries)} of {len(table.entries)} rows"
        example = f"line {entries[0].line}: {readable(entries[0].written)!r}"
        ledger.note(
            "metadata-mismatch", table.path, f"{number} of {readable(table.path)} match no image ({example}): {cause}"
        )
    for entry in plain[:EXAMPLES]:
        where = f"{readable(table.path)}:{entry.line}"
        ledger.note("metadata-mismatch", table.path, f"{where} names {readable(entry.written)!r}, which is not there")
    if len(plain) > EXAMPLES:
        more = f"{len(plain) - EXAMPLES} more rows of {readable(table.path)} name images that are not there"
        ledger.note("metadata-mismatch", table.path, more)


def _cause(key: str, table: _Metadata, present: set[str], by_name: Mapping[str, str]) -> str:
    """Return why the row `key` has no image, as far as one can tell; "" when the image is simply not there."""
    if join(table.folder, key) in present:
        return "a metadata file nearer to these images counts for them; move the rows there"
    forward = key.replace("\\", "/")
    if forward != key and join(table.folder, forward) in present:
        return "file_name must have / between folders, not \\"
    parts = forward.split("/")
    for start in range(1, len(parts)):
        if join(table.folder, "/".join(parts[start:])) in present:
            extra = "/".join(parts[:start])
            return (
                f"file_name has {readable(extra + '/')!r} in front, "
                "but counts from the folder of the metadata file; take it away"
            )
    if (elsewhere := by_name.get(parts[-1])) is not None:
        folder = posixpath.dirname(elsewhere)
        inside = posixpath.relpath(folder or ".", table.folder or ".")
        if not inside.startswith(".."):
            return f"the images lie in {readable(folder) or '.'}; put {readable(inside + '/')!r} in front of file_name"
    return ""


def _note_unused_tables(folder: Folder, folders: Sequence[Folder], ledger: Ledger) -> None:
    """Note tables that describe the images below them, but under a name or in a form that nobody reads."""
    unknown = [n for n in folder.tables if n not in METADATA_NAMES]
    if tables := [n for n in unknown if rows.is_table(n)][:EXAMPLES]:
        below = [name for other in folders if _below(other.path, folder.path) for name in other.images]
        images = {nfc(n) for n in below} | {nfc(split(n)[0]) for n in below}
        for name in tables:
            path = join(folder.path, name)
            if (column := _image_column(os.path.join(folder.location, name), path, images)) is not None:
                ledger.note(
                    "metadata-unused",
                    path,
                    f"{readable(path)} describes these images (column {column!r}) but is not used: "
                    "only metadata.jsonl, .csv or .parquet with a column file_name is. "
                    f"Rename it, or audit it as a list: datasieve audit {readable(path)}",
                )
    ledger.pass_over("not an image", len(unknown))
    ledger.pass_over("metadata", len(folder.tables) - len(unknown))


def _image_column(file: str, path: str, images: set[str]) -> str | None:
    for row in rows.first_rows(file, path):
        for column, value in row.cells.items():
            if isinstance(value, str) and nfc(posixpath.basename(value.replace("\\", "/"))) in images:
                return column
    return None
