"""The small grey picture that copies are recognised by: its hashes, its eight turned forms, and aligning two of them.

Plain NumPy, usable without the pipeline. A signature is a 32 x 32 array of luma, 0..255.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Levels = npt.NDArray[np.uint8]

SIDE = 32
"""Side of a signature in cells."""

_HASH_SIDE = 8
_ITERATIONS = 4

TURNS = (
    "same",
    "mirrored left to right",
    "mirrored top to bottom",
    "turned by 180 degrees",
    "turned by 90 degrees to the left",
    "turned by 90 degrees to the right",
    "mirrored and turned by 90 degrees to the left",
    "mirrored and turned by 90 degrees to the right",
)
"""The eight symmetries of the square, in the order of the numbers that `turn` and `turn_coefficients` take."""


def turn(pictures: npt.NDArray[np.generic], number: int) -> npt.NDArray[np.generic]:
    """Return (N, S, S) pictures turned as `TURNS[number]` says."""
    mirrored = pictures[:, :, ::-1]
    return (
        pictures,
        mirrored,
        pictures[:, ::-1],
        mirrored[:, ::-1],
        np.rot90(pictures, 1, axes=(1, 2)),
        np.rot90(pictures, -1, axes=(1, 2)),
        np.rot90(mirrored, 1, axes=(1, 2)),
        np.rot90(mirrored, -1, axes=(1, 2)),
    )[number]


def area_weights(count: int, begin: float, end: float, size: int) -> Floats:
    """Return (count, size) weights that average `size` cells over `count` equal parts of begin..end (in cells)."""
    step = (end - begin) / count
    low = begin + np.arange(count) * step
    cells = np.arange(size)
    shared = np.minimum(low[:, None] + step, cells + 1) - np.maximum(low[:, None], cells)
    return np.asarray(np.maximum(shared, 0) / step)


def coefficients(signatures: Levels, cut: float = 0.0) -> Floats:
    """Return the (N, 8, 8) lowest DCT-II coefficients (rows, columns) of signatures (N, 32, 32).

    Args:
        cut: share cut away on each side before, 0..0.5: the coefficients that a cropped copy would have.
    """
    frequency = np.arange(_HASH_SIDE)[:, None]
    basis = np.cos(np.pi * (np.arange(SIDE) + 0.5) * frequency / SIDE)
    basis = basis @ area_weights(SIDE, SIDE * cut, SIDE * (1 - cut), SIDE)
    # Without its mean a flat picture has coefficients of exactly zero, not rounding noise.
    centred = signatures - signatures.mean((1, 2), keepdims=True)
    return np.asarray(basis @ centred @ basis.T)


def turn_coefficients(low: Floats, number: int) -> Floats:
    """Return the DCT coefficients of the pictures turned as `TURNS[number]` says, from those of the upright ones.

    Mirroring changes the sign of odd frequencies along its axis; transposing transposes.
    """
    sign = np.where(np.arange(_HASH_SIDE) % 2, -1.0, 1.0)
    columns, rows = sign[None, None, :], sign[None, :, None]
    turned = low.transpose(0, 2, 1)
    return (
        low,
        low * columns,
        low * rows,
        low * rows * columns,
        turned * rows,
        turned * columns,
        turned,
        turned * rows * columns,
    )[number]


def hashes(low: Floats) -> npt.NDArray[np.uint64]:
    """Return (N,) 64-bit hashes of DCT coefficients (N, 8, 8): bit i tells whether coefficient i exceeds the median.

    The mean (0, 0) is left out, so the highest bit is 0; the others run from low to high frequency. Source: Zauner,
    "Implementation and benchmarking of perceptual image hash functions", 2010 (pHash).
    """
    row, column = np.divmod(np.arange(_HASH_SIDE**2), _HASH_SIDE)
    order = np.lexsort((row, row + column))[1:]
    values = low.reshape(len(low), -1)[:, order]
    # Rounded, so that equal coefficients stay equal whatever the order of the sums that made them.
    values = np.round(values, 6)
    bits = values > np.median(values, axis=1, keepdims=True)
    weights = np.uint64(1) << np.arange(len(order), dtype=np.uint64)
    return np.asarray(np.where(bits, weights, np.uint64(0)).sum(1, dtype=np.uint64))


def detail(signatures: Levels) -> Floats:
    """Return (N,) RMS in grey levels of what a plane fitted to each signature leaves: 0 for flat and for a ramp."""
    x = np.arange(SIDE) - (SIDE - 1) / 2
    values = signatures - signatures.mean((1, 2), keepdims=True)
    across = values.mean(1) @ x / (x @ x)
    down = values.mean(2) @ x / (x @ x)
    values = values - across[:, None, None] * x[None, None, :] - down[:, None, None] * x[None, :, None]
    return np.asarray(np.sqrt((values**2).mean((1, 2))))


def structure(signatures: Levels) -> Floats:
    """Return (N,) share 0..1 of the signature over which its local contrast is spread (participation ratio).

    With v the variance within 3 x 3 cells, it is (sum v)^2 / sum v^2 over the number of places. A small thing on a
    plain wall has a few hundredths: too few cells to tell it from another small thing.
    """
    soft = _soften(signatures)
    variance = np.maximum(_box(soft * soft, 3) - _box(soft, 3) ** 2, 0.0)
    places = variance.shape[1] * variance.shape[2]
    squares = (variance**2).sum((1, 2))
    return np.asarray(variance.sum((1, 2)) ** 2 / np.maximum(squares, 1e-12) / places)


class Likeness(NamedTuple):
    """How alike two signatures are once aligned.

    Attributes:
        correlation: normalised correlation, -1..1.
        local: largest residual energy within 5 x 5 cells, over the local contrast there; 0 = none.
        contrast: largest residual within 3 x 3 cells (RMS) over the contrast of the whole picture; 0 = none.
    """

    correlation: Floats
    local: Floats
    contrast: Floats


def likeness(first: Levels, second: Levels, cut: Floats) -> Likeness:
    """Compare `first` with `second`, (P, 32, 32) each, after shifting and scaling `first` onto `second`.

    Scale and shift along both axes are found by Gauss-Newton steps on the squared difference (Lucas and Kanade 1981;
    Baker and Matthews 2004), gain and offset in closed form. Both are softened a little, so that resampling leaves
    no residual of its own; what remains is where the pictures really differ.

    Args:
        cut: (P,) share of `first` cut away on each side to begin with.
    """
    a, b = _soften(first), _soften(second)
    count = len(a)
    slope_y, slope_x = np.gradient(a, axis=1), np.gradient(a, axis=2)
    centre = np.arange(SIDE) - (SIDE - 1) / 2
    warp = np.zeros((count, 4))  # scale down, scale across, shift down, shift across
    warp[:, :2] = (1 - 2 * cut)[:, None]
    best, best_correlation = warp, np.full(count, -2.0)
    for _ in range(_ITERATIONS):
        down, across, fit = _fit(a, b, warp)
        better = fit.correlation > best_correlation
        best = np.where(better[:, None], warp, best)
        best_correlation = np.where(better, fit.correlation, best_correlation)
        y, x = down @ slope_y @ across * fit.inside, down @ slope_x @ across * fit.inside
        jacobian = np.stack([y * centre[:, None], x * centre, y, x], 1).reshape(count, 4, -1)
        jacobian *= fit.gain[:, None, None]
        jacobian -= jacobian.sum(2, keepdims=True) / fit.cells[:, None, None] * fit.inside.reshape(count, 1, -1)
        normal = jacobian @ jacobian.transpose(0, 2, 1) + np.diag([5.0, 5.0, 0.1, 0.1])
        change = np.linalg.solve(normal, jacobian @ fit.residual.reshape(count, -1, 1))[..., 0]
        warp = warp + np.clip(change, [-0.05, -0.05, -1, -1], [0.05, 0.05, 1, 1])
        warp = np.clip(warp, [0.85, 0.85, -3, -3], [1.18, 1.18, 3, 3])
    _, _, last = _fit(a, b, warp)
    best = np.where((last.correlation > best_correlation)[:, None], warp, best)
    _, _, fit = _fit(a, b, best)
    spread = np.sqrt((fit.target**2).sum((1, 2)) / fit.cells)
    return Likeness(fit.correlation, *_residuals(fit.residual, fit.target, fit.moved, spread))


class _Fit(NamedTuple):
    """`moved` is the first picture warped and times `gain`; all three pictures are centred and zero outside."""

    inside: Floats
    cells: Floats
    moved: Floats
    target: Floats
    residual: Floats
    gain: Floats
    correlation: Floats


def _fit(a: Floats, b: Floats, warp: Floats) -> tuple[Floats, Floats, _Fit]:
    """Warp `a` and fit it to `b`; return both interpolation matrices and the fit."""
    down, inside_down = _interpolation(warp[:, 0], warp[:, 2])
    across, inside_across = _interpolation(warp[:, 1], warp[:, 3])
    across = across.transpose(0, 2, 1)
    inside = inside_down[:, :, None] * inside_across[:, None, :]
    cells = np.maximum(inside.sum((1, 2)), 1.0)
    moved = down @ a @ across
    moved = (moved - ((moved * inside).sum((1, 2)) / cells)[:, None, None]) * inside
    target = (b - ((b * inside).sum((1, 2)) / cells)[:, None, None]) * inside
    energy_moved, energy_target = (moved**2).sum((1, 2)), (target**2).sum((1, 2))
    product = (moved * target).sum((1, 2))
    correlation = product / np.sqrt(np.maximum(energy_moved * energy_target, 1e-9))
    gain = product / np.maximum(energy_moved, 1e-9)
    moved = gain[:, None, None] * moved
    return down, across, _Fit(inside, cells, moved, target, target - moved, gain, correlation)


def _residuals(residual: Floats, target: Floats, moved: Floats, spread: Floats) -> tuple[Floats, Floats]:
    contrast = (_box(target**2, 5) - _box(target, 5) ** 2 + _box(moved**2, 5) - _box(moved, 5) ** 2) / 2
    # 4 grey levels of noise are forgiven everywhere, and 14 % of the picture's contrast.
    floor = 0.02 * spread[:, None, None] ** 2 + 16.0
    local = (_box(residual**2, 5) / (np.maximum(contrast, 0) + floor)).max((1, 2))
    largest = np.sqrt(np.maximum(_box(residual**2, 3), 0).max((1, 2)))
    return np.asarray(local), np.asarray(largest / np.maximum(spread, 1.0))


def _interpolation(scale: Floats, shift: Floats) -> tuple[Floats, Floats]:
    """Return (P, 32, 32) Catmull-Rom weights that read at scale * x + shift, and (P, 32) 1 where that is inside."""
    centre = (SIDE - 1) / 2
    at = centre + scale[:, None] * (np.arange(SIDE) - centre) + shift[:, None]
    inside = ((at > -0.5) & (at < SIDE - 0.5)).astype(np.float64)
    distance = np.abs(np.clip(at, 0, SIDE - 1)[:, :, None] - np.arange(SIDE))
    near = (1.5 * distance - 2.5) * distance * distance + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    weights = np.where(distance < 1, near, np.where(distance < 2, far, 0.0))
    return weights / weights.sum(2, keepdims=True), inside


def _soften(pictures: npt.NDArray[np.generic]) -> Floats:
    """Return pictures smoothed by [1 2 1] / 4 along both axes, edges repeated."""
    values = np.pad(np.asarray(pictures, np.float64), ((0, 0), (1, 1), (1, 1)), mode="edge")
    values = (values[:, :-2] + 2 * values[:, 1:-1] + values[:, 2:]) / 4
    return np.asarray((values[:, :, :-2] + 2 * values[:, :, 1:-1] + values[:, :, 2:]) / 4)


def _box(values: Floats, side: int) -> Floats:
    """Return means over all `side` x `side` windows that lie inside."""
    rows = values.shape[1] - side + 1
    summed = sum((values[:, k : k + rows] for k in range(1, side)), values[:, :rows])
    columns = values.shape[2] - side + 1
    return sum((summed[:, :, k : k + columns] for k in range(1, side)), summed[:, :, :columns]) / side**2
