"""The images of a report as a dataset for training, in the form that diffusers' example scripts read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import Dataset

from datasieve.config import RESOLUTIONS
from datasieve.errors import ReportError
from datasieve.imaging.picture import picture
from datasieve.sampling.columns import usable_rows
from datasieve.sources import open_source

if TYPE_CHECKING:
    from PIL import Image

    from datasieve.records import Location
    from datasieve.report import Report


class ReportDataset(Dataset[dict[str, Any]]):
    """The usable images of a report; index i is the same image as in the samplers' `from_report`.

    An item is {"pixel_values": what `transform` returns, "input_ids": (77,) int64 token ids, "index": i}; without a
    tokenizer "caption" (text) stands in place of "input_ids". A missing caption is "".

    Args:
        report: a finished audit; the dataset must still lie where it was.
        transform: takes the picture (RGB, upright, sRGB, full size) and returns what the model is given. By default
            the picture is resized until it covers its bucket, cropped at the centre, and scaled to [-1, 1]:
            (3, height, width) float32.
        tokenizer: a tokenizer of transformers (called with padding to `model_max_length` and truncation).
        caption: changes the caption before it is tokenised, such as a template around it.

    Raises:
        ReportError: an image of the report is no longer in the dataset.
    """

    def __init__(
        self,
        report: Report,
        transform: Callable[[Image.Image], Any] | None = None,
        tokenizer: Callable[..., Any] | None = None,
        *,
        caption: Callable[[str], str] | None = None,
    ) -> None:
        bucketed = "buckets.width" in report.columns()
        sizes = ["buckets.width", "buckets.height"] if bucketed else []
        table = usable_rows(report, ["image_id", "path", "caption", *sizes])
        self.paths: list[str] = table["path"].to_pylist()
        self.captions = [text or "" for text in table["caption"].to_pylist()]
        settings = report.run.get("settings", {})
        side = settings.get("resolution") or RESOLUTIONS[settings.get("base", "sd15")]
        widths, heights = ([v or side for v in table[n].to_pylist()] for n in sizes) if bucketed else ([], [])
        self.sizes: list[tuple[int, int]] = list(zip(widths, heights, strict=True)) or [(side, side)] * len(self.paths)
        self.transform, self.tokenizer, self.caption = transform, tokenizer, caption
        self.locations = locations_of(report, table["image_id"].to_pylist(), self.paths)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Return one item. Raises ImageError when its file can no longer be read."""
        whole = picture(self.locations[index].read(), self.paths[index])
        values = cover(whole, *self.sizes[index]) if self.transform is None else self.transform(whole)
        text = self.captions[index] if self.caption is None else self.caption(self.captions[index])
        item = {"pixel_values": values, "index": index}
        if self.tokenizer is None:
            return item | {"caption": text}
        tokens = self.tokenizer(
            text,
            padding="max_length",
            truncation=True,
            max_length=getattr(self.tokenizer, "model_max_length", 77),
            return_tensors="pt",
        )
        return item | {"input_ids": tokens.input_ids[0]}


def cover(image: Image.Image, width: int, height: int) -> torch.Tensor:
    """Return (3, height, width) float32 in [-1, 1]: resized until it covers that size, the rest cropped evenly."""
    from PIL import Image as pillow

    scale = max(width / image.width, height / image.height)
    # Rounded half up and never short, as `datasieve.bucketing.covered` counts.
    across, down = max(width, int(image.width * scale + 0.5)), max(height, int(image.height * scale + 0.5))
    resized = image.resize((across, down), pillow.Resampling.LANCZOS)
    left, top = (across - width) // 2, (down - height) // 2
    pixels = np.asarray(resized.crop((left, top, left + width, top + height)), np.float32)
    return torch.from_numpy(pixels).permute(2, 0, 1).div(127.5).sub(1).contiguous()


def locations_of(report: Report, ids: list[str], paths: list[str]) -> list[Location]:
    """Return where each image's bytes are, by listing the dataset again."""
    dataset, settings = report.run["dataset"]["path"], report.run.get("settings", {})
    wanted = set(ids)
    ingest = open_source(Path(dataset), concept_by=settings.get("concept-by", "auto"))
    found = {record.image_id: record.location for record in ingest.records if record.image_id in wanted}
    missing = [path for image, path in zip(ids, paths, strict=True) if image not in found]
    if missing:
        raise ReportError(
            f"{len(missing)} of the report's images are no longer in {dataset}, such as {missing[0]}",
            remedy="Audit the set again.",
        )
    return [found[image] for image in ids]
