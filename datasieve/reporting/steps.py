"""What to type about the findings of one rule: the command that repairs them, or the one that shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datasieve.repair.plan import ALL_RULES, REPAIRS
from datasieve.report import Report
from datasieve.reporting.summary import Entry, command
from datasieve.rules import SEVERITIES, Rule

_RANK: dict[str, int] = {severity: rank for rank, severity in enumerate(reversed(SEVERITIES))}
NORMALIZING = frozenset(rule for repair in REPAIRS.values() if not repair.SAFE for rule in repair.RULES)
SAME = 0.9
"""Shared part of their images from which on two rules are told as one thing to do."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do.

    Attributes:
        entry: the findings.
        also: other entries that are nearly the same images and the same kind of job.
        command: a line to paste into a shell.
        does: what the command does: "repairs", "rewrites" or "shows".
    """

    entry: Entry
    also: tuple[Entry, ...]
    command: str
    does: str


def command_of(entry: Entry, report: Report, rules: Mapping[str, Rule]) -> tuple[str, str]:
    """Return the command for the findings of a rule, and what it does: "repairs", "rewrites" or "shows"."""
    dataset = str(report.run.get("dataset", {}).get("path", ""))
    rule = rules.get(entry.rule_id)
    if rule is not None and rule.repair in ("tidy-caption", "captions"):
        return command("captions", dataset, "--fix", "--out", f"{dataset}-captions"), "rewrites"
    if rule is not None and rule.repair in ("level-caption", "split-caption"):
        return command("captions", dataset, "--fix", "--lossy", "--out", f"{dataset}-captions"), "rewrites"
    if entry.rule_id in ALL_RULES:
        return command("fix", dataset, *(("--normalize",) if entry.rule_id in NORMALIZING else ())), "repairs"
    return command("show", report.path.absolute(), "--rule", entry.rule_id), "shows"


def steps(grouped: Sequence[Entry], report: Report, rules: Mapping[str, Rule]) -> list[Step]:
    """Return what to do, the most urgent first: errors before warnings, then the most frequent.

    Infos are steps only when there is nothing else. Rules of one kind of job that name nearly the same images are one
    step.
    """
    urgent = [e for e in grouped if e.severity != "info"] or list(grouped)
    urgent.sort(key=lambda e: (_RANK[e.severity], -len(e.findings), e.rule_id))
    taken: list[list[Entry]] = []
    members: list[tuple[str, set[Any]]] = []
    for entry in urgent:
        images = {row["image_id"] for row in entry.findings if row["image_id"]}
        for number, (heading, others) in enumerate(members):
            if heading == entry.heading and images and len(images & others) >= SAME * len(images | others):
                taken[number].append(entry)
                break
        else:
            taken.append([entry])
            members.append((entry.heading, images))
    return [Step(first, tuple(rest), *command_of(first, report, rules)) for first, *rest in taken]


def repairable(grouped: Sequence[Entry], report: Report) -> tuple[str, int, int] | None:
    """Return the command that repairs all it can, and how many errors and warnings it answers of how many."""
    counted = [e for e in grouped if e.severity != "info"]
    answered = [e for e in counted if e.rule_id in ALL_RULES]
    if not answered:
        return None
    extra = ("--normalize",) if any(e.rule_id in NORMALIZING for e in answered) else ()
    dataset = str(report.run.get("dataset", {}).get("path", ""))
    total = sum(len(e.findings) for e in counted)
    return command("fix", dataset, *extra), sum(len(e.findings) for e in answered), total
