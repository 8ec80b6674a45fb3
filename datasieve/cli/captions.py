"""`datasieve captions PATH`: what the captions say, without opening a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datasieve.cli.choices import BASES, PATH, TRAINERS

if TYPE_CHECKING:
    from datasieve.config import Settings


@click.command("captions", short_help="Look at the captions alone: detail, tokens, tags.")
@click.argument("path", type=PATH)
@click.option("--trainer", type=click.Choice(TRAINERS), help="The trainer whose reading and tokenizer count.")
@click.option("--base", type=click.Choice(BASES), help="The base model.  [default: sd15]")
@click.option("--batch-size", type=click.IntRange(1), help="Images per training step, for entropy.  [default: 1]")
@click.option("--concept-by", help="What tells concepts apart: auto, folder, caption, none.  [default: auto]")
@click.option("--all", "every", is_flag=True, help="Show every caption, not the first 40.")
@click.option("--fix", is_flag=True, help="Show what repairing would change; with --out, write it.")
@click.option("--out", type=PATH, metavar="FOLDER", help="Where repaired caption files go; never the dataset itself.")
@click.option("--lossy", is_flag=True, help="Also drop trailing phrases: to the token limit and the usual detail.")
@click.option("--trigger", default="", metavar="WORD", help="Put this word into every caption that lacks it.")
@click.option("--rename", default="", metavar="WORD", help="Replace this word by that of --trigger.")
@click.option("--order", "reorder", is_flag=True, help="Order tags: trigger, subject, setting, style.")
@click.option("--as", "extension", type=click.Choice(("txt", "caption")), help="Give all caption files this extension.")
@click.option("--format", "form", type=click.Choice(("text", "csv", "json")), default="text", show_default=True)
def command(
    path: Path,
    every: bool,
    fix: bool,
    out: Path | None,
    lossy: bool,
    trigger: str,
    rename: str,
    reorder: bool,
    extension: str | None,
    form: str,
    **options: Any,
) -> None:
    """Measure the captions of the images in PATH: how much they say, what the trainer reads of it, which tags stand
    together. Pictures are listed, not opened.

    With --fix, encoding, blanks, separators and repeated tags are mended; nothing is written without --out, and never
    into the dataset.

    \b
    Examples:
      datasieve captions photos
      datasieve captions photos --trainer kohya
      datasieve captions photos --format csv > captions.csv
      datasieve captions photos --fix
      datasieve captions photos --fix --lossy --trigger "<my-cat>" --out mended
    """
    from datasieve.config import find_config, load_settings
    from datasieve.pipeline.captions import measure_captions
    from datasieve.reporting import captions, formats
    from datasieve.reporting.screen import print_lines, stdout_console
    from datasieve.reporting.text import write_out
    from datasieve.storage import to_json

    settings = load_settings(find_config(Path.cwd()), **options)
    if fix:
        _fix(
            path,
            out,
            settings,
            f".{extension}" if extension else "",
            {"lossy": lossy, "trigger": trigger, "rename": rename, "reorder": reorder},
        )
        return
    if out is not None or lossy or trigger or rename or reorder or extension:
        raise click.UsageError("--out, --lossy, --trigger, --rename, --order and --as go with --fix")
    audit = measure_captions(path, settings)
    rows = audit.images.to_pylist()
    if form == "csv":
        write_out(formats.rows_csv(rows, audit.images.column_names), machine=True)
    elif form == "json":
        write_out(to_json({"images": rows, "concepts": audit.concepts.to_pylist()}), machine=True)
    else:
        console = stdout_console()
        print_lines(console, captions.caption_lines(audit, console, every=every))


def _fix(path: Path, out: Path | None, settings: Settings, extension: str, wishes: dict[str, Any]) -> None:
    from datasieve.captions.reading import flavour, token_limit
    from datasieve.repair.caption_files import plan_captions, write_captions
    from datasieve.repair.captions import Wish
    from datasieve.reporting import captions
    from datasieve.reporting.screen import print_lines, stdout_console

    wish = Wish(flavour=flavour(settings.trainer, settings.base), limit=token_limit(settings.trainer), **wishes)
    if wish.rename and not wish.trigger:
        raise click.UsageError("--rename needs --trigger")
    repair = plan_captions(path, wish, settings, extension)
    console = stdout_console()
    print_lines(console, captions.repair_lines(repair, console))
    if out is not None:
        number = write_captions(repair, path, out)
        click.echo(f"Wrote {number} caption files to {out}")
