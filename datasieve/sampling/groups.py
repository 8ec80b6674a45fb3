"""Which images may share a batch: isolation groups and the conflicts between them.

A *group* is one isolation cluster of one concept. Two groups conflict when they belong to one concept (at any angle),
when their clusters are a listed pair, or when they belong to two concepts and the directions of their mean embeddings,
seen from a reference, are less than a limit apart. Conflicts within a concept are never stored as pairs: a concept of
a thousand clusters would have half a million.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_BLOCK = 2048


@dataclass(frozen=True, slots=True)
class Groups:
    """The isolation groups of N images.

    Attributes:
        of_image: (N,) the group of each image, 0 to G - 1.
        concept: (G,) the concept of each group as a number, or -1 throughout when concepts bind nothing.
        size: (G,) images of each group.
        names: G names for messages: "cluster 3", or "cluster 3 of 'cat'".
        start, neighbour: conflicts other than those within a concept, in compressed rows: group g conflicts with
            `neighbour[start[g]:start[g + 1]]`.
    """

    of_image: Ints
    concept: Ints
    size: Ints
    names: tuple[str, ...]
    start: Ints
    neighbour: Ints

    def __len__(self) -> int:
        return len(self.size)

    def against(self, members: Ints) -> npt.NDArray[np.bool_]:
        """Return (G,) True for the groups that conflict with at least one of `members` (members among them too)."""
        hit = np.zeros(len(self), bool)
        for group in members.tolist():
            hit[self.neighbour[self.start[group] : self.start[group + 1]]] = True
        concepts = self.concept[members]
        concepts = concepts[concepts >= 0]
        if concepts.size:
            own = np.zeros(len(self), bool)
            own[members] = True
            hit |= np.isin(self.concept, concepts) & ~own
            values, counts = np.unique(concepts, return_counts=True)
            hit |= np.isin(self.concept, values[counts > 1])
        return hit

    def conflicting_pairs(self, rows: Ints) -> int:
        """Return how many pairs of positions in `rows` (image indices of one effective batch) conflict."""
        present, counts = np.unique(self.of_image[rows], return_counts=True)
        concept = self.concept[present]
        bound = concept >= 0
        together = np.bincount(concept[bound], counts[bound])
        within = ((together**2).sum() - (counts[bound] ** 2).sum()) / 2
        spans = self.start[present + 1] - self.start[present]
        step = np.arange(int(spans.sum())) - np.repeat(np.cumsum(spans) - spans, spans)
        other = self.neighbour[np.repeat(self.start[present], spans) + step]
        many = np.zeros(len(self))
        many[present] = counts
        # A listed pair within one concept is already counted by the concept.
        apart = (self.concept[other] != np.repeat(concept, spans)) | (self.concept[other] < 0)
        listed = (np.repeat(counts, spans) * many[other])[apart].sum() / 2
        return round(float(within + listed))

    def conflict_share(self) -> float:
        """Return the probability that two images drawn at random (with replacement) conflict."""
        share = self.size / max(int(self.size.sum()), 1)
        rows = np.repeat(np.arange(len(self)), np.diff(self.start))
        listed = share[rows] * share[self.neighbour]
        # A listed pair within one concept is already counted by the concept.
        apart = (self.concept[rows] != self.concept[self.neighbour]) | (self.concept[rows] < 0)
        total = float(listed[apart].sum())
        bound = self.concept >= 0
        if bound.any():
            sums = np.bincount(self.concept[bound], weights=share[bound])
            total += float((sums**2).sum() - (share[bound] ** 2).sum())
        return total


def make_groups(
    clusters: Sequence[Any] | npt.NDArray[Any],
    conflicts: Iterable[tuple[Any, Any]] = (),
    concepts: Sequence[Any] | npt.NDArray[Any] | None = None,
    embeddings: npt.ArrayLike | None = None,
    *,
    min_angle_deg: float = 60.0,
    reference: npt.ArrayLike | None = None,
) -> Groups:
    """Return the isolation groups of images.

    Args:
        clusters: (N,) cluster of each image: numbers or words. The same cluster in two concepts is two groups.
        conflicts: pairs of clusters that must not meet; a cluster that no image has is passed over.
        concepts: (N,) concept of each image; None: only the listed pairs bind.
        embeddings: (N, d) one vector an image, used only together with `concepts`.
        min_angle_deg: groups of two concepts closer than this conflict, in degrees.
        reference: (d,) vector that directions are seen from; None: the mean of the unit-length embeddings.

    Raises:
        ValueError: lengths differ, a pair is of a cluster with itself, or an embedding is not finite.
    """
    labels, cluster = codes(clusters, "clusters")
    count = len(cluster)
    if count == 0:
        raise ValueError("clusters is empty: there are no images to draw batches from")
    if concepts is None:
        group_cluster, of_image = np.arange(len(labels)), cluster
        group_concept = np.full(len(labels), -1, np.int64)
        names = [f"cluster {label}" for label in labels.tolist()]
    else:
        concept_labels, concept = codes(concepts, "concepts")
        if len(concept) != count:
            raise ValueError(f"concepts has {len(concept)} entries, clusters has {count}")
        keys, of_image = np.unique(concept * len(labels) + cluster, return_inverse=True)
        of_image = of_image.reshape(-1).astype(np.int64)
        group_concept, group_cluster = keys // len(labels), keys % len(labels)
        names = [_name(labels[k], concept_labels[c]) for k, c in zip(group_cluster, group_concept, strict=True)]
    pairs = [_listed(conflicts, labels, group_cluster)]
    if embeddings is not None and concepts is not None:
        centres = _centres(np.asarray(embeddings), of_image, len(names), reference)
        pairs.append(_close(centres, group_concept, min_angle_deg))
    start, neighbour = _rows(np.concatenate(pairs), len(names))
    size = np.bincount(of_image, minlength=len(names)).astype(np.int64)
    return Groups(of_image, group_concept.astype(np.int64), size, tuple(names), start, neighbour)


def codes(values: Sequence[Any] | npt.NDArray[Any], name: str) -> tuple[npt.NDArray[Any], Ints]:
    """Return the distinct values, sorted, and (N,) which of them each entry is. Raises ValueError unless it is flat."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one value an image, not of shape {array.shape}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN: give every image a value")
    distinct, code = np.unique(array, return_inverse=True)
    return distinct, code.reshape(-1).astype(np.int64)


