"""The progress bar: stages with rate and time left, on stderr, silent when nobody watches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
)
from rich.text import Text

from datasieve.reporting.text import safe, spoken


class RateColumn(ProgressColumn):
    """Items per second, over rich's sliding window."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        if not speed:
            return Text("")
        return Text(f"{speed:.0f}/s" if speed >= 10 else f"{speed:.1f}/s", style="dim")


class CountColumn(ProgressColumn):
    """Items done of items expected; only those done while nobody knows how many there are."""

    def render(self, task: Task) -> Text:
        done = f"{task.completed:,.0f}"
        if task.total is None:
            return Text(done if task.completed else "")
        return Text(f"{done} of {task.total:,.0f}")


class LeftColumn(ProgressColumn):
    """Time left, at the present rate."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        left = task.time_remaining
        if left is None or task.finished:
            return Text("")
        return Text(f"{spoken(left) if left >= 10 else f'{left:.0f} s'} left", style="dim")


class Bar:
    """A `datasieve.progress.Progress` that draws.

    Args:
        console: where to draw, usually stderr. Nothing but notes is written when it is no terminal.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self._task: TaskID | None = None
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            CountColumn(),
            RateColumn(),
            LeftColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
            redirect_stdout=False,
        )

    def stage(self, name: str, total: int | None) -> None:
        """Begin a stage; the one before it leaves the screen."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(safe(name), total=total)

    def advance(self, items: int = 1) -> None:
        """Count finished items of the current stage."""
        if self._task is not None:
            self._progress.advance(self._task, items)

    def note(self, message: str) -> None:
        """Write one line above the bar."""
        self.console.print(Text(safe(message)), soft_wrap=True)


@contextlib.contextmanager
def bar(console: Console) -> Iterator[Bar]:
    """Yield a bar that is on the screen for the length of the block."""
    drawn = Bar(console)
    with drawn._progress:
        yield drawn
