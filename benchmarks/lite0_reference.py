"""Make datasieve/embedding/lite0_reference.npz: the mean and the main directions of Lite0's vectors.

    python benchmarks/lite0_reference.py FOLDER [FOLDER ...]

The shipped file was made from 400 crops of wallpaper photos and illustrations (packages gnome-backgrounds,
plasma-workspace-wallpapers, mate-backgrounds, ukui-wallpapers, lomiri-wallpapers of Debian 12, and the photos bundled
with scikit-image) and 141 photos of Debian's gcompris-qt-data (137 public domain or CC0, 3 CC-BY-SA, 1 CC-BY); none of
the subjects that benchmarks/semantics.py measures on. 128 directions of 1280 numbers hold no single picture.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from datasieve.batch import Decoded, DecodeRequest
from datasieve.embedding.lite0 import REFERENCE_FILE, Lite0, described, open_lite0
from datasieve.imaging.decode import decode

DIRECTIONS = 128
SHRINKAGE = 0.1
"""Of the mean variance, added to every direction: fewer pictures than numbers tell nothing of the small ones."""

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")


def main() -> None:
    embedder = open_lite0("cpu")
    assert isinstance(embedder, Lite0)
    found = []
    for folder in map(Path, sys.argv[1:]):
        files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES)
        pictures = [d.pixels for d in map(_decoded, files) if d.pixels is not None]
        found += [described(embedder.outputs(pictures[i : i + 8]).pooled) for i in range(0, len(pictures), 8)]
        print(folder, len(pictures), "pictures")
    vectors = np.concatenate(found).astype(np.float64)
    mean = vectors.mean(0)
    _, scale, directions = np.linalg.svd(vectors - mean, full_matrices=False)
    variance = scale**2 / len(vectors)
    floor = SHRINKAGE * variance.sum() / vectors.shape[1]
    rest = variance[DIRECTIONS:].sum() / (vectors.shape[1] - DIRECTIONS)
    damping = 1 - np.sqrt((rest + floor) / (variance[:DIRECTIONS] + floor))
    basis = directions[:DIRECTIONS].T
    print("length of the mean", np.linalg.norm(mean).round(3), "damping", damping[[0, 1, 31, 127]].round(3))
    np.savez_compressed(
        REFERENCE_FILE,
        mean=mean.astype(np.float32),
        basis=basis.astype(np.float16),
        damping=damping.astype(np.float32),
    )


def _decoded(path: Path) -> Decoded:
    return decode(path.read_bytes(), path.name, DecodeRequest(tiles=False, pixel_hash=False))


if __name__ == "__main__":
    main()
