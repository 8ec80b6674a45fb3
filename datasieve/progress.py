"""How a long run tells where it is. The default is silent; the command line draws a bar."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told of the stages of a run and of each finished item."""

    def stage(self, name: str, total: int | None) -> None:
        """A stage begins; `total` items are expected, None when unknown."""

    def advance(self, items: int = 1) -> None:
        """`items` more are finished, their results kept."""

    def note(self, message: str) -> None:
        """Something the user should read now, in one sentence."""


class Silent:
    """The progress that says nothing."""

    def stage(self, name: str, total: int | None) -> None:
        pass

    def advance(self, items: int = 1) -> None:
        pass

    def note(self, message: str) -> None:
        pass
