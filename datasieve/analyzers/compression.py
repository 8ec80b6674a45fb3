"""Compression: visible JPEG blocks, and noise, both read from the stored pixels.

A picture that was once squeezed hard keeps its blocks when it is saved again as PNG or at a high quality, and then
the header's quality says nothing. Trained on, the 8-pixel grid and the noise are what every picture of the concept
has in common, so they are learned as part of it and come back in everything that is generated.

Method. `blocking` compares the mean luma step across block boundaries with the mean step elsewhere, after
Wang, Sheikh and Bovik, "No-reference perceptual quality assessment of JPEG compressed images" (ICIP 2002,
doi:10.1109/ICIP.2002.1038064). Both means get one grey level added, so that steps too small to be seen do not
count. The grid is searched over all 8 x 8 positions, so a crop after compression is still found. `noise_sigma`
applies the noise mask of Immerkaer, "Fast noise variance estimation" (CVIU 64(2), 1996,
doi:10.1006/cviu.1996.0060) to the flattest 8 x 8 blocks only, none of which is clipped.

Where it fails. Blocks are lost to these measures once the picture was resized (the grid is no longer 8 pixels), and
other codecs (WebP, AVIF, video) hide theirs. Drawn grids with a pitch of 8 pixels look like blocks. Fine even
texture over the whole picture (sand, grass, fur close up) reads as noise; noise that was compressed afterwards reads
lower than it was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from datasieve.batch import Request, Tiles
from datasieve.rules import Rule
from datasieve.schema import Column

if TYPE_CHECKING:
    import torch

    from datasieve.batch import Batch

BLOCK = 8
VISIBLE_STEP = 1.0
"""Grey levels added to both means of steps: a step below it is not seen."""

FLAT_SHARE = 0.1
"""Share of a picture's unclipped blocks, the flattest ones, that noise is read from."""

MIN_BLOCKS = 16
"""Fewer unclipped blocks give no noise estimate."""

DARKEST, BRIGHTEST = 1.5, 253.5
"""Luma beyond which a block counts as clipped: clipping cuts noise off."""

TOO_SMALL = "smaller than one 64 px tile"
CLIPPED = "nearly everything is clipped to black or white"


def luma(tiles: torch.Tensor) -> torch.Tensor:
    """Return encoded luma of RGB tiles: (..., 3, H, W) in [0, 1] -> (..., H, W) in grey levels 0..255."""
    import torch

    return tiles.movedim(-3, -1) @ torch.tensor([0.2125 * 255, 0.7154 * 255, 0.0721 * 255], device=tiles.device)


