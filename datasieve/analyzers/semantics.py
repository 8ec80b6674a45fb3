"""What the pictures show: images that contradict their concept, concepts that fall into parts, concepts alike.

What. A vector per picture (see `datasieve.embedding`); how far each picture is from what its concept shows; clusters
within a concept that are to be kept out of one another's batches; how alike two concepts are.

Why it hurts. Textual inversion asks one vector, a hypernetwork or LoRA one set of weights, to be everything that stands
under one word. Two dogs under one name give gradients that undo each other: the result is the average dog, or a run
that swings between the two and ends in neither.

Method. Vectors are centred on a reference mean that ships with the embedder, since all pictures lie in a narrow cone
around it. Conflict is 1 minus the mean of two cosines: the median one to the other images of the concept, and the one
to what those have in common. Its deviation is in robust standard deviations of the concept. Clusters are cut from
average linkage by the largest silhouette. Concepts are compared by the angle between their mean directions.

Where it fails. The embedded default sees kinds of objects, not who or what colour it is: another dog of the same breed,
the same person with and without glasses are near one another for it. A concept whose images have nothing in common (a
style, a mixed folder) has no majority to contradict. Up to three images say nothing.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from datasieve.analyzers import Comparison, _agreement, _contradictions
from datasieve.analyzers._groups import rows_of
from datasieve.batch import View
from datasieve.embedding import Embedder, TextSpace, chosen, conse, lite0, open_embedder, open_text_space, structure
from datasieve.rules import Rule
from datasieve.schema import Column

if TYPE_CHECKING:
    import pyarrow as pa

    from datasieve.batch import Batch
    from datasieve.config import Settings

VIEW = View()
"""The working picture: resampled once, odd pictures are ranked better than from a halved view."""

FLOOR, CEILING = 0.08, 0.12
"""Least and largest spread of conflict that a concept is measured by: photos of one object differ by about so much."""

LEAST_SILHOUETTE, LEAST_ANGLE = 0.3, 65.0
"""Mean silhouette, and degrees between mean directions, from which on a concept counts as several."""

NEAR_ANGLE = 60.0
"""Degrees between the mean directions of two concepts' clusters below which they are told as a pair."""

SIMILAR = 0.85
"""Cosine from which on two pictures show the same in the same way."""

EXACT = 4000
"""Images up to which all pairs are compared."""

NO_TEXT = (
    "no CLIP weights (get them: docs/clip.md), so contradicting attributes (glasses, hair, day or night) were not "
    "looked for, and CLIPScore is not known"
)

NO_LIMITS = (
    "no calibrated limit for this CLIP model: deviations, groups and confusion are told for lite0 only, whose vectors "
    "are centred on a reference mean"
)

COPIES = ("duplicates.exact-of", "duplicates.near-of", "duplicates.flip-of")
"""Columns that are not null where an image is a copy of another: copies are no majority."""

_METHOD = (
    "Pictures are embedded by EfficientNet-Lite0 (squashed to 224 px), centred and whitened by pictures of many "
    "kinds, and compared by cosine. It sees kinds of objects and their look, not identity or attributes. "
)
_SOURCE = "Tan and Le 2019 (EfficientNet); Jegou and Chum 2012 (whitening); Rousseeuw 1987 (silhouettes)"


