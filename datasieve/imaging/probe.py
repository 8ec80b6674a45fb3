"""What a file's header says, read before any pixel is decoded, so that bombs are refused before they cost memory.

JPEG, PNG, GIF, WebP, ICO, HEIF, AVIF and JPEG XL are read here; for TIFF, BMP, PPM, JPEG 2000 and whatever else Pillow
knows, Pillow opens the file without loading it. Orientation is EXIF's, or XMP's where EXIF has none; in HEIF and AVIF
only the file's own irot and imir count (ISO/IEC 23008-12), in JPEG XL only the codestream's.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from PIL import Image, UnidentifiedImageError

from datasieve.imaging import boxes, containers, icc, jpeg
from datasieve.imaging.containers import Header
from datasieve.imaging.exif import read_exif, xmp_orientation
from datasieve.imaging.orient import displayed_size
from datasieve.imaging.signature import extension_fits, image_format
from datasieve.records import ImageFacts

_UNWANTED = {"EPS", "WMF", "MPEG", "PDF", "FITS", "GRIB", "HDF5", "BUFR", "STUB"}
"""Pillow formats that start other programs or are no pictures."""

_MODELS = {
    "1": ("bilevel", 1),
    "L": ("grey", 8),
    "LA": ("grey", 8),
    "P": ("palette", 8),
    "PA": ("palette", 8),
    "CMYK": ("cmyk", 8),
    "LAB": ("lab", 8),
    "YCbCr": ("ycbcr", 8),
    "I": ("grey", 32),
    "F": ("grey", 32),
}


@dataclass(frozen=True, slots=True)
class Probe:
    """Facts for people, and what the decoder needs besides.

    Attributes:
        facts: what the header says.
        largest: pixels of the largest frame the file claims.
        icc: the usable profile, None without one.
        whole: False when the file ends before its own structure does.
        turned: the decoder itself applies the orientation.
        error: Pillow's words, when it could not open the file.
    """

    facts: ImageFacts
    largest: int = 0
    icc: bytes | None = None
    whole: bool = True
    turned: bool = False
    error: str = ""


def probe(data: bytes, name: str) -> ImageFacts:
    """Return what the header of the file `name` with these bytes says. Unknown files have format "". Never raises."""
    return examine(data, name).facts


def examine(data: bytes, name: str) -> Probe:
    """Return the facts of a file together with what its decoding needs. Never raises on image bytes."""
    form = image_format(data)
    if form == "JPEG":
        return _jpeg(data, name)
    if form in ("PNG", "GIF", "WEBP", "ICO"):
        readers = {"PNG": containers.read_png, "GIF": containers.read_gif}
        readers |= {"WEBP": containers.read_webp, "ICO": containers.read_ico}
        return _finish(form, name, readers[form](data), None)
    if form in ("HEIF", "AVIF", "JXL"):
        header, orientation = boxes.read_jxl(data) if form == "JXL" else boxes.read_heif(data)
        if form == "AVIF" and header.animated:
            header.frames = _avif_frames(data, header)
        return _finish(form, name, header, orientation, turned=form != "AVIF")
    return _by_pillow(data, name, form)


@contextmanager
def pillow_limit(pixels: int | None) -> Iterator[None]:
    """Let Pillow refuse pictures above `pixels` (None: none), silently allow others; restores its settings."""
    before = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = None if pixels is None else (pixels + 1) // 2  # Pillow refuses above twice its limit
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        Image.MAX_IMAGE_PIXELS = before


@lru_cache(maxsize=1)
def pillow_formats() -> tuple[str, ...]:
    """Return the formats that Pillow may be asked for, plugins of other packages included where installed."""
    for module, register in (("pillow_heif", "register_heif_opener"), ("pillow_jxl", "")):
        try:
            plugin = __import__(module)
            if register:
                getattr(plugin, register)()
        except Exception:  # a plugin that does not load is a plugin that is not there
            pass
    Image.init()
    return tuple(f for f in Image.ID if f not in _UNWANTED)


def _jpeg(data: bytes, name: str) -> Probe:
    header = jpeg.read_jpeg(data)
    notes: list[str] = []
    if header.gain_map:
        notes.append("jpeg-gainmap")
    elif header.pictures > 1:
        notes.append("jpeg-multi-picture")
    if header.junk:
        notes.append("junk-bytes")
    if end := jpeg.trailing(data, header.scan):
        notes.append(end)
    model = {1: "grey", 4: "cmyk"}.get(len(header.sampling), "rgb")
    common = Header(
        width=header.width,
        height=header.height,
        bits=header.bits,
        model=model,
        frames=1 if header.gain_map else header.pictures,
        largest=header.width * header.height,
        icc=b"" if header.icc_broken else header.icc,
        exif=header.exif,
        xmp=header.xmp,
        whole="no-end-marker" not in notes,
        notes=tuple(notes),
    )
    return _finish(
        "JPEG", name, common, None, quality=jpeg.quality(header.luma_table), ratio=jpeg.subsampling(header.sampling)
    )


def _finish(
    form: str,
    name: str,
    header: Header,
    orientation: int | None,
    *,
    turned: bool = False,
    quality: float | None = None,
    ratio: str = "",
    error: str = "",
) -> Probe:
    """Put facts together. `orientation` None means: as EXIF or XMP say."""
    notes = list(header.notes)
    source, has_gps, uncalibrated = "", header.has_gps, False
    if header.exif is not None:
        exif = read_exif(header.exif)
        has_gps, uncalibrated = exif.has_gps, exif.uncalibrated
        if exif.broken:
            notes.append("exif-broken")
        if orientation is None and exif.orientation is not None:
            if 1 <= exif.orientation <= 8:
                orientation = exif.orientation
                source = "exif" if orientation > 1 else ""
            else:
                notes.append("orientation-invalid")
    elif orientation is not None and orientation > 1:
        source = {"JXL": "jxl", "TIFF": "exif"}.get(form, "irot")
    if orientation is None and header.xmp and (said := xmp_orientation(header.xmp)):
        orientation, source = said, "xmp" if said > 1 else ""
    orientation = orientation or 1
    icc_name, icc_class = icc.describe(header.icc, header.model)
    if uncalibrated and header.icc is None:
        notes.append("exif-uncalibrated")
    width, height = displayed_size(header.width, header.height, orientation)
    facts = ImageFacts(
        format=form,
        extension_fits=extension_fits(name, form),
        width_stored=header.width,
        height_stored=header.height,
        width=width,
        height=height,
        orientation=orientation,
        orientation_source=source,
        colour_model=header.model,
        bit_depth=header.bits,
        has_alpha=header.alpha,
        icc_name=icc_name,
        icc_class=icc_class,
        frames=header.frames,
        animated=header.animated,
        has_gps=has_gps,
        jpeg_quality=quality,
        jpeg_subsampling=ratio,
        notes=tuple(dict.fromkeys(notes)),
    )
    usable = header.icc if icc_class not in ("none", "broken") else None
    return Probe(facts, max(header.largest, header.width * header.height), usable, header.whole, turned, error)


def _avif_frames(data: bytes, header: Header) -> int:
    """Ask Pillow for the frames of an AVIF sequence; a sequence of one is a still picture."""
    if header.largest > 1 << 27:
        return 1
    try:
        with pillow_limit(None), Image.open(io.BytesIO(data), formats=("AVIF",)) as image:
            frames = int(getattr(image, "n_frames", 1))
            header.width, header.height = image.size
    except Exception:  # any decoder's any complaint about a damaged file
        frames = 1
    header.animated = frames > 1
    return frames


def _by_pillow(data: bytes, name: str, form: str) -> Probe:
    """Open with Pillow, which reads headers only for these formats."""
    header = Header()
    try:
        with pillow_limit(None), Image.open(io.BytesIO(data), formats=pillow_formats()) as image:
            form = (image.format or form).upper()
            orientation = _from_image(image, header)
    except UnidentifiedImageError:
        return _finish(form, name, header, None, error="no reader knows it")
    except Exception as problem:  # any decoder's any complaint about a damaged file
        return _finish(form, name, header, None, error=str(problem))
    return _finish(form, name, header, orientation, turned=form == "TIFF")


def _from_image(image: Image.Image, header: Header) -> int | None:
    """Fill `header` from an opened image; returns the orientation if the format keeps its own."""
    header.width, header.height = image.size
    mode = image.mode
    header.model, header.bits = _MODELS.get(mode, ("rgb", 8))
    header.alpha = mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info
    if mode.startswith("I;16") or (mode == "I" and image.format == "PPM"):
        header.model, header.bits = "grey", 16
    header.frames = int(getattr(image, "n_frames", 1))
    header.animated = header.frames > 1 and image.format not in ("TIFF", "MPO", "PSD", "ICNS")
    profile = image.info.get("icc_profile")
    header.icc = profile if isinstance(profile, bytes) and profile else None
    tags = getattr(image, "tag_v2", None)
    if tags is None:
        exif = image.info.get("exif")
        header.exif = exif if isinstance(exif, bytes) else None
        return None
    bits = tags.get(258)
    if bits:
        header.bits = int(max(bits)) if isinstance(bits, tuple) else int(bits)
    if tags.get(262) == 3:
        header.bits = 8
    orientation = tags.get(274)
    width, height = tags.get(256), tags.get(257)
    if isinstance(width, int) and isinstance(height, int):
        header.width, header.height = width, height
    header.has_gps = bool(tags.get(34853))
    if not isinstance(orientation, int) or orientation == 0:
        return None
    return orientation if 1 <= orientation <= 8 else 1
