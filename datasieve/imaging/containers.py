"""Headers of PNG, GIF, WebP and ICO files, read without decoding. Nothing in here raises on damaged input."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from datasieve.imaging.jpeg import read_jpeg

_CRITICAL = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
_PROFILE_LIMIT = 16 << 20


@dataclass(slots=True)
class Header:
    """What a header says; see ImageFacts for the meaning of most fields.

    Attributes:
        largest: pixels of the largest frame, which may exceed width x height in a hostile file.
        icc: the profile's bytes, None without one; empty when there is one that cannot be read.
        exif, xmp: raw blocks, None when absent.
        whole: False when the file ends before its own structure does.
        notes: facts by name.
    """

    width: int = 0
    height: int = 0
    bits: int = 8
    model: str = "rgb"
    alpha: bool = False
    frames: int = 1
    animated: bool = False
    largest: int = 0
    has_gps: bool = False
    icc: bytes | None = None
    exif: bytes | None = None
    xmp: bytes | None = None
    whole: bool = True
    notes: tuple[str, ...] = ()


def png_chunks(data: bytes) -> list[tuple[bytes, int, int]]:
    """Return (name, start, length) of the body of each PNG chunk, up to IEND or the end of the data."""
    chunks = []
    place = 8
    while place + 8 <= len(data):
        length = int.from_bytes(data[place : place + 4], "big")
        name = data[place + 4 : place + 8]
        chunks.append((name, place + 8, length))
        place += 12 + length
        if name == b"IEND":
            break
    return chunks


def bare_png(data: bytes) -> bytes:
    """Return the PNG with nothing but what its (first) picture needs: no profile, text or animation.

    So neither a compressed text that would fill the memory nor a damaged profile stands in the way of the pixels.
    """
    parts = [data[s - 8 : s + n + 4] for name, s, n in png_chunks(data) if name in _CRITICAL]
    return data[:8] + b"".join(parts)


def read_png(data: bytes) -> Header:
    """Read the chunks of a PNG (W3C PNG, third edition)."""
    header = Header()
    chunks = png_chunks(data)
    notes: list[str] = []
    gamma, calibrated = 0, False
    for name, start, length in chunks:
        body = data[start : start + min(length, 1 << 26)] if name != b"IDAT" else b""
        if name == b"IHDR" and len(body) >= 13:
            header.width, header.height, header.bits, kind = struct.unpack_from(">IIBB", body)
            header.model = {0: "grey", 3: "palette", 4: "grey"}.get(kind, "rgb")
            if kind == 0 and header.bits == 1:
                header.model = "bilevel"
            header.alpha = kind in (4, 6)
            if kind == 3:
                header.bits = 8  # the palette's colours have 8 bits, whatever the index has
        elif name == b"tRNS":
            header.alpha = True
        elif name == b"iCCP":
            header.icc = _png_profile(body)
        elif name == b"sRGB":
            calibrated = True
        elif name == b"cICP":
            calibrated = True
            notes.append("cicp" if body[:2] != b"\x01\x0d" else "cicp-srgb")
        elif name == b"gAMA" and len(body) >= 4:
            gamma = int.from_bytes(body[:4], "big")
        elif name == b"eXIf":
            header.exif = body
        elif name == b"iTXt" and body.startswith(b"XML:com.adobe.xmp\0"):
            header.xmp = body
        elif name == b"fcTL":
            header.animated = True
    if header.animated and any(name == b"acTL" for name, _, _ in chunks):
        header.frames = max(1, sum(name == b"fcTL" for name, _, _ in chunks))
    header.animated = header.frames > 1
    # 45455 is 1/2.2; within 5 % it says nothing new.
    if gamma and not calibrated and header.icc is None and abs(gamma / 45455 - 1) > 0.05:
        notes.append("gamma-chunk")
    last = chunks[-1] if chunks else (b"", 0, 0)
    header.whole = last[0] == b"IEND"
    if header.whole and data[last[1] + last[2] + 4 :].strip(b"\0"):
        notes.append("junk-after-end")
    header.largest = header.width * header.height
    header.notes = tuple(notes)
    return header


def _png_profile(body: bytes) -> bytes:
    end = body.find(b"\0")
    if end < 0 or body[end + 1 : end + 2] != b"\0":
        return b""
    try:
        return zlib.decompressobj().decompress(body[end + 2 :], _PROFILE_LIMIT)
    except zlib.error:
        return b""


def read_gif(data: bytes) -> Header:
    """Read the blocks of a GIF (GIF89a)."""
    header = Header(model="palette")
    if len(data) < 13:
        header.whole = False
        return header
    header.width, header.height, flags = struct.unpack_from("<HHB", data, 6)
    place = 13 + (3 << ((flags & 7) + 1) if flags & 0x80 else 0)
    frames, header.whole = 0, False
    while place < len(data):
        kind = data[place]
        if kind == 0x3B:
            header.whole = True
            break
        if kind == 0x2C and place + 10 <= len(data):
            left, top, width, height, local = struct.unpack_from("<HHHHB", data, place + 1)
            frames += 1
            if frames == 1:
                header.largest = (left + width) * (top + height)
            elif (left + width) * (top + height) > 4 * max(header.width * header.height, 1):
                header.notes = ("later-frame-oversized",)
            place += 11 + (3 << ((local & 7) + 1) if local & 0x80 else 0)
        elif kind == 0x21:
            if data[place + 1 : place + 2] == b"\xf9" and place + 4 <= len(data) and data[place + 3] & 1:
                header.alpha = True
            place += 2
        else:
            break
        while place < len(data) and data[place]:
            place += data[place] + 1
        place += 1
    header.frames = max(frames, 1)
    header.animated = header.frames > 1
    header.largest = max(header.largest, header.width * header.height)
    return header


def read_webp(data: bytes) -> Header:
    """Read the chunks of a WebP (RFC 9649)."""
    header = Header()
    declared = int.from_bytes(data[4:8], "little") + 8
    header.whole = len(data) >= declared
    if len(data) > declared + 1:
        header.notes = ("junk-after-end",)
    place, frames = 12, 0
    while place + 8 <= len(data):
        name, length = data[place : place + 4], int.from_bytes(data[place + 4 : place + 8], "little")
        body = (
            data[place + 8 : place + 8 + length]
            if name in (b"EXIF", b"XMP ", b"ICCP")
            else data[place + 8 : place + 40]
        )
        if name == b"VP8X" and len(body) >= 10:
            header.alpha = bool(body[0] & 0x10)
            header.width = int.from_bytes(body[4:7], "little") + 1
            header.height = int.from_bytes(body[7:10], "little") + 1
        elif name == b"VP8 " and not header.width and body[3:6] == b"\x9d\x01\x2a" and len(body) >= 10:
            header.width, header.height = (v & 0x3FFF for v in struct.unpack_from("<HH", body, 6))
        elif name == b"VP8L" and not header.width and body[:1] == b"\x2f" and len(body) >= 5:
            bits = int.from_bytes(body[1:5], "little")
            header.width, header.height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
            header.alpha = bool(bits >> 28 & 1)
        elif name == b"ANMF":
            frames += 1
        elif name == b"EXIF":
            header.exif = body
        elif name == b"XMP ":
            header.xmp = body
        elif name == b"ICCP":
            header.icc = body
        place += 8 + length + (length & 1)
    header.frames = max(frames, 1)
    header.animated = header.frames > 1
    header.largest = header.width * header.height
    return header


def read_ico(data: bytes) -> Header:
    """Read the directory of an ICO, and from its largest entry the true size, which the directory may belie."""
    header = Header(alpha=True)
    if len(data) < 6:
        header.whole = False
        return header
    count = min(int.from_bytes(data[4:6], "little"), 256)
    for i in range(count):
        entry = data[6 + 16 * i : 22 + 16 * i]
        if len(entry) < 16:
            header.whole = False
            break
        size, start = struct.unpack_from("<II", entry, 8)
        width, height = entry[0] or 256, entry[1] or 256
        body = data[start : start + min(size, 64)]
        if body.startswith(b"\x89PNG") and len(body) >= 24:
            width, height = struct.unpack_from(">II", body, 16)
        elif body.startswith(b"\xff\xd8"):
            inner = read_jpeg(data[start : start + size])
            width, height = inner.width, inner.height
        elif len(body) >= 16:
            deep, tall = struct.unpack_from("<ii", body, 4)
            width, height = abs(deep), abs(tall) // 2
        header.largest = max(header.largest, width * height)
        if width * height > header.width * header.height:
            header.width, header.height = width, height
    return header
