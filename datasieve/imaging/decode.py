"""From a file's bytes to the working picture, the native tiles and the pixel hash: once, for all analyzers.

JPEGs go through libjpeg-turbo (simplejpeg) straight into a four-byte raster that Pillow reduces without a copy; all
else goes through Pillow. When only the working picture is wanted, large JPEGs are decoded at a fraction of their size
(DCT scaling) but never at less than twice the working size, so that both ways give the same working pixels within
0.5/255 on average.

Where it fails: for measuring, 16-bit RGB keeps the upper 8 bits (Pillow's reader; `whole` reads them all), animations
show their first frame only, and a profile that sRGB cannot hold is clipped to it.
"""

from __future__ import annotations

import hashlib
import io
import re
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import simplejpeg
import xxhash
from PIL import Image

from datasieve.batch import BACKGROUND, Decoded, DecodeRequest
from datasieve.errors import InputError
from datasieve.imaging import deep, icc, native
from datasieve.imaging.containers import bare_png
from datasieve.imaging.native import Pixels
from datasieve.imaging.orient import oriented, stored
from datasieve.imaging.probe import Probe, examine, pillow_formats, pillow_limit
from datasieve.imaging.reduce import reduced, working_size
from datasieve.imaging.signature import FULL_NAMES, PACKAGES, other_file
from datasieve.records import ImageFacts

_SHORT = re.compile(r"truncat|premature end|end of file|not enough (?:image )?data|unexpected end", re.IGNORECASE)
_HARMLESS = re.compile(r"before marker 0x(?!d[0-7])|bad ICC|APP|JFIF|Adobe|Unknown", re.IGNORECASE)
"""libjpeg warnings about segments outside the picture data."""
_DCT_MARGIN = 2


class _Refused(Exception):
    pass


class _Unreadable(Exception):
    def __init__(self, message: str, *, truncated: bool = False, note: str = "") -> None:
        super().__init__(message)
        self.truncated = truncated
        self.note = note


def decode(data: bytes, name: str, request: DecodeRequest) -> Decoded:
    """Decode the bytes of the file `name`.

    Never raises: what is wrong with the file becomes `status` ("unreadable" or "refused") and `error`, one or two
    sentences with the remedy. Facts are filled as far as the header could be read.
    """
    out = Decoded(content=hashlib.blake2b(data, digest_size=16).hexdigest(), file_bytes=len(data))
    try:
        found = examine(data, name)
        out.facts = found.facts
        _work(data, found, request, out)
    except _Refused as reason:
        _fail(out, "refused", str(reason))
    except _Unreadable as reason:
        out.truncated = reason.truncated
        _fail(out, "unreadable", str(reason), reason.note)
    except MemoryError:
        _fail(out, "refused", "There is not enough memory to decode this picture. Make it smaller, or leave it out.")
    except Exception as reason:  # a decoder's any complaint: the file is at fault, not the run
        _fail(out, "unreadable", _damaged(str(reason) or type(reason).__name__))
    return out


def _fail(out: Decoded, status: str, error: str, note: str = "") -> None:
    out.status, out.error = status, error
    out.pixels = out.tiles = None
    out.pixel_hash = ""
    out.alpha_share = out.hidden_colour_share = out.grey = None
    if note:
        out.facts = replace(out.facts, notes=(*out.facts.notes, note))


def _work(data: bytes, found: Probe, request: DecodeRequest, out: Decoded) -> None:
    facts = found.facts
    if not data:
        raise _Unreadable("The file is empty (0 bytes). Copy or download it again, or delete it.", note="empty")
    if found.largest > request.max_pixels:
        size = f"{facts.width_stored} x {facts.height_stored}"
        raise _Refused(
            f"The picture claims {size} pixels ({found.largest / 1e6:,.0f} megapixels at its largest), "
            f"above the limit of {request.max_pixels / 1e6:,.1f}. "
            "Make it smaller, or raise the limit with --max-pixels."
        )
    if not (request.pixels or request.tiles or request.pixel_hash):
        return
    if facts.format == "JPEG" and facts.colour_model in ("rgb", "grey") and facts.bit_depth == 8:
        pixels = _fast_jpeg(data, facts, request)
        if pixels is not None:
            _deliver(pixels, None, found, request, out)
            return
    pixels, cmyk, found = _stored(_open(data, found, request), found)
    _deliver(pixels, cmyk, found, request, out)


def _stored(image: Image.Image, found: Probe) -> tuple[Pixels, Image.Image | None, Probe]:
    """Return the pixels (h, w, 4) of a loaded picture as the file stores them, and the CMYK picture if it is one."""
    facts = found.facts
    cmyk = image if image.mode == "CMYK" else None
    pixels = native.rgba(image)
    if found.turned and facts.format == "TIFF":
        pixels = np.ascontiguousarray(stored(pixels, facts.orientation))
        cmyk = None if cmyk is None else Image.fromarray(stored(np.asarray(cmyk), facts.orientation), "CMYK")
    elif found.turned:  # the plugins of HEIF and JPEG XL turn the picture themselves
        found = replace(found, facts=replace(facts, orientation=1))
    return pixels, cmyk, found


