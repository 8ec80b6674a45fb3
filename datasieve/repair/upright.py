"""Orientation: the picture is turned as its tag asks, and the tag goes. Decoding does the turning."""

from __future__ import annotations

from datasieve.repair import Centre, Options, Parameters, Picture, Row

RULES = ("files.rotated", "trainer.sideways")
SAFE = True


def parameters(row: Row, centre: Centre, options: Options) -> Parameters | str:
    """Return the orientation that is baked in (TIFF tag 274)."""
    return {"orientation": row.get("files.orientation")}


def apply(picture: Picture, parameters: Parameters) -> Picture:
    """Return the picture: it was turned when it was decoded."""
    return picture
