"""Pictures with 16 bits a channel: every bit is read, and what is left of them after dithering is true on average."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageCms
from skimage import data
from skimage.color import deltaE_ciede2000, rgb2lab

from datasieve.imaging import icc
from datasieve.imaging.decode import whole
from datasieve.imaging.deep import dithered, sixteen_bits
from datasieve.imaging.probe import pillow_formats

ICC = Path(__file__).parents[2] / "fixtures" / "torture" / "icc"


def png(values: np.ndarray, chunks: bytes = b"") -> bytes:
    """Write (h, w, 3 or 4) uint16 as a PNG by hand (W3C PNG, third edition), no filter."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    height, width, channels = values.shape
    head = struct.pack(">IIBBBBB", width, height, 16, 2 if channels == 3 else 6, 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunks + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("channels", [3, 4])
def test_every_bit_of_a_png_is_read(channels: int) -> None:
    values = np.random.default_rng(1).integers(0, 65536, (37, 53, channels), dtype=np.uint16)
    read = sixteen_bits(png(values), pillow_formats())
    assert read is not None
    assert np.array_equal(read, values)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("compression", [None, "deflate"])
def test_every_bit_of_a_tiff_is_read(order: str, compression: str | None) -> None:
    values = np.random.default_rng(2).integers(0, 65536, (40, 31, 3), dtype=np.uint16)
    file = io.BytesIO()
    tifffile.imwrite(file, values, byteorder=order, compression=compression, photometric="rgb")
    read = sixteen_bits(file.getvalue(), pillow_formats())
    assert read is not None
    assert np.array_equal(read, values)


def test_pictures_of_8_bits_and_greys_are_not_its_business() -> None:
    for pixels in (data.chelsea(), data.camera(), np.zeros((4, 4), np.uint16)):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        assert sixteen_bits(file.getvalue(), pillow_formats()) is None


def test_a_ramp_within_one_level_survives_as_its_mean() -> None:
    # 100.0 to 101.0 of 255 in steps too fine for 8 bits: rounding gives two flat halves, dither the ramp on average.
    levels = np.linspace(100.0, 101.0, 64)
    values = np.rint(np.broadcast_to(levels[None, :, None] * 257, (400, 64, 3))).astype(np.uint16)
    pixels = whole(png(values), "ramp.png", 10**6).pixels
    assert np.abs(pixels.mean((0, 2)) - levels).max() < 0.1
    assert np.array_equal(pixels, whole(png(values), "ramp.png", 10**6).pixels), "the same noise every time"


@pytest.mark.parametrize("name", ["displayp3_converted.jpg", "truncated_exif_dpi.jpg"])
def test_16_bits_through_a_matrix_profile_are_what_littlecms_makes_of_8(name: str) -> None:
    with Image.open(ICC / name) as image:
        profile, pixels = image.info["icc_profile"], np.asarray(image.convert("RGB"))
    exact = icc.deep_to_srgb(pixels.astype(np.uint16) * 257, profile)
    theirs = icc.to_srgb(Image.fromarray(pixels), profile)
    assert exact is not None
    assert theirs is not None
    assert np.abs(exact * 255 - np.asarray(theirs, float)).max() < 1.6


def test_a_linear_picture_keeps_its_shadows() -> None:
    # Linear light of 0.002 is 0.5 of 255: 8 bits first would make it 0 or 1 in linear light, 0 or 13 of 255 in sRGB.
    values = np.full((64, 64, 3), round(0.002 * 65535), np.uint16)
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    linear = _with_gamma_one(profile)
    body = b"linear\0\0" + zlib.compress(linear)
    chunk = struct.pack(">I", len(body)) + b"iCCP" + body + struct.pack(">I", zlib.crc32(b"iCCP" + body))
    pixels = whole(png(values, chunk), "linear.png", 10**6).pixels
    assert pixels.mean() == pytest.approx(12.92 * 0.002 * 255, abs=0.1)
    assert pixels.std() < 1


def _with_gamma_one(profile: bytes) -> bytes:
    """Return the profile with all three curves made the identity: a `curv` without entries (ICC.1:2022, 10.6)."""
    out = bytearray(profile)
    (count,) = struct.unpack_from(">I", out, 128)
    for i in range(count):
        name, start, _ = struct.unpack_from(">4sII", out, 132 + 12 * i)
        if name in (b"rTRC", b"gTRC", b"bTRC"):
            out[start : start + 12] = b"curv\0\0\0\0\0\0\0\0"
            struct.pack_into(">I", out, 132 + 12 * i + 8, 12)
    return bytes(out)


@pytest.mark.parametrize("name", ["u76c0g_bliznaca", "tmshre_riaphotographs"])
def test_a_linear_16_bit_picture_is_its_own_srgb_version(name: str) -> None:
    ours = whole((ICC / f"{name}_709_g1.png").read_bytes(), name, 10**7).pixels
    with Image.open(ICC / f"{name}_srgb8.png") as image:
        theirs = np.asarray(image.convert("RGB"))
    assert np.abs(ours.astype(int) - theirs).max() <= 2
    assert np.abs(ours.astype(int) - theirs).mean() < 0.6


def test_the_noise_of_dither_is_one_step_wide() -> None:
    levels = np.full((200, 200), 50.25, np.float32)
    assert set(np.unique(dithered(levels))) <= {49, 50, 51}
    assert dithered(np.array([[0.0, 255.0]], np.float32)).tolist()[0][0] in (0, 1)


def test_display_p3_is_converted_as_imagemagick_converts_it() -> None:
    # Means of 8 x 8 px of `convert -intent Relative -black-point-compensation -profile sRGB` (ImageMagick 6.9.11).
    pixels = whole((ICC / "displayp3_converted.jpg").read_bytes(), "p3.jpg", 10**7).pixels
    for (row, column), expected in IMAGEMAGICK.items():
        ours = pixels[row : row + 8, column : column + 8].reshape(-1, 3).mean(0)
        away = deltaE_ciede2000(rgb2lab(ours / 255), rgb2lab(np.array(expected) / 255))
        assert away < 0.5, (row, column)


IMAGEMAGICK = {
    (64, 96): [92.3, 96.1, 55.8],
    (160, 160): [235.1, 186.4, 45.6],
    (224, 64): [212.5, 3.2, 48.3],
    (256, 256): [163.7, 164.5, 161.6],
    (128, 240): [117.6, 117.1, 101.7],
}
