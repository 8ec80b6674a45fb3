"""Baselines: findings accepted on one day, so that only new ones count afterwards.

The file is a JSON list of `{"rule": ..., "path": ...}`, sorted, made to be committed beside a dataset and read in a
diff. `path` is the image's path; the concept's name for findings on a concept; "" for findings on the whole set.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from datasieve.errors import InputError
from datasieve.storage import write_json


class Accepted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One accepted finding, as the file holds it."""

    rule: str
    path: str


def key(rule: str, path: str | None, concept: str | None = None) -> tuple[str, str]:
    """Return what a finding is known by in a baseline: its rule, and its path, else its concept, else ""."""
    return rule, path or concept or ""


def read_baseline(path: Path) -> frozenset[tuple[str, str]]:
    """Return the accepted findings of the file at `path` as (rule, path).

    Raises InputError when the file is not there or is no baseline.
    """
    try:
        entries = msgspec.json.decode(path.read_bytes(), type=list[Accepted])
    except FileNotFoundError as error:
        raise InputError(
            f"there is no baseline file {path}", remedy=f"Accept today's findings with: --write-baseline {path}"
        ) from error
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(
            f"cannot read the baseline {path}: {error}", remedy="Write it anew with --write-baseline."
        ) from error
    return frozenset((entry.rule, entry.path) for entry in entries)


def write_baseline(path: Path, findings: Iterable[tuple[str, str]]) -> None:
    """Write `findings`, each (rule, path), to `path`: sorted, each once, atomically. Raises OutputError."""
    write_json(path, [{"rule": rule, "path": where} for rule, where in sorted(set(findings))])
