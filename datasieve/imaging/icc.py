"""ICC profiles: what they are, and the way from them to sRGB (ICC.1:2022, LittleCMS).

A profile is judged by its own numbers, not by its name: a matrix profile by its three primaries and its tone curve.
A profile that is damaged, or made for another kind of picture, is "broken"; its pixels are then taken as they are.
"""

from __future__ import annotations

import io
import struct
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageCms

_D50 = (0.9642, 1.0, 0.8249)
_SRGB = ((0.4360, 0.2225, 0.0139), (0.3851, 0.7169, 0.0971), (0.1431, 0.0606, 0.7141))
"""XYZ of the sRGB primaries, adapted to D50 (the sRGB profile of the ICC)."""
_SPACES = {"rgb": b"RGB ", "grey": b"GRAY", "bilevel": b"GRAY", "palette": b"RGB ", "cmyk": b"CMYK", "lab": b"Lab "}
_FLAGS = ImageCms.Flags.BLACKPOINTCOMPENSATION


def describe(profile: bytes | None, model: str) -> tuple[str, str]:
    """Return (name, class) of the profile of a picture with this colour model; ("", "none") without one.

    The class is as in ImageFacts.icc_class. RGB profiles on grey pictures are common and harmless, so they pass.
    """
    return ("", "none") if profile is None else _describe(profile, model)


@lru_cache(maxsize=64)
def _describe(profile: bytes, model: str) -> tuple[str, str]:
    try:
        tags = _tags(profile)
        name = _text(tags.get(b"desc", b"")) or "unnamed profile"
        return name, _class(profile, tags, model)
    except (struct.error, ValueError, IndexError):
        return "", "broken"


def _tags(profile: bytes) -> dict[bytes, bytes]:
    if len(profile) < 132 or profile[36:40] != b"acsp":
        raise ValueError("not an ICC profile")
    (count,) = struct.unpack_from(">I", profile, 128)
    tags = {}
    for i in range(min(count, 256)):
        name, start, size = struct.unpack_from(">4sII", profile, 132 + 12 * i)
        if start + size > len(profile):
            raise ValueError("a tag lies outside the profile")
        tags[name] = profile[start : start + size]
    return tags


def _text(tag: bytes) -> str:
    if tag[:4] == b"desc":
        (length,) = struct.unpack_from(">I", tag, 8)
        text = tag[12 : 12 + length].decode("latin-1")
    elif tag[:4] == b"mluc":
        length, start = struct.unpack_from(">II", tag, 20)
        text = tag[start : start + length].decode("utf-16-be", "replace")
    else:
        text = tag[8:].decode("latin-1")
    return "".join(c for c in text if c.isprintable()).strip()[:120]


def _class(profile: bytes, tags: dict[bytes, bytes], model: str) -> str:
    space = profile[16:20]
    white = [v / 65536 for v in struct.unpack_from(">3i", profile, 68)]
    if max(abs(a - b) for a, b in zip(white, _D50, strict=True)) > 0.01:
        return "broken"  # the connection space is D50 in every version of the standard
    wanted = _SPACES.get(model)
    if wanted and space != wanted and not (space == b"RGB " and wanted == b"GRAY"):
        return "broken"
    if space != b"RGB ":
        return {b"GRAY": "grey", b"CMYK": "cmyk", b"Lab ": "lab"}.get(space, "other")
    if not all(t in tags for t in (b"rXYZ", b"gXYZ", b"bXYZ", b"rTRC")):
        return "other"
    primaries = [[v / 65536 for v in struct.unpack_from(">3i", tags[t], 8)] for t in (b"rXYZ", b"gXYZ", b"bXYZ")]
    middle = _curve(tags[b"rTRC"], 0.5)
    if abs(middle - 0.5) < 0.03:
        return "linear"
    off = float(np.abs(np.array(primaries) - np.array(_SRGB)).max())
    # sRGB's curve maps 0.5 to 0.214, a gamma of 2.2 to 0.218, of 1.8 to 0.287.
    if off < 0.012 and abs(middle - 0.214) < 0.012 and abs(_curve(tags[b"rTRC"], 0.1) - 0.01) < 0.005:
        return "srgb"
    return "wide" if _area(primaries) > 1.15 * _area(_SRGB) else "other"


def _area(primaries: list[list[float]] | tuple[tuple[float, float, float], ...]) -> float:
    """Return the area of the triangle of primaries in the xy chromaticity plane, negative when they run backwards."""
    (ax, ay), (bx, by), (cx, cy) = [(p[0] / (sum(p) or 1), p[1] / (sum(p) or 1)) for p in primaries]
    return ((bx - ax) * (cy - ay) - (cx - ax) * (by - ay)) / 2


def _curve(tag: bytes, x: float) -> float:
    """Evaluate a tone curve (types curv and para) at x in [0, 1]."""
    return float(_curve_values(tag, np.array([x]))[0])


