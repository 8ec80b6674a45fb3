"""The progress bar: quiet when nobody watches."""

from __future__ import annotations

import io

from rich.console import Console
from rich.progress import Progress

from datasieve.reporting.bar import CountColumn, LeftColumn, RateColumn, bar


def drawn(*, terminal: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100)
    with bar(console) as progress:
        progress.advance()  # before any stage: counted for nothing, no error
        progress.stage("Measuring [bold]", 4)
        progress.advance(3)
        progress.note("a worker was replaced: a\x1b[2Jb [red]x")
        progress.stage("Judging", None)
        progress.advance()
    return out.getvalue()


def test_a_pipe_gets_the_notes_and_nothing_else():
    assert drawn(terminal=False) == "a worker was replaced: a\\x1b[2Jb [red]x\n"


def test_a_terminal_sees_stage_and_note():
    text = drawn(terminal=True)
    assert "Judging" in text
    assert "a worker was replaced" in text
    assert "\x1b[2Jb" not in text


def test_the_columns_tell_count_rate_and_time_left():
    clock = iter(range(100))
    progress = Progress(disable=True, get_time=lambda: float(next(clock)))
    known, unknown = progress.add_task("known", total=2000), progress.add_task("unknown", total=None)
    for _ in range(5):
        progress.advance(known, 100)
    task = progress.tasks[known]
    assert CountColumn().render(task).plain == "500 of 2,000"
    assert RateColumn().render(task).plain.endswith("/s")
    assert LeftColumn().render(task).plain.endswith(" s left")
    for column in (CountColumn(), RateColumn(), LeftColumn()):
        assert column.render(progress.tasks[unknown]).plain == "", "nothing is known, so nothing is said"
