"""What samplers read of a report: one entry for each usable image, in the order of images.parquet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from datasieve.errors import ReportError

if TYPE_CHECKING:
    import pyarrow as pa

    from datasieve.report import Report

Copies = Literal["keep", "share", "drop"]

CLUSTERS = "semantics.cluster"
CONFUSION_KINDS = ("confusion", "semantics.confusion")
"""Kinds in pairs.parquet of images of two concepts that are too alike to be trained side by side."""


@dataclass(frozen=True, slots=True)
class Arrays:
    """The arguments of `SemanticIsolationBatchSampler` that a report gives; N usable images.

    Attributes:
        clusters: (N,) words: concept and cluster.
        concepts: (N,) words.
        conflicts: pairs of entries of `clusters`.
        buckets: (N,) numbers, or None when the report has no buckets.
        repeats: (N,); 0 for copies that are dropped.
        weights: (N,) or None.
    """

    clusters: npt.NDArray[Any]
    concepts: npt.NDArray[Any]
    conflicts: list[tuple[str, str]]
    buckets: npt.NDArray[np.int64] | None
    repeats: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64] | None


def usable_rows(report: Report, columns: list[str]) -> pa.Table:
    """Return some columns of the images that can be trained on. Raises ReportError for a column that is not there."""
    import pyarrow.compute as pc

    table = report.images(list(dict.fromkeys([*columns, "status"])))
    table = table.filter(pc.equal(table["status"], "ok"))
    if not table.num_rows:
        raise ReportError(f"{report.path} has no usable image", remedy="See what `datasieve show` says about them.")
    return table


def arrays_of(
    report: Report, *, clusters: str = CLUSTERS, weights: str | npt.ArrayLike | None = None, copies: Copies = "keep"
) -> Arrays:
    """Read a report.

    Args:
        report: a finished audit.
        clusters: the column that sorts each concept's images into isolation clusters. An image without an entry goes
            into a cluster of its concept's unmeasured ones.
        weights: the name of a column to draw by (a quality score; an image without one gets the mean), or (N,) numbers.
        copies: what to do with copies that the audit found: "keep" them, let a picture and its copies "share" one
            picture's weight, or "drop" all but one.

    Raises:
        ReportError: a column is missing.
        ValueError: an option has a value that does not exist.
    """
    if copies not in ("keep", "share", "drop"):
        raise ValueError(f'copies must be "keep", "share" or "drop", not {copies!r}')
    known = report.columns()
    if clusters not in known:
        raise ReportError(
            f"{report.path} has no column {clusters!r}: its images are not sorted into isolation clusters",
            remedy='Audit again with a datasieve that measures semantics, or name another column: clusters="concept" '
            "takes each concept as one cluster.",
        )
    wanted = ["image_id", "path", "concept", "repeats", clusters]
    bucketed = "buckets.width" in known
    wanted += ["buckets.width", "buckets.height"] if bucketed else []
    copying = [name for name in ("duplicates.exact-of", "duplicates.near-of") if name in known]
    if copies != "keep" and not copying:
        raise ReportError(f"{report.path} has no copies measured", remedy="Audit again with the duplicates rules.")
    wanted += copying if copies != "keep" else []
    wanted += [weights] if isinstance(weights, str) else []
    table = usable_rows(report, wanted)
    concept = [c or "" for c in table["concept"].to_pylist()]
    labels = [
        (f"{c}/" if c and clusters != "concept" else "") + ("unmeasured" if k is None else str(k))
        for c, k in zip(concept, table[clusters].to_pylist(), strict=True)
    ]
    if clusters.startswith("semantics.") and table[clusters].null_count == len(table):
        raise ReportError(
            f"{report.path} sorts no image into clusters: no embedder ran",
            remedy='Audit again with an embedder, or take each concept as one cluster: clusters="concept".',
        )
    repeats = np.array([r if r is not None else 1 for r in table["repeats"].to_pylist()], np.int64)
    chosen = _weights(table, weights)
    if copies != "keep":
        paths = table["path"].to_pylist()
        kept_as = list(paths)
        for name in copying:
            kept_as = [of or kept for of, kept in zip(table[name].to_pylist(), kept_as, strict=True)]
        if copies == "drop":
            repeats[np.array([k != p for k, p in zip(kept_as, paths, strict=True)], bool)] = 0
        else:
            _, group, size = np.unique(np.array(kept_as), return_inverse=True, return_counts=True)
            chosen = (np.ones(len(paths)) if chosen is None else chosen) / size[group.reshape(-1)]
    buckets = None
    if bucketed:
        pair = [np.array([v or 0 for v in table[f"buckets.{n}"].to_pylist()], np.int64) for n in ("width", "height")]
        buckets = np.stack(pair, 1)
    return Arrays(
        np.array(labels), np.array(concept), _confusions(report, table, labels, concept), buckets, repeats, chosen
    )


def _weights(table: pa.Table, weights: str | npt.ArrayLike | None) -> npt.NDArray[np.float64] | None:
    if weights is None:
        return None
    if not isinstance(weights, str):
        return np.asarray(weights, np.float64)
    values = np.array([np.nan if v is None else float(v) for v in table[weights].to_pylist()])
    measured = values[np.isfinite(values)]
    if not measured.size:
        raise ReportError(f"column {weights!r} holds no measurement", remedy="Choose another column of weights.")
    return np.where(np.isfinite(values), values, measured.mean())


def _confusions(report: Report, table: pa.Table, labels: list[str], concept: list[str]) -> list[tuple[str, str]]:
    """Return the pairs of clusters of which the report calls two images of different concepts confusable."""
    row = {image: i for i, image in enumerate(table["image_id"].to_pylist())}
    pairs = report.pairs().select(["kind", "image_id_a", "image_id_b"]).to_pylist()
    ends = [(row.get(p["image_id_a"]), row.get(p["image_id_b"])) for p in pairs if p["kind"] in CONFUSION_KINDS]
    found = {
        (labels[a], labels[b])
        for a, b in ends
        if a is not None and b is not None and concept[a] != concept[b] and labels[a] != labels[b]
    }
    return sorted(found)
