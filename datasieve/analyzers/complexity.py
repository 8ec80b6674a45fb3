"""How much there is to see: edge density, texture entropy, and the two fused into one score.

What. The share of pixels on an edge, the mean grey-level entropy of small neighbourhoods in bits, and
`0.35 * edge density + 0.65 * min(entropy / 8, 1)`, the score that practitioners of textual inversion fuse them into.
Over the set: how far an image's score lies from the other images of its concept.

Why it hurts. A token learns from what varies in a picture. A nearly empty picture gives a loss that is low from the
first step and a gradient that says only "plain background", so the token learns the backdrop. A picture full of fine
texture gives a loss that stays high, and its gradient drowns those of its neighbours. A set that mixes the two makes
the loss jump from step to step for reasons that have nothing to do with the learning rate.

Method. Edges: Gaussian of sigma 1 px, Sobel magnitude above 0.1 on luma in [0, 1]; the same numbers as scikit-image's
`gaussian` and `sobel`. Entropy: Shannon entropy of the 8-bit grey levels within 5 px (81 pixels, so at most
log2 81 = 6.34 bits), the same as scikit-image's `rank.entropy` with `disk(5)`, exact at each of 377 centres that lie
on a Fibonacci lattice (Niederreiter, Random Number Generation and Quasi-Monte Carlo Methods, 1992, chapter 5) and
averaged over them. That spares 99.8 % of the work. Edges are looked at in every row of a small picture and every
second to fourth of a larger one. What this sampling costs in accuracy is each column's tolerance; over 87 real images
the fused score was off by 0.001 on average and 0.0046 at most.

Reference bands of that literature, which are claims and not truths: scanned documents have edge density 0.08 to 0.15
and entropy 2.1 to 3.4 bits, limit of the score 0.28; photos of industrial defects 0.22 to 0.36, 4.7 to 6.3 bits,
limit 0.59. Note that 81 pixels cap the entropy part at 0.65 * 6.34 / 8 = 0.515, so the score ends at 0.865, not at 1.

Where it fails. Noise and JPEG ringing count as texture. Everything is measured on the working picture (longer side at
most 512 px), so the detail of a large photo that training at 1024 px would see is not. A complex picture is not a bad
one, and a plain studio shot may be just what a concept needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from datasieve.analyzers import Comparison
from datasieve.batch import Tiles, View
from datasieve.rules import Rule
from datasieve.schema import Column

if TYPE_CHECKING:
    import pyarrow as pa
    import torch

    from datasieve.batch import Batch
    from datasieve.config import Settings

VIEW = View(512, "luma")

EDGE_LIMIT = 0.1
"""Sobel magnitude on [0, 1] luma above which a pixel lies on an edge."""

EDGE_ROWS = 128
"""Rows that are enough for the edge density."""

RADIUS = 5
"""Radius in px of the neighbourhood whose entropy is taken; 81 pixels."""

CENTRES, _GENERATOR = 377, 233
"""Neighbourhoods per image: two successive Fibonacci numbers make the best two-dimensional rank-1 lattice."""

EDGE_WEIGHT, ENTROPY_WEIGHT, ENTROPY_SCALE = 0.35, 0.65, 8.0

MIN_IMAGES = 5
"""A concept with fewer measured images has no centre worth the name."""

MIN_SPREAD = 0.01
"""Smallest spread of a concept's scores; two images nearer than this do not differ measurably."""

_OUTSIDE = 256  # grey level of pixels beyond the border