@dataclass(frozen=True, slots=True)
class Whole:
    """A picture at its full size, as it is meant to be seen.

    Attributes:
        pixels: (h, w, 3) uint8, upright, sRGB; colours under transparent parts are kept.
        alpha: (h, w) uint8, None when every pixel is opaque.
        facts: what the header says.
    """

    pixels: Pixels
    alpha: Pixels | None
    facts: ImageFacts


def whole(data: bytes, name: str, max_pixels: int) -> Whole:
    """Decode a picture at full size into upright sRGB with 8 bits a channel, deeper pictures dithered.

    Raises InputError, naming the file, when it cannot be decoded.
    """
    try:
        found = examine(data, name)
        image = _open(data, found, DecodeRequest(max_pixels=max_pixels), dither=True)
        sixteen = _sixteen_bits(data, found, max_pixels)
        pixels, cmyk, found = _stored(image, found)
    except (_Refused, _Unreadable) as reason:
        raise InputError(f"cannot read {name}", remedy=str(reason)) from None
    facts, alpha = found.facts, pixels[..., 3]
    rgb = np.ascontiguousarray(pixels[..., :3])
    managed_kind = found.icc and facts.icc_class not in ("srgb", "cmyk", "lab")
    converted: Pixels | None = None
    if cmyk is not None and found.icc:
        managed = icc.to_srgb(cmyk, found.icc)
        converted = None if managed is None else np.asarray(managed)
    elif sixteen is not None:
        exact = icc.deep_to_srgb(sixteen, found.icc) if managed_kind and found.icc else None
        rgb = deep.dithered(sixteen * np.float32(1 / 257) if exact is None else exact * np.float32(255))
        if exact is None and managed_kind and found.icc:
            converted = icc.convert_working(rgb, found.icc, facts.icc_class)
    elif managed_kind and found.icc:
        converted = icc.convert_working(rgb, found.icc, facts.icc_class)
    upright = oriented(rgb if converted is None else converted, facts.orientation)
    opaque = facts.format == "JPEG" or int(alpha.min()) == 255
    turned = None if opaque else np.ascontiguousarray(oriented(alpha, facts.orientation))
    return Whole(np.ascontiguousarray(upright), turned, facts)


def _sixteen_bits(data: bytes, found: Probe, max_pixels: int) -> npt.NDArray[np.uint16] | None:
    """Return the stored colours (h, w, 3) of a picture with 16 bits a channel, None of any other."""
    facts = found.facts
    if facts.bit_depth != 16 or facts.colour_model != "rgb" or facts.format not in ("PNG", "TIFF"):
        return None
    source = bare_png(data) if facts.format == "PNG" else data
    with pillow_limit(max_pixels):
        values = deep.sixteen_bits(source, pillow_formats())
    if values is None:
        return None
    values = np.ascontiguousarray(values[..., :3])
    return np.ascontiguousarray(stored(values, facts.orientation)) if found.turned else values


def _fast_jpeg(data: bytes, facts: ImageFacts, request: DecodeRequest) -> Pixels | None:
    """Decode with libjpeg-turbo into (h, w, 4). None: let Pillow try. Raises _Unreadable for damaged picture data."""
    wide = high = 0
    if not (request.tiles or request.pixel_hash):
        width, height = working_size(facts.width_stored, facts.height_stored)
        if facts.width_stored >= _DCT_MARGIN * width:
            wide, high = _DCT_MARGIN * width, _DCT_MARGIN * height
    try:
        pixels: Pixels = simplejpeg.decode_jpeg(data, "RGBX", min_width=wide, min_height=high)
    except ValueError as problem:
        words = str(problem)
        if "orrupt JPEG data" in words and not _SHORT.search(words) and not _HARMLESS.search(words):
            raise _Unreadable(_damaged(words)) from None
        return None
    return pixels


def _open(data: bytes, found: Probe, request: DecodeRequest, *, dither: bool = False) -> Image.Image:
    """Load with Pillow and bring to 8 bits. Raises _Unreadable and _Refused."""
    facts, formats = found.facts, pillow_formats()
    name = facts.format
    if not name or (name in FULL_NAMES and name not in formats):
        _no_reader(data, name)
    source = bare_png(data) if name == "PNG" else data
    try:
        with pillow_limit(request.max_pixels), Image.open(io.BytesIO(source), formats=formats) as image:
            if image.width * image.height > request.max_pixels:
                raise Image.DecompressionBombError
            image.load()
            return native.eight_bits(image, facts.bit_depth, dither=dither)
    except Image.DecompressionBombError:
        raise _Refused(
            f"A frame of this file claims more than the limit of {request.max_pixels / 1e6:,.1f} megapixels. "
            "Make it smaller, or raise the limit with --max-pixels."
        ) from None
    except MemoryError:
        raise
    except Exception as problem:  # any decoder's any complaint about a damaged file
        words = found.error or str(problem)
        if not found.whole or _SHORT.search(words):
            raise _Unreadable(
                "The file ends too early: part of the picture is missing. Copy or download it again, or leave it out.",
                truncated=True,
            ) from None
        raise _Unreadable(_damaged(words)) from None