class Semantics:
    """See the module.

    Args:
        embedder: name of the embedder.
        clip: which CLIP model, "" for the default one.
    """

    version = 3
    views: tuple[View, ...] = (VIEW,)
    needs: tuple[str, ...] = ("concept", "path", "caption", "semantics.embedding", _agreement.CLASSES.name, *COPIES)
    columns: tuple[Column, ...] = (
        Column(
            "semantics.embedding",
            "vector",
            description="What the picture shows, as a unit vector; nearness is likeness.",
            low=-1.0,
            high=1.0,
            source="EfficientNet-Lite0, pooled features, centred and whitened",
            tolerance=0.005,
            size=lite0.SIZE,
        ),
        _agreement.CLASSES,
        Column(
            "semantics.conflict",
            description="1 minus the likeness (cosine) to the concept's other images; high shows something else.",
            low=0.0,
            high=2.0,
            tolerance=0.02,
            stage="compare",
        ),
        Column(
            "semantics.deviation",
            unit="robust standard deviations",
            description="The same above the median of the concept; high stands apart.",
            tolerance=0.3,
            stage="compare",
        ),
        Column(
            "semantics.cluster",
            "int",
            description="Number of the image's cluster within its concept, 0 the largest; null when it has no vector.",
            low=0,
            stage="compare",
        ),
        *_agreement.COLUMNS,
    )
    rules: tuple[Rule, ...] = (
        Rule(
            id="semantics.conflict",
            column="semantics.deviation",
            side="above",
            limit=2.5,
            severity="warning",
            title="Shows something else",
            message="This picture shows something else than the others of its concept ({value:.1f} robust standard "
            "deviations from them, limit {limit}); the token is asked to be two things at once.",
            remedy="Leave it out, or move it to a concept of its own.",
            why="One vector, or one small adapter, has to answer for every image under its word. A picture of another "
            "thing pulls it away at each of its turns, and what is left is an average that looks like neither.",
            how=_METHOD + "Conflict is 1 minus the mean of the median cosine to the concept's other images (at least "
            "3) and the cosine to what they have in common; its deviation is taken from the concept's median in units "
            "of 1.4826 MAD, at least 0.08 and at most 0.12.",
            source=_SOURCE,
            evidence="limit chosen on 12 subjects. Up to four pictures of other subjects planted into sets of about "
            "ten: 34 of 34 of another category and 12 of 24 of the same found there, 24 of 32 and 12 of 18 on 11 other "
            "subjects; false alarms 0 of 226 and 0 of 180, 0 of 400 wallpapers, 0 of 141 encyclopedia photos. As a "
            "ranking it does better: docs/semantics.md.",
        ),
        Rule(
            id="semantics.split",
            column="semantics.clusters",
            side="above",
            limit=1.0,
            severity="warning",
            title="Several things in one",
            message="This concept falls into {value:.0f} groups that look unlike ({semantics.cluster-angle:.0f} "
            "degrees apart, {semantics.minority:.0f} images outside the largest); one word cannot be all of them.",
            remedy="Split it into concepts with words of their own, or leave the smaller groups out.",
            why="Two groups under one word give gradients that undo each other. If both are kept under one word, they "
            "must at least not meet in a batch (semantics.cluster tells which is which).",
            how=_METHOD + "Average linkage is cut into 2 to 6 groups of at least two images; the cut with the largest "
            "silhouette counts if it exceeds 0.3, and groups less than 65 degrees apart are joined.",
            source=_SOURCE,
            evidence="limits chosen on 12 subjects. Five pictures of one subject with three of another: found in 128 "
            "of 132 pairs there, 104 of 110 on 11 other subjects; the clean subjects: 0 of 12 and 1 of 11.",
            scope="concept",
        ),
        Rule(
            id="semantics.confusion",
            column="semantics.confusion",
            side="above",
            limit=0.65,
            severity="info",
            title="Two concepts alike",
            message="This concept looks much like {semantics.nearest-concept} (cosine {value:.2f} between their means, "
            "limit {limit}); trained together, their words will leak into each other.",
            remedy="Decide whether they are one concept; if not, describe what tells them apart in every caption.",
            why="Words that are trained on nearly the same pictures end up meaning the same, and each draws the "
            "other's features.",
            how=_METHOD + "The cosine between the mean directions of two concepts, of the nearest other concept.",
            source=_SOURCE,
            evidence="provisional; of 253 pairs of subjects only two kinds of sneakers (0.72) exceed it.",
            scope="concept",
        ),
        *_agreement.RULES,
        *_contradictions.RULES,
    )

    def __init__(self, embedder: str = "auto", clip: str = "") -> None:
        self._name = chosen(embedder, clip)
        self._clip = clip
        self._lock = threading.Lock()
        self._opened: Embedder | str | None = None
        self._device = ""
        if self._name == "clip":
            self.columns = _agreement.clip_columns(self.columns, clip)

    def configured(self, settings: Settings) -> Semantics:
        """Return the analyzer with the embedder of the settings. Raises ConfigError for an unknown CLIP model."""
        return Semantics(settings.embedder, settings.clip)

    @property
    def variant(self) -> str:
        """What vectors depend on: the embedder and its weights."""
        if self._name == "none":
            return "none"
        if self._name == "clip":
            return _agreement.clip_identity(self._clip)
        try:
            return f"lite0 {version(lite0.PACKAGE)}"
        except PackageNotFoundError:
            return "no weights"

    @property
    def embedder(self) -> dict[str, str] | None:
        """Name, weights and backend of the embedder once it has been used."""
        if self._opened is None or isinstance(self._opened, str):
            return None
        return {"name": self._opened.name, "weights": self._opened.identity, "backend": self._opened.backend}

    def measure(self, batch: Batch) -> Mapping[str, Sequence[Any]]:
        """Return the vector of each picture, or why there is none."""
        with self._lock:
            if self._opened is None:
                self._device = batch.device
                self._opened = open_embedder(self._name, batch.device, self._clip)
        opened = self._opened
        if isinstance(opened, str):
            vectors = [c.name for c in self.columns if c.kind == "vector"]
            none: dict[str, list[Any]] = {name: [None] * len(batch) for name in vectors}
            return {**none, "semantics.unmeasured": [opened] * len(batch)}
        pictures = [d.pixels for d in batch.decoded if d.pixels is not None]
        if not isinstance(opened, lite0.Lite0):
            return {"semantics.embedding": list(opened.images(pictures).astype(np.float16))}
        outputs = opened.outputs(pictures)
        return {
            "semantics.embedding": list(opened.vectors(outputs).astype(np.float16)),
            _agreement.CLASSES.name: list(conse.picture_profiles(outputs.logits).astype(np.float16)),
        }

    def _space(self) -> TextSpace | str:
        return open_text_space(self._name, self._device or _agreement.device(), self._clip)

    def compare(self, table: pa.Table, settings: Settings) -> Comparison:
        """Return conflicts and clusters within concepts, and what concepts are like."""
        known = np.flatnonzero(np.asarray(table["semantics.embedding"].is_valid().to_pylist(), bool))
        conflict, deviation = np.full(len(table), np.nan), np.full(len(table), np.nan)
        cluster: list[int | None] = [None] * len(table)
        clip = self._name == "clip"
        found = Comparison(unmeasured={} if clip else {"semantics.attributes": NO_TEXT})
        if len(known):
            self._structure(found, table, known, (conflict, deviation, cluster))
        found.columns = {
            "semantics.conflict": conflict.tolist(),
            "semantics.deviation": deviation.tolist(),
            "semantics.cluster": cluster,
        }
        if clip and len(known):
            _agreement.withhold(found, NO_LIMITS)
        source = "semantics.embedding" if clip else _agreement.CLASSES.name
        _agreement.compare(found, table, lambda rows: _matrix(table, rows, source), self._space, clip)
        if clip and len(known):
            _contradictions.compare(found, table, known, _matrix(table, known), self._space())
        return found

    def _structure(self, found: Comparison, table: pa.Table, known: Any, columns: tuple[Any, Any, Any]) -> None:
        """Fill the columns, concepts and pairs of the rows that have a vector."""
        conflict, deviation, cluster = columns
        concepts = [c or "" for c in table["concept"].to_pylist()]
        vectors = _matrix(table, known)
        distinct = _distinct(table, concepts)
        means: dict[str, Any] = {}
        for rows in rows_of([concepts[i] for i in known]):
            own, name, own_distinct = vectors[rows], concepts[known[rows[0]]], distinct[known[rows]]
            means[name] = own.mean(0)
            scores = structure.conflicts(own, own_distinct)
            conflict[known[rows]] = scores
            deviation[known[rows]] = structure.deviations(scores, FLOOR, CEILING)
            numbers = structure.clusters(own, LEAST_SILHOUETTE, LEAST_ANGLE, own_distinct)
            for row, number in zip(known[rows], numbers.tolist(), strict=True):
                cluster[row] = number
            _describe(found, name, own, scores, numbers)
        _confusion(found, means)
        parts = [f"{concepts[i]}\0{cluster[i]}" for i in known]
        found.pairs = _similar(vectors, known, found) + _near_clusters(vectors, known, parts)


