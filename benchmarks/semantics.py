"""How well are pictures of something else found among a concept's own, and concepts that hold two things?

    python benchmarks/semantics.py DATA [--seeds 11,12] [--out docs/semantics.md]

DATA holds make_faults.py and subjects/. Intruders are planted by make_faults.py; every set is ranked by
`semantics.conflict` and, on the same centred vectors, by the peers' score: distance to the nearest neighbours, as
cleanlab's out-of-distribution score takes it. Mixtures are made here: five photos of one subject with three of another.
Limits were chosen on the subjects at even places of the sorted list; they are printed apart. Ends with the rate of the
embedding stage beside that of the bare network on the same inputs.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

import datasieve
from datasieve.analyzers.semantics import FLOOR, LEAST_ANGLE, LEAST_SILHOUETTE
from datasieve.embedding import VIEW_SIDE, lite0, structure

INTRUDERS = ("intruder_far", "intruder_near")
LIMIT = 3.5


def nearest_neighbours(vectors: structure.Vectors) -> Any:
    """Return the mean cosine distance to the 10 nearest others (fewer in small sets): cleanlab's outlier score."""
    cosine = vectors @ vectors.T
    np.fill_diagonal(cosine, -np.inf)
    count = min(10, len(vectors) - 1)
    return 1 - np.sort(cosine, axis=1)[:, -count:].mean(1)


SCORES: dict[str, Callable[[structure.Vectors], Any]] = {
    "semantics.conflict": structure.conflicts,
    "nearest neighbours (cleanlab's score)": nearest_neighbours,
}


def vectors_of(folder: Path) -> dict[str, Any]:
    """Return path -> centred vector of every image below a folder."""
    with tempfile.TemporaryDirectory() as scratch:
        table = datasieve.audit(folder, Path(scratch) / "report").embeddings()
    values = np.array(table["embedding"].to_pylist(), np.float32)
    return dict(zip(table["path"].to_pylist(), structure.centred(values, np.load(lite0.MEAN_FILE)), strict=True))


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
            _rank(truth, vectors_of(Path(scratch) / "faulty"), chosen_on, areas, fired)
    own = vectors_of(arguments.data / "subjects")
    text = "\n".join([*_intruders(areas, fired), *_mixtures(own, subjects, chosen_on), *_speed(arguments.data)]) + "\n"
    print(text)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


def _rank(truth: list[dict[str, str]], vectors: dict[str, Any], chosen_on: set[str], areas: Any, fired: Any) -> None:
    sets: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    owner: dict[str, list[str]] = defaultdict(list)
    for row in truth:
        sets[row["set"]][row["file"]].add(row["variant"])
        owner[row["set"]].append(row["base"].split("/")[0])
    for name, files in sets.items():
        present = [f for f in files if f in vectors]
        main_subject = max(owner[name], key=owner[name].count)
        split = "chosen on" if main_subject in chosen_on else "reported"
        matrix = np.stack([vectors[f] for f in present])
        deviation = structure.deviations(structure.conflicts(matrix), FLOOR)
        clean = [i for i, f in enumerate(present) if not files[f] & set(INTRUDERS)]
        for kind in INTRUDERS:
            planted = [i for i, f in enumerate(present) if kind in files[f]]
            if not planted:
                continue
            for score, function in SCORES.items():
                values = function(matrix)
                answer = [1] * len(planted) + [0] * len(clean)
                areas[(score, kind, split)].append(roc_auc_score(answer, values[planted + clean]))
            fired[(kind, split)] += [bool(deviation[i] > LIMIT) for i in planted]
            fired[("clean pictures beside them", split)] += [bool(deviation[i] > LIMIT) for i in clean]


def _intruders(areas: Any, fired: Any) -> list[str]:
    lines = [
        "# Semantics, measured",
        "",
        "Written by `benchmarks/semantics.py`. EfficientNet-Lite0, the embedded default: no CLIP weights were at hand.",
        "",
        "Mean AUROC per set of pictures of another subject, planted into a subject's own photos:",
        "",
        "| score | another category, reported | same category, reported | another category, chosen on | same category, "
        "chosen on |",
        "| --- | --- | --- | --- | --- |",
    ]
    for score in SCORES:
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


def _speed(data: Path) -> list[str]:
    embedder = lite0.open_lite0("cuda" if torch.cuda.is_available() else "cpu")
    assert not isinstance(embedder, str)
    pictures = torch.rand(8, 3, VIEW_SIDE, VIEW_SIDE)
    sizes = [(VIEW_SIDE, VIEW_SIDE * 3 // 4)] * 8
    inputs = lite0.squashed(pictures, sizes)
    rates = {}
    for name, call in (
        ("stage (squash, network, unit length)", lambda: embedder.images(pictures, sizes)),
        ("bare network", lambda: embedder._network(inputs)),
    ):
        call()
        best = min(_seconds(call) for _ in range(20))
        rates[name] = 8 / best
    share = rates["stage (squash, network, unit length)"] / rates["bare network"]
    lines = ["", f"Images per second on this machine ({embedder.backend}), best of 20 batches of 8:", ""]
    lines += [f"- {name}: {rate:.0f}" for name, rate in rates.items()]
    return [*lines, f"- the stage runs at {share:.0%} of the bare network"]


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
