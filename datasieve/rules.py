"""Rules and findings: limits as data, so that retuning never means measuring again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["info", "warning", "error"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")
Side = Literal["above", "below", "is"]
Scope = Literal["image", "concept", "note"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A limit on one column, with everything a person needs to act on its violation.

    Attributes:
        id: `<analyzer>.<fault>`; names the fault, never the remedy; stable once released.
        column: the judged column; "" for rules whose findings are stated while files are listed (scope "note").
        side: "above" fires when value > limit, "below" when value < limit, "is" when value == limit.
        limit: the number (or truth value, or name) compared with.
        severity: "info", "warning" or "error".
        title: two to four words, as a heading ("Colour cast").
        message: one sentence for one finding; `{value}`, `{limit}`, `{path}`, any column name and any setting
            name are replaced, with Python's format specification: "{value:.0f} K", "{files.icc-name}".
        remedy: one imperative sentence for one finding; the same replacements.
        why: how it hurts TI, hypernetwork or LoRA training.
        how: how it is measured and where that fails.
        source: paper, standard, spec or issue the rule rests on.
        evidence: measured false-alarm and hit rate with where it was measured, or "provisional".
        repair: name of the repair that mends it, "" when only a person can.
        scope: "image" judges rows of images, "concept" rows of concepts.
        limits: other limits by name of base ("sd15", "sdxl"...) or target ("ti", "hypernetwork", "lora").
        setting: name of the setting that gives the limit, such as "resolution"; "" when the limit stands by itself.
        default: False for rules that run only when selected by id.
    """

    id: str
    column: str
    side: Side
    limit: float | bool | str
    severity: Severity
    title: str
    message: str
    remedy: str
    why: str
    how: str
    source: str = ""
    evidence: str = "provisional"
    repair: str = ""
    scope: Scope = "image"
    limits: Mapping[str, float] = field(default_factory=dict)
    setting: str = ""
    default: bool = True


@dataclass(frozen=True, slots=True)
class Note:
    """A fault that the listing of files met itself: the finding of a rule with scope "note".

    Attributes:
        rule: id of the rule.
        path: the file or folder (relative POSIX), "" for the dataset.
        message: one sentence.
    """

    rule: str
    path: str
    message: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One violation, ready to be shown."""

    rule: str
    severity: Severity
    image_id: str | None
    path: str | None
    concept: str | None
    value: float | None
    limit: float | None
    message: str
    remedy: str


_FIELD = re.compile(r"\{([A-Za-z0-9_.\-]+)(?::([^{}]*))?\}")


def fields(template: str) -> set[str]:
    """Return the names that `fill` would replace."""
    return {match[1] for match in _FIELD.finditer(template)}


def fill(template: str, values: Mapping[str, Any]) -> str:
    """Replace `{name}` and `{name:format}` in `template` from `values`; names may hold dots and hyphens.

    A missing or null value reads "unknown". Text from outside is taken as it is, so escape it where it is shown.
    """

    def replace(match: re.Match[str]) -> str:
        value = values.get(match[1])
        if value is None:
            return "unknown"
        return format(value, match[2] or "")

    return _FIELD.sub(replace, template)


def selected(rule_id: str, patterns: tuple[str, ...]) -> bool:
    """Tell whether `rule_id` is named by one of `patterns`: a whole id, or a prefix such as `colour`."""
    return any(rule_id == p or rule_id.startswith(p.rstrip(".") + ".") for p in patterns)
