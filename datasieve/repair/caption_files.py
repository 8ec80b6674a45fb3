"""Repaired captions as files: the same files under the same names in another folder, nothing else in them changed.

Sidecars keep extension and line ends and become UTF-8 without a byte-order mark; `a.jpg.txt`, which no trainer reads,
becomes `a.txt` when there is none. In metadata.jsonl only the caption cells of rows that need it change, in
metadata.csv too (its quoting may be written anew). Every file appears whole or not at all, originals are only read, and
a run that was stopped is simply run again.

Not done: captions inside .tar shards and Parquet, and captions named by a dataset TOML or a list.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasieve.captions.granularity import FAR
from datasieve.config import Settings
from datasieve.errors import InputError, OutputError
from datasieve.pipeline.captions import measure_captions
from datasieve.repair.captions import Edited, Wish, edit
from datasieve.sources.captions import decode
from datasieve.sources.imagefolder import METADATA_NAMES
from datasieve.sources.ingest import Ledger
from datasieve.sources.names import CAPTION_EXTENSIONS, join, nfc, split
from datasieve.sources.rows import CAPTION_COLUMNS
from datasieve.sources.walk import Folder, walk
from datasieve.storage import atomic_path, confined, readable

SLACK = 0.3
"""Levelled captions may stay so much above the usual, so that the usual stays what it was."""


@dataclass(frozen=True, slots=True)
class Change:
    """One caption's repair.

    Attributes:
        path: the image, or for a row the metadata file and line.
        before, after: the caption.
        done: what was done.
        dropped: what a lossy edit left out.
    """

    path: str
    before: str
    after: str
    done: tuple[str, ...]
    dropped: str


@dataclass
class CaptionRepair:
    """What repairing a dataset's captions does.

    Attributes:
        files: path below the dataset -> its new content.
        changes: the captions that change.
        skipped: caption files that could not be repaired, and why.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def plan_captions(path: str | Path, wish: Wish, settings: Settings | None = None, extension: str = "") -> CaptionRepair:
    """Return what repairing the captions of the folder at `path` would write. Reads only.

    Args:
        path: the dataset's folder.
        wish: what shall be done besides the safe edits.
        settings: how concepts are told apart, for levelling.
        extension: extension that all sidecars get, ".txt" or ".caption"; "" keeps their own.

    Raises InputError when `path` is no folder, or holds no image.
    """
    root = Path(path)
    if not root.is_dir():
        raise InputError(
            f"{readable(str(path))} is not a folder", remedy="Captions are repaired in folders; give the dataset's."
        )
    usual = _usual_sizes(root, settings or Settings()) if wish.lossy else {}
    repair = CaptionRepair()
    for folder in walk(str(root), Ledger()):
        for name in folder.tables:
            if name in METADATA_NAMES:
                _plan_table(folder, name, wish, usual, repair)
        _plan_sidecars(folder, wish, usual, repair, extension)
    return repair


def write_captions(repair: CaptionRepair, source: Path, out: Path) -> int:
    """Write the caption files of `repair` below `out` and return how many; files that are there already are replaced.

    Raises OutputError when `out` is the dataset, lies in it, or cannot be written.
    """
    if out.resolve().is_relative_to(source.resolve()):
        raise OutputError(f"{out} lies in the dataset", remedy="Choose a folder elsewhere with --out.")
    for relative, content in repair.files.items():
        with atomic_path(confined(out, relative)) as place:
            place.write_bytes(content)
    return len(repair.files)


def _usual_sizes(root: Path, settings: Settings) -> dict[str, float]:
    """Return image path -> the size that its concept's captions usually have, for images that say far more."""
    table = measure_captions(root, settings).images
    found = {}
    columns = ("path", "captions.granularity-outlier", "captions.size", "captions.usual-size")
    for path, far, own, usual in zip(*(table[c].to_pylist() for c in columns), strict=True):
        if far is not None and far > FAR and own is not None and own > usual:
            found[path] = usual + SLACK
    return found


