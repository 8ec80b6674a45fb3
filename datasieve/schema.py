"""Columns: what a measurement is called and what its numbers mean; and the report's own version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SCHEMA_VERSION = 1
"""Version of the report's Parquet schema, kept in every file's footer as `datasieve.schema`."""

Kind = Literal["float", "int", "bool", "string", "vector"]
Stage = Literal["measure", "compare"]


@dataclass(frozen=True, slots=True)
class Column:
    """One measured quantity.

    Attributes:
        name: `<analyzer>.<quantity>`, lower case, hyphens between words.
        kind: "float" is stored as float32, "int" as int64, "bool", "string", "vector" as a list of `size` float16
            that stays out of images.parquet; those called `<analyzer>.embedding` go into embeddings.parquet.
        unit: natural unit ("kelvin", "px", "bits", "share", "degree"...); "" for a name or a truth value.
        description: one sentence: what the number says, and which direction is bad if one is.
        low, high: the closed range of possible values; None where there is no bound.
        source: paper, standard or spec of the method; "" where it is a plain fact.
        tolerance: the largest honest difference between devices or decoder paths, in `unit`.
        stage: "measure" (one image alone) or "compare" (needs the whole set).
        size: numbers in a vector; 0 otherwise.
    """

    name: str
    kind: Kind = "float"
    unit: str = ""
    description: str = ""
    low: float | None = None
    high: float | None = None
    source: str = ""
    tolerance: float = 0.0
    stage: Stage = "measure"
    size: int = 0


IMAGE_FIELDS = (
    "image_id",
    "path",
    "concept",
    "caption",
    "repeats",
    "group",
    "content",
    "width",
    "height",
    "format",
    "status",
    "error",
)
"""Leading columns of images.parquet, before the measurements; `content` is the hash of the file's bytes."""

FINDING_FIELDS = (
    "rule",
    "severity",
    "image_id",
    "path",
    "concept",
    "value",
    "limit",
    "message",
    "remedy",
)
PAIR_FIELDS = ("kind", "image_id_a", "image_id_b", "path_a", "path_b", "score")

STATUSES = ("ok", "unreadable", "refused", "ignored")