def _name(label: Any, concept: Any) -> str:
    told = str(concept) and str(label).startswith(str(concept))
    return f"cluster {label}" if told else f"cluster {label} of {str(concept)!r}"


def _listed(conflicts: Iterable[tuple[Any, Any]], labels: npt.NDArray[Any], group_cluster: Ints) -> Ints:
    """Return (P, 2) pairs of groups whose clusters are listed as conflicting."""
    listed = [(a, b) for a, b in conflicts]
    if not listed:
        return np.empty((0, 2), np.int64)
    known = {label: i for i, label in enumerate(labels.tolist())}
    groups: dict[int, list[int]] = {}
    for group, cluster in enumerate(group_cluster.tolist()):
        groups.setdefault(cluster, []).append(group)
    found = []
    for a, b in listed:
        a, b = (v.item() if isinstance(v, np.generic) else v for v in (a, b))
        if a == b:
            raise ValueError(f"conflicts lists cluster {a!r} with itself: its images could never share a batch")
        found += [(x, y) for x in groups.get(known.get(a, -1), ()) for y in groups.get(known.get(b, -1), ())]
    return np.array(found, np.int64).reshape(-1, 2)


def _centres(embeddings: npt.NDArray[Any], of_image: Ints, count: int, reference: npt.ArrayLike | None) -> Floats:
    """Return (G, d) unit directions of the groups' mean embeddings seen from the reference (0: no direction)."""
    if embeddings.ndim != 2 or len(embeddings) != len(of_image):
        raise ValueError(f"embeddings must be (images, width) = ({len(of_image)}, d), not {embeddings.shape}")
    sums = np.zeros((count, embeddings.shape[1]))
    for first in range(0, len(embeddings), _BLOCK * 8):  # blocks: a unit-length copy of all would double the memory
        block = np.asarray(embeddings[first : first + _BLOCK * 8], np.float64)
        norm = np.linalg.norm(block, axis=1, keepdims=True)
        if not np.isfinite(norm).all():
            raise ValueError("embeddings holds NaN or infinite values")
        order = np.argsort(of_image[first : first + len(block)], kind="stable")
        rows = of_image[first : first + len(block)][order]
        edges = np.flatnonzero(np.diff(rows, prepend=-1))
        sums[rows[edges]] += np.add.reduceat((block / np.maximum(norm, 1e-12))[order], edges, axis=0)
    size = np.bincount(of_image, minlength=count)[:, None]
    origin = sums.sum(0) / len(embeddings) if reference is None else np.asarray(reference, np.float64)
    centres = sums / size - origin
    norm = np.linalg.norm(centres, axis=1, keepdims=True)
    # A group at the reference itself has no direction, so no angle to any other.
    return np.asarray(np.where(norm > 1e-9, centres / np.maximum(norm, 1e-9), 0.0))


def _close(centres: Floats, concept: Ints, min_angle_deg: float) -> Ints:
    """Return (P, 2) pairs of groups of different concepts whose directions are less than the limit apart."""
    limit = np.cos(np.radians(min_angle_deg))
    has_direction = np.linalg.norm(centres, axis=1) > 0.5
    found = [np.empty((0, 2), np.int64)]
    for first in range(0, len(centres), _BLOCK):
        block = slice(first, first + _BLOCK)
        near = centres[block] @ centres.T > limit
        near &= (concept[block, None] != concept[None]) & has_direction[block, None] & has_direction[None]
        found.append(np.argwhere(np.triu(near, first + 1)) + np.array([first, 0]))
    return np.concatenate(found)


def _rows(pairs: Ints, count: int) -> tuple[Ints, Ints]:
    """Return pairs as compressed rows, both ways round and each once."""
    both = np.concatenate([pairs, pairs[:, ::-1]])
    keys = np.unique(both[:, 0] * count + both[:, 1])
    start = np.searchsorted(keys, np.arange(count + 1) * count)
    return start.astype(np.int64), (keys % count).astype(np.int64)
