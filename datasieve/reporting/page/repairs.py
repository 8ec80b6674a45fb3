"""The part of the page on what a fix did: before and after, and where each change came from."""

from __future__ import annotations

import collections
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from datasieve.errors import DatasieveError
from datasieve.report import Report, open_report
from datasieve.reporting.page.lists import MOST, LongList, key_of
from datasieve.reporting.page.pictures import LARGE, THUMBNAILS, Picture, Pictures
from datasieve.reporting.repairs import KINDS
from datasieve.reporting.text import number, safe
from datasieve.sources import open_source
from datasieve.sources.walk import PROVENANCE

PAIRS, ASIDE = 8, 12
LONGEST_VALUE = 60


class Repairs:
    """What `fix` did to the set that a report is of.

    Args:
        report: the report of the repaired set.
        rows: rows of provenance.parquet.
    """

    def __init__(self, report: Report, rows: list[dict[str, Any]]) -> None:
        self.report, self.rows = report, rows
        self.after = Pictures(report, LARGE)
        self.before, self.why = self._originals()
        self.units = {name: fact.get("unit", "") for name, fact in report.columns().items()}

    def _originals(self) -> tuple[Pictures | None, str]:
        """Return the pictures before the fix, or why they cannot be shown."""
        source = self.report.run.get("repaired-from")
        if not isinstance(source, Mapping):
            return None, "The report does not tell what the set was made from."
        try:
            opened = open_report(str(source.get("report")))
        except DatasieveError as error:
            return None, f"The report of the original set cannot be read: {safe(str(error.args[0]))}"
        made = Pictures(opened, LARGE)
        made.folder = self.report.path / THUMBNAILS
        return made, ""

    def view(self) -> dict[str, Any]:
        """Return what the template shows; pictures in it are filled by `find`."""
        kinds = collections.Counter(str(row["action"]) for row in self.rows)
        changed = [row for row in self.rows if row["action"] == "change"]
        changed.sort(key=lambda row: (-len(_steps(row)), row["path"]))
        aside = [row for row in self.rows if row["action"] in ("set aside", "quarantine")]
        asides: list[dict[str, Any]] = [self._aside(row) for row in aside[:MOST]]
        pairs: list[dict[str, Any]] = [self._pair(row) for row in changed[:MOST]]
        return {
            "kinds": [{"count": f"{kinds[k]:,}", "words": words} for k, words in KINDS.items() if kinds[k]],
            "pairs": LongList("repaired", "Repaired pictures", pairs, len(changed), PAIRS, "slider"),
            "aside": LongList("aside", "Set aside", asides, len(aside), ASIDE, "picture") if aside else None,
            "why": self.why,
            "table": safe(str(Path(self.report.run["dataset"]["path"]) / PROVENANCE)),
        }

    def _before(self, row: Mapping[str, Any]) -> Picture:
        if self.before is None:
            return Picture(safe(row["path"]), why="original not found")
        return self.before.of(row["image_id"], row["path"])

    def _aside(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {"picture": self._before(row), "note": safe(row["reason"] or "")}

    def _pair(self, row: Mapping[str, Any]) -> dict[str, Any]:
        said = [f"{name} ({', '.join(rules)}){values}" for name, rules, values in _steps(row)]
        return {
            "picture": self._before(row),
            "other": self.after.at(row["result"]),
            "key": "pair-" + key_of(row["image_id"]),
            "note": safe("; ".join(said)),
            "value": safe(self._changes(row)),
        }

    def _changes(self, row: Mapping[str, Any]) -> str:
        """Return which measures the repair moved, and from what to what."""
        before, after = _loaded(row["before"]), _loaded(row["after"])
        told = [
            f"{name}: {number(old, self.units.get(name, ''))} → {number(after[name], self.units.get(name, ''))}"
            for name, old in before.items()
            if name in after and after[name] is not None and old is not None and after[name] != old
        ]
        return "; ".join(told)

    def find(self, max_pixels: int) -> set[str]:
        """Fill all pictures; return the names of the thumbnails in use."""
        self.after.find(open_source(Path(self.report.run["dataset"]["path"])).records, max_pixels)
        if self.before is not None:
            self.before.find(open_source(Path(self.report.run["repaired-from"]["dataset"])).records, max_pixels)
        return self.after.kept | (self.before.kept if self.before is not None else set())


def repairs(report: Report) -> Repairs | None:
    """Return what a fix did to the set, None when it is no result of one."""
    file = Path(str(report.run.get("dataset", {}).get("path", ""))) / PROVENANCE
    try:
        rows = pq.ParquetFile(file).read().to_pylist() if file.is_file() else []
    except (OSError, pa.ArrowInvalid):
        return None
    needed = {"image_id", "path", "result", "action", "reason", "steps", "before", "after"}
    return Repairs(report, rows) if rows and needed <= rows[0].keys() else None


def _loaded(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _steps(row: Mapping[str, Any]) -> list[tuple[str, list[str], str]]:
    """Return repair, rules and parameters in words, of each step of a change."""
    try:
        steps = json.loads(row["steps"] or "[]")
    except ValueError:
        return []
    made = []
    for step in steps if isinstance(steps, list) else []:
        values = step.get("parameters") or {}
        told = ", ".join(f"{k} {_value(v)}" for k, v in values.items()) if isinstance(values, dict) else ""
        made.append(
            (str(step.get("repair")), [str(rule) for rule in step.get("rules") or ()], f": {told}" if told else "")
        )
    return made


def _value(value: Any) -> str:
    if isinstance(value, list):
        text = " ".join(_value(v) for v in value)
        return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
    if isinstance(value, bool) or value is None or not isinstance(value, int | float):
        return str(value)[:LONGEST_VALUE]
    return number(value)
