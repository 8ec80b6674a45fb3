"""From a file's bytes to the whole picture as training should see it: upright, sRGB, RGB, on a plain ground."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from datasieve.batch import BACKGROUND
from datasieve.errors import ImageError
from datasieve.imaging import icc, native
from datasieve.imaging.containers import bare_png
from datasieve.imaging.orient import oriented
from datasieve.imaging.probe import examine, pillow_formats, pillow_limit


def picture(data: bytes, name: str, *, max_pixels: int | None = None) -> Image.Image:
    """Return the picture of the file `name` with these bytes in mode RGB and full size.

    Its orientation is applied, its ICC profile converted to sRGB, 16 bits scaled to 8, and transparency composited on
    mid grey. Of a moving picture it is the first frame.

    Raises:
        ImageError: the bytes cannot be decoded, or claim more than `max_pixels`.
    """
    found = examine(data, name)
    source = bare_png(data) if found.facts.format == "PNG" else data
    try:
        with pillow_limit(max_pixels), Image.open(io.BytesIO(source), formats=pillow_formats()) as image:
            image.load()
            image = native.eight_bits(image, found.facts.bit_depth)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise ImageError(
            f"{name} cannot be decoded: {error}", remedy="Leave it out, or audit the set again."
        ) from error
    alpha = image.getchannel("A") if image.mode == "RGBA" else None
    if alpha is not None:
        image = image.convert("RGB")
    if found.icc and found.facts.icc_class not in ("srgb", "lab"):
        if found.facts.icc_class == "grey" and image.mode == "RGB":
            image = image.getchannel("R")
        image = icc.to_srgb(image, found.icc) or image
    image = image.convert("RGB")
    if alpha is not None:
        image = Image.composite(image, Image.new("RGB", image.size, BACKGROUND), alpha)
    if found.turned:
        return image
    return Image.fromarray(np.ascontiguousarray(oriented(np.asarray(image), found.facts.orientation)))
