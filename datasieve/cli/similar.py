"""`datasieve similar REPORT IMAGE`: the images most alike in meaning."""

from __future__ import annotations

from pathlib import Path

import click

from datasieve.cli.choices import PATH


@click.command("similar", short_help="List the images most alike to one.")
@click.argument("report", type=PATH)
@click.argument("image")
@click.option("--count", type=click.IntRange(1), default=10, show_default=True, help="How many.")
@click.option("--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True)
def command(report: Path, image: str, count: int, form: str) -> None:
    """List the images of REPORT that show most nearly the same as IMAGE, nearest first."""
    from datasieve.report import open_report
    from datasieve.reporting.detail import image_row
    from datasieve.reporting.likeness import similar
    from datasieve.reporting.text import safe, write_out
    from datasieve.storage import to_json

    opened = open_report(report)
    found = similar(opened, str(image_row(opened, image)["path"]), count)
    if form == "json":
        write_out(to_json(found) + "\n", machine=True)
        return
    for row in found:
        click.echo(f"{row['cosine']:+.2f}  {safe(row['path'])}  {safe(row['group'])}")
