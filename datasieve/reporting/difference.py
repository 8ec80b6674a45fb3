"""What changed between two reports: verdict, findings, images, and where measurements moved."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from datasieve.reporting.text import count, safe
from datasieve.storage import to_json

if TYPE_CHECKING:
    from datasieve.report import Report

MOVED = 0.5
"""A column's median is told when it moved by more than half of the spread (interquartile range) it had before."""

MOST = 10


@dataclass(frozen=True)
class Difference:
    """What B is beside A.

    Attributes:
        verdicts: before and after.
        rules: rule id -> findings before and after, where the numbers differ.
        gone, new: images of A alone and of B alone, by path.
        changed: images of both whose bytes differ.
        moved: column -> median before, median after, spread before.
        notes: why something could not be compared.
    """

    verdicts: tuple[str, str]
    rules: dict[str, tuple[int, int]]
    gone: list[str]
    new: list[str]
    changed: list[str]
    moved: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Nothing differs."""
        return self.verdicts[0] == self.verdicts[1] and not (self.rules or self.gone or self.new or self.changed)


def difference(before: Report, after: Report) -> Difference:
    """Compare two reports; images are the same when their paths are. Raises ReportError for a damaged report."""
    rows = [
        {r["path"]: r["content"] for r in report.images(["path", "content"]).to_pylist()} for report in (before, after)
    ]
    counts = [Counter(report.findings()["rule"].to_pylist()) for report in (before, after)]
    rules = {
        rule: (counts[0][rule], counts[1][rule])
        for rule in sorted({*counts[0], *counts[1]})
        if counts[0][rule] != counts[1][rule]
    }
    both = sorted(rows[0].keys() & rows[1].keys())
    notes = []
    settings = [report.run.get("settings", {}) for report in (before, after)]
    other = sorted(k for k in {*settings[0], *settings[1]} if settings[0].get(k) != settings[1].get(k))
    if other:
        notes.append(f"The audits had other settings: {', '.join(other)}; some findings may differ for that alone.")
    versions = [str(report.run.get("datasieve", "")) for report in (before, after)]
    if versions[0] != versions[1]:
        notes.append(f"The reports were written by datasieve {versions[0]} and {versions[1]}.")
    return Difference(
        verdicts=(before.verdict, after.verdict),
        rules=rules,
        gone=sorted(rows[0].keys() - rows[1].keys()),
        new=sorted(rows[1].keys() - rows[0].keys()),
        changed=[path for path in both if rows[0][path] != rows[1][path]],
        moved=_moved(before, after),
        notes=tuple(notes),
    )


def _moved(before: Report, after: Report) -> dict[str, tuple[float, float, float]]:
    """Return the columns whose median left the middle of what it was."""
    import pyarrow as pa

    tables = [before.images(), after.images()]
    found = {}
    for name in tables[0].column_names:
        if "." not in name or name not in tables[1].column_names or not pa.types.is_floating(tables[0][name].type):
            continue
        old, new = (t[name].drop_null().to_numpy(zero_copy_only=False).astype(float) for t in tables)
        old, new = old[np.isfinite(old)], new[np.isfinite(new)]
        if len(old) < 4 or len(new) < 4:
            continue
        low, middle, high = np.percentile(old, (25, 50, 75))
        if high > low and abs(np.median(new) - middle) > MOVED * (high - low):
            found[name] = (float(middle), float(np.median(new)), float(high - low))
    return dict(sorted(found.items(), key=lambda item: -abs(item[1][1] - item[1][0]) / item[1][2]))


def difference_lines(found: Difference, names: tuple[str, str]) -> list[str]:
    """Return the comparison, ready to print."""
    lines = [f"Verdict   {found.verdicts[0]} in {safe(names[0])}, {found.verdicts[1]} in {safe(names[1])}"]
    if found.is_empty and not found.moved:
        return [*lines, "Nothing differs.", *(f"Note      {note}" for note in found.notes)]
    if found.rules:
        lines += ["", "Findings  before  after"]
        worst = sorted(found.rules.items(), key=lambda item: -abs(item[1][1] - item[1][0]))
        lines += [f"          {a:6}  {b:5}  {rule}" for rule, (a, b) in worst]
    for title, paths in (("Gone", found.gone), ("New", found.new), ("Changed", found.changed)):
        if paths:
            lines += ["", f"{title:9} {count(len(paths), 'image')}"]
            lines += [f"          {safe(path)}" for path in paths[:MOST]]
            if len(paths) > MOST:
                lines.append(f"          and {len(paths) - MOST} more")
    if found.moved:
        lines += ["", "Moved     the middle of a measurement, by more than half its spread"]
        shown = list(found.moved.items())[:MOST]
        lines += [f"          {name}: {a:.4g} -> {b:.4g}" for name, (a, b, _) in shown]
    lines += [f"Note      {note}" for note in found.notes]
    return lines


def difference_json(found: Difference) -> str:
    """Return the comparison as JSON."""
    values: dict[str, Any] = {
        "verdict": {"before": found.verdicts[0], "after": found.verdicts[1]},
        "findings": {rule: {"before": a, "after": b} for rule, (a, b) in found.rules.items()},
        "images": {"gone": found.gone, "new": found.new, "changed": found.changed},
        "moved": {name: {"before": a, "after": b, "spread": c} for name, (a, b, c) in found.moved.items()},
        "notes": list(found.notes),
    }
    return to_json(values)
