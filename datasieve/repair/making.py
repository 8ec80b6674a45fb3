"""From a file's bytes and the steps of its plan to the bytes of the result: the same bytes every time.

This is all that a fix does to a picture, so what provenance holds of it (source, steps, kind) is enough to repeat it.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image, ImageCms, PngImagePlugin

from datasieve.config import Settings
from datasieve.imaging.decode import whole
from datasieve.imaging.strip import without_personal
from datasieve.repair import Picture, Pixels
from datasieve.repair.plan import APPLY

JPEG_QUALITY = 95
"""With full colour resolution (4:4:4) the loss of one more saving stays below what an eye sees."""


def made(
    data: bytes,
    path: str,
    kind: str,
    steps: Sequence[Mapping[str, Any]],
    result: str,
    *,
    mask: bytes | None = None,
    max_pixels: int = Settings().max_pixels,
) -> tuple[bytes, bytes | None]:
    """Return the bytes of a result, and those of its mask or None.

    Args:
        data: the source file's bytes.
        path: its name, for messages.
        kind: as in `plan.Action`.
        steps: what is done, as provenance holds it: repair and parameters.
        result: name of the result; its extension decides the format.
        mask: the mask that lies beside the source, as a file's bytes.
        max_pixels: as in the audit.

    Raises InputError when the source cannot be decoded.
    """
    if kind == "strip":
        return without_personal(data) or data, mask
    if kind != "change":
        return data, mask
    decoded = whole(data, path, max_pixels)
    old = _mask_pixels(mask, decoded.pixels.shape[:2])
    picture = Picture(decoded.pixels, decoded.alpha, old)
    for step in steps:
        if step["repair"] in APPLY:
            picture = APPLY[step["repair"]](picture, step["parameters"])
    if picture.mask is None or (old is not None and picture.mask is old):
        return encoded(picture, result), mask
    return encoded(picture, result), _png(picture.mask)


def _mask_pixels(mask: bytes | None, shape: tuple[int, ...]) -> Pixels | None:
    """Return (h, w) of a mask that fits the picture, else None."""
    if mask is None:
        return None
    try:
        with Image.open(io.BytesIO(mask), formats=("PNG",)) as image:
            pixels = np.asarray(image.convert("L")) if image.size == (shape[1], shape[0]) else None
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    return pixels


def encoded(picture: Picture, name: str) -> bytes:
    """Return the picture as a file in the format of the name's extension, marked as sRGB: PNG, JPEG or WebP.

    JPEG at quality 95 and 4:4:4, WebP lossless; transparency is kept where the format has any.
    """
    extension = name.rsplit(".", 1)[-1].lower()
    if extension in ("jpg", "jpeg"):
        return _saved(Image.fromarray(picture.pixels), "JPEG", quality=JPEG_QUALITY, subsampling=0, optimize=True)
    if extension == "webp":
        image = Image.fromarray(picture.pixels)
        if picture.alpha is not None:
            image.putalpha(Image.fromarray(picture.alpha))
        return _saved(image, "WEBP", lossless=True, exact=True)
    return _png(picture.pixels, picture.alpha)


def _saved(image: Image.Image, format_: str, **how: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format_, icc_profile=_srgb_profile(), **how)
    return buffer.getvalue()


def _png(pixels: Pixels, alpha: Pixels | None = None) -> bytes:
    """Return a PNG that says it is sRGB (PNG 11.3.2.5), perceptual intent."""
    image = Image.fromarray(pixels)
    if alpha is not None:
        image.putalpha(Image.fromarray(alpha))
    chunks = PngImagePlugin.PngInfo()
    chunks.add(b"sRGB", b"\0")
    buffer = io.BytesIO()
    image.save(buffer, "PNG", pnginfo=chunks)
    return buffer.getvalue()


@lru_cache(maxsize=1)
def _srgb_profile() -> bytes:
    """Return LittleCMS's sRGB profile, dated the first of January 2000, so that equal pictures are equal files."""
    profile = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    profile[24:36] = b"".join(n.to_bytes(2, "big") for n in (2000, 1, 1, 0, 0, 0))  # ICC.1:2022, 7.2.8
    return bytes(profile)
