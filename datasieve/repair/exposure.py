"""Exposure: an image much darker or brighter than its set is brought to the set's lightness, in linear light.

Only outliers move, by at most two stops, and never so far that a further percent of the picture would clip. What is
burnt out stays lost.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from datasieve.imaging import colorimetry
from datasieve.repair import Centre, Options, Parameters, Picture, Row
from datasieve.repair.light import encoded, linear

RULES = ("colour.underexposed", "colour.outlier", "colour.overexposed")
SAFE = False

MOST_STOPS = 2.0
LEAST_DISTANCE = 12.0
"""L* from the set's lightness within which an image is left alone."""

CLIPPED = 0.01
"""Share of the pixels that may clip anew."""


def parameters(row: Row, centre: Centre, options: Options) -> Parameters | str:
    """Return the lightness to reach."""
    own = row.get("colour.lightness")
    if own is None:
        return "the lightness of this picture could not be measured"
    if centre.lightness is None:
        return "its concept has too few images to tell their common lightness"
    if abs(own - centre.lightness) < LEAST_DISTANCE:
        return "its lightness is that of its set"
    return {"from": round(float(own), 2), "to": round(centre.lightness, 2)}


def apply(picture: Picture, parameters: Parameters) -> Picture:
    """Return the picture with its light multiplied so that the mean lightness comes as near as it may."""
    light = linear(picture.pixels)
    gain = gain_to(light[::4, ::4], float(parameters["to"]))
    return Picture(encoded(light * np.float32(gain)), picture.alpha, picture.mask)


def gain_to(light: npt.NDArray[np.float32], target: float) -> float:
    """Return the factor that brings the mean L* of linear pixels (h, w, 3) to `target`, within the bounds above."""
    brightest = np.sort(light.max(-1).ravel())
    room = 1 / max(float(brightest[int((1 - CLIPPED) * (len(brightest) - 1))]), 1e-4)
    low, high = 2.0**-MOST_STOPS, min(2.0**MOST_STOPS, max(room, 1.0))
    luminance = colorimetry.rgb_to_xyz_matrix()[1]
    for _ in range(20):
        middle = (low * high) ** 0.5
        mean = float(colorimetry.lightness((light * np.float32(middle)).clip(0, 1) @ luminance).mean())
        low, high = (middle, high) if mean < target else (low, middle)
    return float((low * high) ** 0.5)
