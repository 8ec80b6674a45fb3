"""Estimating the colour of the light from the pixels alone: shades of grey and grey edge, batched in torch.

Both assume that something averages out to grey when the light is white: a Minkowski norm of the colours, or of their
gradients. Neither can tell an orange wall in white light from a white wall in orange light.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

GREY_NORM = 6
"""Minkowski norm of shades of grey; 6 was the best in Finlayson & Trezzi 2004."""

EDGE_NORM = 2
"""Minkowski norm of grey edge; sets less store by single strong edges of coloured things than larger norms."""

SIGMA = 1.0
"""Scale in px of the derivative of grey edge."""

RADIUS = 3
"""Half width in px of the derivative filters."""

CLIPPED = 0.98
"""Encoded value above which a channel counts as clipped."""

CLIPPED_LOW = 0.02
"""Encoded value below which a pixel, all its channels, counts as clipped to black: 5 of 255."""

BLACK = 0.01
"""Encoded value below which a pixel, all its channels, counts as black."""


def usable(encoded: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return which pixels tell about the light: inside the image, no channel clipped, not black.

    Args:
        encoded: (B, 3, H, W) sRGB values in [0, 1].
        mask: (B, 1, H, W) bool, True where the image is.

    Returns:
        (B, 1, H, W) bool.
    """
    brightest = encoded.amax(1, keepdim=True)
    return mask & (brightest <= CLIPPED) & (brightest >= BLACK)


def shades_of_grey(linear: torch.Tensor, use: torch.Tensor, norm: int = GREY_NORM) -> torch.Tensor:
    """Return the Minkowski mean of the colours, the light by shades of grey; norm 1 is grey world.

    G. D. Finlayson, E. Trezzi, "Shades of Gray and Colour Constancy", Color and Imaging Conference 2004, 37-41.

    Args:
        linear: (B, 3, H, W) linear light in [0, 1].
        use: (B, 1, H, W) bool, the pixels that count.
        norm: order of the mean.

    Returns:
        (B, 3) in the scale of `linear`; 0 where no pixel counts.
    """
    power = linear
    for _ in range(norm - 1):
        power = power * linear
    total = (power * use).sum((2, 3))
    return (total / use.sum((2, 3)).clamp(min=1)).pow(1 / norm)


def grey_edge(linear: torch.Tensor, use: torch.Tensor, inside: torch.Tensor, norm: int = EDGE_NORM) -> torch.Tensor:
    """Return the Minkowski mean of the gradient magnitudes, the light by first-order grey edge.

    J. van de Weijer, T. Gevers, A. Gijsenij, "Edge-Based Color Constancy", IEEE Trans. Image Processing 16 (2007)
    2207-2214, doi:10.1109/TIP.2007.901808. Pixels beside one that does not count are left out, as there, and those
    whose filter window reaches beyond the image, so neither clipping nor padding makes edges.

    Args:
        linear: (B, 3, H, W) linear light in [0, 1].
        use: (B, 1, H, W) bool, the pixels that count.
        inside: (B, 1, H, W) bool, where the image is; it lies in the upper left corner.
        norm: order of the mean.

    Returns:
        (B, 3) in linear light per px; 0 where no pixel counts, as in images below 7 px.
    """
    if min(linear.shape[2:]) <= 2 * RADIUS:
        return linear.new_zeros(len(linear), 3)
    offsets = range(-RADIUS, RADIUS + 1)
    weights = [math.exp(-(k**2) / (2 * SIGMA**2)) for k in offsets]
    smooth = [w / sum(weights) for w in weights]
    # Scaled so that a ramp of slope 1 gives 1.
    scale = sum(w * k * k for w, k in zip(smooth, offsets, strict=True))
    slope = [w * k / scale for w, k in zip(smooth, offsets, strict=True)]
    energy = _along(_along(linear, slope, 3), smooth, 2).square_()
    energy += _along(_along(linear, smooth, 3), slope, 2).square_()
    if norm != 2:
        energy = energy.pow_(norm / 2)
    inner = slice(RADIUS, -RADIUS)
    fit = _eroded(use)[:, :, inner, inner] & inside[:, :, 2 * RADIUS :, 2 * RADIUS :]
    total = (energy * fit).sum((2, 3))
    return (total / fit.sum((2, 3)).clamp(min=1)).pow(1 / norm)


def _along(x: torch.Tensor, taps: Sequence[float], dim: int) -> torch.Tensor:
    """Correlate with an odd kernel along one dimension, valid part only; shifted sums beat conv2d for single planes."""
    size = x.shape[dim] - len(taps) + 1
    out = x.narrow(dim, 0, size) * taps[0]
    for i, tap in enumerate(taps[1:], 1):
        if tap:
            out.add_(x.narrow(dim, i, size), alpha=tap)
    return out


def _eroded(use: torch.Tensor) -> torch.Tensor:
    """Return which pixels have a full 3 x 3 neighbourhood in `use`; the outermost pixels have none."""
    import torch.nn.functional as functional

    rows = use[:, :, :-2] & use[:, :, 1:-1] & use[:, :, 2:]
    return functional.pad(rows[..., :-2] & rows[..., 1:-1] & rows[..., 2:], (1, 1, 1, 1))
