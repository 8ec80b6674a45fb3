"""Findings for machines: strict JSON, CSV, SARIF 2.1.0 and GitHub workflow commands.

Every function is pure: findings in, text out. Text from outside (file names, messages) is escaped as the format asks
for and is otherwise left as it is.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from datasieve.reporting.rule_text import help_markdown, help_text
from datasieve.rules import Rule
from datasieve.schema import FINDING_FIELDS
from datasieve.storage import plain, readable, to_json

if TYPE_CHECKING:
    from datasieve.report import Report

Row = Mapping[str, Any]
"""One finding (or other table row) by field name, as `pyarrow.Table.to_pylist` gives it."""

Format = Literal["text", "json", "csv", "sarif", "github"]

SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_COMMANDS = {"error": "error", "warning": "warning", "info": "notice"}


def overview(report: Report) -> dict[str, Any]:
    """Return what run.json says about the outcome, in the order a reader wants it."""
    run = report.run
    names = ("status", "verdict", "dataset", "counts", "passed_over", "unmeasured", "advice", "settings")
    return {"datasieve": run.get("datasieve"), "report": str(report.path), **{n: run[n] for n in names if n in run}}


def findings_json(report: Report, findings: Sequence[Row]) -> str:
    """Return one strict JSON object: the overview of `report`, then `findings` as a list of objects."""
    return to_json({**overview(report), "findings": [_fields(row) for row in findings]})


def _fields(row: Row) -> dict[str, Any]:
    return {name: row.get(name) for name in FINDING_FIELDS}


def rows_csv(rows: Iterable[Row], fields: Sequence[str] = FINDING_FIELDS) -> str:
    """Return `rows` as CSV (RFC 4180, but with bare newlines) under a header; nulls are empty.

    All text is quoted: the csv module would leave a lone carriage return bare, which readers take for a line's end.
    """
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(fields)
    for row in rows:
        values = [plain(row.get(name)) for name in fields]
        writer.writerow(["" if value is None else value for value in values])
    return out.getvalue()


def below(folder: Path, start: Path) -> str | None:
    """Return a folder as a POSIX path relative to `start` ("" for `start` itself), None when it lies elsewhere.

    Tools that read SARIF and GitHub's log expect paths relative to the checkout, where the command is run.
    """
    try:
        relative = folder.resolve().relative_to(start.resolve()).as_posix()
    except ValueError:
        return None
    return "" if relative == "." else relative


def _folder(dataset: Path) -> Path:
    # Of a shard or a list of files, paths are relative to the folder it lies in.
    return dataset.parent if dataset.is_file() else dataset


def _file_of(path: str) -> str:
    # A shard's member is no file; what a viewer can open is the shard.
    head, mark, _ = path.partition(".tar::")
    return f"{head}.tar" if mark else path


def _uri(path: str) -> str:
    return quote(path.encode("utf-8", "surrogateescape"), safe="/")


def findings_sarif(findings: Sequence[Row], rules: Mapping[str, Rule], *, version: str, dataset: Path) -> str:
    """Return a SARIF 2.1.0 log with one run.

    Args:
        findings: rows with the fields of FINDING_FIELDS.
        rules: rules by id; only those that have findings are listed. A finding of an unknown rule is kept.
        version: datasieve's version.
        dataset: the audited folder or file. URIs are relative to the current folder (base id `%SRCROOT%`) when it
            lies inside, else to the dataset (base id `DATASET`, given in `originalUriBaseIds`).
    """
    used = sorted({str(row["rule"]) for row in findings})
    index = {rule_id: i for i, rule_id in enumerate(used)}
    folder = _folder(dataset)
    prefix = below(folder, Path.cwd())
    base = "DATASET" if prefix is None else "%SRCROOT%"
    results = []
    for row in findings:
        result: dict[str, Any] = {
            "ruleId": row["rule"],
            "ruleIndex": index[str(row["rule"])],
            "level": _LEVELS[str(row["severity"])],
            "message": {"text": f"{row['message']} {row['remedy'] or ''}".strip()},
            "partialFingerprints": {"datasieve/v1": f"{row['rule']}:{row['path'] or row['concept'] or ''}"},
            "properties": {"value": row["value"], "limit": row["limit"], "concept": row["concept"] or ""},
        }
        file = _joined(prefix or "", _file_of(str(row["path"] or "")))
        location: dict[str, Any] = {
            "physicalLocation": {"artifactLocation": {"uri": _uri(file) or ".", "uriBaseId": base}}
        }
        if row["path"] and _file_of(str(row["path"])) != row["path"]:
            location["logicalLocations"] = [{"fullyQualifiedName": row["path"], "kind": "member"}]
        result["locations"] = [location]
        results.append(result)
    run: dict[str, Any] = {
        "tool": {"driver": {"name": "datasieve", "version": version, "rules": [_sarif_rule(i, rules) for i in used]}},
        "invocations": [{"executionSuccessful": True}],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    if prefix is None:
        run["originalUriBaseIds"] = {base: {"uri": folder.resolve().as_uri().rstrip("/") + "/"}}
    return to_json({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]})


def _joined(prefix: str, path: str) -> str:
    return "/".join(part for part in (prefix, path) if part)


def _sarif_rule(rule_id: str, rules: Mapping[str, Rule]) -> dict[str, Any]:
    rule = rules.get(rule_id)
    if rule is None:
        return {"id": rule_id, "shortDescription": {"text": rule_id}}
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.id.replace(".", "-").split("-")),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": help_text(rule), "markdown": help_markdown(rule)},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": [rule.id.partition(".")[0]]},
    }


def findings_github(findings: Iterable[Row], rules: Mapping[str, Rule], *, dataset: Path) -> str:
    """Return one workflow command a finding: `::error file=...,title=...::message`.

    Files are relative to the current folder when the dataset lies inside it, else absolute. Source of the escapes:
    GitHub's actions/toolkit, packages/core (`%`, CR and LF everywhere; `:` and `,` in properties as well).
    """
    folder = _folder(dataset)
    prefix = below(folder, Path.cwd())
    if prefix is None:
        prefix = folder.resolve().as_posix()
    lines = []
    for row in findings:
        rule = rules.get(str(row["rule"]))
        title = f"{rule.title if rule else 'datasieve'} ({row['rule']})"
        # What the log shows is plain text, so the member's full name can stay.
        file = _joined(prefix, str(row["path"] or ""))
        properties = [f"file={_property(file)}"] if row["path"] and file else []
        properties.append(f"title={_property(title)}")
        where = f"{row['path'] or row['concept']}: " if row["path"] or row["concept"] else ""
        message = f"{where}{row['message']} {row['remedy'] or ''}".strip()
        lines.append(f"::{_COMMANDS[str(row['severity'])]} {','.join(properties)}::{_data(message)}")
    return "".join(line + "\n" for line in lines)


def _data(text: str) -> str:
    return readable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
