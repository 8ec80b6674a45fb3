"""`datasieve matrix REPORT`: what looks like what, as a picture."""

from __future__ import annotations

from pathlib import Path

import click

from datasieve.cli.choices import PATH


@click.command("matrix", short_help="Draw how alike the concepts of a report are.")
@click.argument("report", type=PATH)
@click.option("--out", type=PATH, default="conflict.png", show_default=True, help="The picture: .png, .svg or .pdf.")
def command(report: Path, out: Path) -> None:
    """Draw the likeness of all concepts of REPORT, and of the groups within them, as a heat map.

    Groups of one concept that are unlike (blue) contradict each other; concepts that are alike (red) leak into each
    other.
    """
    from datasieve.report import open_report
    from datasieve.reporting.likeness import draw_matrix
    from datasieve.reporting.text import safe

    draw_matrix(open_report(report), out)
    click.echo(safe(str(out)))
