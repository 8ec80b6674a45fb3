"""`measure_captions`: the captions of a dataset, measured and judged without opening a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from datasieve.analyzers import compared, load
from datasieve.config import Settings
from datasieve.policy import judge, rules_in_force
from datasieve.report import arrow_array, arrow_field, field_of
from datasieve.rules import Finding, Note
from datasieve.sources import open_source

FIELDS = ("image_id", "path", "concept", "caption", "content", "status")


@dataclass(frozen=True, slots=True)
class CaptionAudit:
    """What the captions of a dataset are like.

    Attributes:
        images: one row per image: `FIELDS` and the columns of the analyzer captions.
        concepts: one row per concept.
        findings: of the rules on captions.
        notes: what the listing of files met about captions.
        unmeasured: what could not be measured, and why.
    """

    images: pa.Table
    concepts: pa.Table
    findings: list[Finding]
    notes: list[Note]
    unmeasured: Mapping[str, str]


def measure_captions(path: str | Path, settings: Settings | None = None) -> CaptionAudit:
    """Measure and judge the captions of the dataset at `path`; pictures are listed, not opened.

    Copies of a picture are therefore not known as such: two files with the same description count as two pictures.

    Raises:
        InputError: the dataset is not there or has no images.
        ConfigError: a setting names an unknown rule.
    """
    settings = settings or Settings()
    rules = [rule for rule in rules_in_force(settings).values() if rule.id.startswith("captions.")]
    analyzer: Any = load("captions")
    ingest = open_source(Path(path), concept_by=settings.concept_by)
    rows: dict[str, list[Any]] = {name: [] for name in FIELDS}
    for record in ingest.records:
        caption = record.captions[0] if record.captions else None
        for name, value in zip(FIELDS, (record.image_id, record.path, record.concept, caption), strict=False):
            rows[name].append(value)
        rows["content"].append(record.image_id)
        rows["status"].append("ok")
    table = pa.table({name: arrow_array(values, field_of(name).type) for name, values in rows.items()})
    found = analyzer.compare(table.replace_schema_metadata({"layout": ingest.layout}), settings)
    for column in compared(analyzer):
        field = arrow_field(column)
        table = table.append_column(field, arrow_array(found.columns[column.name], field.type))
    names = sorted(set(rows["concept"]))
    concepts = pa.table(
        {
            "concept": names,
            **{name: pa.array([values.get(n) for n in names]) for name, values in found.concepts.items()},
        }
    )
    words = settings.words()
    findings = [*judge(table, rules, "image", words), *judge(concepts, rules, "concept", words)]
    notes = [note for note in ingest.notes if "caption" in note.rule or "metadata" in note.rule]
    return CaptionAudit(table, concepts, findings, notes, found.unmeasured)
