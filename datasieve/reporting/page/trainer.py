"""The part of the page on the trainer: what it will do to each file, in a sentence."""

from __future__ import annotations

from typing import Any

import numpy as np

from datasieve.report import Report
from datasieve.reporting.page.lists import MOST, LongList
from datasieve.reporting.page.pictures import Pictures
from datasieve.reporting.text import number, safe

SIZE = 15
ENLARGED, CUT = 1.05, 0.05
"""Factor and share from which on resizing and cropping are told first."""


def trainer(report: Report, pictures: Pictures) -> dict[str, Any]:
    """Return the consequences by number of files, and the files with what happens to each, the worst first."""
    name = (report.run.get("settings") or {}).get("trainer")
    known = report.columns()
    told = [c for c in known if c.startswith("trainer.") and c.endswith("-consequence")]
    sentences = _sentences(report, told)
    return {
        "name": safe(str(name or "")),
        "consequences": sentences,
        "files": _files(report, told, pictures) if "buckets.width" in known else None,
    }


def _sentences(report: Report, columns: list[str]) -> list[dict[str, str]]:
    found: dict[str, int] = {}
    table = report.images(columns)
    for column in columns:
        for row in table[column].value_counts().to_pylist():
            if row["values"]:
                found[row["values"]] = found.get(row["values"], 0) + row["counts"]
    return [{"text": safe(text), "count": f"{n:,}"} for text, n in sorted(found.items(), key=lambda i: (-i[1], i[0]))]


def _files(report: Report, told: list[str], pictures: Pictures) -> LongList | None:
    """Return the files in the order of how much happens to them."""
    numbers = ["width", "height", "buckets.width", "buckets.height", "buckets.scale", "buckets.crop-share"]
    table = report.images(["image_id", "status", *numbers, *told])
    table = table.filter([status != "ignored" for status in table["status"].to_pylist()])
    if not len(table):
        return None
    scale, cut = (np.nan_to_num(np.asarray(table[n].to_numpy(), np.float64)) for n in numbers[-2:])
    faults = np.zeros(len(table))
    for column in told:
        faults += np.asarray(table[column].is_valid().to_numpy(zero_copy_only=False), np.float64)
    weight = 10 * faults + np.where(scale > ENLARGED, scale, 0) + np.where(cut > CUT, 3 * cut, 0)
    order = np.argsort(-weight, kind="stable")[:MOST]
    items: list[dict[str, Any]] = []
    for row in table.take(order).to_pylist():
        item = {
            "picture": pictures.of(row["image_id"]),
            "size": f"{row['width']} × {row['height']}" if row["width"] else "–",
            "bucket": f"{row['buckets.width']} × {row['buckets.height']}" if row["buckets.width"] else "–",
            "note": " ".join([*(safe(row[c]) for c in told if row[c]), *_resized(row)]),
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
