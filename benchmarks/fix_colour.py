"""How far does `fix --normalize` bring a picture back whose colours were spoiled, and what does it do to clean ones?

    python benchmarks/fix_colour.py DATA [--out docs/fix.md] [--boxes]

DATA holds make_faults.py and subjects/. For each subject one photo at a time is spoilt in every way that make_faults.py
spoils colours, among its unharmed fellows; the set is fixed, and the result compared with the unharmed photo: angle
between the lights read from both (degrees in linear sRGB) and mean CIEDE2000 at 128 px. A profile counts as trainers
see it: not at all. With --boxes the subject's place is told from annotations.csv, as an analyzer would tell it.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import io
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from skimage.color import deltaE_ciede2000, rgb2lab

from datasieve.config import Settings
from datasieve.imaging import colorimetry
from datasieve.repair import Options, run
from datasieve.repair.run import fix
from datasieve.report import Report

RULES = ("colour", "files")
QUICK = Settings(embedder="none")
Spoil = Callable[[Image.Image], bytes]

GROUPS = {
    "all casts": ("light",),
    "all exposures": ("exposure",),
    "all wide-gamut pictures with their profile": ("tagged",),
    "all gammas": ("gamma",),
    "all missing and wrong profiles": ("untagged", "wrongly tagged"),
    "everything planted": ("",),
}


def spoilers(data: Path) -> dict[str, Spoil]:
    """Return name -> function that gives the file of a spoilt picture, from make_faults.py."""
    spec = importlib.util.spec_from_file_location("make_faults", data / "make_faults.py")
    assert spec is not None
    assert spec.loader is not None
    faults = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(faults)
    out: dict[str, Spoil] = {}
    for kelvin in (2800, 3500, 4500, 9000, 12000):
        out[f"light {kelvin} K"] = lambda im, k=kelvin: png(faults.wb_cast(im, k)[0])  # type: ignore[misc]
    for stops in (-2.5, -1.5, 1.5, 2.5):
        out[f"exposure {stops:+} EV"] = lambda im, e=stops: png(faults.exposure(im, e)[0])  # type: ignore[misc]
    for gamma in (1.0, 1.8, 2.6):
        out[f"gamma {gamma}"] = lambda im, g=gamma: png(faults.wrong_gamma(im, g))  # type: ignore[misc]
    for space in faults.SPACES:
        profile = faults.build_icc(space)

        def wide(im: Image.Image, space: str = space) -> Image.Image:
            return faults.as_image(faults.convert_space(faults.as_float(im), space))  # type: ignore[no-any-return]

        out[f"tagged {space}"] = lambda im, w=wide, p=profile: png(w(im), p)  # type: ignore[misc]
        out[f"untagged {space}"] = lambda im, w=wide: png(w(im))  # type: ignore[misc]
        out[f"wrongly tagged {space}"] = lambda im, p=profile: png(im, p)  # type: ignore[misc]
    return out


def png(image: Image.Image, profile: bytes | None = None) -> bytes:
    """Return a PNG's bytes."""
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1, **({"icc_profile": profile} if profile else {}))
    return buffer.getvalue()


def lab(path: Path) -> Any:
    """Return CIELAB of a picture at 128 x 128 px."""
    return rgb2lab(np.asarray(Image.open(path).convert("RGB").resize((128, 128), Image.Resampling.BOX)))


def light(report: Report, path: str) -> Any:
    """Return the light of one image as a report holds it."""
    names = [f"colour.light-{c}" for c in ("red", "green", "blue")]
    row = next(r for r in report.images(["path", *names]).to_pylist() if r["path"] == path)
    return [row[name] or 0.0 for name in names]


