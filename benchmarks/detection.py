"""How well are planted faults found, and how often is a clean image accused?

    python benchmarks/detection.py DATA [--seed 11] [--clean FOLDER ...] [--out docs/detection.md]

DATA holds make_faults.py and subjects/ (photos with annotations.csv and natural_faults.csv). Faults are planted into
every subject; each faulty set is audited by itself, as a user would. Limits were chosen on the subjects at even places
of the sorted list; everything printed here comes from those at odd places, and from the folders named with --clean,
in whose images no fault was planted.
"""

from __future__ import annotations

import argparse
import collections
import csv
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import beta
from sklearn.metrics import roc_auc_score

import datasieve
from datasieve.config import Settings


@dataclass(frozen=True)
class Planted:
    """One kind of fault: which rules should name it, and the column that should rank it."""

    kind: str
    variants: tuple[str, ...]
    rules: tuple[str, ...]
    column: str = ""
    sign: int = 1
    strengths: tuple[float, ...] = ()


FAULTS = (
    Planted("colour", ("wb_cast",), ("colour.cast", "colour.cast-outlier"), "colour.light-deviation"),
    Planted("colour", ("gamma",), ("colour.tone", "colour.outlier"), "colour.depth"),
    Planted("colour", ("exposure",), ("colour.underexposed", "colour.overexposed", "colour.outlier"), "colour.mean-deviation"),
    Planted("colour", ("icc_wrong_tag", "icc_tagged"), ("files.profile",)),
    Planted("quality", ("blur", "motion_blur"), ("sharpness.blurred",), "sharpness.focus"),
    Planted("quality", ("upscaled",), ("sharpness.upscaled",), "sharpness.cutoff", -1),
    Planted("quality", ("jpeg",), ("compression.blocking",), "compression.blocking"),
    Planted("quality", ("truncated",), ("files.truncated",)),
    Planted("duplicate", ("exact",), ("duplicates.exact",)),
    Planted("duplicate", ("reencode", "resize", "crop"), ("duplicates.near", "duplicates.exact", "duplicates.pixels")),
    Planted("duplicate", ("flip", "combo"), ("duplicates.mirrored",)),
)
QUIET = ("layout", "files.small", "files.uncalibrated", "files.profile", "buckets", "trainer")
"""Rules on facts that are simply true of the clean images: counted apart."""


def exact_interval(hits: int, of: int) -> tuple[float, float]:
    """Return the Clopper-Pearson 95 % interval of a share."""
    low = 0.0 if hits == 0 else float(beta.ppf(0.025, hits, of - hits + 1))
    high = 1.0 if hits == of else float(beta.ppf(0.975, hits + 1, of - hits))
    return low, high


def percent(hits: int, of: int) -> str:
    """Return a share with its exact interval."""
    low, high = exact_interval(hits, of)
    return f"{100 * hits / of:.1f} % ({hits}/{of}; {100 * low:.1f}–{100 * high:.1f})"


