"""The header of a JPEG file: segments up to the first scan, without decoding. (ITU-T T.81, JFIF, CIPA DC-007.)"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

_EXIF = b"Exif\0"
_XMP = b"http://ns.adobe.com/xap/1.0/\0"
_ICC = b"ICC_PROFILE\0"
_MPF = b"MPF\0"
_GAIN_MAP = (b"hdrgm:", b"HDRGainMap", b"urn:iso:std:iso:ts:21496")
_ZIGZAG = (
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
    28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63,
)  # fmt: skip
_LUMA = np.array([
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29,
    51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92, 49, 64, 78, 87, 103, 121,
    120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
])  # fmt: skip
"""ITU-T T.81, table K.1, row by row."""


@dataclass(slots=True)
class JpegHeader:
    """What stands before the first scan.

    Attributes:
        width, height: pixels; 0 when no frame header was found.
        bits: bits per sample.
        sampling: (horizontal, vertical) sampling factor of each component.
        exif, xmp: raw blocks, None when absent.
        icc: profile, None when absent; `icc_broken` when its pieces do not fit together.
        pictures: number of whole pictures that a multi-picture index names, 1 without one.
        gain_map: a further picture in the file is a gain map for HDR screens.
        luma_table: the quantisation table of the first component, 64 numbers in natural order.
        junk: bytes that belong to no segment were passed over.
        scan: offset of the first scan; 0 when none was found.
    """

    width: int = 0
    height: int = 0
    bits: int = 8
    sampling: tuple[tuple[int, int], ...] = ()
    exif: bytes | None = None
    xmp: bytes | None = None
    icc: bytes | None = None
    icc_broken: bool = False
    pictures: int = 1
    gain_map: bool = False
    luma_table: tuple[int, ...] = ()
    junk: bool = False
    scan: int = 0
    icc_pieces: dict[int, bytes] = field(default_factory=dict)


def read_jpeg(data: bytes) -> JpegHeader:
    """Read the segments of a JPEG up to its first scan. Never raises; what is missing keeps its default."""
    header = JpegHeader()
    tables: dict[int, tuple[int, ...]] = {}
    first_table, icc_count, place, size = 0, 0, 2, len(data)
    while place + 4 <= size:
        if data[place] != 0xFF:
            header.junk = True
            place = data.find(b"\xff", place)
            if place < 0:
                break
            continue
        marker = data[place + 1]
        if marker in (0xFF, 0x00, 0x01) or 0xD0 <= marker <= 0xD8:
            header.junk |= marker == 0
            place += 1 if marker == 0xFF else 2
            continue
        if marker == 0xD9:
            break
        length = data[place + 2] << 8 | data[place + 3]
        body = data[place + 4 : place + 2 + length]
        if marker == 0xDA:
            header.scan = place
            break
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC) and len(body) >= 6:
            header.bits, header.height, header.width, count = struct.unpack_from(">BHHB", body)
            parts = [body[6 + 3 * i : 9 + 3 * i] for i in range(count)]
            if parts and all(len(p) == 3 for p in parts):
                header.sampling = tuple((p[1] >> 4, p[1] & 15) for p in parts)
                first_table = parts[0][2]
        elif marker == 0xDB:
            _tables(body, tables)
        elif marker == 0xE1 and body.startswith(_EXIF) and header.exif is None:
            header.exif = body
        elif marker == 0xE1 and body.startswith(_XMP):
            header.xmp = (header.xmp or b"") + body[len(_XMP) :]
        elif marker == 0xE2 and body.startswith(_ICC) and len(body) > 14:
            icc_count = max(icc_count, body[13])
            header.icc_pieces[body[12]] = body[14:]
        elif marker == 0xE2 and body.startswith(_MPF):
            header.pictures, header.gain_map = _multi_picture(data, body[4:], place + 8)
        if marker in (0xE1, 0xE2) and any(sign in body for sign in _GAIN_MAP):
            header.gain_map = True
        place += 2 + max(length, 2)
    if header.icc_pieces:
        whole = icc_count == len(header.icc_pieces) and sorted(header.icc_pieces) == list(range(1, icc_count + 1))
        header.icc_broken = not whole
        header.icc = b"".join(header.icc_pieces[i] for i in sorted(header.icc_pieces))
        header.icc_pieces = {}
    header.luma_table = tables.get(first_table, ())
    return header


def _tables(body: bytes, tables: dict[int, tuple[int, ...]]) -> None:
    place = 0
    while place < len(body):
        wide, number = body[place] >> 4, body[place] & 15
        size = 128 if wide else 64
        raw = body[place + 1 : place + 1 + size]
        if len(raw) < size:
            return
        values = struct.unpack(">64H", raw) if wide else tuple(raw)
        natural = [0] * 64
        for value, index in zip(values, _ZIGZAG, strict=True):
            natural[index] = value
        tables[number] = tuple(natural)
        place += 1 + size


def _multi_picture(data: bytes, index: bytes, base: int) -> tuple[int, bool]:
    """Return how many pictures of an MPF index (CIPA DC-007) stand in the file, and whether one is a gain map."""
    order = {b"II": "<", b"MM": ">"}.get(index[:2])
    if order is None or len(index) < 10:
        return 1, False
    (start,) = struct.unpack_from(order + "I", index, 4)
    if start + 2 > len(index):
        return 1, False
    (count,) = struct.unpack_from(order + "H", index, start)
    for i in range(count):
        place = start + 2 + 12 * i
        if place + 12 > len(index):
            break
        tag, _, size, offset = struct.unpack_from(order + "HHII", index, place)
        if tag != 0xB002 or offset + size > len(index):
            continue
        starts = [struct.unpack_from(order + "I", index, offset + 16 * k + 8)[0] + base for k in range(size // 16)]
        further = [s for s in starts if s > base and data[s : s + 2] == b"\xff\xd8"]
        heads = [data[s : s + 65536] for s in further]
        return 1 + len(further), any(sign in head for head in heads for sign in _GAIN_MAP)
    return 1, False


def subsampling(sampling: tuple[tuple[int, int], ...]) -> str:
    """Return the chroma subsampling as J:a:b ("4:2:0"), "4:0:0" for grey, "" when it has no such name."""
    if len(sampling) == 1:
        return "4:0:0"
    if len(sampling) < 3:
        return ""
    (h, v), (chroma_h, chroma_v) = sampling[0], sampling[1]
    if not chroma_h or not chroma_v:
        return ""
    names = {(1, 1): "4:4:4", (2, 1): "4:2:2", (2, 2): "4:2:0", (1, 2): "4:4:0", (4, 1): "4:1:1", (4, 2): "4:1:0"}
    return names.get((h // chroma_h, v // chroma_v), "")


@lru_cache(maxsize=256)
def quality(table: tuple[int, ...]) -> float | None:
    """Return the IJG quality (1..100) whose luma table lies nearest to `table` (64 numbers), None without a table.

    Exact for tables made by libjpeg; for others, such as Photoshop's, the quality of equal coarseness.
    """
    if len(table) != 64:
        return None
    scale = np.array([5000 // q if q < 50 else 200 - 2 * q for q in range(1, 101)])
    tables = np.clip((_LUMA * scale[:, None] + 50) // 100, 1, 255)
    return float(np.abs(np.log(tables / np.maximum(np.array(table), 1))).sum(1).argmin() + 1)


def trailing(data: bytes, scan: int) -> str:
    """Tell what stands after the picture: "junk-after-end", "no-end-marker" or ""."""
    end = data.rfind(b"\xff\xd9", scan)
    if end < 0:
        return "no-end-marker"
    return "junk-after-end" if data[end + 2 :].strip(b"\0") else ""
