"""The report: a folder of Parquet tables and one JSON file.

    run.json           what was run, on what, how it went, and what could not be measured and why
    images.parquet     one row an image: the fields of `schema.IMAGE_FIELDS`, then one column per measurement
    findings.parquet   one row a finding: `schema.FINDING_FIELDS`
    pairs.parquet      pairs of images that are alike: `schema.PAIR_FIELDS`
    concepts.parquet   one row a concept
    embeddings.parquet one row an image that an embedder has seen: image_id, path, concept and its unit vector
    columns/<analyzer>/part-00007-<digest>.parquet   measurements as they were taken, a part at a time

A part holds the measurements of one analyzer for up to `PART_IMAGES` images. Its name ends in a digest of its members
(path and content), and its footer holds the fingerprint of what measured it, so a finished part is recognised and a
rerun reuses it.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from datasieve.errors import InputError, ReportError
from datasieve.rules import Finding
from datasieve.schema import FINDING_FIELDS, PAIR_FIELDS, SCHEMA_VERSION, Column
from datasieve.storage import atomic_path, readable

PART_IMAGES = 256
COLUMNS_FOLDER = "columns"

_REPR_RULES = 8
"""Rules that a notebook shows."""

_TYPES = {"float": pa.float32(), "int": pa.int64(), "bool": pa.bool_(), "string": pa.string()}
_FIELD_TYPES = {
    "repeats": pa.int32(),
    "width": pa.int32(),
    "height": pa.int32(),
    "caption": pa.large_string(),
    "value": pa.float64(),
    "limit": pa.float64(),
    "score": pa.float32(),
}


def field_of(name: str) -> pa.Field:
    """Return the Arrow field of one of the fixed fields of schema.py."""
    return pa.field(name, _FIELD_TYPES.get(name, pa.string()))


def arrow_field(column: Column) -> pa.Field:
    """Return the Arrow field of a measured column, its unit, range and source as metadata."""
    facts = {
        "description": column.description,
        "unit": column.unit,
        "low": "" if column.low is None else repr(column.low),
        "high": "" if column.high is None else repr(column.high),
        "source": column.source,
        "tolerance": repr(column.tolerance),
    }
    kind = pa.list_(pa.float16(), column.size) if column.kind == "vector" else _TYPES[column.kind]
    return pa.field(column.name, kind, metadata={k: v for k, v in facts.items() if v})


def arrow_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return an Arrow array; None, NaN and infinities become null, text is made fit for UTF-8."""
    import numpy as np

    if pa.types.is_fixed_size_list(kind):
        empty = np.zeros(kind.list_size, np.float16)
        flat = np.concatenate([empty if v is None else np.asarray(v, np.float16) for v in values] or [empty[:0]])
        missing = pa.array([v is None for v in values], pa.bool_())
        return pa.FixedSizeListArray.from_arrays(pa.array(flat), kind.list_size, mask=missing)
    if pa.types.is_floating(kind):
        numbers = np.asarray([np.nan if v is None else v for v in values], np.float64)
        return pa.array(numbers, kind, mask=~np.isfinite(numbers))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.array([None if v is None else readable(str(v)) for v in values], kind)
    if pa.types.is_boolean(kind):
        return pa.array([None if v is None else bool(v) for v in values], kind)
    return pa.array([None if v is None or v != v else int(v) for v in values], kind)


def schema_with_version(fields: Iterable[pa.Field]) -> pa.Schema:
    """Return a schema whose footer metadata tells the report's schema version."""
    return pa.schema(list(fields), metadata={"datasieve.schema": str(SCHEMA_VERSION)})


def write_table(table: pa.Table, final: Path) -> None:
    """Write one Parquet file, atomically."""
    with atomic_path(final) as path:
        pq.write_table(table, path, compression="zstd")


def findings_table(findings: Sequence[Finding]) -> pa.Table:
    """Return findings as rows of findings.parquet."""
    fields = [field_of(name) for name in FINDING_FIELDS]
    columns = [arrow_array([getattr(f, field.name) for f in findings], field.type) for field in fields]
    return pa.Table.from_arrays(columns, schema=schema_with_version(fields))


