"""Copies: files with equal bytes or equal pixels, the same picture saved again, and its mirrored or turned forms.

A picture that is there twice is shown twice as often. With five to thirty images a token, hypernetwork or LoRA then
learns that one picture, its background and its light, by heart, and the copies also reach the images held back for
evaluation. Mirrored copies may be wanted (flip augmentation), except where left and right matter (text, faces).

Method. *Equal bytes* and *equal pixels* by their hashes. *Near copies*: each image is reduced to a signature of
32 x 32 grey cells. The signs of its lowest 63 DCT coefficients against their median make a 64-bit hash (Zauner,
"Implementation and benchmarking of perceptual image hash functions", 2010: pHash); the hashes of the eight mirrored
and turned forms, and of a copy cropped by 3 % on each side, follow from the same coefficients. Hashes a few bits apart
are found by multi-index hashing (Norouzi, Punjani, Fleet, CVPR 2012). A coarse hash must not decide alone, so both
signatures are then aligned by scale and shift and compared again: the correlation over the whole and the largest
difference anywhere must both say "same picture". What a picture shows in only a few cells (a small thing on a white
wall) must agree far more closely, and pictures without detail (walls, gradients) are never near copies.

The representative of a group of near copies has most pixels, then the larger file, then the first path; of files with
equal bytes or pixels it is the first path. Everyone else points at a representative that it was compared with.

Where it fails. Crops of more than about 5 % a side, shifted crops, turns by other than quarter turns, collages and
added borders are not found. Frames of a burst or a video between which less changes than a thirtieth of the picture
can be called near copies; colour alone does not tell two pictures apart. Small subjects on a plain ground are found
only when not cropped. Beyond 50,000 images only closer hashes are looked at, and in sets of very many alike images not
every pair is compared; `run.json` then says so.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from datasieve.analyzers import Comparison
from datasieve.analyzers._copies import NEAR, ROTATION, Match, choose, components, find_copies
from datasieve.analyzers._signature import SIDE, TURNS, area_weights, coefficients, detail, hashes
from datasieve.batch import WORKING_SIDE, NativeHash, Request, View
from datasieve.rules import Rule
from datasieve.schema import Column

if TYPE_CHECKING:
    import pyarrow as pa
    import torch

    from datasieve.batch import Batch
    from datasieve.config import Settings

VIEW = View(128, "luma")

_PHASH = "Zauner 2010, Implementation and benchmarking of perceptual image hash functions"
_SEARCH = "Norouzi, Punjani, Fleet 2012, Fast search in Hamming space with multi-index hashing"

COLUMNS = (
    Column(
        "duplicates.phash", "string", description="DCT hash of the picture, 64 bits in 16 hex digits", source=_PHASH
    ),
    Column(
        "duplicates.signature",
        "string",
        description="the picture as 32 x 32 grey cells of 8 bits, row by row, in base64; copies are compared by it",
    ),
    Column(
        "duplicates.detail",
        "float",
        "grey levels",
        "RMS of the signature around its best-fitting plane; near 0 for walls and smooth gradients",
        low=0.0,
        high=255.0,
        tolerance=0.6,
    ),
    Column("duplicates.pixel-hash", "string", description="hash of size and native pixels, 32 hex digits"),
    Column(
        "duplicates.exact-of",
        "string",
        description="path of the representative with equal bytes or equal pixels; null for all others",
        stage="compare",
    ),
    Column(
        "duplicates.near-of",
        "string",
        description="path of the representative that this is a near copy of; null for all others",
        source=_SEARCH,
        stage="compare",
    ),
    Column(
        "duplicates.flip-of",
        "string",
        description="path of the representative that this is a mirrored or turned copy of; null for all others",
        source=_SEARCH,
        stage="compare",
    ),
    Column("duplicates.turn", "string", description="how it differs from duplicates.flip-of", stage="compare"),
    Column(
        "duplicates.likeness",
        "float",
        "correlation",
        "likeness to the representative once aligned; 1 is the same picture; null for images that are no copy",
        low=0.0,
        high=1.0,
        source="Baker, Matthews 2004, Lucas-Kanade 20 years on",
        tolerance=0.01,
        stage="compare",
    ),
    Column(
        "duplicates.group",
        "int",
        description="number of the group of copies of any kind; null when there is no copy",
        low=0,
        stage="compare",
    ),
    Column(
        "duplicates.group-size", "int", "images", "images in the group; 1 when there is no copy", low=1, stage="compare"
    ),
    Column("duplicates.is-exact-copy", "bool", description="equal bytes to duplicates.exact-of", stage="compare"),
    Column("duplicates.is-pixel-copy", "bool", description="equal pixels, other bytes", stage="compare"),
    Column("duplicates.is-near-copy", "bool", description="the same picture saved again", stage="compare"),
    Column("duplicates.is-mirrored-copy", "bool", description="the same picture mirrored", stage="compare"),
    Column("duplicates.is-rotated-copy", "bool", description="the same picture turned", stage="compare"),
)

_WHY = (
    "Each copy makes the trainer see this picture once more per epoch: with few images, a token, hypernetwork or LoRA "
    "learns its background and light by heart instead of the subject."
)
_HOW = (
    "A 63-bit DCT hash of 32 x 32 grey cells proposes pairs; both are then aligned by scale and shift, and must "
    "correlate above 0.985 with no local difference. Crops of more than about 5 % a side are missed, and two "
    "frames of a burst that differ in less than a thirtieth of the picture may be named; colour is not looked at."
)
_FALSE = (
    "False alarms: none among the 43,660 pairs of 296 real images (95 % limit 0.01 %); the one pair named is one photo."
)
_TURNED_WHY = (
    "It is not new evidence: the picture counts twice. That can be meant (flip augmentation), but if your trainer "
    "flips by itself, it flips the copies too, and text, logos, faces and other things with a left and a right are "
    "then learned both ways round."
)

RULES = (
    Rule(
        id="duplicates.exact",
        column="duplicates.is-exact-copy",
        side="is",
        limit=True,
        severity="warning",
        title="Same file twice",
        message="This file is byte for byte the same as {duplicates.exact-of}, so training shows it once more.",
        remedy="Remove it, or keep it and use the trainer's repeats if you meant to show the picture more often.",
        why=_WHY,
        how="Equal hashes of the files' bytes. No false alarms are possible in practice.",
        source="BLAKE2b, RFC 7693",
        evidence="Hit 22 of 22 planted copies on subjects not used for tuning; no false alarm is possible in practice.",
    ),
    Rule(
        id="duplicates.pixels",
        column="duplicates.is-pixel-copy",
        side="is",
        limit=True,
        severity="warning",
        title="Same pixels twice",
        message="This file shows exactly the pixels of {duplicates.exact-of}; only its format or metadata differ.",
        remedy="Remove one of the two.",
        why=_WHY,
        how="Equal hashes of size and decoded pixels, and the same upright picture.",
        source="BLAKE2b, RFC 7693",
        evidence="Hit every planted pixel-equal file with other bytes (unit tests); not measured on found data.",
    ),
    Rule(
        id="duplicates.near",
        column="duplicates.is-near-copy",
        side="is",
        limit=True,
        severity="warning",
        title="Saved twice",
        message="This is {duplicates.near-of} saved again, resized or slightly cropped (likeness "
        "{duplicates.likeness:.3f}), so training shows that picture once more.",
        remedy="Remove it after a look at both; {duplicates.near-of} has more pixels, or the larger file.",
        why=_WHY,
        how=_HOW,
        source=_PHASH,
        evidence=f"Hit 33 of 33 planted copies (saved again at quality 45-75, scaled to 0.45-0.8, 2-4 % cut off each "
        f"side) on subjects not used for tuning; 23 of 28 at 6 % cut off. {_FALSE} A crop shifted by 28 % was missed.",
    ),
    Rule(
        id="duplicates.mirrored",
        column="duplicates.is-mirrored-copy",
        side="is",
        limit=True,
        severity="info",
        title="Mirrored copy",
        message="This is {duplicates.flip-of} {duplicates.turn} (likeness {duplicates.likeness:.3f}).",
        remedy="Decide: keep it if you mean to train both ways round, otherwise leave one out.",
        why=_TURNED_WHY,
        how=_HOW,
        source=_PHASH,
        evidence=f"Hit 33 of 33 planted mirror images, 11 of them also cropped, scaled and saved again, on subjects "
        f"not used for tuning, all with the right label. {_FALSE}",
    ),
    Rule(
        id="duplicates.rotated",
        column="duplicates.is-rotated-copy",
        side="is",
        limit=True,
        severity="info",
        title="Turned copy",
        message="This is {duplicates.flip-of} {duplicates.turn} (likeness {duplicates.likeness:.3f}).",
        remedy="Decide: keep it if the subject is seen from all sides (from above, say), otherwise leave one out.",
        why=_TURNED_WHY,
        how=_HOW,
        source=_PHASH,
        evidence=f"Hit 84 of 84 planted quarter and half turns, a third each also cropped by 3 % or saved again, on "
        f"subjects not used for tuning. {_FALSE}",
    ),
)


def signatures(luma: torch.Tensor, sizes: Sequence[tuple[float, float]]) -> npt.NDArray[np.uint8]:
    """Return (B, 32, 32) uint8 area averages of pictures in the upper left corner of `luma`, whatever their aspect.

    Args:
        luma: (B, 1, S, S) in [0, 1].
        sizes: height and width of each picture in pixels of `luma`, which need not be whole; above 0.
    """
    import torch

    side = luma.shape[-1]
    weights = [np.stack([area_weights(SIDE, 0.0, s[axis], side) for s in sizes]) for axis in (0, 1)]
    down, across = (torch.from_numpy(w).to(luma.device) for w in weights)
    cells = down @ luma[:, 0].double() @ across.transpose(1, 2)
    # Averages of integers often end in exactly .5; a little more than rounding noise sends all of those upwards.
    levels = torch.floor(cells * 255 + (0.5 + 1e-3)).clamp_(0, 255)
    return np.asarray(levels.to(torch.uint8).cpu().numpy())


class Duplicates:
    """The analyzer `duplicates`."""

    version = 1
    views: tuple[Request, ...] = (VIEW, NativeHash())
    needs = (
        "path",
        "content",
        "width",
        "height",
        "status",
        "files.bytes",
        "duplicates.phash",
        "duplicates.signature",
        "duplicates.detail",
        "duplicates.pixel-hash",
    )
    columns = COLUMNS
    rules = RULES

    def measure(self, batch: Batch) -> Mapping[str, Sequence[Any]]:
        """Return hashes, signature and detail of each image."""
        luma, _ = batch.pixels(VIEW)
        ratio = VIEW.side / WORKING_SIDE
        shapes = [d.pixels.shape for d in batch.decoded if d.pixels is not None]
        small = signatures(luma, [(s[0] * ratio, s[1] * ratio) for s in shapes])
        return {
            "duplicates.phash": [f"{int(h):016x}" for h in hashes(coefficients(small))],
            "duplicates.signature": [base64.b64encode(s.tobytes()).decode("ascii") for s in small],
            "duplicates.detail": detail(small).tolist(),
            "duplicates.pixel-hash": [d.pixel_hash or None for d in batch.decoded],
        }

    def compare(self, table: pa.Table, settings: Settings) -> Comparison:
        """Return who is a copy of whom."""
        out = Comparison()
        paths: list[str] = table["path"].to_pylist()
        rows = _usable(table)
        exact = _same(rows, table["content"].to_pylist(), paths)
        firsts = [row for row in rows if row not in exact]
        pixels = _same(firsts, _pixel_keys(table), paths)
        firsts = [row for row in firsts if row not in pixels]

        found, spared = _near(table, firsts)
        kin = _kin(table, paths)
        found = [m for m in found if kin[m.first] != kin[m.second]]
        if spared:
            out.unmeasured["duplicates"] = spared
        order = _rank(table, firsts, paths)
        near = choose(order, [m for m in found if m.kind == NEAR])
        keeper = {row: near[row].first if row in near else row for row in firsts}
        lifted = [m.between(keeper[m.first], keeper[m.second]) for m in found if m.kind != NEAR]
        kept = [row for row in order if row not in near]
        turned = choose(kept, [m for m in lifted if m.first != m.second])

        same = {**pixels, **exact}
        links = [*same.items(), *((m.first, m.second) for m in found)]
        group, size = components(len(paths), links)
        usable = set(rows)
        copies = {**near, **turned}
        end: dict[int, int] = {row: pixels.get(first, first) for row, first in same.items()}
        out.columns = {
            "duplicates.exact-of": [paths[end[r]] if r in end else None for r in range(len(paths))],
            "duplicates.near-of": [paths[near[r].first] if r in near else None for r in range(len(paths))],
            "duplicates.flip-of": [paths[turned[r].first] if r in turned else None for r in range(len(paths))],
            "duplicates.turn": [TURNS[turned[r].turn] if r in turned else None for r in range(len(paths))],
            "duplicates.likeness": [
                1.0 if r in end else copies[r].score if r in copies else None for r in range(len(paths))
            ],
            "duplicates.group": group,
            "duplicates.group-size": [size[r] if r in usable else None for r in range(len(paths))],
        }
        truths = {
            "exact": set(exact),
            "pixel": set(pixels),
            "near": set(near),
            "mirrored": {r for r, m in turned.items() if m.kind != ROTATION},
            "rotated": {r for r, m in turned.items() if m.kind == ROTATION},
        }
        for name, members in truths.items():
            values = [r in members if r in usable else None for r in range(len(paths))]
            out.columns[f"duplicates.is-{name}-copy"] = values
        out.pairs = [("exact", end[r], r, 1.0) for r in exact]
        out.pairs += [("pixels", end[r], r, 1.0) for r in pixels]
        out.pairs += [(m.kind, m.first, m.second, m.score) for m in found]
        return out


def _kin(table: pa.Table, paths: Sequence[str]) -> list[str]:
    """Return of each image the path of the one it was cut out of by `fix`, else its own.

    Such crops are meant: they are no copies of their source, nor of one another.
    """
    derived: dict[str, str] = json.loads((table.schema.metadata or {}).get(b"derived", b"{}"))
    return [derived.get(path, path) for path in paths]


def _usable(table: pa.Table) -> list[int]:
    """Return the rows whose files were read: decoded, or refused for their size."""
    status, content = table["status"].to_pylist(), table["content"].to_pylist()
    return [row for row, value in enumerate(status) if value in ("ok", "refused") and content[row]]


def _same(rows: Sequence[int], keys: Sequence[object], paths: Sequence[str]) -> dict[int, int]:
    """Return row -> row with the first path of those with the same key, for all but those; null keys equal none."""
    first: dict[object, int] = {}
    for row in rows:
        key = keys[row]
        if key is not None and (key not in first or paths[row] < paths[first[key]]):
            first[key] = row
    return {row: first[keys[row]] for row in rows if keys[row] is not None and first[keys[row]] != row}


def _pixel_keys(table: pa.Table) -> list[object]:
    """Return what must agree for equal pixels: the native ones as stored, and how they are shown."""
    names = ("duplicates.pixel-hash", "width", "height", "duplicates.phash")
    rows = zip(*(table[name].to_pylist() for name in names), strict=True)
    return [row if row[0] else None for row in rows]


def _rank(table: pa.Table, rows: Sequence[int], paths: Sequence[str]) -> list[int]:
    """Return rows so that representatives come first: most pixels, then the larger file, then the first path."""
    width, height = table["width"].to_pylist(), table["height"].to_pylist()
    held = "files.bytes" in table.column_names
    size = table["files.bytes"].to_pylist() if held else [0] * len(paths)
    return sorted(rows, key=lambda r: (-(width[r] or 0) * (height[r] or 0), -(size[r] or 0), paths[r]))


def _near(table: pa.Table, rows: Sequence[int]) -> tuple[list[Match], str]:
    """Return the near, mirrored and turned pairs among `rows`, and what was left out, "" when nothing was."""
    import pyarrow as pa

    column = table["duplicates.signature"]
    measured = table["duplicates.detail"].to_pylist()
    chosen = np.array([r for r in rows if measured[r] is not None and column[r].is_valid], np.int64)

    def read(wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        texts = column.take(pa.array(chosen[wanted])).to_pylist()
        data = b"".join(base64.b64decode(text) for text in texts)
        return np.frombuffer(data, np.uint8).reshape(-1, SIDE, SIDE)

    level = np.array([measured[r] for r in chosen], np.float64)
    found, spared = find_copies(read, level)
    return [m.between(int(chosen[m.first]), int(chosen[m.second])) for m in found], spared


ANALYZER = Duplicates()
