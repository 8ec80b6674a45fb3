"""Scales: where a concept has no close-up, or no full shot, one is cut out of a large picture that shows more.

A token that has only seen its subject whole draws faces and surfaces badly, and one that has only seen it close cannot
place it in a scene. A crop of a photo with pixels to spare is new evidence of detail, though not of light or pose. The
audit tells the scale of each image (`subject.scale`) and where the subject is. A close-up is a window that the subject
all but fills, a full shot one that leaves it some room. At most one image in `ONE_IN` is made, from the largest
pictures first, never with fewer pixels than the training resolution has, and never one that shows nearly all of its
source again.

Where it fails: the box of the subject may be wrong, and the caption is that of the whole picture. Look at the crops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from datasieve.repair import Row
from datasieve.repair.crop import Window
from datasieve.repair.looks import subject_box

SCALES = ("detail", "portrait", "half", "full", "wide")
"""From the closest to the widest, as `subject.scale` names them."""

FILL = {"close": 0.92, "full": 0.65}
"""Share of the window's side that the longer side of the subject takes."""

SATISFY = {"close": ("detail", "portrait"), "full": ("full",)}
MADE_FROM = {"close": ("half", "full", "wide"), "full": ("wide",)}

SHAPE = 1.5
"""A window's longer side is at most so many times the shorter."""

MIN_IMAGES, ONE_IN = 4, 4
MOST_AREA = 0.6
"""Share of its source beyond which a crop shows nothing new."""


@dataclass(frozen=True, slots=True)
class Crop:
    """A crop to be made: which image, of what kind ("close" or "full"), and the window in whole pixels."""

    image_id: str
    kind: str
    window: Window


def crops(rows: Mapping[str, Row], smallest: int) -> list[Crop]:
    """Return the crops that give each concept the scales it lacks.

    Args:
        rows: image_id -> row, its width, height and subject as they are where the crop is cut.
        smallest: sides of a crop are at least so many pixels.
    """
    concepts: dict[str, list[str]] = {}
    for image, row in rows.items():
        if row.get("subject.scale") in SCALES and subject_box(row) is not None:
            concepts.setdefault(row["concept"] or "", []).append(image)
    made = []
    for members in concepts.values():
        scales = [str(rows[image]["subject.scale"]) for image in members]
        for kind, enough in SATISFY.items():
            if len(members) < MIN_IMAGES or any(scale in enough for scale in scales):
                continue
            sources = [image for image in members if rows[image]["subject.scale"] in MADE_FROM[kind]]
            windows = [(image, window(rows[image], FILL[kind], smallest)) for image in sources]
            usable = [(image, cut) for image, cut in windows if cut is not None]
            usable.sort(key=lambda pair: (-_area(pair[1]), rows[pair[0]]["path"]))
            most = max(1, len(members) // ONE_IN)
            made += [Crop(image, kind, cut) for image, cut in usable[:most]]
    return made


def window(row: Row, fill: float, smallest: int) -> Window | None:
    """Return the window in whole pixels in which the subject takes `fill` of a side; None when it cannot be had."""
    box = subject_box(row)
    if box is None:
        return None
    width, height = int(row["width"]), int(row["height"])
    left, top, right, bottom = box[0] * width, box[1] * height, box[2] * width, box[3] * height
    wide, high = (right - left) / fill, (bottom - top) / fill
    wide, high = max(wide, high / SHAPE), max(high, wide / SHAPE)
    wide, high = min(round(wide), width), min(round(high), height)
    if min(wide, high) < smallest or wide * high > MOST_AREA * width * height:
        return None
    start = _start((left + right - wide) / 2, width - wide), _start((top + bottom - high) / 2, height - high)
    return start[0], start[1], start[0] + wide, start[1] + high


def _start(wanted: float, most: int) -> int:
    return min(max(round(wanted), 0), most)


def _area(cut: Sequence[float]) -> float:
    return (cut[2] - cut[0]) * (cut[3] - cut[1])
