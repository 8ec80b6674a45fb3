"""The subject of a concept's pictures: maps, boxes and backgrounds, from what `saliency.kept` kept of each.

Maps at a scale of k are what remains when pictures are looked at through windows of k x k patches of 16 px: patches and
log odds are averaged over the window before patches look for their like. Where those maps agree, the subject is found
at the same place at other resolutions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from datasieve.embedding.saliency import (
    COARSE,
    DEPTH,
    GRID,
    REFERENCES,
    boxes,
    finer,
    likeness,
    logits,
    unit,
    weights,
)

if TYPE_CHECKING:
    import torch

Floats = npt.NDArray[np.float32]

SCALES = (3, 5, 7)
"""Windows in patches, as the literature on attention consistency takes them."""

CHUNK = 64
"""Pictures looked at at once."""


class Located(NamedTuple):
    """Where the subject is in n pictures.

    Attributes:
        maps: (n, 14, 14) probability that a patch is part of the subject.
        boxes: (n, 4) left, top, right, bottom in shares of the picture.
        certainty: (n,) the overlap (intersection over union) with the true box that is to be expected, 0 to 1.
        scales: (n, 3, 14, 14) the maps at `SCALES`.
        backgrounds: (n, 32) unit vectors of what is not the subject.
        rest: (n,) the share of the picture that is not the subject, by the map.
    """

    maps: Floats
    boxes: Floats
    certainty: Floats
    scales: Floats
    backgrounds: Floats
    rest: Floats


def located(kept: npt.NDArray[np.float16], originals: npt.NDArray[np.intp]) -> Located:
    """Find the subject in all pictures of one concept.

    Args:
        kept: (n, `SIZE`), from `saliency.kept`.
        originals: (n,), equal for pictures that are copies of one another: those see the same background, so they are
            not looked at for likeness. A picture without any other is judged by itself.
    """
    _, first = np.unique(originals, return_index=True)
    first = np.sort(first)
    if len(first) > REFERENCES + 1:
        first = first[np.linspace(0, len(first) - 1, REFERENCES + 1).astype(int)]
    references = _patches(kept[first])
    counted = np.not_equal.outer(originals, originals[first])
    parts = [
        _located(kept[i : i + CHUNK], references, counted[i : i + CHUNK]) for i in range(0, max(len(kept), 1), CHUNK)
    ]
    return Located(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _patches(kept: npt.NDArray[np.float16]) -> torch.Tensor:
    """Return the patches of pictures, (n, 32, 7, 7)."""
    import torch

    values = torch.from_numpy(kept[:, 2 * GRID**2 :].astype(np.float32))
    return values.reshape(-1, COARSE, COARSE, DEPTH).permute(0, 3, 1, 2)


def _located(kept: npt.NDArray[np.float16], references: torch.Tensor, counted: npt.NDArray[np.bool_]) -> Located:
    import torch

    own = _patches(kept)
    told = torch.from_numpy(kept[:, : 2 * GRID**2].astype(np.float32)).reshape(-1, 2, GRID, GRID)
    lone = np.asarray(~counted.any(axis=1))
    say = torch.from_numpy(counted | lone[:, None]).float()  # of those without others the result is not used
    alone = torch.from_numpy(lone)[:, None, None]
    among = weights("among")
    last = among._replace(cues=among.cues[:, -1:], constant=0.0)

    def odds(partial: torch.Tensor, alike: torch.Tensor) -> torch.Tensor:
        return torch.where(alone, partial[:, 0], partial[:, 1] + logits(alike[:, None], last))

    alike = finer(likeness(own.permute(0, 2, 3, 1), references.permute(0, 2, 3, 1), say)[:, None])[:, 0]
    maps = odds(told, alike)
    found, expected = boxes(maps)
    worth = np.array([weights("alone").certainty if one else among.certainty for one in lone]).reshape(-1, 2)
    scales = [torch.sigmoid(odds(_window(told, k), likeness(*_windowed(own, references, k), say))) for k in SCALES]
    maps = torch.sigmoid(maps)
    rest = 1 - torch.nn.functional.avg_pool2d(maps[:, None], GRID // COARSE)
    return Located(
        maps.numpy(),
        found,
        np.clip(worth[:, 0] * expected + worth[:, 1], 0, 1).astype(np.float32),
        torch.stack(scales, 1).numpy(),
        unit((own * rest).sum((2, 3))).numpy(),
        rest.mean((1, 2, 3)).numpy(),
    )


def _window(maps: torch.Tensor, side: int) -> torch.Tensor:
    """Return maps (n, K, 14, 14) averaged over windows of side x side patches, inside the picture."""
    import torch.nn.functional as functional

    return functional.avg_pool2d(maps, side, 1, side // 2, count_include_pad=False)


def _windowed(own: torch.Tensor, references: torch.Tensor, side: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return patches of pictures (n, 14, 14, 32) and of references (m, 7, 7, 32), averaged over windows."""
    seen, others = (unit(_window(finer(p), side).permute(0, 2, 3, 1)) for p in (own, references))
    return seen, others[:, ::2, ::2].contiguous()


def consistency(scales: npt.NDArray[Any]) -> tuple[float, float]:
    """Return how far the maps (S, n, n) of one picture agree from scale to scale.

    Returns:
        overlap: intersection over union of neighbouring scales, each stretched to 0..1 and cut at 0.5; their mean.
        divergence: Kullback-Leibler divergence in nats of the next scale from the one before, as distributions over
            the places; their mean.
    """
    low, high = scales.min((1, 2), keepdims=True), scales.max((1, 2), keepdims=True)
    inside = (scales - low) / np.maximum(high - low, 1e-9) >= 0.5
    inside |= high - low < 1e-9  # the same everywhere: all of it
    share = np.maximum(scales, 1e-6)
    share = share / share.sum((1, 2), keepdims=True)
    pairs = list(zip(range(len(scales) - 1), range(1, len(scales)), strict=True))
    overlap = [(inside[a] & inside[b]).sum() / (inside[a] | inside[b]).sum() for a, b in pairs]
    divergence = [(share[a] * np.log(share[a] / share[b])).sum() for a, b in pairs]
    return float(np.mean(overlap)), float(max(np.mean(divergence), 0.0))


_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_"


def written(values: npt.NDArray[Any]) -> str:
    """Return a map (14, 14) of 0 to 1 as 196 characters, row by row, in 64 levels ("0" is 0, "_" is 1)."""
    levels = np.clip(np.rint(np.asarray(values, np.float64) * 63), 0, 63).astype(int)
    return "".join(_DIGITS[level] for level in levels.ravel().tolist())


def read(text: str) -> Floats:
    """Return the map (14, 14) that `written` wrote. Raises ValueError when the text is none."""
    levels = [_DIGITS.index(letter) for letter in text]
    return np.asarray(np.array(levels).reshape(GRID, GRID) / 63, np.float32)
