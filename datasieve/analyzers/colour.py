"""Light, exposure, tone and colour of each image, and how far it strays from its set.

What. The colour of the light (two estimates, as correlated colour temperature, Duv and angle from D65), clipped shares,
lightness, contrast, saturation, how deep the tones lie below the highlights, mean and spread of each channel; over the
set, the distance of these from the concept's median.

Why it hurts. A token or adapter learns everything its images share, and a few odd ones pull it about. An orange cast
becomes part of the object; a clipped or black area has no gradient towards the object's shape; an image of another
tone or palette gives a loss that jumps whenever its turn comes.

Method. The light by shades of grey (Finlayson & Trezzi 2004) and grey edge (van de Weijer et al. 2007) in linear RGB,
clipped pixels left out; colour temperature by Robertson 1968 on the mean of both directions. A lamp or the sky is
never far from the daylight locus, so a cast only counts in `colour.cast` as far as both estimates agree on it and
the colour could be that of a lamp. The rest are plain statistics. All at a longer side of 128 px: these are
statistics of large areas, which twice as many pixels a side moved by less than the sets differ (casts of 2800 to
12000 K were read within 20 mired at either size), at a quarter of the time.

Where it fails. One picture cannot tell an orange wall in white light from a white wall in orange light: sunsets, woods
and plain coloured backdrops read as casts, and a weak or bluish cast drowns among them. Compare with the set.
Nor can it tell a wrong gamma from a dark scene with bright spots, or overexposure from a product on a white sheet.
Area averaging hides clipped specks smaller than about 1/128 of the picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from datasieve.analyzers import Comparison
from datasieve.batch import View
from datasieve.imaging import colorimetry, illuminant
from datasieve.rules import Rule
from datasieve.schema import Column

if TYPE_CHECKING:
    import pyarrow as pa
    import torch

    from datasieve.batch import Batch
    from datasieve.config import Settings

Floats = npt.NDArray[np.float64]

LINEAR = View(128, "linear")
ENCODED = View(128, "srgb")

MAX_DUV = 0.05
"""Farther from the black-body locus a colour temperature says nothing (CIE 15:2004, 9.5)."""

LAMP_DUV = 0.0075
"""How far the light may lie from the daylight locus, in Duv, before a shift counts less as a cast."""

DUV_WEIGHT = 20_000.0
"""Mired taken off a cast for each unit of Duv beyond `LAMP_DUV`; gradual, so that no cast appears out of nowhere."""

MIN_PIXELS = 64
"""Unclipped pixels needed to judge the light."""

MIN_EDGE = 1e-4
"""Mean gradient in linear light per px below which an image is flat, and has no light to judge."""

MIN_IMAGES = 4
"""Images needed for a robust centre."""

CHANNELS = ("red", "green", "blue")


def light(greys: Floats, edges: Floats) -> dict[str, Floats]:
    """Describe the light from its two estimates.

    Args:
        greys, edges: (B, 3) linear sRGB of any scale, by shades of grey and by grey edge; NaN where unknown.

    Returns:
        (B,) each: red, green, blue (shares, sum 1), cct (K), mired, duv, angle from D65 (degrees), spread between the
        estimates (degrees), cast (mired). NaN where undefined; cct and mired also where |duv| > `MAX_DUV`.
    """
    unit = [_divide(e, np.linalg.norm(e, axis=-1, keepdims=True)) for e in (greys, edges)]
    both = unit[0] + unit[1]
    mired, duv = _mired(both)
    shares = _divide(both, both.sum(-1, keepdims=True))
    near = np.abs(duv) <= MAX_DUV
    mired = np.where(near, mired, np.nan)
    return {
        **{c: shares[..., i] for i, c in enumerate(CHANNELS)},
        "cct": colorimetry.mired_to_kelvin(mired),
        "mired": mired,
        "duv": duv,
        "angle": colorimetry.angle(both, np.ones(3)),
        "spread": colorimetry.angle(*unit),
        "cast": cast(*unit),
    }


def cast(greys: Floats, edges: Floats) -> Floats:
    """Return how far, in mired, both estimates agree that the light of a lamp or of the sky is from D65.

    The smaller of both shifts; 0 where one is warm and the other cool, or where either lies off the daylight locus.
    Args as in `light`; NaN where an estimate is.
    """
    white, white_duv = _mired(np.ones(3))
    shifts = []
    for estimate in (greys, edges):
        mired, duv = _mired(estimate)
        excess = np.maximum(np.abs(duv - white_duv) - LAMP_DUV, 0)
        shift = mired - white
        shifts.append(np.sign(shift) * np.maximum(np.abs(shift) - DUV_WEIGHT * excess, 0))
    # Where there is no temperature at all (deeper blue than any sky), it is no lamp.
    a, b = (np.nan_to_num(s) for s in shifts)
    agreed = np.where(a * b > 0, np.minimum(np.abs(a), np.abs(b)), 0.0)
    return np.where(np.isnan(greys + edges).any(-1), np.nan, agreed)


def _mired(rgb: Floats) -> tuple[Floats, Floats]:
    return colorimetry.uv_to_mired_duv(colorimetry.xy_to_uv(colorimetry.rgb_to_xy(rgb)))


def _divide(a: Floats, b: Floats) -> Floats:
    return np.divide(a, b, out=np.full(a.shape, np.nan), where=b > 0)


def estimates(
    linear: torch.Tensor, encoded: torch.Tensor, mask: torch.Tensor
) -> tuple[Floats, Floats, list[str | None]]:
    """Return the light by shades of grey and by grey edge, (B, 3) each, and why it is unknown where it is NaN.

    Args:
        linear, encoded: (B, 3, H, W) in [0, 1].
        mask: (B, 1, H, W) bool, where the image is (upper left corner).
    """
    use = illuminant.usable(encoded, mask)
    greys = illuminant.shades_of_grey(linear, use).double().cpu().numpy()
    edges = illuminant.grey_edge(linear, use, mask).double().cpu().numpy()
    count = use.sum((1, 2, 3)).cpu().numpy()
    dark, flat = count < MIN_PIXELS, edges.mean(-1) < MIN_EDGE
    unknown = dark | flat
    greys[unknown], edges[unknown] = np.nan, np.nan
    reasons: list[str | None] = [
        f"light: only {n} of the pixels are neither clipped nor black" if d else "light: no edges to judge it by" if f else None
        for n, d, f in zip(count, dark, flat, strict=True)
    ]
    return greys, edges, reasons


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
    quantiles = np.array([_quantiles(p[w]) for p, w in zip(planes, where, strict=True)])
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


def distances(values: Floats, groups: Sequence[str]) -> tuple[Floats, Floats]:
    """Return each row's signed differences from the robust centre of its group, and that centre; (N, C) each.

    The centre is the median of each column over the group's measured rows; of the whole set's where the group has
    fewer than `MIN_IMAGES`. NaN where the row is, or where the whole set has too few.

    Args:
        values: (N, C), NaN where not measured.
        groups: N names.
    """
    known = ~np.isnan(values).any(-1)
    centre = np.full(values.shape, np.nan)
    if known.sum() >= MIN_IMAGES:
        centre[:] = np.median(values[known], axis=0)
    _, group = np.unique(np.asarray(groups, dtype=object).astype(str), return_inverse=True)
    order = np.argsort(group, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        own = rows[known[rows]]
        if len(own) >= MIN_IMAGES:
            centre[rows] = np.median(values[own], axis=0)
    return values - centre, centre


def _table(table: pa.Table, prefix: str) -> Floats:
    columns = [table[f"colour.{prefix}-{c}"].to_numpy(zero_copy_only=False) for c in CHANNELS]
    return np.stack([np.asarray(c, np.float64) for c in columns], axis=1)
