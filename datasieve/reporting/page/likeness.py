"""The part of the page on what the pictures show: matrix, contradictions, groups side by side, map, scale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from datasieve.errors import DatasieveError
from datasieve.report import Report
from datasieve.reporting.page.lists import key_of
from datasieve.reporting.page.pictures import Pictures
from datasieve.reporting.plots._ink import HUES, MARKERS
from datasieve.reporting.plots.conflict import Matrix, conflict_data, most_telling
from datasieve.reporting.plots.embedding_map import NAMED, embedding_map_data
from datasieve.reporting.plots.scales import scales_data
from datasieve.reporting.text import count, safe, shortened

MOST_ROWS, MOST_PAIRS, MOST_CONCEPTS, EXAMPLES = 24, 8, 12, 6
PAIR_EXAMPLES = 3
ALIKE = 0.65
"""Cosine above which two concepts are named as alike; the limit of semantics.confusion."""
WIDTH, HEIGHT, MARGIN = 720, 460, 14
_LABEL, _LINE = 7.6, 16.0
"""Width of a letter and height of a line of a label on the map, in its units."""
ON_MAP, THUMB = 60, 46
"""Up to so many pictures the map shows themselves instead of marks, of that size."""

Members = dict[str, list[str]]


def group_members(report: Report) -> Members:
    """Return group -> image ids, the most typical first; empty when nothing was embedded."""
    if "semantics.cluster" not in report.columns():
        return {}
    table = report.images(["image_id", "concept", "semantics.cluster", "semantics.conflict"])
    table = table.filter(table["semantics.cluster"].is_valid())
    rows = sorted(
        table.to_pylist(), key=lambda r: math.inf if r["semantics.conflict"] is None else r["semantics.conflict"]
    )
    several = {row["concept"] or "" for row in rows if row["semantics.cluster"]}
    found: Members = {}
    for row in rows:
        concept = row["concept"] or ""
        name = concept or "the set"
        name += f", group {row['semantics.cluster'] + 1}" if concept in several else ""
        found.setdefault(name, []).append(row["image_id"])
    return found


def matrix_of(report: Report) -> Matrix | None:
    """Return the cosines of all groups; None without two groups."""
    try:
        return conflict_data(report)
    except DatasieveError:
        return None


def heat(whole: Matrix | None) -> dict[str, Any] | None:
    """Return the matrix as rows of cells, each with a step of 0 to 9 and which way."""
    if whole is None:
        return None
    names, sizes, cosines = most_telling(whole, MOST_ROWS)
    rows = []
    for i, name in enumerate(names):
        cells = [
            {"text": _cosine(v).replace("0.", ".", 1), "heat": f"{'a' if v >= 0 else 'u'}{min(int(abs(v) * 10), 9)}"}
            for v in cosines[i]
        ]
        rows.append({"name": shortened(safe(name), 28), "size": f"{sizes[i]:,}", "cells": cells})
    return {"rows": rows, "total": len(whole[0]), "shown": len(names)}


def _cosine(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}"  # no minus before a zero


def contradictions(whole: Matrix | None, members: Members, pictures: Pictures) -> list[dict[str, Any]]:
    """Return the pairs that harm most: unlike groups of one concept, then concepts that are alike."""
    if whole is None:
        return []
    names, _, cosines = whole
    number = {name: i for i, name in enumerate(names)}
    concept = {name: name.rpartition(", group ")[0] or name for name in names}
    by_concept: dict[str, list[str]] = {}
    for name in names:
        by_concept.setdefault(concept[name], []).append(name)
    # The worst pair of each concept: more of the same tell nothing new.
    unlike = [
        min((float(cosines[number[a], number[b]]), a, b) for a, b in combinations(own, 2))
        for own in by_concept.values()
        if len(own) > 1
    ]
    near = np.argwhere(np.triu(cosines, 1) > ALIKE)
    alike = [(float(cosines[a, b]), names[a], names[b]) for a, b in near if concept[names[a]] != concept[names[b]]]
    alike.sort(key=lambda pair: -pair[0])
    out = [_pair("unlike", *p, members, pictures) for p in sorted(unlike)[:MOST_PAIRS]]
    return out + [_pair("alike", *p, members, pictures) for p in alike[: max(MOST_PAIRS - len(out), 3)]]


def _pair(kind: str, cosine: float, a: str, b: str, members: Members, pictures: Pictures) -> dict[str, Any]:
    degrees = math.degrees(math.acos(max(-1.0, min(1.0, cosine))))
    sides = [
        {
            "name": safe(name),
            "count": count(len(members.get(name, ())), "image"),
            "pictures": [pictures.of(image) for image in members.get(name, ())[:PAIR_EXAMPLES]],
        }
        for name in (a, b)
    ]
    return {"kind": kind, "cosine": _cosine(cosine), "degrees": f"{degrees:.0f}°", "sides": sides}


def clusters(members: Members, pictures: Pictures) -> list[dict[str, Any]]:
    """Return the concepts that fall into groups, each group with its most typical images."""
    concepts: dict[str, list[dict[str, Any]]] = {}
    for name in sorted(members):
        concept, found, number = name.rpartition(", group ")
        if found:
            images = members[name]
            shown = [pictures.of(image) for image in images[:EXAMPLES]]
            concepts.setdefault(concept, []).append(
                {"number": number, "count": count(len(images), "image"), "pictures": shown}
            )
    return [{"name": safe(name), "groups": groups} for name, groups in list(concepts.items())[:MOST_CONCEPTS]]


def picture_map(report: Report, pictures: Pictures) -> dict[str, Any] | None:
    """Return the map as points and labels in a box of `WIDTH` x `HEIGHT`; None when nothing was embedded."""
    try:
        data = embedding_map_data(report)
    except DatasieveError:
        return None
    odd = {
        r["image_id"]
        for r in report.findings().select(["rule", "image_id"]).to_pylist()
        if r["rule"] == "semantics.conflict"
    }
    rank = {name: i for i, name in enumerate(data.named)}
    one = len(data.named) == 1
    small = len(data.paths) <= ON_MAP
    margin = MARGIN + (THUMB / 2 if small else 0)
    at = margin + data.places * (WIDTH - 2 * margin, HEIGHT - 2 * margin)
    points = []
    for image, group, (x, y) in zip(data.image_ids, data.groups, at, strict=True):
        place = rank[group]
        points.append(
            {
                "x": f"{x:.1f}",
                "y": f"{y:.1f}",
                "hue": "q" if one or place >= NAMED else str(place % len(HUES)),
                "mark": "o" if one or place >= NAMED else MARKERS[place // len(HUES) % len(MARKERS)].lower(),
                "odd": image in odd,
                "picture": pictures.of(image),
                "note": safe(group) + (", shows something else" if image in odd else ""),
            }
        )
    # From left to right, as the arrow keys walk.
    points.sort(key=lambda p: (float(str(p["x"])), float(str(p["y"]))))
    labels = [] if one else _labels(data.named[:NAMED], data.groups, at, THUMB / 2 + 4 if small else 9)
    return {
        "points": points, "labels": labels, "width": WIDTH, "height": HEIGHT, "shown": len(points),
        "total": data.total, "method": data.method, "size": THUMB if small else 0, "odd": sum(p["odd"] for p in points),
    }  # fmt: skip


def _labels(named: Sequence[str], groups: Sequence[str], at: Any, above: float) -> list[dict[str, str]]:
    """Return names above the middle of their pictures; a name that would cover another is left out."""
    own = np.array(groups, dtype=object)
    taken: list[tuple[float, float, float]] = []
    made = []
    for name in named:
        x, y = np.median(at[own == name], axis=0)
        text = shortened(safe(name), 26)
        half = _LABEL * len(text) / 2
        x, y = min(max(x, half), WIDTH - half), max(y - above, _LINE)
        if all(abs(y - other_y) > _LINE or abs(x - other_x) > half + other for other_x, other_y, other in taken):
            taken.append((x, y, half))
            made.append({"x": f"{x:.1f}", "y": f"{y:.1f}", "text": text})
    return made


def scale_mix(report: Report, pictures: Pictures) -> dict[str, Any] | None:
    """Return images by scale of their subject, near to far, with examples; None when it was not measured."""
    try:
        counts, shares = scales_data(report)
    except DatasieveError:
        return None
    if not counts:
        return None
    rows = report.images(["image_id", "subject.scale", "subject.share"]).to_pylist()
    total = sum(counts.values())
    made = []
    for name, number in counts.items():
        mine = [row for row in rows if row["subject.scale"] == name]
        middle = sorted(mine, key=lambda r: r["subject.share"] or 0)[len(mine) // 2 :][:PAIR_EXAMPLES]
        made.append(
            {"name": safe(name), "key": key_of(name), "count": f"{number:,}", "percent": f"{100 * number / total:.0f}",
             "share": f"{number / total:.0%}", "pictures": [pictures.of(row["image_id"]) for row in middle]}
        )  # fmt: skip
    return {"classes": made, "median": f"{np.median(shares):.0%}" if shares else ""}


def concept_table(report: Report, columns: Mapping[str, str], most: int) -> dict[str, Any] | None:
    """Return concepts.parquet as cells, the largest concepts first; None when it is empty."""
    from datasieve.reporting.text import number

    table = report.concepts()
    names = [n for n in columns if n in table.column_names]
    rows = sorted(table.select(names).to_pylist(), key=lambda r: (-(r.get("images") or 0), r["concept"]))
    if not rows:
        return None
    cells = [
        [safe(str(row["concept"])) or "the set", *("–" if row[n] is None else number(row[n]) for n in names[1:])]
        for row in rows[:most]
    ]
    return {"names": [columns[n] for n in names], "rows": cells, "total": f"{len(rows):,}", "shown": len(cells)}
