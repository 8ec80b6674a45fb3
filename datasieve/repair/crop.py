"""Cutting a window out of a picture, and what that does to the row of the report that describes it."""

from __future__ import annotations

from typing import Any

from datasieve.repair import Parameters, Picture, Row
from datasieve.repair.looks import SUBJECT

Window = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels."""


def apply(picture: Picture, parameters: Parameters) -> Picture:
    """Return the picture within `left`, `top`, `right`, `bottom`, whole pixels."""
    left, top, right, bottom = (int(parameters[side]) for side in ("left", "top", "right", "bottom"))
    rows, columns = slice(top, bottom), slice(left, right)
    alpha, mask = (None if plane is None else plane[rows, columns] for plane in (picture.alpha, picture.mask))
    return Picture(picture.pixels[rows, columns], alpha, mask)


def cropped_row(row: Row, window: Window) -> dict[str, Any]:
    """Return the row as it is for the picture within `window`: its size and where the subject lies."""
    left, top, right, bottom = window
    out = {**row, "width": round(right - left), "height": round(bottom - top)}
    for name, start, length, whole in zip(
        SUBJECT,
        (left, top, left, top),
        (right - left, bottom - top, right - left, bottom - top),
        (row["width"], row["height"], row["width"], row["height"]),
        strict=True,
    ):
        if row.get(name) is not None:
            out[name] = min(max((float(row[name]) * whole - start) / length, 0.0), 1.0)
    return out
