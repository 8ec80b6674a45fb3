"""Rows of JSON lines, CSV and Parquet files, with their line numbers; a bad line costs only itself."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from datasieve.errors import InputError
from datasieve.sources.captions import decode, tidy
from datasieve.sources.ingest import EXAMPLES, Ledger
from datasieve.storage import readable

CAPTION_COLUMNS = ("text", "caption", "prompt", "captions", "texts", "prompts", "description", "additional_feature")
"""Columns a caption is taken from, the preferred first."""

CONCEPT_COLUMNS = ("concept", "class_tokens")
"""Columns that name the concept. `label` is left out: it often holds a number."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row that could be read.

    Attributes:
        line: its first line in the file, from 1; in Parquet the row number.
        cells: column -> value.
    """

    line: int
    cells: Mapping[str, object]


def read_rows(file: str, path: str, ledger: Ledger, *, most: int = -1) -> Iterator[Row]:
    """Yield the rows of `file`; note lines that cannot be read, with file and line.

    Args:
        file: absolute path, ending in .jsonl, .csv, .tsv or .parquet.
        path: how notes call it.
        ledger: takes the notes.
        most: read only so many bytes of a text file, up to a line's end; -1 reads it whole.

    Raises InputError when the file cannot be read at all.
    """
    bad = BadLines(path, ledger)
    try:
        if file.lower().endswith(".parquet"):
            yield from _parquet(file)
        else:
            with open(file, "rb") as handle:
                raw = handle.read(most)
            if len(raw) == most:
                raw = raw[: raw.rfind(b"\n") + 1] or raw
            text, problem = decode(raw)
            if problem and not problem.startswith("begins with"):
                ledger.note("caption-encoding", path, f"{readable(path)} {problem}")
            if file.lower().endswith(".jsonl"):
                yield from _json_lines(text, bad)
            else:
                yield from _csv(text, "\t" if file.lower().endswith(".tsv") else ",", bad)
    except OSError as error:
        raise InputError(
            f"cannot read {readable(path)}: {error.strerror or error}", remedy="Mend the file, or leave it out."
        ) from error
    finally:
        bad.close()


class BadLines:
    """Notes the first bad lines of a file one by one, and the rest as a number."""

    def __init__(self, path: str, ledger: Ledger) -> None:
        self.path = path
        self.ledger = ledger
        self.number = 0

    def add(self, line: int, what: str) -> None:
        self.number += 1
        if self.number <= EXAMPLES:
            self.ledger.note(
                "metadata-malformed", self.path, f"{readable(self.path)}:{line}: {what}; this line was left out"
            )

    def close(self) -> None:
        if self.number > EXAMPLES:
            more = f"{self.number - EXAMPLES} more lines of {readable(self.path)} could not be read"
            self.ledger.note("metadata-malformed", self.path, more)
        self.number = 0


def _json_lines(text: str, bad: BadLines) -> Iterator[Row]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            if "Extra data" in str(error):
                bad.add(number, "more than one object on the line")
            else:
                bad.add(
                    number, f"not JSON ({error.msg if isinstance(error, json.JSONDecodeError) else 'nested too deep'})"
                )
            continue
        if isinstance(value, dict):
            yield Row(number, value)
        else:
            bad.add(number, f"a {type(value).__name__} where an object with column names belongs")


def _csv(text: str, delimiter: str, bad: BadLines) -> Iterator[Row]:
    # The default limit of 128 KiB would stop at a long caption.
    csv.field_size_limit(2**31 - 1)
    # NUL bytes end the reader of Python 3.10 with an error; no caption needs them.
    reader = csv.reader(io.StringIO(text.replace("\0", ""), newline=""), delimiter=delimiter)
    header: list[str] | None = None
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            bad.add(line, str(error))
            continue
        if not any(cell.strip() for cell in cells):
            continue
        if header is None:
            header = [cell.strip() for cell in cells]
        elif len(cells) > len(header):
            bad.add(
                line,
                f"{len(cells)} cells under {len(header)} column names (a comma in a caption needs quotes around it)",
            )
        else:
            yield Row(line, dict(zip(header, cells, strict=False)))


def _parquet(file: str) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file) as table:
            names = [n for n in table.schema_arrow.names if not pa.types.is_binary(table.schema_arrow.field(n).type)]
            number = 0
            for batch in table.iter_batches(batch_size=4096, columns=names):
                for cells in batch.to_pylist():
                    number += 1
                    yield Row(number, cells)
    except pa.ArrowException as error:
        raise OSError(str(error).splitlines()[0]) from error


def captions_in(cells: Mapping[str, object]) -> tuple[str, ...]:
    """Return the captions of a row: the first caption column that is there, a list giving several.

    Numbers become text; null is no caption, empty text is the caption "".
    """
    for column in CAPTION_COLUMNS:
        value = cells.get(column)
        if value is None or isinstance(value, dict):
            continue
        values = value if isinstance(value, list) else [value]
        return tuple(tidy(v if isinstance(v, str) else json.dumps(v)) for v in values if v is not None)
    return ()


def concept_in(cells: Mapping[str, object]) -> str | None:
    """Return the concept that a row names, None when it names none."""
    for column in CONCEPT_COLUMNS:
        value = cells.get(column)
        if isinstance(value, str) and value.strip():
            return value.strip()
    return None


def first_rows(file: str, path: str) -> list[Row]:
    """Return up to 50 rows from the start of `file`, noting nothing; none when it cannot be read."""
    try:
        return list(itertools.islice(read_rows(file, path, Ledger(), most=2**20), 50))
    except InputError:
        return []


def is_table(name: str) -> bool:
    """Tell whether `read_rows` reads files called `name`."""
    return os.path.splitext(name)[1].lower() in (".jsonl", ".csv", ".tsv", ".parquet")
