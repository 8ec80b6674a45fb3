"""What a fix will do or has done, as lines for the terminal and as JSON."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from datasieve.reporting.text import count, safe, shortened
from datasieve.rules import selected
from datasieve.storage import to_json

if TYPE_CHECKING:
    from datasieve.repair.plan import Action
    from datasieve.repair.run import Fixed
    from datasieve.repair.undo import Undone
    from datasieve.report import Report
    from datasieve.rules import Rule

EXAMPLES, MOST_ASIDE = 3, 20
KINDS = {
    "copy": "copied byte for byte",
    "strip": "copied without personal data, pixels untouched",
    "change": "repaired and written anew",
    "set aside": "set aside as copies of others",
    "quarantine": "set aside as unreadable",
}


KEPT = "copied byte for byte, with repaired captions"
CUT_OUT = "cut out of others"


def _words(action: Action) -> str:
    """Return what happens to an image, in words."""
    if action.is_cut_out:
        return CUT_OUT
    captions = any(step.repair == "captions" for step in action.steps)
    return KEPT if action.kind == "copy" and captions else KINDS[action.kind]


def told(report: Report) -> str:
    """Return how many errors and warnings a report holds, in words."""
    found = report.run["counts"]["findings"]
    return ", ".join(count(int(found[severity]), severity) for severity in ("error", "warning"))


def plan_lines(actions: Sequence[Action]) -> list[str]:
    """Return the plan: how many images go which way, what is repaired, and what was called for and cannot be done."""
    kinds = collections.Counter(map(_words, actions))
    order = (KINDS["copy"], KEPT, *list(KINDS.values())[1:], CUT_OUT)
    lines = [f"{count(sum(not action.is_cut_out for action in actions), 'image')}"]
    lines += [f"  {kinds[words]:>6,}  {words}" for words in order if kinds[words]]
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
    aside = [action for action in actions if action.reason]
    if aside:
        lines += ["", "Set aside"]
        lines += [f"  {shortened(safe(a.record.path), 40)}: {safe(a.reason)}" for a in aside[:MOST_ASIDE]]
        if len(aside) > MOST_ASIDE:
            lines.append(f"  and {len(aside) - MOST_ASIDE:,} more; --format json lists them all")
    if skipped:
        lines += ["", "Not repaired"]
        for (name, why), paths in sorted(skipped.items()):
            lines.append(f"  {len(paths):>6,}  {name}: {safe(why)}  {_named(paths)}")
    return lines


def left_lines(
    actions: Sequence[Action], findings: Sequence[Mapping[str, Any]], rules: Mapping[str, Rule]
) -> list[str]:
    """Return the warnings and errors that no repair of the plan answers, with what a person can do about them."""
    mended = {(a.record.image_id, rule) for a in actions for step in a.steps for rule in step.rules}
    gone = {a.record.image_id for a in actions if a.reason}
    left = collections.Counter(
        str(f["rule"])
        for f in findings
        if f["severity"] != "info" and f["image_id"] not in gone and (f["image_id"], f["rule"]) not in mended
    )
    if not left:
        return []
    lines = ["", "Left for you"]
    for rule_id, number in left.most_common():
        title = rules[rule_id].title if rule_id in rules else rule_id
        lines.append(f"  {number:>6,}  {title}  {rule_id}")
    return [*lines, "  What to do about each: datasieve explain RULE"]


def unanswered(patterns: Sequence[str], rules: Iterable[str]) -> list[str]:
    """Return those of `patterns` that select no rule with a repair."""
    known = list(rules)
    return [pattern for pattern in patterns if not any(selected(rule, (pattern,)) for rule in known)]


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
            "derived_from": action.derived_from or None,
        }
        for action in fixed.actions
    ]
    return to_json({"clean": str(fixed.clean), "set_aside": str(fixed.aside), "images": images})


def undone_lines(done: Undone) -> list[str]:
    """Return what an undo did, and what it left."""
    folder = safe(str(done.folder))
    if done.in_place:
        lines = [f"{count(len(done.restored), 'original')} restored and {count(len(done.removed), 'file')} removed "
                 f"in {folder}"]  # fmt: skip
    else:
        lines = [f"{count(len(done.removed), 'file')} removed from {folder}"]
    if done.left:
        lines += ["", "Left as they are"]
        lines += [f"  {safe(path)}: {safe(why)}" for path, why in list(done.left.items())[:MOST_ASIDE]]
        if len(done.left) > MOST_ASIDE:
            lines.append(f"  and {len(done.left) - MOST_ASIDE:,} more")
    return lines
