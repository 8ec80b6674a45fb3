"""`datasieve captions PATH`: what the captions say, without opening a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

_PATH: click.Path = click.Path(path_type=Path)


@click.command("captions", short_help="Look at the captions alone: detail, tokens, tags.")
@click.argument("path", type=_PATH)
@click.option("--trainer", help="The trainer whose reading and tokenizer count.")
@click.option("--base", help="The base model.  [default: sd15]")
@click.option("--batch-size", type=click.IntRange(1), help="Images per training step, for entropy.  [default: 1]")
@click.option("--concept-by", help="What tells concepts apart: auto, folder, caption, none.  [default: auto]")
@click.option("--all", "every", is_flag=True, help="Show every caption, not the first 40.")
@click.option("--format", "form", type=click.Choice(("text", "csv", "json")), default="text", show_default=True)
def command(path: Path, every: bool, form: str, **options: Any) -> None:
    """Measure the captions of the images in PATH: how much they say, what the trainer reads of it, which tags stand
    together. Pictures are listed, not opened.

    \b
    Examples:
      datasieve captions photos
      datasieve captions photos --trainer kohya
      datasieve captions photos --format csv > captions.csv
    """
    from datasieve.config import find_config, load_settings
    from datasieve.pipeline.captions import measure_captions
    from datasieve.reporting import captions, formats
    from datasieve.reporting.screen import print_lines, stdout_console
    from datasieve.reporting.text import write_out
    from datasieve.storage import to_json

    audit = measure_captions(path, load_settings(find_config(Path.cwd()), **options))
    rows = audit.images.to_pylist()
    if form == "csv":
        write_out(formats.rows_csv(rows, audit.images.column_names), machine=True)
    elif form == "json":
        write_out(to_json({"images": rows, "concepts": audit.concepts.to_pylist()}), machine=True)
    else:
        console = stdout_console()
        print_lines(console, captions.caption_lines(audit, console, every=every))
