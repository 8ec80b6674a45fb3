"""Consoles: rich decides about width and colour, we decide about both when nobody is looking."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from datasieve.reporting.text import write_out

PIPED_WIDTH = 100
"""Columns of text that goes into a file or pipe, unless COLUMNS says otherwise."""


def stdout_console() -> Console:
    """Return a console for results: as wide as the terminal, at most 120; plain and PIPED_WIDTH wide when piped."""
    console = Console(file=sys.stdout, highlight=False, emoji=False, markup=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED_WIDTH
    console.width = min(console.width, 120)
    return console


def stderr_console() -> Console:
    """Return a console for progress and log."""
    return Console(file=sys.stderr, highlight=False, emoji=False, markup=False)


def print_lines(console: Console, lines: Iterable[Text]) -> None:
    """Write `lines` to stdout, each on one line, styled where the console knows colour."""
    with console.capture() as capture:
        for line in lines:
            console.print(line, no_wrap=True, overflow="ignore", crop=False, soft_wrap=True)
    write_out(capture.get())
