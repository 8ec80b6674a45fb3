"""How well are pictures of something else found among a concept's own, and concepts that hold two things?

    python benchmarks/semantics.py DATA [--seeds 11,12] [--out docs/semantics.md]

DATA holds make_faults.py and subjects/. Intruders are planted by make_faults.py; every set is ranked by
`semantics.conflict` and, on the same vectors, by the peers' score: distance to the nearest neighbours, as
cleanlab's out-of-distribution score takes it. Mixtures are made here: five photos of one subject with three of another.
Limits were chosen on the subjects at even places of the sorted list; they are printed apart. Ends with the rate of the
embedding stage beside that of the bare network on the same inputs.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

import datasieve
from datasieve.analyzers.semantics import ANALYZER, LEAST_ANGLE, LEAST_SILHOUETTE
from datasieve.embedding import lite0, structure

INTRUDERS = ("intruder_far", "intruder_near")
CONFLICT, PEER = "semantics.conflict", "nearest neighbours (cleanlab's score)"
RULE = next(r for r in ANALYZER.rules if r.id == "semantics.conflict")
assert isinstance(RULE.limit, float)
LIMIT = RULE.limit


def nearest_neighbours(vectors: structure.Vectors) -> Any:
    """Return the mean cosine distance to the 10 nearest others (fewer in small sets): cleanlab's outlier score."""
    cosine = vectors @ vectors.T
    np.fill_diagonal(cosine, -np.inf)
    count = min(10, len(vectors) - 1)
    return 1 - np.sort(cosine, axis=1)[:, -count:].mean(1)


class Audited(NamedTuple):
    """What an audit says of one image."""

    vector: Any
    conflict: float
    deviation: float


