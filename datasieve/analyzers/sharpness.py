"""How sharp the sharpest part of a picture is, how fine its detail goes, and whether it is finer along one axis.

What. `focus`: blur radius of the sharper edges in px of the working picture. `cutoff`: frequency at which the file's
own pixels run out of detail, as a share of the Nyquist frequency; `reach`: the same counted against the working
picture, which training sees; `detail-side`: the short side in px that would hold all the detail. `anisotropy`: how
many times finer the detail is along one axis than along the other, which camera shake does.

Why it hurts. A diffusion model learns blur as faithfully as anything else: a few soft pictures teach the token or the
adapter that the subject is soft, and every image generated with it is. An enlarged thumbnail fills the training
resolution with pixels but has nothing to say in the high frequencies, so the last steps of denoising learn smoothness.

Method. Focus: at the strongest pixel of each 16 px cell, the 256 strongest of them, the gradient of the picture blurred
by 1 px is compared with the one blurred by 2 px; for a step edge their ratio gives its blur in closed form (Zhuo and
Sim, Defocus map estimation from a single image, Pattern Recognition 44, 2011). The first quartile of these radii is
the focus: a quarter of the edges may decide, so a blurred background does not hide a sharp subject. Cut-off: power
spectra of native 64 px tiles under a Hann window, the eight most detailed ones, multiplied by f^2 because natural
images fall that way (Field, JOSA A 4, 1987); the cut-off is where that stays 10 dB below its low-frequency peak.

Where it fails. Fine texture reads as an edge of radius 0, so sharp pictures differ little among each other. Fewer
than a quarter sharp edges (a tiny sharp subject before much softer structure) reads as blurred. Noise added after a
blur hides the cut-off. Cut-off does not tell enlargement from defocus: a low cut-off with a focus radius that is small
for it points to enlargement. Shake is seen near the horizontal and the vertical only, and stripes along an axis,
without any sharp edge across them, look like it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from datasieve.batch import TILE_SIDE, Tiles, View
from datasieve.rules import Rule
from datasieve.schema import Column

if TYPE_CHECKING:
    import torch

    from datasieve.batch import Batch

Floats = npt.NDArray[np.float64]

VIEW = View(512, "luma")

FINE, COARSE = 1.0, 2.0
"""Sigmas in px of the two blurs whose gradients are compared."""

CELL, MOST = 16, 256
"""One candidate edge per cell of this side in px, and at most so many of them per picture."""

MIN_SLOPE = 0.008
"""Smallest slope per px of the coarser blur that counts as an edge; about ten times what sensor noise gives."""

MIN_EDGES, MIN_ACROSS = 12, 8
"""Fewest edges that make a focus, and that can clear a picture of camera shake."""

MAX_RADIUS = 10.0
"""Blur radii beyond this in px are not told apart."""

SHARP_RADIUS = 0.3
"""An edge of a radius below this in px is sharp."""

BEST_TILES, DROP_DB = 8, 10.0
"""The most detailed tiles that are averaged, and the fall that ends the detail."""

MIN_POWER, MIN_TILES = 3e-5, 3
"""A tile with less power between 1/16 and 1/4 of Nyquist is too smooth; so many others are needed."""

_REACH = 6  # half the side of an edge's patch: three sigmas of the coarser blur


def edge_blur(luma: torch.Tensor) -> tuple[Floats, Floats]:
    """Return the blur of the strongest edges.

    Args:
        luma: (h, w) float, encoded luma in [0, 1].

    Returns:
        radius: (n,) sigma in px, 0 to `MAX_RADIUS`; 0 also where the structure is finer than a step edge.
        angle: (n,) direction of the gradient in radians, 0 along the rows, pi/2 down the columns.
        n is 0 for pictures that are smaller than 16 px or have no edges.

    An edge that runs exactly between two pixels is read half a pixel off its crest: a perfect step there as 0.54 px, a
    radius of 1 px as 1.15 px, larger ones nearly right.
    """
    import torch
    import torch.nn.functional as functional

    side = 2 * _REACH + 1
    if min(luma.shape) < side + 3:
        return np.empty(0), np.empty(0)
    # Central differences, at the pixels around which a whole patch fits.
    rows, columns = luma[_REACH:-_REACH], luma[:, _REACH:-_REACH]
    dx = rows[:, _REACH + 1 : 1 - _REACH] - rows[:, _REACH - 1 : -1 - _REACH]
    dy = columns[_REACH + 1 : 1 - _REACH] - columns[_REACH - 1 : -1 - _REACH]
    strength = dx.square_().addcmul_(dy, dy)
    # The strongest pixel of each cell, by groups of four rows first: indexed pooling is slow, maxima are not.
    width = strength.shape[1]
    fours = strength[: len(strength) // 4 * 4].view(-1, 4, width)
    pairs = torch.maximum(fours[:, :2], fours[:, 2:])
    best, place = functional.max_pool2d(
        torch.maximum(pairs[:, 0], pairs[:, 1])[None, None], (CELL // 4, CELL), ceil_mode=True, return_indices=True
    )
    place = place.flatten()
    if len(place) > MOST:
        place = place[best.flatten().topk(MOST).indices]
    group, x = place // width, place % width
    y = 4 * group + fours[group, :, x].argmax(1)
    patches = luma.unfold(0, side, 1).unfold(1, side, 1)[y, x].reshape(len(place), side * side)
    fine_x, fine_y, coarse_x, coarse_y = (patches @ torch.from_numpy(_kernels()).to(luma)).double().cpu().numpy().T
    fine = np.hypot(fine_x, fine_y)
    coarse = (fine_x * coarse_x + fine_y * coarse_y) / np.maximum(fine, 1e-9)
    edge = coarse > MIN_SLOPE
    fine, coarse, angle = fine[edge], coarse[edge], np.arctan2(fine_y[edge], fine_x[edge])
    # A step of radius s has slopes in the ratio sqrt((s^2 + COARSE^2) / (s^2 + FINE^2)).
    ratio = (fine / coarse) ** 2
    square = (COARSE**2 - ratio * FINE**2) / np.maximum(ratio - 1, 1e-6)
    return np.sqrt(np.clip(square, 0.0, MAX_RADIUS**2)), angle


@lru_cache(maxsize=1)
def _kernels() -> npt.NDArray[np.float32]:
    """Return Gaussian derivatives along x and y, first the fine and then the coarse ones, (169, 4)."""
    a = np.arange(-_REACH, _REACH + 1.0)
    kernels = []
    for sigma in (FINE, COARSE):
        gauss = np.exp(-(a**2) / (2 * sigma**2))
        gauss /= gauss.sum()
        slope = a * gauss / (a**2 * gauss).sum()
        kernels += [np.outer(gauss, slope).ravel(), np.outer(slope, gauss).ravel()]
    return np.stack(kernels, 1).astype(np.float32)


def tile_spectra(tiles: torch.Tensor) -> torch.Tensor:
    """Return the power of luma by frequency along x and along y, (..., 2, 33) float32.

    Args:
        tiles: (..., 3, 64, 64) float, encoded RGB in [0, 1]. Bin 32 is the Nyquist frequency; powers over the other
            axis are summed, and those of a tile add up to about half its variance.
    """
    import torch

    red, green, blue = tiles.unbind(-3)
    luma = red * 0.2125
    luma.add_(green, alpha=0.7154).add_(blue, alpha=0.0721)
    luma -= luma.mean((-2, -1), keepdim=True)
    window = torch.hann_window(TILE_SIDE, periodic=False, device=tiles.device)
    waves = torch.fft.rfft2(luma.mul_(window[:, None] * window))
    power = waves.real.square().addcmul_(waves.imag, waves.imag)
    # The half plane lacks negative f_x: their power along y is that of positive f_x at -f_y. Columns 0 and Nyquist are
    # their own mirror images, so they count half in each.
    half = TILE_SIDE // 2
    rows = power.sum(-1) - 0.5 * (power[..., 0] + power[..., half])
    along_y = rows[..., : half + 1] + torch.cat([rows[..., :1], rows[..., half:].flip(-1)], -1)
    return torch.stack([power.sum(-2), along_y], -2) / (TILE_SIDE**2 * window.square().sum() ** 2)


def cutoff(power: Floats) -> Floats:
    """Return where the detail ends, as a share of the Nyquist frequency, in (0, 1], for each of (n, 33) spectra.

    The spectrum is multiplied by f^2 and smoothed; from its peak below 7/32 on, the first frequency is taken at which
    it falls `DROP_DB` below that peak and stays there for three bins. 1 where it never does.
    """
    bins = power.shape[-1]
    white = np.pad(power * np.arange(bins) ** 2.0, ((0, 0), (1, 1)), mode="edge")
    white = 0.25 * white[:, :-2] + 0.5 * white[:, 1:-1] + 0.25 * white[:, 2:]
    peak, top = white[:, 1:7].max(1), 1 + white[:, 1:7].argmax(1)
    level = 10 * np.log10(np.maximum(white, 1e-30) / np.maximum(peak, 1e-30)[:, None]) + DROP_DB
    low = level < 0
    gone = low[:, :-2] & low[:, 1:-1] & low[:, 2:] & (np.arange(bins - 2) > top[:, None])
    end = gone.argmax(1)
    row = np.arange(len(power))
    before, after = level[row, end - 1], level[row, end]
    share = (end - 1 + before / np.maximum(before - after, 1e-6)) / (bins - 1)
    return np.where(gone.any(1), np.clip(share, 1 / (bins - 1), 1.0), 1.0)


def detail(spectra: Floats) -> tuple[float, float, float] | None:
    """Return the cut-off of a picture, and those along x and y, each a share of the Nyquist frequency.

    Args:
        spectra: (n, 2, 33), from `tile_spectra`.

    The first is that of the mean spectrum of the most detailed tiles, the others are medians over these tiles. None
    when fewer than `MIN_TILES` tiles have any detail.
    """
    power = spectra[:, :, 2:9].sum((1, 2))
    best = np.argsort(-power, kind="stable")[:BEST_TILES]
    best = best[power[best] > MIN_POWER]
    if len(best) < MIN_TILES:
        return None
    chosen = spectra[best]
    ends = cutoff(np.concatenate([chosen.mean((0, 1))[None], chosen[:, 0], chosen[:, 1]]))
    along_x, along_y = np.median(ends[1:].reshape(2, -1), axis=1)
    return float(ends[0]), float(along_x), float(along_y)


def quartile(radius: Floats) -> float:
    """Return the radius that a quarter of the edges fall short of, in px; `radius` is (n,) with n at least 1."""
    return float(np.partition(radius, len(radius) // 4)[len(radius) // 4])


def anisotropy(along_x: float, along_y: float, radius: Floats, angle: Floats) -> float:
    """Return how many times finer the detail is along one axis than along the other, from 1 to 32.

    Args:
        along_x, along_y: cut-off along either axis.
        radius, angle: edges, from `edge_blur`. Where those across the weaker axis are sharp nothing has been blurred
            along it, the picture is merely striped, and the answer is 1.
    """
    along = np.abs(np.cos(angle)) > np.abs(np.sin(angle))
    across = radius[along if along_x < along_y else ~along]
    if len(across) >= MIN_ACROSS and quartile(across) < SHARP_RADIUS:
        return 1.0
    return max(along_x, along_y) / min(along_x, along_y)


_HOW_FOCUS = (
    "At up to 256 strong edges of the working picture (longer side at most 512 px) the slope after a blur of 1 px is "
    "compared with that after 2 px, which for a step edge gives its blur radius; the first quartile is reported, so a "
    "blurred background beside a sharp subject does not count. Fails on a tiny sharp subject before soft structure, "
    "and reads low after heavy JPEG compression."
)
_HOW_CUTOFF = (
    "Power spectra of the eight most detailed of 16 native tiles of 64 px, times f^2; the detail ends where that stays "
    "10 dB below its low-frequency peak. The rule counts this against the working picture of at most 512 px, so a soft "
    "12-megapixel photo that is sharp once reduced passes. Defocus ends the detail as enlargement does; noise or "
    "JPEG blocks added later hide the end."
)
_ZHUO = "Zhuo and Sim, Defocus map estimation from a single image, Pattern Recognition 44 (2011)"
_FIELD = "Field, Relations between the statistics of natural images, JOSA A 4 (1987)"


class Sharpness:
    """Blur radius of the sharper edges, and where the detail of the file ends."""

    version = 1
    views: tuple[View | Tiles, ...] = (VIEW, Tiles())
    needs: tuple[str, ...] = ()
    columns = (
        Column(
            "sharpness.focus",
            unit="px",
            description="Blur radius (sigma) of the sharpest quarter of the edges in px of the working picture; high "
            "is blurred.",
            low=0.0,
            high=MAX_RADIUS,
            source=_ZHUO,
            tolerance=0.02,
        ),
        Column(
            "sharpness.cutoff",
            unit="share of Nyquist",
            description="Frequency at which the file's own pixels run out of detail; low is enlarged or blurred.",
            low=0.0,
            high=1.0,
            source=_FIELD,
            tolerance=0.01,
        ),
        Column(
            "sharpness.reach",
            unit="share of Nyquist",
            description="The cut-off counted against the working picture of at most 512 px; low leaves training "
            "without fine detail.",
            low=0.0,
            high=1.0,
            source=_FIELD,
            tolerance=0.01,
        ),
        Column(
            "sharpness.detail-side",
            unit="px",
            description="Short side that would hold all the detail of the file; far below its short side is enlarged "
            "or blurred.",
            low=0.0,
            source=_FIELD,
            tolerance=100.0,  # the cut-off's tolerance times the largest usual side
        ),
        Column(
            "sharpness.anisotropy",
            unit="ratio",
            description="How many times finer the detail is along one axis than along the other; high is motion blur.",
            low=1.0,
            high=float(TILE_SIDE // 2),
            source=_FIELD,
            tolerance=0.05,
        ),
    )
    rules = (
        Rule(
            id="sharpness.blurred",
            column="sharpness.focus",
            side="above",
            limit=0.85,
            severity="warning",
            title="Blurred picture",
            message="Even the sharper edges are blurred over {value:.1f} px (limit {limit} px at 512 px); training on "
            "it teaches that your subject is soft.",
            remedy="Replace it by a sharp picture; sharpening brings no detail back.",
            why="Blur is learned like any other trait. With few pictures and many repeats one or two soft ones are "
            "enough for soft results, and a token has no words to tell blur from subject.",
            how=_HOW_FOCUS,
            source=_ZHUO,
            evidence="limit chosen on 12 subjects, reported on 11 others. Hits: Gaussian blur at 768 px of 5 px 15 of "
            "15, 2.5 px 4 of 4, 1.2 px 0 of 4; enlarged from 96 px 3 of 3. False alarms: 0 of 108 subject photos, many "
            "with a shallow depth of field, 0 of 241 encyclopedia pictures, 5 of 400 photos (1.3 %).",
        ),
        Rule(
            id="sharpness.upscaled",
            column="sharpness.reach",
            side="below",
            limit=0.45,
            severity="warning",
            title="Enlarged or soft picture",
            message="The file holds detail for a short side of only about {sharpness.detail-side:.0f} px; it was "
            "enlarged or is out of focus, and training at {resolution} px will learn smooth, plastic surfaces from it.",
            remedy="Replace it by the original in full size, or leave it out if there is none.",
            why="An enlarged thumbnail has pixels but no fine detail. The denoiser learns that the subject has none, "
            "and results come out smooth and waxy; mixed with sharp pictures it also makes the loss at low noise jump.",
            how=_HOW_CUTOFF,
            source=_FIELD,
            evidence="limit chosen on 12 subjects, reported on 11 others. Hits for 768 px files enlarged from a short "
            "side of 96 px 3 of 3, 160 px 2 of 3 (the third has too little detail to be measured), 256 px 1 of 3; also "
            "Gaussian blur of 2.5 px or more 18 of 19. False alarms: 0 of 108 subject photos, 0 of 241 encyclopedia "
            "pictures, 3 of 400 photos (0.8 %).",
        ),
        Rule(
            id="sharpness.motion",
            column="sharpness.anisotropy",
            side="above",
            limit=2.0,
            severity="info",
            title="Motion blur",
            message="Detail is {value:.1f} times finer along one axis than along the other (limit {limit}): the camera "
            "or the subject moved, and training will learn the smear.",
            remedy="Look at it at full size; replace it if it is smeared, ignore this if the subject is striped.",
            why="A smear repeats one picture's accident at every step it is trained on. Several of them teach the "
            "adapter that edges in one direction do not exist.",
            how="The cut-off of the spectrum along either axis, median over the eight most detailed native tiles, as a "
            "ratio. Set to 1 where sharp edges lie across the weaker axis, for nothing has been smeared along it. "
            "Slanted shake escapes; panelling, louvres and long grass look like motion.",
            source=_FIELD,
            evidence="limit chosen on 12 subjects, reported on 11 others. Hits for horizontal motion at 768 px of 21 "
            "px 4 of 5, 9 px 4 of 4. False alarms: 0 of 108 subject photos, 0 of 241 encyclopedia pictures, 16 of 400 "
            "photos (4 %), 11 of them crops of one louvred facade and of wood panelling, one a real motion blur.",
        ),
    )

    def measure(self, batch: Batch) -> Mapping[str, Sequence[Any]]:
        """Return the five columns. Null where a picture has too few edges, or its tiles too little detail."""
        luma, _ = batch.pixels(VIEW)
        tiles, real = batch.tiles()
        spectra = tile_spectra(tiles).double().cpu().numpy()
        present = real.cpu().numpy()
        out: dict[str, list[Any]] = {c.name: [None] * len(batch) for c in self.columns}
        out["sharpness.unmeasured"] = [None] * len(batch)
        for b, (h, w) in enumerate(batch.sizes(VIEW.side)):
            reasons = []
            radius, angle = edge_blur(luma[b, 0, :h, :w])
            if len(radius) >= MIN_EDGES:
                out["sharpness.focus"][b] = quartile(radius)
            else:
                reasons.append("too few edges for the focus")
            found = detail(spectra[b][present[b]])
            if found is None:
                reasons.append("too little detail for the cut-off")
            else:
                share, along_x, along_y = found
                facts = batch.facts[b]
                if facts.orientation >= 5:  # tiles are as stored, edges as displayed
                    along_x, along_y = along_y, along_x
                size = (facts.width or w, facts.height or h)
                out["sharpness.cutoff"][b] = share
                out["sharpness.reach"][b] = min(1.0, share * max(size) / max(h, w))
                out["sharpness.detail-side"][b] = share * min(size)
                out["sharpness.anisotropy"][b] = anisotropy(along_x, along_y, radius, angle)
            out["sharpness.unmeasured"][b] = "; ".join(reasons) or None
        return out


ANALYZER = Sharpness()
