"""What the images of each concept have in common: medians, so that one odd image does not move them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from datasieve.repair import Centre, Row
from datasieve.repair.looks import LOOKS, MIN_IMAGES


def centres(rows: Sequence[Row]) -> dict[str, Centre]:
    """Return concept -> its centre, from its usable images; from fewer than `MIN_IMAGES` nothing is told."""
    concepts: dict[str, list[Row]] = {}
    for row in rows:
        concepts.setdefault(row["concept"] or "", [])
        if row["status"] == "ok":
            concepts[row["concept"] or ""].append(row)
    return {concept: _centre(members) for concept, members in concepts.items()}


def _centre(rows: Sequence[Row]) -> Centre:
    lights = [[row.get(f"colour.light-{c}") for c in ("red", "green", "blue")] for row in rows]
    known = np.array([light for light in lights if None not in light], float)
    light = tuple(float(v) for v in np.median(known, axis=0)) if len(known) >= MIN_IMAGES else None
    seen = np.array([[row[name] for name in LOOKS] for row in rows if row.get(LOOKS[0]) is not None], float)
    if len(seen) < MIN_IMAGES:
        return Centre(cast("tuple[float, float, float] | None", light))
    middle = np.median(seen, axis=0)
    spread = np.median(np.abs(seen - middle), axis=0)
    warmth, tint, stops = ((float(middle[i]), float(middle[i + 1])) for i in (0, 2, 4))
    return Centre(
        cast("tuple[float, float, float] | None", light),
        warmth,
        float(spread[0]),
        tint,
        stops,
        float(spread[4]),
    )
