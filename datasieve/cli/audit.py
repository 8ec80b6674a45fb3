"""`datasieve audit PATH`: measure a set of images and say what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datasieve.cli.choices import BASES, PATH, TARGETS, TRAINERS, names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from datasieve.config import Settings
    from datasieve.report import Report
    from datasieve.rules import Rule

CONCEPT_BY = ("auto", "folder", "caption", "none")
EMBEDDERS = ("auto", "lite0", "clip", "none")
FAIL_ON = ("never", "warning", "error")
FORMATS = ("text", "json", "csv", "sarif", "github")


def _limits(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, float] | None:
    limits = {}
    for value in values:
        rule, _, limit = value.partition("=")
        try:
            limits[rule.strip()] = float(limit)
        except ValueError:
            raise click.BadParameter(f"{value!r} is not RULE=NUMBER", ctx, parameter) from None
    return limits or None


@click.command("audit", short_help="Measure a set of images and say what is wrong with it.")
@click.argument("path", type=PATH)
@click.option("--out", type=PATH, metavar="FOLDER", help="Where the report goes.  [default: PATH-report beside PATH]")
@click.option("--for", "target", type=click.Choice(TARGETS), help="What you will train.  [default: ti]")
@click.option("--base", type=click.Choice(BASES), help="The base model; sets resolution and limits.  [default: sd15]")
@click.option("--trainer", type=click.Choice(TRAINERS), help="The trainer whose habits are checked.")
@click.option("--resolution", type=click.IntRange(1), help="Training resolution in pixels.  [default: the base's]")
@click.option("--batch-size", type=click.IntRange(1), help="Images per training step.  [default: 1]")
@click.option("--concept-by", type=click.Choice(CONCEPT_BY), help="What tells concepts apart.  [default: auto]")
@click.option("--embedder", type=click.Choice(EMBEDDERS), help="Turns pictures into vectors.  [default: auto]")
@click.option(
    "--clip", metavar="MODEL", help="CLIP model: NAME/WEIGHTS, NAME@FILE or a folder; implies --embedder clip."
)
@click.option("--select", multiple=True, callback=names, metavar="RULES", help="Only these rules or prefixes.")
@click.option("--ignore", multiple=True, callback=names, metavar="RULES", help="Leave these rules or prefixes out.")
@click.option("--limit", "limits", multiple=True, callback=_limits, metavar="RULE=NUMBER", help="Another limit.")
@click.option("--fail-on", type=click.Choice(FAIL_ON), help="Exit with 1 at such findings.  [default: never]")
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True)
@click.option("--config", type=PATH, metavar="FILE", help="Settings.  [default: nearest datasieve.toml or pyproject]")
@click.option("--baseline", type=PATH, metavar="FILE", help="Findings in this file are accepted and do not count.")
@click.option("--write-baseline", type=PATH, metavar="FILE", help="Accept today's findings: write them to this file.")
@click.option("--fresh", is_flag=True, help="Discard earlier measurements in the report.")
@click.option("--workers", type=click.IntRange(1), help="Decoding workers.  [default: by core count]")
@click.option("--device", metavar="NAME", help="Where to measure: cpu, cuda, cuda:1...  [default: CUDA if present]")
@click.option("--max-pixels", type=click.IntRange(1), help="Refuse larger images.  [default: 178956970]")
@click.option("--no-page", is_flag=True, help="Leave out index.html and its thumbnails.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes.")
def command(
    path: Path,
    out: Path | None,
    form: str,
    config: Path | None,
    baseline: Path | None,
    write_baseline: Path | None,
    fresh: bool,
    workers: int | None,
    device: str | None,
    no_page: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Audit the images in PATH: a folder, WebDataset shards, or a list of files.

    Your files are only read. A second run into the same report measures only what is new or changed.

    RULES are rule ids or their prefixes, separated by commas or given repeatedly: --ignore colour,files.animated

    \b
    Examples:
      datasieve audit photos
      datasieve audit photos --for lora --base sdxl --trainer kohya
      datasieve audit photos --fail-on error --format github
      datasieve audit photos --write-baseline known.json
    """
    from datasieve.pipeline.run import audit
    from datasieve.policy import all_rules
    from datasieve.progress import Silent
    from datasieve.reporting.bar import bar
    from datasieve.reporting.screen import stderr_console

    settings = _settings(config, options)
    _writable(write_baseline)
    arguments: dict[str, Any] = {"workers": workers, "device": device, "fresh": fresh, "baseline": baseline}
    try:
        if quiet:
            report = audit(path, out, settings=settings, progress=Silent(), **arguments)
        else:
            with bar(stderr_console()) as drawn:
                report = audit(path, out, settings=settings, progress=drawn, **arguments)
    except KeyboardInterrupt as stop:
        return _interrupted(getattr(stop, "report", None), quiet=quiet)
    if not no_page:
        _write_page(report, path, settings)
    _print(report, all_rules(), form, path)
    if write_baseline is not None:
        _accept(report, baseline, write_baseline)
        return 0
    return 1 if fails(report, settings.fail_on) else 0


