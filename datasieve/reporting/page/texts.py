"""The part of the page on captions: how much they say, what is not read, what stands together."""

from __future__ import annotations

from typing import Any

import numpy as np

from datasieve.captions.reading import token_limit
from datasieve.errors import DatasieveError
from datasieve.report import Report
from datasieve.reporting.captions import LEVELS
from datasieve.reporting.page.findings import TEXTS, split_caption
from datasieve.reporting.page.lists import MOST, LongList
from datasieve.reporting.page.pictures import Pictures
from datasieve.reporting.plots.caption_tags import caption_tags_data
from datasieve.reporting.plots.granularity import WORDS, granularity_data
from datasieve.reporting.text import safe, shortened

EXAMPLE = 110
"""Letters of an example of a caption."""


def captions(report: Report, pictures: Pictures) -> dict[str, Any] | None:
    """Return what the page tells of captions; None when the set has none."""
    try:
        levels, words, without = granularity_data(report)
    except DatasieveError:
        return None
    if not any(levels.values()):
        return None
    return {
        "levels": _levels(report, levels, without),
        "words": _bars(words),
        "lost": _lost(report, pictures),
        "tags": _tags(report),
        "limit": token_limit((report.run.get("settings") or {}).get("trainer")),
    }


def _levels(report: Report, levels: dict[str, int], without: int) -> list[dict[str, Any]]:
    """Return the levels from nothing to a whole scene, each with its number and one caption of it."""
    table = report.images(["caption", "captions.granularity"])
    level = table["captions.granularity"].to_pylist()
    most = max(without, *levels.values())
    made = [{"name": "no caption", "count": f"{without:,}", "percent": f"{100 * without / most:.1f}", "example": ""}]
    for name in LEVELS:
        example = ""
        if levels[name]:
            rows = [i for i, own in enumerate(level) if own == name]
            example = _quoted(table["caption"][rows[len(rows) // 2]].as_py() or "")
        percent = f"{100 * levels[name] / most:.1f}"
        made.append({"name": WORDS[name], "count": f"{levels[name]:,}", "percent": percent, "example": example})
    return made if without else made[1:]


def _quoted(caption: str) -> str:
    text = safe(" ".join(caption[: 4 * EXAMPLE].split()))
    return text if len(text) <= EXAMPLE else text[: EXAMPLE - 1] + "…"


def _bars(words: list[tuple[str, int]]) -> list[dict[str, str]]:
    most = max((number for _, number in words), default=0) or 1
    return [{"name": name, "count": f"{n:,}", "percent": f"{100 * n / most:.1f}"} for name, n in words]


def _lost(report: Report, pictures: Pictures) -> LongList | None:
    """Return the captions that are cut off, the most first, with what is read and what is not."""
    names = ["image_id", "caption", "captions.tokens-lost", "captions.words-lost"]
    table = report.images(names)
    tokens = np.nan_to_num(np.asarray(table["captions.tokens-lost"].to_numpy(), np.float64))
    cut = np.flatnonzero(tokens > 0)
    if not len(cut):
        return None
    order = cut[np.argsort(-tokens[cut], kind="stable")][:MOST]
    items: list[dict[str, Any]] = []
    for row in table.take(order).to_pylist():
        read, lost = split_caption(row["caption"], row["captions.words-lost"])
        told = f"{row['captions.tokens-lost']:,} tokens not read"
        items.append({"picture": pictures.of(row["image_id"]), "caption": read, "lost": lost, "value": told})
    return LongList("captions-lost", "Captions that are cut off", items, len(cut), TEXTS, "text")


def _tags(report: Report) -> dict[str, Any] | None:
    try:
        names, counts, total = caption_tags_data(report)
    except DatasieveError:
        return None
    shares = counts / np.maximum(np.diag(counts), 1)[:, None]
    labels = [shortened(safe(name), 22) for name in names]
    rows = []
    for i, label in enumerate(labels):
        cells = [
            {"text": "" if i == j else f"{share:.0%}", "heat": "self" if i == j else f"t{min(int(share * 10), 9)}"}
            for j, share in enumerate(shares[i])
        ]
        rows.append({"name": label, "size": f"{counts[i, i]:,}", "cells": cells})
    return {"rows": rows, "total": f"{total:,}"}
