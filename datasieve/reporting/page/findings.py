"""The part of the page that judges: verdict, what to do first, and each rule with its worst images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from datasieve.report import Report
from datasieve.reporting.actions import ACTIONS
from datasieve.reporting.page.lists import MOST, LongList, key_of
from datasieve.reporting.page.pictures import Picture, Pictures
from datasieve.reporting.rule_text import limit_text
from datasieve.reporting.steps import command_of, repairable, steps
from datasieve.reporting.summary import VERDICT_WORDS, Entry, command
from datasieve.reporting.text import count, number, safe
from datasieve.rules import SEVERITIES, Rule

PICTURES, TEXTS, FIRST, FIRST_PICTURES, THEN = 12, 6, 3, 4, 9
LONGEST_CAPTION, LONGEST_EVIDENCE = 420, 170
_ORIGINALS = ("duplicates.exact-of", "duplicates.near-of", "duplicates.flip-of")
_SIDES = {"above": "at most", "below": "at least"}


def verdict(report: Report, grouped: Sequence[Entry]) -> dict[str, Any]:
    """Return the verdict, why, and the numbers beside it."""
    counts = report.run.get("counts", {})
    found = counts.get("findings", {})
    reasons = ", ".join(safe(str(reason)) for reason in report.run.get("verdict_reasons", ()))
    images = int(counts.get("images", 0))
    numbers = [("images", images, ""), ("usable", int(counts.get("ok", 0)), "")]
    numbers += [(name, int(found.get(s, 0)), s) for s, name in (("error", "errors"), ("warning", "warnings"))]
    numbers.append(("notes", int(found.get("info", 0)), "info"))
    worst: dict[str, str] = {}
    for entry in sorted(grouped, key=lambda e: SEVERITIES.index(e.severity)):
        worst |= {row["image_id"]: entry.severity for row in entry.findings if row["image_id"]}
    touched = {s: sum(v == s for v in worst.values()) for s in ("error", "warning", "info")}
    touched["ready"] = max(images - sum(touched.values()), 0)
    return {
        "word": report.verdict,
        "means": VERDICT_WORDS.get(report.verdict, ""),
        "reasons": reasons[:1].upper() + reasons[1:],
        "numbers": [{"name": n, "value": f"{v:,}", "severity": s} for n, v, s in numbers],
        "shares": _shares(touched, images),
        "accepted": int(counts.get("accepted", 0)),
        "interrupted": report.run.get("status") == "interrupted",
    }


def _shares(touched: Mapping[str, int], images: int) -> list[dict[str, Any]]:
    """Return the stretches of the bar that shows how many images are touched by what, in units of 1000."""
    words = {"error": "with an error", "warning": "with a warning", "info": "with notes only", "ready": "untouched"}
    made, start = [], 0.0
    for severity, items in touched.items():
        width = 1000 * items / max(images, 1)
        if items:
            made.append(
                {"severity": severity, "x": f"{start:.1f}", "width": f"{width:.1f}", "count": f"{items:,}",
                 "words": words[severity], "share": f"{items / max(images, 1):.0%}"}
            )  # fmt: skip
        start += width
    return made


def todo(report: Report, grouped: Sequence[Entry], rules: Mapping[str, Rule], pictures: Pictures) -> dict[str, Any]:
    """Return what to do first, each with its command and some pictures, and what comes then."""
    found = steps(grouped, report, rules)
    cards = []
    for step in found[:FIRST]:
        worst = step.entry.findings[0]
        cards.append(
            {
                "entry": _head(step.entry),
                "also": [_head(e) for e in step.also],
                "message": safe(str(worst["message"])),
                "remedy": safe(str(worst["remedy"] or "")),
                "command": step.command,
                "does": step.does,
                "pictures": [pictures.of(r["image_id"]) for r in step.entry.findings[:FIRST_PICTURES] if r["image_id"]],
            }
        )
    then = [{"entry": _head(s.entry), "command": s.command, "does": s.does} for s in found[FIRST : FIRST + THEN]]
    whole = repairable(grouped, report)
    repair = None
    if whole:
        line, answered, total = whole
        repair = {"command": line, "dry": f"{line} --dry-run", "answered": f"{answered:,}", "total": f"{total:,}"}
    return {"cards": cards, "then": then, "more": max(len(found) - FIRST - THEN, 0), "repair": repair}


def _head(entry: Entry) -> dict[str, str]:
    return {
        "id": entry.rule_id,
        "key": key_of(f"rule-{entry.rule_id}-{ACTIONS.index(entry.heading)}"),
        "severity": entry.severity,
        "title": entry.title,
        "number": f"{len(entry.findings):,}",
        "count": _counted(entry),
    }


def _counted(entry: Entry) -> str:
    """Return how many pictures, concepts or other findings there are."""
    of = "picture" if entry.findings[0]["image_id"] else "concept" if entry.findings[0]["concept"] else "finding"
    return count(len(entry.findings), of)


def groups(
    report: Report, grouped: Sequence[Entry], rules: Mapping[str, Rule], pictures: Pictures
) -> list[dict[str, Any]]:
    """Return the rules under the headings of what to do about them: urgent ones first, notes apart."""
    out = []
    rows = _Rows(report, grouped)
    for heading in ACTIONS:
        mine = [e for e in grouped if e.heading == heading]
        if mine:
            shown = [_rule(report, e, rules, pictures, rows) for e in mine]
            out.append(
                {
                    "heading": heading,
                    "key": "do-" + key_of(heading.lower()),
                    "urgent": [r for r in shown if r["head"]["severity"] != "info"],
                    "notes": [r for r in shown if r["head"]["severity"] == "info"],
                }
            )
    return out


class _Rows:
    """Captions, and what images are copies of, for the images that have findings."""

    def __init__(self, report: Report, grouped: Sequence[Entry]) -> None:
        known = report.columns()
        names = [n for n in ("caption", "captions.words-lost", *_ORIGINALS) if n in known]
        wanted = {row["image_id"] for entry in grouped for row in entry.findings[:MOST]}
        ids = report.images(["image_id"])["image_id"].to_pylist()
        kept = [i for i, image in enumerate(ids) if image in wanted]
        table = report.images(names).take(pa.array(kept, pa.int64()))
        self.rows = {ids[i]: row for i, row in zip(kept, table.to_pylist(), strict=True)}

    def caption(self, image_id: str | None) -> tuple[str, str]:
        """Return what of an image's caption is read and what is not, shortened."""
        row = self.rows.get(image_id, {})
        return split_caption(row.get("caption"), row.get("captions.words-lost"))

    def original(self, image_id: str | None) -> str:
        """Return the path of what an image is a copy of, "" when it is none."""
        row = self.rows.get(image_id, {})
        return str(next((row[name] for name in _ORIGINALS if row.get(name)), ""))


