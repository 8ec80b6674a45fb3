"""What to do first: the order, what is told as one, and the command."""

from __future__ import annotations

from typing import Any

from datasieve.policy import all_rules
from datasieve.reporting.steps import command_of, repairable, steps
from datasieve.reporting.summary import entries
from tests.reporting.stub import StubReport, finding

RULES = all_rules()


def report_of(*rows: dict[str, Any]) -> Any:
    return StubReport(rows, dataset={"path": "/sets/my cats", "layout": "folder"})


def grouped(report: Any) -> Any:
    return entries(report.findings().to_pylist(), RULES, report.columns())


def some(rule: str, severity: str, number: int, start: int = 0) -> list[dict[str, Any]]:
    remedy = RULES[rule].remedy
    return [finding(rule, severity, path=f"{i}.jpg", value=1.0, remedy=remedy) for i in range(start, start + number)]


def test_errors_come_before_warnings_and_the_frequent_before_the_rare() -> None:
    rows = [
        *some("colour.cast", "warning", 2),
        *some("duplicates.exact", "warning", 9, 20),
        *some("files.truncated", "error", 1, 40),
        *some("files.grey", "info", 50, 50),
    ]
    report = report_of(*rows)
    found = steps(grouped(report), report, RULES)
    assert [step.entry.rule_id for step in found] == ["files.truncated", "duplicates.exact", "colour.cast"]


def test_two_rules_about_the_same_files_are_one_thing_to_do() -> None:
    report = report_of(*some("files.truncated", "error", 10), *some("trainer.broken", "error", 10))
    (step,) = steps(grouped(report), report, RULES)
    assert step.entry.rule_id == "files.truncated"
    assert [entry.rule_id for entry in step.also] == ["trainer.broken"]


def test_notes_are_steps_only_when_there_is_nothing_else() -> None:
    report = report_of(*some("files.grey", "info", 3))
    assert [step.entry.rule_id for step in steps(grouped(report), report, RULES)] == ["files.grey"]


def test_each_gets_the_command_that_helps() -> None:
    expected = {
        "duplicates.exact": ("datasieve fix '/sets/my cats'", "repairs"),
        "frame.border": ("datasieve fix '/sets/my cats' --normalize", "repairs"),
        "captions.damaged": ("datasieve captions '/sets/my cats' --fix --out '/sets/my cats-captions'", "rewrites"),
        "captions.too-long": (
            "datasieve captions '/sets/my cats' --fix --lossy --out '/sets/my cats-captions'", "rewrites",
        ),
    }  # fmt: skip
    for rule, (line, does) in expected.items():
        report = report_of(*some(rule, "warning", 1))
        assert command_of(grouped(report)[0], report, RULES) == (line, does)
    report = report_of(*some("files.truncated", "error", 1))
    line, does = command_of(grouped(report)[0], report, RULES)
    assert does == "shows"
    assert line.endswith("photos-report --rule files.truncated")


def test_one_command_answers_what_a_program_can_repair() -> None:
    report = report_of(*some("duplicates.exact", "warning", 3), *some("files.truncated", "error", 2, 10))
    assert repairable(grouped(report), report) == ("datasieve fix '/sets/my cats'", 3, 5)
    assert repairable(grouped(report_of(*some("files.truncated", "error", 2))), report) is None
