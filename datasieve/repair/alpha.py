"""Transparency: put on a plain background, or kept beside the picture as a mask for masked training."""

from __future__ import annotations

import numpy as np

from datasieve.repair import Centre, Options, Parameters, Picture, Pixels, Row

RULES = ("files.alpha", "files.hidden-colour", "trainer.hidden-colours", "trainer.loss-nan")
SAFE = True


def parameters(row: Row, centre: Centre, options: Options) -> Parameters | str:
    """Return the background, and whether a mask is written."""
    return {"background": list(options.background), "mask": options.alpha == "mask"}


def apply(picture: Picture, parameters: Parameters) -> Picture:
    """Return the picture composited on the background, encoded values as browsers and trainers blend them.

    With `mask` the alpha becomes `Picture.mask`.
    """
    if picture.alpha is None:
        return picture
    pixels = composited(picture.pixels, picture.alpha, tuple(parameters["background"]))
    return Picture(pixels, None, picture.alpha if parameters["mask"] else picture.mask)


def composited(pixels: Pixels, alpha: Pixels, background: tuple[int, ...]) -> Pixels:
    """Return (h, w, 3) pixels blended with a background colour by alpha (h, w)."""
    share = alpha[..., None].astype(np.uint16)
    ground = np.array(background, np.uint16)
    return ((pixels * share + ground * (255 - share) + 127) // 255).astype(np.uint8)
