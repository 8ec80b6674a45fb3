"""How well are planted caption faults found, and how fast are captions measured?

    python benchmarks/captions.py FAULTY [--captions 20000]

FAULTY was written by make_faults.py (`--all --only clean,caption,mixed,semantic`, or all kinds). Only truth.csv and
truth_sets.csv are read. Limits were chosen on the subjects at even places of the sorted list; rates are printed for
both halves. With --captions, so many captions are made of the planted ones, and measured; memory is the growth of the
process's peak.
"""

from __future__ import annotations

import argparse
import collections
import csv
import random
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from sklearn.metrics import roc_auc_score

from datasieve.analyzers.captions import ANALYZER
from datasieve.captions.granularity import FAR, Captioned, granularity, size
from datasieve.captions.measure import measure
from datasieve.config import Settings
from datasieve.policy import judge, violated

FAULTS = ("generic_short", "long_30", "over_75", "missing", "empty", "tags")


def read_sets(faulty: Path) -> dict[str, tuple[dict[str, str], pa.Table, list[set[str]], list[set[str]]]]:
    """Return set -> (its row of truth_sets.csv, its images, their caption faults, their semantic faults)."""
    with open(faulty / "truth_sets.csv", newline="", encoding="utf8") as handle:
        sets = {row["set"]: row for row in csv.DictReader(handle)}
    images: dict[str, dict[str, Any]] = {}
    with open(faulty / "truth.csv", newline="", encoding="utf8") as handle:
        for row in csv.DictReader(handle):
            kept = images.setdefault(row["file"], {**row, "caption_faults": set(), "semantic_faults": set()})
            if row["kind"] in ("caption", "semantic"):
                kept[f"{row['kind']}_faults"].add(row["variant"])
    grouped: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for image in images.values():
        grouped[image["set"]].append(image)
    out = {}
    for name, members in grouped.items():
        n = len(members)
        table = pa.table(
            {
                "image_id": [m["file"] for m in members],
                "path": [m["file"] for m in members],
                "concept": [sets[name]["concept"]] * n,
                "caption": pa.array([m["caption"] if m["has_caption"] == "1" else None for m in members], pa.string()),
                "content": [m["dup_of"] or m["file"] for m in members],
                "status": ["ok"] * n,
            }
        )
        faults = ([m["caption_faults"] for m in members], [m["semantic_faults"] for m in members])
        out[name] = (sets[name], table, *faults)
    return out


def detect(faulty: Path) -> None:
    """Print AUROC of the granularity measures, and hits and false alarms of every rule, for both halves."""
    sets = read_sets(faulty)
    subjects = sorted({truth["concept"] for truth, *_ in sets.values()})
    for half, name in ((0, "tuning half"), (1, "held out")):
        own = set(subjects[half::2])
        self_consistent = "caption_control"
        images: list[tuple[bool, float]] = []
        concepts: list[tuple[bool, float]] = []
        hits: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        totals: collections.Counter[str] = collections.Counter()
        for truth, table, faults, semantic in sets.values():
            if truth["concept"] not in own:
                continue
            found = ANALYZER.compare(table, Settings(batch_size=4))
            broken = truth["fault"] in ("caption", "mixed")
            spread = found.concepts["captions.granularity-spread"][truth["concept"]]
            concepts.append((broken, spread))
            kinds = ["normal" if truth["fault"] == self_consistent or not f else next(iter(f)) for f in faults]
            kinds = ["wrong colour" if "attribute_caption" in s else k for k, s in zip(kinds, semantic, strict=True)]
            kinds = [
                "intruder" if any(v.startswith("intruder") for v in s) else k
                for k, s in zip(kinds, semantic, strict=True)
            ]
            totals.update(kinds)
            for kind, distance in zip(kinds, found.columns["captions.granularity-distance"], strict=True):
                images.append((kind in FAULTS, distance))
            for rule in ANALYZER.rules:
                if rule.scope == "image":
                    values = pa.array(found.columns[rule.column])
                    if values.null_count < len(values):
                        hits[rule.id].update(kinds[i] for i in violated(rule, values))
            row = pa.table({c: [v[truth["concept"]]] for c, v in found.concepts.items()})
            fired = judge(row, ANALYZER.rules, "concept", {})
            for finding in fired:
                hits[finding.rule]["broken set" if broken else "whole set"] += 1
            totals["broken set" if broken else "whole set"] += 1
        print(f"\n{name}: {len(own)} subjects, {len(images)} images, {len(concepts)} sets")
        for what, scores in (("image", images), ("set", concepts)):
            print(f"  AUROC of the granularity break per {what}: {roc_auc_score(*zip(*scores, strict=True)):.4f}")
        for rule_id, counts in sorted(hits.items()):
            if counts:
                print(f"  {rule_id}: " + ", ".join(f"{k} {c}/{totals[k]}" for k, c in sorted(counts.items())))


