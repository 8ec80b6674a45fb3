"""Mutated files: whatever the bytes, there is an answer, and soon."""

import io
import random
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from datasieve.batch import Decoded, DecodeRequest
from datasieve.imaging.decode import decode

REQUEST = DecodeRequest(max_pixels=4_000_000)
ROUNDS = 80


def sample(form: str) -> bytes:
    values = np.random.default_rng(5).integers(0, 256, (9, 12, 3)).astype(np.uint8)
    image = Image.fromarray(values).resize((120, 90))
    out = io.BytesIO()
    if form in ("GIF", "WEBP"):
        image.save(out, form, save_all=True, append_images=[image.rotate(90), image.rotate(180)])
    else:
        exif = Image.Exif()
        exif[0x0112] = 6
        image.save(out, form, exif=exif.tobytes())
    return out.getvalue()


def mutated(data: bytes, generator: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(generator.choice((1, 2, 8, 40))):
        place = generator.randrange(len(out))
        if generator.random() < 0.5:
            place = min(place, generator.randrange(1, 200))  # headers are where the harm is done
        out[place] = generator.choice((0, 1, 0x7F, 0x80, 0xFF, generator.randrange(256)))
    if generator.random() < 0.2:
        del out[generator.randrange(len(out)) :]
    if generator.random() < 0.1:
        place = generator.randrange(len(out) + 1)
        out[place:place] = generator.randbytes(generator.randrange(50))
    return bytes(out)


def check(result: Decoded) -> None:
    assert result.status in ("ok", "unreadable", "refused")
    if result.status == "ok":
        assert result.pixels is not None
        assert result.pixels.ndim == 3
        assert result.pixels.dtype == np.uint8
        assert min(result.pixels.shape) > 0
        assert max(result.pixels.shape) <= 512
    else:
        assert result.error
        assert result.pixels is None


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "AVIF"])
@pytest.mark.filterwarnings("ignore")  # decoders may complain about such files
def test_mutations_are_answered(form: str) -> None:
    data, generator = sample(form), random.Random(form)
    started = time.monotonic()
    for _ in range(ROUNDS):
        check(decode(mutated(data, generator), f"a.{form.lower()}", REQUEST))
    assert time.monotonic() - started < 30


STARTS = (
    *(b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"RIFF\x10\0\0\0WEBPVP8X", b"\xff\x0a", b"BM"),
    *(b"\0\0\0\x18ftypavif\0\0\0\0mif1avif", b"\0\0\0\x18ftypheic", b"\0\0\0\x0cJXL \r\n\x87\n", b"II*\0"),
    *(b"P6 9 9 255\n", b"\0\0\1\0"),
)


@given(head=st.sampled_from(STARTS), tail=st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
@pytest.mark.filterwarnings("ignore")
def test_any_bytes_are_answered(head: bytes, tail: bytes) -> None:
    check(decode(head + tail, "a.jpg", REQUEST))