def edge_density(luma: torch.Tensor) -> torch.Tensor:
    """Return the share of pixels that lie on an edge, a scalar float32 in [0, 1].

    Args:
        luma: (h, w) float, encoded luma in [0, 1]; h and w at least 1.

    Agrees with `(sobel(gaussian(luma, 1)) > 0.1).mean()` of scikit-image: Gaussian cut at 4 sigma, both filters see
    the picture continued by its edge pixels, and the magnitude is the root mean square of the two directions. With
    `2 * EDGE_ROWS` rows or more, only every second, third... row is looked at, so that at least `EDGE_ROWS` are.
    """
    gauss = np.exp(-0.5 * np.arange(-4, 5) ** 2)
    gauss /= gauss.sum()
    smooth, step = np.array([0.25, 0.5, 0.25]), np.array([-1.0, 0.0, 1.0])
    every = max(1, luma.shape[0] // EDGE_ROWS)
    if every == 1:
        blurred = _pad(_slide(_pad(luma, 4, 0), gauss, 0), 1, 0)
        rows = [_slide(blurred, taps, 0) for taps in (smooth, step)]
    else:
        # Away from the first and last row, where scikit-image continues the blurred picture, one pass does for two.
        padded = _pad(luma, 5, 0)[every // 2 :]
        rows = [_slide(padded, np.convolve(gauss, taps), 0, every) for taps in (smooth, step)]
    smoothed, stepped = (_pad(_slide(_pad(part, 4, 1), gauss, 1), 1, 1) for part in rows)
    gx, gy = _slide(smoothed, step, 1), _slide(stepped, smooth, 1)
    edges = gx.square_().addcmul_(gy, gy) > 2 * EDGE_LIMIT**2
    return edges.count_nonzero().float() / edges.numel()


def _pad(values: torch.Tensor, width: int, axis: int) -> torch.Tensor:
    """Continue (h, w) on both ends of one axis by its edge pixels."""
    import torch.nn.functional as functional

    width4 = (0, 0, width, width) if axis == 0 else (width, width, 0, 0)
    return functional.pad(values[None, None], width4, mode="replicate")[0, 0]


def _slide(values: torch.Tensor, taps: npt.NDArray[np.float64], axis: int, every: int = 1) -> torch.Tensor:
    """Correlate (h, w) with `taps` along one axis where they fit wholly, at every `every`-th place.

    A sum of shifted slices: on a CPU quicker than a convolution, and the same numbers whatever else is in the batch.
    """
    span = values.shape[axis] - len(taps) + 1
    parts = [(t, (values[i : i + span : every] if axis == 0 else values[:, i : i + span])) for i, t in enumerate(taps)]
    (first, part), *others = [(float(t), part) for t, part in parts if t]
    out = part * first
    for tap, part in others:
        out.add_(part, alpha=tap)
    return out


def texture_entropy(luma: torch.Tensor, sizes: Sequence[tuple[int, int]]) -> torch.Tensor:
    """Return each image's mean local grey-level entropy in bits, (B,) float32 in [0, log2 81].

    Args:
        luma: (B, 1, H, W) float, encoded luma in [0, 1], each image in its upper left corner.
        sizes: (height, width) of each image within that.

    The mean is over `CENTRES` neighbourhoods of radius `RADIUS`, or over all of them in images of fewer pixels. At
    the border a neighbourhood holds only the pixels inside the image.
    """
    import torch

    side = luma.shape[-1]
    area = luma.shape[-2] * side
    windows = [_windows(h, w, side) for h, w in sizes]
    places = np.concatenate([index + b * area for b, (index, _) in enumerate(windows)])
    place = torch.from_numpy(places).to(luma.device)
    inside = torch.from_numpy(np.concatenate([i for _, i in windows])).to(luma.device)
    levels = luma.reshape(-1).index_select(0, place.reshape(-1)).view(inside.shape).mul_(255).round_().long()
    levels.masked_fill_(~inside, _OUTSIDE)
    counts = torch.zeros(len(levels), _OUTSIDE + 1, device=luma.device)
    counts.scatter_add_(1, levels, torch.ones(1, device=luma.device).expand_as(levels))
    # sum over levels of c log c is the sum over pixels of log c: 81 logarithms instead of 256.
    logs = counts.gather(1, levels).log2_().masked_fill_(~inside, 0.0).sum(1)
    n = inside.sum(1)
    entropy = (n.float().log2() - logs / n).clamp_(min=0.0)
    return torch.stack([part.mean() for part in torch.split(entropy, [len(index) for index, _ in windows])])


def score(edges: npt.ArrayLike, entropy: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Fuse edge density and texture entropy in bits into one number in [0, 0.865]."""
    share = np.minimum(np.asarray(entropy, np.float64) / ENTROPY_SCALE, 1.0)
    return EDGE_WEIGHT * np.asarray(edges, np.float64) + ENTROPY_WEIGHT * share


@lru_cache(maxsize=64)
def _windows(h: int, w: int, side: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return places (n, 81) in rows of length `side`, and which of them lie inside an (h, w) image."""
    if h * w <= CENTRES:
        cy, cx = (axis.ravel() for axis in np.mgrid[:h, :w])
    else:
        i = np.arange(CENTRES)
        cy = (2 * i + 1) * h // (2 * CENTRES)
        cx = (2 * (i * _GENERATOR % CENTRES) + 1) * w // (2 * CENTRES)
    dy, dx = (axis.ravel() for axis in np.mgrid[-RADIUS : RADIUS + 1, -RADIUS : RADIUS + 1])
    disk = dy**2 + dx**2 <= RADIUS**2
    y, x = cy[:, None] + dy[disk], cx[:, None] + dx[disk]
    inside = (y >= 0) & (y < h) & (x >= 0) & (x < w)
    return np.where(inside, y * side + x, 0).astype(np.int64), inside


def deviations(scores: Sequence[float | None], concepts: Sequence[str]) -> npt.NDArray[np.float64]:
    """Return each score's distance from its concept's median in robust standard deviations (1.4826 MAD).

    NaN where the score is missing or its concept has fewer than `MIN_IMAGES` scores. The standard deviation is never
    taken as less than `MIN_SPREAD`. Source: Iglewicz and Hoaglin, How to Detect and Handle Outliers, ASQC 1993.
    """
    values = np.array([np.nan if s is None else s for s in scores], np.float64)
    names = np.array(concepts, dtype=object)
    out = np.full(len(values), np.nan)
    for name in set(concepts):
        rows = np.flatnonzero((names == name) & np.isfinite(values))
        if len(rows) >= MIN_IMAGES:
            away = np.abs(values[rows] - np.median(values[rows]))
            out[rows] = away / max(1.4826 * float(np.median(away)), MIN_SPREAD)
    return out


_HOW = (
    "Measured on the working picture of at most 512 px. Edge density is the share of pixels with a Sobel magnitude "
    "above 0.1 after a Gaussian of 1 px; texture entropy is the mean entropy of the grey levels within 5 px, at most "
    "6.34 bits; the score is 0.35 edge density + 0.65 entropy / 8, so its entropy part ends at 0.515 and the score at "
    "0.865. The literature gives as bands: scanned documents 0.08 to 0.15 edges, 2.1 to 3.4 bits, limit 0.28; photos "
    "of industrial defects 0.22 to 0.36, 4.7 to 6.3 bits, limit 0.59. These are claims, not used as limits here. Noise "
    "and JPEG ringing count as texture."
)
_SOURCE = "textual inversion practice: 0.35 edge density + 0.65 entropy; scikit-image sobel, gaussian, rank.entropy"


class Complexity:
    """Edge density, texture entropy, their fused score, and its deviation within the concept."""

    version = 1
    views: tuple[View | Tiles, ...] = (VIEW,)
    needs: tuple[str, ...] = ("concept", "complexity.score")
    columns = (
        Column(
            "complexity.edge-density",
            unit="share",
            description="Share of the pixels that lie on an edge; neither direction is bad in itself.",
            low=0.0,
            high=1.0,
            source="scikit-image: sobel(gaussian(luma, 1)) > 0.1",
            tolerance=0.006,  # from looking at a part of the rows, largest of 87 images; the mean is 0.0004
        ),
        Column(
            "complexity.texture-entropy",
            unit="bits",
            description="Mean entropy of the grey levels within 5 px; low is flat, high is texture or noise.",
            low=0.0,
            high=math.log2(81) + 1e-5,
            source="scikit-image: rank.entropy with disk(5)",
            tolerance=0.06,  # sampling, largest of 87 images against the full map; the mean is 0.012
        ),
        Column(
            "complexity.score",
            description="0.35 edge density + 0.65 texture entropy / 8; low is little to learn from, high is busy.",
            low=0.0,
            high=EDGE_WEIGHT + ENTROPY_WEIGHT * math.log2(81) / ENTROPY_SCALE + 1e-5,
            source="textual inversion practice",
            tolerance=0.005,
        ),
        Column(
            "complexity.deviation",
            unit="robust standard deviations",
            description="Distance of the score from its concept's median; high stands apart from the other images.",
            low=0.0,
            source="Iglewicz and Hoaglin, How to Detect and Handle Outliers, ASQC 1993",
            tolerance=0.5,
            stage="compare",
        ),
    )
    rules = (
        Rule(
            id="complexity.flat",
            column="complexity.score",
            side="below",
            limit=0.06,
            severity="warning",
            title="Nearly empty picture",
            message="There is almost nothing in this picture (complexity {value:.3f}, below {limit}); training on it "
            "teaches a blank background instead of your subject.",
            remedy="Remove the picture, or crop it closer to what shall be learned.",
            why="The loss on a nearly empty picture is low from the start and its gradient only describes the "
            "background. A textual inversion token or a small LoRA then learns the backdrop, and each repeat of such "
            "a picture is a step taken away from the subject.",
            how=_HOW,
            source=_SOURCE,
            evidence="provisional limit; false alarms 0 of 761 clean images (400 photos, 241 encyclopedia pictures and "
            "drawings, 120 subject photos; smallest score 0.066), 95 % interval 0 to 0.5 %.",
        ),
        Rule(
            id="complexity.busy",
            column="complexity.score",
            side="above",
            limit=0.54,
            severity="info",
            title="Very busy picture",
            message="This picture is full of fine texture or noise (complexity {value:.2f}, above {limit}; real photos "
            "stay below 0.53); its loss stays high and drowns what the other pictures teach.",
            remedy="Look at it: crop to the subject if the surroundings are the cause, leave it out if it is noise.",
            why="Texture and noise cannot be predicted, so the loss on such a picture never falls. In small batches "
            "its gradient outweighs that of the other pictures, and the loss curve jumps whenever it comes up.",
            how=_HOW,
            source=_SOURCE,
            evidence="provisional limit; false alarms 0 of 761 clean images (largest score 0.520), 95 % interval 0 to "
            "0.5 %.",
        ),
        Rule(
            id="complexity.outlier",
            column="complexity.deviation",
            side="above",
            limit=3.5,
            severity="info",
            title="Unlike its set",
            message="This picture is much plainer or busier than the others of its concept ({value:.1f} robust "
            "standard deviations, limit {limit}; complexity {complexity.score:.2f}); the loss will jump at each step "
            "on it.",
            remedy="Check that it belongs to the concept; crop it like the others, or leave it out.",
            why="One picture that is far plainer or busier than the rest is often of another kind: a logo among "
            "photos, a scan, a texture. In a small set each step on it pulls the token or the adapter somewhere else, "
            "and the loss curve shows it as a spike that no learning rate cures.",
            how="The distance of the score from the median of the concept, divided by 1.4826 times the median absolute "
            "deviation and never by less than 0.01. Needs 5 images of the concept; with so few it is a hint. " + _HOW,
            source="Iglewicz and Hoaglin, How to Detect and Handle Outliers, ASQC 1993",
            evidence="false alarms 1 of 112 images of clean concept folders (5 or 6 photos each) and 0 of 241 pictures "
            "in larger folders; hit rate not measured (provisional).",
        ),
    )

    def measure(self, batch: Batch) -> Mapping[str, Sequence[Any]]:
        """Return edge density, texture entropy and score of each image. Every image that has pixels has them."""
        import torch

        luma, _ = batch.pixels(VIEW)
        sizes = batch.sizes(VIEW.side)
        edges = torch.stack([edge_density(luma[b, 0, :h, :w]) for b, (h, w) in enumerate(sizes)])
        both = torch.stack([edges, texture_entropy(luma, sizes)]).cpu().numpy()
        return {
            "complexity.edge-density": both[0].tolist(),
            "complexity.texture-entropy": both[1].tolist(),
            "complexity.score": score(both[0], both[1]).tolist(),
        }

    def compare(self, table: pa.Table, settings: Settings) -> Comparison:
        """Return each image's deviation from the other images of its concept."""
        concepts = [c or "" for c in table["concept"].to_pylist()]
        away = deviations(table["complexity.score"].to_pylist(), concepts)
        given = {c for c, z in zip(concepts, away, strict=True) if np.isfinite(z)}
        small = sorted(set(concepts) - given)
        reason = f"fewer than {MIN_IMAGES} measured images in: {', '.join(c or '(no concept)' for c in small)}"
        return Comparison(
            columns={"complexity.deviation": away.tolist()},
            unmeasured={"complexity.deviation": reason} if small else {},
        )


ANALYZER = Complexity()
