"""Does an audit's memory stay flat as the set grows?

    python benchmarks/memory.py [--counts 1000,20000] [--side 256]

Writes sets of different JPEGs, audits each in a process of its own, and prints the peak memory of that process and of
its largest decode worker, with the ratio to the smallest set.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

CODE = """
import resource, sys
import datasieve
report = datasieve.audit(sys.argv[1], sys.argv[2])
own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(report.run["counts"]["images"], own, child, report.run["timing"]["total"])
"""


def write_images(folder: Path, count: int, side: int) -> None:
    """Write `count` pictures that differ: coarse random colours under weak noise."""
    generator = np.random.default_rng(0)
    folder.mkdir()
    noise = generator.normal(0, 4, (side, side, 3)).astype(np.float32)
    for i in range(count):
        coarse = Image.fromarray(generator.integers(0, 256, (5, 5, 3), np.uint8)).resize((side, side))
        pixels = np.clip(np.asarray(coarse, np.float32) + np.roll(noise, i, 0), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:06d}.jpg", quality=88)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", default="1000,20000")
    parser.add_argument("--side", type=int, default=256)
    arguments = parser.parse_args()
    first: float | None = None
    print("| images | peak memory | of a decode worker | ratio | seconds |\n| --- | --- | --- | --- | --- |")
    for count in map(int, arguments.counts.split(",")):
        with tempfile.TemporaryDirectory() as scratch:
            write_images(Path(scratch) / "images", count, arguments.side)
            command = [sys.executable, "-c", CODE, f"{scratch}/images", f"{scratch}/report"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        images, own, child, seconds = map(float, done.stdout.split())
        first = first or own
        print(f"| {images:.0f} | {own / 1024:.0f} MiB | {child / 1024:.0f} MiB | {own / first:.2f} | {seconds:.0f} |")


if __name__ == "__main__":
    main()
