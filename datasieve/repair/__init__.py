"""Repairs: one file each, all on a copy. A repair knows the rules that call for it, decides its parameters from a row
of the report, and changes a picture. `plan` decides, `carry_out` does, `run` is the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
Row = Mapping[str, Any]
"""One row of images.parquet."""

Parameters = dict[str, Any]
"""What a repair was told to do; plain values, so that provenance can hold them and a repair can be repeated."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture under repair: full size, upright, sRGB.

    Attributes:
        pixels: (h, w, 3) uint8.
        alpha: (h, w) uint8, None when opaque.
        mask: (h, w) uint8 to be written as a file of its own, None when there is none.
    """

    pixels: Pixels
    alpha: Pixels | None = None
    mask: Pixels | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """What the user chose.

    Attributes:
        normalize: also repair colours, geometry and the like, not only what is plainly broken.
        background: red, green and blue, 0 to 255, put under transparent parts.
        alpha: "background" or "mask": what becomes of transparency.
        white_balance: "set", "d65" or "off".
        images: "png", or "source" for the source's own format, of what is changed.
        resolution: training resolution in pixels.
        resize: crop and resize images to the buckets of that resolution.
        trainer: whose buckets; None means kohya's.
        coarse: the base needs bucket sides in multiples of 64.
        linear_light: resize in linear light.
        upscale: images may be enlarged, too.
        balance: make crops where close-ups or full shots of a concept are missing.
    """

    normalize: bool = False
    background: tuple[int, int, int] = (255, 255, 255)
    alpha: str = "background"
    white_balance: str = "set"
    images: str = "png"
    resolution: int = 512
    resize: bool = False
    trainer: str | None = None
    coarse: bool = False
    linear_light: bool = False
    upscale: bool = False
    balance: bool = False


@dataclass(frozen=True, slots=True)
class Centre:
    """What the images of a concept have in common; None where too few of them were measured.

    Attributes:
        light: shares of red, green and blue in the light, linear sRGB.
        warmth, tint, stops: as in `looks.LOOKS`, of the whole picture and of the subject.
        warmth_spread, stops_spread: median distance from the former of the two.
    """

    light: tuple[float, float, float] | None = None
    warmth: tuple[float, float] | None = None
    warmth_spread: float = 0.0
    tint: tuple[float, float] = (0.0, 0.0)
    stops: tuple[float, float] | None = None
    stops_spread: float = 0.0


class Repair(Protocol):
    """What every repair of pixels is: a module with these names.

    Attributes:
        RULES: ids of the rules that call for it.
        SAFE: runs without --normalize.
    """

    RULES: tuple[str, ...]
    SAFE: bool

    def parameters(self, row: Row, centre: Centre, options: Options) -> Parameters | str:
        """Return what to do to the image of this row, or one sentence why nothing can be done."""

    def apply(self, picture: Picture, parameters: Parameters) -> Picture:
        """Return the repaired picture."""
