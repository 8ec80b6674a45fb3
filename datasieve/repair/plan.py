"""Deciding what happens to every image of a set, from its report: nothing is read or written here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal, cast

import numpy as np

from datasieve.filenames import free_path, safe_path
from datasieve.records import ImageRecord
from datasieve.repair import (
    Centre,
    Options,
    Parameters,
    Repair,
    Row,
    alpha,
    encoding,
    exposure,
    still,
    trim,
    upright,
    white_balance,
)
from datasieve.rules import selected

Kind = Literal["copy", "strip", "change", "set aside", "quarantine"]

REPAIRS: dict[str, Repair] = {
    "colour encoding": cast(Repair, encoding),
    "upright": cast(Repair, upright),
    "first frame": cast(Repair, still),
    "trim": cast(Repair, trim),
    "transparency": cast(Repair, alpha),
    "white balance": cast(Repair, white_balance),
    "exposure": cast(Repair, exposure),
}
"""The repairs of pixels in the order in which they are carried out."""

COPIES = ("duplicates.exact", "duplicates.pixels", "duplicates.near")
PERSONAL = ("files.gps",)
EXTENSION = ("files.wrong-extension",)
EXTENSIONS = {"JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp", "GIF": ".gif", "BMP": ".bmp", "TIFF": ".tif",
              "AVIF": ".avif"}  # fmt: skip
MIN_IMAGES = 4
"""Images of a concept needed to speak of what they share."""

ALL_RULES = frozenset(rule for repair in REPAIRS.values() for rule in repair.RULES) | {*COPIES, *PERSONAL, *EXTENSION}
"""Every rule that some repair answers."""


@dataclass(frozen=True, slots=True)
class Step:
    """One repair of one image.

    Attributes:
        repair: its name.
        rules: the findings that called for it.
        parameters: what exactly is done.
    """

    repair: str
    rules: tuple[str, ...]
    parameters: Parameters


@dataclass(frozen=True, slots=True)
class Action:
    """What happens to one image.

    Attributes:
        kind: "copy" (byte for byte), "strip" (metadata taken out, pixels untouched), "change", "set aside" (a copy of
            another image) or "quarantine" (unreadable).
        record: the image.
        content: hash of its bytes when the report was made.
        result: relative POSIX path of what is written; below the folder of what was set aside for the last two kinds.
        steps: in order.
        reason: why it is set aside, one sentence; "" otherwise.
        skipped: repairs that were called for and cannot be done: name -> why.
    """

    kind: Kind
    record: ImageRecord
    content: str
    result: str
    steps: tuple[Step, ...] = ()
    reason: str = ""
    skipped: Mapping[str, str] = field(default_factory=dict)


def plan(
    records: Iterable[ImageRecord],
    rows: Mapping[str, Row],
    findings: Iterable[Mapping[str, Any]],
    options: Options,
    select: tuple[str, ...] = (),
    ignore: tuple[str, ...] = (),
    settled: Mapping[str, str] | None = None,
) -> list[Action]:
    """Return what happens to each image, in the order of the records.

    Args:
        records: the dataset as it is now.
        rows: image_id -> row of images.parquet. Images the report does not know are left out (a fresh audit comes
            before).
        findings: rows of findings.parquet.
        options: what the user chose.
        select, ignore: rule ids or prefixes whose repairs run, and do not; an empty `select` means all.
        settled: path -> content hash of what a fix with these options wrote; such images are not repaired again, so
            that a fix of a fixed set changes nothing.
    """
    called: dict[str, list[str]] = {}
    for found in findings:
        rule = str(found["rule"])
        wanted = (not select or selected(rule, select)) and not selected(rule, ignore)
        if found["image_id"] and wanted and rule in ALL_RULES:
            called.setdefault(str(found["image_id"]), []).append(rule)
    known = [(record, rows[record.image_id]) for record in records if record.image_id in rows]
    middle = centres([row for _, row in known])
    taken: set[str] = set()
    actions = []
    for record, row in known:
        rules = called.get(record.image_id, [])
        if settled and row["content"] and settled.get(record.path) == row["content"]:
            rules = []
        action = _action(record, row, rules, middle[row["concept"] or ""], options)
        result = free_path(action.result, taken)
        taken.add(result.casefold())
        actions.append(_with_result(action, result))
    return actions


def _with_result(action: Action, result: str) -> Action:
    return Action(action.kind, action.record, action.content, result, action.steps, action.reason, action.skipped)


def _action(record: ImageRecord, row: Row, rules: Sequence[str], centre: Centre, options: Options) -> Action:
    content, path = str(row["content"] or ""), safe_path(record.path)
    if row["status"] != "ok":
        reason = str(row["error"] or "it could not be decoded")
        return Action("quarantine", record, content, path, reason=reason)
    if any(rule in COPIES for rule in rules):
        first = row.get("duplicates.exact-of") or row.get("duplicates.near-of")
        return Action("set aside", record, content, path, reason=f"It is a copy of {first}.")
    steps: list[Step] = []
    skipped: dict[str, str] = {}
    for name, repair in REPAIRS.items():
        because = tuple(rule for rule in rules if rule in repair.RULES)
        if not because or not (repair.SAFE or options.normalize):
            continue
        decided = repair.parameters(row, centre, options)
        if isinstance(decided, str):
            skipped[name] = decided
        else:
            steps.append(Step(name, because, decided))
    personal = tuple(rule for rule in rules if rule in PERSONAL)
    format_ = str(row["format"] or "")
    if steps:
        if personal:
            steps.append(Step("personal data", personal, {}))
        target = str(PurePosixPath(path).with_suffix(".png"))
        return Action("change", record, content, target, tuple(steps), skipped=skipped)
    extension = tuple(rule for rule in rules if rule in EXTENSION)
    if extension and format_ in EXTENSIONS:
        path = str(PurePosixPath(path).with_suffix(EXTENSIONS[format_]))
        steps.append(Step("extension", extension, {"format": format_}))
    if path != record.path and not extension:
        steps.append(Step("name", (), {"from": record.path}))
    if personal:
        steps.append(Step("personal data", personal, {}))
        if format_ in ("JPEG", "PNG"):
            return Action("strip", record, content, path, tuple(steps), skipped=skipped)
        path = str(PurePosixPath(path).with_suffix(".png"))
        return Action("change", record, content, path, tuple(steps), skipped=skipped)
    return Action("copy", record, content, path, tuple(steps), skipped=skipped)


def centres(rows: Sequence[Row]) -> dict[str, Centre]:
    """Return what the usable images of each concept have in common: medians over at least `MIN_IMAGES` of them."""
    lights: dict[str, list[list[float]]] = {}
    levels: dict[str, list[float]] = {}
    for row in rows:
        concept = row["concept"] or ""
        light = [row.get(f"colour.light-{c}") for c in ("red", "green", "blue")]
        lights.setdefault(concept, [])
        levels.setdefault(concept, [])
        if row["status"] == "ok" and None not in light:
            lights[concept].append(cast("list[float]", light))
        if row["status"] == "ok" and row.get("colour.lightness") is not None:
            levels[concept].append(float(row["colour.lightness"]))
    out = {}
    for concept, values in lights.items():
        shares = tuple(float(v) for v in np.median(values, axis=0)) if len(values) >= MIN_IMAGES else None
        level = float(np.median(levels[concept])) if len(levels[concept]) >= MIN_IMAGES else None
        out[concept] = Centre(cast("tuple[float, float, float] | None", shares), level)
    return out
