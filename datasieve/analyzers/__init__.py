"""Analyzers: one file each. A file's name is the analyzer's name, its column prefix and its rules' prefix.

`names()` lists the folder without importing anything; `load(name)` imports one. Packages outside join through the
entry point group `datasieve.analyzers`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from datasieve.errors import ConfigError
from datasieve.rules import Rule
from datasieve.schema import Column

if TYPE_CHECKING:
    import pyarrow as pa

    from datasieve.batch import Batch, Request
    from datasieve.config import Settings


class Analyzer(Protocol):
    """What every analyzer declares.

    Attributes:
        version: raised whenever the numbers of `measure` change; old parts are then measured again.
        views: the pixel requests of `measure`. Empty means: needs no pixels, and is therefore given every image,
            also those that could not be decoded.
        needs: columns and image fields that `compare` reads, its own measured ones included.
        columns: every column it writes, each with its stage.
        rules: the rules on these columns.
    """

    version: int
    views: tuple[Request, ...]
    needs: tuple[str, ...]
    columns: tuple[Column, ...]
    rules: tuple[Rule, ...]


@runtime_checkable
class Measures(Protocol):
    """Measures each image by itself."""

    def measure(self, batch: Batch) -> Mapping[str, Sequence[Any]]:
        """Return one value per image for every column of stage "measure".

        NaN and None mean "not measured". The key `<analyzer>.unmeasured` may give the reason per image (str or
        None); the pipeline adds that column for all analyzers that have a measure stage.
        """


@runtime_checkable
class Configures(Protocol):
    """Measures differently under other settings.

    Attributes:
        variant: what its numbers depend on besides `version`; parts of another variant are measured again.
        embedder: what run.json tells of its embedder, None without one.
    """

    variant: str
    embedder: dict[str, str] | None

    def configured(self, settings: Settings) -> Analyzer:
        """Return the analyzer as these settings want it."""


@dataclass
class Comparison:
    """What a comparison over the set found.

    Attributes:
        columns: one value per row of the table, for every column of stage "compare".
        pairs: rows of (kind, row_a, row_b, score), row numbers into the table.
        concepts: column name -> {concept: value}, joined to concepts.parquet.
        unmeasured: what could not be measured over the whole set, and why: {column or topic: reason}.
        facts: what is true of the whole set, for run.json: methods used, and numbers that belong to no image.
    """

    columns: dict[str, Sequence[Any]] = field(default_factory=dict)
    pairs: list[tuple[str, int, int, float]] = field(default_factory=list)
    concepts: dict[str, dict[str, Any]] = field(default_factory=dict)
    unmeasured: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class Compares(Protocol):
    """Needs the whole set; cheap, and run anew by every audit."""

    def compare(self, table: pa.Table, settings: Settings) -> Comparison:
        """Compare the rows of `table`, which holds the image fields of schema.py and the columns in `needs`.

        The table's schema metadata tells the dataset's layout as `layout` ("folder", "kohya", "webdataset"...).
        """


def names() -> list[str]:
    """Return the names of all analyzers, sorted, importing none."""
    own = [p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_")]
    return sorted({*own, *(e.name for e in entry_points(group="datasieve.analyzers"))})


def load(name: str) -> Analyzer:
    """Import one analyzer. Raises ConfigError for an unknown name."""
    if (Path(__file__).parent / f"{name}.py").exists():
        analyzer: Analyzer = importlib.import_module(f"{__name__}.{name}").ANALYZER
        return analyzer
    for entry in entry_points(group="datasieve.analyzers"):
        if entry.name == name:
            loaded: Analyzer = entry.load()
            return loaded
    raise ConfigError(f"there is no analyzer called {name!r}", remedy=f"Choose from: {', '.join(names())}.")


def measured(analyzer: Analyzer) -> tuple[Column, ...]:
    """Return the columns of stage "measure"."""
    return tuple(c for c in analyzer.columns if c.stage == "measure")


def compared(analyzer: Analyzer) -> tuple[Column, ...]:
    """Return the columns of stage "compare"."""
    return tuple(c for c in analyzer.columns if c.stage == "compare")
