"""White balance: an image in another light than its set is brought to the set's light.

Only outliers move, and toward the robust centre of their own concept, never toward grey: a set of red toys has a
reddish centre and stays red. An outlier is what both the picture and the subject in it call one, and in a way that a
lamp or the sky could do (`looks.py`): on an orange wall only the picture is orange, under an orange lamp the subject is
too. The change is a chromatic adaptation in
linear light with the Bradford matrix (K. M. Lam 1985; ICC.1:2022, annex E), at most `MOST_DEGREES`, so that a stronger
tint keeps what is beyond. Where the two estimates of the light disagree nothing is done.

With `--wb d65` images that the audit accuses of a cast are brought to daylight instead, also where the whole set has
it. One picture cannot tell red things from red light, so this is for sets whose subject has no colour of its own.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from datasieve.imaging import colorimetry
from datasieve.repair import Centre, Options, Parameters, Picture, Row, looks
from datasieve.repair.light import encoded, linear

RULES = ("colour.cast-outlier", "colour.cast")
SAFE = False

MOST_DEGREES = 35.0
"""Largest turn of the light in linear sRGB: from a 2800 K lamp to daylight it is about 33 degrees."""

MOST_SPREAD = 15.0
"""Degrees between the two estimates beyond which neither is trusted."""

DAYLIGHT = (1 / 3, 1 / 3, 1 / 3)

BRADFORD = np.array([[0.8951, 0.2664, -0.1614], [-0.7502, 1.7135, 0.0367], [0.0389, -0.0685, 1.0296]])


def noticed(row: Row, centre: Centre, options: Options) -> bool:
    """Tell whether the image stands apart from its set, whether or not a rule said so."""
    return options.white_balance == "set" and not isinstance(parameters(row, centre, options), str)


def parameters(row: Row, centre: Centre, options: Options) -> Parameters | str:
    """Return the light the picture has and the light it gets."""
    if options.white_balance == "off":
        return "white balance is off"
    own = np.array([float(row.get(f"colour.light-{c}") or 0.0) for c in ("red", "green", "blue")])
    if not own.all():
        return "the light of this picture could not be measured"
    if centre.light is None and options.white_balance == "set":
        return "its concept has too few images to tell their common light"
    spread = float(row["colour.light-spread"])
    if spread > MOST_SPREAD:
        return f"the two estimates of its light disagree by {spread:.0f} degrees"
    if options.white_balance == "d65":
        return _turned(own, np.array(DAYLIGHT))
    if centre.warmth is None or row.get("fix.warmth") is None:
        return "its whole set has about this light; correct all of them alike from the originals, or with --wb d65"
    limits = looks.limits(row)
    whole, subject = (row[n] - c for n, c in zip(looks.LOOKS[:2], centre.warmth, strict=True))
    tints = (row[n] - c for n, c in zip(looks.LOOKS[2:4], centre.tint, strict=True))
    if abs(looks.agreed(whole, subject)) < max(limits.warmth, looks.SPREADS * centre.warmth_spread):
        return "picture and subject do not both say that its light is another than its set's"
    if not all(looks.lamp_like(w, t, limits.skew) for w, t in zip((whole, subject), tints, strict=True)):
        return "no lamp or sky makes the difference between its colours and its set's"
    return _turned(own, np.array(centre.light))


def _turned(light: npt.NDArray[np.float64], target: npt.NDArray[np.float64]) -> Parameters:
    """Return the step from one light to another, cut short at `MOST_DEGREES`."""
    turn = float(colorimetry.angle(light, target))
    share = min(1.0, MOST_DEGREES / turn) if turn else 1.0
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
