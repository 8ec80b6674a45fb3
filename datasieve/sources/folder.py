"""A plain folder, with folders in it: images with their sidecar captions.

Concepts follow the folders (see concepts.py); the order is that of walk.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from datasieve.config import ConceptBy
from datasieve.records import ImageRecord
from datasieve.sources import imagefolder
from datasieve.sources.ingest import Ledger
from datasieve.sources.walk import Folder


def list_records(folders: Sequence[Folder], ledger: Ledger, concept_by: ConceptBy) -> Iterator[ImageRecord]:
    """Yield the records of `folders`: an imagefolder in which no metadata file is used."""
    return imagefolder.list_records(folders, ledger, concept_by, {})
