"""What flows through the pipeline: an image's whereabouts, and what its header says."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """Where an image's bytes are: a whole file, or a span of a tar shard.

    Attributes:
        file: absolute path of the file or shard.
        offset: first byte of the image.
        size: number of bytes; None means to the end of the file.
    """

    file: str
    offset: int = 0
    size: int | None = None

    def read(self) -> bytes:
        """Return the image's bytes. Raises OSError."""
        with open(self.file, "rb") as handle:
            if self.offset:
                handle.seek(self.offset)
            return handle.read() if self.size is None else handle.read(self.size)


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """One image with its captions, as found; nothing measured.

    Attributes:
        image_id: 16 hex digits, a hash of `path` (see `image_id`).
        path: relative POSIX path below the dataset, or `shard.tar::member`.
        location: where the bytes are.
        concept: what a token shall learn from it; "" when the dataset has none.
        captions: every caption, in the order of the source; empty when there is none.
        repeats: how often one epoch shows it (kohya's `N_` folders, TOML `num_repeats`).
        group: the folder (POSIX, relative; "" for the root) or shard the image was listed from.
    """

    image_id: str
    path: str
    location: Location
    concept: str = ""
    captions: tuple[str, ...] = ()
    repeats: int = 1
    group: str = ""


def image_id(path: str) -> str:
    """Return the stable id of the image at `path` (relative POSIX): 16 hex digits of BLAKE2b."""
    return hashlib.blake2b(path.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What a file's header says, read without decoding pixels.

    Attributes:
        format: by content, Pillow's names in upper case ("JPEG", "PNG", "WEBP", "HEIF", "JXL"...); "" unknown.
        extension_fits: False when the file's extension belongs to another format.
        width_stored, height_stored: pixels as stored.
        width, height: pixels as displayed, after orientation.
        orientation: 1..8, TIFF's meaning; 1 when absent or invalid.
        orientation_source: "exif", "xmp", "irot" or "".
        colour_model: "rgb", "grey", "bilevel", "palette", "cmyk", "lab", "ycbcr" or "other".
        bit_depth: bits per channel.
        has_alpha: the file can carry transparency (an alpha channel, or a transparent colour).
        icc_name: description of the embedded ICC profile; "" without one.
        icc_class: "none", "srgb", "wide", "linear", "grey", "cmyk", "lab", "other" or "broken".
        frames: number of frames or pages; 1 for a still picture.
        animated: the frames are meant to be played, not paged.
        has_gps: EXIF carries a GPS position.
        jpeg_quality: IJG quality 1..100 estimated from the luma quantisation table; None if not JPEG.
        jpeg_subsampling: "4:4:4", "4:2:0"...; "" if not JPEG.
        notes: further facts by name, such as "exif-broken", "exif-uncalibrated", "gamma-chunk", "junk-after-end".
    """

    format: str = ""
    extension_fits: bool = True
    width_stored: int = 0
    height_stored: int = 0
    width: int = 0
    height: int = 0
    orientation: int = 1
    orientation_source: str = ""
    colour_model: str = "rgb"
    bit_depth: int = 8
    has_alpha: bool = False
    icc_name: str = ""
    icc_class: str = "none"
    frames: int = 1
    animated: bool = False
    has_gps: bool = False
    jpeg_quality: float | None = None
    jpeg_subsampling: str = ""
    notes: tuple[str, ...] = ()
