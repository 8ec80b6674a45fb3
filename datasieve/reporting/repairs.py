"""What a fix will do or has done, as lines for the terminal and as JSON."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from datasieve.reporting.text import count, safe, shortened
from datasieve.storage import to_json

if TYPE_CHECKING:
    from datasieve.repair.plan import Action
    from datasieve.repair.run import Fixed
    from datasieve.report import Report

EXAMPLES = 3
KINDS = {
    "copy": "copied byte for byte",
    "strip": "copied without personal data, pixels untouched",
    "change": "repaired and written as PNG",
    "set aside": "set aside as copies of others",
    "quarantine": "set aside as unreadable",
}


def told(report: Report) -> str:
    """Return how many errors and warnings a report holds, in words."""
    found = report.run["counts"]["findings"]
    return ", ".join(count(int(found[severity]), severity) for severity in ("error", "warning"))


def plan_lines(actions: Sequence[Action]) -> list[str]:
    """Return the plan: how many images go which way, what is repaired, and what was called for and cannot be done."""
    kinds: collections.Counter[str] = collections.Counter(str(action.kind) for action in actions)
    lines = [f"{count(len(actions), 'image')}"]
    lines += [f"  {kinds[kind]:>6,}  {words}" for kind, words in KINDS.items() if kinds[kind]]
    repaired: dict[str, list[str]] = {}
    skipped: dict[tuple[str, str], list[str]] = {}
    for action in actions:
        for step in action.steps:
            repaired.setdefault(step.repair, []).append(action.record.path)
        for name, why in action.skipped.items():
            skipped.setdefault((name, why), []).append(action.record.path)
    if repaired:
        lines += ["", "Repairs"]
        lines += [f"  {len(paths):>6,}  {name}  {_named(paths)}" for name, paths in sorted(repaired.items())]
    if skipped:
        lines += ["", "Not repaired"]
        for (name, why), paths in sorted(skipped.items()):
            lines.append(f"  {len(paths):>6,}  {name}: {safe(why)}  {_named(paths)}")
    return lines


def _named(paths: Sequence[str]) -> str:
    more = f" · and {len(paths) - EXAMPLES:,} more" if len(paths) > EXAMPLES else ""
    return " · ".join(shortened(safe(path), 40) for path in paths[:EXAMPLES]) + more


def plan_json(fixed: Fixed) -> str:
    """Return the plan as JSON: a list of images with what happens to each and why."""
    images: list[dict[str, Any]] = [
        {
            "path": action.record.path,
            "action": action.kind,
            "result": action.result,
            "reason": action.reason,
            "steps": [{"repair": s.repair, "rules": s.rules, "parameters": s.parameters} for s in action.steps],
            "skipped": dict(action.skipped),
        }
        for action in fixed.actions
    ]
    return to_json({"clean": str(fixed.clean), "set_aside": str(fixed.aside), "images": images})
