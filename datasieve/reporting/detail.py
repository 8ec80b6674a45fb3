"""A closer look at a report: every finding of one rule, everything about one image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from datasieve.errors import InputError
from datasieve.reporting.summary import MARKS, STYLES, Page, worst_first
from datasieve.reporting.text import count, did_you_mean, number, safe, shortened
from datasieve.rules import Rule, selected
from datasieve.schema import IMAGE_FIELDS
from datasieve.storage import to_json

if TYPE_CHECKING:
    from datasieve.report import Report

LONGEST_VALUE = 60
"""Cells of a value that are shown; signatures are longer, and say nothing to a person."""

MEASUREMENT_FIELDS = ("column", "value", "unit", "description")
Row = Mapping[str, Any]


def findings_of(report: Report, rules: Mapping[str, Rule], rule: str | None) -> list[dict[str, Any]]:
    """Return the findings of `rule` (an id or a prefix; None: all), by rule, the worst first.

    Raises InputError, with names like it, when there is no such rule.
    """
    rows: list[dict[str, Any]] = report.findings().to_pylist()
    if rule is None:
        return rows
    known = dict.fromkeys([*rules, *(str(row["rule"]) for row in rows)])
    if not any(selected(rule_id, (rule,)) for rule_id in known):
        raise InputError(
            f"there is no rule {rule!r}",
            remedy=did_you_mean(rule, known, "List all rules with: datasieve explain"),
        )
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if selected(str(row["rule"]), (rule,)):
            groups.setdefault(str(row["rule"]), []).append(row)
    return [dict(row) for rule_id, group in sorted(groups.items()) for row in worst_first(group, rules.get(rule_id))]


def image_row(report: Report, name: str) -> dict[str, Any]:
    """Return the row of images.parquet for `name`: an image's path, its id, or an unmistakable end of its path.

    Raises InputError, naming candidates, when there is none or more than one.
    """
    paths: list[str] = report.images(["path"])["path"].to_pylist()
    ids: list[str] = report.images(["image_id"])["image_id"].to_pylist()
    asked = name.removeprefix("./").replace("\\", "/") if name not in paths else name
    found = [i for i, path in enumerate(paths) if path == asked or ids[i] == name]
    if not found:
        ends = ("/" + asked, "::" + asked)
        found = [i for i, path in enumerate(paths) if path.endswith(ends)]
    if not found:
        # What `safe` shows of a name with control characters can be typed back.
        found = [i for i, path in enumerate(paths) if safe(path) == name]
    if not found:
        raise InputError(
            f"{report.path} has no image {name!r}",
            remedy=did_you_mean(name, paths, "List the images with: datasieve show REPORT --format csv"),
        )
    if len(found) > 1:
        some = ", ".join(paths[i] for i in found[:5])
        raise InputError(f"{name!r} names {len(found)} images", remedy=f"Give the whole path: {some}")
    row: dict[str, Any] = report.images().slice(found[0], 1).to_pylist()[0]
    return row


def measurements(report: Report, row: Row) -> list[dict[str, Any]]:
    """Return every measurement of an image as rows of MEASUREMENT_FIELDS; reasons come as `<analyzer>.unmeasured`."""
    columns = report.columns()
    return [
        {
            "column": name,
            "value": value,
            "unit": columns.get(name, {}).get("unit", ""),
            "description": columns.get(name, {}).get("description", ""),
        }
        for name, value in row.items()
        if name not in IMAGE_FIELDS and not (name.endswith(".unmeasured") and not value)
    ]


def image_json(row: Row, measured: Sequence[Row], findings: Sequence[Row]) -> str:
    """Return one image as a strict JSON object."""
    facts = {name: row[name] for name in IMAGE_FIELDS if name in row}
    return to_json({**facts, "measurements": list(measured), "findings": list(findings)})


def image_lines(row: Row, measured: Sequence[Row], findings: Sequence[Row], console: Console) -> list[Text]:
    """Return everything about one image as lines: facts, findings, measurements by analyzer."""
    page = Page(console)
    page.add((safe(str(row["path"])), "bold"))
    size = f"{row['width']} x {row['height']} px" if row.get("width") else ""
    facts = [safe(str(row.get("format") or "")), size, f"status {row.get('status')}", f"id {row['image_id']}"]
    page.add(", ".join(fact for fact in facts if fact))
    for name in ("error", "concept", "caption"):
        if row.get(name):
            page.add((f"{name.capitalize()}: ", "bold"), safe(str(row[name])), hang=9, most=4)
    page.gap()
    page.add(("Findings", "bold underline"), f" ({len(findings)})")
    for finding in findings:
        _finding(page, finding, named=False)
    if not findings:
        page.add("none", indent=2)
    widest = max((len(str(m["column"]).partition(".")[2]) for m in measured), default=0)
    group = ""
    for measurement in measured:
        analyzer, _, quantity = str(measurement["column"]).partition(".")
        if analyzer != group:
            group = analyzer
            page.gap()
            page.add((analyzer, "bold underline"))
        value = shortened(number(measurement["value"], str(measurement["unit"])), LONGEST_VALUE)
        style = "dim" if measurement["value"] is None or quantity == "unmeasured" else ""
        page.add(f"{safe(quantity):<{widest}}  ", (value, style), indent=2, hang=widest + 4)
    return page.lines


def rule_lines(report: Report, rules: Mapping[str, Rule], findings: Sequence[Row], console: Console) -> list[Text]:
    """Return every finding in `findings` as lines, under a heading per rule."""
    page = Page(console)
    groups: dict[str, list[Row]] = {}
    for row in findings:
        groups.setdefault(str(row["rule"]), []).append(row)
    for rule_id, rows in groups.items():
        rule = rules.get(rule_id)
        page.gap()
        page.add((rule.title if rule else rule_id, "bold"), f"  {rule_id}  ", count(len(rows), "finding"))
        if rule:
            page.add((rule.why, "dim"), most=4)
        for row in rows:
            _finding(page, row, named=True)
        page.gap()
        page.add("What it is, how it is measured: ", (f"datasieve explain {rule_id}", "bold cyan"))
    if not groups:
        page.add(f"{safe(str(report.path))} has no such findings.")
    return page.lines


def _finding(page: Page, row: Row, *, named: bool) -> None:
    severity = str(row["severity"])
    name = safe(str(row["path"] or row["concept"] or "the set")) if named else str(row["rule"])
    page.add((f"{MARKS[severity]} {severity:<7}", STYLES[severity]), f"  {name}", indent=2, hang=13)
    page.add(safe(str(row["message"])), indent=13)
    if row["remedy"]:
        page.add(("→ " + safe(str(row["remedy"])), "italic"), indent=13, hang=15)
