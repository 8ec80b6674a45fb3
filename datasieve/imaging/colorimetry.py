"""Colorimetry in NumPy: sRGB and XYZ, chromaticity, correlated colour temperature, lightness.

Pure functions. Chromaticities are CIE 1931 (x, y) for the 2-degree observer unless called uv, which is CIE 1960 UCS.
Temperatures are in kelvin; `mired` is the reciprocal megakelvin, in which equal steps look about equal and which
colour-correction filters add up in.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

D65_XY = (0.3127, 0.3290)
"""White point of sRGB (IEC 61966-2-1)."""

SRGB_PRIMARIES = ((0.64, 0.33), (0.30, 0.60), (0.15, 0.06))
"""Chromaticities of red, green and blue (IEC 61966-2-1, ITU-R BT.709)."""

MIRED_RANGE = (0.0, 1000.0)
"""Range of `uv_to_mired_duv`: from an infinitely hot black body to one of 1000 K."""

# Isotemperature lines of A. R. Robertson, "Computation of Correlated Color Temperature and Distribution Temperature",
# J. Opt. Soc. Am. 58 (1968) 1528-1535: mired, u, v of the black body, slope of the line. The value of u at 325 mired
# is the corrected one (0.24792; some printings have 0.24702).
_ROBERTSON = np.array(
    [
        (0, 0.18006, 0.26352, -0.24341),
        (10, 0.18066, 0.26589, -0.25479),
        (20, 0.18133, 0.26846, -0.26876),
        (30, 0.18208, 0.27119, -0.28539),
        (40, 0.18293, 0.27407, -0.30470),
        (50, 0.18388, 0.27709, -0.32675),
        (60, 0.18494, 0.28021, -0.35156),
        (70, 0.18611, 0.28342, -0.37915),
        (80, 0.18740, 0.28668, -0.40955),
        (90, 0.18880, 0.28997, -0.44278),
        (100, 0.19032, 0.29326, -0.47888),
        (125, 0.19462, 0.30141, -0.58204),
        (150, 0.19962, 0.30921, -0.70471),
        (175, 0.20525, 0.31647, -0.84901),
        (200, 0.21142, 0.32312, -1.0182),
        (225, 0.21807, 0.32909, -1.2168),
        (250, 0.22511, 0.33439, -1.4512),
        (275, 0.23247, 0.33904, -1.7298),
        (300, 0.24010, 0.34308, -2.0637),
        (325, 0.24792, 0.34655, -2.4681),
        (350, 0.25591, 0.34951, -2.9641),
        (375, 0.26400, 0.35200, -3.5814),
        (400, 0.27218, 0.35407, -4.3633),
        (425, 0.28039, 0.35577, -5.3762),
        (450, 0.28863, 0.35714, -6.7262),
        (475, 0.29685, 0.35823, -8.5955),
        (500, 0.30505, 0.35907, -11.324),
        (525, 0.31320, 0.35968, -15.628),
        (550, 0.32129, 0.36011, -23.325),
        (575, 0.32931, 0.36038, -40.770),
        (600, 0.33724, 0.36051, -116.45),
    ]
)


def rgb_to_xyz_matrix() -> Array:
    """Return the 3 x 3 matrix from linear sRGB to XYZ with Y = 1 for white, derived from primaries and white."""
    primaries = np.stack([_xy_to_xyz(*p) for p in SRGB_PRIMARIES], axis=1)
    scale = np.linalg.solve(primaries, _xy_to_xyz(*D65_XY))
    return np.asarray(primaries * scale)


def _xy_to_xyz(x: float, y: float) -> Array:
    return np.array([x / y, 1.0, (1 - x - y) / y])


def xy_to_xyz(xy: npt.ArrayLike) -> Array:
    """Return XYZ, (..., 3), with Y = 1 of chromaticities (..., 2)."""
    xy = np.asarray(xy, np.float64)
    x, y = xy[..., 0], xy[..., 1]
    return np.stack([x / y, np.ones_like(x), (1 - x - y) / y], axis=-1)


def rgb_to_xy(rgb: npt.ArrayLike) -> Array:
    """Return chromaticities, (..., 2), of linear sRGB, (..., 3), of any scale. Black gives NaN."""
    xyz = np.asarray(rgb, np.float64) @ rgb_to_xyz_matrix().T
    total = xyz.sum(-1, keepdims=True)
    return np.asarray(np.divide(xyz[..., :2], total, out=np.full(xyz[..., :2].shape, np.nan), where=total > 0))


def xy_to_rgb(xy: npt.ArrayLike) -> Array:
    """Return linear sRGB, (..., 3), of chromaticities (..., 2) at luminance Y = 1; out of gamut it has negatives."""
    return np.asarray(xy_to_xyz(xy) @ np.linalg.inv(rgb_to_xyz_matrix()).T)


def xy_to_uv(xy: npt.ArrayLike) -> Array:
    """Return CIE 1960 (u, v) of CIE 1931 (x, y), both (..., 2)."""
    xy = np.asarray(xy, np.float64)
    d = -2 * xy[..., 0] + 12 * xy[..., 1] + 3
    return np.stack([4 * xy[..., 0] / d, 6 * xy[..., 1] / d], axis=-1)


def uv_to_xy(uv: npt.ArrayLike) -> Array:
    """Return CIE 1931 (x, y) of CIE 1960 (u, v), both (..., 2)."""
    uv = np.asarray(uv, np.float64)
    d = 2 * uv[..., 0] - 8 * uv[..., 1] + 4
    return np.stack([3 * uv[..., 0] / d, 2 * uv[..., 1] / d], axis=-1)


def planck_uv(kelvin: npt.ArrayLike) -> Array:
    """Return (u, v), (..., 2), of a black body at 1000 to 15000 K, within 1e-4.

    Rational approximation of M. Krystek, "An algorithm to calculate correlated colour temperature",
    Color Research & Application 10 (1985) 38-40.
    """
    t = np.asarray(kelvin, np.float64)
    u = (0.860117757 + 1.54118254e-4 * t + 1.28641212e-7 * t**2) / (1 + 8.42420235e-4 * t + 7.08145163e-7 * t**2)
    v = (0.317398726 + 4.22806245e-5 * t + 4.20481691e-8 * t**2) / (1 - 2.89741816e-5 * t + 1.61456053e-7 * t**2)
    return np.stack([u, v], axis=-1)


def planck_xy(kelvin: npt.ArrayLike) -> Array:
    """Return (x, y), (..., 2), of a black body at 1000 to 15000 K (see `planck_uv`)."""
    return uv_to_xy(planck_uv(kelvin))


def daylight_xy(kelvin: npt.ArrayLike) -> Array:
    """Return (x, y), (..., 2), of CIE daylight at a correlated colour temperature of 4000 to 25000 K (CIE 15:2004)."""
    t = np.asarray(kelvin, np.float64)
    k = 1e3 / t
    low = ((-4.6070 * k + 2.9678) * k + 0.09911) * k + 0.244063
    high = ((-2.0064 * k + 1.9018) * k + 0.24748) * k + 0.237040
    x = np.where(t <= 7000, low, high)
    return np.stack([x, (-3.0 * x + 2.870) * x - 0.275], axis=-1)


def _isotherms() -> Array:
    """Robertson's lines with those of 610 to 1000 mired added from Krystek's locus; rows (mired, u, v, nu, nv).

    (nu, nv) is the unit vector along the line, to its greenish side (positive Duv).
    """
    mired, u, v, slope = _ROBERTSON.T
    along = np.stack([np.ones_like(slope), slope], 1) / np.hypot(1, slope)[:, None]
    along = np.where(along[:, 1:] < 0, -along, along)
    known = np.column_stack([mired, u, v, along])
    more = np.arange(610.0, MIRED_RANGE[1] + 1, 10)
    step = planck_uv(1e6 / (more + 1)) - planck_uv(1e6 / (more - 1))
    step /= np.hypot(step[:, 0], step[:, 1])[:, None]
    added = np.column_stack([more, planck_uv(1e6 / more), -step[:, 1], step[:, 0]])
    return np.vstack([known, added])


_LINES = _isotherms()


def uv_to_mired_duv(uv: npt.ArrayLike) -> tuple[Array, Array]:
    """Return the correlated colour temperature in mired and Duv of CIE 1960 chromaticities.

    Robertson's method: the signed distances to isotemperature lines change sign between two of them, and the
    temperature is interpolated there in mired (error below 0.1 mired near the locus). His table ends at 600 mired
    (1667 K); lines up to 1000 mired are added from Krystek's locus.
    Duv is the distance to the black-body locus, positive above it (greenish), negative below (pinkish), as in
    ANSI C78.377; Y. Ohno, "Practical Use and Calculation of CCT and Duv", LEUKOS 10 (2014) 47-55.

    Args:
        uv: (..., 2). Outside `MIRED_RANGE`, or not a number, the answer is NaN.

    Returns:
        mired and Duv, both of shape (...).
    """
    uv = np.asarray(uv, np.float64)
    flat = uv.reshape(-1, 2)
    du, dv = flat[:, :1] - _LINES[:, 1], flat[:, 1:] - _LINES[:, 2]
    # Distance from each line, positive where it is cooler in kelvin (more mired).
    side = du * _LINES[:, 4] - dv * _LINES[:, 3]
    mired, duv = np.full(len(flat), np.nan), np.full(len(flat), np.nan)
    crossing = (side[:, :-1] >= 0) & (side[:, 1:] < 0)
    # Far from the locus the lines cross one another; the crossing nearest to the locus is the one that counts.
    gap = np.where(crossing, np.hypot(du, dv)[:, :-1], np.inf)
    row = np.arange(len(flat))
    i = gap.argmin(1)
    found = crossing[row, i]
    row, i = row[found], i[found]
    before, after = side[row, i], -side[row, i + 1]
    share = (before / (before + after))[:, None]
    low, high = _LINES[i], _LINES[i + 1]
    mixed = low + share * (high - low)
    mired[row] = mixed[:, 0]
    normal = mixed[:, 3:] / np.hypot(mixed[:, 3], mixed[:, 4])[:, None]
    duv[row] = ((flat[row] - mixed[:, 1:3]) * normal).sum(1)
    return mired.reshape(uv.shape[:-1]), duv.reshape(uv.shape[:-1])


def xy_to_cct_duv(xy: npt.ArrayLike) -> tuple[Array, Array]:
    """Return correlated colour temperature in kelvin and Duv of (x, y); NaN where `uv_to_mired_duv` gives it."""
    mired, duv = uv_to_mired_duv(xy_to_uv(xy))
    return mired_to_kelvin(mired), duv


def kelvin_to_mired(kelvin: npt.ArrayLike) -> Array:
    """Return 1e6 / kelvin."""
    return np.asarray(1e6 / np.asarray(kelvin, np.float64))


def mired_to_kelvin(mired: npt.ArrayLike) -> Array:
    """Return 1e6 / mired; NaN for 0."""
    values = np.asarray(mired, np.float64)
    return np.asarray(np.divide(1e6, values, out=np.full(values.shape, np.nan), where=values > 0))


def angle(a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
    """Return the angle in degrees, 0 to 180, between vectors (..., 3): the usual error of illuminant estimates.

    G. D. Finlayson, B. V. Funt, K. Barnard, "Color constancy under varying illumination", ICCV 1995.
    A zero vector gives NaN.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    # atan2 keeps small angles exact where the arc cosine loses half the digits.
    sine = np.linalg.norm(np.cross(a, b), axis=-1)
    cosine = (a * b).sum(-1)
    zero = (np.linalg.norm(a, axis=-1) == 0) | (np.linalg.norm(b, axis=-1) == 0)
    return np.where(zero, np.nan, np.degrees(np.arctan2(sine, cosine)))


def lightness(luminance: npt.ArrayLike) -> Array:
    """Return CIE 1976 L*, 0 to 100, of relative luminance Y in [0, 1] (CIE 15:2004)."""
    y = np.asarray(luminance, np.float64)
    return np.where(y > (6 / 29) ** 3, 116 * np.cbrt(y) - 16, y * (29 / 3) ** 3)
