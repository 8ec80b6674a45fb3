"""`datasieve page REPORT`: write the report's page anew."""

from __future__ import annotations

import click

from datasieve.cli.choices import PATH


@click.command("page", short_help="Write the page of a report, findings as pictures.")
@click.argument("report", type=PATH)
def command(report: object) -> None:
    """Write index.html into REPORT: its findings as pictures, in the order in which to act on them.

    `datasieve audit` writes it too; this is for reports whose page was left out or whose pictures moved.
    """
    from pathlib import Path

    from datasieve.policy import all_rules
    from datasieve.report import open_report
    from datasieve.reporting.page import write_page
    from datasieve.reporting.text import safe
    from datasieve.sources import open_source

    opened = open_report(str(report))
    settings = opened.run.get("settings") or {}
    records = open_source(Path(opened.run["dataset"]["path"]), concept_by=settings.get("concept-by", "auto")).records
    final = write_page(opened, records, all_rules(), int(settings.get("max-pixels", 178_956_970)))
    click.echo(safe(str(final)))
