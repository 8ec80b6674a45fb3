"""Exposure: an image much darker or brighter than its set is brought towards the set's own, in linear light.

Only outliers move, by as many stops as the picture and the subject in it agree on (`looks.py`): a thing on a white
sheet is not overexposed when it looks as it does elsewhere. At most two stops, and never so far that a further percent
of the picture would clip. What is burnt out stays lost.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from datasieve.repair import Centre, Options, Parameters, Picture, Row
from datasieve.repair.light import encoded, linear
from datasieve.repair.looks import ODD_STOPS, SPREADS, agreed

RULES = ("colour.underexposed", "colour.outlier", "colour.overexposed")
SAFE = False

MOST_STOPS = 2.0
CLIPPED = 0.01
"""Share of the pixels that may clip anew."""


def noticed(row: Row, centre: Centre, options: Options) -> bool:
    """Tell whether the image stands apart from its set, whether or not a rule said so."""
    return not isinstance(parameters(row, centre, options), str)


def parameters(row: Row, centre: Centre, options: Options) -> Parameters | str:
    """Return by how many stops the picture is made brighter."""
    if centre.stops is None:
        return "its exposure is that of its set, or the set has too few images to tell"
    if row.get("fix.stops") is None:
        return "the lightness of this picture could not be measured"
    away = agreed(row["fix.stops"] - centre.stops[0], row["fix.subject-stops"] - centre.stops[1])
    if abs(away) < max(ODD_STOPS, SPREADS * centre.stops_spread):
        return "picture and subject do not both say that its exposure is another than its set's"
    return {"stops": round(float(np.clip(-away, -MOST_STOPS, MOST_STOPS)), 3)}


def apply(picture: Picture, parameters: Parameters) -> Picture:
    """Return the picture with its light multiplied, as far as the bounds above allow."""
    light = linear(picture.pixels)
    gain = bounded(light[::4, ::4], 2.0 ** float(parameters["stops"]))
    return Picture(encoded(light * np.float32(gain)), picture.alpha, picture.mask)


def bounded(light: npt.NDArray[np.float32], gain: float) -> float:
    """Return `gain`, or as much of it as leaves all but `CLIPPED` of the linear pixels (h, w, 3) unclipped."""
    brightest = np.sort(light.max(-1).ravel())
    room = 1 / max(float(brightest[int((1 - CLIPPED) * (len(brightest) - 1))]), 1e-4)
    return min(gain, max(room, 1.0))
