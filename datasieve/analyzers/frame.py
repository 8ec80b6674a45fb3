"""What does not belong to the picture itself: bars around it, a mark stamped on it, or no picture at all.

Bars, frames and watermarks are the same in image after image, so a token, hypernetwork or LoRA learns them before it
learns the subject, and draws them into everything. Bars also waste the resolution that the subject should have.

Method. *Bars*: from each side inwards, lines of one colour (standard deviation and drift below 4 grey levels, which
tolerates JPEG) that end within three lines in a step over most of the width. A plain backdrop or a night sky ends
where the subject begins, not along a straight line, and is not counted. *Watermark*: signs of fine strokes (pixel
against the mean of its four neighbours) are kept for five places, the corners and the centre. Over the set, and over
every concept, the leading common pattern of each place is found by power iteration (the consistency over images that
Dekel, Rubinstein, Liu and Freeman, "On the effectiveness of visible watermarks", CVPR 2017, build on); an image's
agreement is the correlation of its strokes with that pattern taken from the other images, less the agreement in the
other places, so that near duplicates, which agree everywhere, do not count.

Where it fails. Bars filled with a blurred copy of the picture, patterned frames and rounded corners are not found;
neither are bars thinner than 3 pixels of a picture reduced to 256 px. A watermark is found only if three images or
more carry it at the same place and size relative to the longer side, and only in the corners or the centre: one
stamped at random places, tiled over the picture, or on one image alone stays unseen, and images of another aspect
ratio rarely agree. Other things that recur at one place (a date imprint, an interface, a fixed camera's
foreground) count as a mark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from datasieve.analyzers import Comparison
from datasieve.analyzers._strokes import PLACES, agreements, common_strokes, pack, stroke_signs, unpack
from datasieve.batch import Request, View
from datasieve.rules import Rule
from datasieve.schema import Column

if TYPE_CHECKING:
    import pyarrow as pa

    from datasieve.batch import Batch
    from datasieve.config import Settings

Floats = npt.NDArray[np.float32]

RGB = View(256, "srgb")
LUMA = View(256, "luma")

SIDES = ("left", "top", "right", "bottom")
FLAT = 4.0
"""Grey levels: largest standard deviation along a line of a bar, and largest drift of its mean."""
STEP = 12.0
"""Grey levels by which a pixel inside must differ from the bar."""
STEP_SHARE, PAIR_SHARE = 0.75, 0.7
"""Share of the bar's length that must end in a step; for two opposite bars of one colour, the mean of both."""
MIN_LINES = 3
MIN_SIDE = 16

MIN_IMAGES = 3
AGREE = 0.2
"""Agreement from which an image counts as carrying the mark."""
SAMPLE = 2048
"""The common pattern is sought in at most so many images, evenly spaced."""
CHUNK = 1024

TOO_SMALL = "smaller than 16 px"
NO_PLACES = "too small or too narrow to compare corners for a watermark"


def borders(picture: Floats) -> dict[str, int]:
    """Return the width in lines of the uniform bars at each side.

    Args:
        picture: (h, w, 3) in grey levels 0..255, at least `MIN_SIDE` px each way.

    Returns:
        "left", "top", "right", "bottom" -> number of lines; 0 where there is no bar.
    """
    views = {
        "left": picture.swapaxes(0, 1),
        "top": picture,
        "right": picture[:, ::-1].swapaxes(0, 1),
        "bottom": picture[::-1],
    }
    depth, colour = {}, {}
    for side, lines in views.items():
        depth[side], colour[side] = _flat_lines(lines)
    share = {}
    for side, lines in views.items():
        if not MIN_LINES <= depth[side] < len(lines) // 2:
            continue
        before, after = ("left", "right") if side in ("top", "bottom") else ("top", "bottom")
        length = lines.shape[1]
        span = slice(depth[before], length - depth[after])
        if depth[before] + depth[after] >= length - 8:
            span = slice(0, length)
        inside = np.abs(lines[depth[side] : depth[side] + 3, span] - colour[side]).max((0, 2))
        share[side] = float((inside > STEP).mean())
    found = dict.fromkeys(SIDES, 0)
    for side, value in share.items():
        other = {"left": "right", "right": "left", "top": "bottom", "bottom": "top"}[side]
        pair = other in share and np.abs(colour[side] - colour[other]).max() < FLAT
        if value >= STEP_SHARE or (pair and (value + share[other]) / 2 >= PAIR_SHARE):
            found[side] = depth[side]
    return found


