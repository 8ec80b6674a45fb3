"""How fast are isolated batches, and how much memory do they take, against torch's own samplers in the same run?

    python benchmarks/sampler.py [--images 1000000] [--clusters 1000] [--batch-size 64] [--rounds 3]

Every sampler runs in a process of its own: it is built, and a whole epoch of its batches is drawn, `--rounds` times;
medians are printed as a Markdown table, with ratios to BatchSampler(RandomSampler). Memory is the peak of the process,
and that peak less what the process held once torch and the input arrays were there. The isolated samplers are given
200 concepts of five clusters each and one confused pair a cluster.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, RandomSampler

LIMITS = {"construction, s": 5.0, "indices/s": 500_000.0, "of which sampler, MB": 500.0}


class Count:
    """A data source that has only a length."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count


def arrays(images: int, clusters: int) -> dict[str, Any]:
    """Return clusters, concepts and confused pairs."""
    generator = np.random.default_rng(0)
    cluster = generator.integers(0, clusters, images)
    pairs = [(a, int(b)) for a, b in enumerate(generator.integers(0, clusters, clusters)) if a != b]
    return {"clusters": cluster, "concepts": cluster // 5, "conflicts": pairs}


def makers(options: argparse.Namespace) -> dict[str, Callable[[], Callable[[], Iterable[Any]]]]:
    """Return, by name, what prepares the inputs of a sampler and returns its constructor."""

    def random() -> Callable[[], Iterable[Any]]:
        return lambda: RandomSampler(Count(options.images))

    def batches() -> Callable[[], Iterable[Any]]:
        return lambda: BatchSampler(RandomSampler(Count(options.images)), options.batch_size, drop_last=False)

    def isolated(**more: Any) -> Callable[[], Callable[[], Iterable[Any]]]:
        def prepare() -> Callable[[], Iterable[Any]]:
            from datasieve.sampling import SemanticIsolationBatchSampler

            inputs = arrays(options.images, options.clusters)
            extra = {name: make() for name, make in more.items()}
            return lambda: SemanticIsolationBatchSampler(**inputs, **extra, batch_size=options.batch_size, seed=0)

        return prepare

    def balanced() -> Callable[[], Iterable[Any]]:
        from datasieve.sampling import IsolationGradientSampler

        inputs = arrays(options.images, options.clusters)

        def build() -> Iterable[Any]:
            sampler = IsolationGradientSampler(**inputs, batch_size=options.batch_size, seed=0)
            sampler.set_epoch(1)  # a weighted epoch, the slower kind
            return sampler

        return build

    def buckets() -> Any:
        return np.random.default_rng(1).integers(0, 9, options.images)

    return {
        "RandomSampler": random,
        "BatchSampler(RandomSampler)": batches,
        "SemanticIsolationBatchSampler": isolated(),
        "with 9 buckets": isolated(buckets=buckets),
        "IsolationGradientSampler, weighted": balanced,
    }


def megabytes() -> float:
    """Return the peak memory of this process in MB (10^6 bytes)."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if platform.system() == "Darwin" else peak * 1024 / 1e6


def measure(name: str, options: argparse.Namespace) -> dict[str, float]:
    """Build one sampler and draw epochs, in this process."""
    build = makers(options)[name]()
    before = megabytes()
    constructions, speeds = [], []
    for _ in range(options.rounds):
        started = time.perf_counter()
        sampler = build()
        constructions.append(time.perf_counter() - started)
        started = time.perf_counter()
        drawn = sum(1 if isinstance(batch, int) else len(batch) for batch in iterated(sampler))
        speeds.append(drawn / (time.perf_counter() - started))
    return {
        "construction, s": statistics.median(constructions),
        "indices/s": statistics.median(speeds),
        "peak, MB": megabytes(),
        "of which sampler, MB": megabytes() - before,
    }


def iterated(sampler: Iterable[Any]) -> Iterator[Any]:
    """Iterate as a loader would."""
    yield from sampler


def main() -> None:
    """Print the table; exit 1 when a limit is not held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measure(options.only, options)))
        return
    found: dict[str, dict[str, float]] = {}
    for name in makers(options):
        command = [sys.executable, __file__, *sys.argv[1:], "--only", name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[name] = json.loads(done.stdout)
    base = found["BatchSampler(RandomSampler)"]["indices/s"]
    sizes = f"{options.images:,} images, {options.clusters:,} clusters, batch {options.batch_size}"
    print(f"{sizes}; torch {torch.__version__}\n")
    print("| sampler | construction, s | indices/s | ratio | peak, MB | of which sampler, MB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, values in found.items():
        speed = values["indices/s"]
        print(
            f"| {name} | {values['construction, s']:.2f} | {speed:,.0f} | {speed / base:.2f} "
            f"| {values['peak, MB']:.0f} | {values['of which sampler, MB']:.0f} |"
        )
    ours = found["SemanticIsolationBatchSampler"]
    held = (
        ours["construction, s"] < LIMITS["construction, s"]
        and ours["indices/s"] >= LIMITS["indices/s"]
        and ours["of which sampler, MB"] < LIMITS["of which sampler, MB"]
    )
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