def pairs_table(rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Return rows of `schema.PAIR_FIELDS` as pairs.parquet holds them."""
    fields = [field_of(name) for name in PAIR_FIELDS]
    columns = [arrow_array([row[i] for row in rows], field.type) for i, field in enumerate(fields)]
    return pa.Table.from_arrays(columns, schema=schema_with_version(fields))


class Report:
    """A finished (or interrupted) audit, read from its folder.

    Attributes:
        path: the folder.
        run: the content of run.json.
    """

    def __init__(self, path: Path, run: Mapping[str, Any]) -> None:
        self.path = path
        self.run = dict(run)

    @property
    def verdict(self) -> str:
        """ "ready", "fix first" or "not trainable" (docs/verdict.md)."""
        return str(self.run["verdict"])

    def images(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return images.parquet, or some of its columns. Raises ReportError for a column that is not there."""
        if columns is not None:
            known = self._schema().names
            for name in columns:
                if name not in known:
                    raise ReportError(
                        f"{self.path} has no column {name!r}", remedy="Run the audit again, or choose another column."
                    )
        return self._read("images.parquet", columns)

    def findings(self) -> pa.Table:
        """Return findings.parquet."""
        return self._read("findings.parquet")

    def pairs(self) -> pa.Table:
        """Return pairs.parquet."""
        return self._read("pairs.parquet")

    def concepts(self) -> pa.Table:
        """Return concepts.parquet."""
        return self._read("concepts.parquet")

    def embeddings(self) -> pa.Table:
        """Return embeddings.parquet. Raises ReportError when no embedder ran."""
        if not (self.path / "embeddings.parquet").is_file():
            raise ReportError(f"{self.path} holds no embeddings", remedy="Audit again with an embedder.")
        return self._read("embeddings.parquet")

    def columns(self) -> dict[str, dict[str, str]]:
        """Return column name -> description, unit, range and source, as the report's schema tells them."""
        schema = self._schema()
        return {
            field.name: {
                k.decode(): v.decode() for k, v in (field.metadata or {}).items() if not k.startswith(b"PARQUET")
            }
            for field in schema
        }

    def _schema(self) -> pa.Schema:
        try:
            return pq.read_schema(self.path / "images.parquet")
        except (OSError, pa.ArrowInvalid) as error:
            raise self._unreadable("images.parquet", error) from error

    def _unreadable(self, name: str, error: Exception) -> ReportError:
        return ReportError(
            f"cannot read {self.path / name}: {error}", remedy="Run `datasieve audit` on the dataset again."
        )

    def _read(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        try:
            return pq.ParquetFile(self.path / name).read(columns=list(columns) if columns is not None else None)
        except (OSError, pa.ArrowInvalid) as error:
            raise self._unreadable(name, error) from error

    def __repr__(self) -> str:
        counts = self.run.get("counts", {})
        return f"Report({str(self.path)!r}, {counts.get('images', 0)} images, verdict {self.run.get('verdict')!r})"

    def _repr_html_(self) -> str:
        """Return the verdict, the counts and the most frequent rules for a notebook."""
        counts = self.run.get("counts", {})
        found = ", ".join(f"{n:,} {severity}" for severity, n in counts.get("findings", {}).items() if n)
        rules = collections.Counter(zip(*(self.findings()[n].to_pylist() for n in ("rule", "severity")), strict=True))
        rows = "".join(
            f"<tr><td>{escape(rule)}</td><td>{escape(severity)}</td><td>{number:,}</td></tr>"
            for (rule, severity), number in rules.most_common(_REPR_RULES)
        )
        more = f"<p>and {len(rules) - _REPR_RULES} more rules</p>" if len(rules) > _REPR_RULES else ""
        head = "<tr><th>rule</th><th>severity</th><th>findings</th></tr>"
        return (
            f"<h4>{escape(self.verdict.capitalize())}: "
            f"{escape(readable(str(self.run.get('dataset', {}).get('path', ''))))}</h4>"
            f"<p>{int(counts.get('images', 0)):,} images, {int(counts.get('ok', 0)):,} usable; "
            f"findings: {escape(found) or 'none'}</p>"
            + (f"<table>{head}{rows}</table>{more}" if rows else "")
            + f"<p>{escape(readable(str(self.path)))}</p>"
        )


def open_report(path: str | Path) -> Report:
    """Open the report in folder `path`.

    Raises:
        InputError: there is no such folder, or it is not a report.
        ReportError: the report was never finished, or is of a newer schema.
    """
    folder = Path(path)
    marker = folder / "run.json"
    if not folder.is_dir() or not marker.is_file():
        beside = folder.resolve().parent / f"{folder.resolve().name}-report"
        if read_run(beside) is not None:
            raise InputError(f"{folder} is not a report", remedy=f"Its report is {beside}.")
        raise InputError(f"{folder} is not a report", remedy="Make one with: datasieve audit FOLDER --out REPORT")
    run = read_run(folder)
    if run is None:
        raise InputError(f"{marker} was not written by datasieve", remedy="Name the folder that an audit wrote.")
    if run.get("schema", 0) > SCHEMA_VERSION:
        raise ReportError(f"{folder} was written by a newer datasieve", remedy="Upgrade: pip install -U datasieve")
    if run.get("status") == "running":
        raise ReportError(f"the audit into {folder} did not finish", remedy="Run the same audit again; it continues.")
    return Report(folder, run)


def read_run(folder: Path) -> dict[str, Any] | None:
    """Return run.json of a report folder, or None when there is none of ours."""
    try:
        run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return run if isinstance(run, dict) and "datasieve" in run else None


class PartStore:
    """The measured parts of one analyzer in a report.

    Rows are found again by their key: the content of the file and its extension (the only part of the name that a
    measurement may depend on), so renamed and moved files are not measured again, and changed ones are.

    Args:
        report: the report's folder.
        name: the analyzer's name.
        fields: Arrow fields of its measured columns.
        fingerprint: what measured them; parts with another fingerprint are not used.
    """

    def __init__(self, report: Path, name: str, fields: Sequence[pa.Field], fingerprint: str) -> None:
        self.folder = report / COLUMNS_FOLDER / name
        self.name = name
        self.fields = list(fields)
        self.schema = pa.schema(
            [pa.field("image_id", pa.string()), pa.field("key", pa.string()), *fields],
            metadata={"datasieve.schema": str(SCHEMA_VERSION), "datasieve.fingerprint": fingerprint},
        )
        self.parts: list[Path] = []
        self._finished: set[Path] = set()
        self._index: dict[str, tuple[Path, int]] = {}
        self._open: tuple[Path, pa.Table] | None = None

    def scan(self) -> dict[str, str]:
        """Read the keys of all finished parts of earlier runs; return image_id -> key."""
        keys: dict[str, str] = {}
        fingerprint = self.schema.metadata[b"datasieve.fingerprint"]
        for path in sorted(self.folder.glob("part-*.parquet")):
            try:
                with pq.ParquetFile(path) as file:
                    if (file.schema_arrow.metadata or {}).get(b"datasieve.fingerprint") != fingerprint:
                        continue
                    table = file.read(columns=["image_id", "key"])
            except (OSError, pa.ArrowInvalid):
                continue  # not a whole file: measured again
            self._finished.add(path)
            rows = zip(table["image_id"].to_pylist(), table["key"].to_pylist(), strict=True)
            for row, (image, key) in enumerate(rows):
                keys[image] = key
                self._index.setdefault(key, (path, row))
        return keys

    def __contains__(self, key: str) -> bool:
        return key in self._index

    def old_row(self, key: str) -> dict[str, Any]:
        """Return the measured columns that an earlier run wrote for this key."""
        path, row = self._index[key]
        if self._open is None or self._open[0] != path:
            self._open = path, pq.read_table(path, partitioning=None)
        values: dict[str, Any] = self._open[1].slice(row, 1).to_pylist()[0]
        return values

    def put(self, number: int, digest: str, rows: Sequence[tuple[str, str]], columns: Mapping[str, pa.Array]) -> None:
        """Write one part, unless it is there already. `rows` are (image_id, key)."""
        path = self.folder / f"part-{number:05d}-{digest}.parquet"
        self.parts.append(path)
        if path in self._finished:
            return
        arrays = [pa.array([r[0] for r in rows]), pa.array([r[1] for r in rows])]
        arrays += [columns[field.name] for field in self.fields]
        write_table(pa.Table.from_arrays(arrays, schema=self.schema), path)

    def has_part(self, number: int, digest: str) -> bool:
        """Tell whether this very part is finished."""
        return self.folder / f"part-{number:05d}-{digest}.parquet" in self._finished

    def read(self, index: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the measured columns of the part that this run put in place `index`."""
        names = [f.name for f in self.fields if columns is None or f.name in columns]
        return pq.read_table(self.parts[index], columns=names, partitioning=None)

    def sweep(self) -> None:
        """Remove parts of earlier runs and unfinished files."""
        keep = set(self.parts)
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if path not in keep:
                path.unlink(missing_ok=True)
