"""`datasieve diff`: two reports side by side."""

from __future__ import annotations

from pathlib import Path

import click

from datasieve.cli.choices import PATH


@click.command("diff", short_help="Compare two reports.")
@click.argument("a", type=PATH)
@click.argument("b", type=PATH)
@click.option("--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True)
def command(a: Path, b: Path, form: str) -> int:
    """Tell what report B has other than report A: verdict, findings, images, measurements that moved.

    \b
    Examples:
      datasieve diff photos-report photos-clean-report
      datasieve diff before after --format json
    """
    from datasieve.report import open_report
    from datasieve.reporting.difference import difference, difference_json, difference_lines
    from datasieve.reporting.summary import here
    from datasieve.reporting.text import write_out

    found = difference(open_report(a), open_report(b))
    if form == "json":
        write_out(difference_json(found) + "\n", machine=True)
    else:
        write_out("\n".join(difference_lines(found, (str(here(a)), str(here(b))))) + "\n", machine=False)
    return 0
