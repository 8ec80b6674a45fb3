"""`datasieve undo`: take a fix back."""

from __future__ import annotations

from pathlib import Path

import click

from datasieve.cli.choices import PATH


@click.command("undo", short_help="Take a fix back.")
@click.argument("folder", type=PATH)
def command(folder: Path) -> int:
    """Undo the fix that wrote FOLDER.

    FOLDER is what was given with --backup: then every original comes back bit for bit. Or it is a clean copy: then
    the files that the fix wrote are removed. What somebody changed since stays and is named (exit code 1), and of a
    copy nothing goes whose source is not there any more.

    \b
    Examples:
      datasieve undo photos-originals
      datasieve undo photos-clean
    """
    from datasieve.repair.undo import undo
    from datasieve.reporting.repairs import undone_lines
    from datasieve.reporting.text import write_out

    done = undo(folder)
    write_out("\n".join(undone_lines(done)) + "\n", machine=False)
    return 1 if done.left else 0
