from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import datasieve.sources
from datasieve.rules import SEVERITIES
from datasieve.sources.rules import RULES

SOURCES = Path(datasieve.sources.__file__).parent


def noted() -> set[str]:
    """Return every rule that the code can note, read from its calls of `ledger.note`."""
    found = set()
    for file in SOURCES.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "note":
                rule = node.args[0]
                assert isinstance(rule, ast.Constant), f"{file.name}:{node.lineno}: a rule id must be written out"
                found.add(f"layout.{rule.value}")
    return found


def test_rules_are_exactly_what_can_be_noted() -> None:
    assert {r.id for r in RULES} == noted()
    assert len({r.id for r in RULES}) == len(RULES)


def test_rules_are_complete_and_state_notes() -> None:
    for rule in RULES:
        assert (rule.scope, rule.column, rule.side, rule.limit) == ("note", "", "is", True)
        assert rule.severity in SEVERITIES
        assert 2 <= len(rule.title.split()) <= 6, rule.id
        for text in (rule.message, rule.remedy, rule.why, rule.how, rule.evidence):
            assert text, rule.id
            assert text == text.strip(), rule.id
        assert rule.remedy.endswith(".")
        assert rule.why.endswith(".")


def test_listing_imports_nothing_heavy() -> None:
    code = (
        "import sys, datasieve.sources, datasieve.sources.rules\n"
        "print([m for m in ('torch', 'pandas', 'pyarrow', 'PIL') if m in sys.modules])"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
