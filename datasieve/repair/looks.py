"""How the subject of each picture looks, so that a picture is told from its set by what both of them show.

A picture on an orange wall and one under an orange lamp have the same average. The subject tells them apart: under the
lamp it is orange too. So light and lightness are read twice, over the whole picture and over the subject, and a picture
only counts as another by as much as both say (`agreed`). The subject is the box that the audit found
(`subject.left` and so on, where `subject.certainty` is at least `LEAST_CERTAINTY`), else the middle half of each side.

Only concepts with a picture that stands apart are looked at. Fails where the things in the box differ in colour from
picture to picture: then neither is moved.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from datasieve.batch import DecodeRequest
from datasieve.imaging import colorimetry
from datasieve.imaging.decode import decode
from datasieve.records import ImageRecord
from datasieve.repair import Pixels, Row
from datasieve.repair.light import linear

SUBJECT = ("subject.left", "subject.top", "subject.right", "subject.bottom")
CERTAINTY = "subject.certainty"

LEAST_CERTAINTY = 0.5
"""Below it the box of the subject is not used (provisional)."""

INNER = 0.8
"""Share of the box, in the middle, that is looked at: its edges mostly show what is behind."""

MIDDLE = (0.25, 0.25, 0.75, 0.75)
LEVELS = (8, 250)
"""Encoded levels of the brightest channel between which a pixel tells of colour."""

MIN_IMAGES = 4
"""Images of a concept needed to speak of what they share."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a picture counts as one in another light.

    Attributes:
        warmth: it stands at least so far from its set, in ln(red / blue).
        skew: and changes in green by what a lamp or the sky would make of it within so much (see `LAMP`).
    """

    warmth: float
    skew: float


KNOWN, GUESSED = Limits(0.2, 0.4), Limits(0.3, 0.3)
"""With the subject's box, and with the middle of the picture instead.

Chosen on 70 photos of 15 subjects, each put under 2800, 3500 and 12000 K with boxes drawn by hand: about one in ten of
the unharmed ones stood so far apart; moving those changed all of them by a mean CIEDE2000 of 0.5. docs/fix.md tells
what comes of it, on many of the same photos."""

ODD_STOPS = 1.0
"""Stops from its set beyond which a picture counts as exposed otherwise: 3 % of those unharmed photos."""

LAMP = 0.1
"""Change of `tint` per change of `warmth` from one black body to another: 0.08 to 0.13 between 2800 and 12000 K. That
of a green wall or a magenta cloth is far from it."""

LEVEL = 7.0
"""L* from the median within which no picture is a stop from its set: a stop is 7 L* in the dark, more elsewhere."""

SPREADS = 1.5
"""And how many times as far as is usual in the set."""

LOOKS = ("fix.warmth", "fix.subject-warmth", "fix.tint", "fix.subject-tint", "fix.stops", "fix.subject-stops")
"""What is added to a row, of the light in the whole picture and of the subject: warmth ln(red / blue), tint
ln(green / geometric mean of red and blue), both of linear sRGB, and stops, log2 of the mean luminance."""

BOXED = "fix.boxed"
"""Whether the subject's box was known."""


def subject_box(row: Row) -> tuple[float, float, float, float] | None:
    """Return left, top, right, bottom of the subject in [0, 1] of the upright picture; None when it is not known."""
    values = [row.get(name) for name in SUBJECT]
    certainty = row.get(CERTAINTY)
    if any(v is None for v in values) or certainty is None or certainty < LEAST_CERTAINTY:
        return None
    left, top, right, bottom = (min(max(float(v), 0.0), 1.0) for v in values if v is not None)
    return (left, top, right, bottom) if right > left and bottom > top else None


def limits(row: Row) -> Limits:
    """Return the limits that hold for the image of this row."""
    return KNOWN if row.get(BOXED) else GUESSED


def warmth_and_tint(red: float, green: float, blue: float) -> tuple[float, float]:
    """Return ln(red / blue) and ln(green / sqrt(red blue)) of a colour in linear light, above 0."""
    return math.log(red / blue), math.log(green) - (math.log(red) + math.log(blue)) / 2


