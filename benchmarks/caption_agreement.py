"""Does the text path know a photo's own caption from others', and does the audit find captions that were swapped?

    python benchmarks/caption_agreement.py DATA [--clip MODEL] [--out docs/caption-agreement.md]

DATA holds subjects/ with annotations.csv (captions are "a photo of NOUN SCENE", as make_faults.py writes them) and
captioned/ with captions.csv. Every choice (classes kept, sharpness, limits) was made on the subjects at even places of
the sorted list and on captioned/; the subjects at odd places are reported. With --clip a CLIP model is measured instead
of the embedded text path.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import roc_auc_score

import datasieve
from datasieve.analyzers._agreement import SEPARATED
from datasieve.batch import DecodeRequest
from datasieve.config import Settings
from datasieve.embedding import TextSpace, agreement, conse, lite0, open_text_space
from datasieve.embedding.sentences import Sentences, open_sentences
from datasieve.imaging.decode import decode

SEEDS = range(8)
RULES = ("semantics.caption-swapped", "semantics.caption-misfit")


class Photo(NamedTuple):
    """One picture of a set, with what its caption says. `owner`: captions are swapped between owners only."""

    file: Path
    owner: str
    caption: str
    kind: str = ""
    reversed: str = ""
    mislabelled: str = ""


def article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def subjects(data: Path) -> list[Photo]:
    """Return the photos of subjects/, each with its caption, with a wrong colour and with a wrong kind in it."""
    with open(data / "subjects" / "annotations.csv", encoding="utf-8") as handle:
        rows = list(csv.DictReader(handle))
    kinds = sorted({row["cls"] for row in rows})
    photos = []
    for row in rows:
        noun, colour, wrong = row["noun"], row["true_colour"], row["wrong_colour"]
        recoloured = noun.replace(colour, wrong) if colour and colour in noun.split() else f"{wrong} {noun}"
        other = kinds[(kinds.index(row["cls"]) + len(kinds) // 2) % len(kinds)]
        photos.append(
            Photo(
                data / "subjects" / row["file"],
                row["subject"],
                f"a photo of {article(noun)} {row['scene']}",
                row["cls"],
                f"a photo of {article(recoloured)} {row['scene']}",
                f"a photo of {article(other)} {row['scene']}",
            )
        )
    return photos


def captioned(data: Path) -> dict[str, list[Photo]]:
    """Return the sets of captioned/, each picture its own owner."""
    with open(data / "captioned" / "captions.csv", encoding="utf-8") as handle:
        rows = [row for row in csv.DictReader(handle) if row["caption"].strip()]
    sets: dict[str, list[Photo]] = defaultdict(list)
    for row in rows:
        file = data / "captioned" / row["file"]
        if file.is_file():
            sets[row["set"]].append(Photo(file, row["caption"], row["caption"]))
    return sets


def seen(space: TextSpace, photos: Sequence[Photo]) -> Any:
    """Return the pictures' vectors, decoded as an audit decodes them."""
    request = DecodeRequest(tiles=False, pixel_hash=False)
    parts = []
    for start in range(0, len(photos), 8):
        decoded = [decode(p.file.read_bytes(), p.file.name, request).pixels for p in photos[start : start + 8]]
        parts.append(space.pictures([pixels for pixels in decoded if pixels is not None]))
    return np.concatenate(parts)


def auroc(matrix: Any, photos: Sequence[Photo]) -> float:
    """Return the AUROC of a photo's own caption against those of other owners, over all pairs."""
    owners = np.array([p.owner for p in photos], dtype=object)
    own, others = np.diag(matrix), matrix[owners[:, None] != owners[None]]
    return float(roc_auc_score([1] * len(own) + [0] * len(others), [*own, *others]))