def _distinct(table: pa.Table, concepts: Sequence[str]) -> Any:
    """Return which rows are the first of their picture within their concept, (N,) bool.

    Copies that lie in another concept do not count: there they are told by the rules on copies, here the picture is
    the only one of its kind.
    """
    paths = table["path"].to_pylist()
    links = [table[c].to_pylist() for c in COPIES if c in table.column_names]
    first = {path: next((o for o in of if o is not None), None) for path, *of in zip(paths, *links, strict=True)}
    met: set[tuple[str, str]] = set()
    out = np.zeros(len(paths), bool)
    for row, (path, concept) in enumerate(zip(paths, concepts, strict=True)):
        root = path
        for _ in COPIES:  # a byte-equal copy may lead to a near copy, and that to a mirrored one
            root = first.get(root) or root
        out[row] = (concept, root) not in met
        met.add((concept, root))
    return out


def _matrix(table: pa.Table, rows: Any, name: str = "semantics.embedding") -> structure.Vectors:
    """Return the vectors of some rows, (n, d) float32."""
    column = table[name].take(rows).combine_chunks()
    flat = np.asarray(column.flatten().to_numpy(zero_copy_only=False), np.float32)
    return flat.reshape(len(rows), -1)


def _describe(found: Comparison, name: str, own: structure.Vectors, scores: Any, numbers: Any) -> None:
    """Add what concepts.parquet tells of one concept."""
    told: dict[str, Any] = {
        "semantics.spread": float(np.median(scores)) if len(own) >= structure.MIN_IMAGES else None,
        "semantics.effective-rank": structure.effective_rank(own),
        "semantics.clusters": int(numbers.max()) + 1 if len(own) >= structure.MIN_IMAGES else None,
        "semantics.minority": int((numbers > 0).sum()),
        "semantics.cluster-angle": structure.angle(own[numbers == 0], own[numbers == 1]) if numbers.max() else None,
    }
    for column, value in told.items():
        found.concepts.setdefault(column, {})[name] = value