def _plan_sidecars(folder: Folder, wish: Wish, usual: dict[str, float], repair: CaptionRepair, extension: str) -> None:
    images = {nfc(split(name)[0]): name for name in folder.images}
    whole = {nfc(name): name for name in folder.images}
    names = {nfc(split(name)[0]) for name in folder.captions}
    # The preferred extension first: it is the one that is read where an image has both.
    for name in sorted(folder.captions, key=lambda name: (split(name)[1] != CAPTION_EXTENSIONS[0], name)):
        stem = nfc(split(name)[0])
        target, image = name, images.get(stem)
        if image is None and stem in whole and nfc(split(whole[stem])[0]) not in names:
            image = whole[stem]
            target = split(image)[0] + split(name)[1]
        if image is None or split(name)[1] not in CAPTION_EXTENSIONS:
            continue
        if extension:
            target = split(target)[0] + extension
        path = join(folder.path, image)
        if join(folder.path, target) in repair.files:
            repair.skipped[join(folder.path, name)] = f"{target} takes its place"
            continue
        try:
            raw = Path(folder.location, name).read_bytes()
        except OSError as error:
            repair.skipped[join(folder.path, name)] = error.strerror or str(error)
            continue
        text, problem = decode(raw)
        ends = "\r\n" if "\r\n" in text else "\n"
        body = text.replace("\r\n", "\n").replace("\r", "\n")
        tail = ends if body.endswith("\n") and body.strip() else ""
        edited = edit(body[:-1] if body.endswith("\n") else body, wish, usual.get(path))
        _note(repair, path, body, edited, problem)
        repair.files[join(folder.path, target)] = (edited.text.replace("\n", ends) + tail).encode("utf-8", "replace")


def _note(repair: CaptionRepair, path: str, before: str, edited: Edited, problem: str = "") -> None:
    done = (*(("encoding",) if problem and "encoding" not in edited.done else ()), *edited.done)
    if done:
        repair.changes.append(Change(path, before.rstrip("\n"), edited.text, done, edited.dropped))


def _plan_table(folder: Folder, name: str, wish: Wish, usual: dict[str, float], repair: CaptionRepair) -> None:
    path = join(folder.path, name)
    if name.endswith(".parquet"):
        repair.skipped[path] = "captions in Parquet are not repaired"
        return
    text, _ = decode(Path(folder.location, name).read_bytes())

    def caption(cells: dict[str, Any], line: int) -> Iterator[tuple[str, Any]]:
        """Yield (column, new value) for the captions of a row that change."""
        column = next((c for c in CAPTION_COLUMNS if isinstance(cells.get(c), str | list)), None)
        if column is None:
            return
        size = usual.get(join(folder.path, os.path.normpath(str(cells.get("file_name", "")))))
        old = cells[column]
        texts = old if isinstance(old, list) else [old]
        new = []
        for one in texts:
            edited = edit(one.replace("\r\n", "\n"), wish, size) if isinstance(one, str) else None
            if edited is not None:
                _note(repair, f"{path}:{line}", one, edited)
            new.append(edited.text if edited is not None and edited.done else one)
        if new != texts:
            yield column, new if isinstance(old, list) else new[0]

    change = _json_lines if name.endswith(".jsonl") else _csv
    repair.files[path] = change(text, caption).encode("utf-8", "surrogatepass")


Rewrite = Callable[[dict[str, Any], int], Iterator[tuple[str, Any]]]


def _json_lines(text: str, caption: Rewrite) -> str:
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        try:
            cells = json.loads(line)
        except (ValueError, RecursionError):
            continue  # a line that cannot be read is kept as it is
        if isinstance(cells, dict) and (new := dict(caption(cells, number))):
            end = "\r" if line.endswith("\r") else ""
            lines[number - 1] = json.dumps({**cells, **new}, ensure_ascii=False) + end
    return "\n".join(lines)


def _csv(text: str, caption: Rewrite) -> str:
    csv.field_size_limit(2**31 - 1)
    rows = list(csv.reader(io.StringIO(text, newline="")))
    header = [cell.strip() for cell in rows[0]] if rows else []
    changed = False
    for number, row in enumerate(rows[1:], 2):
        for column, value in caption(dict(zip(header, row, strict=False)), number):
            row[header.index(column)] = value
            changed = True
    if not changed:
        return text
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\r\n" if "\r\n" in text else "\n").writerows(rows)
    return out.getvalue()