def plain_conse(space: TextSpace, photos: Sequence[Photo]) -> Any:
    """Return cosines of ConSE as published: the picture among sentence vectors, with those of the captions."""
    network, sentences = lite0.open_lite0("cpu"), open_sentences("cpu")
    assert isinstance(network, lite0.Lite0)
    assert isinstance(sentences, Sentences)
    profiles = seen(space, photos)
    placed = profiles @ conse.class_names()
    placed /= np.linalg.norm(placed, axis=1, keepdims=True)
    return placed @ sentences.texts([p.caption for p in photos]).T


def ranking(space: TextSpace, groups: dict[str, list[Photo]], everyone: list[Photo], clip: bool) -> list[str]:
    lines = ["| measure | " + " | ".join(groups) + " |", "| --- |" + " --- |" * len(groups)]
    rows: dict[str, list[str]] = defaultdict(list)
    for photos in groups.values():
        pictures, texts = seen(space, photos), space.texts([p.caption for p in photos])
        fits = agreement.all_fits(pictures, texts)
        rows["AUROC of `semantics.caption-fit`"].append(f"{auroc(fits, photos):.3f}")
        rows["AUROC of the cosine (`semantics.caption-agreement`)"].append(f"{auroc(pictures @ texts.T, photos):.3f}")
        if not clip:
            rows["AUROC of ConSE as published"].append(f"{auroc(plain_conse(space, photos), photos):.3f}")
        rank = (fits > np.diag(fits)[:, None]).sum(1)
        rows[f"recall@{agreement.K} of the own caption in the split"].append(f"{(rank < agreement.K).mean():.2f}")
        kinds = sorted({p.kind for p in everyone})
        names = space.texts([f"a photo of {article(kind)}" for kind in kinds])
        told = [kinds[i] for i in (pictures @ names.T).argmax(1)]
        right = np.mean([a == p.kind for a, p in zip(told, photos, strict=True)])
        rows[f"zero-shot accuracy over {len(kinds)} kinds"].append(f"{right:.2f}")
        rows["photos, subjects"].append(f"{len(photos)}, {len({p.owner for p in photos})}")
    return [*lines, *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items())]


def swapped(photos: Sequence[Photo], seed: int) -> tuple[list[str], dict[int, int]]:
    """Return captions of which up to six pairs between owners were swapped, and who has whose."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(photos)).tolist()
    partners: dict[int, int] = {}
    for a in order[: 2 * (1 + seed % 6)]:
        free = [b for b in order if b != a and b not in partners and photos[b].owner != photos[a].owner]
        if a not in partners and free and len(partners) < 2 * (1 + seed % 6):
            partners[a] = free[int(generator.integers(len(free)))]
            partners[partners[a]] = a
    return [photos[partners.get(i, i)].caption for i in range(len(photos))], partners


def audits(photos: Sequence[Photo], clip: str) -> Iterator[tuple[dict[int, int], dict[str, set[int]], float]]:
    """Yield, for the set as it is and for sets with swapped captions: partners, what each rule told, the fits' AUROC.

    The pictures are measured once; a rerun with other captions measures nothing anew.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "set"
        folder.mkdir()
        names = [f"{i:04d}" for i in range(len(photos))]
        for name, photo in zip(names, photos, strict=True):
            shutil.copyfile(photo.file, folder / f"{name}{photo.file.suffix}")
        for seed in (None, *SEEDS):
            captions, partners = ([p.caption for p in photos], {}) if seed is None else swapped(photos, seed)
            for name, caption in zip(names, captions, strict=True):
                (folder / f"{name}.txt").write_text(caption, encoding="utf-8")
            settings = Settings(select=RULES, clip=clip, concept_by="none")
            report = datasieve.audit(folder, Path(scratch) / "report", settings=settings)
            told: dict[str, set[int]] = {rule: set() for rule in RULES}
            for finding in report.findings().to_pylist():
                told[finding["rule"]].add(int(Path(finding["path"]).stem))
            rows = report.images(["path", "semantics.caption-fit"]).to_pylist()
            fit = {int(Path(r["path"]).stem): r["semantics.caption-fit"] for r in rows}
            known = [i for i in fit if fit[i] is not None]
            area = roc_auc_score([i in partners for i in known], [-fit[i] for i in known]) if partners else np.nan
            yield partners, told, float(area)


