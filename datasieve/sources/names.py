"""File names: which are images, which are passed over and why, and which names cause trouble."""

from __future__ import annotations

import os
import struct
import unicodedata
from collections.abc import Sequence

from datasieve.sources.ingest import Ledger
from datasieve.storage import readable

# What Pillow opens, less video, scientific containers and page descriptions that only share its plug-in list.
_PILLOW = (
    ".apng .avif .avifs .blp .bmp .bw .cur .dcx .dds .dib .eps .fit .fits .flc .fli .ftc .ftu .gbr .gif .icb .icns "
    ".ico .im .j2c .j2k .jfif .jp2 .jpc .jpe .jpeg .jpf .jpg .jpx .mpo .msp .pbm .pcd .pcx .pfm .pgm .pjp .pjpeg .png "
    ".pnm .ppm .psd .pxr .qoi .ras .rgb .rgba .sgi .tga .tif .tiff .vda .vst .webp .xbm .xpm"
)
# What needs a plug-in: named in the report instead of passed over in silence.
_PLUGIN = ".avci .heic .heics .heif .heifs .hif .jxl"

IMAGE_EXTENSIONS = frozenset(f"{_PILLOW} {_PLUGIN}".split())
CAPTION_EXTENSIONS = (".txt", ".caption")
"""Sidecar captions, the preferred first."""

_CACHE = frozenset(
    [".npz", ".npy", ".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".onnx", ".pkl", ".pickle", ".lock"]
)
_CACHE_NAMES = frozenset({"metadata_cache.json", "aspect_ratio_bucket_indices.json"})
_ARCHIVES = frozenset([".tar", ".tgz", ".gz", ".bz2", ".xz", ".zst", ".zip", ".7z", ".rar"])
_RAW = frozenset([".dng", ".cr2", ".cr3", ".nef", ".nrw", ".arw", ".raf", ".orf", ".rw2", ".pef", ".srw", ".x3f"])
# Never opened to see what they are; every other unknown file is.
_OTHER = frozenset(
    [
        ".txt",
        ".caption",
        ".json",
        ".jsonl",
        ".csv",
        ".tsv",
        ".parquet",
        ".md",
        ".rst",
        ".html",
        ".htm",
        ".pdf",
        ".toml",
        ".yaml",
        ".yml",
        ".ini",
        ".cfg",
        ".log",
        ".py",
        ".ipynb",
        ".sh",
        ".bat",
        ".ps1",
        ".xml",
        ".svg",
        ".mp4",
        ".mov",
        ".avi",
        ".mkv",
        ".webm",
        ".mp3",
        ".wav",
        ".xmp",
        ".aae",
        ".db",
        ".sqlite",
        ".url",
        ".lnk",
        ".exe",
        ".dll",
        ".docx",
        ".xlsx",
        ".mpg",
        ".mpeg",
        ".h5",
        ".hdf5",
        ".arrow",
        ".pyc",
    ]
)
_SYSTEM = frozenset({"thumbs.db", "ehthumbs.db", "desktop.ini", ".ds_store", "icon\r", ".localized", "$recycle.bin"})
_DOCUMENTS = ("readme", "license", "licence", "copying", "notice", "credit", "attribution", "changelog", "requirements")


def split(name: str) -> tuple[str, str]:
    """Return the stem and the last extension in lower case with its dot: "a.B.JPG" -> ("a.B", ".jpg")."""
    stem, extension = os.path.splitext(name)
    return stem, extension.lower()


def nfc(text: str) -> str:
    """Return `text` in Unicode's composed form, the one file names are compared in."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def shadow(name: str) -> str | None:
    """Return why a file or folder is passed over by its name alone, or None."""
    if name.startswith("._"):
        return "archive shadow"
    if name.lower() in _SYSTEM:
        return "system file"
    return "hidden" if name.startswith(".") else None


def is_document(name: str) -> bool:
    """Tell a text that accompanies a dataset (README.txt, LICENSE.txt) from a caption without an image."""
    return name.lower().startswith(_DOCUMENTS)


def reason_no_image(name: str) -> str | None:
    """Return why the file `name` is not an image by its extension; None when only its content can tell."""
    _, extension = split(name)
    if extension in _CACHE or name in _CACHE_NAMES:
        return "cache"
    if extension in _ARCHIVES:
        return "archive"
    if extension in _RAW:
        return "raw photo"
    return "not an image" if extension in _OTHER else None


def image_content(head: bytes) -> bool:
    """Tell whether `head`, the first 32 bytes of a file, is the signature of an image format."""
    if head.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF87a", b"GIF89a", b"8BPS\0\1", b"qoif")):
        return True
    if head.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+", b"\xff\x0a", b"\0\0\0\x0cJXL ", b"\0\0\0\x0cjP  ")):
        return True
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return True
    if head[4:8] == b"ftyp":
        return head[8:12] in (b"avif", b"avis", b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
    # "BM" alone begins too many texts; a bitmap's header size, 14 bytes on, is one of few.
    return (
        head[:2] == b"BM"
        and len(head) >= 18
        and struct.unpack_from("<I", head, 14)[0] in (12, 16, 40, 52, 56, 64, 108, 124)
    )


def looks_like_image(file: str) -> bool:
    """Read the first bytes of `file` and tell whether they are an image's. A file that cannot be read is none."""
    try:
        with open(file, "rb") as handle:
            return image_content(handle.read(32))
    except OSError:
        return False


def odd(name: str) -> str:
    """Return what is odd about one component of a path, "" when nothing is."""
    if name.isascii() and name.isprintable() and len(name) <= 200:
        return "ends with a space or a dot" if name.endswith((" ", ".")) else ""
    if any("\udc80" <= letter <= "\udcff" for letter in name):
        return "has bytes that are not UTF-8"
    if any(unicodedata.category(letter) in ("Cc", "Zl", "Zp") for letter in name):
        return "has a line break or another control character in it"
    if any("\u202a" <= letter <= "\u202e" or "\u2066" <= letter <= "\u2069" for letter in name):
        return "has invisible characters that turn the reading direction"
    size = len(name.encode("utf-8", "surrogatepass"))
    if size > 200:
        return f"is {size} bytes long"
    return "ends with a space or a dot" if name.endswith((" ", ".")) else ""


def check_names(folder: str, images: Sequence[str], ledger: Ledger) -> None:
    """Note odd names, names that differ only in case or Unicode form, and stems shared by several images.

    Args:
        folder: relative POSIX path, "" for the root.
        images: names of the images in it.
        ledger: takes the notes; their path is the later image of a clash.
    """
    names: dict[str, str] = {}
    stems: dict[str, str] = {}
    for name in images:
        path = join(folder, name)
        if what := odd(name):
            ledger.note("odd-name", path, f"the file name {readable(name)!r} {what}")
        key = nfc(name).casefold()
        stem = nfc(split(name)[0]).casefold()
        first = names.setdefault(key, name)
        partner = stems.setdefault(stem, name)
        if first != name:
            ledger.note(
                "case-clash",
                path,
                f"{readable(name)} and {readable(first)} differ only in upper and lower case or accents",
            )
        elif partner != name:
            ledger.note(
                "same-stem",
                path,
                f"{readable(name)} and {readable(partner)} share the name {readable(split(name)[0])!r}, "
                "and so one caption and one cache file",
            )


def join(folder: str, name: str) -> str:
    """Return the relative POSIX path of `name` in `folder`; "" is the root."""
    return f"{folder}/{name}" if folder else name
