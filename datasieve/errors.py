"""The error tree. The command line catches `DatasieveError` once and prints message and remedy."""

from __future__ import annotations


class DatasieveError(Exception):
    """Anything that stops a run for a reason the user can act on.

    Args:
        message: what went wrong, naming the file or value.
        remedy: what to do about it, as a sentence in the imperative.
    """

    exit_code = 2

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n  {self.remedy}" if self.remedy else self.message


class InputError(DatasieveError):
    """The dataset cannot be used: not there, nothing in it, or not in a known layout."""


class ImageError(DatasieveError):
    """One image cannot be read. Becomes a row with a status; never stops an audit."""


class ImageRefused(ImageError):
    """One image is declined on purpose, before it costs memory (too many pixels)."""


class ReportError(DatasieveError):
    """A report folder is missing, unfinished, or of another schema."""


class ConfigError(DatasieveError):
    """A setting is unknown or has a value that is not allowed."""


class MissingExtra(DatasieveError):
    """An optional dependency is needed. The remedy is the pip command.

    Args:
        package: what is missing, as pip calls it.
        extra: the datasieve extra that brings it.
        purpose: what it is needed for.
    """

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs {package}, which is not installed",
            remedy=f"Install it with: pip install 'datasieve[{extra}]'",
        )


class ModelError(DatasieveError):
    """Weights or a model's description cannot be used."""


class OutputError(DatasieveError):
    """An output cannot be written: read-only, full, or somebody else's."""


class TrainingUnstable(DatasieveError):
    """A run was stopped because its loss was no longer finite; the last good state is saved."""

    exit_code = 3
