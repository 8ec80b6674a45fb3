"""From finished parts to the report's tables: compare over the set, judge, join, count."""

from __future__ import annotations

import collections
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from datasieve.analyzers import Compares, Comparison, compared
from datasieve.baseline import key
from datasieve.config import Settings
from datasieve.errors import DatasieveError
from datasieve.pipeline.measure import UNREADABLE, Measurer
from datasieve.pipeline.plan import Plan
from datasieve.policy import Tally, advice, judge, judge_notes, verdict
from datasieve.report import (
    arrow_array,
    arrow_field,
    field_of,
    findings_table,
    pairs_table,
    schema_with_version,
    write_table,
)
from datasieve.rules import Finding, Note, Rule
from datasieve.schema import IMAGE_FIELDS
from datasieve.storage import atomic_path


def finish(
    report: Path,
    plan: Plan,
    measurer: Measurer,
    notes: Sequence[Note],
    settings: Settings,
    rules: Mapping[str, Rule],
    accepted: frozenset[tuple[str, str]],
    run: Mapping[str, Any],
    derived: Mapping[str, str],
) -> dict[str, Any]:
    """Write images, findings, pairs and concepts; return `run` with counts, verdict and what was not measured.

    `derived` tells which images were cut out of which.
    """
    timing = dict(run["timing"])
    words = settings.words()
    comparisons, compare_seconds = _compare(
        plan, measurer, settings, {"layout": run["dataset"]["layout"], "derived": json.dumps(derived)}
    )
    timing |= compare_seconds
    started = time.perf_counter()
    fields = pa.schema([field_of(n) for n in ("image_id", "path")])
    identities = pa.concat_tables([p.select(fields.names) for p in measurer.parts])
    pairs = [
        (kind, *(identities[n][row].as_py() for n in fields.names for row in (a, b)), score)
        for comparison in comparisons.values()
        for kind, a, b, score in comparison.pairs
    ]
    write_table(pairs_table(pairs), report / "pairs.parquet")
    write_embeddings(report, plan, measurer)

    tally = Tally()
    statuses: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[tuple[str, str]] = collections.Counter()
    concepts = _Concepts()
    with (
        atomic_path(report / "images.parquet") as images_path,
        atomic_path(report / "findings.parquet") as findings_path,
        pq.ParquetWriter(findings_path, findings_table([]).schema, compression="zstd") as findings_writer,
    ):

        def keep(findings: Sequence[Finding]) -> None:
            wanted = [f for f in findings if key(f.rule, f.path, f.concept) not in accepted]
            tally.accepted += len(findings) - len(wanted)
            tally.add(wanted)
            if wanted:
                findings_writer.write_table(findings_table(wanted))

        noted = _noted(notes, rules, identities)
        schema = images_schema(plan, measurer)
        with pq.ParquetWriter(images_path, schema, compression="zstd") as images_writer:
            offset = 0
            for index in range(len(measurer.parts)):
                table = _part(index, offset, plan, measurer, comparisons, schema)
                offset += len(table)
                images_writer.write_table(table)
                statuses.update(table["status"].to_pylist())
                concepts.add(table)
                for name in plan.measuring:
                    why = table[f"{name}.unmeasured"].drop_null().to_pylist()
                    reasons.update((name, reason) for reason in why if reason != UNREADABLE)  # told by the status
                findings = judge(table, rules.values(), "image", words)
                ids = set(table["image_id"].to_pylist())
                findings += [f for f in noted if f.image_id in ids]
                keep(findings)
        keep([f for f in noted if f.image_id is None])
        table = concepts.table(comparisons)
        keep(judge(table, rules.values(), "concept", words))
    write_table(table, report / "concepts.parquet")

    tally.images, tally.usable = offset - statuses["ignored"], statuses["ok"]
    outcome, why = verdict(tally)
    unmeasured = {topic: text for c in comparisons.values() for topic, text in c.unmeasured.items()}
    for (name, reason), number in sorted(reasons.items()):
        unmeasured.setdefault(name, "")
        text = f"{number} image{'s' if number > 1 else ''}: {reason}"
        unmeasured[name] = f"{unmeasured[name]}; {text}" if unmeasured[name] else text
    timing["report"] = round(time.perf_counter() - started, 4)
    return {
        **run,
        "embedder": plan.embedder(),
        "counts": {
            "images": offset,
            **{status: statuses[status] for status in ("ok", "unreadable", "refused", "ignored")},
            "findings": {"error": tally.errors, "warning": tally.warnings, "info": tally.infos},
            "accepted": tally.accepted,
            "concepts": len(table),
        },
        "verdict": outcome,
        "verdict_reasons": why,
        "advice": advice(table.to_pylist(), settings),
        "unmeasured": unmeasured,
        "facts": {fact: value for c in comparisons.values() for fact, value in c.facts.items()},
        "timing": timing,
    }


def images_schema(plan: Plan, measurer: Measurer) -> pa.Schema:
    """Return the schema of images.parquet: the image's fields, then measured and compared columns by analyzer."""
    fields = [field_of(name) for name in IMAGE_FIELDS]
    for name in sorted({*plan.measuring, *plan.comparing}):
        if name in plan.measuring:
            fields += [f for f in measurer.stores[name].fields if not is_vector(f)]
        if name in plan.comparing:
            fields += [arrow_field(c) for c in compared(plan.comparing[name])]
    return schema_with_version(fields)


def is_vector(field: pa.Field) -> bool:
    """Tell whether a field is a vector, which images.parquet does not hold."""
    return bool(pa.types.is_fixed_size_list(field.type))


