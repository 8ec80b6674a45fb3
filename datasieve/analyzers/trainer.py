"""What the named trainer will do to awkward files: turn them, clip them, tint them, skip them, or stop at them.

Trainers read images in ways of their own, and few of them say so. This analyzer knows what each does and names the
consequence for each file. It measures nothing: the facts of the file (header, name, status) meet a table of what was
read in, or seen of, the trainers' own code. Where a fact was not run, the sentence says "may".

Needs `--trainer`; without it nothing is claimed. Fails where a fork or a newer version reads files differently, and
where the trainer is run with options that change it (such options are named).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from datasieve.analyzers import Comparison
from datasieve.rules import Rule, Severity
from datasieve.schema import Column

if TYPE_CHECKING:
    import pyarrow as pa

    from datasieve.config import Settings

Row = Mapping[str, Any]

_SOURCE = "the trainers' own image loading code"
_NAMES = {
    "a1111": "A1111",
    "kohya": "kohya",
    "diffusers": "diffusers' textual inversion script",
    "onetrainer": "OneTrainer",
    "simpletuner": "SimpleTuner",
    "ai-toolkit": "ai-toolkit",
}
_PILLOW = ("a1111", "kohya", "diffusers", "ai-toolkit")
"""Trainers that bring files to RGB with Pillow's plain `convert`."""

