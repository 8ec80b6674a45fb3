"""Rules in words: explanations and documentation pages."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from datasieve.errors import InputError
from datasieve.reporting import rule_pages
from datasieve.reporting.explanation import all_rules_lines, explain
from datasieve.reporting.rule_text import limit_text, rule_markdown, sections, spoken_template
from tests.reporting.stub import COLUMNS, RULES, rule

BLUR = COLUMNS[0]


def text(lines):
    return "\n".join(line.plain for line in lines)


def console():
    return Console(file=io.StringIO(), width=100)


def test_fields_of_a_message_are_shown_by_name():
    assert spoken_template("{value:.1f} K in {files.icc-name}, {a}") == "<value> K in <files.icc-name>, <a>"


def test_limits_are_told_with_unit_side_base_and_target():
    assert limit_text(RULES["demo.blur"], BLUR) == "below 20 px"
    assert limit_text(RULES["demo.cut"], None) == "when it is yes"
    assert limit_text(RULES["demo.few"], None) == "whenever it is met while files are listed"
    told = limit_text(rule("demo.x", limits={"sdxl": 1024, "lora": 15}), BLUR)
    assert told == "above 20 px (base sdxl: 1,024 px, for LoRA: 15 px)"


def test_an_explanation_says_what_why_how_remedy_limit_evidence_and_source():
    told = dict(sections(RULES["demo.blur"], BLUR))
    assert told["Why it hurts"] == "It will be learned."
    assert told["What to do"] == "Look at it."
    assert told["How it is measured"] == "By looking closely."
    assert told["Fires"].startswith("below 20 px")
    assert told["Evidence"] == "provisional"
    assert told["Source"] == "A paper", "the column's equal source is not repeated"
    assert told["Column"] == "demo.blur (in px, at least 0): Width of edges; low is sharp."
    assert "Repair" not in told


def test_explain_shows_a_rule_and_the_list_shows_all():
    assert "It will be learned." in text(explain("demo.cut", RULES, console()))
    everything = text(all_rules_lines(RULES, console()))
    assert all(rule_id in everything for rule_id in RULES)
    assert "demo  3 rules" in everything


def test_an_unknown_name_is_refused_with_near_ones():
    with pytest.raises(InputError) as caught:
        explain("demo.blurr", RULES, console())
    assert "demo.blur" in caught.value.remedy


def test_a_page_escapes_what_markdown_would_eat():
    page = rule_markdown(rule("demo.x", message="Got {value} <b>*"))
    assert r"Got \<value\> \<b\>\*" in page
    assert page.startswith("# X\n")


def test_pages_are_written_checked_and_swept(tmp_path, monkeypatch):
    from datasieve import policy

    monkeypatch.setattr(policy, "all_rules", lambda: RULES)
    monkeypatch.setattr(rule_pages, "all_columns", dict)
    (tmp_path / "own.md").write_text("written by hand")
    (tmp_path / "demo.gone.md").write_text(rule_pages.MARK + "old")
    assert rule_pages.main([str(tmp_path), "--check"]) == 1
    assert not (tmp_path / "demo.blur.md").exists(), "checking writes nothing"
    assert rule_pages.main([str(tmp_path)]) == 0
    assert {p.name for p in tmp_path.iterdir()} == {"own.md", "README.md", *(f"{i}.md" for i in RULES)}
    assert rule_pages.main([str(tmp_path), "--check"]) == 0
    assert "[demo.cut](demo.cut.md)" in (tmp_path / "README.md").read_text()
