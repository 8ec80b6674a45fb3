"""One documentation page per rule, made from the rules: `python -m datasieve.reporting.rule_pages docs/rules`.

With `--check` nothing is written; the exit code is 1 when a page is missing, stale or left over.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from datasieve.analyzers import load, names
from datasieve.reporting.rule_text import escaped, limit_text, rule_markdown
from datasieve.rules import Rule
from datasieve.schema import Column
from datasieve.storage import write_text

MARK = "<!-- made by datasieve.reporting.rule_pages from the rule's own data; edit the rule, not this page -->\n"


def all_columns() -> dict[str, Column]:
    """Return every column of every analyzer by name."""
    return {column.name: column for name in names() for column in load(name).columns}


def pages(rules: Mapping[str, Rule], columns: Mapping[str, Column]) -> dict[str, str]:
    """Return file name -> content: a page per rule and README.md, the index."""
    made = {f"{i}.md": MARK + rule_markdown(rule, columns.get(rule.column)) for i, rule in sorted(rules.items())}
    made["README.md"] = MARK + _index(rules, columns)
    return made


def _index(rules: Mapping[str, Rule], columns: Mapping[str, Column]) -> str:
    lines = ["# Rules", "", "`datasieve explain RULE` shows the same pages in the terminal.", ""]
    for group in sorted({rule_id.partition(".")[0] for rule_id in rules}):
        lines += [f"## {group}", "", "| rule | severity | fires | title |", "|---|---|---|---|"]
        for rule_id, rule in sorted(rules.items()):
            if rule_id.partition(".")[0] == group:
                fires = escaped(limit_text(rule, columns.get(rule.column))).replace("|", "\\|")
                lines.append(f"| [{rule_id}]({rule_id}.md) | {rule.severity} | {fires} | {escaped(rule.title)} |")
        lines.append("")
    return "\n".join(lines)


def stale(folder: Path, made: Mapping[str, str]) -> list[Path]:
    """Return the pages in `folder` that this module made once and would not make now."""
    found = sorted(folder.glob("*.md")) if folder.is_dir() else []
    return [p for p in found if p.name not in made and p.read_text(encoding="utf-8").startswith(MARK)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the pages; return the exit code."""
    from datasieve.policy import all_rules

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a page is out of date")
    options = parser.parse_args(arguments)
    folder: Path = options.folder
    made = pages(all_rules(), all_columns())
    wrong = stale(folder, made)
    for name, content in made.items():
        page = folder / name
        if not page.is_file() or page.read_text(encoding="utf-8") != content:
            wrong.append(page)
            if not options.check:
                write_text(page, content)
    if options.check:
        for page in wrong:
            print(f"out of date: {page}", file=sys.stderr)
        return 1 if wrong else 0
    for page in stale(folder, made):
        page.unlink()
    print(f"{len(made) - 1} rules in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
