"""Views (requested forms of the pixels) and the batch that answers them on the device.

The working picture of an image is upright, sRGB, composited on `BACKGROUND`, 8 bits a channel, and its longer side
is at most `WORKING_SIDE`; larger images are reduced to it by area averaging of the encoded values. Smaller images
are kept as they are. Every smaller view is halved from it, so a view never depends on what else was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from datasieve.records import ImageFacts, ImageRecord

if TYPE_CHECKING:
    import torch

WORKING_SIDE = 512
"""Longer side of the working picture in pixels: about what a diffusion model of the SD 1.x kind is shown."""

BACKGROUND = (128, 128, 128)
"""What transparent images are composited on for measuring: mid grey, which neither clips nor tints."""

TILE_SIDE = 64
TILES_PER_AXIS = 4

Colour = Literal["srgb", "linear", "luma"]


@dataclass(frozen=True, slots=True)
class View:
    """A request for working pixels.

    Attributes:
        side: the longer side is at most this; `WORKING_SIDE` halved zero or more times (512, 256, 128, 64).
        colour: "srgb" encoded values, "linear" light with sRGB primaries, "luma" encoded luma
            (0.2125 R + 0.7154 G + 0.0721 B, the weights of scikit-image's rgb2gray) in one channel.
    """

    side: int = WORKING_SIDE
    colour: Colour = "srgb"


@dataclass(frozen=True, slots=True)
class Tiles:
    """A request for native pixels: a lattice of `TILES_PER_AXIS` x `TILES_PER_AXIS` tiles of `TILE_SIDE` pixels.

    Tiles come from the stored pixels (before orientation and before any resizing), converted to 8-bit RGB but not
    colour managed; their corners lie on multiples of 8, so JPEG blocks line up with them. Alpha is dropped.
    """


@dataclass(frozen=True, slots=True)
class NativeHash:
    """A request for the hash over the native pixels (`Decoded.pixel_hash`)."""


Request = View | Tiles | NativeHash
"""What an analyzer may ask for in its `views`."""


@dataclass(slots=True)
class Decoded:
    """One image out of the decoder.

    Attributes:
        status: "ok", "unreadable" or "refused".
        error: why, when not ok: one sentence with the remedy; "" when ok.
        content: 32 hex digits, BLAKE2b of the file's bytes; "" when they could not be read.
        facts: what the header says, as far as it could be read.
        file_bytes: size of the file.
        truncated: the decoder ran out of data; such images are "unreadable".
        pixels: working picture, (h, w, 3) uint8, or None.
        tiles: native tiles, (n, 64, 64, 3) uint8, n from 0 to 16, or None when not asked for.
        pixel_hash: 32 hex digits over width, height and the native stored RGB(A) pixels; "" when not asked for.
        alpha_share: share of pixels that are not fully opaque, None without alpha.
        hidden_colour_share: share of pixels that are fully transparent over a colour that varies, None without alpha.
        grey: every pixel of the working picture has equal channels (within 2/255); None when not decoded.
    """

    status: str = "ok"
    error: str = ""
    content: str = ""
    facts: ImageFacts = field(default_factory=ImageFacts)
    file_bytes: int = 0
    truncated: bool = False
    pixels: npt.NDArray[np.uint8] | None = None
    tiles: npt.NDArray[np.uint8] | None = None
    pixel_hash: str = ""
    alpha_share: float | None = None
    hidden_colour_share: float | None = None
    grey: bool | None = None


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """What the plan needs of each image.

    Attributes:
        pixels: the working picture.
        tiles: the native tiles.
        pixel_hash: the hash over the native pixels.
        max_pixels: larger images are refused from their header.
    """

    pixels: bool = True
    tiles: bool = True
    pixel_hash: bool = True
    max_pixels: int = 178_956_970


class Batch:
    """Some images and their pixels on one device. Rows keep the order of `records`.

    Args:
        records: the images.
        decoded: what the decoder made of them, same order. Pixel methods need all of them to be "ok".
        device: where tensors are made.
    """

    def __init__(self, records: Sequence[ImageRecord], decoded: Sequence[Decoded], device: str = "cpu") -> None:
        self.records = records
        self.decoded = decoded
        self.device = device
        self._working: tuple[torch.Tensor, torch.Tensor] | None = None
        self._sizes: list[tuple[int, int]] | None = None
        self._views: dict[View, tuple[torch.Tensor, torch.Tensor]] = {}
        self._tiles: tuple[torch.Tensor, torch.Tensor] | None = None

    def __len__(self) -> int:
        return len(self.records)

    @property
    def facts(self) -> list[ImageFacts]:
        """Header facts, one per image."""
        return [d.facts for d in self.decoded]

    def sizes(self, side: int = WORKING_SIDE) -> list[tuple[int, int]]:
        """Return (height, width) of each image in the view of that side."""
        out = []
        for d in self.decoded:
            assert d.pixels is not None
            h, w = d.pixels.shape[:2]
            s = WORKING_SIDE
            while s > side:
                h, w, s = (h + 1) // 2, (w + 1) // 2, s // 2
            out.append((h, w))
        return out

    def pixels(self, view: View) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the pixels of a view and which of them are real.

        Returns:
            values: (B, 3, S, S) float32 in [0, 1], S = view.side; (B, 1, S, S) for "luma". An image lies in the
                upper left corner; right of it and below it its edge pixels are repeated.
            mask: (B, 1, S, S) bool, True where the image is.
        """
        if view not in self._views:
            self._views[view] = self._make(view)
        return self._views[view]

    def _make(self, view: View) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        if view.colour != "srgb":
            values, mask = self.pixels(View(view.side, "srgb"))
            if view.colour == "luma":
                luma = values[:, 0:1] * 0.2125
                return luma.add_(values[:, 1:2], alpha=0.7154).add_(values[:, 2:3], alpha=0.0721), mask
            return _decoded_levels(values, 255 * 4 ** (WORKING_SIDE // view.side).bit_length() // 4), mask
        if view.side == WORKING_SIDE:
            side = WORKING_SIDE
            array = np.empty((len(self), side, side, 3), np.uint8)
            for i, d in enumerate(self.decoded):
                assert d.pixels is not None
                h, w = d.pixels.shape[:2]
                array[i, :h, :w] = d.pixels
                array[i, :h, w:] = d.pixels[:, -1:]
                array[i, h:] = array[i, h - 1 : h]
            stored = torch.from_numpy(array).to(self.device)
            values = torch.empty(len(self), 3, side, side, device=self.device)
            for channel in range(3):  # one by one: half the time of a permuted copy on a CPU
                values[:, channel].copy_(stored[..., channel])
            values.div_(255)
        else:
            # Halving: odd edges see their last row or column twice, which the repeated padding provides.
            finer, _ = self.pixels(View(view.side * 2, "srgb"))
            rows = finer[..., ::2, :] + finer[..., 1::2, :]  # in two steps: a fifth of avg_pool2d's time on a CPU
            values = (rows[..., ::2] + rows[..., 1::2]).mul_(0.25)
        return values, self._mask(view.side)

    def _mask(self, side: int) -> torch.Tensor:
        import torch

        mask = torch.zeros(len(self), 1, side, side, dtype=torch.bool)
        for i, (h, w) in enumerate(self.sizes(side)):
            mask[i, :, :h, :w] = True
        return mask.to(self.device)

    def tiles(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return native tiles, (B, 16, 3, 64, 64) float32 in [0, 1], and which are real, (B, 16) bool."""
        import torch

        if self._tiles is None:
            count = TILES_PER_AXIS**2
            array = np.zeros((len(self), count, TILE_SIDE, TILE_SIDE, 3), np.uint8)
            real = np.zeros((len(self), count), bool)
            for i, d in enumerate(self.decoded):
                if d.tiles is not None:
                    array[i, : len(d.tiles)] = d.tiles
                    real[i, : len(d.tiles)] = True
            values = torch.from_numpy(array).to(self.device).permute(0, 1, 4, 2, 3).float().div_(255)
            self._tiles = values, torch.from_numpy(real).to(self.device)
        return self._tiles


def srgb_to_linear(values: torch.Tensor) -> torch.Tensor:
    """Decode sRGB values in [0, 1] to linear light in [0, 1] (IEC 61966-2-1)."""
    import torch

    return torch.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def _decoded_levels(values: torch.Tensor, levels: int) -> torch.Tensor:
    """Decode sRGB values that are multiples of 1/levels by table: exact, and five times as fast as the formula."""
    import torch

    table = srgb_to_linear(torch.arange(levels + 1, device=values.device) / levels)
    index = (values * levels).round_().to(torch.int32)
    return table.index_select(0, index.flatten()).view(values.shape)