def _light(row: Row) -> tuple[float, float] | None:
    """Return warmth and tint of the light of a row; None where it was not measured."""
    red, green, blue = (row.get(f"colour.light-{c}") for c in ("red", "green", "blue"))
    return warmth_and_tint(red, green, blue) if red and green and blue else None


def lamp_like(warmth: float, tint: float, skew: float) -> bool:
    """Tell whether a change of light is one from lamp to lamp, within `skew`."""
    return abs(tint - LAMP * warmth) < skew * abs(warmth)


def agreed(whole: float, subject: float) -> float:
    """Return by how much both say that a picture stands apart: the smaller of the two, 0 when they contradict."""
    return math.copysign(min(abs(whole), abs(subject)), whole) if whole * subject > 0 else 0.0


def look(records: Sequence[ImageRecord], rows: Mapping[str, Row], max_pixels: int) -> dict[str, dict[str, float]]:
    """Return image_id -> the values of `LOOKS`, for all images of the concepts in which one stands apart.

    Reads those images. One that cannot be read is left out.
    """
    concepts: dict[str, list[ImageRecord]] = {}
    for record in records:
        row = rows.get(record.image_id)
        if row is not None and row["status"] == "ok":
            concepts.setdefault(row["concept"] or "", []).append(record)
    found: dict[str, dict[str, float]] = {}
    for members in concepts.values():
        if len(members) >= MIN_IMAGES and _uneven([rows[m.image_id] for m in members]):
            for record in members:
                seen = _seen(record, rows[record.image_id], max_pixels)
                if seen is not None:
                    found[record.image_id] = seen
    return found


def _uneven(rows: Sequence[Row]) -> bool:
    """Tell whether any row stands so far apart that a look is worth its time."""
    lights = [light[0] for light in map(_light, rows) if light is not None]
    levels = [float(row["colour.lightness"]) for row in rows if row.get("colour.lightness") is not None]
    return _widest(lights) > KNOWN.warmth or _widest(levels) > LEVEL


def _widest(values: Sequence[float]) -> float:
    return max((abs(v - float(np.median(values))) for v in values), default=0.0)


def _seen(record: ImageRecord, row: Row, max_pixels: int) -> dict[str, float] | None:
    try:
        data = record.location.read()
    except OSError:
        return None
    pixels = decode(data, record.path, DecodeRequest(pixels=True, max_pixels=max_pixels)).pixels
    own = _light(row)
    if pixels is None or own is None:
        return None
    inside = _within(pixels, subject_box(row))
    subject = warmth_and_tint(*_mean(inside))
    values = (own[0], subject[0], own[1], subject[1], _stops(pixels), _stops(inside))
    return {**dict(zip(LOOKS, values, strict=True)), BOXED: float(subject_box(row) is not None)}


def _within(pixels: Pixels, box: tuple[float, float, float, float] | None) -> Pixels:
    """Return the inner part of the box of the subject, or the middle of the picture."""
    left, top, right, bottom = box or MIDDLE
    inner = INNER if box else 1.0
    height, width = pixels.shape[:2]
    rows = _span(top * height, bottom * height, inner)
    columns = _span(left * width, right * width, inner)
    return pixels[rows, columns]


def _span(start: float, end: float, inner: float) -> slice:
    middle, half = (start + end) / 2, (end - start) / 2 * inner
    first = int(middle - half)
    return slice(first, max(first + 1, math.ceil(middle + half)))


def _mean(pixels: Pixels) -> tuple[float, float, float]:
    """Return the mean linear colour of the pixels that are neither clipped nor black; of all when there are few."""
    flat = pixels.reshape(-1, 3)
    brightest = flat.max(-1)
    use = (brightest >= LEVELS[0]) & (brightest <= LEVELS[1])
    chosen = flat[use] if int(use.sum()) >= 20 else flat
    red, green, blue = (float(v) + 1e-6 for v in linear(chosen).mean(0, dtype=np.float64))
    return red, green, blue


def _stops(pixels: Pixels) -> float:
    luminance = colorimetry.rgb_to_xyz_matrix()[1]
    return math.log2(float(linear(pixels).mean((0, 1), dtype=np.float64) @ luminance) + 1e-6)