def found(sets: dict[str, list[Photo]], clip: str) -> list[str]:
    head = ["set", "photos", *(f"`{rule}` swapped, found" for rule in RULES), *(f"`{r}` false alarms" for r in RULES)]
    lines = [f"| {' | '.join([*head, 'AUROC of the fit'])} |", "| --- |" + " --- |" * (len(head))]
    for name, photos in sets.items():
        hits, alarms = dict.fromkeys(RULES, 0), dict.fromkeys(RULES, 0)
        planted = clean = 0
        areas = []
        for partners, told, area in audits(photos, clip):
            planted, clean = planted + len(partners), clean + len(photos) - len(partners)
            areas += [area] if partners else []
            for rule in RULES:
                hits[rule] += len(told[rule] & partners.keys())
                alarms[rule] += len(told[rule] - partners.keys())
        cells = [name, str(len(photos)), *(f"{hits[r]}/{planted}" for r in RULES)]
        cells += [*(f"{alarms[r]}/{clean}" for r in RULES), f"{np.mean(areas):.3f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def conflicts(space: TextSpace, photos: Sequence[Photo]) -> list[str]:
    lines = ["| conflict | mean similarity drop | top-1 text recall | lost of it |", "| --- | --- | --- | --- |"]
    pictures, right = seen(space, photos), space.texts([p.caption for p in photos])
    for name, wrong in (
        ("kind mislabelled", [p.mislabelled for p in photos]),
        ("colour reversed", [p.reversed for p in photos]),
    ):
        drop, recall, lost = agreement.interference(pictures, right, space.texts(wrong))
        lines.append(f"| {name} | {drop:.3f} | {recall:.2f} | {lost:.2f} |")
    return lines


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--clip", default="", metavar="MODEL")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args(argv)
    space = open_text_space("auto", "cpu", arguments.clip)
    assert not isinstance(space, str), space
    photos = subjects(arguments.data)
    even = set(sorted({p.owner for p in photos})[0::2])
    chosen_on, reported = [p for p in photos if p.owner in even], [p for p in photos if p.owner not in even]
    dogs = [p for p in photos if p.kind == "dog"]
    sets = {"subjects, reported": reported, "subjects, chosen on": chosen_on, "all dogs": dogs}
    sets |= {f"{name}, chosen on": found_here for name, found_here in captioned(arguments.data).items()}
    groups = {"reported": reported, "chosen on": chosen_on, "all": photos}
    lines = [
        "# Captions and pictures, measured",
        "",
        f"Written by `benchmarks/caption_agreement.py`. Method: {space.method} ({space.identity}).",
        "",
        "Photos of 23 subjects with captions that name the subject and the scene. Limits were chosen on every second "
        "subject and on the other sets marked so. A photo's own caption against those of other subjects, all pairs:",
        "",
        *ranking(space, groups, photos, bool(arguments.clip)),
        "",
        f"Audits of each set as it is and with one to six pairs of captions swapped between subjects ({len(SEEDS)} "
        "seeds; where every picture has a caption of its own, between any two). Captions found, and captions in their "
        "place that were told:",
        "",
        *found(sets, arguments.clip),
        "",
        f"A set whose captions fit their own pictures hardly better than others' (separation below {SEPARATED}) is not "
        "judged: its row shows none found.",
        "",
        "Captions that name a dog's breed are told apart because the classes of the embedded text path are breeds.",
        "",
        "Interference: what a conflict in the caption does to its cosine"
        + (
            ":" if arguments.clip else ". The embedded text path should be blind to attributes such as colours, and is:"
        ),
        "",
        *conflicts(space, photos),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.out:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
