"""`datasieve batches REPORT`: what the batches of a training run would be like."""

from __future__ import annotations

from pathlib import Path

import click

_PATH: click.Path = click.Path(path_type=Path)


@click.command("batches", short_help="Simulate the batches of an epoch: conflicts, mix, coverage.")
@click.argument("report", type=_PATH)
@click.option("--batch-size", type=click.IntRange(1), default=4, show_default=True, help="Images of a batch.")
@click.option("--accumulation", type=click.IntRange(1), default=1, show_default=True, help="Batches of a step.")
@click.option("--ranks", type=click.IntRange(1), default=1, show_default=True, help="Processes that train together.")
@click.option("--steps", type=click.IntRange(1), help="Simulate so many optimizer steps instead of an epoch.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random order.")
@click.option("--clusters", metavar="COLUMN", help="The column that sorts images into clusters [semantics.cluster].")
@click.option("--weights", metavar="COLUMN", help="Draw images in proportion to this column.")
@click.option("--copies", type=click.Choice(("keep", "share", "drop")), default="keep", show_default=True)
@click.option("--on-infeasible", type=click.Choice(("error", "shrink", "relax")), default="error", show_default=True)
@click.option("--drop-last", is_flag=True, help="Leave out what fills no batch instead of showing images again.")
@click.option("--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True)
@click.option("--plot", "picture", type=_PATH, metavar="FILE", help="Also draw it into FILE (.png, .svg, .pdf).")
def command(
    report: Path,
    batch_size: int,
    accumulation: int,
    ranks: int,
    steps: int | None,
    seed: int,
    clusters: str | None,
    weights: str | None,
    copies: str,
    on_infeasible: str,
    drop_last: bool,
    form: str,
    picture: Path | None,
) -> None:
    """Simulate the batches that training on the images of REPORT would see.

    \b
    Examples:
      datasieve batches photos-report --batch-size 4
      datasieve batches photos-report --clusters concept --accumulation 2 --plot batches.png
    """
    from rich.text import Text

    from datasieve.report import open_report
    from datasieve.reporting import batches
    from datasieve.reporting.screen import print_lines, stdout_console
    from datasieve.reporting.text import write_out
    from datasieve.sampling.columns import CLUSTERS, usable_rows
    from datasieve.sampling.isolation import SemanticIsolationBatchSampler

    opened = open_report(report)
    sampler = SemanticIsolationBatchSampler.from_report(
        opened,
        batch_size=batch_size,
        clusters=clusters or CLUSTERS,
        weights=weights,
        copies=copies,  # type: ignore[arg-type]  # click has checked the choice
        accumulation=accumulation,
        num_replicas=ranks,
        rank="all",
        seed=seed,
        on_infeasible=on_infeasible,
        drop_last=drop_last,
    )
    found = sampler.describe(steps)
    paths = usable_rows(opened, ["path"])["path"].to_pylist()
    if picture is not None:
        batches.plot(found, picture)
    if form == "json":
        write_out(batches.batch_json(found, paths), machine=True)
    else:
        print_lines(stdout_console(), [Text(line) for line in batches.batch_lines(found, paths)])
