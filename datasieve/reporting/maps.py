"""Where the subject of one image was found, laid over the picture."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from datasieve.embedding import cosaliency
from datasieve.errors import InputError, ReportError
from datasieve.storage import atomic_path, readable

if TYPE_CHECKING:
    from datasieve.records import Location
    from datasieve.report import Report

Pixels = npt.NDArray[np.uint8]

STRENGTH = 0.6
"""How much of the picture's colour the map takes where it is certain, or certainly nothing."""

FRAME = (255, 255, 255)


def write_maps(report: Report, row: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write the subject's map, with its box, and the maps at each scale over the picture of one image, as PNG.

    Yellow is the subject, dark blue the rest (matplotlib's cividis, which all kinds of colour vision tell apart).

    Args:
        report: where the image was audited; its dataset must still be there.
        row: the image's row of images.parquet.
        folder: where the pictures go; names are made of the image's, and hold letters, digits and hyphens only.

    Raises:
        ReportError: there is no map of the image, or the picture is no longer what was audited.
        OutputError: the folder cannot be written.
    """
    columns = {"subject": "subject.map", **{f"scale-{k}": f"subject.map-{k}" for k in cosaliency.SCALES}}
    if not all(row.get(column) for column in columns.values()):
        why = row.get("subject.unmeasured") or "the audit was made without them"
        raise ReportError(
            f"{report.path} holds no maps of {readable(str(row['path']))}: {why}",
            remedy="Audit the set again, with an embedder.",
        )
    pixels = _pixels(report, row)
    stem = re.sub(r"[^A-Za-z0-9]+", "-", PurePosixPath(str(row["path"])).stem).strip("-")[:40] or "image"
    written = []
    for name, column in columns.items():
        overlay = overlaid(pixels, cosaliency.read(row[column]))
        if name == "subject":
            outline(overlay, *(float(row[f"subject.{side}"]) for side in ("left", "top", "right", "bottom")))
        final = folder / f"{stem}-{row['image_id']}-{name}.png"
        _write(overlay, final)
        written.append(final)
    return written


def overlaid(pixels: Pixels, values: npt.NDArray[Any]) -> Pixels:
    """Return a picture (h, w, 3) under a map (n, n) of 0 to 1 that was stretched over it."""
    from matplotlib import colormaps
    from PIL import Image

    height, width = pixels.shape[:2]
    grey = Image.fromarray(np.uint8(np.clip(values, 0, 1) * 255))
    spread = np.asarray(grey.resize((width, height), Image.Resampling.BICUBIC), np.float32) / 255
    colours = colormaps["cividis"](spread)[..., :3] * 255
    return np.asarray(np.rint((1 - STRENGTH) * pixels + STRENGTH * colours), np.uint8)


def outline(pixels: Pixels, left: float, top: float, right: float, bottom: float) -> None:
    """Draw a box, given in shares of the picture, into it: white within black, so that it is seen on any ground."""
    height, width = pixels.shape[:2]
    x0, x1 = (min(max(round(v * width), 0), width) for v in (left, right))
    y0, y1 = (min(max(round(v * height), 0), height) for v in (top, bottom))
    for inset, colour in ((0, (0, 0, 0)), (1, FRAME), (2, FRAME), (3, (0, 0, 0))):
        a, b, c, d = x0 + inset, y0 + inset, x1 - inset, y1 - inset
        if c - a < 2 or d - b < 2:
            return
        pixels[b, a:c] = pixels[d - 1, a:c] = pixels[b:d, a] = pixels[b:d, c - 1] = colour


def _pixels(report: Report, row: Mapping[str, Any]) -> Pixels:
    """Return the working picture of an image, as it was audited."""
    from datasieve.batch import DecodeRequest
    from datasieve.imaging.decode import decode

    settings = report.run.get("settings") or {}
    shown = readable(str(row["path"]))
    request = DecodeRequest(tiles=False, pixel_hash=False, max_pixels=int(settings.get("max-pixels", 178_956_970)))
    try:
        decoded = decode(_place(report, row).read(), str(row["path"]), request)
    except OSError as error:
        raise ReportError(f"cannot read {shown}: {error}", remedy="Audit the set again.") from error
    if decoded.pixels is None or decoded.content != row["content"]:
        raise ReportError(f"{shown} is no longer what was audited", remedy="Audit the set again.")
    return decoded.pixels


def _place(report: Report, row: Mapping[str, Any]) -> Location:
    from datasieve.sources import open_source

    dataset, settings = Path(report.run["dataset"]["path"]), report.run.get("settings") or {}
    try:
        records = open_source(dataset, concept_by=settings.get("concept-by", "auto")).records
        return next(r.location for r in records if r.image_id == row["image_id"])
    except (InputError, StopIteration) as error:
        raise ReportError(
            f"{readable(str(row['path']))} is no longer in {readable(str(dataset))}", remedy="Audit the set again."
        ) from error


def _write(pixels: Pixels, final: Path) -> None:
    from PIL import Image

    with atomic_path(final) as temporary:
        Image.fromarray(pixels).save(temporary, "PNG")
