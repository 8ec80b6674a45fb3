"""Pictures held out to validate on, none of which has a near twin among those trained on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt


def components(count: int, edges: Iterable[tuple[int, int]]) -> npt.NDArray[np.int64]:
    """Return (count,) the number of each item's connected component."""
    parent = list(range(count))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for a, b in edges:
        parent[root(a)] = root(b)
    _, numbers = np.unique([root(i) for i in range(count)], return_inverse=True)
    return numbers.astype(np.int64)


def hold_out(
    concepts: Sequence[str], edges: Iterable[tuple[int, int]], share: float, seed: int
) -> npt.NDArray[np.bool_]:
    """Return (N,) True for pictures to validate on: about `share` of each concept, whole components only.

    Args:
        concepts: (N,) what each picture shows.
        edges: pairs of pictures that are copies or look alike.
        share: 0..1.
        seed: of the choice.
    """
    component = components(len(concepts), edges)
    rng = np.random.default_rng(seed)
    held = np.zeros(len(concepts), bool)
    members: dict[int, list[int]] = {}
    for i, number in enumerate(component.tolist()):
        members.setdefault(number, []).append(i)
    for concept in sorted(set(concepts)):
        mine = [i for i, c in enumerate(concepts) if c == concept]
        wanted = int(len(mine) * share + 0.5)
        groups = sorted({int(component[i]) for i in mine})
        for number in rng.permutation(groups).tolist():
            group = members[number]
            # A component that reaches into another concept would take more than this concept's share there.
            if len(group) <= wanted and all(concepts[i] == concept for i in group):
                held[group] = True
                wanted -= len(group)
            if wanted <= 0:
                break
    return held
