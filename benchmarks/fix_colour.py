"""How far does `fix --normalize` bring a picture back whose colours were spoiled, and what does it do to clean ones?

    python benchmarks/fix_colour.py DATA [--out docs/fix.md]

DATA holds make_faults.py and subjects/. For each subject one photo at a time is put under another light or exposure
among its unharmed fellows, the set is fixed, and the result is compared with the unharmed photo: angle between the
lights read from both (degrees in linear sRGB) and mean CIEDE2000 at 128 px. Subjects at even places of the sorted list
served to choose the limits; they are printed apart.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from skimage.color import deltaE_ciede2000, rgb2lab

from datasieve.imaging import colorimetry
from datasieve.repair import Options
from datasieve.repair.run import fix
from datasieve.report import Report

RULES = ("colour",)


def spoilers(data: Path) -> dict[str, Callable[[Image.Image], Image.Image]]:
    """Return name -> function that spoils a picture, from make_faults.py."""
    spec = importlib.util.spec_from_file_location("make_faults", data / "make_faults.py")
    assert spec is not None
    assert spec.loader is not None
    faults = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(faults)
    out: dict[str, Callable[[Image.Image], Image.Image]] = {}
    for kelvin in (2800, 3500, 12000):
        out[f"light {kelvin} K"] = lambda im, k=kelvin: faults.wb_cast(im, k)[0]  # type: ignore[misc]
    for stops in (-2.5, -1.5, 1.5, 2.5):
        out[f"exposure {stops:+} EV"] = lambda im, e=stops: faults.exposure(im, e)[0]  # type: ignore[misc]
    return out


def lab(path: Path) -> Any:
    """Return CIELAB of a picture at 128 x 128 px."""
    return rgb2lab(np.asarray(Image.open(path).convert("RGB").resize((128, 128), Image.Resampling.BOX)))


def light(report: Report, path: str) -> Any:
    """Return the light of one image as a report holds it."""
    names = [f"colour.light-{c}" for c in ("red", "green", "blue")]
    row = next(r for r in report.images(["path", *names]).to_pylist() if r["path"] == path)
    return [row[name] or 0.0 for name in names]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args(argv)
    subjects = sorted(p for p in (arguments.data / "subjects").iterdir() if p.is_dir())
    with (arguments.data / "subjects" / "natural_faults.csv").open(encoding="utf-8") as handle:
        natural = {row["file"] for row in csv.DictReader(handle)}
    found: dict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    untouched: dict[str, list[float]] = defaultdict(list)
    for number, subject in enumerate(subjects):
        split = "chosen on" if number % 2 == 0 else "reported"
        photos = [p for p in sorted(subject.glob("*.jpg")) if f"{subject.name}/{p.name}" not in natural]
        if len(photos) < 5:
            continue
        for turn, (name, spoil) in enumerate({"": None, **spoilers(arguments.data)}.items()):
            victim = photos[(turn + number) % len(photos)]
            with tempfile.TemporaryDirectory() as scratch:
                folder = Path(scratch) / "set"
                folder.mkdir()
                for photo in photos:
                    image = Image.open(photo).convert("RGB")
                    image.thumbnail((768, 768))
                    image.save(folder / f"{photo.stem}.png")
                true_lab, clean = lab(folder / f"{victim.stem}.png"), folder / f"{victim.stem}.png"
                truth = light(fix(folder, Path(scratch) / "truth", dry_run=True).before, clean.name)
                originals = {p.name: lab(p) for p in folder.iterdir()}
                if spoil is not None:
                    spoil(Image.open(clean).convert("RGB")).save(clean)
                spoilt = lab(clean)
                done = fix(folder, Path(scratch) / "out", options=Options(normalize=True), select=RULES)
                assert done.after is not None
                for other, before in originals.items():
                    if spoil is None or other != clean.name:
                        changed = deltaE_ciede2000(before, lab(Path(scratch) / "out" / other)).mean()
                        untouched[split].append(float(changed))
                if spoil is not None:
                    angles = [colorimetry.angle(light(r, clean.name), truth) for r in (done.before, done.after)]
                    after = lab(Path(scratch) / "out" / clean.name)
                    colours = [float(deltaE_ciede2000(true_lab, x).mean()) for x in (spoilt, after)]
                    repaired = any(a.steps and a.record.path == clean.name for a in done.actions)
                    found[(split, name)].append((*(float(a) for a in angles), *colours, float(repaired)))
    lines = ["# What `fix --normalize` does to colours, measured", "", "Written by `benchmarks/fix_colour.py`.", ""]
    for split in ("reported", "chosen on"):
        lines += [
            f"## Subjects the limits were {split if split == 'chosen on' else 'not chosen on'}",
            "",
            "| spoilt by | photos | repaired | light off, before → after (median) | falls by "
            "| CIEDE2000, before → after (median) | falls by |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for (which, name), rows in found.items():
            if which != split:
                continue
            for label, some in ((name, rows), (f"{name}, repaired ones", [r for r in rows if r[4]])):
                if some:
                    a0, a1, c0, c1, _ = np.median(np.array(some), axis=0)
                    lines.append(
                        f"| {label} | {len(some)} | {sum(r[4] for r in some):.0f} | {a0:.1f}° → {a1:.1f}° | "
                        f"{1 - a1 / a0:.0%} | {c0:.1f} → {c1:.1f} | {1 - c1 / c0:.0%} |"
                    )
        values = np.array(untouched[split])
        lines += [
            "",
            f"Unharmed photos ({len(values)}): mean CIEDE2000 {values.mean():.2f}; {np.mean(values > 0):.1%} of them "
            "were changed at all.",
            "",
        ]
    text = "\n".join(lines).rstrip() + "\n"
    print(text)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
