"""The few facts in EXIF and XMP that matter to training: orientation, colour space, GPS. (EXIF 3.0, TIFF 6.0, XMP.)"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

_ORIENTATION, _EXIF_IFD, _GPS_IFD, _COLOUR_SPACE = 0x0112, 0x8769, 0x8825, 0xA001
_SIZES = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4)
_XMP_ORIENTATION = re.compile(rb"""tiff:Orientation\s*(?:=\s*["']|>)\s*([1-8])\b""")


@dataclass(frozen=True, slots=True)
class Exif:
    """What was found.

    Attributes:
        orientation: the tag as it stands, None when absent; legal are 1..8.
        uncalibrated: ColorSpace says 65535, "not sRGB, look at the profile".
        has_gps: a latitude or longitude is present.
        broken: the block is not whole, or not EXIF at all.
    """

    orientation: int | None = None
    uncalibrated: bool = False
    has_gps: bool = False
    broken: bool = False


class _Reader:
    """Directories of a TIFF structure in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.order = {b"II": "<", b"MM": ">"}.get(data[:2], "")
        self.broken = not self.order or len(data) < 8

    def directory(self, offset: int) -> dict[int, int]:
        """Return tag -> first value (integers only) or offset, of the directory at `offset`."""
        tags: dict[int, int] = {}
        if self.broken or not 8 <= offset <= len(self.data) - 2:
            self.broken = True
            return tags
        (count,) = struct.unpack_from(self.order + "H", self.data, offset)
        for i in range(count):
            place = offset + 2 + 12 * i
            if place + 12 > len(self.data):
                self.broken = True
                break
            tag, kind, number, value = struct.unpack_from(self.order + "HHII", self.data, place)
            if kind >= len(_SIZES) or kind == 0:
                self.broken = True
                continue
            if _SIZES[kind] * number > 4 and value + _SIZES[kind] * number > len(self.data):
                self.broken = True
            if kind == 3 and number >= 1 and number * 2 <= 4:
                (value,) = struct.unpack_from(self.order + "H", self.data, place + 8)
            tags.setdefault(tag, value)
        return tags


def read_exif(block: bytes) -> Exif:
    """Read an EXIF block, with or without its `Exif\\0\\0` prefix (also when that is doubled). Never raises."""
    while block[:4] == b"Exif" and len(block) >= 6:
        block = block[6:]
    reader = _Reader(block)
    if reader.broken:
        return Exif(broken=True)
    (first,) = struct.unpack_from(reader.order + "I", block, 4)
    top = reader.directory(first)
    inner = reader.directory(top[_EXIF_IFD]) if _EXIF_IFD in top else {}
    whole = reader.broken
    gps = reader.directory(top[_GPS_IFD]) if _GPS_IFD in top else {}
    return Exif(
        orientation=top.get(_ORIENTATION),
        uncalibrated=inner.get(_COLOUR_SPACE) == 0xFFFF,
        has_gps=2 in gps or 4 in gps,
        broken=whole or reader.broken,
    )


def xmp_orientation(packet: bytes) -> int | None:
    """Return tiff:Orientation (1..8) out of an XMP packet, None when it is not there."""
    found = _XMP_ORIENTATION.search(packet)
    return int(found[1]) if found else None
