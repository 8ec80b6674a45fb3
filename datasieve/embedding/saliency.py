"""Where in a picture its subject is: a map of 14 x 14 patches, and the box that fits it best.

What each patch of 16 px tells by itself, from one pass of `lite0`:
 - how much its features resemble those along the picture's border, which is mostly background (after Wei, Wen, Zhu,
   Sun, "Geodesic Saliency Using Background Priors", ECCV 2012), at two depths of the network;
 - how much there is to see (the spatial weight of CroW: Kalantidis, Mellina, Osindero, ECCV 2016 workshops), at both;
 - how much it resembles the picture as a whole.
What it tells beside other pictures of the concept: how well it finds its like in each of them (co-saliency; Cheng,
Mitra, Huang, Hu, "SalientShape", Vis. Comput. 2014, and others).

Each cue counts by a weight of a logistic regression, so the map holds probabilities (`benchmarks/subject_weights.py`
tells from what). The box is the one with the largest expected overlap with what the map holds; all boxes are tried.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from datasieve.embedding.boxes import best_boxes
from datasieve.embedding.lite0 import reference
from datasieve.embedding.lite0_network import Outputs

if TYPE_CHECKING:
    import torch

Floats = npt.NDArray[np.float32]

GRID, COARSE = 14, 7
"""Places a side of the map, and of the network's last convolution."""

DEPTH = 32
"""Numbers that are kept of each place of the last convolution."""

SIZE = 2 * GRID**2 + COARSE**2 * DEPTH
"""Numbers that are kept of a picture: two maps and the patches."""

REFERENCES = 16
"""Other pictures of a concept in which a patch looks for its like, evenly spaced."""

IMAGE_CUES = ("own", "seen", "texture", "border", "texture-border")
STATISTICS = ("here", "relative", "mean", "spread", "edge")
"""What a cue counts by: its value here, the same in standard deviations above the picture's mean, and that mean, the
standard deviation and the mean along the border: what fills the frame has another border."""

WEIGHTS_FILE = Path(__file__).with_name("saliency_weights.npz")


class Weights(NamedTuple):
    """A logistic regression on cues, and what its maps are worth.

    Attributes:
        cues: (5, K) float32, a weight for each of `STATISTICS` of each cue.
        constant: added to all.
        certainty: slope and constant from the overlap a map expects of its box to the one that was measured.
    """

    cues: Floats
    constant: float
    certainty: tuple[float, float]


@lru_cache(maxsize=2)
def weights(name: Literal["alone", "among"]) -> Weights:
    """Return the weights for a picture by itself, or for one among others: then likeness is the last cue."""
    with np.load(WEIGHTS_FILE, allow_pickle=False) as stored:
        values = stored[name].astype(np.float32)
    return Weights(values[:-3].reshape(len(STATISTICS), -1), float(values[-3]), (float(values[-2]), float(values[-1])))


@lru_cache(maxsize=1)
def _projection() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean (1280,) and the map (1280, 32) to what is kept of a patch.

    Patches are whitened as pictures are, then turned to the directions in which the network's classes differ most.
    """
    import torch

    with np.load(WEIGHTS_FILE, allow_pickle=False) as stored:
        return torch.from_numpy(reference().mean), torch.from_numpy(stored["projection"].astype(np.float32))


def image_cues(outputs: Outputs) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cues (B, 5, 14, 14) and patches (B, 7, 7, 32) of unit length."""
    import torch

    last = torch.from_numpy(outputs.last).permute(0, 2, 3, 1)  # B, 7, 7, 1280
    mean, projection = _projection()
    seen = last.sum(-1)
    patches = unit((unit(last.clamp_min(0).sqrt()) - mean) @ projection)
    whole = unit((patches * seen.clamp_min(0).sqrt()[..., None]).sum((1, 2)))
    own = (patches * whole[:, None, None]).sum(-1)
    coarse = finer(torch.stack([own, seen.clamp_min(1).log(), _like_border(patches)], 1))
    grid = torch.from_numpy(outputs.grid).permute(0, 2, 3, 1)
    texture = (torch.linalg.vector_norm(grid, dim=-1) + 0.1).log()
    cues = [coarse[:, 0], coarse[:, 1], texture, coarse[:, 2], _like_border(unit(grid))]
    return torch.stack(cues, 1), patches


