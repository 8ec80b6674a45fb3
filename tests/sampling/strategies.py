"""Random sets of images for the invariants, and an independent judge of what may meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st


@dataclass(frozen=True)
class ImageSet:
    """Arguments of a sampler: clusters, pairs, and perhaps concepts, buckets and repeats."""

    clusters: list[int]
    conflicts: list[tuple[int, int]]
    concepts: list[str] | None
    buckets: list[int] | None
    repeats: list[int] | None

    def arguments(self) -> dict[str, Any]:
        """Return them by name."""
        return {
            "clusters": self.clusters,
            "conflicts": self.conflicts,
            "concepts": self.concepts,
            "buckets": self.buckets,
            "repeats": self.repeats,
        }

    def demand(self) -> list[int]:
        """Return how often an epoch must show each image."""
        return self.repeats or [1] * len(self.clusters)

    def conflict(self, a: int, b: int) -> bool:
        """Tell whether two images may not meet, straight from the definition."""
        one, other = self.clusters[a], self.clusters[b]
        if (one, other) in self.conflicts or (other, one) in self.conflicts:
            return True
        return self.concepts is not None and self.concepts[a] == self.concepts[b] and one != other


@st.composite
def image_sets(draw: st.DrawFn) -> ImageSet:
    """Draw up to 40 images in up to five clusters and three concepts."""
    count = draw(st.integers(1, 40))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=count, max_size=count))

    cluster = st.integers(0, 4)
    pairs = st.lists(st.tuples(cluster, cluster).filter(lambda p: p[0] != p[1]), max_size=4)
    return ImageSet(
        column(cluster),
        draw(pairs),
        column(st.sampled_from("abc")) if draw(st.booleans()) else None,
        column(st.integers(0, 2)) if draw(st.booleans()) else None,
        column(st.integers(1, 3)) if draw(st.booleans()) else None,
    )
