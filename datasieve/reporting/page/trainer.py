"""The part of the page on the trainer: what it will do to each file, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from datasieve.report import Report
from datasieve.reporting.page.lists import MOST, LongList
from datasieve.reporting.page.pictures import Pictures
from datasieve.reporting.text import count, number, safe
from datasieve.rules import Rule

SIZE = 15
ENLARGED, CUT = 1.05, 0.05
"""Factor and share from which on resizing and cropping are told first."""


def trainer(report: Report, rules: Mapping[str, Rule], pictures: Pictures) -> dict[str, Any]:
    """Return the consequences by number of files, and the files with what happens to each, the worst first."""
    name = (report.run.get("settings") or {}).get("trainer")
    known = report.columns()
    titles = {}
    for column in known:
        if column.startswith("trainer.") and column.endswith("-consequence"):
            rule_id = column.removesuffix("-consequence")
            titles[column] = rules[rule_id].title if rule_id in rules else rule_id
    return {
        "name": safe(str(name or "")),
        "consequences": _sentences(report, titles),
        "files": _files(report, titles, pictures) if "buckets.width" in known else None,
    }


def _sentences(report: Report, titles: Mapping[str, str]) -> list[dict[str, str]]:
    found: dict[tuple[str, str], int] = {}
    table = report.images(list(titles))
    for column, title in titles.items():
        for row in table[column].value_counts().to_pylist():
            if row["values"]:
                found[title, row["values"]] = row["counts"]
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return [{"title": title, "text": safe(text), "count": count(n, "file")} for (title, text), n in ordered]


def _files(report: Report, titles: Mapping[str, str], pictures: Pictures) -> LongList | None:
    """Return the files in the order of how much happens to them."""
    numbers = ["width", "height", "buckets.width", "buckets.height", "buckets.scale", "buckets.crop-share"]
    table = report.images(["image_id", "status", *numbers, *titles])
    table = table.filter([status != "ignored" for status in table["status"].to_pylist()])
    if not len(table):
        return None
    scale, cut = (np.nan_to_num(np.asarray(table[n].to_numpy(), np.float64)) for n in numbers[-2:])
    faults = np.zeros(len(table))
    for column in titles:
        faults += np.asarray(table[column].is_valid().to_numpy(zero_copy_only=False), np.float64)
    weight = 10 * faults + np.where(scale > ENLARGED, scale, 0) + np.where(cut > CUT, 3 * cut, 0)
    order = np.argsort(-weight, kind="stable")[:MOST]
    items: list[dict[str, Any]] = []
    for row in table.take(order).to_pylist():
        item = {
            "picture": pictures.of(row["image_id"]),
            "size": f"{row['width']} × {row['height']}" if row["width"] else "–",
            "bucket": f"{row['buckets.width']} × {row['buckets.height']}" if row["buckets.width"] else "–",
            "note": " ".join([*(f"{title}." for c, title in titles.items() if row[c]), *_resized(row)]),
        }
        items.append(item)
    return LongList("trainer-files", "What happens to each file", items, len(table), SIZE, "file")


def _resized(row: dict[str, Any]) -> list[str]:
    scale, cut = row["buckets.scale"], row["buckets.crop-share"]
    if scale is None:
        return []
    how = "Enlarged" if scale > 1 else "Reduced"
    said = [f"{how} to {number(scale, 'share')} of its size." if abs(scale - 1) > 0.005 else "Kept at its size."]
    if cut and cut > 0.001:
        said.append(f"{number(cut, 'share')} cut away.")
    return said