def _write_page(report: Report, dataset: Path, settings: Settings) -> None:
    from datasieve.policy import all_rules
    from datasieve.reporting.page import write_page
    from datasieve.sources import open_source

    records = open_source(dataset, concept_by=settings.concept_by).records
    write_page(report, records, all_rules(), settings.max_pixels)


def _settings(config: Path | None, options: Mapping[str, Any]) -> Settings:
    from datasieve.config import find_config, load_settings

    file = config or find_config(Path.cwd())
    given = dict(options)
    if given["limits"]:
        given["limits"] = {**load_settings(file).limits, **given["limits"]}
    return load_settings(file, **given)


def _writable(write_baseline: Path | None) -> None:
    from datasieve.errors import OutputError

    # Said before the work, not after it.
    if write_baseline is not None and (write_baseline.is_dir() or not write_baseline.absolute().parent.is_dir()):
        raise OutputError(f"cannot write {write_baseline}", remedy="Name a file in a folder that exists.")


def fails(report: Report, fail_on: str) -> bool:
    """Tell whether `report` has findings at or above `fail_on`; "not trainable" counts as an error."""
    if fail_on == "never":
        return False
    counted = ("error",) if fail_on == "error" else ("warning", "error")
    found = report.findings()["severity"].to_pylist()
    return report.verdict == "not trainable" or any(severity in counted for severity in found)


def _accept(report: Report, baseline: Path | None, write_baseline: Path) -> None:
    from datasieve import baseline as baselines
    from datasieve.reporting.text import count, safe

    rows = report.findings().select(["rule", "path", "concept"]).to_pylist()
    today = {baselines.key(row["rule"], row["path"], row["concept"]) for row in rows}
    # The report leaves out what the old baseline accepts; that stays accepted.
    before = baselines.read_baseline(baseline) if baseline else frozenset()
    baselines.write_baseline(write_baseline, today | before)
    click.echo(f"Accepted {count(len(today | before), 'finding')} in {safe(str(write_baseline))}", err=True)


def _interrupted(report: Report | None, *, quiet: bool) -> int:
    from datasieve.reporting.text import count, safe

    if not quiet:
        click.echo("Interrupted.", err=True)
        if report is not None:
            images = count(int(report.run.get("counts", {}).get("images", 0)), "image")
            click.echo(f"What was measured so far ({images}) is in {safe(str(report.path))}", err=True)
        click.echo("Run the same command again to go on where it stopped.", err=True)
    return 130


def _print(report: Report, rules: Mapping[str, Rule], form: str, path: Path) -> None:
    from datasieve.reporting import formats
    from datasieve.reporting.screen import print_lines, stdout_console
    from datasieve.reporting.summary import summary
    from datasieve.reporting.text import write_out

    if form == "text":
        console = stdout_console()
        print_lines(console, summary(report, rules, console))
        return
    rows = report.findings().to_pylist()
    version = str(report.run.get("datasieve", ""))
    made = {
        "json": lambda: formats.findings_json(report, rows),
        "csv": lambda: formats.rows_csv(rows),
        "sarif": lambda: formats.findings_sarif(rows, rules, version=version, dataset=path),
        "github": lambda: formats.findings_github(rows, rules, dataset=path),
    }[form]()
    write_out(made, machine=True)