def audited(folder: Path) -> dict[str, Audited]:
    """Return path -> what an audit says of every image below a folder, each subfolder being a concept."""
    with tempfile.TemporaryDirectory() as scratch:
        report = datasieve.audit(folder, Path(scratch) / "report")
        table, columns = report.embeddings(), ["path", CONFLICT, RULE.column]
        scores = {row["path"]: row for row in report.images(columns).to_pylist()}
    values = np.array(table["embedding"].to_pylist(), np.float32)
    return {
        path: Audited(vector, *(math.nan if scores[path][c] is None else scores[path][c] for c in columns[1:]))
        for path, vector in zip(table["path"].to_pylist(), values, strict=True)
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", default="11,12")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args(argv)
    subjects = sorted(p.name for p in (arguments.data / "subjects").iterdir() if p.is_dir())
    chosen_on = set(subjects[0::2])
    areas: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    fired: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for seed in arguments.seeds.split(","):
        with tempfile.TemporaryDirectory() as scratch:
            command = [
                sys.executable,
                str(arguments.data / "make_faults.py"),
                "--src",
                str(arguments.data / "subjects"),
            ]
            command += ["--out", f"{scratch}/faulty", "--seed", seed, "--all", "--only", "semantic"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            with open(f"{scratch}/faulty/truth.csv", encoding="utf-8") as handle:
                truth = list(csv.DictReader(handle))
            _rank(truth, audited(Path(scratch) / "faulty"), chosen_on, areas, fired)
    own = {path: found.vector for path, found in audited(arguments.data / "subjects").items()}
    text = "\n".join([*_intruders(areas, fired), *_mixtures(own, subjects, chosen_on), *_speed()]) + "\n"
    print(text)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


def _rank(
    truth: list[dict[str, str]], vectors: dict[str, Audited], chosen_on: set[str], areas: Any, fired: Any
) -> None:
    sets: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    owner: dict[str, list[str]] = defaultdict(list)
    for row in truth:
        sets[row["set"]][row["file"]].add(row["variant"])
        owner[row["set"]].append(row["base"].split("/")[0])
    for name, files in sets.items():
        present = [f for f in files if f in vectors]
        main_subject = max(owner[name], key=owner[name].count)
        split = "chosen on" if main_subject in chosen_on else "reported"
        scores = {
            CONFLICT: np.array([vectors[f].conflict for f in present]),
            PEER: nearest_neighbours(np.stack([vectors[f].vector for f in present])),
        }
        # A recoloured picture contradicts its concept too, if less: it is neither an intruder nor clean.
        clean = [i for i, f in enumerate(present) if not files[f] & {*INTRUDERS, "attribute_image"}]
        for kind in INTRUDERS:
            planted = [i for i, f in enumerate(present) if kind in files[f]]
            if not planted:
                continue
            answer = [1] * len(planted) + [0] * len(clean)
            for score, values in scores.items():
                areas[(score, kind, split)].append(roc_auc_score(answer, values[planted + clean]))
            fired[(kind, split)] += [vectors[present[i]].deviation > LIMIT for i in planted]
            fired[("clean pictures beside them", split)] += [vectors[present[i]].deviation > LIMIT for i in clean]


def _intruders(areas: Any, fired: Any) -> list[str]:
    lines = [
        "# Semantics, measured",
        "",
        "Written by `benchmarks/semantics.py`. EfficientNet-Lite0, the embedded default: no CLIP weights were at hand.",
        "",
        "Mean AUROC per set of pictures of another subject, planted into a subject's own photos (recoloured pictures "
        "of the subject, which stand in the same sets, are left out):",
        "",
        "| score | another category, reported | same category, reported | another category, chosen on | same category, "
        "chosen on |",
        "| --- | --- | --- | --- | --- |",
    ]
    for score in (CONFLICT, PEER):
        cells = []
        for split, kind in itertools.product(("reported", "chosen on"), INTRUDERS):
            values = areas[(score, kind, split)]
            cells.append(f"{np.mean(values):.3f} ({len(values)} sets)")
        lines.append(f"| {score} | {' | '.join(cells)} |")
    lines += ["", f"Pictures that `semantics.conflict` names at its limit of {LIMIT}:", ""]
    lines += ["| pictures | reported | chosen on |", "| --- | --- | --- |"]
    for kind in (*INTRUDERS, "clean pictures beside them"):
        cells = [f"{sum(fired[(kind, s)])}/{len(fired[(kind, s)])}" for s in ("reported", "chosen on")]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return lines


def _mixtures(own: dict[str, Any], subjects: list[str], chosen_on: set[str]) -> list[str]:
    photos = {s: np.stack([v for p, v in own.items() if p.startswith(f"{s}/")]) for s in subjects}
    counts: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for s in subjects:
        split = "chosen on" if s in chosen_on else "reported"
        labels = structure.clusters(photos[s], LEAST_SILHOUETTE, LEAST_ANGLE)
        counts[("one subject alone, called several", split)].append(bool(labels.max()))
    for a, b in itertools.permutations(subjects, 2):
        if (a in chosen_on) != (b in chosen_on):
            continue
        first, second = photos[a][:5], photos[b][:3]
        labels = structure.clusters(np.concatenate([first, second]), LEAST_SILHOUETTE, LEAST_ANGLE)
        split = "chosen on" if a in chosen_on else "reported"
        parts = labels[: len(first)], labels[len(first) :]
        counts[("two subjects, called several", split)].append(bool(labels.max()))
        exact = len(set(parts[0])) == len(set(parts[1])) == 1 and parts[0][0] != parts[1][0]
        counts[("two subjects, parted without a mistake", split)].append(exact)
    lines = ["", "Concepts that hold several things (`semantics.split`), by concept:", ""]
    lines += ["| concept | reported | chosen on |", "| --- | --- | --- |"]
    for name in dict.fromkeys(name for name, _ in counts):
        cells = [f"{sum(counts[(name, s)])}/{len(counts[(name, s)])}" for s in ("reported", "chosen on")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _speed() -> list[str]:
    """Time the stage and the bare network in turns of 20, so that whatever else runs on the machine harms both alike.

    Not one by one: the threads of one call still spin while the next begins.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    embedder = lite0.open_lite0(device)
    assert not isinstance(embedder, str)
    pictures = list(np.random.default_rng(0).integers(0, 256, (8, 512, 384, 3), np.uint8))
    torch.set_num_threads(1)  # as in an audit, where the other cores decode
    inputs = lite0.squashed(pictures, device)
    stage = "stage (squash, network, vectors)"
    calls: dict[str, Callable[[], object]] = {
        stage: lambda: embedder.images(pictures),
        "bare network": lambda: embedder.network(inputs),
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for name, call in [item for item in calls.items() for _ in range(20)] * 3:
        started = time.perf_counter()
        call()
        seconds[name].append(time.perf_counter() - started)
    best = {name: min(times) for name, times in seconds.items()}
    lines = ["", f"Images per second on this machine ({embedder.backend}), best of 60 batches of 8:", ""]
    lines += [f"- {name}: {8 / spent:.0f}" for name, spent in best.items()]
    return [*lines, f"- the stage runs at {best['bare network'] / best[stage]:.0%} of the bare network"]


if __name__ == "__main__":
    main()