def blocking(grey: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """Return how much larger luma steps are across an 8 px grid than off it.

    Args:
        grey: (B, N, S, S) luma in grey levels 0..255, S a multiple of 8. The corners of an image's tiles must lie
            on one common 8 px grid.
        real: (B, N) bool, which tiles count.

    Returns:
        (B,) ratio (boundary + 1) / (elsewhere + 1) of mean absolute steps in grey levels, at the grid position where
        it is largest, averaged over the two directions; 1 without blocks; NaN without tiles.
    """
    import torch

    weight = real.to(grey.dtype)
    count = weight.sum(1)
    side = grey.shape[-1]
    # Steps at position 0 would need the neighbouring tile, so phase 0 has one position fewer.
    places = torch.full((BLOCK,), float(side // BLOCK), device=grey.device)
    places[0] -= 1
    ratios = []
    for steps in (
        (grey[..., :, 1:] - grey[..., :, :-1]).abs().mean(-2),
        (grey[..., 1:, :] - grey[..., :-1, :]).abs().mean(-1),
    ):
        profile = torch.nn.functional.pad((steps * weight[..., None]).sum(1), (1, 0)) / count[:, None]
        phases = profile.reshape(-1, side // BLOCK, BLOCK).sum(1)
        on = phases / places
        off = (phases.sum(1, keepdim=True) - phases) / (places.sum() - places)
        ratios.append(((on + VISIBLE_STEP) / (off + VISIBLE_STEP)).amax(1))
    return (ratios[0] + ratios[1]) / 2


def noise_sigma(grey: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """Return the standard deviation of luma noise in the flattest parts.

    Args:
        grey: (B, N, S, S) luma in grey levels 0..255, S a multiple of 8.
        real: (B, N) bool, which tiles count.

    Returns:
        (B,) sigma in 8-bit grey levels of luma (independent noise of sigma s in R, G and B has a luma sigma of
        0.75 s); NaN where fewer than `MIN_BLOCKS` blocks are free of clipping.
    """
    import torch
    import torch.nn.functional as functional

    batch, _, side, _ = grey.shape
    tiles, n = grey.shape[:2], side // BLOCK
    across = grey[..., 2:] + grey[..., :-2]
    across.sub_(grey[..., 1:-1], alpha=2)
    response = across[..., 2:, :] + across[..., :-2, :]
    response.sub_(across[..., 1:-1, :], alpha=2).abs_()
    # Only the inner 6 x 6 of a block: responses that reach into the next block would read JPEG's steps as noise.
    response = functional.pad(response, (0, 2, 0, 2)).reshape(*tiles, n, BLOCK, side)[..., : BLOCK - 2, :].sum(-2)
    response = response.reshape(*tiles, n, n, BLOCK)[..., : BLOCK - 2].sum(-1)
    sigma = (response * (math.sqrt(math.pi / 2) / 6 / (BLOCK - 2) ** 2)).reshape(batch, -1)

    rows = grey.reshape(*tiles, n, BLOCK, side)
    low = rows.amin(-2).reshape(*tiles, n, n, BLOCK).amin(-1)
    high = rows.amax(-2).reshape(*tiles, n, n, BLOCK).amax(-1)
    half = BLOCK // 2
    quarters = grey.reshape(*tiles, 2 * n, half, side).mean(-2).reshape(*tiles, 2 * n, 2 * n, half).mean(-1)
    quarters = quarters.reshape(*tiles, n, 2, n, 2)
    # In steps of 1/16, so that rounding never decides between blocks that are equally flat.
    slope = ((quarters.amax((-1, -3)) - quarters.amin((-1, -3))) * half**2).round_().reshape(batch, -1)
    valid = ((low > DARKEST) & (high < BRIGHTEST) & real[..., None, None]).reshape(batch, -1)

    counts = valid.sum(1)
    order = torch.where(valid, slope, torch.inf).sort(dim=1, stable=True)
    kept_blocks = (counts * FLAT_SHARE).ceil().clamp(min=MIN_BLOCKS).long()
    rank = torch.arange(sigma.shape[1], device=grey.device)
    flat = torch.where(rank < kept_blocks[:, None], sigma.gather(1, order.indices), torch.inf).sort(1).values
    middle = ((kept_blocks - 1) // 2)[:, None]
    median = flat.gather(1, middle)[:, 0]
    return torch.where(counts >= MIN_BLOCKS, median, torch.nan)


class Compression:
    """See the module."""

    version = 1
    views: tuple[Request, ...] = (Tiles(),)
    needs: tuple[str, ...] = ()
    columns: tuple[Column, ...] = (
        Column(
            "compression.blocking",
            unit="ratio",
            description="Luma steps across the best-fitting 8 px grid against steps off it; 1 without blocks, "
            "more is worse.",
            low=0,
            source="Wang, Sheikh, Bovik 2002, doi:10.1109/ICIP.2002.1038064",
            tolerance=1e-3,
        ),
        Column(
            "compression.noise",
            unit="grey levels",
            description="Standard deviation of luma noise in the flattest blocks, on the 8-bit scale; more is worse.",
            low=0,
            high=255 * 4,
            source="Immerkaer 1996, doi:10.1006/cviu.1996.0060",
            tolerance=1e-2,
        ),
    )
    rules: tuple[Rule, ...] = (
        Rule(
            id="compression.blocking",
            column="compression.blocking",
            side="above",
            limit=1.6,
            severity="warning",
            title="JPEG blocks",
            message="Steps across an 8 px grid are {value:.1f} times those off it (limit {limit}); the picture was "
            "squeezed so hard that its blocks show, and the grid will be learned.",
            remedy="Replace it by a copy of better quality; saving it anew brings nothing back.",
            why="The grid sits at the same places in picture after picture, so it is easier to learn than the subject: "
            "a token, hypernetwork or LoRA trained on such files draws blocks and banded skies.",
            how="Mean luma steps across the best-fitting 8 px grid against steps off it, in 16 native tiles. A picture "
            "that was resized after compression is not seen; a drawing with an 8 px pattern is accused.",
            source="Wang, Sheikh and Bovik 2002, doi:10.1109/ICIP.2002.1038064",
            evidence="limit chosen on photos of 12 subjects and 400 other photos. JPEG quality 8 and 15 planted: 18 of "
            "18 on all subjects; false alarms 0/400 photos, 0/120 subject photos, "
            "1/241 encyclopedia pictures and drawings.",
        ),
        Rule(
            id="compression.noisy",
            column="compression.noise",
            side="above",
            limit=12.0,
            severity="info",
            title="Noisy picture",
            message="Even its flattest parts vary by {value:.0f} grey levels (limit {limit:.0f}); noise has no pattern "
            "to learn, so the loss on this picture stays high.",
            remedy="Look at it: denoise it or leave it out if it is noise, keep it if it is fine texture (fur, sand).",
            why="Noise cannot be predicted. Its gradient is random and large, and adapters of high rank end up "
            "reproducing the grain.",
            how="Immerkaer's noise mask in the flattest tenth of the 8 px blocks that are not clipped, in native "
            "pixels. Fur, grass or sand over the whole picture reads as noise; noise that was compressed reads lower.",
            source="Immerkaer 1996, doi:10.1006/cviu.1996.0060",
            evidence="Gaussian noise of sigma 25 added to the subject photos: 65 of 65 where the limit was chosen, 55 "
            "of 55 on other subjects; sigma 10: 0 of 65 and 1 of 55. Fires on 0/400 photos, 0/120 subject photos, "
            "3/241 encyclopedia pictures and drawings.",
        ),
    )

    def measure(self, batch: Batch) -> Mapping[str, Sequence[float | str | None]]:
        """Return blocking and noise of every image."""
        tiles, real = batch.tiles()
        grey = luma(tiles)
        blocks: list[float] = blocking(grey, real).tolist()
        noise: list[float] = noise_sigma(grey, real).tolist()
        reasons = [
            TOO_SMALL if math.isnan(b) else CLIPPED if math.isnan(n) else None
            for b, n in zip(blocks, noise, strict=True)
        ]
        return {"compression.blocking": blocks, "compression.noise": noise, "compression.unmeasured": reasons}


ANALYZER = Compression()
