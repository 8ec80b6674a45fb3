"""Pictures brought to the size of a network's input, on its device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

Interpolation: TypeAlias = Literal["bilinear", "bicubic"]
Fit: TypeAlias = Literal["shortest", "longest", "squash"]
"""How a picture comes to a network's aspect: cut at the longer sides, filled up at the shorter ones, or squashed."""

Picture: TypeAlias = npt.NDArray[np.uint8]
"""(h, w, 3) sRGB."""


def resized(picture: Picture, size: tuple[int, int], mode: Interpolation, device: str = "cpu") -> torch.Tensor:
    """Return a picture at another (height, width), antialiased as Pillow does it: (3, h, w), 0 to 255, on a device.

    On the CPU in 8 bits, which takes a sixth of the time of floats and rounds as Pillow rounds; elsewhere in float32.
    """
    import torch
    import torch.nn.functional as functional

    values = torch.from_numpy(np.require(picture, requirements=["C", "W"])).to(device).permute(2, 0, 1)[None]
    if values.device.type != "cpu":
        values = values.float()
    out = functional.interpolate(values, size, mode=mode, antialias=True, align_corners=False)
    return out[0].clamp(0, 255)


def fitted(
    picture: Picture, size: tuple[int, int], mode: Interpolation, fit: Fit, fill: int = 0, device: str = "cpu"
) -> torch.Tensor:
    """Return a picture of exactly (height, width) as CLIP models are shown it: (3, h, w), 0 to 255, on a device.

    "shortest" fills the size and cuts the middle out, "longest" shows all and fills up with the level `fill`, "squash"
    ignores the aspect. Sizes are rounded as open_clip rounds them.
    """
    import torch.nn.functional as functional

    if fit == "squash":
        return resized(picture, size, mode, device)
    height, width = picture.shape[:2]
    ratios = height / size[0], width / size[1]
    if fit == "longest":
        inner = tuple(max(round(n / max(ratios)), 1) for n in (height, width))
    elif size[0] == size[1]:  # the longer side is cut down to whole pixels, as torchvision does it
        short = min(height, width)
        inner = tuple(size[0] if n == short else int(size[0] * n / short) for n in (height, width))
    else:
        mode = "bicubic"
        inner = tuple(round(n / min(ratios)) for n in (height, width))
    values = resized(picture, (inner[0], inner[1]), mode, device)
    missing = [max(want - have, 0) for want, have in zip(size, inner, strict=True)]
    if any(missing):
        down, right = missing
        edges = (right // 2, (right + 1) // 2, down // 2, (down + 1) // 2)
        values = functional.pad(values, edges, value=float(fill))
    top, left = (round((have - want) / 2) for have, want in zip(values.shape[1:], size, strict=True))
    return values[:, top : top + size[0], left : left + size[1]]
