"""What a file is, told by its first bytes and never by its name."""

from __future__ import annotations

EXTENSIONS: dict[str, tuple[str, ...]] = {
    "JPEG": ("jpg", "jpeg", "jpe", "jfif", "jif", "mpo", "insp"),
    "PNG": ("png", "apng"),
    "GIF": ("gif",),
    "WEBP": ("webp",),
    "TIFF": ("tif", "tiff", "dng"),
    "BMP": ("bmp", "dib"),
    "ICO": ("ico",),
    "PPM": ("pbm", "pgm", "ppm", "pnm", "pfm", "pam"),
    "AVIF": ("avif", "avifs", "heif"),
    "HEIF": ("heic", "heif", "heics", "heifs", "hif"),
    "JXL": ("jxl",),
    "JPEG2000": ("jp2", "j2k", "jpf", "jpx", "j2c", "jpc"),
    "PSD": ("psd", "psb"),
    "DDS": ("dds",),
    "QOI": ("qoi",),
    "SVG": ("svg",),
}
"""Format -> extensions that tell the truth about it, lower case without the dot."""

FULL_NAMES = {
    "HEIF": "HEIC/HEIF",
    "JXL": "JPEG XL",
    "JPEG2000": "JPEG 2000",
    "PSD": "Photoshop",
    "SVG": "SVG",
}
"""How a format is called in a sentence, where its short name is not enough."""

PACKAGES = {"HEIF": "pillow-heif", "JXL": "pillow-jxl-plugin"}
"""Format -> the package on PyPI that reads it, for formats that Pillow alone does not read."""

_BRANDS_AVIF = {b"avif", b"avis"}
_BRANDS_HEIF = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"mif2", b"msf1", b"miaf", b"j2ki"}
_PLAIN = (
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
    (b"II+\0", "TIFF"),
    (b"MM\0+", "TIFF"),
    (b"BM", "BMP"),
    (b"\0\0\1\0", "ICO"),
    (b"\0\0\0\x0cJXL \r\n\x87\n", "JXL"),
    (b"\xff\x0a", "JXL"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG2000"),
    (b"\xff\x4f\xff\x51", "JPEG2000"),
    (b"8BPS", "PSD"),
    (b"DDS ", "DDS"),
    (b"qoif", "QOI"),
)
_OTHER_FILES = (
    (b"%PDF", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"Rar!", "a RAR archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"7z\xbc\xaf", "a 7-Zip archive"),
    (b"\x1aE\xdf\xa3", "a Matroska or WebM film"),
    (b"version https://git-lfs", "a Git LFS pointer (the picture itself was never downloaded)"),
)


def image_format(data: bytes) -> str:
    """Return the format of `data` by content ("JPEG", "PNG", "HEIF"...), or "" when no signature is known."""
    for start, name in _PLAIN:
        if data.startswith(start):
            return name
    if data[:2] == b"\xff\xd8" and data[2:3] in (b"\xff", b""):
        return "JPEG"
    if data[:2] == b"\xff\xd8" and b"\xff" in data[2:64]:
        return "JPEG"  # stray bytes before the first segment, which decoders pass over
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    if data[4:8] == b"ftyp":
        size = min(max(int.from_bytes(data[:4], "big"), 16), 256)
        brands = {data[8:12], *(data[i : i + 4] for i in range(16, size - 3, 4))}
        if data[8:12] in _BRANDS_AVIF:
            return "AVIF"
        if data[8:12] in {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx"}:
            return "HEIF"
        if brands & _BRANDS_AVIF:
            return "AVIF"
        if brands & _BRANDS_HEIF:
            return "HEIF"
    if data[:1] == b"P" and data[1:2] in b"123456f" and data[2:3] in (b" ", b"\t", b"\n", b"\r", b"#"):
        return "PPM"
    head = data[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith(b"<svg") or (head.startswith(b"<?xml") and b"<svg" in head):
        return "SVG"
    return ""


def other_file(data: bytes) -> str:
    """Return what a file that is no image seems to be, as a phrase ("an HTML page"); "" when nothing is known."""
    for start, phrase in _OTHER_FILES:
        if data.startswith(start):
            return phrase
    if data[4:8] == b"ftyp":
        return "a film or another MP4-like container"
    head = data[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith((b"<!doctype html", b"<html")):
        return "an HTML page (probably an error page saved in place of the picture)"
    if head.startswith((b"<?xml", b"{", b"[")):
        return "a text file"
    if data and not data[:4096].strip(b"\0"):
        return "nothing but zero bytes (its content was never written)"
    return ""


def extension_fits(name: str, image: str) -> bool:
    """Tell whether the extension of file `name` belongs to format `image`. True when there is nothing to compare."""
    base = name.rsplit("/", 1)[-1]
    if "." not in base or not image:
        return True
    known = EXTENSIONS.get(image)
    extension = base.rsplit(".", 1)[-1].lower()
    if known is None:
        return not any(extension in others for others in EXTENSIONS.values())
    return extension in known
