"""A rule in words: the same sections for `explain`, the documentation and SARIF's help."""

from __future__ import annotations

import re

from datasieve.config import RESOLUTIONS
from datasieve.reporting.text import number
from datasieve.rules import Rule
from datasieve.schema import Column

_FIELD = re.compile(r"\{([A-Za-z0-9_.\-]+)(?::[^{}]*)?\}")

TARGETS = {"ti": "textual inversion", "hypernetwork": "hypernetwork", "lora": "LoRA"}
_SCOPES = {"image": "each image", "concept": "each concept", "note": "the listing of files"}
_SIDES = {"above": "above", "below": "below"}


def spoken_template(template: str) -> str:
    """Return a message template with its fields shown as `<name>`: what a person may read before there is a finding."""
    return _FIELD.sub(r"<\1>", template)


def limit_text(rule: Rule, column: Column | None) -> str:
    """Return when `rule` fires, with its other limits by base and target: "above 30 mired (lora: 40 mired)"."""
    unit = column.unit if column else ""
    if not rule.column:
        return "whenever it is met while files are listed"
    if rule.side == "is":
        fires = f"when it is {number(rule.limit, unit)}"
    else:
        fires = f"{_SIDES[rule.side]} {number(rule.limit, unit)}"
    others = [f"{_target(name)}: {number(limit, unit)}" for name, limit in rule.limits.items()]
    return fires + (f" ({', '.join(others)})" if others else "")


def _target(name: str) -> str:
    if name in RESOLUTIONS:
        return f"base {name}"
    return f"for {TARGETS.get(name, name)}"


def column_text(column: Column) -> str:
    """Return a column's unit and range in words: "in bits, 0 to 6.34"."""
    unit = f"in {column.unit}" if column.unit else {"bool": "yes or no", "string": "a name"}.get(column.kind, "")
    low = "" if column.low is None else f"{column.low:g}"
    high = "" if column.high is None else f"{column.high:g}"
    if low and high:
        span = f"{low} to {high}"
    elif low:
        span = f"at least {low}"
    elif high:
        span = f"at most {high}"
    else:
        span = ""
    return ", ".join(part for part in (unit, span) if part)


def sections(rule: Rule, column: Column | None = None) -> list[tuple[str, str]]:
    """Return (heading, text) of everything a rule knows, without empty ones, in reading order."""
    judged = ""
    if rule.column:
        judged = rule.column
        if column:
            judged += f" ({column_text(column)})" if column_text(column) else ""
            judged += f": {column.description}" if column.description else ""
    source = rule.source
    if column and column.source and column.source not in source:
        source = f"{source}; {column.source}" if source else column.source
    found = [
        ("What it says", spoken_template(rule.message)),
        ("Why it hurts", rule.why),
        ("What to do", spoken_template(rule.remedy)),
        ("Fires", f"{limit_text(rule, column)}; looks at {_SCOPES[rule.scope]}"),
        ("Severity", rule.severity + ("" if rule.default else ", only when selected with --select")),
        ("Column", judged),
        ("How it is measured", rule.how),
        ("Evidence", rule.evidence),
        ("Source", source),
    ]
    return [(heading, text) for heading, text in found if text]


def help_text(rule: Rule) -> str:
    """Return why a rule matters and what to do, as plain text."""
    return f"{rule.why}\n\nWhat to do: {spoken_template(rule.remedy)}\n\nHow it is measured: {rule.how}"


def help_markdown(rule: Rule) -> str:
    """Return `help_text` as Markdown."""
    remedy, how = escaped(spoken_template(rule.remedy)), escaped(rule.how)
    return f"{escaped(rule.why)}\n\n**What to do:** {remedy}\n\n**How it is measured:** {how}"


def escaped(text: str) -> str:
    """Return `text` for Markdown: angle brackets and asterisks show as themselves."""
    return re.sub(r"([<>*\\])", r"\\\1", text)


def rule_markdown(rule: Rule, column: Column | None = None) -> str:
    """Return the documentation page of a rule."""
    lines = [f"# {rule.title}", "", f"`{rule.id}` · {rule.severity}", ""]
    for heading, text in sections(rule, column):
        if heading == "Severity" and rule.default:
            continue
        lines += [f"## {heading}", "", escaped(text), ""]
    return "\n".join(lines)
