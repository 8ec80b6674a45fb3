"""The pictures of the page: which are wanted, where they are, and their thumbnails.

Thumbnails are called by the content of the file they show, so a page that is written anew makes only those it lacks.
They are decoded in worker processes, as in the audit: a file that kills its decoder costs one thumbnail.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from datasieve.batch import DecodeRequest
from datasieve.errors import OutputError
from datasieve.pipeline.executors.local import DecodePool, usable_cores
from datasieve.pipeline.worker import Job
from datasieve.records import ImageRecord, Location
from datasieve.report import Report
from datasieve.reporting.text import safe

THUMBNAILS = "thumbnails"
SIDE, LARGE = 256, 512
"""Longer sides in px: of thumbnails, and of pictures that are compared with one another."""

_PER_WORKER = 40
"""Thumbnails that are worth the start of another process."""


@dataclass(slots=True)
class Picture:
    """What the page shows of one image.

    Attributes:
        name: its path, fit to be read.
        link: address of the original; "" when it is no file of its own.
        thumbnail: relative address; "" until it is made, or when it cannot be.
        why: why there is no thumbnail.
    """

    name: str
    link: str = ""
    thumbnail: str = ""
    why: str = ""

    def slots(self, prefix: str = "") -> dict[str, str]:
        """Return the fields by the names that the templates and the script know."""
        made = {"name": self.name, "link": self.link, "thumb": self.thumbnail, "why": self.why}
        return {prefix + key: value for key, value in made.items() if value}


class Pictures:
    """The images of a report, asked for one by one and found all at once.

    Args:
        report: the report.
        side: longer side of the thumbnails in px.
    """

    def __init__(self, report: Report, side: int = SIDE) -> None:
        table = report.images(["image_id", "path", "content", "status", "error"])
        self.side = side
        self.folder = report.path / THUMBNAILS
        self.kept: set[str] = set()
        self._row = {image: i for i, image in enumerate(table["image_id"].to_pylist())}
        self._path_row = {path: i for i, path in enumerate(table["path"].to_pylist())}
        self._table = table
        self._wanted: dict[int, Picture] = {}

    def of(self, image_id: str | None, name: str = "") -> Picture:
        """Return the picture of an image, to be filled by `find`; `name` is shown for what is no image."""
        row = self._row.get(image_id or "")
        if row is None:
            return Picture(safe(name or image_id or ""), why="the whole concept" if image_id is None else "not found")
        return self._at(row)

    def at(self, path: str) -> Picture:
        """Return the picture at a path, to be filled by `find`."""
        row = self._path_row.get(path)
        return Picture(safe(path), why="not in this set") if row is None else self._at(row)

    def _at(self, row: int) -> Picture:
        if row not in self._wanted:
            self._wanted[row] = Picture(safe(self._value(row, "path")))
        return self._wanted[row]

    def _value(self, row: int, name: str) -> str:
        return str(self._table[name][row].as_py() or "")

    def find(self, records: Iterable[ImageRecord], max_pixels: int) -> None:
        """Fill every picture asked for so far, making the thumbnails that are not there yet."""
        places: dict[int, Location] = {}
        for record in records:
            row = self._row.get(record.image_id)
            if row in self._wanted:
                places[row] = record.location
        missing: dict[str, tuple[str, Location]] = {}
        waiting: list[tuple[Picture, str]] = []
        for row, picture in self._wanted.items():
            place = places.get(row)
            status, content = self._value(row, "status"), self._value(row, "content")
            if place is None:
                picture.why = "not found any more"
                continue
            if place.size is None:
                picture.link = Path(place.file).as_uri()
            if status != "ok" or not content:
                picture.why = {"refused": "too large to open", "ignored": "left out"}.get(status, "cannot be read")
                continue
            name = f"{content[:24]}-{self.side}.jpg"
            waiting.append((picture, name))
            if name not in self.kept and not (self.folder / name).is_file():
                missing[name] = (picture.name, place)
            self.kept.add(name)
        made = set(self._make(missing, max_pixels))
        for picture, name in waiting:
            if name in missing and name not in made:
                picture.why = "cannot be shown"
            else:
                picture.thumbnail = f"{THUMBNAILS}/{name}"

    def _make(self, missing: dict[str, tuple[str, Location]], max_pixels: int) -> Iterator[str]:
        """Make thumbnails; yield the names of those that could be made."""
        if not missing:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot write {self.folder}: {error}", remedy="Audit into another folder.") from error
        request = DecodeRequest(tiles=False, pixel_hash=False, max_pixels=max_pixels)
        jobs = (Job(i, path, place, request) for i, (path, place) in enumerate(missing.values()))
        workers = min(usable_cores(), 1 + len(missing) // _PER_WORKER)
        with DecodePool(workers, 64) as pool:
            for name, decoded in zip(missing, pool.run(jobs), strict=True):
                if decoded.pixels is not None:
                    self._write(self.folder / name, decoded.pixels)
                    yield name

    def _write(self, final: Path, pixels: Any) -> None:
        image = Image.fromarray(pixels)
        image.thumbnail((self.side, self.side), reducing_gap=2.0)
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=82)
        try:
            final.write_bytes(buffer.getvalue())
        except OSError as error:
            final.unlink(missing_ok=True)
            remedy = "Free some space, or audit into another folder with --out."
            raise OutputError(f"cannot write {final}: {error.strerror or error}", remedy=remedy) from error

    def sweep(self, also: Iterable[str] = ()) -> None:
        """Remove thumbnails that no page needs any more; `also` names more that are kept."""
        keep = self.kept | set(also)
        for file in self.folder.glob("*.jpg") if self.folder.is_dir() else ():
            if file.name not in keep:
                file.unlink(missing_ok=True)
