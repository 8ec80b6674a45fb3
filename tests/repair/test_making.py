"""What a step list makes of a file: the same bytes every time, in the format asked for, with its mask."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image
from skimage import data
from skimage.metrics import peak_signal_noise_ratio

from datasieve.imaging.probe import probe
from datasieve.repair import Picture
from datasieve.repair.making import encoded, made

RESIZE = {"repair": "resize", "parameters": {"window": [10.0, 20.0, 210.0, 220.0], "width": 100, "height": 100,
                                             "around": "centre", "light": "encoded"}}  # fmt: skip


def file(pixels: np.ndarray, format_: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format_)
    return buffer.getvalue()


def pixels_of(raw: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(raw)) as image:
        return np.asarray(image)


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.webp"])
def test_the_same_steps_make_the_same_bytes_and_say_srgb(name: str) -> None:
    once, _ = made(file(data.chelsea()), "a.png", "change", [RESIZE], name)
    again, _ = made(file(data.chelsea()), "a.png", "change", [RESIZE], name)
    assert once == again
    facts = probe(once, name)
    assert facts.extension_fits
    assert facts.icc_class == "srgb" or b"sRGB" in once[:64]


def test_jpeg_keeps_full_colour_resolution_at_quality_95() -> None:
    raw = encoded(Picture(data.chelsea()), "a.jpg")
    facts = probe(raw, "a.jpg")
    assert facts.jpeg_subsampling == "4:4:4"
    assert facts.jpeg_quality == pytest.approx(95, abs=1)
    assert peak_signal_noise_ratio(data.chelsea(), pixels_of(raw)) > 40


def test_webp_and_png_lose_nothing() -> None:
    alpha = np.random.default_rng(0).integers(0, 256, data.chelsea().shape[:2], dtype=np.uint8)
    for name in ("a.webp", "a.png"):
        assert np.array_equal(pixels_of(encoded(Picture(data.chelsea()), name))[..., :3], data.chelsea())
        four = pixels_of(encoded(Picture(data.chelsea(), alpha), name))
        assert np.array_equal(four, np.dstack([data.chelsea(), alpha]))


def test_a_mask_beside_the_source_is_cut_and_resized_with_it() -> None:
    mask = np.zeros((300, 451), np.uint8)
    mask[20:120, 10:110] = 255
    _, new = made(file(data.chelsea()), "a.png", "change", [RESIZE], "a.png", mask=file(mask))
    assert new is not None
    small = pixels_of(new)
    assert small.shape == (100, 100)
    assert small[:49, :49].min() > 200
    assert small[52:].max() < 60


def test_a_mask_of_another_size_or_of_an_untouched_image_is_passed_on_as_it_is() -> None:
    odd = file(np.zeros((10, 10), np.uint8))
    assert made(file(data.chelsea()), "a.png", "change", [RESIZE], "a.png", mask=odd)[1] == odd
    assert made(b"anything", "a.png", "copy", [], "a.png", mask=odd) == (b"anything", odd)
    assert made(file(data.chelsea()), "a.png", "change", [RESIZE], "a.png", mask=b"no picture")[1] == b"no picture"
