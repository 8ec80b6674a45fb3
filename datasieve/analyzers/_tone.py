"""Exposure, tone and colour statistics of pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from datasieve.imaging import colorimetry, illuminant

if TYPE_CHECKING:
    import torch

Floats = npt.NDArray[np.float64]
CHANNELS = ("red", "green", "blue")


def exposure(linear: torch.Tensor, encoded: torch.Tensor, mask: torch.Tensor) -> dict[str, Floats]:
    """Return exposure, tone and colour statistics, (B,) each; the names are the columns' less the prefix.

    Args as in `estimates`.
    """
    import torch

    inside = mask.to(linear.dtype)
    count = inside.sum((2, 3))
    mean = (encoded * inside).sum((2, 3)) / count
    variance = ((encoded - mean[:, :, None, None]).square() * inside).sum((2, 3)) / count
    brightest = encoded.amax(1, keepdim=True)
    high = ((brightest > illuminant.CLIPPED) & mask).sum((1, 2, 3)) / count[:, 0]
    low = ((brightest < illuminant.CLIPPED_LOW) & mask).sum((1, 2, 3)) / count[:, 0]

    matrix = torch.from_numpy(_RGB_TO_LAB_CONES).to(linear)
    xyz = torch.einsum("ij,bjhw->bihw", matrix, linear)
    f = torch.where(xyz > (6 / 29) ** 3, xyz.clamp(min=1e-6).pow(1 / 3), xyz * ((29 / 6) ** 2 / 3) + 4 / 29)
    a, b = 500 * (f[:, :1] - f[:, 1:2]), 200 * (f[:, 1:2] - f[:, 2:])
    chroma = (torch.hypot(a, b) * inside).sum((1, 2, 3)) / count[:, 0]
    lightness = (116 * f[:, 1:2] - 16).clamp(0, 100)
    average = (lightness * inside).sum((1, 2, 3)) / count[:, 0]

    planes, where = lightness[:, 0].cpu().numpy(), mask[:, 0].cpu().numpy()
    quantiles = np.array([_quantiles(np.extract(where[i], planes[i])) for i in range(len(planes))])
    l_mean = average.double().cpu().numpy()
    highlight = quantiles[:, 2]
    out = {
        "clipped-high": high,
        "clipped-low": low,
        "saturation": chroma,
        **{f"mean-{c}": mean[:, i] for i, c in enumerate(CHANNELS)},
        **{f"std-{c}": variance[:, i].sqrt() for i, c in enumerate(CHANNELS)},
    }
    return {
        **{name: values.double().cpu().numpy() for name, values in out.items()},
        "lightness": l_mean,
        "highlight": highlight,
        "contrast": quantiles[:, 1] - quantiles[:, 0],
        # A black picture has no tones.
        "depth": np.clip(1 - np.divide(l_mean, highlight, out=np.full(len(l_mean), np.nan), where=highlight > 1), 0, 1),
    }


_RGB_TO_LAB_CONES = colorimetry.rgb_to_xyz_matrix() / colorimetry.rgb_to_xyz_matrix().sum(1, keepdims=True)
"""Linear sRGB to X, Y, Z relative to white."""

_QUANTILES = (0.05, 0.95, 0.99)


def _quantiles(values: npt.NDArray[np.float32]) -> list[float]:
    """Return `_QUANTILES` of a flat array, each the value of that rank."""
    ranks = [round(q * (len(values) - 1)) for q in _QUANTILES]
    return [float(v) for v in np.partition(values, ranks)[ranks]]
