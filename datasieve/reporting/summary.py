"""The summary after an audit: verdict, findings grouped by what to do about them, where the report is, what to type.

It is meant to be read at once, so it holds about `MOST_LINES` lines however messy the set is: groups lose detail from
the mildest rule upwards until it fits. Colour only repeats what words and marks say.
"""

from __future__ import annotations

import contextlib
import functools
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from datasieve.reporting.actions import ACTIONS, action
from datasieve.reporting.text import count, number, safe, shortened, spoken
from datasieve.rules import SEVERITIES, Rule

if TYPE_CHECKING:
    from datasieve.report import Report

MOST_LINES = 60
_INDENT = 19
_TELLING = 26
"""Cells below which a shortened name no longer tells images apart; fewer are named then."""
WORST = 3
MARKS = {"error": "✗", "warning": "!", "info": "·"}
STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}
VERDICT_STYLES = {"ready": "bold green", "fix first": "bold yellow", "not trainable": "bold red"}
VERDICT_WORDS = {
    "ready": "nothing here should stop a training",
    "fix first": "these faults will be learned too, or make the training fail",
    "not trainable": "too little of this set can be used",
}
_FULL, _REMEDY, _EXAMPLES, _HEADING, _HIDDEN = 4, 3, 2, 1, 0
_STEPS: list[tuple[str, int]] = [
    *(("info", level) for level in (_REMEDY, _EXAMPLES, _HEADING)),
    ("warning", _REMEDY),
    ("error", _REMEDY),
    ("info", _HIDDEN),
    *((severity, level) for severity in ("warning", "error") for level in (_EXAMPLES, _HEADING)),
    ("warning", _HIDDEN),
    ("error", _HIDDEN),
]
"""How the summary is shortened: the mild lose first, and what to do about a fault outlives why."""

_RANK: dict[str, int] = {severity: rank for rank, severity in enumerate(reversed(SEVERITIES))}


@dataclass(frozen=True, slots=True)
class Entry:
    """The findings of one rule that call for the same kind of action, the worst first."""

    rule_id: str
    severity: str
    title: str
    heading: str
    findings: Sequence[Mapping[str, Any]]
    unit: str
    judged: bool


def entries(
    findings: Iterable[Mapping[str, Any]], rules: Mapping[str, Rule], columns: Mapping[str, Mapping[str, str]]
) -> list[Entry]:
    """Group rows of findings.parquet by heading and rule: errors first, then by how many there are.

    Args:
        findings: rows with the fields of FINDING_FIELDS.
        rules: rules by id, for titles and for which side is bad; unknown ids keep their id as title.
        columns: column name -> metadata with "unit", as `Report.columns` gives it.
    """
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in findings:
        groups.setdefault((action(str(row["remedy"] or "")), str(row["rule"])), []).append(row)
    made = []
    for (heading, rule_id), rows in groups.items():
        rule = rules.get(rule_id)
        made.append(
            Entry(
                rule_id=rule_id,
                severity=min((str(row["severity"]) for row in rows), key=_RANK.__getitem__),
                title=rule.title if rule else rule_id,
                heading=heading,
                findings=worst_first(rows, rule),
                unit=columns.get(rule.column, {}).get("unit", "") if rule else "",
                judged=rule is not None and rule.side != "is" and bool(rule.column),
            )
        )
    made.sort(key=lambda e: (ACTIONS.index(e.heading), _RANK[e.severity], -len(e.findings), e.rule_id))
    return made


def worst_first(rows: Iterable[Mapping[str, Any]], rule: Rule | None) -> list[Mapping[str, Any]]:
    """Sort findings of one rule by how far they are beyond the limit, then by path; unmeasured values last."""
    sign = -1.0 if rule is None or rule.side == "above" else 1.0

    def order(row: Mapping[str, Any]) -> tuple[bool, float, str]:
        value = row["value"]
        return value is None, 0.0 if value is None else sign * float(value), str(row["path"] or row["concept"] or "")

    return sorted(rows, key=order)


def command(*words: object) -> str:
    """Return a command line that can be pasted into a shell, and is safe to print."""
    return safe(shlex.join(["datasieve", *(str(word) for word in words)]))


def here(path: Path) -> Path:
    """Return `path` relative to the current folder when it lies below it: shorter to read and to type."""
    with contextlib.suppress(ValueError):
        return path.absolute().relative_to(Path.cwd())
    return path


