"""A1111's embeddings within pictures: in a PNG text chunk, or hidden in the low bits of two side bands."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from datasieve.errors import ModelError

CHUNK = "sd-ti-embedding"
_LIMIT = 64 * 2**20  # a decompressed embedding is far smaller; a bomb is not
_PIXELS = 24 * 10**6
_HALVES = 2**24  # half bytes in one band: far more than any embedding's, far less than memory


def read_picture(path: Path) -> dict[str, Any]:
    """Return the dictionary that a picture carries. Raises ModelError when it carries none."""
    from PIL import Image

    from datasieve.imaging.probe import pillow_formats, pillow_limit

    try:
        with pillow_limit(_PIXELS), Image.open(path, formats=pillow_formats()) as image:
            image.load()
            chunk = getattr(image, "text", {}).get(CHUNK)
            told = json.loads(base64.b64decode(chunk)) if isinstance(chunk, str) else None
            found = _restored(_hidden(np.asarray(image.convert("RGB"))) if told is None else told)
    except Image.DecompressionBombError:
        raise ModelError(f"{path} is larger than {_PIXELS // 10**6} megapixels, and is not opened") from None
    except (OSError, ValueError, TypeError, RecursionError, SyntaxError) as error:
        raise ModelError(f"{path} cannot be read as a picture with an embedding: {error}") from None
    if not isinstance(found, dict):
        raise ModelError(
            f"{path} carries no embedding", remedy="Pictures lose it when they are saved again; get the original."
        )
    return found


def _hidden(pixels: np.ndarray) -> Any:
    """Return what is hidden at the picture's sides.

    The low four bits of the left band are the lower halves of the bytes, those of the right band the upper halves, both
    exclusive-ored with a fixed sequence; a black column stands between each band and the picture.
    """
    bright = np.asarray((pixels > 0).all(axis=2))
    rows, columns = np.flatnonzero(np.any(bright, axis=1)), np.flatnonzero(np.any(bright, axis=0))
    if not rows.size:
        return None
    low = (pixels[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] & 0x0F).astype(np.uint8)
    dark = np.flatnonzero((low == 0).all(axis=(0, 2)))
    if dark.size < 2:
        return None
    left, right = low[:, : dark[0]], low[:, dark[-1] + 1 :]
    if left.shape != right.shape or not 0 < left.size <= _HALVES:
        return None
    data = ((_unmasked(right) << 4) | _unmasked(left)).tobytes()
    try:
        return json.loads(zlib.decompressobj().decompress(data, _LIMIT))
    except (zlib.error, ValueError, RecursionError):
        return None


def _unmasked(block: np.ndarray) -> np.ndarray:
    """Undo the exclusive or with the generator 1664525 x + 1013904223 modulo 2**32, from 0, each value modulo 255."""
    states = np.array([1013904223], np.uint32)
    factor, shift = 1664525, 1013904223  # what leads len(states) places on
    while states.size < block.size:
        states = np.concatenate([states, states * np.uint32(factor) + np.uint32(shift)])
        factor, shift = factor * factor % 2**32, (factor * shift + shift) % 2**32
    masks = (states[: block.size] % 255).astype(np.uint8) & 0x0F
    plain: np.ndarray = block ^ masks.reshape(block.shape)
    return plain


def _restored(value: Any) -> Any:
    """Return the value with `{"TORCHTENSOR": lists}` made tensors."""
    if not isinstance(value, dict):
        return value
    if set(value) == {"TORCHTENSOR"}:
        return torch.tensor(value["TORCHTENSOR"], dtype=torch.float32)
    return {k: _restored(v) for k, v in value.items()}
