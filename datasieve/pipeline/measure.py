"""Measuring: decoded images go in, finished parts of columns come out."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from datasieve.analyzers import Analyzer, Measures
from datasieve.batch import Batch, Decoded
from datasieve.errors import DatasieveError
from datasieve.pipeline.executors.local import usable_cores
from datasieve.pipeline.plan import Plan, measured_columns
from datasieve.pipeline.worker import UNCHANGED
from datasieve.records import ImageRecord
from datasieve.report import PART_IMAGES, PartStore, arrow_array, arrow_field, field_of

BASE = "image"
"""Name of the store that holds the image's own fields: not an analyzer, but kept and resumed like one."""
BASE_FIELDS = ("content", "width", "height", "format", "status", "error")


UNREADABLE = "the image could not be read"
"""Why an analyzer of pixels has no measurements of an image that was not decoded."""


Member = tuple[int, ImageRecord, Decoded]
"""An image to measure, and its row in the part."""

Measured = tuple[dict[str, dict[int, dict[str, Any]]], dict[str, float]]


def key_of(content: str, path: str) -> str:
    """Return what measurements of a file are found again by: its content and its extension."""
    return content + PurePosixPath(path).suffix.lower()


def open_stores(report: Path, plan: Plan) -> dict[str, PartStore]:
    """Return the part stores of a report: one for the image's own fields and one per measuring analyzer."""
    stores = {BASE: PartStore(report, BASE, [field_of(f) for f in BASE_FIELDS], plan.fingerprint(BASE))}
    for name, analyzer in plan.measuring.items():
        fields = [arrow_field(c) for c in measured_columns(name, analyzer)]
        stores[name] = PartStore(report, name, fields, plan.fingerprint(name))
    return stores


class Measurer:
    """Takes decoded images in order, measures what is missing, and writes each part when it is full.

    Args:
        plan: what to measure.
        stores: where parts go, already scanned.
        device: where batches are measured.
        batch_images: images per batch.
        threads: batches measured at once; torch lets go of the interpreter while it computes, so two keep two cores
            busy once the decoders are ahead.
    """

    def __init__(
        self, plan: Plan, stores: dict[str, PartStore], device: str, batch_images: int, threads: int = 1
    ) -> None:
        self.plan = plan
        self.stores = stores
        self.device = device
        self.batch_images = batch_images
        self.parts: list[pa.Table] = []
        """The record fields of each finished part, in order."""
        self.seconds: dict[str, float] = defaultdict(float)
        self.measured_images = 0
        self._records: list[ImageRecord] = []
        self._keys: list[str] = []
        self._cells: dict[str, dict[int, dict[str, Any]]] = {name: {} for name in stores}
        self._waiting: list[Member] = []
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "measure")
        self._running: collections.deque[Future[Measured]] = collections.deque()

    def close(self) -> None:
        """Wait for what is being measured, and forget the rest."""
        self._pool.shutdown(cancel_futures=True)

    def add(self, record: ImageRecord, decoded: Decoded) -> bool:
        """Take one image; return True when this finished a part."""
        row = len(self._records)
        key = key_of(decoded.content, record.path) if decoded.content else ""
        self._records.append(record)
        self._keys.append(key)
        if decoded.status != UNCHANGED:
            self._waiting.append((row, record, decoded))
            if len(self._waiting) >= self.batch_images:
                self._measure()
        if len(self._records) == PART_IMAGES:
            self.finish_part()
            return True
        return False

    def finish_part(self) -> None:
        """Measure what waits and write the images taken since the last part as a part of their own."""
        if not self._records:
            return
        self._measure()
        while self._running:
            self._collect()
        started = time.perf_counter()
        rows = [(r.image_id, k) for r, k in zip(self._records, self._keys, strict=True)]
        digest = hashlib.blake2b(repr(rows).encode(), digest_size=6).hexdigest()
        number = len(self.parts)
        for name, store in self.stores.items():
            columns = {} if store.has_part(number, digest) else self._columns(name, store)
            store.put(number, digest, rows, columns)
        self.parts.append(_record_table(self._records))
        self._records, self._keys = [], []
        self._cells = {name: {} for name in self.stores}
        self.seconds["write"] += time.perf_counter() - started

    def keep_finished(self) -> None:
        """After an interrupt: forget the unfinished part, wherever it was left."""
        for store in self.stores.values():
            del store.parts[len(self.parts) :]

    def _columns(self, name: str, store: PartStore) -> dict[str, pa.Array]:
        cells = self._cells[name]
        rows = [cells[i] if i in cells else store.old_row(key) for i, key in enumerate(self._keys)]
        return {f.name: arrow_array([row.get(f.name) for row in rows], f.type) for f in store.fields}

    def _measure(self) -> None:
        waiting, self._waiting = self._waiting, []
        groups: dict[tuple[str, ...], list[Member]] = defaultdict(list)
        for row, record, decoded in waiting:
            key = self._keys[row]
            if not key or key not in self.stores[BASE]:
                self._cells[BASE][row] = _base(decoded)
            missing = tuple(n for n in self.plan.measuring if not key or key not in self.stores[n])
            groups[missing].append((row, record, decoded))
        for missing, members in groups.items():
            self.measured_images += len(members)
            self._running.append(self._pool.submit(measure_group, self.plan, missing, members, self.device))
        while len(self._running) > self._threads:  # what waits holds its pictures in memory
            self._collect()

    def _collect(self) -> None:
        cells, seconds = self._running.popleft().result()
        for name, rows in cells.items():
            self._cells[name] |= rows
        for name, spent in seconds.items():
            self.seconds[f"measure {name}"] += spent


