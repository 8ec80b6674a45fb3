"""`datasieve show REPORT`: read a report back."""

from __future__ import annotations

from pathlib import Path

import click

_PATH: click.Path = click.Path(path_type=Path)


@click.command("show", short_help="Read a report back: all, one rule, or one image.")
@click.argument("report", type=_PATH)
@click.option("--rule", metavar="RULE", help="Every finding of this rule, or of all rules with this prefix.")
@click.option("--image", metavar="NAME", help="Every measurement of one image: its path, file name or id.")
@click.option("--maps", metavar="DIR", type=_PATH, help="With --image: write where its subject was found, as PNG.")
@click.option("--format", "form", type=click.Choice(("text", "json", "csv")), default="text", show_default=True)
def command(report: Path, rule: str | None, image: str | None, maps: Path | None, form: str) -> None:
    """Read back the REPORT that an audit wrote.

    \b
    Examples:
      datasieve show photos-report
      datasieve show photos-report --rule colour.cast
      datasieve show photos-report --image cat/07.jpg
      datasieve show photos-report --image cat/07.jpg --maps maps
      datasieve show photos-report --format csv > findings.csv
    """
    from datasieve.policy import all_rules
    from datasieve.report import open_report
    from datasieve.reporting import detail, formats
    from datasieve.reporting.screen import print_lines, stdout_console
    from datasieve.reporting.summary import summary
    from datasieve.reporting.text import safe, write_out

    if maps is not None and image is None:
        raise click.UsageError("--maps needs --image.")
    opened = open_report(report)
    rules = all_rules()
    findings = detail.findings_of(opened, rules, rule)
    if image is not None:
        row = detail.image_row(opened, image)
        if maps is not None:
            from datasieve.reporting.maps import write_maps

            for path in write_maps(opened, row, maps):
                click.echo(safe(str(path)))
            return
        findings = [finding for finding in findings if finding["image_id"] == row["image_id"]]
        measured = detail.measurements(opened, row)
        if form == "json":
            write_out(detail.image_json(row, measured, findings), machine=True)
        elif form == "csv":
            write_out(formats.rows_csv(measured, detail.MEASUREMENT_FIELDS), machine=True)
        else:
            console = stdout_console()
            print_lines(console, detail.image_lines(row, measured, findings, console))
    elif form == "json":
        write_out(formats.findings_json(opened, findings), machine=True)
    elif form == "csv":
        write_out(formats.rows_csv(findings), machine=True)
    else:
        console = stdout_console()
        if rule is None:
            print_lines(console, summary(opened, rules, console))
        else:
            print_lines(console, detail.rule_lines(opened, rules, findings, console))
