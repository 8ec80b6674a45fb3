"""White balance: an image in another light than its set is brought to the set's light.

Only outliers move, and toward the robust centre of their own concept, never toward grey: a set of red toys has a
reddish centre and stays red. The change is a chromatic adaptation in linear light with the Bradford matrix (K. M. Lam
1985; ICC.1:2022, annex E), at most `MOST_DEGREES`, so that a stronger tint keeps what is beyond. Where the two
estimates of the light disagree nothing is done.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from datasieve.imaging import colorimetry
from datasieve.repair import Centre, Options, Parameters, Picture, Row
from datasieve.repair.light import encoded, linear

RULES = ("colour.cast-outlier", "colour.cast")
SAFE = False

MOST_DEGREES = 35.0
"""Largest turn of the light in linear sRGB: from a 2800 K lamp to daylight it is about 33 degrees."""

LEAST_DEVIATION = 2.5
"""Usual distances from the set's light within which an image counts as one of them."""

MOST_SPREAD = 15.0
"""Degrees between the two estimates beyond which neither is trusted."""

BRADFORD = np.array([[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]])


def parameters(row: Row, centre: Centre, options: Options) -> Parameters | str:
    """Return the light the picture has and the light it gets."""
    if options.white_balance == "off":
        return "white balance is off"
    own = [float(row.get(f"colour.light-{c}") or 0.0) for c in ("red", "green", "blue")]
    if not any(own):
        return "the light of this picture could not be measured"
    if centre.light is None:
        return "its concept has too few images to tell their common light"
    spread = float(row["colour.light-spread"])
    if spread > MOST_SPREAD:
        return f"the two estimates of its light disagree by {spread:.0f} degrees"
    turn = float(colorimetry.angle(own, centre.light))
    deviation = row.get("colour.light-deviation")
    if deviation is None or deviation < LEAST_DEVIATION:
        return "its whole set has about this light; correct all of them alike from the originals"
    share = min(1.0, MOST_DEGREES / turn)
    light, target = np.array(own), np.array(centre.light)
    return {
        "from": [round(float(v), 5) for v in light],
        "to": [round(float(v), 5) for v in light + share * (target - light)],
        "degrees": round(turn * share, 2),
    }


def apply(picture: Picture, parameters: Parameters) -> Picture:
    """Return the picture in the other light; its mean luminance stays."""
    light = linear(picture.pixels)
    luminance = colorimetry.rgb_to_xyz_matrix()[1].astype(np.float32)
    adapted = light @ adaptation(parameters["from"], parameters["to"]).T.astype(np.float32)
    before, after = float((light @ luminance).mean()), float((adapted.clip(0, 1) @ luminance).mean())
    if after > 0:
        adapted *= before / after
    return Picture(encoded(adapted), picture.alpha, picture.mask)


def adaptation(light: npt.ArrayLike, target: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the 3 x 3 matrix on linear sRGB that turns the colour `light` into the colour `target` (any scale)."""
    to_xyz = colorimetry.rgb_to_xyz_matrix()
    cones = BRADFORD @ to_xyz
    gains = (cones @ np.asarray(target, float)) / (cones @ np.asarray(light, float))
    return np.asarray(np.linalg.inv(cones) @ np.diag(gains) @ cones)
