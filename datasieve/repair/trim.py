"""Bars and frames of one colour are cut away, as wide as they were measured."""

from __future__ import annotations

from datasieve.repair import Centre, Options, Parameters, Picture, Row

RULES = ("frame.border",)
SAFE = False

SIDES = ("left", "top", "right", "bottom")
SPARE = 1 / 256
"""Bars are measured at 256 px; so much more is cut, so that no edge of them is left."""

SMALLEST = 64
"""Less than so many pixels a side are not worth keeping."""


def parameters(row: Row, centre: Centre, options: Options) -> Parameters | str:
    """Return the share to cut at each side."""
    shares = {side: float(row.get(f"frame.border-{side}") or 0.0) for side in SIDES}
    width = (row["width"] or 0) * (1 - shares["left"] - shares["right"])
    height = (row["height"] or 0) * (1 - shares["top"] - shares["bottom"])
    if min(width, height) < SMALLEST:
        return f"within its bars only {width:.0f} x {height:.0f} px would be left"
    return {side: round(share + SPARE, 5) for side, share in shares.items() if share}


def apply(picture: Picture, parameters: Parameters) -> Picture:
    """Return the picture without its bars."""
    height, width = picture.pixels.shape[:2]
    cut = {side: parameters.get(side, 0.0) for side in SIDES}
    rows = slice(round(cut["top"] * height), height - round(cut["bottom"] * height))
    columns = slice(round(cut["left"] * width), width - round(cut["right"] * width))
    alpha, mask = (None if plane is None else plane[rows, columns] for plane in (picture.alpha, picture.mask))
    return Picture(picture.pixels[rows, columns], alpha, mask)