def _confusion(found: Comparison, means: Mapping[str, Any]) -> None:
    """Add each concept's nearest other concept and the cosine between their means."""
    names = [n for n, mean in means.items() if np.linalg.norm(mean) > 1e-6]
    if len(names) < 2:
        return
    matrix = np.stack([means[n] / np.linalg.norm(means[n]) for n in names])
    cosine = matrix @ matrix.T
    np.fill_diagonal(cosine, -math.inf)
    nearest = cosine.argmax(1)
    found.concepts["semantics.confusion"] = {n: float(cosine[i, nearest[i]]) for i, n in enumerate(names)}
    found.concepts["semantics.nearest-concept"] = {n: names[nearest[i]] for i, n in enumerate(names)}


def _near_clusters(vectors: structure.Vectors, rows: Any, parts: list[str]) -> list[tuple[str, int, int, float]]:
    """Return one pair per two clusters of different concepts that are near: the image nearest to each one's mean."""
    members = rows_of(parts)
    means = np.stack([vectors[m].mean(0) for m in members])
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-9)
    heart = [int(m[(vectors[m] @ mean).argmax()]) for m, mean in zip(members, means, strict=True)]
    owner = [parts[m[0]].partition("\0")[0] for m in members]
    cosine = np.triu(means @ means.T, 1)
    near = np.argwhere(cosine > math.cos(math.radians(NEAR_ANGLE)))
    return [
        ("confusion", int(rows[heart[a]]), int(rows[heart[b]]), float(cosine[a, b]))
        for a, b in near.tolist()
        if owner[a] != owner[b]
    ]


def _similar(vectors: structure.Vectors, rows: Any, found: Comparison) -> list[tuple[str, int, int, float]]:
    """Return pairs that show the same in the same way."""
    if len(vectors) > EXACT:
        found.unmeasured["semantics.similar"] = f"pairs alike in meaning are only sought among up to {EXACT:,} images"
        return []
    cosine = np.triu(vectors @ vectors.T, 1)
    return [
        ("similar", int(rows[a]), int(rows[b]), float(cosine[a, b])) for a, b in np.argwhere(cosine >= SIMILAR).tolist()
    ]


ANALYZER = Semantics()
