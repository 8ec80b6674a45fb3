"""The colour of the light in a picture: two estimates, and what they agree on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from datasieve.imaging import colorimetry, illuminant

if TYPE_CHECKING:
    import torch

Floats = npt.NDArray[np.float64]
CHANNELS = ("red", "green", "blue")
NO_EDGES = "light: no edges to judge it by"

MAX_DUV = 0.05
"""Farther from the black-body locus a colour temperature says nothing (CIE 15:2004, 9.5)."""

LAMP_DUV = 0.0075
"""How far the light may lie from the daylight locus, in Duv, before a shift counts less as a cast."""

DUV_WEIGHT = 20_000.0
"""Mired taken off a cast for each unit of Duv beyond `LAMP_DUV`; gradual, so that no cast appears out of nowhere."""

MIN_PIXELS = 64
"""Unclipped pixels needed to judge the light."""

MIN_EDGE = 1e-4
"""Mean gradient in linear light per px below which an image is flat, and has no light to judge."""


def light(greys: Floats, edges: Floats) -> dict[str, Floats]:
    """Describe the light from its two estimates.

    Args:
        greys, edges: (B, 3) linear sRGB of any scale, by shades of grey and by grey edge; NaN where unknown.

    Returns:
        (B,) each: light-red, -green, -blue (shares, sum 1), cct (K), mired, duv, light-angle from D65 (degrees),
        light-spread between the estimates (degrees), cast (mired). NaN where undefined; cct and mired also where |duv|
        is above `MAX_DUV`.
    """
    unit = [_divide(e, np.linalg.norm(e, axis=-1, keepdims=True)) for e in (greys, edges)]
    both = unit[0] + unit[1]
    mired, duv = _mired(both)
    shares = _divide(both, both.sum(-1, keepdims=True))
    near = np.abs(duv) <= MAX_DUV
    mired = np.where(near, mired, np.nan)
    return {
        **{f"light-{c}": shares[..., i] for i, c in enumerate(CHANNELS)},
        "cct": colorimetry.mired_to_kelvin(mired),
        "mired": mired,
        "duv": duv,
        "light-angle": colorimetry.angle(both, np.ones(3)),
        "light-spread": colorimetry.angle(*unit),
        "cast": cast(*unit),
    }


def cast(greys: Floats, edges: Floats) -> Floats:
    """Return how far, in mired, both estimates agree that the light of a lamp or of the sky is from D65.

    The smaller of both shifts; 0 where one is warm and the other cool, or where either lies off the daylight locus.
    Args as in `light`; NaN where an estimate is.
    """
    white, white_duv = _mired(np.ones(3))
    shifts = []
    for estimate in (greys, edges):
        mired, duv = _mired(estimate)
        excess = np.maximum(np.abs(duv - white_duv) - LAMP_DUV, 0)
        shift = mired - white
        shifts.append(np.sign(shift) * np.maximum(np.abs(shift) - DUV_WEIGHT * excess, 0))
    # Where there is no temperature at all (deeper blue than any sky), it is no lamp.
    a, b = (np.nan_to_num(s) for s in shifts)
    agreed = np.where(a * b > 0, np.minimum(np.abs(a), np.abs(b)), 0.0)
    return np.asarray(np.where(np.isnan(greys + edges).any(-1), np.nan, agreed))


def _mired(rgb: Floats) -> tuple[Floats, Floats]:
    """Return the temperature in mired and Duv of linear sRGB, (..., 3)."""
    return colorimetry.uv_to_mired_duv(colorimetry.xy_to_uv(colorimetry.rgb_to_xy(rgb)))


def _divide(a: Floats, b: Floats) -> Floats:
    return np.asarray(np.divide(a, b, out=np.full(a.shape, np.nan), where=b > 0))


def estimates(
    linear: torch.Tensor, encoded: torch.Tensor, mask: torch.Tensor
) -> tuple[Floats, Floats, list[str | None]]:
    """Return the light by shades of grey and by grey edge, (B, 3) each, and why it is unknown where it is NaN.

    Args:
        linear, encoded: (B, 3, H, W) in [0, 1].
        mask: (B, 1, H, W) bool, where the image is (upper left corner).
    """
    use = illuminant.usable(encoded, mask)
    greys = illuminant.shades_of_grey(linear, use).double().cpu().numpy()
    edges = illuminant.grey_edge(linear, use, mask).double().cpu().numpy()
    count = use.sum((1, 2, 3)).cpu().numpy()
    dark, flat = count < MIN_PIXELS, edges.mean(-1) < MIN_EDGE
    unknown = dark | flat
    greys[unknown], edges[unknown] = np.nan, np.nan
    reasons: list[str | None] = [None] * len(count)
    for i in np.flatnonzero(unknown):
        reasons[i] = f"light: only {count[i]} of the pixels are neither clipped nor black" if dark[i] else NO_EDGES
    return greys, edges, reasons
