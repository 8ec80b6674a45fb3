"""Colour encoding: whatever the file holds becomes 8-bit sRGB.

The conversion is done while the picture is decoded (`imaging.decode.whole`): embedded profiles through LittleCMS,
relative colorimetric with black point compensation, perceptual where the profile knows nothing else; CMYK through its
profile, by the plain formula without one; 16 bits, grey or colour, brought to 8 with dither, through a matrix profile
before that; palettes and grey spread to RGB. A suspected wrong tone curve is never guessed at.
"""

from __future__ import annotations

from datasieve.repair import Centre, Options, Parameters, Picture, Row

RULES = (
    "files.profile",
    "files.profile-broken",
    "files.cmyk",
    "files.bit-depth",
    "trainer.clipped",
    "trainer.print-colours",
    "trainer.profile-ignored",
)
SAFE = True


def parameters(row: Row, centre: Centre, options: Options) -> Parameters | str:
    """Return what the colours are converted from."""
    return {
        "from": row.get("files.icc-name") or row.get("files.colour-model") or "",
        "bits": row.get("files.bit-depth"),
        "intent": "relative colorimetric, black point compensation" if row.get("files.icc-name") else "",
        "dither": "triangular" if (row.get("files.bit-depth") or 8) > 8 else "",
    }


def apply(picture: Picture, parameters: Parameters) -> Picture:
    """Return the picture: it was converted when it was decoded."""
    return picture