class Page:
    """Lines that fit the width of a console.

    Attributes:
        lines: what was added so far.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.width = max(console.width, 30)
        self.lines: list[Text] = []

    def add(self, *parts: str | tuple[str, str], indent: int = 0, hang: int | None = None, most: int = 0) -> None:
        """Add a paragraph of plain or (text, style) parts; `most` lines of it are kept, 0 for all."""
        text = Text.assemble(*parts)
        hang = indent if hang is None else hang
        # All lines wrap at the width of the narrowest, which keeps this simple; a single line has no others.
        room = self.width - (indent if most == 1 else max(indent, hang))
        wrapped = list(text.wrap(self.console, room))
        kept = wrapped[:most] if most else wrapped
        if len(kept) < len(wrapped):
            kept[-1].truncate(room - 2)
            kept[-1].rstrip()
            kept[-1].append(" …")
        for row, line in enumerate(kept):
            line.rstrip()
            self.lines.append(Text(" " * (hang if row else indent)) + line)

    def gap(self) -> None:
        """Add an empty line unless there is one, or nothing yet."""
        if self.lines and self.lines[-1].plain:
            self.lines.append(Text())


def summary(report: Report, rules: Mapping[str, Rule], console: Console) -> list[Text]:
    """Return the summary of `report` as lines no wider than `console`; at most about MOST_LINES of them."""
    grouped = entries(report.findings().to_pylist(), rules, report.columns())
    head, foot = Page(console), Page(console)
    _heading(head, report, grouped)
    _footing(foot, report, grouped)
    room = MOST_LINES - len(head.lines) - len(foot.lines)
    return [*head.lines, *_body(console, report, grouped, room).lines, *foot.lines]


def _heading(page: Page, report: Report, grouped: Sequence[Entry]) -> None:
    run = report.run
    counts = run.get("counts", {})
    dataset = str(run.get("dataset", {}).get("path", ""))
    images = int(counts.get("images", 0))
    states = [f"{counts[name]:,} {name}" for name in ("unreadable", "refused", "ignored") if counts.get(name)]
    line = f"{count(images, 'image')}" + (f", {counts.get('ok', 0):,} usable ({', '.join(states)})" if states else "")
    seconds = _seconds(run.get("timing", {}))
    name = shortened(str(here(Path(dataset))), max(page.width - len(line) - 14, 20))
    page.add((name, "bold"), f"  {line}", (f"  in {spoken(seconds)}" if seconds else "", "dim"))
    if run.get("status") == "interrupted":
        page.add(("Interrupted: this is what was measured so far.", "yellow"))
    page.gap()
    verdict = report.verdict
    why = ", ".join(safe(str(reason)) for reason in run.get("verdict_reasons", ())) or VERDICT_WORDS.get(verdict, "")
    total = {s: sum(len(e.findings) for e in grouped if e.severity == s) for s in reversed(SEVERITIES)}
    found = ", ".join(count(n, s, "infos" if s == "info" else "") for s, n in total.items() if n) or "none"
    if counts.get("accepted"):
        found += f"; {counts['accepted']:,} accepted by the baseline"
    page.add("Verdict: ", (verdict.upper(), VERDICT_STYLES.get(verdict, "bold")), f" - {why}")
    page.add("Findings: ", found)
    page.gap()


def _seconds(timing: Mapping[str, Any]) -> float:
    if "total" in timing:
        return float(timing["total"])
    return float(sum(value for value in timing.values() if isinstance(value, int | float)))


def _body(console: Console, report: Report, grouped: Sequence[Entry], room: int) -> Page:
    """Lay the findings out in `room` lines: full at first, then with less and less said about the mildest."""
    detail = dict.fromkeys(range(len(grouped)), _FULL)
    mildest = sorted(detail, key=lambda i: (_RANK[grouped[i].severity], -len(grouped[i].findings)), reverse=True)

    @functools.cache
    def entry_lines(i: int, level: int) -> list[Text]:
        page = Page(console)
        _entry(page, report, grouped[i], level)
        return page.lines

    page = _laid_out(console, grouped, detail, entry_lines)
    for severity, level in _STEPS:
        for i in mildest:
            if len(page.lines) <= room:
                return page
            if grouped[i].severity != severity or i not in detail or (level == _HIDDEN and len(detail) == 1):
                continue
            if level == _HIDDEN:
                del detail[i]
            else:
                detail[i] = level
            page = _laid_out(console, grouped, detail, entry_lines)
    return page


def _laid_out(
    console: Console,
    grouped: Sequence[Entry],
    detail: Mapping[int, int],
    entry_lines: Callable[[int, int], list[Text]],
) -> Page:
    page = Page(console)
    for heading in ACTIONS:
        shown = [i for i in detail if grouped[i].heading == heading]
        if not shown:
            continue
        page.gap()
        total = sum(len(grouped[i].findings) for i in shown)
        page.add((heading, "bold underline"), (f" ({total:,})", "dim"))
        for i in sorted(shown):
            page.lines += entry_lines(i, detail[i])
    hidden = [entry for i, entry in enumerate(grouped) if i not in detail]
    if hidden:
        page.gap()
        more = sum(len(entry.findings) for entry in hidden)
        ids = ", ".join(dict.fromkeys(entry.rule_id for entry in hidden))
        page.add((f"Milder ({more:,}): ", "bold"), ids, most=2)
    return page


def _entry(page: Page, report: Report, entry: Entry, detail: int) -> None:
    total, worst = len(entry.findings), entry.findings[0]
    head = f"{entry.title}  {entry.rule_id}"
    room = page.width - _INDENT
    spare = room - cell_len(head) - 2
    page.add(
        (f"{MARKS[entry.severity]} {entry.severity:<7}", STYLES[entry.severity]),
        f" {total:>5,}  ",
        (entry.title, "bold"),
        (f"  {entry.rule_id}", "dim"),
        f"  {_examples(entry, 1, spare, '')}" if detail == _HEADING and spare > _TELLING else "",
        indent=2,
        hang=_INDENT,
        most=1,
    )
    if detail == _HEADING:
        return
    if detail >= _FULL:
        page.add(safe(str(worst["message"])), indent=_INDENT, most=2)
    if detail >= _REMEDY and worst["remedy"]:
        page.add(("→ " + safe(str(worst["remedy"])), "italic"), indent=_INDENT, hang=_INDENT + 2, most=2)
    limit = f"  (limit {number(worst['limit'], entry.unit)})" if entry.judged and worst["limit"] is not None else ""
    page.add(_examples(entry, WORST, room, limit), indent=_INDENT, most=1)
    if total > WORST and detail >= _FULL:
        words = command("show", here(report.path), "--rule", entry.rule_id)
        page.add((f"all {total:,}: {words}", "dim"), indent=_INDENT)


def _examples(entry: Entry, most: int, room: int, tail: str) -> str:
    """Return the worst findings of `entry`, up to `most`, with their values, how many more, and `tail`."""
    shown = entry.findings[:most]
    values = [
        f" {number(row['value'], entry.unit)}" if entry.judged and row["value"] is not None else "" for row in shown
    ]
    names = [safe(str(row["path"] or row["concept"] or "the whole set")) for row in shown]
    rest = len(entry.findings) - len(shown)
    more = f" · and {rest:,} more" if rest else ""
    spare = room - cell_len(more + tail) - sum(len(value) for value in values) - 3 * (len(shown) - 1)
    # Short names leave their share to long ones.
    widths = [0] * len(names)
    for rank, i in enumerate(sorted(range(len(names)), key=lambda i: cell_len(names[i]))):
        widths[i] = max(min(cell_len(names[i]), spare // (len(names) - rank)), 8)
        spare -= widths[i]
    if most > 1 and any(width < min(cell_len(name), _TELLING) for name, width in zip(names, widths, strict=True)):
        return _examples(entry, most - 1, room, tail)
    return " · ".join(shortened(n, w) + v for n, w, v in zip(names, widths, values, strict=True)) + more + tail


def _footing(page: Page, report: Report, grouped: Sequence[Entry]) -> None:
    run = report.run
    if grouped:
        page.lines.append(Text())
    unmeasured: Mapping[str, Any] = run.get("unmeasured") or {}
    for topic, reason in list(unmeasured.items())[:2]:
        page.add(("Not measured  ", "bold"), f"{safe(str(topic))}: {safe(str(reason))}", hang=14, most=1)
    if len(unmeasured) > 2:
        page.add(("Not measured  ", "bold"), f"and {len(unmeasured) - 2} more, listed in run.json")
    passed: Mapping[str, Any] = run.get("passed_over") or {}
    if passed:
        page.add(
            ("Passed over   ", "bold"),
            ", ".join(f"{number(items)} {safe(str(reason))}" for reason, items in passed.items()),
            hang=14,
            most=2,
        )
    advice = advice_lines(run.get("advice"))
    if advice:
        page.add(("Advice        ", "bold"), ("a starting point, not a measurement", "dim"))
    for line in advice[:3]:
        page.add(line, indent=14, most=2)
    if len(advice) > 3:
        page.add(f"and {len(advice) - 3} more, in run.json", indent=14)
    page.add(("Report        ", "bold"), safe(str(here(report.path))), hang=14)
    if (report.path / "index.html").is_file():
        page.add(("Page          ", "bold"), safe(str(here(report.path / "index.html"))), hang=14)
    page.add(("Next          ", "bold"), (next_command(report, grouped), "bold cyan"), hang=14)


def advice_lines(advice: Any) -> list[str]:
    """Return the advice of run.json as lines: a text, a list of texts, or {concept: {repeats: 8, ...}} and the like."""
    if not advice:
        return []
    if isinstance(advice, Mapping):
        if all(isinstance(value, Mapping) for value in advice.values()):
            return [f"{safe(str(name)) or 'the set'}: {_pairs(value)}" for name, value in advice.items()]
        return [_pairs(advice)]
    if isinstance(advice, list | tuple):
        return [line for item in advice for line in advice_lines(item)]
    return [safe(str(advice)).rstrip()]


def _pairs(values: Mapping[str, Any]) -> str:
    told = [(str(name).replace("_", " "), value) for name, value in values.items() if value is not None]
    return ", ".join(f"{safe(name)} {number(v) if isinstance(v, int | float) else safe(str(v))}" for name, v in told)


def next_command(report: Report, grouped: Sequence[Entry]) -> str:
    """Return what to type next: go on if interrupted, see the worst rule's findings, or look at the whole report."""
    if report.run.get("status") == "interrupted":
        return "the same command again; it goes on where it stopped"
    if grouped:
        first = min(grouped, key=lambda e: (_RANK[e.severity], ACTIONS.index(e.heading), -len(e.findings)))
        return command("show", here(report.path), "--rule", first.rule_id)
    return command("show", here(report.path), "--format", "csv")
