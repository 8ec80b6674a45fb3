"""`datasieve fix`: a repaired copy of a set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datasieve.cli.choices import BASES, PATH, TARGETS, TRAINERS, names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from datasieve.config import Settings
    from datasieve.repair import Options
    from datasieve.repair.run import Fixed

_COLOURS = {"white": (255, 255, 255), "black": (0, 0, 0), "grey": (128, 128, 128)}


def _colour(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[int, int, int]:
    if value in _COLOURS:
        return _COLOURS[value]
    digits = value.removeprefix("#")
    try:
        if len(digits) != 6:
            raise ValueError
        return int(digits[:2], 16), int(digits[2:4], 16), int(digits[4:], 16)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not white, black, grey or #rrggbb", ctx, parameter) from None


@click.command("fix", short_help="Write a repaired copy of a set.")
@click.argument("path", type=PATH, default=".")
@click.option("--out", type=PATH, metavar="FOLDER", help="Where the copy goes.  [default: PATH-clean beside PATH]")
@click.option("--normalize", is_flag=True, help="Also trim bars, level captions, bring odd light and exposure to the "
              "set's own.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print the plan; of the set only the report is written.")
@click.option("--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True)
@click.option("--select", multiple=True, callback=names, metavar="RULES", help="Repair only these rules or prefixes.")
@click.option("--ignore", multiple=True, callback=names, metavar="RULES", help="Leave these rules or prefixes alone.")
@click.option("--resize", is_flag=True, help="Crop and resize to the trainer's buckets, round the subject.")
@click.option("--linear-light", is_flag=True, help="Resize in linear light.")
@click.option("--upscale", is_flag=True, help="Let --resize enlarge, too.")
@click.option(
    "--balance", is_flag=True, help="Cut close-ups and full shots out of large images where they are missing."
)
@click.option("--alpha", type=click.Choice(("background", "mask")), default="background", show_default=True,
              help="Transparency: flatten it, or flatten it and keep it as a mask file.")  # fmt: skip
@click.option("--background", callback=_colour, default="white", show_default=True, metavar="COLOUR",
              help="What goes under transparent parts: white, black, grey or #rrggbb.")  # fmt: skip
@click.option("--wb", type=click.Choice(("set", "d65", "off")), default="set", show_default=True,
              help="White balance with --normalize: outliers to the set's light, casts to daylight, none.")  # fmt: skip
@click.option("--as", "images", type=click.Choice(("png", "source")), default="png", show_default=True,
              help="Format of changed images: PNG, or their own (JPEG quality 95 4:4:4, WebP lossless).")  # fmt: skip
@click.option("--in-place", is_flag=True, help="Repair PATH itself; only together with --backup.")
@click.option("--backup", type=PATH, metavar="FOLDER", help="Where the originals go first; see datasieve undo.")
@click.option("--for", "target", type=click.Choice(TARGETS), help="What you will train.  [default: ti]")
@click.option("--base", type=click.Choice(BASES), help="The base model; sets resolution and limits.  [default: sd15]")
@click.option("--trainer", type=click.Choice(TRAINERS), help="The trainer whose habits are checked.")
@click.option("--resolution", type=click.IntRange(64), help="Training resolution in pixels.  [default: the base's]")
@click.option("--config", type=PATH, metavar="FILE", help="Settings.  [default: nearest datasieve.toml or pyproject]")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes.")
def command(
    path: Path,
    out: Path | None,
    dry_run: bool,
    form: str,
    select: tuple[str, ...] | None,
    ignore: tuple[str, ...] | None,
    in_place: bool,
    backup: Path | None,
    config: Path | None,
    quiet: bool,
    **chosen: Any,
) -> int:
    """Write a repaired copy of the images in PATH; the originals are only read.

    Images that need nothing are copied byte for byte, with their captions mended. Exact and near copies and unreadable
    files go to a folder of their own beside the copy. What was done to each file stands in provenance.parquet, and
    datasieve undo takes it back.

    \b
    Examples:
      datasieve fix photos --dry-run
      datasieve fix photos --normalize --out photos-clean
      datasieve fix photos --resize --base sdxl --trainer kohya
      datasieve fix photos --ignore duplicates.near --alpha mask
      datasieve fix photos --in-place --backup photos-originals
    """
    from datasieve.config import find_config, load_settings
    from datasieve.progress import Silent
    from datasieve.repair.run import fix
    from datasieve.reporting.bar import bar
    from datasieve.reporting.screen import stderr_console

    if in_place != (backup is not None):
        raise click.UsageError("--in-place and --backup FOLDER go together")
    if in_place and out is not None:
        raise click.UsageError("--in-place writes no copy; leave --out out")
    settings = load_settings(
        config or find_config(Path.cwd()), **{n: chosen.pop(n) for n in ("target", "base", "trainer", "resolution")}
    )
    arguments: dict[str, Any] = {
        "backup": backup,
        "options": _options(settings, chosen),
        "settings": settings,
        "select": select or (),
        "ignore": ignore or (),
    }
    try:
        if quiet:
            fixed = fix(path, out, dry_run=dry_run, progress=Silent(), **arguments)
        else:
            with bar(stderr_console()) as drawn:
                fixed = fix(path, out, dry_run=dry_run, progress=drawn, **arguments)
    except KeyboardInterrupt:
        click.echo("Interrupted. Run the same command again to go on where it stopped.", err=True)
        return 130
    if fixed.after is not None:
        _write_page(fixed, settings)
    _print(fixed, form, select or (), dry_run=dry_run, in_place=in_place)
    return 0


def _options(settings: Settings, chosen: dict[str, Any]) -> Options:
    from datasieve.bucketing import COARSE_BASES
    from datasieve.repair import Options

    if not chosen["resize"]:
        for name, given in (("--linear-light", chosen["linear_light"]), ("--upscale", chosen["upscale"])):
            if given:
                raise click.UsageError(f"{name} goes with --resize")
    return Options(
        white_balance=chosen.pop("wb"),
        resolution=settings.pixels,
        trainer=settings.trainer,
        coarse=settings.base in COARSE_BASES,
        **chosen,
    )


def _write_page(fixed: Fixed, settings: Settings) -> None:
    from datasieve.policy import all_rules
    from datasieve.reporting.page import write_page
    from datasieve.sources import open_source

    assert fixed.after is not None
    records = open_source(fixed.clean, concept_by=settings.concept_by).records
    write_page(fixed.after, records, all_rules(), settings.max_pixels)


def _print(fixed: Fixed, form: str, select: Sequence[str], *, dry_run: bool, in_place: bool) -> None:
    from datasieve.policy import all_rules
    from datasieve.repair.plan import ALL_RULES
    from datasieve.reporting.repairs import left_lines, plan_json, plan_lines, told, unanswered
    from datasieve.reporting.summary import command as shell
    from datasieve.reporting.summary import here
    from datasieve.reporting.text import safe, write_out

    if form == "json":
        write_out(plan_json(fixed) + "\n", machine=True)
        return
    lines = plan_lines(fixed.actions)
    if dry_run:
        lines += left_lines(fixed.actions, fixed.before.findings().to_pylist(), all_rules())
    elif fixed.after is not None:
        lines += left_lines([], fixed.after.findings().to_pylist(), all_rules())
    for pattern in unanswered(select, ALL_RULES):
        lines += ["", f"No repair answers {safe(pattern)}; see Left for you."]
    if dry_run:
        lines += ["", f"Only the report was written: {safe(str(here(fixed.before.path)))}"]
        lines += ["Run it without --dry-run to carry this out."]
    else:
        after = fixed.after.verdict if fixed.after is not None else "nothing was left"
        lines += ["", f"Verdict   {fixed.before.verdict} before, {after} now"]
        if fixed.after is not None:
            lines += [f"Findings  {told(fixed.before)} before; {told(fixed.after)} now"]
        lines += [f"Clean set {safe(str(here(fixed.clean)))}"]
        if in_place and fixed.entries:
            lines += [f"Originals {safe(str(here(fixed.aside)))}"]
        elif not in_place and any(action.kind in ("set aside", "quarantine") for action in fixed.actions):
            lines += [f"Set aside {safe(str(here(fixed.aside)))}"]
        if fixed.after is not None:
            lines += [f"Page      {safe(str(here(fixed.after.path / 'index.html')))}  before and after"]
            lines += [f"Next      {shell('show', here(fixed.after.path))}"]
        if not in_place or fixed.entries:
            lines += [f"Undo      {shell('undo', here(fixed.aside if in_place else fixed.clean))}"]
    write_out("\n".join(lines) + "\n", machine=False)
