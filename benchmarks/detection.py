"""How well are planted faults found, and how often is a clean image accused?

    python benchmarks/detection.py DATA [--seeds 11,12,13,14] [--clean FOLDER ...] [--crops FOLDER ...]
                                   [--out docs/detection.md]

DATA holds make_faults.py and subjects/ (photos with annotations.csv and natural_faults.csv). Faults are planted into
every subject; each faulty set is audited by itself, as a user would. Limits were chosen on the subjects at even places
of the sorted list; everything printed here comes from those at odd places, and from the folders named with --clean,
in whose images no fault was planted; --crops names such folders whose images were cut from common originals, where
copies and repeated strokes are true and not counted.
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


EXPOSURE = ("colour.underexposed", "colour.overexposed", "colour.outlier")
FAULTS = (
    Planted("colour", ("wb_cast",), ("colour.cast", "colour.cast-outlier"), "colour.cast"),
    Planted("colour", ("gamma",), ("colour.tone", "colour.outlier"), "colour.depth"),
    Planted(
        "colour",
        ("exposure",),
        ("colour.underexposed", "colour.overexposed", "colour.outlier"),
        "colour.mean-deviation",
    ),
    Planted("colour", ("icc_wrong_tag", "icc_tagged"), ("files.profile",)),
    Planted("quality", ("blur", "motion_blur"), ("sharpness.blurred", "sharpness.motion"), "sharpness.focus"),
    Planted("quality", ("upscaled",), ("sharpness.upscaled",), "sharpness.cutoff", -1),
    Planted("quality", ("jpeg",), ("compression.blocking",), "compression.blocking"),
    Planted("quality", ("truncated",), ("files.truncated",)),
    Planted("duplicate", ("exact",), ("duplicates.exact",)),
    Planted("duplicate", ("reencode", "resize", "crop"), ("duplicates.near", "duplicates.exact", "duplicates.pixels")),
    Planted("duplicate", ("flip", "combo"), ("duplicates.mirrored",)),
)
QUIET = ("layout", "files", "buckets", "trainer", "frame.blank")
"""Rules on facts that are simply true of the clean images: not counted."""
SAME_ORIGINAL = ("duplicates", "frame.watermark")
"""Rules that are right about crops of one original."""


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


def plant(data: Path, work: Path, seed: int, subjects: set[str]) -> list[dict[str, str]]:
    """Write faulty sets into work/faulty; return the truth about those of the given subjects."""
    command = [sys.executable, str(data / "make_faults.py"), "--src", str(data / "subjects")]
    command += ["--out", str(work / "faulty"), "--seed", str(seed), "--all"]
    subprocess.run([*command, "--only", "clean,colour,duplicate,quality"], check=True, stdout=subprocess.DEVNULL)
    with (work / "faulty" / "truth.csv").open(encoding="utf-8") as handle:
        return [row for row in csv.DictReader(handle) if row["base"].split("/")[0] in subjects]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", default="11,12,13,14")
    parser.add_argument("--clean", type=Path, action="append", default=[])
    parser.add_argument("--crops", type=Path, action="append", default=[])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args(argv)
    subjects = sorted(p.name for p in (arguments.data / "subjects").iterdir() if p.is_dir())
    reported = set(subjects[1::2])
    with (arguments.data / "subjects" / "natural_faults.csv").open(encoding="utf-8") as handle:
        natural = {row["file"] for row in csv.DictReader(handle) if not row["kind"].startswith(("exif", "icc"))}
    truth: list[dict[str, str]] = []
    rows: dict[str, dict[str, float]] = {}
    fired: dict[str, set[str]] = {}
    seeds = [int(s) for s in arguments.seeds.split(",")]
    for seed in seeds:
        with tempfile.TemporaryDirectory() as scratch:
            planted = plant(arguments.data, Path(scratch), seed, reported)
            for name in sorted({row["set"] for row in planted}):
                found = audit_folder(Path(scratch) / "faulty" / name, Path(scratch) / f"report-{name}")
                rows |= {f"{seed}/{name}/{path}": row for path, row in found[0].items()}
                fired |= {f"{seed}/{name}/{path}": rules for path, rules in found[1].items()}
            truth += [{**r, "file": f"{seed}/{r['file']}", "set": f"{seed}/{r['set']}"} for r in planted]
    folders = {"subjects (no fault planted)": _clean_images(truth, natural, fired)}
    for folder in (*arguments.clean, *arguments.crops):
        with tempfile.TemporaryDirectory() as scratch:
            found = audit_folder(folder, Path(scratch) / "report")
        excused = SAME_ORIGINAL if folder in arguments.crops else ()
        folders[folder.name] = {
            path: {rule for rule in found[1].get(path, set()) if not rule.startswith(excused)}
            for path, row in found[0].items()
            if row["status"] == "ok"
        }
    lines = [
        "# Detection, measured",
        "",
        f"Written by `benchmarks/detection.py`, seeds {arguments.seeds}. Limits were chosen on {len(subjects[0::2])} "
        f"subjects, these figures come from the other {len(reported)}. Intervals are exact (Clopper-Pearson, 95 %);",
        "the same photo may carry a fault under several seeds, so they are somewhat too narrow.",
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
        f"Images in which nothing was planted. Rules on plain facts ({', '.join(QUIET)}) are left out, and those of",
        "severity info. " + _crops_note(arguments.crops),
        "The folders beside the subjects were at hand when some limits were chosen, so their figures are on the "
        "hopeful side.",
        "",
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


def _crops_note(crops: Sequence[Path]) -> str:
    names = ", ".join(folder.name for folder in crops)
    return (
        f"Images of {names} are crops of common originals: {', '.join(SAME_ORIGINAL)} count as right there."
        if names
        else ""
    )


def _alarms(folders: dict[str, dict[str, set[str]]]) -> list[str]:
    from datasieve.policy import all_rules

    severities = {rule.id: rule.severity for rule in all_rules().values()}
    counted = {
        name: [{r for r in rules if severities[r] != "info" and not r.startswith(QUIET)} for rules in images.values()]
        for name, images in folders.items()
    }
    counted["together"] = [rules for images in counted.values() for rules in images]
    seen = sorted({rule for images in counted.values() for rules in images for rule in rules})
    lines = [
        f"| rule | {' | '.join(f'{name} ({len(images)})' for name, images in counted.items())} |",
        "| --- |" + " --- |" * len(counted),
    ]
    for rule in seen:
        cells = [percent(sum(rule in rules for rules in images), len(images)) for images in counted.values()]
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    cells = [percent(sum(map(bool, images)), len(images)) for images in counted.values()]
    return [*lines, f"| any of them | {' | '.join(cells)} |"]


if __name__ == "__main__":
    main()
