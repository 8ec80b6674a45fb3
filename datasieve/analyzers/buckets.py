"""Which bucket the trainer puts each image into, and what that costs: cropping, enlarging, squashing, short batches.

A batch has one latent shape, so trainers sort images into aspect-ratio buckets. What does not fit is cut off or
distorted, and a bucket with fewer images than the batch size gives short or missing batches: its images then weigh
more or less than the others. Everything here follows from header facts and the trainer's own algorithm
(`datasieve.bucketing`); without `--trainer` datasieve's own buckets are used, which follow kohya's. Repeats count.

Fails where a trainer is set up by hand in another way (own bucket sizes, cropping switched off); SimpleTuner's buckets
depend on settings that cannot be told from the images, so they are not measured.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

import numpy as np

from datasieve.analyzers import Comparison
from datasieve.bucketing import COARSE_BASES, fit
from datasieve.rules import Rule
from datasieve.schema import Column

if TYPE_CHECKING:
    import pyarrow as pa

    from datasieve.config import Settings

_SOURCE = "the trainers' own bucket code; kohya's sd-scripts where none is named"


def shortfall(counts: dict[tuple[int, int], int], batch_size: int) -> dict[tuple[int, int], int]:
    """Return how many images each bucket lacks to fill its last batch if it cannot even fill one, else 0."""
    return {bucket: max(0, batch_size - count) for bucket, count in counts.items()}


def _column(name: str, kind: Any, unit: str, description: str, low: float, high: float | None = None) -> Column:
    return Column(f"buckets.{name}", kind, unit, description, low, high, _SOURCE, stage="compare")


def _rule(name: str, column: str, limit: float, severity: Any, title: str, message: str, remedy: str, why: str) -> Rule:
    return Rule(
        id=f"buckets.{name}",
        column=f"buckets.{column}",
        side="above",
        limit=limit,
        severity=severity,
        title=title,
        message=message,
        remedy=remedy,
        why=why,
        how="Computed from width, height and repeats with the trainer's own bucket algorithm. Wrong where the trainer "
        "is set to bucket sizes of its own.",
        source=_SOURCE,
        evidence="The bucket is exact arithmetic, tested against hand calculations; the limit is provisional.",
    )


class Buckets:
    """Assigns buckets over the whole set."""

    version = 1
    views = ()
    needs = ()
    columns = (
        _column("width", "int", "px", "width of the bucket", 1),
        _column("height", "int", "px", "height of the bucket", 1),
        _column("scale", "float", "factor", "how much the picture is resized; above 1 it is enlarged", 0),
        _column("crop-share", "float", "share", "share of the picture's area that is cropped away", 0, 1),
        _column(
            "square-crop-share",
            "float",
            "share",
            "share of the picture's area that a trainer without buckets cuts away for a centred square",
            0,
            1,
        ),
        _column("squash", "float", "factor", "by what factor the picture's shape is distorted; 1 is none", 1),
        _column("fill", "int", "images", "images times repeats in this image's bucket", 1),
        _column("shortfall", "int", "images", "images its bucket lacks to fill one batch", 0),
    )
    rules = (
        _rule(
            "small",
            "shortfall",
            0,
            "warning",
            "Bucket below batch size",
            "Its bucket of {buckets.width} x {buckets.height} px holds {buckets.fill} of the {batch-size} images of a "
            "batch: every epoch it is trained in a short batch, or left out where short batches are dropped.",
            "Crop it to the shape of a fuller bucket, add images of its shape, raise its repeats, or lower the batch "
            "size.",
            "Short batches give their few images more weight per step and noisier gradients; trainers that drop them "
            "never show the image at all.",
        ),
        _rule(
            "crop",
            "crop-share",
            0.2,
            "warning",
            "Much cropped away",
            "{value:.0%} of the picture is cut away to fit its bucket of {buckets.width} x {buckets.height} px; what "
            "the caption names may be outside the frame.",
            "Crop it yourself around the subject.",
            "A subject that is cut off contradicts its caption, and the concept learns half subjects.",
        ),
        _rule(
            "square-crop",
            "square-crop-share",
            0.6,
            "info",
            "Far from square",
            "A trainer without buckets would keep only the middle square and cut {value:.0%} of the picture away.",
            "Switch buckets on in the trainer, or crop it yourself around the subject.",
            "What the caption names may lie outside the middle square; the model then learns a word for something it "
            "is not shown.",
        ),
        _rule(
            "upscale",
            "scale",
            2.0,
            "warning",
            "Enlarged for training",
            "It is enlarged {value:.1f} times to fill its bucket of {buckets.width} x {buckets.height} px: the model "
            "is shown blur as if it were the subject's surface.",
            "Replace it by a larger original, or train at a lower resolution.",
            "Enlarged pictures carry no fine detail; a concept trained on them draws soft edges.",
        ),
        _rule(
            "squash",
            "squash",
            1.1,
            "warning",
            "Shape distorted",
            "{trainer} does not crop but squashes it to {buckets.width} x {buckets.height} px, which distorts its "
            "shape by a factor of {value:.2f}.",
            "Crop it to a square around the subject first.",
            "The concept learns the distorted proportions: faces and objects come out too wide or too tall.",
        ),
    )

    def compare(self, table: pa.Table, settings: Settings) -> Comparison:
        """Return bucket, cost and fill of every usable image, and samples and weight of every concept."""
        status = table["status"].to_pylist()
        width, height = ([v or 0 for v in table[name].to_pylist()] for name in ("width", "height"))
        usable = [i for i, s in enumerate(status) if s == "ok" and width[i] > 0 and height[i] > 0]
        found = Comparison(columns={c.name: [None] * len(status) for c in self.columns})
        columns: dict[str, Any] = found.columns
        repeats = [r or 1 for r in table["repeats"].to_pylist()]
        w = np.array([width[i] for i in usable], np.int64)
        h = np.array([height[i] for i in usable], np.int64)
        square = 1 - np.minimum(w, h) / np.maximum(np.maximum(w, h), 1)
        for i, share in zip(usable, square.tolist(), strict=True):
            columns["buckets.square-crop-share"][i] = share
        self._weigh(found, table, usable, repeats)
        if not usable:
            return found
        fits = fit(settings.trainer, w, h, settings.pixels, coarse=settings.base in COARSE_BASES)
        if fits is None:
            found.unmeasured["buckets"] = f"{settings.trainer}'s buckets depend on settings that images do not tell"
            return found
        pairs = list(zip(fits.width.tolist(), fits.height.tolist(), strict=True))
        counts: collections.Counter[tuple[int, int]] = collections.Counter()
        for i, pair in zip(usable, pairs, strict=True):
            counts[pair] += repeats[i]
        lacking = shortfall(counts, settings.batch_size)
        values = {
            "width": fits.width.tolist(),
            "height": fits.height.tolist(),
            "scale": fits.scale.tolist(),
            "crop-share": fits.crop_share.tolist(),
            "squash": fits.squash.tolist(),
            "fill": [counts[p] for p in pairs],
            "shortfall": [lacking[p] for p in pairs],
        }
        for name, numbers in values.items():
            column = columns[f"buckets.{name}"]
            for i, number in zip(usable, numbers, strict=True):
                column[i] = number
        return found

    def _weigh(self, found: Comparison, table: pa.Table, usable: list[int], repeats: list[int]) -> None:
        """Count each concept's samples per epoch and its share of them."""
        samples: collections.Counter[str] = collections.Counter()
        concepts = table["concept"].to_pylist()
        for i in usable:
            samples[concepts[i]] += repeats[i]
        whole = sum(samples.values())
        found.concepts["buckets.weight"] = {concept: count / whole for concept, count in samples.items()}


ANALYZER = Buckets()
