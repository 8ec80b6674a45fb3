"""The command line. A command is: options, one public function, print.

Each file of this folder holds one command under the name `command` and imports only click at its top, so that
`--help` stays quick. `main` catches `DatasieveError` once.
"""

from __future__ import annotations

import difflib
import gc
import importlib
import sys
import traceback
from collections.abc import Sequence

import click

from datasieve.errors import DatasieveError

COMMANDS = (
    "audit",
    "captions",
    "fix",
    "undo",
    "curate",
    "diff",
    "show",
    "page",
    "matrix",
    "similar",
    "explain",
    "batches",
    "train",
    "generate",
    "convert",
    "doctor",
)
"""The commands in the order of use, which is the order of the help."""

DONE, FINDINGS, COULD_NOT_RUN, INTERRUPTED = 0, 1, 2, 130


class Commands(click.Group):
    """The group that imports a command's file when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"{__name__}.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            if not near or near[0] in error.message:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]}?", ctx) from error


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done; 1 findings at or above --fail-on; 2 could not run; 3 training unstable; "
    "130 interrupted.",
)
@click.version_option(package_name="datasieve", prog_name="datasieve")
def cli() -> None:
    """Find what in your images and captions will make a diffusion training run collapse.

    Start with: datasieve audit FOLDER
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line on `arguments` (None: those of the process) and return the exit code."""
    if arguments is None:  # the process is ours: its many long-lived objects need not be looked through so often
        gc.set_threshold(100_000, 20, 20)
    try:
        result = cli.main(
            args=None if arguments is None else list(arguments), prog_name="datasieve", standalone_mode=False
        )
    except click.Abort:
        return INTERRUPTED
    except KeyboardInterrupt:
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return COULD_NOT_RUN
    except DatasieveError as error:
        _complain(error)
        return error.exit_code
    except Exception:
        # Python would leave with 1, which here means "findings"; a fault of ours is "could not run".
        traceback.print_exc()
        print("datasieve: this is a fault in datasieve, not in your files; please report it", file=sys.stderr)
        return COULD_NOT_RUN
    return result if isinstance(result, int) else DONE


def _complain(error: DatasieveError) -> None:
    from datasieve.reporting.text import safe

    for line in (f"datasieve: {error.message}", f"  {error.remedy}" if error.remedy else ""):
        if line:
            click.echo("\n".join(safe(part) for part in line.split("\n")), err=True)
