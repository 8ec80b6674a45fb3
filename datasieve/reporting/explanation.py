"""What a rule, a column or an analyzer is, as lines for the terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from datasieve.analyzers import Analyzer, load, names
from datasieve.errors import InputError
from datasieve.reporting.rule_text import column_text, limit_text, sections
from datasieve.reporting.summary import MARKS, STYLES, Page
from datasieve.reporting.text import count, did_you_mean
from datasieve.rules import Rule
from datasieve.schema import Column


def explain(name: str, rules: Mapping[str, Rule], console: Console) -> list[Text]:
    """Return the explanation of the rule, column, analyzer or group of rules called `name`.

    Raises InputError, with names like it, when there is none.
    """
    page = Page(console)
    analyzers = {analyzer: load(analyzer) for analyzer in names()}
    columns = {column.name: column for analyzer in analyzers.values() for column in analyzer.columns}
    known = [*rules, *columns, *analyzers, *_groups(rules)]
    if name not in known:
        raise InputError(
            f"there is no rule, column or analyzer {name!r}",
            remedy=did_you_mean(name, known, "List all rules with: datasieve explain"),
        )
    if name in rules:
        _rule(page, rules[name], columns)
    # A rule and its column may share a name; both are shown then.
    if name in columns:
        page.gap()
        _column(page, columns[name], rules)
    if name in analyzers:
        _analyzer(page, name, analyzers[name])
    if name in _groups(rules):
        page.gap()
        _list(page, name, rules, columns)
    return page.lines


def _groups(rules: Mapping[str, Rule]) -> list[str]:
    return sorted({rule_id.partition(".")[0] for rule_id in rules})


def all_rules_lines(rules: Mapping[str, Rule], console: Console) -> list[Text]:
    """Return the list of all rules, grouped by what measures them."""
    page = Page(console)
    columns = {column.name: column for name in names() for column in load(name).columns}
    for group in _groups(rules):
        page.gap()
        _list(page, group, rules, columns)
    page.gap()
    page.add(f"{count(len(rules), 'rule')}. One of them in full: ", ("datasieve explain RULE", "bold cyan"))
    return page.lines


def _list(page: Page, group: str, rules: Mapping[str, Rule], columns: Mapping[str, Column]) -> None:
    own = {rule_id: rule for rule_id, rule in sorted(rules.items()) if rule_id.partition(".")[0] == group}
    widest = max(len(rule_id) for rule_id in own)
    page.add((group, "bold underline"), (f"  {count(len(own), 'rule')}", "dim"))
    for rule_id, rule in own.items():
        fires = limit_text(rule, columns.get(rule.column))
        page.add(
            (f"{MARKS[rule.severity]} {rule.severity:<7}", STYLES[rule.severity]),
            f"  {rule_id:<{widest}}  {rule.title}",
            (f" ({fires})" if rule.column and rule.side != "is" else "", "dim"),
            ("" if rule.default else " only when selected", "dim"),
            indent=2,
            hang=15 + widest,
        )


def _rule(page: Page, rule: Rule, columns: Mapping[str, Column]) -> None:
    page.add((rule.title, "bold"), f"  {rule.id}  ", (f"{MARKS[rule.severity]} {rule.severity}", STYLES[rule.severity]))
    for heading, text in sections(rule, columns.get(rule.column)):
        page.gap()
        page.add((heading, "bold"))
        page.add(text, indent=2)


def _column(page: Page, column: Column, rules: Mapping[str, Rule]) -> None:
    page.add((column.name, "bold"), f"  column, {column_text(column) or column.kind}")
    stage = "each image by itself" if column.stage == "measure" else "the whole set together"
    told = [
        ("What it says", column.description),
        ("Measured on", stage),
        ("Source", column.source),
        ("Tolerance", f"{column.tolerance:g} {column.unit}".strip() if column.tolerance else ""),
        ("Judged by", ", ".join(rule.id for rule in rules.values() if rule.column == column.name) or "no rule"),
    ]
    for heading, text in told:
        if text:
            page.gap()
            page.add((heading, "bold"))
            page.add(text, indent=2)


def _analyzer(page: Page, name: str, analyzer: Analyzer) -> None:
    page.add((name, "bold"), f"  analyzer, version {analyzer.version}")
    page.gap()
    module = sys.modules.get(f"datasieve.analyzers.{name}") or sys.modules.get(type(analyzer).__module__)
    for paragraph in ((module.__doc__ if module else "") or "").strip().split("\n\n"):
        page.add(" ".join(paragraph.split()), indent=2)
        page.gap()
    page.add(("Columns", "bold"))
    widest = max((len(column.name) for column in analyzer.columns), default=0)
    for column in analyzer.columns:
        unit = column_text(column)
        page.add(
            f"{column.name:<{widest}}  ",
            column.description,
            (f" ({unit})" if unit else "", "dim"),
            indent=2,
            hang=widest + 4,
        )
