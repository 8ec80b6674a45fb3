"""Fit datasieve/embedding/saliency_weights.npz: what each cue tells of where the subject is.

    python benchmarks/subject_weights.py DATA/subjects

DATA/subjects holds a folder per subject and annotations.csv with their boxes. Only the subjects at even places of the
sorted list are used; benchmarks/subject_scale.py reports on the others. Each photo is taken as it is, cut close to the
subject twice and set into a wider frame once (mirrored beyond its edges), so that filled and wide frames are learned.
A patch's label is the share of it that lies in the box: the map learns boxes, not outlines. The overlap that a map
expects of its box is then mapped to the one measured, with a sixth of the subjects left out of the fit in turn.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from datasieve.batch import DecodeRequest
from datasieve.embedding import saliency
from datasieve.embedding.lite0 import Lite0, open_lite0, reference, stored_layers
from datasieve.imaging.decode import decode

STRENGTH = 0.003
"""Inverse strength of the penalty on standardised weights."""

OWN = 4
"""How much a photo as it is counts beside one that was made of it."""


class Photo(NamedTuple):
    """A picture, whose it is, which photo it was made from, and the subject's box."""

    pixels: Any
    subject: str
    base: str
    box: tuple[float, float, float, float]


def close(photo: Photo, share: float, generator: np.random.Generator) -> Photo:
    """Return a square cut whose area is the box's divided by `share`, shifted a little, inside the picture."""
    h, w = photo.pixels.shape[:2]
    x0, y0, x1, y1 = np.array(photo.box) * [w, h, w, h]
    side = min(np.sqrt((x1 - x0) * (y1 - y0) / share), w, h)
    left, top = (
        int(np.clip((a + b) / 2 + generator.uniform(-0.06, 0.06) * side - side / 2, 0, n - side))
        for a, b, n in ((x0, x1, w), (y0, y1, h))
    )
    cut = photo.pixels[top : top + int(side), left : left + int(side)]
    box = np.clip((np.array([x0, y0, x1, y1]) - [left, top, left, top]) / side, 0, 1)
    return photo._replace(pixels=np.ascontiguousarray(cut), box=tuple(box))


def wide(photo: Photo) -> Photo:
    """Return the picture mirrored once beyond each edge, as far as the subject is from it."""
    h, w = photo.pixels.shape[:2]
    x0, y0, x1, y1 = photo.box
    left, right, top, bottom = (
        int(min(0.55, max(0, r - 0.01)) * n) for r, n in ((x0, w), (1 - x1, w), (y0, h), (1 - y1, h))
    )
    pixels = np.pad(photo.pixels, ((top, bottom), (left, right), (0, 0)), mode="reflect")
    height, width = pixels.shape[:2]
    box = ((left + x0 * w) / width, (top + y0 * h) / height, (left + x1 * w) / width, (top + y1 * h) / height)
    return photo._replace(pixels=pixels, box=box)