def audit_folder(folder: Path, out: Path) -> tuple[dict[str, dict[str, float]], dict[str, set[str]]]:
    """Audit one set; return path -> columns, and path -> rules that fired."""
    report = datasieve.audit(folder, out, settings=Settings(batch_size=1))
    rows = {row["path"]: row for row in report.images().to_pylist()}
    fired: dict[str, set[str]] = collections.defaultdict(set)
    pairs = report.pairs().to_pylist()
    for finding in report.findings().to_pylist():
        if finding["path"]:
            fired[finding["path"]].add(finding["rule"])
    for pair in pairs:  # of two copies only one carries the finding; either may be the planted one
        for a, b in (("path_a", "path_b"), ("path_b", "path_a")):
            fired[pair[a]] |= {r for r in fired.get(pair[b], set()) if r.startswith("duplicates.")}
    return rows, fired


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--clean", type=Path, action="append", default=[])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args(argv)
    subjects = sorted(p.name for p in (arguments.data / "subjects").iterdir() if p.is_dir())
    reported = set(subjects[1::2])
    with (arguments.data / "subjects" / "natural_faults.csv").open(encoding="utf-8") as handle:
        natural = {row["file"] for row in csv.DictReader(handle) if not row["kind"].startswith(("exif", "icc"))}
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        command = [sys.executable, str(arguments.data / "make_faults.py"), "--src", str(arguments.data / "subjects")]
        command += ["--out", str(work / "faulty"), "--seed", str(arguments.seed), "--all"]
        subprocess.run([*command, "--only", "clean,colour,duplicate,quality"], check=True, stdout=subprocess.DEVNULL)
        with (work / "faulty" / "truth.csv").open(encoding="utf-8") as handle:
            truth = [row for row in csv.DictReader(handle) if row["base"].split("/")[0] in reported]
        rows: dict[str, dict[str, float]] = {}
        fired: dict[str, set[str]] = {}
        for name in sorted({row["set"] for row in truth}):
            found = audit_folder(work / "faulty" / name, work / f"report-{name}")
            rows |= {f"{name}/{path}": row for path, row in found[0].items()}
            fired |= {f"{name}/{path}": rules for path, rules in found[1].items()}
        clean = _clean_images(truth, natural, fired)
        folders = {"subjects (no fault planted)": clean}
        for number, folder in enumerate(arguments.clean):
            found = audit_folder(folder, work / f"clean-{number}")
            readable = [p for p, row in found[0].items() if row["status"] == "ok"]
            folders[folder.name] = {p: found[1].get(p, set()) for p in readable}
    lines = [
        "# Detection, measured",
        "",
        f"Written by `benchmarks/detection.py`, seed {arguments.seed}. Limits were chosen on {len(subjects[0::2])} "
        f"subjects, these figures come from the other {len(reported)}. Intervals are exact (Clopper-Pearson, 95 %).",
        "",
        "| planted fault | strength | rules | AUROC | hit rate at the shipped limit |",
        "| --- | --- | --- | --- | --- |",
        *_hits(truth, rows, fired),
        "",
        "AUROC ranks the planted images against the unharmed ones of the same sets by one column; a dash stands where",
        "the rule is a plain fact of the file. A hit is a finding of any of the named rules on the planted file (for",
        "copies: on either of the two).",
        "",
        "## False alarms",
        "",
        f"Images in which nothing was planted. Rules on plain facts ({', '.join(QUIET)}) are left out here.",
        "",
        "| images | any warning or error rule | by rule |",
        "| --- | --- | --- |",
        *_alarms(folders),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


def _clean_images(truth: list[dict[str, str]], natural: set[str], fired: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return each unharmed photo once, from the sets that hold nothing else."""
    harmed = {row["set"] for row in truth if row["kind"] not in ("none", "natural")}
    chosen: dict[str, set[str]] = {}
    for row in truth:
        if row["set"] not in harmed and row["kind"] == "none" and row["base"] not in natural:
            chosen.setdefault(row["base"], fired.get(row["file"], set()))
    return chosen


def _hits(truth: list[dict[str, str]], rows: dict[str, dict[str, float]], fired: dict[str, set[str]]) -> list[str]:
    lines = []
    unharmed = [r["file"] for r in truth if r["kind"] == "none"]
    for fault in FAULTS:
        of_kind = [r for r in truth if r["kind"] == fault.kind and r["variant"] in fault.variants]
        groups = sorted({(r["variant"], float(r["strength"]) if fault.kind != "duplicate" else 1.0) for r in of_kind})
        for variant, strength in groups:
            files = [
                r["file"]
                for r in of_kind
                if r["variant"] == variant and (fault.kind == "duplicate" or float(r["strength"]) == strength)
            ]
            expect = {r["expect"] for r in of_kind if r["file"] in files and r["variant"] == variant}
            hits = sum(bool(fired.get(f, set()) & set(fault.rules)) for f in files)
            area = "–"
            if fault.column:
                bad = [fault.sign * rows[f][fault.column] for f in files if rows[f].get(fault.column) is not None]
                good = [fault.sign * rows[f][fault.column] for f in unharmed if rows[f].get(fault.column) is not None]
                if bad and good:
                    area = f"{roc_auc_score([1] * len(bad) + [0] * len(good), np.array(bad + good)):.3f}"
            level = "" if fault.kind == "duplicate" else f"{strength:g}"
            name = f"{fault.kind} {variant} ({'/'.join(sorted(expect))})"
            lines.append(f"| {name} | {level} | {', '.join(fault.rules)} | {area} | {percent(hits, len(files))} |")
    return lines


def _alarms(folders: dict[str, dict[str, set[str]]]) -> list[str]:
    from datasieve.policy import all_rules

    severities = {rule.id: rule.severity for rule in all_rules().values()}
    counted = {
        name: {
            path: {r for r in rules if severities[r] != "info" and not r.startswith(QUIET)}
            for path, rules in images.items()
        }
        for name, images in folders.items()
    }
    lines = []
    everything: dict[str, set[str]] = {}
    for name, images in counted.items():
        everything |= {f"{name}/{p}": rules for p, rules in images.items()}
        lines.append(_alarm_line(name, images))
    return [*lines, _alarm_line("**together**", everything)]


def _alarm_line(name: str, images: dict[str, set[str]]) -> str:
    by_rule = collections.Counter(rule for rules in images.values() for rule in rules)
    detail = ", ".join(f"{rule} {count}" for rule, count in by_rule.most_common()) or "none"
    return f"| {name} | {percent(sum(map(bool, images.values())), len(images))} | {detail} |"


if __name__ == "__main__":
    main()
