"""`datasieve doctor`: what this installation can do."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("doctor", short_help="Say what this installation can do.")
@click.option("--format", "form", type=click.Choice(("text", "json")), default="text", show_default=True)
def command(form: str) -> int:
    """Say what this installation can do: torch and its device, decoders, embedding weights, disk, configuration.

    The exit code is 2 when torch cannot be imported, else 0.
    """
    from datasieve.reporting import diagnosis
    from datasieve.reporting.screen import print_lines, stdout_console
    from datasieve.reporting.text import write_out
    from datasieve.storage import to_json

    found = diagnosis.diagnose(Path.cwd())
    if form == "json":
        write_out(to_json(found), machine=True)
    else:
        console = stdout_console()
        print_lines(console, diagnosis.lines(found, console))
    return 0 if found["torch"]["usable"] else 2