def _curve_values(tag: bytes, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Evaluate a tone curve (types curv and para) at x, (n,) in [0, 1]."""
    if tag[:4] == b"curv":
        (count,) = struct.unpack_from(">I", tag, 8)
        if count == 0:
            return x
        values = struct.unpack_from(f">{count}H", tag, 12)
        if count == 1:
            return np.asarray(x ** (values[0] / 256))
        return np.interp(x, np.linspace(0, 1, count), np.array(values) / 65535)
    if tag[:4] == b"para":
        (kind,) = struct.unpack_from(">H", tag, 8)
        count = (1, 3, 4, 5, 7)[kind]
        g, a, b, c, d, e, f = ([v / 65536 for v in struct.unpack_from(f">{count}i", tag, 12)] + [0.0] * 7)[:7]
        if kind == 0:
            return np.asarray(x**g)
        power = np.maximum(a * x + b, 0.0) ** g
        if kind in (1, 2):
            return np.asarray(np.where(x >= -b / a, power + c, c))
        return np.asarray(np.where(x >= d, power + e, c * x + f))
    raise ValueError("unknown curve")


def deep_to_srgb(values: npt.NDArray[np.uint16], profile: bytes) -> npt.NDArray[np.float32] | None:
    """Convert 16-bit colours (h, w, 3) of a matrix profile to encoded sRGB in [0, 1], without passing through 8 bits.

    LittleCMS does the same with 8-bit pictures, and Pillow offers it for no others: curve, matrix to the D50 connection
    space, matrix and curve of sRGB (ICC.1:2022, F.3). Relative colorimetric; the black of a matrix profile is that of
    sRGB, so there is nothing to compensate. None for profiles with tables, which LittleCMS must read.
    """
    try:
        tags = _tags(profile)
        if b"A2B0" in tags or b"A2B1" in tags:
            return None
        steps = np.linspace(0, 1, 65536)
        curves = [_curve_values(tags[name], steps).astype(np.float32) for name in (b"rTRC", b"gTRC", b"bTRC")]
        columns = [[v / 65536 for v in struct.unpack_from(">3i", tags[t], 8)] for t in (b"rXYZ", b"gXYZ", b"bXYZ")]
        matrix = (np.linalg.inv(np.array(_SRGB).T) @ np.array(columns).T).astype(np.float32)
    except (struct.error, ValueError, IndexError, KeyError, ZeroDivisionError, np.linalg.LinAlgError):
        return None
    light = np.stack([curve[values[..., i]] for i, curve in enumerate(curves)], -1) @ matrix.T
    light = light.clip(0, 1)
    power = np.float32(1.055) * light ** np.float32(1 / 2.4) - np.float32(0.055)
    return np.asarray(np.where(light <= 0.0031308, light * np.float32(12.92), power), np.float32)


@lru_cache(maxsize=32)
def _transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    try:
        source = ImageCms.getOpenProfile(io.BytesIO(profile))
    except (OSError, ImageCms.PyCMSError):
        return None
    for intent in (ImageCms.Intent.RELATIVE_COLORIMETRIC, ImageCms.Intent.PERCEPTUAL):
        try:
            return ImageCms.buildTransform(source, _srgb(), mode, "RGB", intent, _FLAGS)
        except (OSError, ValueError, ImageCms.PyCMSError):
            continue
    return None


@lru_cache(maxsize=1)
def _srgb() -> ImageCms.ImageCmsProfile:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))


@lru_cache(maxsize=1)
def _lab() -> ImageCms.ImageCmsTransform:
    return ImageCms.buildTransform(
        ImageCms.createProfile("LAB"), _srgb(), "LAB", "RGB", ImageCms.Intent.RELATIVE_COLORIMETRIC
    )


def to_srgb(image: Image.Image, profile: bytes) -> Image.Image | None:
    """Convert `image` (mode L, RGB or CMYK) from `profile` to sRGB, 8 bits: relative colorimetric with black point
    compensation, perceptual where the profile knows nothing else. None when the profile cannot be used.
    """
    transform = _transform(profile, image.mode)
    if transform is None:
        return None
    try:
        return ImageCms.applyTransform(image, transform)
    except (OSError, ValueError, ImageCms.PyCMSError):
        return None


def lab_to_rgb(image: Image.Image) -> Image.Image:
    """Convert a CIELAB picture (mode LAB, D50) to sRGB."""
    converted = ImageCms.applyTransform(image, _lab())
    assert converted is not None
    return converted


def convert_working(rgb: npt.NDArray[np.uint8], profile: bytes, kind: str) -> npt.NDArray[np.uint8] | None:
    """Convert working pixels (h, w, 3) of an RGB or grey picture to sRGB; None when the profile cannot be used.

    `kind` is the profile's class; a grey profile reads the first channel.
    """
    image = Image.fromarray(np.ascontiguousarray(rgb[..., 0]) if kind == "grey" else rgb)
    converted = to_srgb(image, profile)
    return None if converted is None else np.asarray(converted)
