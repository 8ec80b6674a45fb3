"""Bars and frames of one colour are cut away, as wide as they were measured."""

from __future__ import annotations

from datasieve.repair import Centre, Options, Parameters, Picture, Row, crop

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


def window(row: Row, parameters: Parameters) -> tuple[float, float, float, float]:
    """Return what is left of a picture: left, top, right, bottom in pixels."""
    width, height = row["width"], row["height"]
    cut = {side: parameters.get(side, 0.0) for side in SIDES}
    return (
        round(cut["left"] * width),
        round(cut["top"] * height),
        width - round(cut["right"] * width),
        height - round(cut["bottom"] * height),
    )


def apply(picture: Picture, parameters: Parameters) -> Picture:
    """Return the picture without its bars."""
    height, width = picture.pixels.shape[:2]
    left, top, right, bottom = window({"width": width, "height": height}, parameters)
    return crop.apply(picture, {"left": left, "top": top, "right": right, "bottom": bottom})
