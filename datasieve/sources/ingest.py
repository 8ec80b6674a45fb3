"""What listing a dataset gives: a stream of records, and an account of everything that is not one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from datasieve.records import ImageRecord, Location, image_id
from datasieve.rules import Note

Layout = Literal["folder", "kohya", "kohya-toml", "imagefolder", "webdataset", "list"]

EXAMPLES = 20
"""At most so many notes of one kind about the lines of one file; the rest is one note with a number."""


@dataclass
class Ledger:
    """The account kept while files are listed.

    Attributes:
        passed_over: reason -> number of files (folders, where a whole folder is not entered).
        notes: faults met, in the order of the listing.
        derived: path of an image that `fix` cut out of another -> path of that one.
        forms: names found only across Unicode forms, as (image path, name as written); noted once at the end.
    """

    passed_over: dict[str, int] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    derived: dict[str, str] = field(default_factory=dict)
    forms: list[tuple[str, str]] = field(default_factory=list)

    def pass_over(self, reason: str, number: int = 1) -> None:
        """Count files that are no images of the dataset."""
        if number:
            self.passed_over[reason] = self.passed_over.get(reason, 0) + number

    def note(self, rule: str, path: str, message: str) -> None:
        """Write down a fault; `rule` is the id without its prefix `layout.`."""
        self.notes.append(Note(rule=f"layout.{rule}", path=path, message=message))

    def close(self) -> None:
        """Note what is said once for the whole dataset."""
        if self.forms:
            path, written = self.forms[0]
            more = f" (and {len(self.forms) - 1} more)" if len(self.forms) > 1 else ""
            self.note(
                "unicode-form",
                path,
                f"{path} is called {written!r} elsewhere: the same letters in another Unicode form{more}; "
                "they were matched here, but most trainers compare the bytes",
            )
            self.forms.clear()


@dataclass
class Ingest:
    """A dataset, opened.

    Attributes:
        root: the folder that the paths of records and notes are relative to.
        layout: how the dataset is laid out.
        records: the images, once; the order does not depend on the operating system.
        total: how many records will come, None when that is not known beforehand.
        passed_over: reason -> number of files; complete when `records` is exhausted.
        notes: findings of the listing itself; complete when `records` is exhausted.
        derived: as in `Ledger`; complete when `records` is exhausted.
    """

    root: Path
    layout: Layout
    records: Iterator[ImageRecord]
    total: int | None
    passed_over: dict[str, int]
    notes: list[Note]
    derived: dict[str, str] = field(default_factory=dict)


def record(
    path: str,
    file: str,
    *,
    concept: str,
    captions: tuple[str, ...],
    group: str,
    repeats: int = 1,
    offset: int = 0,
    size: int | None = None,
) -> ImageRecord:
    """Return the record of the image at `path` (relative POSIX), whose bytes are in `file`."""
    return ImageRecord(
        image_id=image_id(path),
        path=path,
        location=Location(file=file, offset=offset, size=size),
        concept=concept,
        captions=captions,
        repeats=repeats,
        group=group,
    )