def _flat_lines(lines: Floats) -> tuple[int, Floats]:
    """Return how many lines from the first are of one colour, and that colour (3,)."""
    first = lines[:MIN_LINES]
    colour: Floats = np.median(first.mean(1), axis=0)
    if first.std(1).max() > FLAT:  # nearly every picture ends here
        return 0, colour
    flat = (lines.std(1).max(1) < FLAT) & (np.abs(lines.mean(1) - colour).max(1) < FLAT)
    return (len(flat) if flat.all() else int(np.argmin(flat))), colour


def blank(picture: Floats) -> bool:
    """Tell whether a picture, (h, w, 3) in grey levels, is one colour: no channel spans 4 levels or more."""
    return float(np.ptp(picture[::8, ::8], axis=(0, 1)).max()) < FLAT and bool(
        np.ptp(picture, axis=(0, 1)).max() < FLAT
    )


class Frame:
    """See the module."""

    version = 1
    views: tuple[Request, ...] = (RGB, LUMA)
    needs: tuple[str, ...] = ("concept", "frame.signature")
    columns: tuple[Column, ...] = (
        Column(
            "frame.border-share",
            unit="share",
            description="Share of the picture's area taken by uniform bars; more is worse.",
            low=0,
            high=1,
            tolerance=0.02,
        ),
        Column("frame.border-sides", "string", "", "Sides with a bar, such as `left, right`; empty without one."),
        *(
            Column(
                f"frame.border-{side}",
                unit="share",
                description=f"Width of the bar at the {side} as a share of the picture's "
                f"{'width' if side in ('left', 'right') else 'height'}.",
                low=0,
                high=0.5,
                tolerance=0.01,
            )
            for side in SIDES
        ),
        Column("frame.blank", "bool", "", "The whole picture is one colour, within 4 grey levels."),
        Column(
            "frame.signature",
            "string",
            "",
            "Signs of fine strokes in the four corners and the centre, five to a byte in base 3, as base64.",
        ),
        Column(
            "frame.watermark",
            unit="correlation",
            description="Agreement of this image's strokes with a pattern that other images of the set, or of its "
            "concept, have at the same place and nowhere else; more is worse.",
            low=-1,
            high=1,
            source="after Dekel, Rubinstein, Liu, Freeman 2017, doi:10.1109/CVPR.2017.726",
            tolerance=0.02,
            stage="compare",
        ),
        Column(
            "frame.watermark-images",
            "int",
            "images",
            "How many images, this one included, carry the same mark; 0 when this one carries none.",
            low=0,
            stage="compare",
        ),
        Column("frame.watermark-place", "string", "", "Where the mark is; empty when there is none.", stage="compare"),
    )
    rules: tuple[Rule, ...] = (
        Rule(
            id="frame.border",
            column="frame.border-share",
            side="above",
            limit=0.02,
            severity="warning",
            title="Bars or frame",
            message="{value:.0%} of this picture is a bar of one colour ({frame.border-sides}); bars are learned "
            "before the subject and drawn into every result.",
            remedy="Crop the bars away.",
            why="Bars are the same in image after image, so they are the first thing a token, hypernetwork or LoRA "
            "learns. They also waste the resolution that the subject should have.",
            how="From each side inwards, lines of one colour that end together in a step over most of the width. A "
            "blurred or patterned frame is not found; a drawing whose edge is a straight flat area may be accused.",
            source="plain statistics",
            evidence="false alarms 0/400 photos, 0/119 subject photos, 2/241 drawings; the one natural letterbox of "
            "the subject photos is found. Provisional: hits on other frames are measured by tests only.",
            repair="trim",
        ),
        Rule(
            id="frame.blank",
            column="frame.blank",
            side="is",
            limit=True,
            severity="warning",
            title="Blank picture",
            message="This picture is one single colour; there is nothing in it to learn.",
            remedy="Remove it, or replace it by the picture it should have been.",
            why="A blank picture teaches the token or adapter to paint blank pictures, as often as its turn comes.",
            how="No channel spans 4 grey levels or more at a longer side of 256 px.",
            source="plain statistics",
            evidence="exact by its definition; six of 400 photos are near-black frames and fire.",
        ),
        Rule(
            id="frame.watermark",
            column="frame.watermark",
            side="above",
            limit=AGREE,
            severity="warning",
            title="Repeated mark",
            message="The same strokes stand {frame.watermark-place} of {frame.watermark-images} pictures (agreement "
            "{value:.2f}, limit {limit}); a watermark, date or logo is learned with the subject.",
            remedy="Look at that place: crop the mark away or use unmarked copies.",
            why="A mark at one place is the most regular thing in the set. Models trained on it write it into their "
            "results, garbled but recognisable.",
            how="Signs of fine strokes in the corners and the centre at 256 px; the pattern common to the set, or to "
            "one concept, is found by power iteration and each image's agreement is taken from the others. Needs three "
            "images that carry it at the same place and relative size; crops of one photograph also agree.",
            source="after Dekel, Rubinstein, Liu and Freeman, CVPR 2017",
            evidence="a half-transparent text planted in the bottom right corner of all photos: 65 of 65 where the "
            "limit was chosen, 53 of 55 on other subjects. False alarms 0/120 subject photos, 0/135 encyclopedia "
            "pictures, 6/400 photos (six crops of one photograph). Other marks are not measured (provisional).",
        ),
    )

    def measure(self, batch: Batch) -> Mapping[str, Sequence[float | bool | str | None]]:
        """Return bars, blankness and stroke signs of every image."""
        rgb = (batch.pixels(RGB)[0].permute(0, 2, 3, 1) * 255).cpu().numpy()
        luma = (batch.pixels(LUMA)[0][:, 0] * 255).cpu().numpy()
        out: dict[str, list[float | bool | str | None]] = {
            **{c.name: [] for c in self.columns if c.stage == "measure"},
            "frame.unmeasured": [],
        }
        for picture, grey, (h, w) in zip(rgb, luma, batch.sizes(RGB.side), strict=True):
            row: dict[str, float | bool | str | None] = dict.fromkeys(out)
            signs = stroke_signs(grey[:h, :w])
            row["frame.signature"] = None if signs is None else pack(signs)
            if min(h, w) < MIN_SIDE:
                row["frame.unmeasured"] = TOO_SMALL
            else:
                found = borders(picture[:h, :w])
                inner = (h - found["top"] - found["bottom"]) * (w - found["left"] - found["right"])
                row["frame.border-share"] = 1 - inner / (h * w)
                row["frame.border-sides"] = ", ".join(s for s in SIDES if found[s])
                for side in SIDES:
                    row[f"frame.border-{side}"] = found[side] / (w if side in ("left", "right") else h)
                row["frame.blank"] = blank(picture[:h, :w])
                row["frame.unmeasured"] = NO_PLACES if signs is None else None
            for name, value in row.items():
                out[name].append(value)
        return out

    def compare(self, table: pa.Table, settings: Settings) -> Comparison:
        """Look for a mark that images of the set, or of one concept, carry at the same place."""
        texts = table.column("frame.signature")
        measured = np.flatnonzero(np.asarray(texts.is_valid().to_pylist(), bool))
        score = [math.nan] * len(texts)
        images: list[int | None] = [None] * len(texts)
        places: list[str | None] = [None] * len(texts)
        found = Comparison(
            {"frame.watermark": score, "frame.watermark-images": images, "frame.watermark-place": places}
        )
        if len(measured) < MIN_IMAGES:
            found.unmeasured["frame.watermark"] = f"needs at least {MIN_IMAGES} images that are large enough"
            return found
        for row in measured:
            score[row], images[row], places[row] = 0.0, 0, ""
        groups: dict[str, list[int]] = {}
        concepts = table.column("concept").to_pylist()
        for row in measured.tolist():
            groups.setdefault(concepts[row] or "", []).append(row)
        sets = [measured, *(np.array(g) for g in groups.values() if MIN_IMAGES <= len(g) < len(measured))]
        for rows in sets:
            values = _group_agreements(texts, rows)
            carriers = (values > AGREE).sum(0)
            values[:, carriers < MIN_IMAGES] = 0
            best = values.argmax(1)
            for row, place, value in zip(rows.tolist(), best.tolist(), values.max(1).tolist(), strict=True):
                if value > score[row]:
                    score[row] = value
                    if value > AGREE:
                        images[row], places[row] = int(carriers[place]), PLACES[place]
        return found


def _group_agreements(texts: pa.ChunkedArray, rows: npt.NDArray[np.intp]) -> Floats:
    """Return (n, 5) agreements of the images in `rows`; the pattern is sought in an even sample of them."""
    sample = np.arange(len(rows)) if len(rows) <= SAMPLE else np.linspace(0, len(rows) - 1, SAMPLE).astype(int)
    part, patterns = common_strokes(unpack(texts.take(rows[sample]).to_pylist()))
    weights = np.zeros((len(PLACES), len(rows)), np.float32)
    weights[:, sample] = part
    pieces = [
        agreements(unpack(texts.take(rows[i : i + CHUNK]).to_pylist()), patterns, weights[:, i : i + CHUNK])
        for i in range(0, len(rows), CHUNK)
    ]
    return np.concatenate(pieces)


ANALYZER = Frame()