def split_caption(caption: str | None, lost: str | None) -> tuple[str, str]:
    """Return a caption as what is read of it and what is not, each one line of bounded length."""
    text = caption or ""
    read, rest = (text[: -len(lost)], lost) if lost and text.endswith(lost) else (text, lost or "")
    return _shortened(read), _shortened(rest)


def _shortened(text: str) -> str:
    text = safe(" ".join(text[: 2 * LONGEST_CAPTION].split()) + (" " if text.endswith(" ") else ""))
    return text if len(text) <= LONGEST_CAPTION else text[: LONGEST_CAPTION - 1] + "…"


def _rule(report: Report, entry: Entry, rules: Mapping[str, Rule], pictures: Pictures, rows: _Rows) -> dict[str, Any]:
    rule, worst = rules.get(entry.rule_id), entry.findings[0]
    kind = "picture"
    if entry.rule_id.startswith("captions.") and any(row["image_id"] for row in entry.findings):
        kind = "text"
    elif entry.rule_id.startswith("duplicates."):
        kind = "pair"
    elif not any(row["image_id"] for row in entry.findings):
        kind = "named"
    items: list[dict[str, Any]] = [_item(entry, row, kind, pictures, rows) for row in entry.findings[:MOST]]
    head = _head(entry)
    size = PICTURES if kind == "picture" else TEXTS
    line, does = command_of(entry, report, rules)
    evidence = rule.evidence if rule else ""
    return {
        "head": head,
        "list": LongList(head["key"], entry.title, items, len(entry.findings), size, kind),
        "limit": _limit(entry, rule),
        "of": safe(str(worst["path"] or worst["concept"] or "")) if len(entry.findings) > 1 else "",
        "message": safe(str(worst["message"])),
        "remedy": safe(str(worst["remedy"] or "")),
        "command": line,
        "does": does,
        "show": command("show", report.path.absolute(), "--rule", entry.rule_id),
        "why": rule.why if rule else "",
        "how": rule.how if rule else "",
        "fires": limit_text(rule, None) if rule and rule.column and rule.side != "is" else "",
        "source": rule.source if rule else "",
        "evidence": evidence,
        "evidence_short": _begin(evidence),
    }


def _limit(entry: Entry, rule: Rule | None) -> str:
    limit = entry.findings[0]["limit"]
    if not entry.judged or limit is None or rule is None:
        return ""
    return f"{_SIDES.get(rule.side, '')} {number(limit, entry.unit)}"


def _begin(text: str) -> str:
    """Return the beginning of a text, whole words."""
    if len(text) <= LONGEST_EVIDENCE:
        return text
    return text[:LONGEST_EVIDENCE].rsplit(" ", 1)[0].rstrip(",;:") + " …"


def _item(entry: Entry, row: Mapping[str, Any], kind: str, pictures: Pictures, rows: _Rows) -> dict[str, Any]:
    """Return one finding as an item of a list; pictures in it are filled later."""
    picture = pictures.of(row["image_id"], str(row["path"] or row["concept"] or "the whole set"))
    item: dict[str, Any] = {"picture": picture}
    if entry.judged and row["value"] is not None:
        item["value"] = number(row["value"], entry.unit)
    if kind == "named" or (kind == "text" and row["message"] != entry.findings[0]["message"]):
        item["note"] = safe(str(row["message"]))
    if kind == "text":
        read, lost = rows.caption(row["image_id"])
        item |= {k: v for k, v in (("caption", read), ("lost", lost)) if v}
    if kind == "pair":
        original = rows.original(row["image_id"])
        item["other"] = pictures.at(original) if original else Picture("", why="not known")
    return item


def filled(item: Mapping[str, Any]) -> dict[str, str]:
    """Return an item with its pictures laid out as slots, once they were found."""
    made: dict[str, str] = {}
    for name, value in item.items():
        if isinstance(value, Picture):
            made |= value.slots("" if name == "picture" else f"{name}-")
        else:
            made[name] = value
    return made
