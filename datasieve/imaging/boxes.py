"""Headers of HEIF, AVIF and JPEG XL files, so that they are named and measured even where no decoder is installed.

Sources: ISO/IEC 14496-12 and 23008-12 (boxes, ispe, irot, imir, ipma), ISO/IEC 18181-1 and -2 (JPEG XL).
Where it fails: a JPEG XL header with a preview picture is read only as far as that preview.
"""

from __future__ import annotations

from collections.abc import Iterator

from datasieve.imaging.containers import Header

_CONTAINERS = {b"iprp": 0, b"ipco": 0, b"meta": 4}
# (quarter turns anticlockwise, then mirror: 0 none, 1 top with bottom, 2 left with right) -> TIFF orientation
_TURNS = {
    (0, 0): 1,
    (1, 0): 8,
    (2, 0): 3,
    (3, 0): 6,
    (0, 1): 4,
    (1, 1): 5,
    (2, 1): 2,
    (3, 1): 7,
    (0, 2): 2,
    (1, 2): 7,
    (2, 2): 4,
    (3, 2): 5,
}


def boxes(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield (name, start, end) of the body of each box in data[start:end]. A body may end after the data does."""
    while start + 8 <= end:
        size, name, body = int.from_bytes(data[start : start + 4], "big"), data[start + 4 : start + 8], start + 8
        if size == 1:
            size, body = int.from_bytes(data[start + 8 : start + 16], "big"), start + 16
        elif size == 0:
            size = end - start
        if size < body - start:
            return
        yield name, body, start + size
        start += size


def read_heif(data: bytes) -> tuple[Header, int]:
    """Read the primary item of a HEIF or AVIF file. Returns its header and its orientation (1..8)."""
    header = Header()
    orientation = 1
    meta = None
    for name, start, end in boxes(data, 0, len(data)):
        if end > len(data):
            header.whole = False
        if name == b"meta" and meta is None:
            meta = (start + 4, min(end, len(data)))
        elif name == b"moov":
            header.animated = True
    if meta is None:
        return header, orientation
    primary: int | None = None
    properties: list[tuple[bytes, bytes]] = []
    owners: dict[int, list[int]] = {}
    for name, start, end in boxes(data, *meta):
        if name == b"pitm":
            wide = data[start : start + 1] != b"\0"
            primary = int.from_bytes(data[start + 4 : start + (8 if wide else 6)], "big")
        elif name == b"iprp":
            for inner, s, e in boxes(data, start, min(end, len(data))):
                if inner == b"ipco":
                    properties = [(n, data[a:b]) for n, a, b in boxes(data, s, min(e, len(data)))]
                elif inner == b"ipma":
                    owners.update(_associations(data[s:e]))
    indices = owners.get(primary if primary is not None else -1) or range(1, len(properties) + 1)
    turn = mirror = 0
    crop = (0, 0)
    for index in indices:
        if not 1 <= index <= len(properties):
            continue
        name, body = properties[index - 1]
        if name == b"ispe" and len(body) >= 12 and not header.width:
            header.width, header.height = int.from_bytes(body[4:8], "big"), int.from_bytes(body[8:12], "big")
        elif name == b"pixi" and len(body) >= 6:
            header.bits = body[5]
        elif name == b"clap" and len(body) >= 16:
            over = [int.from_bytes(body[k : k + 4], "big") for k in range(0, 16, 4)]
            crop = (over[0] // (over[1] or 1), over[2] // (over[3] or 1))
        elif name == b"irot" and body:
            turn = body[0] & 3
        elif name == b"imir" and body:
            mirror = 1 + (body[0] & 1)
        elif name == b"colr" and body[:4] in (b"prof", b"rICC"):
            header.icc = body[4:]
        elif name == b"colr" and body[:4] == b"nclx" and int.from_bytes(body[6:8], "big") in (16, 18):
            header.notes = (*header.notes, "hdr")
    header.alpha = any(n == b"auxC" and b"alpha" in body.lower() for n, body in properties) or any(
        n == b"auxC" and b"auxid:1" in body for n, body in properties
    )
    header.largest = header.width * header.height
    if 0 < crop[0] <= header.width and 0 < crop[1] <= header.height:
        header.width, header.height = crop
    return header, _TURNS[turn, mirror]


def _associations(body: bytes) -> dict[int, list[int]]:
    """Read an ipma box: item -> property indices from 1."""
    if len(body) < 8:
        return {}
    wide_items, wide_indices = body[0] >= 1, body[3] & 1
    owners: dict[int, list[int]] = {}
    place = 8
    for _ in range(min(int.from_bytes(body[4:8], "big"), 65536)):
        step = 4 if wide_items else 2
        item, count = int.from_bytes(body[place : place + step], "big"), body[place + step : place + step + 1]
        if not count:
            break
        place += step + 1
        size = 2 if wide_indices else 1
        raw = [body[place + size * i : place + size * (i + 1)] for i in range(count[0])]
        owners[item] = [int.from_bytes(r, "big") & (0x7FFF if wide_indices else 0x7F) for r in raw]
        place += size * count[0]
    return owners


class _Bits:
    """Bits of a JPEG XL codestream, lowest first."""

    def __init__(self, data: bytes) -> None:
        self.value = int.from_bytes(data[:256], "little")

    def take(self, count: int) -> int:
        part = self.value & ((1 << count) - 1)
        self.value >>= count
        return part

    def choose(self, *options: tuple[int, int]) -> int:
        """Read a U32: two bits choose (offset, bits)."""
        offset, bits = options[self.take(2)]
        return offset + self.take(bits)


def read_jxl(data: bytes) -> tuple[Header, int]:
    """Read the start of a JPEG XL codestream, bare or boxed. Returns its header and its orientation (1..8)."""
    header = Header()
    stream = data
    if not data.startswith(b"\xff\x0a"):
        stream = b""
        for name, start, end in boxes(data, 0, len(data)):
            if end > len(data):
                header.whole = False
            if name == b"jxlc" and not stream:
                stream = data[start:end]
            elif name == b"jxlp" and len(stream) < 256:
                stream += data[start + 4 : end]
    if not stream.startswith(b"\xff\x0a") or len(stream) < 4:
        return header, 1
    bits = _Bits(stream[2:])
    header.width, header.height = _size(bits)
    header.largest = header.width * header.height
    orientation = 1
    if not bits.take(1):  # not all default
        extra = bits.take(1)
        if extra:
            orientation = bits.take(3) + 1
            if bits.take(1):
                _size(bits)
            if bits.take(1):
                return header, orientation
            if bits.take(1):
                header.animated = True
                header.notes = ("frames-unknown",)
                bits.choose((100, 0), (1000, 0), (1, 10), (1, 30))
                bits.choose((1, 0), (1001, 0), (1, 8), (1, 10))
                bits.choose((0, 0), (0, 3), (0, 16), (0, 32))
                bits.take(1)
        if bits.take(1):
            header.bits = bits.choose((32, 0), (16, 0), (24, 0), (1, 6))
            bits.take(4)
        else:
            header.bits = bits.choose((8, 0), (10, 0), (12, 0), (1, 6))
        bits.take(1)
        header.alpha = bits.choose((0, 0), (1, 0), (2, 4), (1, 12)) > 0
    return header, orientation


def _size(bits: _Bits) -> tuple[int, int]:
    ratios = {1: (1, 1), 2: (12, 10), 3: (4, 3), 4: (3, 2), 5: (16, 9), 6: (5, 4), 7: (2, 1)}
    small = bits.take(1)
    sizes = ((1, 9), (1, 13), (1, 18), (1, 30))
    height = (bits.take(5) + 1) * 8 if small else bits.choose(*sizes)
    ratio = bits.take(3)
    if ratio:
        over, under = ratios[ratio]
        return height * over // under, height
    return (bits.take(5) + 1) * 8 if small else bits.choose(*sizes), height
