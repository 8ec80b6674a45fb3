"""Animations: the first frame becomes a still picture, as in the measuring."""

from __future__ import annotations

from datasieve.repair import Centre, Options, Parameters, Picture, Row

RULES = ("files.animated",)
SAFE = True


def parameters(row: Row, centre: Centre, options: Options) -> Parameters | str:
    """Return which frame is kept of how many."""
    return {"frame": 1, "of": row.get("files.frames")}


def apply(picture: Picture, parameters: Parameters) -> Picture:
    """Return the picture: decoding gives the first frame."""
    return picture