def kept(outputs: Outputs) -> npt.NDArray[np.float16]:
    """Return what is kept of B pictures, (B, `SIZE`): log odds alone, log odds among others so far, patches."""
    import torch

    cues, patches = image_cues(outputs)
    among = weights("among")
    parts = [
        logits(cues, weights("alone")),
        logits(cues, among._replace(cues=among.cues[:, : len(IMAGE_CUES)])),
        patches,
    ]
    return torch.cat([p.flatten(1) for p in parts], 1).numpy().astype(np.float16)


def statistics(cues: torch.Tensor) -> torch.Tensor:
    """Return (B, 5, K, n, n) `STATISTICS` of cues (B, K, n, n)."""
    import torch

    mean, spread = cues.mean((2, 3), keepdim=True), cues.std((2, 3), correction=0, keepdim=True)
    inner = cues[..., 1:-1, 1:-1]
    edge = (cues.sum((2, 3)) - inner.sum((2, 3))) / (cues[0, 0].numel() - inner[0, 0].numel())
    over = [cues, (cues - mean) / (spread + 1e-3), mean, spread, edge[..., None, None]]
    return torch.stack([o.expand_as(cues) for o in over], 1)


def logits(cues: torch.Tensor, weights: Weights) -> torch.Tensor:
    """Return (B, n, n) log odds that a place is part of the subject, of cues (B, K, n, n)."""
    import torch

    return torch.einsum("bsknm,sk->bnm", statistics(cues), torch.from_numpy(weights.cues)) + weights.constant


def likeness(patches: torch.Tensor, others: torch.Tensor, say: torch.Tensor) -> torch.Tensor:
    """Return how well each patch finds its like in other pictures, (B, h, w) in [-1, 1].

    The cosine to the best patch of each of the others, averaged over those that have a say.

    Args:
        patches: (B, h, w, 32) of unit length.
        others: (N, h', w', 32) of unit length.
        say: (B, N), how much each other picture counts; not all 0.
    """
    import torch

    flat = patches.flatten(0, 2)
    best = torch.stack([(flat @ other.flatten(0, 1).T).amax(-1) for other in others], 1)
    best = best.reshape(*patches.shape[:3], -1)
    mean: torch.Tensor = (best * say[:, None, None]).sum(-1) / say.sum(1)[:, None, None]
    return mean


def unit(values: torch.Tensor) -> torch.Tensor:
    """Return vectors (..., d) at unit length; those of no length stay."""
    import torch

    length: torch.Tensor = torch.linalg.vector_norm(values, dim=-1, keepdim=True)
    return values / length.clamp_min(1e-9)


def finer(maps: torch.Tensor) -> torch.Tensor:
    """Return maps (B, K, 7, 7) at 14 x 14, interpolated."""
    import torch.nn.functional as functional

    return functional.interpolate(maps, (GRID, GRID), mode="bilinear", align_corners=False)


def _like_border(patches: torch.Tensor) -> torch.Tensor:
    """Return the mean cosine of each patch (B, h, w, d) to the quarter of the border's patches most like it."""
    import torch

    height, width = patches.shape[1:3]
    edge = torch.ones(height, width, dtype=torch.bool)
    edge[1:-1, 1:-1] = False
    flat = patches.flatten(1, 2)
    cosine = flat @ flat[:, edge.flatten()].transpose(1, 2)
    nearest = cosine.topk(max(cosine.shape[-1] // 4, 1), dim=-1).values
    return nearest.mean(-1).reshape(-1, height, width)


def boxes(log_odds: torch.Tensor) -> tuple[Floats, Floats]:
    """Return the best box of each map (B, 14, 14), to half a patch, and its expected overlap; see `best_boxes`."""
    import torch
    import torch.nn.functional as functional

    finer = functional.interpolate(
        torch.sigmoid(log_odds.float())[:, None], scale_factor=2, mode="bilinear", align_corners=False
    )
    return best_boxes(finer[:, 0].numpy())
