"""Size: a picture is cropped to the shape of its bucket and resized to it, as the trainer would, but round its subject.

The bucket is that of `datasieve.bucketing`: the named trainer's, kohya's when none is; of trainers that squash
everything to a square, the square. The window is moved from the centre as little as holds the whole subject; where no
subject is known it stays in the centre, and the step says so. Lanczos with its support widened by the factor, so that
nothing aliases (Pillow); in encoded values, as trainers do it, or in linear light on request, where fine bright detail
keeps its brightness. Enlarging is refused unless asked for: it invents nothing but blur.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from datasieve.bucketing import UNKNOWN, fit
from datasieve.repair import Centre, Options, Parameters, Picture, Row
from datasieve.repair.light import encoded, linear
from datasieve.repair.looks import subject_box

RULES = ("buckets.crop", "buckets.square-crop", "buckets.squash")
SAFE = False

Box = tuple[float, float, float, float]


def parameters(row: Row, centre: Centre, options: Options) -> Parameters | str:
    """Return the window, in pixels with fractions, and the size it gets; "" when the picture has that size."""
    width, height = int(row["width"]), int(row["height"])
    trainer = None if options.trainer in UNKNOWN else options.trainer
    sides = np.array([width], np.int64), np.array([height], np.int64)
    bucket = fit(trainer, *sides, options.resolution, coarse=options.coarse)
    assert bucket is not None
    wide, high = int(bucket.width[0]), int(bucket.height[0])
    if (wide, high) == (width, height):
        return ""
    scale = max(wide / width, high / height)
    if scale > 1 and not options.upscale:
        return f"it would be enlarged {scale:.2f} times to fill its bucket of {wide} x {high} px (--upscale allows it)"
    subject = subject_box(row)
    window = placed(width, height, wide / scale, high / scale, subject)
    return {
        "window": [round(v, 3) for v in window],
        "width": wide,
        "height": high,
        "around": "subject" if subject else "centre",
        "light": "linear" if options.linear_light else "encoded",
    }


def placed(width: float, height: float, wide: float, high: float, subject: Box | None) -> Box:
    """Return a window of wide x high px in a picture of width x height px, as near to its centre as the subject allows.

    A subject that is larger than the window has its middle in the middle of the window.
    """
    start, end = (subject[0] * width, subject[2] * width) if subject else (0.0, 0.0)
    above, below = (subject[1] * height, subject[3] * height) if subject else (0.0, 0.0)
    left = _start(width, wide, start, end) if subject else (width - wide) / 2
    top = _start(height, high, above, below) if subject else (height - high) / 2
    return left, top, left + wide, top + high


def _start(whole: float, part: float, low: float, high: float) -> float:
    """Return where a window of `part` begins in `whole` so that it holds low to high, or is centred on them."""
    middle = (whole - part) / 2
    if high - low > part:
        return min(max((low + high - part) / 2, 0.0), whole - part)
    return min(max(min(max(middle, high - part), low), 0.0), whole - part)


def apply(picture: Picture, parameters: Parameters) -> Picture:
    """Return the window at its new size, transparency and mask with it."""
    left, top, right, bottom = parameters["window"]
    height, width = picture.pixels.shape[:2]
    box = (max(left, 0.0), max(top, 0.0), min(right, float(width)), min(bottom, float(height)))
    size = (int(parameters["width"]), int(parameters["height"]))
    alpha, mask = (None if plane is None else _resized(plane, size, box) for plane in (picture.alpha, picture.mask))
    if parameters["light"] == "linear":
        planes = [_resized(linear(picture.pixels[..., i]), size, box) for i in range(3)]
        return Picture(encoded(np.stack(planes, -1)), alpha, mask)
    if picture.alpha is None:
        return Picture(_resized(picture.pixels, size, box), None, mask)
    # Pillow weighs the colours of an RGBA picture by their alpha, so hidden ones do not bleed into the edges.
    four = _resized(np.dstack([picture.pixels, picture.alpha]), size, box)
    return Picture(np.ascontiguousarray(four[..., :3]), np.ascontiguousarray(four[..., 3]), mask)


def _resized(pixels: npt.NDArray[Any], size: tuple[int, int], box: Box) -> npt.NDArray[Any]:
    image = Image.fromarray(np.ascontiguousarray(pixels))
    return np.asarray(image.resize(size, Image.Resampling.LANCZOS, box=box))
