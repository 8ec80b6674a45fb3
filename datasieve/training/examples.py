"""The pictures of a run: which they are, what is said of them, and their pixels at the size they are trained at."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from datasieve.bucketing import choose_kohya, kohya_buckets
from datasieve.errors import ImageError, InputError, ReportError
from datasieve.sampling.columns import usable_rows

if TYPE_CHECKING:
    import torch

    from datasieve.records import Location
    from datasieve.report import Report
    from datasieve.training.settings import Mask

MASK_SUFFIX = "-masklabel.png"
"""How OneTrainer names mask files, and `datasieve fix --alpha mask` too."""


@dataclass(frozen=True)
class Example:
    """One picture.

    Attributes:
        path: as the report names it.
        location: where its bytes are.
        caption: "" when there is none.
        concept: what it shows.
        row: its place among the report's usable images; -1 for pictures from elsewhere.
        weight: of its loss.
        size: (width, height) in pixels that it is trained at.
        is_prior: a regularisation picture.
    """

    path: str
    location: Location
    caption: str
    concept: str
    row: int
    weight: float
    size: tuple[int, int]
    is_prior: bool = False


def examples_of(
    report: Report,
    *,
    resolution: int,
    step: int,
    buckets: bool,
    loss_weights: str = "",
) -> list[Example]:
    """Return the usable pictures of a report, in the order of its samplers.

    Args:
        report: a finished audit.
        resolution: side in pixels of the square whose area they are trained at.
        step: sides are multiples of this.
        buckets: aspect-ratio buckets; otherwise squares.
        loss_weights: a column with a weight for each picture, scaled to mean 1; "" weighs all alike.

    Raises:
        InputError: nothing is usable.
        ReportError: pictures are gone, or there is no such column.
    """
    from datasieve.sampling.dataset import locations_of

    wanted = ["image_id", "path", "concept", "caption", "width", "height"]
    known = report.columns()
    if loss_weights and loss_weights not in known:
        raise ReportError(f"{report.path} has no column {loss_weights!r}", remedy="Name another column of scores.")
    table = usable_rows(report, wanted + ([loss_weights] if loss_weights else []))
    if not len(table):
        raise InputError(f"{report.path} holds no usable picture", remedy="Look at what `datasieve show` says of it.")
    paths = table["path"].to_pylist()
    locations = locations_of(report, table["image_id"].to_pylist(), paths)
    weights = np.ones(len(paths))
    if loss_weights:
        given = np.array([np.nan if v is None else float(v) for v in table[loss_weights].to_pylist()])
        filled = np.where(np.isfinite(given), given, np.nanmean(given) if np.isfinite(given).any() else 1.0)
        if filled.min() < 0 or filled.sum() <= 0:
            raise ReportError(f"column {loss_weights!r} holds negative or no weights", remedy="Name another column.")
        weights = filled / filled.mean()
    sizes = training_sizes(table["width"].to_pylist(), table["height"].to_pylist(), resolution, step, buckets=buckets)
    captions = [text or "" for text in table["caption"].to_pylist()]
    concepts = [c or "" for c in table["concept"].to_pylist()]
    return [
        Example(path, location, caption.strip(), concept, i, float(weight), size)
        for i, (path, location, caption, concept, weight, size) in enumerate(
            zip(paths, locations, captions, concepts, weights, sizes, strict=True)
        )
    ]


def regularisation_of(folder: Path, *, resolution: int, step: int, buckets: bool) -> list[Example]:
    """Return the pictures of a folder of the class without the subject. Raises InputError when there is none."""
    from datasieve.imaging.probe import examine
    from datasieve.sources import open_source

    found = []
    for record in open_source(folder).records:
        facts = examine(record.location.read(), record.path).facts
        size = training_sizes([facts.width], [facts.height], resolution, step, buckets=buckets)[0]
        caption = record.captions[0].strip() if record.captions else ""
        found.append(Example(record.path, record.location, caption, record.concept, -1, 1.0, size, is_prior=True))
    return found


def training_sizes(
    width: Sequence[int], height: Sequence[int], resolution: int, step: int, *, buckets: bool
) -> list[tuple[int, int]]:
    """Return the (width, height) in pixels that pictures of these sizes are trained at."""
    if not buckets:
        return [(resolution // step * step,) * 2] * len(width)
    table = kohya_buckets(resolution, step=step)
    across, down = choose_kohya(np.asarray(width, np.int64), np.asarray(height, np.int64), table)
    return list(zip(across.tolist(), down.tolist(), strict=True))


def pixels(example: Example) -> torch.Tensor:
    """Return (3, height, width) float32 in [-1, 1]. Raises ImageError when the file can no longer be read."""
    from datasieve.imaging.picture import picture
    from datasieve.sampling.dataset import cover

    return cover(picture(example.location.read(), example.path), *example.size)


def mask(example: Example, kind: Mask) -> torch.Tensor | None:
    """Return (height, width) float32 in 0..1, where the loss counts; None where it counts everywhere.

    Args:
        example: the picture.
        kind: "alpha" reads its transparency, "file" the picture beside it that is called NAME-masklabel.png.
    """
    import torch
    from PIL import Image

    from datasieve.imaging.orient import oriented
    from datasieve.imaging.probe import examine, pillow_formats
    from datasieve.sampling.dataset import cover

    if kind == "off":
        return None
    data = example.location.read() if kind == "alpha" else _mask_file(example)
    if data is None:
        return None
    try:
        with Image.open(io.BytesIO(data), formats=pillow_formats()) as opened:
            opened.load()
            if kind == "alpha" and not opened.has_transparency_data:
                return None
            grey = opened.convert("RGBA").getchannel("A") if kind == "alpha" else opened.convert("L")
    except (OSError, ValueError, SyntaxError) as error:
        raise ImageError(f"the mask of {example.path} cannot be decoded: {error}") from error
    turned = oriented(np.asarray(grey), examine(data, example.path).facts.orientation)
    covered = cover(Image.fromarray(np.ascontiguousarray(turned)).convert("RGB"), *example.size)[0]
    found = (covered + 1) / 2
    # A mask that is white all over asks for nothing; a black one would divide by nothing.
    return None if float(found.min()) > 0.999 else torch.as_tensor(found)


def _mask_file(example: Example) -> bytes | None:
    if example.location.size is not None:  # within a shard nothing lies beside
        return None
    beside = Path(example.location.file)
    file = beside.with_name(PurePosixPath(beside.name).stem + MASK_SUFFIX)
    return file.read_bytes() if file.is_file() else None


def held_out(examples: Sequence[Example], share: float, seed: int) -> tuple[list[Example], list[Example]]:
    """Split off pictures to measure on: at most `share` and 8 of them, none from fewer than four pictures.

    Returns:
        those to train on, those to measure on.
    """
    count = min(8, int(len(examples) * share + 0.5)) if len(examples) >= 4 else 0
    chosen = set(np.random.default_rng([seed, 9]).permutation(len(examples))[:count].tolist())
    return (
        [e for i, e in enumerate(examples) if i not in chosen],
        [replace(e, weight=1.0) for i, e in enumerate(examples) if i in chosen],
    )
