"""What looks like what: the matrix of concepts and their groups as a picture, and the neighbours of one image."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from datasieve.embedding import structure
from datasieve.errors import InputError, ReportError
from datasieve.report import Report
from datasieve.storage import atomic_path


def groups(report: Report, table: pa.Table | None = None) -> list[str]:
    """Return the group of every row of embeddings.parquet: its concept, and its cluster where the concept has several.

    Args:
        report: the report.
        table: its embeddings, if they are at hand.
    """
    table = report.embeddings() if table is None else table
    clusters = {r["path"]: r["semantics.cluster"] for r in report.images(["path", "semantics.cluster"]).to_pylist()}
    paths: list[str] = table["path"].to_pylist()
    concepts = [c or "" for c in table["concept"].to_pylist()]
    several = {c for c, path in zip(concepts, paths, strict=True) if clusters.get(path)}
    return [
        f"{c or 'the set'}, group {(clusters.get(path) or 0) + 1}" if c in several else c or "the set"
        for c, path in zip(concepts, paths, strict=True)
    ]


def unit_vectors(column: pa.ChunkedArray | pa.Array) -> structure.Vectors:
    """Return a column of vectors as (n, d) float32."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    flat = np.asarray(whole.flatten().to_numpy(zero_copy_only=False), np.float32)
    return flat.reshape(len(whole), -1)


def vectors(report: Report) -> tuple[list[str], list[str], structure.Vectors]:
    """Return paths, names of groups and centred vectors (n, d). Raises ReportError when no embedder ran."""
    table = report.embeddings()
    return table["path"].to_pylist(), groups(report, table), unit_vectors(table["embedding"])


def matrix(report: Report) -> tuple[list[str], list[int], npt.NDArray[np.float64]]:
    """Return names, sizes and the cosines (C, C) between the mean directions of all groups.

    Two groups of one concept that are unlike contradict each other; two concepts that are alike leak into each other.
    """
    table = report.embeddings()
    names, number = np.unique(np.array(groups(report, table), dtype=object), return_inverse=True)
    means = np.zeros((len(names), table.schema.field("embedding").type.list_size))
    done = 0
    for chunk in table["embedding"].chunks:  # a part at a time: the whole of a large set would fill the memory
        np.add.at(means, number[done : done + len(chunk)], unit_vectors(chunk))
        done += len(chunk)
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-9)
    return [str(n) for n in names], np.bincount(number, minlength=len(names)).tolist(), means @ means.T


def draw_matrix(report: Report, final: Path) -> None:
    """Write the heat map as PNG, SVG or PDF, by the name's ending. Raises InputError for another ending."""
    if final.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f"{final} is no .png, .svg or .pdf", remedy="Name the picture so with --out.")
    from datasieve.reporting.plots.conflict import conflict

    figure = conflict(report)
    with atomic_path(final) as temporary:
        figure.savefig(temporary, dpi=150, format=final.suffix[1:].lower())


def similar(report: Report, path: str, count: int) -> list[dict[str, Any]]:
    """Return the images most alike in meaning to one: rows of path, group and cosine, the nearest first.

    Raises ReportError when the image has no vector.
    """
    paths, groups, values = vectors(report)
    if path not in paths:
        raise ReportError(f"{report.path} holds no vector of {path}", remedy="It could not be read, or is not there.")
    own = paths.index(path)
    cosines = values @ values[own]
    order = [int(i) for i in np.argsort(-cosines, kind="stable") if i != own][:count]
    return [{"path": paths[i], "group": groups[i], "cosine": float(cosines[i])} for i in order]