def measure_group(plan: Plan, missing: Sequence[str], members: list[Member], device: str) -> Measured:
    """Measure what is missing of some images; return analyzer -> row -> column -> value, and analyzer -> seconds."""
    everything = Batch([m[1] for m in members], [m[2] for m in members], device)
    usable = [m for m in members if m[2].status == "ok"]
    pictures = everything if len(usable) == len(members) else Batch(*_columns_of(usable), device)
    measured: dict[str, dict[int, dict[str, Any]]] = {}
    seconds: dict[str, float] = {}
    for name in missing:
        analyzer = plan.measuring[name]
        batch, rows = (pictures, usable) if analyzer.views else (everything, members)
        started = time.perf_counter()
        cells: dict[int, dict[str, Any]] = {m[0]: {f"{name}.unmeasured": UNREADABLE} for m in members}
        if rows:
            values = measure_within_memory(name, analyzer, batch)
            for i, member in enumerate(rows):
                cells[member[0]] = {column: v[i] for column, v in values.items()}
        measured[name] = cells
        seconds[name] = time.perf_counter() - started
    return measured, seconds


def measure_within_memory(name: str, analyzer: Analyzer, batch: Batch) -> dict[str, Sequence[Any]]:
    """Return the measurements of a batch, halving it as often as the device's memory demands.

    Raises DatasieveError when the analyzer breaks its contract.
    """
    import torch

    assert isinstance(analyzer, Measures)
    try:
        with torch.inference_mode():
            values: dict[str, Sequence[Any]] = dict(analyzer.measure(batch))
    except torch.cuda.OutOfMemoryError:
        if len(batch) == 1:
            raise
        torch.cuda.empty_cache()
        half = len(batch) // 2
        parts = [
            measure_within_memory(name, analyzer, Batch(batch.records[s], batch.decoded[s], batch.device))
            for s in (slice(0, half), slice(half, None))
        ]
        return {column: [*parts[0][column], *parts[1][column]] for column in parts[0]}
    declared = {c.name for c in measured_columns(name, analyzer)}
    if extra := set(values) - declared:
        raise DatasieveError(f"analyzer {name} returned columns it does not declare: {sorted(extra)}")
    for column, found in values.items():
        if len(found) != len(batch):
            raise DatasieveError(f"analyzer {name} returned {len(found)} values of {column} for {len(batch)} images")
    return values


def _columns_of(members: list[Member]) -> tuple[list[ImageRecord], list[Decoded]]:
    return [m[1] for m in members], [m[2] for m in members]


def _base(decoded: Decoded) -> dict[str, Any]:
    known = decoded.facts.width > 0
    return {
        "content": decoded.content or None,
        "width": decoded.facts.width if known else None,
        "height": decoded.facts.height if known else None,
        "format": decoded.facts.format or None,
        "status": decoded.status,
        "error": decoded.error or None,
    }


def _record_table(records: Sequence[ImageRecord]) -> pa.Table:
    values: dict[str, Sequence[Any]] = {
        "image_id": [r.image_id for r in records],
        "path": [r.path for r in records],
        "concept": [r.concept for r in records],
        "caption": [r.captions[0] if r.captions else None for r in records],
        "repeats": [r.repeats for r in records],
        "group": [r.group for r in records],
    }
    return pa.table({name: arrow_array(v, field_of(name).type) for name, v in values.items()})


@contextlib.contextmanager
def torch_threads(device: str, workers: int) -> Iterator[None]:
    """Leave the cores that decode workers use to them while measuring on the CPU; restore the setting afterwards."""
    import torch

    before = torch.get_num_threads()
    if device == "cpu":
        torch.set_num_threads(max(1, usable_cores() - workers))
    try:
        yield
    finally:
        torch.set_num_threads(before)