def _no_reader(data: bytes, name: str) -> None:
    if name in PACKAGES:
        raise _Unreadable(
            f"This is a {FULL_NAMES[name]} picture, which needs the package {PACKAGES[name]}. Install it with "
            "`pip install 'datasieve[formats]'`, or convert the picture to PNG.",
            note="no-decoder",
        )
    if name:
        raise _Unreadable(
            f"This is a {FULL_NAMES[name]} file, for which there is no reader. Convert it to PNG.", note="no-decoder"
        )
    phrase = other_file(data)
    if phrase:
        raise _Unreadable(f"This is not a picture: it is {phrase}. Replace or delete it.", note="not-image")
    raise _Unreadable(
        "No known picture format begins like this file. It is damaged, or no picture: replace or delete it.",
        note="not-image",
    )


def _damaged(words: str) -> str:
    words = re.sub(r"\s+", " ", re.sub(r"<[^<>]* object at 0x[0-9a-f]+>", "the file", words)).strip(" .")[:160]
    return f"The picture data are damaged ({words}). Copy or download it again, or leave it out."


def _deliver(pixels: Pixels, cmyk: Image.Image | None, found: Probe, request: DecodeRequest, out: Decoded) -> None:
    """Fill `out` from stored pixels (h, w, 4)."""
    facts = found.facts
    clear = False
    if facts.has_alpha or (facts.format != "JPEG" and int(pixels[..., 3].min()) < 255):
        out.alpha_share, out.hidden_colour_share = _transparency(pixels)
        clear = out.alpha_share > 0
    if request.pixel_hash:
        whole = np.ascontiguousarray(oriented(pixels, facts.orientation))
        head = f"{whole.shape[1]} {whole.shape[0]} {'rgba' if clear else 'rgb'} ".encode()
        digest = xxhash.xxh3_128(head)
        digest.update(whole.data)
        out.pixel_hash = digest.hexdigest()
    if request.tiles:
        out.tiles = native.tiles(pixels)
    if request.pixels:
        small = _working(pixels, cmyk, clear, found, out)
        out.pixels = np.ascontiguousarray(oriented(small, facts.orientation))
        out.grey = _is_grey(out.pixels)


def _transparency(pixels: Pixels) -> tuple[float, float]:
    """Return the share of pixels that are not opaque, and of those clear over a colour that varies."""
    alpha = pixels[..., 3]
    share = float((alpha < 255).mean())
    hidden = pixels[alpha == 0][:, :3] if share else np.empty((0, 3), np.uint8)
    varies = len(hidden) > 1 and int((hidden.max(0) - hidden.min(0)).max()) > 8
    return share, len(hidden) / alpha.size if varies else 0.0


def _working(pixels: Pixels, cmyk: Image.Image | None, clear: bool, found: Probe, out: Decoded) -> Pixels:
    """Reduce to the working size, convert to sRGB, composite on the background. Returns (h, w, 3), still unturned."""
    size = working_size(found.facts.width_stored, found.facts.height_stored)
    if pixels.shape[1] < size[0] or pixels.shape[0] < size[1]:  # the decoder gave less than the header claimed
        size = working_size(pixels.shape[1], pixels.shape[0])
    kind = found.facts.icc_class
    if cmyk is not None:
        small = reduced(cmyk, size)
        converted = icc.to_srgb(small, found.icc) if found.icc else None
        if found.icc and converted is None:
            out.facts = replace(out.facts, icc_class="broken")
        return np.asarray(converted or small.convert("RGB"))
    alpha = None
    if clear:
        premultiplied = native.without_copy(np.ascontiguousarray(pixels), "RGBA").convert("RGBa")
        four = np.asarray(reduced(premultiplied, size).convert("RGBA"))
        rgb, alpha = np.ascontiguousarray(four[..., :3]), four[..., 3:].astype(np.uint16)
    else:
        rgb = np.asarray(reduced(native.without_copy(pixels), size).convert("RGB"))
    if found.icc and kind not in ("srgb", "cmyk", "lab"):
        managed = icc.convert_working(rgb, found.icc, kind)
        if managed is None:
            out.facts = replace(out.facts, icc_class="broken")
        else:
            rgb = managed
    if alpha is not None:
        ground = np.array(BACKGROUND, np.uint16)
        rgb = ((rgb * alpha + ground * (255 - alpha) + 127) // 255).astype(np.uint8)
    return rgb


def _is_grey(pixels: Pixels) -> bool:
    for part in (pixels[::16, ::16], pixels):
        red, green, blue = (part[..., i].astype(np.int16) for i in range(3))
        if max(np.abs(red - green).max(), np.abs(green - blue).max(), np.abs(red - blue).max()) > 2:
            return False
    return True
