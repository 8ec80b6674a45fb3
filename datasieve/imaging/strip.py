"""Taking personal metadata out of a file without touching its pixels: EXIF, XMP and IPTC of JPEG and PNG."""

from __future__ import annotations

from datasieve.imaging.containers import png_chunks

_PNG_PERSONAL = (b"eXIf", b"tEXt", b"zTXt", b"iTXt", b"tIME")


def without_personal(data: bytes) -> bytes | None:
    """Return the file without EXIF, XMP, IPTC and comments; None for formats where that means encoding anew.

    JPEG keeps JFIF, Adobe and ICC segments, PNG keeps every chunk but text, time and EXIF, so the picture stays
    bit for bit. Further pictures after the end of a JPEG (MPO, thumbnails of motion photos) go too.
    """
    if data[:2] == b"\xff\xd8":
        return _jpeg(data)
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return _png(data)
    return None


def _jpeg(data: bytes) -> bytes | None:
    out, at = bytearray(data[:2]), 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # fill
            at += 1
            continue
        if marker == 0xDA:
            end = data.rfind(b"\xff\xd9") + 2
            first = data.find(b"\xff\xd8\xff", at)
            if first > 0:  # another picture follows
                end = data.rfind(b"\xff\xd9", at, first) + 2
            return bytes(out + data[at : end if end > at else len(data)])
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        body = data[at + 4 : at + 2 + length]
        keep = not (0xE1 <= marker <= 0xEF or marker == 0xFE) or marker == 0xEE
        if marker == 0xE2 and body.startswith(b"ICC_PROFILE\0"):
            keep = True
        if keep:
            out += data[at : at + 2 + length]
        at += 2 + length
    return None


def _png(data: bytes) -> bytes:
    out = bytearray(data[:8])
    for name, start, size in png_chunks(data):
        if name not in _PNG_PERSONAL:
            out += data[start - 8 : start + size + 4]
    return bytes(out)
