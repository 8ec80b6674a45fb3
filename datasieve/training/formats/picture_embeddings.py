"""A1111's embeddings within pictures: in a PNG text chunk, or hidden in the low bits of two side bands."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from datasieve.errors import ModelError

CHUNK = "sd-ti-embedding"
_LIMIT = 64 * 2**20  # a decompressed embedding is far smaller; a bomb is not


def read_picture(path: Path) -> dict[str, Any]:
    """Return the dictionary that a picture carries. Raises ModelError when it carries none."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            image.load()
            chunk = getattr(image, "text", {}).get(CHUNK) or image.info.get(CHUNK)
            if isinstance(chunk, str):
                return _restored(json.loads(base64.b64decode(chunk)), path)
            found = _hidden(np.asarray(image.convert("RGB")))
    except (OSError, ValueError, binascii.Error, SyntaxError) as error:
        raise ModelError(f"{path} cannot be read as a picture with an embedding: {error}") from None
    if found is None:
        raise ModelError(
            f"{path} carries no embedding", remedy="Pictures lose it when they are saved again; get the original."
        )
    return _restored(found, path)


def _hidden(pixels: np.ndarray) -> dict[str, Any] | None:
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
    flat_low = _unmasked(low[:, : dark[0]]).ravel()
    flat_high = _unmasked(low[:, dark[-1] + 1 :]).ravel()
    if flat_low.size != flat_high.size or not flat_low.size:
        return None
    data = ((flat_high << 4) | flat_low).astype(np.uint8).tobytes()
    try:
        text = zlib.decompressobj().decompress(data, _LIMIT)
        found = json.loads(text)
    except (zlib.error, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _unmasked(block: np.ndarray) -> np.ndarray:
    """Undo the exclusive or with the generator 1664525 x + 1013904223 modulo 2**32, from 0, each value modulo 255."""
    masks = np.empty(block.size, np.uint8)
    state = 0
    for i in range(block.size):
        state = (1664525 * state + 1013904223) % 2**32
        masks[i] = state % 255 & 0x0F
    return block ^ masks.reshape(block.shape)


def _restored(value: Any, path: Path) -> dict[str, Any]:
    def restore(part: Any) -> Any:
        if isinstance(part, dict):
            if set(part) == {"TORCHTENSOR"}:
                return torch.tensor(part["TORCHTENSOR"], dtype=torch.float32)
            return {k: restore(v) for k, v in part.items()}
        return part

    restored = restore(value)
    if not isinstance(restored, dict):
        raise ModelError(f"the picture {path} carries something that is no embedding")
    return restored
