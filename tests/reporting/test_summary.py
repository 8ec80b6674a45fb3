"""The summary: short, plain, grouped by what to do, naming the worst."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from datasieve.reporting.actions import ACTIONS, CAPTION, CONVERT, LOOK, REPLACE, action
from datasieve.reporting.summary import MOST_LINES, advice_lines, entries, summary
from tests.reporting.stub import RULES, StubReport, finding, messy


def shown(report: StubReport, width: int = 100) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    return [line.plain for line in summary(report, RULES, console)]


def test_it_says_how_many_images_the_verdict_in_words_where_the_report_is_and_what_to_type(report):
    lines = shown(report)
    text = "\n".join(lines)
    assert "400 images, 397 usable (2 unreadable, 1 refused)" in lines[0]
    assert "Verdict: FIX FIRST" in text
    assert "Findings: 1 error, 2 warnings, 1 info" in text
    assert re.search(r"^Report +photos-report$", text, re.M)
    assert re.search(r"^Next +datasieve show photos-report --rule demo\.cut$", text, re.M), "errors come first"


@pytest.mark.parametrize("verdict", ["ready", "fix first", "not trainable"])
def test_every_verdict_is_said_in_words(verdict):
    assert any(f"Verdict: {verdict.upper()} - " in line for line in shown(StubReport(verdict=verdict)))


def test_the_reasons_of_the_verdict_are_given():
    lines = shown(StubReport(verdict="not trainable", verdict_reasons=["no image can be used"]))
    assert "Verdict: NOT TRAINABLE - no image can be used" in lines


def test_findings_stand_under_what_to_do_about_them(report):
    lines = shown(report)
    assert lines.index("Throw out or replace (1)") < next(i for i, line in enumerate(lines) if "demo.cut" in line)
    assert lines.index("Look at (2)") < next(i for i, line in enumerate(lines) if "demo.blur" in line)
    assert "→ Replace it." in "\n".join(lines)


def test_the_worst_is_named_first_with_its_value_and_the_limit(report):
    [line] = [line for line in shown(report) if "softest.jpg" in line]
    assert line.strip() == "cat/softest.jpg 2 px · cat/soft.jpg 4 px  (limit 20 px)", (
        "judged from below: 2 is worse than 4"
    )


def test_many_findings_of_one_rule_end_in_the_command_that_shows_all():
    rows = [
        finding("demo.cut", "error", path=f"{i}.jpg", value=1.0, limit=1.0, remedy="Replace it.") for i in range(15)
    ]
    text = "\n".join(shown(StubReport(rows)))
    assert "and 12 more" in text
    assert "datasieve show photos-report --rule demo.cut" in text


@pytest.mark.parametrize("kinds", [1, 5, 12, 40])
@pytest.mark.parametrize("width", [60, 100, 120])
def test_a_messy_set_still_fits_on_a_screen_and_no_line_is_too_wide(kinds, width):
    lines = shown(messy(kinds), width)
    assert len(lines) <= MOST_LINES + (6 if width == 60 else 0)
    assert max(cell_len(line) for line in lines) <= width


def test_what_does_not_fit_is_counted_and_errors_stay():
    lines = shown(messy(40))
    [milder] = [line for line in lines if line.startswith("Milder")]
    hidden = int(re.search(r"\(([\d,]+)\)", milder)[1].replace(",", ""))
    groups = [int(n.replace(",", "")) for line in lines for n in re.findall(r"^[A-Z][a-z ]+ \(([\d,]+)\)$", line)]
    text = "\n".join(lines)
    assert all(f" kind{k}.fault" in text for k in range(0, 40, 4)), "every error rule is named"
    assert hidden > 0
    assert sum(groups) <= 40 * 30


def test_what_was_not_measured_and_what_was_passed_over_is_said_with_reasons():
    report = StubReport(unmeasured={"embedding": "no weights are installed"}, passed_over={"Thumbs.db": 3})
    text = "\n".join(shown(report))
    assert "Not measured  embedding: no weights are installed" in text
    assert "Passed over   3 Thumbs.db" in text


def test_advice_is_marked_as_advice():
    text = "\n".join(shown(StubReport(advice=["cat: 12 distinct images: repeats 2"])))
    assert "Advice        a starting point, not a measurement" in text
    assert "cat: 12 distinct images: repeats 2" in text


def test_advice_may_be_text_list_or_table():
    assert advice_lines("more") == ["more"]
    assert advice_lines([]) == advice_lines(None) == []
    assert advice_lines({"cat": {"repeats": 8, "steps": 2000, "note": None}}) == ["cat: repeats 8, steps 2,000"]


def test_accepted_findings_are_counted():
    counts = {"images": 3, "ok": 3, "accepted": 7}
    assert "Findings: none; 7 accepted by the baseline" in shown(StubReport(counts=counts))


def test_an_interrupted_audit_says_so():
    text = "\n".join(shown(StubReport(status="interrupted")))
    assert "Interrupted" in text
    assert "the same command again" in text


def test_names_can_neither_steer_the_terminal_nor_carry_markup():
    name = "a\x1b[31m\n[bold red]x[/] \u202egpj.exe"
    report = StubReport([finding("demo.cut", "error", path=name, value=1.0, limit=1.0, remedy="Replace it.")])
    out = io.StringIO()
    console = Console(file=out, width=100, force_terminal=True, color_system="truecolor")
    for line in summary(report, RULES, console):
        console.print(line)
    text = out.getvalue()
    assert r"a\x1b[31m\n[bold red]x[/] \u202egpj.exe" in re.sub(r"\x1b\[[\d;]*m", "", text)
    assert "\x1b[31m\n" not in text
    assert "\u202e" not in text


def test_colour_is_never_the_only_carrier(report):
    lines = "\n".join(shown(report))
    for severity, mark in (("error", "✗"), ("warning", "!"), ("info", "·")):
        assert f"{mark} {severity}" in lines


def test_a_rule_that_this_version_does_not_know_is_shown_by_its_id():
    [entry] = entries([finding("old.rule", "warning", path="a.jpg", value=2.0)], {}, {})
    assert entry.title == "old.rule"


def test_commands_are_quoted_for_the_shell():
    from pathlib import Path

    rows = [finding("demo.cut", "error", path="a.jpg", value=1.0, limit=1.0)]
    assert any("show 'my set-report' --rule" in line for line in shown(StubReport(rows, path=Path("my set-report"))))


@pytest.mark.parametrize(
    ("remedy", "heading"),
    [
        ("Replace it by a whole copy.", REPLACE),
        ("Convert it to sRGB.", CONVERT),
        ("Remove the repeated words from the caption.", LOOK),
        ("Edit the caption.", CAPTION),
        ("Ponder this.", LOOK),
        ("", LOOK),
    ],
)
def test_the_verb_of_a_remedy_gives_the_heading(remedy, heading):
    if heading == LOOK and remedy.startswith("Remove"):
        heading = REPLACE  # "caption" comes too late in the sentence to be its object
    assert action(remedy) == heading
    assert action(remedy) in ACTIONS
