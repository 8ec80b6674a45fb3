"""A stand-in for `datasieve.report.Report` with the same tables, made from plain rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from datasieve.report import arrow_field, field_of
from datasieve.rules import Rule
from datasieve.schema import FINDING_FIELDS, IMAGE_FIELDS, Column

COLUMNS = (
    Column("demo.blur", unit="px", description="Width of edges; low is sharp.", low=0, source="A paper"),
    Column("demo.cut", kind="bool", description="The file ends early."),
    Column("demo.share", unit="share", description="Share of pixels.", low=0, high=1),
    Column("demo.unmeasured", kind="string"),
)


def rule(rule_id: str, **values: Any) -> Rule:
    """Return a rule with every text filled."""
    texts = {
        "column": rule_id,
        "side": "above",
        "limit": 20.0,
        "severity": "warning",
        "title": rule_id.partition(".")[2].capitalize(),
        "message": "The value is {value:.1f}, the limit {limit}.",
        "remedy": "Look at it.",
        "why": "It will be learned.",
        "how": "By looking closely.",
        "source": "A paper",
    }
    return Rule(**{"id": rule_id, **texts, **values})  # type: ignore[arg-type]


RULES = {
    r.id: r
    for r in (
        rule("demo.blur", side="below"),
        rule("demo.cut", side="is", limit=True, severity="error", title="Cut-off file", remedy="Replace it."),
        rule("demo.few", column="", limit=5.0, severity="info", scope="concept", limits={"lora": 15}),
    )
}


def finding(rule_id: str, severity: str, **values: Any) -> dict[str, Any]:
    """Return a row of findings.parquet."""
    row = dict.fromkeys(FINDING_FIELDS)
    row |= {"rule": rule_id, "severity": severity, "message": "Something is wrong.", "remedy": "Look at it."}
    if values.get("path"):
        row["image_id"] = f"{hash(values['path']) & 0xFFFFFFFF:016x}"
    return row | values


@dataclass
class StubReport:
    """What the tests and the command line read of a report."""

    findings_: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    run: dict[str, Any]
    path: Path = field(default_factory=lambda: Path("photos-report"))

    def __init__(
        self,
        findings: Sequence[dict[str, Any]] = (),
        rows: Sequence[dict[str, Any]] = (),
        path: Path = Path("photos-report"),
        **run: Any,
    ) -> None:
        self.findings_, self.rows, self.path = list(findings), list(rows), path
        self.run = {
            "datasieve": "0.1.0",
            "status": "complete",
            "dataset": {"path": "photos", "layout": "folder"},
            "settings": {},
            "counts": {"images": 400, "ok": 397, "unreadable": 2, "refused": 1, "ignored": 0},
            "passed_over": {},
            "unmeasured": {},
            "advice": [],
            "timing": {"total": 4.2, "measure": 4.0},
            "verdict": "fix first",
            "verdict_reasons": [],
            **run,
        }

    @property
    def verdict(self) -> str:
        return str(self.run["verdict"])

    def findings(self) -> pa.Table:
        return pa.Table.from_pylist(self.findings_, schema=pa.schema([field_of(n) for n in FINDING_FIELDS]))

    def images(self, columns: Sequence[str] | None = None) -> pa.Table:
        schema = pa.schema([*(field_of(name) for name in IMAGE_FIELDS), *(arrow_field(c) for c in COLUMNS)])
        rows = [{name: row.get(name) for name in schema.names} for row in self.rows]
        table = pa.Table.from_pylist(rows, schema=schema)
        return table if columns is None else table.select(list(columns))

    def columns(self) -> dict[str, dict[str, str]]:
        return {f.name: {k.decode(): v.decode() for k, v in (f.metadata or {}).items()} for f in self.images().schema}


def image(path: str, **values: Any) -> dict[str, Any]:
    """Return a row of images.parquet."""
    made = {"image_id": finding("demo.blur", "info", path=path)["image_id"], "path": path, "concept": "cat"}
    return made | {"width": 640, "height": 480, "format": "JPEG", "status": "ok", "repeats": 1} | values


def messy(kinds: int = 25, each: int = 30) -> StubReport:
    """Return a report with many findings of many rules of all severities and actions."""
    verbs = ("Replace", "Convert", "Crop", "Rename", "Set", "Look at", "Caption", "Add")
    severities = ("error", "warning", "warning", "info")
    rows = [
        finding(
            f"kind{k}.fault",
            severities[k % 4],
            path=f"folder with a long name {i}/another folder/picture number {i} of kind {k}.jpeg",
            value=float(i),
            limit=3.5,
            message="A long sentence about what is wrong with this picture and what will come of it in training. " * 2,
            remedy=f"{verbs[k % len(verbs)]} this picture or another one, and then run the whole audit once more.",
        )
        for k in range(kinds)
        for i in range(each)
    ]
    return StubReport(
        rows,
        passed_over={"hidden file": 12, "Thumbs.db": 3, "AppleDouble shadow": 40},
        unmeasured={f"topic {i}": "there is nothing here to measure it with, sadly" for i in range(6)},
        advice=[f"concept {i}: 12 distinct images: repeats 2, 4 vectors per token, about 2100 steps" for i in range(8)],
        verdict_reasons=["210 errors", "390 of 400 images carry a warning"],
    )