EXTENSIONS: dict[str, frozenset[str]] = {
    # kohya compares all-lower and all-upper spellings only.
    "kohya": frozenset(
        spelling
        for lower in (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".avif", ".jxl")
        for spelling in (lower, lower.upper())
    ),
    "onetrainer": frozenset((".bmp", ".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".avif")),
}


def _all(sentence: str, trainers: tuple[str, ...] = tuple(_NAMES)) -> dict[str, str]:
    """Return the same sentence for several trainers; `{name}` becomes the trainer's name."""
    return {trainer: sentence.replace("{name}", _NAMES[trainer]) for trainer in trainers}


CONSEQUENCES: dict[str, dict[str, str]] = {
    "sideways": {
        **_all(
            "{name} ignores EXIF orientation: this picture will be trained turned or mirrored, as it is stored.",
            ("kohya", "diffusers"),
        ),
        "a1111": "A1111 before version 1.10 ignores EXIF orientation: this picture may be trained turned or mirrored.",
    },
    "clipped": {
        **_all("{name} clips 16-bit grey at 255: nearly all of this picture will be trained as white.", _PILLOW),
        "onetrainer": "OneTrainer may divide this 16-bit picture by 255 instead of 65535: values up to 257 instead "
        "of 1, which wrecks the batch it is in.",
        "simpletuner": "How SimpleTuner reads 16-bit pictures was not tested: it may clip them to white.",
    },
    "hidden-colours": {
        **_all(
            "{name} drops the transparency and keeps what lies under it: colours you never see will be trained.",
            ("a1111", "kohya", "diffusers", "onetrainer"),
        ),
        "ai-toolkit": "ai-toolkit drops the transparency (or uses it as a mask, if told to) and keeps what lies "
        "under it: colours you never see will be trained.",
        "simpletuner": "SimpleTuner may put its own background behind the transparent parts, or train the colours "
        "hidden under them; this was not tested.",
    },
    "loss-nan": {
        "a1111": "With 'Use PNG alpha channel as loss weight' on, A1111 divides by zero on this fully opaque alpha "
        "channel: the loss becomes NaN and the embedding is lost.",
    },
    "print-colours": {
        **_all(
            "{name} converts print colours by the plain formula and without their profile: this picture will be "
            "trained too bright and too saturated.",
            (*_PILLOW, "onetrainer"),
        ),
        "simpletuner": "SimpleTuner may convert these print colours without their profile, which changes them.",
    },
    "profile-ignored": _all(
        "{name} ignores colour profiles: this picture's colours will be trained as if they were sRGB, which makes "
        "them paler or shifts them."
    ),
    "not-listed": {
        "kohya": "kohya does not list files with this extension: the picture will silently not be trained.",
        "onetrainer": "OneTrainer does not list files with this extension: the picture will silently not be trained.",
    },
    "folder-ignored": {
        "kohya": "kohya reads only images lying directly in folders named N_concept (such as 10_my cat): this one "
        "will silently not be trained, unless a dataset TOML names its folder.",
    },
    "broken": {
        "a1111": "A1111 skips this unreadable file without a word: you train on fewer images than you think.",
        "kohya": "kohya stops the run with an error when it reaches this unreadable file.",
        "diffusers": "diffusers' textual inversion script crashes when it reaches this unreadable file.",
        "onetrainer": "OneTrainer stops with an error when it reaches this unreadable file.",
        "simpletuner": "SimpleTuner logs this unreadable file, and deletes it if delete_problematic_images is on.",
        "ai-toolkit": "ai-toolkit prints an error at this unreadable file and then fails.",
    },
}
"""fault -> trainer -> what happens. A trainer that is not named handles the case well."""


def _numbered(name: str) -> bool:
    match = re.match(r"(-?\d+)_", name)
    return match is not None and int(match[1]) >= 1


def _outside_numbered_folders(row: Row) -> bool:
    parts = PurePosixPath(row["path"]).parts
    return len(parts) != 2 or not _numbered(parts[0])


def _unlisted(row: Row, trainer: str) -> bool:
    suffix = PurePosixPath(row["path"]).suffix
    known = EXTENSIONS.get(trainer)
    return known is not None and (suffix if trainer == "kohya" else suffix.lower()) not in known


def _clipped(row: Row, trainer: str) -> bool:
    deep = (row["files.bit-depth"] or 8) >= 16
    grey = row["files.colour-model"] == "grey"
    return deep and (grey or trainer == "onetrainer")


_WHEN: dict[str, Callable[[Row, str], bool]] = {
    "sideways": lambda row, _: (row["files.orientation"] or 1) != 1,
    "clipped": _clipped,
    "hidden-colours": lambda row, _: (row["files.hidden-colour-share"] or 0) > 0,
    "loss-nan": lambda row, _: bool(row["files.has-alpha"]) and row["files.alpha-share"] == 0,
    "print-colours": lambda row, _: row["files.colour-model"] == "cmyk",
    "profile-ignored": lambda row, _: row["files.icc-class"] in ("wide", "linear", "other"),
    "not-listed": _unlisted,
    "folder-ignored": lambda row, _: _outside_numbered_folders(row),
    "broken": lambda row, _: row["status"] == "unreadable",
}
_LOCAL_ONLY = ("not-listed", "folder-ignored")
"""Faults of files in folders, which do not arise inside a shard."""


def consequences(row: Row, trainer: str, layout: str = "folder") -> dict[str, str]:
    """Return fault -> sentence for one image: its image fields and `files.*` columns.

    `layout` is the dataset's layout: kohya's folder names mean nothing in a dataset TOML, and in kohya's own layout
    ignored folders are found while listing.
    """
    found = {}
    for fault, sentences in CONSEQUENCES.items():
        if trainer not in sentences:
            continue
        if fault in _LOCAL_ONLY and "::" in row["path"]:
            continue
        if fault == "folder-ignored" and layout in ("kohya", "kohya-toml"):
            continue
        if fault not in ("broken", *_LOCAL_ONLY) and row["status"] != "ok":
            continue
        if _WHEN[fault](row, trainer):
            found[fault] = sentences[trainer]
    return found


_TEXTS: dict[str, tuple[Severity, str, str, str]] = {
    "sideways": (
        "error",
        "Trained sideways",
        "Save the picture upright, without the orientation tag.",
        "The concept learns lying faces and leaning houses, and draws them.",
    ),
    "clipped": (
        "error",
        "16 bits misread",
        "Convert it to 8 bits per channel.",
        "A picture of nearly nothing but white pulls every sample of the concept towards white.",
    ),
    "hidden-colours": (
        "error",
        "Hidden colours trained",
        "Flatten the picture onto a plain background.",
        "Image editors leave anything under transparent pixels; the model learns it as part of the concept.",
    ),
    "loss-nan": (
        "warning",
        "Opaque alpha",
        "Save it without an alpha channel, or leave that option off.",
        "One NaN loss destroys the embedding: every later step and image is NaN too.",
    ),
    "print-colours": (
        "warning",
        "Print colours misread",
        "Convert it to sRGB through its profile.",
        "One picture in other colours than the rest teaches a tint that follows the concept.",
    ),
    "profile-ignored": (
        "warning",
        "Profile ignored",
        "Convert it to sRGB.",
        "Colours that are off in some pictures and right in others contradict each other under one word.",
    ),
    "not-listed": (
        "error",
        "Not listed",
        "Save it as PNG, JPEG or WebP with a lower-case extension.",
        "Images that are left out make the set smaller and more one-sided than you planned.",
    ),
    "folder-ignored": (
        "error",
        "Folder ignored",
        "Rename its folder to N_concept (such as 10_my cat: ten repeats of the concept my cat) and train on the folder "
        "above it, or write a dataset TOML.",
        "Images that are left out make the set smaller and more one-sided than you planned.",
    ),
    "broken": (
        "error",
        "Trainer meets a broken file",
        "Replace the file or take it out of the folder.",
        "A run that stops after hours, or goes on without some of its images, costs more than checking.",
    ),
}


def _rule(fault: str) -> Rule:
    severity, title, remedy, why = _TEXTS[fault]
    return Rule(
        id=f"trainer.{fault}",
        column=f"trainer.{fault}",
        side="is",
        limit=True,
        severity=severity,
        title=title,
        message=f"{{trainer.{fault}-consequence}}",
        remedy=remedy,
        why=why,
        how="From the file's header, name and status, and a table of how each trainer reads files. Wrong for forks "
        "and versions that read them differently. Runs only with --trainer.",
        source=_SOURCE,
        evidence="Facts, not estimates: each sentence was read in the trainer's code or seen when run; 'may' marks "
        "what was not run.",
    )


class Trainer:
    """Confronts every image with the habits of the trainer in the settings."""

    version = 1
    views = ()
    needs = (
        "files.orientation",
        "files.bit-depth",
        "files.colour-model",
        "files.has-alpha",
        "files.alpha-share",
        "files.hidden-colour-share",
        "files.icc-class",
    )
    columns = tuple(
        column
        for fault in CONSEQUENCES
        for column in (
            Column(
                f"trainer.{fault}",
                "bool",
                description=f"the trainer meets this fault ({_TEXTS[fault][1].lower()}); null without --trainer",
                source=_SOURCE,
                stage="compare",
            ),
            Column(
                f"trainer.{fault}-consequence",
                "string",
                description="what the trainer will do to this file",
                source=_SOURCE,
                stage="compare",
            ),
        )
    )
    rules = tuple(_rule(fault) for fault in CONSEQUENCES)

    def compare(self, table: pa.Table, settings: Settings) -> Comparison:
        """Return, per image, which faults the trainer meets in it; nothing without a trainer."""
        count = len(table)
        found = Comparison(columns={c.name: [None] * count for c in self.columns})
        columns: dict[str, Any] = found.columns
        if settings.trainer is None:
            found.unmeasured["trainer"] = (
                "no --trainer given, so what a trainer will do to these files was not checked "
                f"(choose from {', '.join(sorted(_NAMES))})"
            )
            return found
        layout = (table.schema.metadata or {}).get(b"layout", b"folder").decode()
        known = [fault for fault, sentences in CONSEQUENCES.items() if settings.trainer in sentences]
        for fault in known:
            columns[f"trainer.{fault}"] = [False] * count
        for i, row in enumerate(table.select(["path", "status", *self.needs]).to_pylist()):
            for fault, sentence in consequences(row, settings.trainer, layout).items():
                columns[f"trainer.{fault}"][i] = True
                columns[f"trainer.{fault}-consequence"][i] = sentence
        return found


ANALYZER = Trainer()
