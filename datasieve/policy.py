"""The policy: rules with their limits in force, findings from columns, and the verdict. Looks at no pixels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from datasieve.analyzers import load, names
from datasieve.config import Settings
from datasieve.errors import ConfigError
from datasieve.rules import Finding, Note, Rule, fields, fill, selected
from datasieve.sources.rules import RULES as LAYOUT_RULES

FEWEST_USABLE = 3
"""With fewer usable images there is nothing to generalise from. Provisional."""
MOST_UNUSABLE_SHARE = 0.5
"""With more unusable images than this, the set was damaged as a whole. Provisional."""
MOST_WARNED_SHARE = 0.1
"""With more images under a warning than this, mend before training. Provisional."""


@cache
def all_rules() -> dict[str, Rule]:
    """Return every rule by id, those of the file listing first."""
    rules = list(LAYOUT_RULES)
    for name in names():
        rules += load(name).rules
    return {rule.id: rule for rule in rules}


def rules_in_force(settings: Settings) -> dict[str, Rule]:
    """Return the rules that `settings` select, with the limits of its base, target and `limits` put in.

    Raises ConfigError for a name in select, ignore or limits that fits no rule.
    """
    rules = all_rules()
    for pattern in (*settings.select, *settings.ignore):
        if not any(selected(rule, (pattern,)) for rule in rules):
            raise ConfigError(f"no rule is called {pattern!r}", remedy="List them with: datasieve explain")
    for rule_id in settings.limits:
        if rule_id not in rules or not isinstance(rules[rule_id].limit, int | float) or rules[rule_id].side == "is":
            raise ConfigError(f"no rule {rule_id!r} has a limit", remedy="List them with: datasieve explain")
    chosen = {}
    for rule_id, rule in rules.items():
        wanted = selected(rule_id, settings.select) if settings.select else rule.default
        if not wanted or selected(rule_id, settings.ignore):
            continue
        limit: float | bool | str = rule.limit
        for profile in (settings.base, settings.target):
            limit = rule.limits.get(profile, limit)
        if rule.setting:
            limit = settings.words()[rule.setting]
        limit = settings.limits.get(rule_id, limit)
        chosen[rule_id] = replace(rule, limit=limit)
    return chosen


def violated(rule: Rule, values: pa.Array | pa.ChunkedArray) -> list[int]:
    """Return the positions of the values that violate `rule`; nulls never do."""
    if rule.side == "above":
        hits = pc.greater(values, rule.limit)
    elif rule.side == "below":
        hits = pc.less(values, rule.limit)
    else:
        hits = pc.equal(values, rule.limit)
    positions: list[int] = pc.indices_nonzero(pc.fill_null(hits, False)).to_pylist()
    return positions


IDENTITY = ("image_id", "path", "concept")


def judge(table: pa.Table, rules: Iterable[Rule], scope: str, words: Mapping[str, Any]) -> list[Finding]:
    """Return the findings of the rules of one scope on the rows of `table` ("image" or "concept" rows).

    Rules whose column the table lacks are passed over. `words` are the settings that messages may name.
    """
    findings = []
    for rule in rules:
        if rule.scope != scope or rule.column not in table.column_names:
            continue
        positions = violated(rule, table[rule.column])
        if positions:
            named = {*IDENTITY, rule.column, *fields(rule.message), *fields(rule.remedy)}
            rows = table.select([n for n in table.column_names if n in named]).take(positions).to_pylist()
            findings += [_finding(rule, row, words) for row in rows]
    return findings


def _finding(rule: Rule, row: Mapping[str, Any], words: Mapping[str, Any]) -> Finding:
    value = row[rule.column]
    values = {**words, **row, "value": value, "limit": rule.limit}
    return Finding(
        rule=rule.id,
        severity=rule.severity,
        image_id=row.get("image_id"),
        path=row.get("path"),
        concept=row.get("concept"),
        value=_number(value),
        limit=_number(rule.limit),
        message=fill(rule.message, values),
        remedy=fill(rule.remedy, values),
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def judge_notes(notes: Sequence[Note], rules: Mapping[str, Rule], ids: Mapping[str, str]) -> list[Finding]:
    """Return the findings of what the listing of files met. `ids` maps the paths of images to their image_id."""
    return [
        Finding(
            rule=note.rule,
            severity=rules[note.rule].severity,
            image_id=ids.get(note.path),
            path=note.path or None,
            concept=None,
            value=None,
            limit=None,
            message=note.message,
            remedy=rules[note.rule].remedy,
        )
        for note in notes
        if note.rule in rules
    ]


@dataclass(slots=True)
class Tally:
    """What the verdict rests on, counted while findings are written."""

    images: int = 0
    usable: int = 0
    errors: int = 0
    warnings: int = 0
    infos: int = 0
    accepted: int = 0
    warned_images: int = 0

    def add(self, findings: Sequence[Finding]) -> None:
        """Count findings; those of one image must come in one call."""
        self.errors += sum(f.severity == "error" for f in findings)
        self.warnings += sum(f.severity == "warning" for f in findings)
        self.infos += sum(f.severity == "info" for f in findings)
        self.warned_images += len({f.image_id for f in findings if f.severity != "info" and f.image_id})


def verdict(tally: Tally) -> tuple[str, list[str]]:
    """Return "ready", "fix first" or "not trainable", and the reasons (docs/verdict.md)."""
    unusable = tally.images - tally.usable
    if not tally.usable:
        return "not trainable", ["no image can be used"]
    if tally.usable < FEWEST_USABLE:
        return "not trainable", [
            f"only {tally.usable} of {tally.images} images can be used; {FEWEST_USABLE} are needed"
        ]
    if unusable > MOST_UNUSABLE_SHARE * tally.images:
        return "not trainable", [f"{unusable} of {tally.images} images cannot be used"]
    reasons = []
    if tally.errors:
        reasons.append(f"{tally.errors} error" + ("s" if tally.errors > 1 else ""))
    if tally.warned_images > MOST_WARNED_SHARE * tally.images:
        reasons.append(f"{tally.warned_images} of {tally.images} images carry a warning")
    if reasons:
        return "fix first", reasons
    return "ready", ["no error, and few warnings" if tally.warnings else "nothing found that would harm training"]


def advice(concepts: Sequence[Mapping[str, Any]], settings: Settings) -> list[str]:
    """Return suggestions for repeats, steps and vectors per concept: conventions in use, not measurements.

    Args:
        concepts: rows with `concept`, `distinct` (usable images that are no copy of another) and `repeats`.

    Source: the settings that trainers' own documents and users report (docs/advice.md).
    """
    lines = []
    most = max((c["distinct"] for c in concepts), default=0)
    for row in sorted(concepts, key=lambda c: -c["distinct"])[:8]:
        count = row["distinct"]
        if count < FEWEST_USABLE:
            continue
        name = f"{row['concept']}: " if row["concept"] else ""
        repeats = f"repeats {max(1, round(most / count))}, " if len(concepts) > 1 else ""
        if settings.target == "ti":
            vectors = 1 if count < 5 else 2 if count < 10 else 4 if count < 30 else 8
            size, steps = f"{vectors} vector{'s' if vectors > 1 else ''} per token", min(6000, 1500 + 50 * count)
        elif settings.target == "hypernetwork":
            layers = "1, 1" if count < 10 else "1, 2, 1"
            size, steps = f"layer structure {layers} at learning rate 5e-6", min(20000, 4000 + 200 * count)
        else:
            size, steps = f"rank {8 if count < 20 else 16 if count < 100 else 32}", min(8000, 1000 + 50 * count)
        text = f"{size}, about {round(steps, -2)} steps"
        lines.append(f"{name}{count} distinct images: {repeats}{text}")
    return lines