def is_embedding(field: pa.Field) -> bool:
    """Tell whether a field belongs into embeddings.parquet; other vectors stay in columns/."""
    return is_vector(field) and bool(field.name.endswith(".embedding"))


def write_embeddings(report: Path, plan: Plan, measurer: Measurer) -> None:
    """Write the embedder's vectors of all images that have one, part by part; no file when there are none."""
    final = report / "embeddings.parquet"
    vectors = [f for name in plan.measuring for f in measurer.stores[name].fields if is_embedding(f)]
    if not vectors:
        return
    written = 0
    names = ("image_id", "path", "concept")
    fields = [*(field_of(n) for n in names), vectors[0].with_name("embedding")]
    with atomic_path(final) as path, pq.ParquetWriter(path, schema_with_version(fields), compression="zstd") as writer:
        for index in range(len(measurer.parts)):
            table = _read_part(measurer, index, (*names, vectors[0].name))
            table = table.filter(pc.is_valid(table[vectors[0].name]))
            columns = [table[n] for n in (*names, vectors[0].name)]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema_with_version(fields)))
            written += len(table)
    if not written:
        final.unlink()


def _compare(
    plan: Plan, measurer: Measurer, settings: Settings, facts: Mapping[str, str]
) -> tuple[dict[str, Comparison], dict[str, float]]:
    """Run the comparisons over the set, each with the columns it needs and facts of the set as the table's metadata."""
    comparisons: dict[str, Comparison] = {}
    seconds: dict[str, float] = {}
    for name, analyzer in plan.comparing.items():
        started = time.perf_counter()
        assert isinstance(analyzer, Compares)
        table = _whole(measurer, (*IMAGE_FIELDS, *analyzer.needs))
        for done in comparisons.values():
            for column, values in done.columns.items():
                if column in analyzer.needs:
                    table = table.append_column(column, pa.array(list(values)))
        found = analyzer.compare(table.replace_schema_metadata(dict(facts)), settings)
        declared = {c.name for c in compared(analyzer)}
        if found.columns.keys() != declared:
            wrong = sorted(found.columns.keys() ^ declared)
            raise DatasieveError(f"analyzer {name} compared other columns than it declares: {wrong}")
        comparisons[name] = found
        seconds[f"compare {name}"] = round(time.perf_counter() - started, 4)
    return comparisons, seconds


def _whole(measurer: Measurer, names: Sequence[str]) -> pa.Table:
    """Return some columns of all parts."""
    return pa.concat_tables([_read_part(measurer, i, names) for i in range(len(measurer.parts))])


def _read_part(measurer: Measurer, index: int, names: Sequence[str]) -> pa.Table:
    table = measurer.parts[index]
    for store in measurer.stores.values():
        wanted = [f.name for f in store.fields if f.name in names]
        if wanted:
            part = store.read(index, wanted)
            for name in wanted:
                table = table.append_column(part.schema.field(name), part[name])
    return table.select([n for n in dict.fromkeys(names) if n in table.column_names])


def _part(
    index: int,
    offset: int,
    plan: Plan,
    measurer: Measurer,
    comparisons: Mapping[str, Comparison],
    schema: pa.Schema,
) -> pa.Table:
    """Return the rows of images.parquet of one part."""
    table = _read_part(measurer, index, schema.names)
    columns = {name: table[name] for name in table.column_names}
    for name, comparison in comparisons.items():
        for column in compared(plan.comparing[name]):
            values = comparison.columns[column.name][offset : offset + len(table)]
            columns[column.name] = arrow_array(values, schema.field(column.name).type)
    return pa.Table.from_arrays([columns[n] for n in schema.names], schema=schema)


def _noted(notes: Sequence[Note], rules: Mapping[str, Rule], identities: pa.Table) -> list[Finding]:
    if not notes:
        return []
    wanted = {note.path for note in notes}
    rows = zip(identities["path"].to_pylist(), identities["image_id"].to_pylist(), strict=True)
    return judge_notes(notes, rules, {path: image for path, image in rows if path in wanted})


COPIES = ("duplicates.exact-of", "duplicates.near-of", "duplicates.flip-of")
"""Columns that tell that an image is no new evidence."""


def _finite(value: Any) -> Any:
    """Return None for a number that is none, and all else as it is."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


class _Concepts:
    """Counts per concept, gathered part by part."""

    def __init__(self) -> None:
        self.images: collections.Counter[str] = collections.Counter()
        self.usable: collections.Counter[str] = collections.Counter()
        self.copies: collections.Counter[str] = collections.Counter()
        self.samples: collections.Counter[str] = collections.Counter()

    def add(self, table: pa.Table) -> None:
        copy = [
            n for n in ("duplicates.exact-of", "duplicates.near-of", "duplicates.flip-of") if n in table.column_names
        ]
        for row in table.select(["concept", "status", "repeats", *copy]).to_pylist():
            concept = row["concept"]
            self.images[concept] += 1
            if row["status"] == "ok":
                self.usable[concept] += 1
                self.samples[concept] += row["repeats"]
                self.copies[concept] += any(row[n] is not None for n in copy)

    def table(self, comparisons: Mapping[str, Comparison]) -> pa.Table:
        names = sorted(self.images)
        columns: dict[str, Any] = {
            "concept": names,
            "images": [self.images[n] for n in names],
            "usable": [self.usable[n] for n in names],
            "distinct": [self.usable[n] - self.copies[n] for n in names],
            "samples": [self.samples[n] for n in names],
        }
        for comparison in comparisons.values():
            for column, values in comparison.concepts.items():
                columns[column] = pa.array([_finite(values.get(n)) for n in names])
        table = pa.table(columns)
        return table.replace_schema_metadata(schema_with_version([]).metadata)
