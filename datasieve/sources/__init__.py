"""Datasets in every common layout become one stream of `ImageRecord`.

`open_source` looks at what it is given: a folder (plain, kohya's `N_concept`, imagefolder, WebDataset shards), one
shard, a kohya dataset TOML, or a list of paths. Nothing is ever written to the dataset.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from datasieve.config import ConceptBy
from datasieve.errors import InputError
from datasieve.records import ImageRecord
from datasieve.sources import folder, imagefolder, kohya, table, webdataset
from datasieve.sources.ingest import Ingest, Layout, Ledger
from datasieve.sources.names import IMAGE_EXTENSIONS, join, split
from datasieve.sources.walk import Folder, is_report, walk
from datasieve.storage import readable

__all__ = ["Ingest", "open_source"]

_REMEDY = "Give a folder with images, WebDataset .tar shards, a kohya dataset TOML, or a list of paths."


def open_source(path: Path, *, concept_by: ConceptBy = "auto") -> Ingest:
    """Open the dataset at `path`.

    In a folder, metadata.jsonl/.csv/.parquet with a column of file names makes it an imagefolder; else folders called
    `N_concept` right below it, with images, make it kohya's; .tar files and no loose image make it WebDataset.

    Args:
        path: a folder, a .tar shard, a .toml, or a list (.txt, .csv, .tsv, .jsonl, .parquet).
        concept_by: how images are told apart into concepts; see concepts.py.

    Raises InputError when `path` is not there, cannot be read, or has nothing usable in it.
    """
    location = Path(os.path.abspath(path))
    if not os.path.lexists(location):
        raise InputError(
            f"{readable(str(path))} does not exist", remedy="Check the spelling and the folder you are in."
        )
    if location.is_dir():
        return _open_folder(location, concept_by)
    extension = split(location.name)[1]
    ledger = Ledger()
    if extension == ".tar":
        root, shards = location.parent, [(location.name, str(location))]
        records = webdataset.list_records(shards, ledger, concept_by)
        return _ingest(root, "webdataset", records, None, ledger, location)
    if extension == ".toml":
        return _open_toml(location, concept_by)
    if extension in table.LIST_EXTENSIONS:
        listed = table.read_list(location, ledger)
        root = Path(table.root_of(location, listed))
        return _ingest(
            root, "list", table.list_records(listed, str(root), ledger, concept_by), len(listed), ledger, location
        )
    if extension in IMAGE_EXTENSIONS:
        raise InputError(f"{readable(str(path))} is a single image", remedy="Give the folder it lies in.")
    raise InputError(f"{readable(str(path))} is not a dataset in a known layout", remedy=_REMEDY)


def _open_folder(location: Path, concept_by: ConceptBy) -> Ingest:
    if is_report(str(location)):
        raise InputError(
            f"{readable(str(location))} is a report of datasieve, not a dataset", remedy="Give the dataset's folder."
        )
    try:
        os.scandir(location).close()
    except OSError as error:
        raise InputError(
            f"cannot read the folder {readable(str(location))}: {error.strerror}",
            remedy="Check the folder's permissions.",
        ) from error
    ledger = Ledger()
    folders = list(walk(str(location), ledger))
    total = sum(len(f.images) for f in folders)
    if not total and any(f.shards for f in folders):
        return _open_shards(location, folders, concept_by, ledger)
    kohya.note_toml(folders, ledger)
    layout: Layout
    if metadata := imagefolder.find_metadata(folders, ledger):
        layout, records = "imagefolder", imagefolder.list_records(folders, ledger, concept_by, metadata)
    elif kohya.is_repeats_tree(folders):
        layout, records = "kohya", kohya.list_folders(folders, ledger, concept_by)
    else:
        layout, records = "folder", folder.list_records(folders, ledger, concept_by)
    return _ingest(location, layout, records, total, ledger, location)


def _open_shards(location: Path, folders: Sequence[Folder], concept_by: ConceptBy, ledger: Ledger) -> Ingest:
    shards = [(join(f.path, name), os.path.join(f.location, name)) for f in folders for name in f.shards]
    ledger.pass_over("not an image", sum(len(f.captions) + len(f.tables) for f in folders))
    return _ingest(location, "webdataset", webdataset.list_records(shards, ledger, concept_by), None, ledger, location)


def _open_toml(location: Path, concept_by: ConceptBy) -> Ingest:
    ledger = Ledger()
    subsets = kohya.read_toml(location, ledger)
    if not subsets:
        raise InputError(
            f"no image_dir of {readable(str(location))} is there",
            remedy="Correct image_dir; it counts from the TOML's folder.",
        )
    root = Path(os.path.commonpath([str(location.parent), *(subset.location for subset in subsets)]))
    walked, records = kohya.list_toml(subsets, str(root), ledger, concept_by)
    total = sum(len(f.images) for _, folders in walked for f in folders)
    return _ingest(root, "kohya-toml", records, total, ledger, location)


def _ingest(
    root: Path, layout: Layout, records: Iterator[ImageRecord], total: int | None, ledger: Ledger, given: Path
) -> Ingest:
    """Look at the first record, so that an empty dataset is refused at once."""
    first = next(records, None)
    if first is None:
        reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(ledger.passed_over.items()))
        faults = f"; {ledger.notes[0].message}" if ledger.notes else ""
        raise InputError(
            f"no images in {readable(str(given))}" + (f" (passed over: {reasons})" if reasons else "") + faults,
            remedy=_REMEDY,
        )

    def stream() -> Iterator[ImageRecord]:
        yield from itertools.chain((first,), records)
        ledger.close()

    return Ingest(root, layout, stream(), total, ledger.passed_over, ledger.notes, ledger.derived)
