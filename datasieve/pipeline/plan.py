"""The plan of an audit: which analyzers run, in which order, and what they need of the decoder."""

from __future__ import annotations

import graphlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from datasieve.analyzers import Analyzer, Compares, Configures, Measures, compared, load, measured, names
from datasieve.batch import DecodeRequest, NativeHash, Tiles
from datasieve.config import Settings
from datasieve.schema import IMAGE_FIELDS, SCHEMA_VERSION, Column

DECODER_VERSION = 1
"""Raised whenever the working picture, the tiles or the header facts of the same bytes change."""

_DECODERS = ("pillow", "simplejpeg", "pillow-heif", "pillow-jxl-plugin")


@dataclass(frozen=True, slots=True)
class Plan:
    """What an audit does with each image and with the set.

    Attributes:
        measuring: name -> analyzer with a measure stage.
        comparing: name -> analyzer with a compare stage, each after those whose columns it needs.
        request: what the decoder makes of each file.
    """

    measuring: dict[str, Analyzer]
    comparing: dict[str, Analyzer]
    request: DecodeRequest

    def embedder(self) -> dict[str, str] | None:
        """Return what run.json tells of the embedder."""
        found = (a.embedder for a in self.measuring.values() if isinstance(a, Configures))
        return next((e for e in found if e), None)

    def fingerprint(self, name: str) -> str:
        """Return what the measurements of analyzer `name` depend on besides the file's content."""
        decoders = ", ".join(f"{package} {_version(package)}" for package in _DECODERS)
        number = self.measuring[name].version if name in self.measuring else 0
        analyzer = self.measuring.get(name)
        variant = f" {analyzer.variant}" if isinstance(analyzer, Configures) else ""
        return (
            f"{name} {number}{variant}; decoder {DECODER_VERSION}; {decoders}; schema {SCHEMA_VERSION}; "
            f"max-pixels {self.request.max_pixels}"
        )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def unmeasured_column(name: str) -> Column:
    """Return the column that tells why analyzer `name` left an image's measurements empty."""
    return Column(
        f"{name}.unmeasured", "string", description=f"why {name} could not measure this image; null if it did"
    )


def measured_columns(name: str, analyzer: Analyzer) -> tuple[Column, ...]:
    """Return the columns that a part of this analyzer holds."""
    return (*measured(analyzer), unmeasured_column(name))


def make_plan(settings: Settings, chosen: Sequence[str] | None = None) -> Plan:
    """Return the plan for all analyzers, or for the `chosen` ones and those whose columns they need."""
    wanted = list(chosen if chosen is not None else names())
    analyzers: dict[str, Analyzer] = {}
    order: graphlib.TopologicalSorter[str] = graphlib.TopologicalSorter()
    while wanted:
        name = wanted.pop(0)
        if name in analyzers:
            continue
        analyzer = load(name)
        analyzers[name] = analyzer.configured(settings) if isinstance(analyzer, Configures) else analyzer
        order.add(name)
        for column in analyzers[name].needs:
            owner = column.split(".")[0]
            if column not in IMAGE_FIELDS and owner != name:
                order.add(name, owner)
                wanted.append(owner)
    ordered = _stable(order)
    requests = [view for name in ordered for view in analyzers[name].views]
    return Plan(
        measuring={n: analyzers[n] for n in ordered if isinstance(analyzers[n], Measures) and measured(analyzers[n])},
        comparing={n: analyzers[n] for n in ordered if isinstance(analyzers[n], Compares) and compared(analyzers[n])},
        request=DecodeRequest(
            pixels=True,
            tiles=any(isinstance(r, Tiles) for r in requests),
            pixel_hash=any(isinstance(r, NativeHash) for r in requests),
            max_pixels=settings.max_pixels,
        ),
    )


def _stable(order: graphlib.TopologicalSorter[str]) -> list[str]:
    """Return a topological order that does not depend on the order of insertion."""
    order.prepare()
    out: list[str] = []
    while order.is_active():
        ready = sorted(order.get_ready())
        out += ready
        order.done(*ready)
    return out
