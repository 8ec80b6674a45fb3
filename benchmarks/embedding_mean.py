"""Make datasieve/embedding/lite0_mean.npy: the mean unit vector of EfficientNet-Lite0 over pictures of many kinds.

    python benchmarks/embedding_mean.py FOLDER [FOLDER ...]

The shipped file was made from 400 crops of wallpaper photos and illustrations (packages gnome-backgrounds,
plasma-workspace-wallpapers, mate-backgrounds, ukui-wallpapers, lomiri-wallpapers of Debian 12, and the photos bundled
with scikit-image) and 241 captioned pictures and drawings (public domain, CC0, CC-BY, Apache-2.0). Every folder counts
alike. A mean of 1280 numbers holds nothing of a single picture.
"""

from __future__ import annotations

import sys
import tempfile

import numpy as np
import pyarrow.parquet as pq

import datasieve
from datasieve.embedding.lite0 import MEAN_FILE


def main() -> None:
    means = []
    for folder in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as scratch:
            report = datasieve.audit(folder, scratch)
            table = pq.read_table(report.path / "embeddings.parquet")
            vectors = np.array(table["embedding"].to_pylist(), np.float32)
        means.append(vectors.mean(0))
        print(folder, len(vectors), "pictures, length of their mean", np.linalg.norm(means[-1]).round(3))
    np.save(MEAN_FILE, np.mean(means, axis=0).astype(np.float32))


if __name__ == "__main__":
    main()