def pool(faulty: Path) -> None:
    """Print how captions of all subjects together fare, as a style's set has them: whole, and with a part replaced."""
    normal, others = set(), collections.defaultdict(set)
    for truth, table, faults, _ in read_sets(faulty).values():
        for caption, own in zip(table["caption"].to_pylist(), faults, strict=True):
            if caption and own:
                others[next(iter(own))].add(caption)
            elif caption and truth["fault"] == "clean":
                normal.add(caption)
    sizes = {text: _captioned(text) for text in (*normal, *others["generic_short"], *others["long_30"])}
    rng = random.Random(0)
    print("\ncaptions of all subjects together, 200 draws each: sets called broken, odd captions found, others accused")
    for n in (6, 12, 20, 24, 100):
        for kind, share in (("generic_short", 0.0), ("generic_short", 0.2), ("generic_short", 0.5), ("long_30", 0.2)):
            odd = round(n * share)
            broken = found = accused = 0
            for _ in range(200):
                drawn = [rng.choice(sorted(normal)) for _ in range(n - odd)]
                drawn += [rng.choice(sorted(others[kind])) for _ in range(odd)]
                result = granularity([sizes[text] for text in drawn])
                broken += (result.broken or 0) > 0.6
                far = [distance is not None and distance > FAR for distance in result.distances]
                found, accused = found + sum(far[n - odd :]), accused + sum(far[: n - odd])
            told = f"{found / (odd * 200):.0%}" if odd else "none"
            print(f"  {n:>3} captions, {odd:>2} {kind}: {broken / 200:.0%}, {told}, {accused / ((n - odd) * 200):.1%}")


def _captioned(text: str) -> Captioned:
    one = measure(text)
    assert one.details is not None
    assert one.words is not None
    return Captioned(size(one.details, one.words), one.style == "tags", one.tokens_lost == 0)


def speed(faulty: Path, number: int) -> None:
    """Print captions per second and the growth of memory, over `number` different captions."""
    with open(faulty / "truth.csv", newline="", encoding="utf8") as handle:
        seeds = sorted({row["caption"] for row in csv.DictReader(handle) if row["caption"]})
    words = sorted({word for seed in seeds for word in seed.split()})
    rng = random.Random(4)
    started_at = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    spent = 0.0
    for i in range(number):
        text = (
            f"{rng.choice(seeds)}, {rng.choice(words)} {rng.choice(words)}{i} café" if i % 4 == 0 else rng.choice(seeds)
        )
        started = time.process_time()
        measure(text)
        spent += time.process_time() - started
    growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - started_at) / 1024
    print(f"\n{number} captions: {spent:.1f} s of one core, {spent / number * 1e6:.0f} us each, {growth:.0f} MiB more")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faulty", type=Path)
    parser.add_argument("--captions", type=int, default=0)
    given = parser.parse_args(arguments)
    detect(given.faulty)
    pool(given.faulty)
    if given.captions:
        speed(given.faulty, given.captions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
