"""What `datasieve curate` tells: how many images of each concept, and why the others were left out."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from datasieve.reporting.summary import command, here
from datasieve.reporting.text import count, safe, shortened
from datasieve.storage import to_json

if TYPE_CHECKING:
    from datasieve.curation.run import Curated

EXAMPLES, MOST_CONCEPTS = 3, 12


def curation_lines(done: Curated, *, dry_run: bool) -> list[str]:
    """Return the account of a curation, ready to print."""
    parts = Counter(choice.part for choice in done.choices)
    lines = [f"Set       {count(parts['train'], 'image')} to train on, of {len(done.choices)}"]
    if parts["validation"]:
        lines.append(f"Held out  {count(parts['validation'], 'image')}")
    concepts = Counter(choice.row["concept"] or "" for choice in done.choices if choice.part != "left out")
    if len(concepts) > 1 or "" not in concepts:
        lines += ["", "Concepts"]
        shown = sorted(concepts.items())[:MOST_CONCEPTS]
        lines += [f"  {number:5}  {safe(concept) or '(none)'}" for concept, number in shown]
        if len(concepts) > len(shown):
            lines.append(f"         and {len(concepts) - len(shown)} more concepts")
    reasons: dict[str, list[tuple[str, str]]] = {}
    for choice in done.choices:
        if choice.part == "left out":
            reasons.setdefault(_kind(choice.reason), []).append((choice.row["path"], choice.reason))
    if reasons:
        lines += ["", "Left out"]
        for kind, found in sorted(reasons.items(), key=lambda item: -len(item[1])):
            lines.append(f"  {len(found):5}  {kind}")
            for path, reason in found[:EXAMPLES]:
                lines.append(f"         {safe(path)}: {shortened(safe(reason), 100)}")
            if len(found) > EXAMPLES:
                lines.append(f"         and {len(found) - EXAMPLES} more")
    lines += [f"Note      {note}" for note in done.notes]
    lines.append("")
    if dry_run:
        lines.append("Nothing was written. Run it without --dry-run to write the set.")
        return lines
    if done.after is not None:
        lines.append(f"Verdict   {done.before.verdict} before, {done.after.verdict} now")
    lines.append(f"Set       {safe(str(here(done.folder)))} ({done.layout}; each image's fate in curation.parquet)")
    if done.after is not None:
        lines.append(f"Next      {command('show', here(done.after.path))}")
    return lines


def _kind(reason: str) -> str:
    """Return what reasons have in common: the rule, or the first words."""
    head, colon, _ = reason.partition(": ")
    if colon and " " not in head:
        return head
    for start, kind in (
        ("It is a copy", "copies"),
        ("It cannot be used", "cannot be used"),
        ("Readers of", "not read by this layout"),
    ):
        if reason.startswith(start):
            return kind
    return "a condition is not met" if " is asked for" in reason else "more than were wanted"


def curation_json(done: Curated) -> str:
    """Return the same as JSON."""
    return to_json(
        {
            "layout": done.layout,
            "folder": str(done.folder),
            "verdict": {"before": done.before.verdict, "after": done.after.verdict if done.after else None},
            "notes": list(done.notes),
            "images": [
                {
                    "path": c.row["path"],
                    "concept": c.row["concept"],
                    "part": c.part,
                    "reason": c.reason,
                    "quality": c.quality,
                }
                for c in done.choices
            ],
        }
    )