def photos(folder: Path) -> list[Photo]:
    """Return the photos to learn from and what is made of them; those as they are come first."""
    with open(folder / "annotations.csv", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    chosen = set(sorted({row["subject"] for row in rows})[0::2])
    own = []
    for row in (r for r in rows if r["subject"] in chosen):
        pixels = decode(
            (folder / row["file"]).read_bytes(), row["file"], DecodeRequest(tiles=False, pixel_hash=False)
        ).pixels
        box = tuple(float(row[k]) for k in ("x0", "y0", "x1", "y1"))
        own.append(Photo(pixels, row["subject"], row["file"], box))
    generator = np.random.default_rng(5)
    made = [
        make
        for p in own
        for make in (
            close(p, generator.uniform(0.2, 0.8), generator),
            close(p, generator.uniform(0.8, 1.5), generator),
            wide(p),
        )
    ]
    return own + made


def inside(box: tuple[float, float, float, float]) -> Any:
    """Return the share of each patch that lies in a box, (14, 14)."""
    edges = np.linspace(0, 1, saliency.GRID + 1)
    across, down = (
        np.clip(np.minimum(edges[1:], b) - np.maximum(edges[:-1], a), 0, None) * saliency.GRID
        for a, b in ((box[0], box[2]), (box[1], box[3]))
    )
    return down[:, None] * across


def overlap(a: Any, b: Any) -> float:
    """Return the intersection over union of two boxes."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    both = max(width, 0) * max(height, 0)
    return float(both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both))


def fitted(cues: torch.Tensor, labels: Any, say: Any) -> saliency.Weights:
    """Return weights for cues (N, K, 14, 14) of places labelled (N, 14, 14), of pictures that count by `say` (N,)."""
    table = saliency.statistics(cues).flatten(1, 2).permute(0, 2, 3, 1).flatten(0, 2).double().numpy()
    mean, spread = table.mean(0), table.std(0) + 1e-9
    table, share, counts = (table - mean) / spread, labels.reshape(-1), np.repeat(say, saliency.GRID**2)
    model = LogisticRegression(C=STRENGTH, max_iter=500)
    answers = np.r_[np.ones(len(table)), np.zeros(len(table))]
    model.fit(np.r_[table, table], answers, sample_weight=np.r_[share * counts, (1 - share) * counts])
    found = model.coef_[0] / spread
    shape = len(saliency.STATISTICS), cues.shape[1]
    return saliency.Weights(np.float32(found.reshape(shape)), float(model.intercept_[0] - found @ mean), (1, 0))


def projection() -> Any:
    """Return the map (1280, 32) from patches to the directions in which the network's classes differ most."""
    known, directions = reference(), np.linalg.svd(stored_layers().classifier, full_matrices=False)[2]
    whitening = np.eye(len(known.mean)) - (known.basis * known.damping) @ known.basis.T
    return (whitening @ directions[: saliency.DEPTH].T).astype(np.float16)


def main() -> None:
    torch.set_num_threads(1)
    kept = {"projection": projection()}
    np.savez_compressed(saliency.WEIGHTS_FILE, **kept)
    embedder = open_lite0("cpu")
    assert isinstance(embedder, Lite0)
    taken = photos(Path(sys.argv[1]))
    found = [saliency.image_cues(embedder.outputs([p.pixels])) for p in taken]
    cues, patches = (torch.cat(f) for f in zip(*found, strict=True))
    subjects, bases = (np.array([getattr(p, name) for p in taken]) for name in ("subject", "base"))
    own = np.arange(len(taken)) < len(set(bases))
    others = own & (subjects[:, None] == subjects) & (bases[:, None] != bases)
    likeness = [
        saliency.likeness(patches[i : i + 1], patches[np.flatnonzero(row)], torch.ones(1, int(row.sum())))
        for i, row in enumerate(others)
    ]
    labels = np.stack([inside(p.box) for p in taken])
    say = np.where(own, OWN, 1)
    for name, values in (
        ("alone", cues),
        ("among", torch.cat([cues, saliency.finer(torch.cat(likeness)[:, None])], 1)),
    ):
        expected, measured = np.zeros(len(taken)), np.zeros(len(taken))
        for fold in np.array_split(np.unique(subjects), 6):
            out = np.flatnonzero(np.isin(subjects, fold))
            rest = np.flatnonzero(~np.isin(subjects, fold))
            boxes, expected[out] = saliency.boxes(
                saliency.logits(values[out], fitted(values[rest], labels[rest], say[rest]))
            )
            measured[out] = [overlap(box, taken[i].box) for box, i in zip(boxes, out, strict=True)]
        slope, constant = np.polyfit(expected, measured, 1, w=np.sqrt(say))
        result = fitted(values, labels, say)
        kept[name] = np.r_[result.cues.ravel(), result.constant, slope, constant].astype(np.float32)
        print(
            name, "IoU left out:", measured[own].mean().round(3), "as they are,", measured[~own].mean().round(3), "made"
        )
        print(
            " certainty",
            slope.round(2),
            constant.round(2),
            "r",
            np.corrcoef(expected[own], measured[own])[0, 1].round(2),
        )
        print(result.cues.round(2))
    np.savez_compressed(saliency.WEIGHTS_FILE, **kept)


if __name__ == "__main__":
    main()
