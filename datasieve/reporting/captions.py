"""The captions of a dataset for the terminal: findings, a row per caption, how much they say, what stands together."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from datasieve.captions.phrases import content
from datasieve.captions.style import PLACEHOLDER, pieces, plain
from datasieve.captions.variety import document_frequency, together
from datasieve.pipeline.captions import CaptionAudit
from datasieve.repair.caption_files import CaptionRepair
from datasieve.reporting.summary import MARKS, STYLES, Page
from datasieve.reporting.text import count, safe, shortened

MOST_ROWS = 40
MOST_FINDINGS = 12
BAR = 40
LEVELS = ("none", "coarse", "medium", "fine")


def said(caption: str, style: str | None) -> frozenset[str]:
    """Return what a caption names: its tags where it is made of tags, else its details; no placeholders."""
    text = PLACEHOLDER.sub(" ", plain(caption))
    if style in ("tags", "mixed"):
        return frozenset(" ".join(p.lower().replace("_", " ").split()) for p in pieces(text) if p)
    return frozenset(content(text).details)


def caption_lines(audit: CaptionAudit, console: Console, *, every: bool = False) -> list[Text]:
    """Return the view of `audit`: what to do, the table (`MOST_ROWS` rows, or `every`), histogram, tags."""
    rows = audit.images.to_pylist()
    page = Page(console)
    captioned = [row for row in rows if row["caption"] is not None]
    page.add(f"{count(len(rows), 'image')}, {len(captioned):,} with a caption", most=1)
    for topic, reason in audit.unmeasured.items():
        page.add(f"Not measured: {topic}: {safe(reason)}")
    _findings(page, audit)
    _table(page, rows if every else rows[:MOST_ROWS])
    if len(rows) > MOST_ROWS and not every:
        page.add(f"… and {len(rows) - MOST_ROWS:,} more: --all shows them, --format csv gives every measurement")
    for name, members in _by_concept(captioned).items():
        page.gap()
        page.add((safe(name) or "All captions", "bold"), f"  {count(len(members), 'caption')}", most=1)
        _histogram(page, members)
        _tags(page, members)
    return page.lines


def _by_concept(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    grouped: dict[str, list[Mapping[str, Any]]] = collections.defaultdict(list)
    for row in rows:
        grouped[row["concept"]].append(row)
    return dict(sorted(grouped.items(), key=lambda item: -len(item[1]))[:6])


def _findings(page: Page, audit: CaptionAudit) -> None:
    page.gap()
    grouped: dict[str, list[Any]] = collections.defaultdict(list)
    for finding in audit.findings:
        grouped[finding.rule].append(finding)
    for rule, members in list(grouped.items())[:MOST_FINDINGS]:
        first = members[0]
        page.add(
            (MARKS[first.severity], STYLES[first.severity]), f" {len(members):>5}  {rule}  ", safe(first.remedy), hang=9
        )
        page.add(f"{safe(first.path or first.concept or '')}: {safe(first.message)}", indent=9, most=2)
    for note in audit.notes[:MOST_FINDINGS]:
        page.add(f"· {note.rule}  {safe(note.message)}", hang=9, most=2)
    if not grouped and not audit.notes:
        page.add("Nothing found that would harm training.")


def _table(page: Page, rows: Sequence[Mapping[str, Any]]) -> None:
    page.gap()
    name = max(12, min(34, page.width // 3))
    head = f"{'image':<{name}} {'style':<8} {'words':>5} {'tokens':>6} {'lost':>4} {'details':>7} {'away':>5}  caption"
    page.add((head, "bold"), most=1)
    for row in rows:
        away = row["captions.granularity-distance"]
        cells = [
            shortened(row["path"], name).ljust(name),
            (row["captions.style"] or "none").ljust(8),
            _cell(row["captions.words"], 5),
            _cell(row["captions.tokens"], 6),
            _cell(row["captions.tokens-lost"] or None, 4),
            _cell(row["captions.details"], 7),
            f"{'' if away is None else f'{away:.1f}':>5}",
        ]
        line = " ".join(cells)
        room = max(10, page.width - len(line) - 2)
        text = safe(row["caption"] or "")
        page.lines.append(Text(line + "  " + (text if len(text) <= room else text[: room - 1] + "…")))


def _cell(value: int | None, width: int) -> str:
    return f"{'' if value is None else value:>{width}}"


def _histogram(page: Page, rows: Sequence[Mapping[str, Any]]) -> None:
    """How many captions are at each level, and how many words they take."""
    levels = collections.Counter(row["captions.granularity"] for row in rows)
    most = max(levels.values())
    for level in LEVELS:
        number = levels[level]
        bar = "#" * max(round(BAR * number / most), number > 0)
        words = sorted(
            r["captions.words"] for r in rows if r["captions.granularity"] == level and r["captions.words"] is not None
        )
        told = f"  {words[0]} to {words[-1]} words" if words else ""
        page.add(f"{level:<7}{number:>7}  {bar}{told}", indent=2, most=1)


def _tags(page: Page, rows: Sequence[Mapping[str, Any]]) -> None:
    """What most captions name, how often beside the placeholder, and what stands together."""
    tags = [said(row["caption"], row["captions.style"]) for row in rows]
    held = [own for own, row in zip(tags, rows, strict=True) if row["captions.placeholders"]]
    beside = document_frequency(held)
    frequency = document_frequency(tags)
    if not frequency:
        return
    shown = []
    for tag, number in sorted(frequency.items(), key=lambda item: (-item[1], item[0]))[:12]:
        given = f", {beside[tag] / len(held):.0%} of those with the placeholder" if held else ""
        shown.append(f"{safe(tag)} {number / len(tags):.0%}{given}")
    page.add("named most  " + "; ".join(shown), indent=2, hang=14)
    for a, b, number, share, lift in together(tags, 6):
        page.add(
            f"together    {safe(a)} + {safe(b)}: {number}, {share:.0%} of {safe(a)}, {lift:.1f} times chance",
            indent=2,
            most=1,
        )


def repair_lines(repair: CaptionRepair, console: Console) -> list[Text]:
    """Return the difference that repairing makes, caption by caption."""
    page = Page(console)
    for change in repair.changes:
        page.add((safe(change.path), "bold"), "  ", ", ".join(change.done))
        page.add((f"- {safe(change.before)}", "red"), indent=2, hang=4)
        page.add((f"+ {safe(change.after)}", "green"), indent=2, hang=4)
        if change.dropped:
            page.add(f"dropped: {safe(change.dropped)}", indent=4, hang=6)
    for path, why in repair.skipped.items():
        page.add(f"left as it is: {safe(path)}: {safe(why)}", hang=2)
    page.gap()
    page.add(f"{count(len(repair.changes), 'caption')} to change in {count(len(repair.files), 'file')}")
    return page.lines