def tell_boxes(data: Path, subject: str) -> None:
    """Let fixes know the subject's boxes of annotations.csv."""
    with (data / "subjects" / "annotations.csv").open(encoding="utf-8") as handle:
        rows = [row for row in csv.DictReader(handle) if row["subject"] == subject]
    boxes = {Path(row["file"]).stem: [float(row[k]) for k in ("x0", "y0", "x1", "y1")] for row in rows}
    look = run.look

    def told(records: Any, rows: Any, max_pixels: int) -> Any:
        names = ("subject.left", "subject.top", "subject.right", "subject.bottom")
        known = {}
        for image, row in rows.items():
            box = boxes.get(Path(row["path"]).stem)
            known[image] = {**row, **dict(zip(names, box, strict=True)), "subject.certainty": 1.0} if box else row
        return look(records, known, max_pixels)

    run.look = told


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--boxes", action="store_true")
    parser.add_argument("--subjects", type=int, default=99, help="only so many")
    arguments = parser.parse_args(argv)
    subjects = sorted(p for p in (arguments.data / "subjects").iterdir() if p.is_dir())
    with (arguments.data / "subjects" / "natural_faults.csv").open(encoding="utf-8") as handle:
        natural = {row["file"] for row in csv.DictReader(handle)}
    kinds = spoilers(arguments.data)
    found: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    untouched: list[float] = []
    whole_look = run.look
    used = 0
    for number, subject in enumerate(subjects):
        photos = [p for p in sorted(subject.glob("*.jpg")) if f"{subject.name}/{p.name}" not in natural]
        if len(photos) < 5 or used >= arguments.subjects:
            continue
        used += 1
        run.look = whole_look
        if arguments.boxes:
            tell_boxes(arguments.data, subject.name)
        with tempfile.TemporaryDirectory() as scratch:
            folder, out = Path(scratch) / "set", Path(scratch) / "out"
            folder.mkdir()
            for photo in photos:
                image = Image.open(photo).convert("RGB")
                image.thumbnail((768, 768))
                image.save(folder / f"{photo.stem}.png")
            originals = {p.name: lab(p) for p in folder.iterdir()}
            truth = fix(folder, out, settings=QUICK, dry_run=True).before
            lights = {name: light(truth, name) for name in originals}
            for turn, (name, spoil) in enumerate({"": None, **kinds}.items()):
                victim = folder / f"{photos[(turn + number) % len(photos)].stem}.png"
                kept = victim.read_bytes()
                if spoil is not None:
                    victim.write_bytes(spoil(Image.open(io.BytesIO(kept)).convert("RGB")))
                spoilt = lab(victim)
                done = fix(folder, out, options=Options(normalize=True), settings=QUICK, select=RULES)
                assert done.after is not None
                results = {a.record.path: a.result for a in done.actions}
                for other, before in originals.items():
                    if spoil is None or other != victim.name:
                        untouched.append(float(deltaE_ciede2000(before, lab(out / results[other])).mean()))
                if spoil is not None:
                    true = lights[victim.name]
                    seen = light(done.before, victim.name), light(done.after, results[victim.name])
                    after = lab(out / results[victim.name])
                    colours = [float(deltaE_ciede2000(originals[victim.name], x).mean()) for x in (spoilt, after)]
                    repaired = any(a.steps and a.record.path == victim.name for a in done.actions)
                    found[name].append((*(float(colorimetry.angle(s, true)) for s in seen), *colours, float(repaired)))
                victim.write_bytes(kept)
    write(found, untouched, arguments)


def write(found: dict[str, list[tuple[float, ...]]], untouched: Sequence[float], arguments: Any) -> None:
    """Print the table, and write it where asked."""
    boxes = "told by hand-drawn boxes" if arguments.boxes else "taken to be in the middle of the picture"
    lines = [
        f"Subjects {boxes}. The limits were chosen in view of these photos.",
        "",
        "| spoilt by | photos | repaired | light off, before → after (median) | falls by "
        "| CIEDE2000, before → after (median) | falls by |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    rows = dict(found)
    for group, words in GROUPS.items():
        rows[f"**{group}**"] = [r for name, some in found.items() if name.startswith(words) for r in some]
    for name, some in rows.items():
        a0, a1, c0, c1, _ = np.median(np.array(some), axis=0)
        lines.append(
            f"| {name} | {len(some)} | {sum(r[4] for r in some):.0f} | {a0:.1f}° → {a1:.1f}° | "
            f"{1 - a1 / max(a0, 1e-9):.0%} | {c0:.1f} → {c1:.1f} | {1 - c1 / c0:.0%} |"
        )
    values = np.array(untouched)
    lines += [
        "",
        f"Unharmed photos ({len(values)}): mean CIEDE2000 {values.mean():.2f}; {np.mean(values > 0):.1%} of them were "
        "changed at all.",
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.out:
        head = arguments.out.read_text(encoding="utf-8").split(MARK)[0] if arguments.out.is_file() else ""
        arguments.out.write_text(f"{head}{MARK}\n\n{text}", encoding="utf-8")


MARK = "<!-- written by benchmarks/fix_colour.py -->"

if __name__ == "__main__":
    main()
