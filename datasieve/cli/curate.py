"""`datasieve curate`: a chosen part of a set, in the layout a trainer takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from datasieve.cli.choices import PATH, names

LAYOUTS = ("folder", "kohya", "imagefolder", "diffusers", "webdataset")


@click.command("curate", short_help="Choose images from a report and export them as a set.")
@click.argument("report", type=PATH)
@click.option("--out", type=PATH, required=True, metavar="FOLDER", help="Where the set goes.")
@click.option("--layout", type=click.Choice(LAYOUTS),
              help="What the set is laid out for.  [default: kohya for kohya's sets, else folder]")  # fmt: skip
@click.option("--drop", multiple=True, callback=names, metavar="RULES",
              help="Also leave out images that these rules or prefixes name.")  # fmt: skip
@click.option("--keep", multiple=True, callback=names, metavar="RULES",
              help="Never leave an image out for these; duplicates keeps copies.")  # fmt: skip
@click.option("--where", multiple=True, metavar="CONDITION",
              help="Only images with, such as 'buckets.scale < 1.5'; repeat for several.")  # fmt: skip
@click.option("--most", type=click.IntRange(1), metavar="N", help="At most N images of each concept.")
@click.option("--method", type=click.Choice(("coverage", "spread", "quality")), default="coverage", show_default=True,
              help="How these are chosen: to represent the rest, to differ, or by findings alone.")  # fmt: skip
@click.option("--balance", default="", metavar="COLUMN",
              help="Take equally many of each value, such as semantics.cluster.")  # fmt: skip
@click.option("--validation", type=click.FloatRange(0, 0.9), default=0.0, show_default=True, metavar="SHARE",
              help="Hold out this share of each concept, near-duplicates together.")  # fmt: skip
@click.option("--link", is_flag=True, help="Hard links instead of copies.")
@click.option("--dry-run", is_flag=True, help="Print what would be chosen and why; write nothing.")
@click.option("--no-audit", is_flag=True, help="Do not audit the set when it is written.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the validation split.")
@click.option("--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True)
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes.")
def command(
    report: Path,
    out: Path,
    layout: str | None,
    drop: tuple[str, ...] | None,
    keep: tuple[str, ...] | None,
    where: tuple[str, ...],
    most: int | None,
    method: Any,
    balance: str,
    validation: float,
    link: bool,
    dry_run: bool,
    no_audit: bool,
    seed: int,
    form: str,
    quiet: bool,
) -> int:
    """Choose images from REPORT and write them as a set; the originals are only read.

    Without options it leaves out what cannot be used, images with errors, and copies. What became of each image, and
    why, stands in FOLDER/curation.parquet.

    \b
    Examples:
      datasieve curate photos-report --out photos-set --dry-run
      datasieve curate photos-report --out photos-set --most 40 --balance semantics.cluster
      datasieve curate photos-report --out photos-set --layout imagefolder --validation 0.1
    """
    from datasieve.curation.choose import Wish
    from datasieve.curation.run import curate
    from datasieve.progress import Silent
    from datasieve.report import open_report
    from datasieve.reporting.bar import bar
    from datasieve.reporting.curation import curation_json, curation_lines
    from datasieve.reporting.screen import stderr_console
    from datasieve.reporting.text import write_out

    wish = Wish(drop or (), keep or (), where, most, method, balance, validation, seed)
    arguments: dict[str, Any] = {
        "layout_name": layout,
        "link": link,
        "dry_run": dry_run,
        "audit_result": not no_audit,
    }
    opened = open_report(report)
    try:
        if quiet:
            done = curate(opened, out, wish, progress=Silent(), **arguments)
        else:
            with bar(stderr_console()) as drawn:
                done = curate(opened, out, wish, progress=drawn, **arguments)
    except KeyboardInterrupt:
        click.echo("Interrupted. Run the same command again to go on where it stopped.", err=True)
        return 130
    if form == "json":
        write_out(curation_json(done) + "\n", machine=True)
    else:
        write_out("\n".join(curation_lines(done, dry_run=dry_run)) + "\n", machine=False)
    return 0
