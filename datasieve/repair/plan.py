"""Deciding what happens to every image of a set, from its report: nothing is read or written here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Literal, cast

from datasieve.filenames import free_path, safe_path
from datasieve.records import ImageRecord
from datasieve.repair import (
    Centre,
    Options,
    Parameters,
    Picture,
    Repair,
    Row,
    alpha,
    balance,
    crop,
    encoding,
    exposure,
    resize,
    still,
    trim,
    upright,
    white_balance,
)
from datasieve.repair.beside import CAPTION_RULES, CaptionEdit
from datasieve.repair.centres import centres
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
    "resize": cast(Repair, resize),
}
"""The repairs of pixels in the order in which they are carried out."""

NOTICED: dict[str, Callable[[Row, Centre, Options], bool]] = {
    "white balance": white_balance.noticed,
    "exposure": exposure.noticed,
}
"""Repairs that also answer what no rule said: called like a rule, with `--normalize`."""

CROP = "crop"
APPLY: dict[str, Callable[[Picture, Parameters], Picture]] = {
    **{name: repair.apply for name, repair in REPAIRS.items()},
    CROP: crop.apply,
}
"""What each step does to pixels; other steps do nothing to them."""

COPIES = ("duplicates.exact", "duplicates.pixels", "duplicates.near")
PERSONAL = ("files.gps",)
EXTENSION = ("files.wrong-extension",)
EXTENSIONS = {"JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp", "GIF": ".gif", "BMP": ".bmp", "TIFF": ".tif",
              "AVIF": ".avif"}  # fmt: skip
SOURCE_FORMATS = ("JPEG", "PNG", "WEBP")
"""Formats that a changed image may keep on request; trainers read all of them."""

ALL_RULES = frozenset(rule for repair in REPAIRS.values() for rule in repair.RULES) | {
    *COPIES,
    *PERSONAL,
    *EXTENSION,
    *CAPTION_RULES,
}
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
        captions: extension -> content of the caption files beside it; None copies those of the source.
        derived_from: `result` of the image that this one was cut out of, now or by an earlier fix; "" for all others.
    """

    kind: Kind
    record: ImageRecord
    content: str
    result: str
    steps: tuple[Step, ...] = ()
    reason: str = ""
    skipped: Mapping[str, str] = field(default_factory=dict)
    captions: Mapping[str, bytes] | None = None
    derived_from: str = ""

    @property
    def is_cut_out(self) -> bool:
        """Whether this fix cuts the image out of another, which has an action of its own."""
        return any(step.repair == CROP for step in self.steps)


def plan(
    records: Iterable[ImageRecord],
    rows: Mapping[str, Row],
    findings: Iterable[Mapping[str, Any]],
    options: Options,
    select: tuple[str, ...] = (),
    ignore: tuple[str, ...] = (),
    settled: Mapping[str, str] | None = None,
    captions: Mapping[str, CaptionEdit] | None = None,
    derived: Mapping[str, str] | None = None,
) -> list[Action]:
    """Return what happens to each image, in the order of the records, then the images that are cut out of others.

    Args:
        records: the dataset as it is now.
        rows: image_id -> row of images.parquet, with what `looks.look` added. Images the report does not know are left
            out (a fresh audit comes before).
        findings: rows of findings.parquet.
        options: what the user chose.
        select, ignore: rule ids or prefixes whose repairs run, and do not; an empty `select` means all.
        settled: path -> content hash of what a fix with these options wrote; such images are not repaired again, so
            that a fix of a fixed set changes nothing.
        captions: path -> what is to be done to its captions.
        derived: path -> path of the image that an earlier fix cut it out of.
    """

    def wanted(rule: str) -> bool:
        return (not select or selected(rule, select)) and not selected(rule, ignore)

    called: dict[str, list[str]] = {}
    for found in findings:
        rule = str(found["rule"])
        if found["image_id"] and rule in ALL_RULES and wanted(rule):
            called.setdefault(str(found["image_id"]), []).append(rule)
    known = [(record, rows[record.image_id]) for record in records if record.image_id in rows]
    # Copies of one image would outvote the others.
    middle = centres([row for record, row in known if not {*COPIES} & {*called.get(record.image_id, ())}])
    noticing = [name for name in NOTICED if options.normalize and any(map(wanted, REPAIRS[name].RULES))]
    taken: set[str] = set()
    actions: list[Action] = []
    views: dict[str, Row] = {}
    for record, row in known:
        rules = called.get(record.image_id, [])
        centre = middle.get(row["concept"] or "", Centre())
        if settled and row["content"] and settled.get(record.path) == row["content"]:
            path = safe_path(record.path)
            action = Action("copy", record, str(row["content"]), path) if row["status"] == "ok" else None
            action = action or _action(record, row, [], centre, options, [])
        else:
            action = _action(record, row, rules, centre, options, noticing)
            action = _with_captions(action, (captions or {}).get(record.path), rules)
            if options.balance and action.kind in ("copy", "strip", "change"):
                views[record.image_id] = _trimmed(row, action)
        action = replace(action, result=free_path(action.result, taken))
        taken.add(action.result.casefold())
        actions.append(action)
    places = {action.record.path: action.result for action in actions}
    before = {path: places.get(source, "") for path, source in (derived or {}).items()}
    actions = [replace(action, derived_from=before.get(action.record.path, "")) for action in actions]
    return actions + _cut_out(actions, views, options, taken)


def _action(
    record: ImageRecord, row: Row, rules: Sequence[str], centre: Centre, options: Options, noticing: Sequence[str]
) -> Action:
    content, path = str(row["content"] or ""), safe_path(record.path)
    if row["status"] != "ok":
        reason = str(row["error"] or "it could not be decoded")
        return Action("quarantine", record, content, path, reason=reason)
    if any(rule in COPIES for rule in rules):
        first = row.get("duplicates.exact-of") or row.get("duplicates.near-of")
        return Action("set aside", record, content, path, reason=f"It is a copy of {first}.")
    steps, skipped = _steps(row, rules, centre, options, noticing)
    personal = tuple(rule for rule in rules if rule in PERSONAL)
    format_ = str(row["format"] or "")
    if steps:
        if personal:
            steps.append(Step("personal data", personal, {}))
        return Action("change", record, content, _written(path, format_, options), tuple(steps), skipped=skipped)
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
        return Action("change", record, content, _written(path, format_, options), tuple(steps), skipped=skipped)
    return Action("copy", record, content, path, tuple(steps), skipped=skipped)


def _steps(
    row: Row, rules: Sequence[str], centre: Centre, options: Options, noticing: Sequence[str]
) -> tuple[list[Step], dict[str, str]]:
    """Return the repairs of one image's pixels, and those that were called for and cannot be done."""
    steps: list[Step] = []
    skipped: dict[str, str] = {}
    for name, repair in REPAIRS.items():
        because = tuple(rule for rule in rules if rule in repair.RULES)
        if name == "resize":
            called = bool(options.resize)
        else:
            called = bool(because) and (repair.SAFE or options.normalize)
            called = called or (name in noticing and NOTICED[name](row, centre, options))
        if not called:
            continue
        decided = repair.parameters(row, centre, options)
        if not isinstance(decided, str):
            steps.append(Step(name, because, decided))
            if name == "trim":
                row = crop.cropped_row(row, trim.window(row, decided))
        elif decided:
            skipped[name] = decided
    return steps, skipped


def _written(path: str, format_: str, options: Options) -> str:
    """Return the name of a changed image: a PNG's, or that of its own format."""
    if options.images == "source" and format_ in SOURCE_FORMATS:
        return str(PurePosixPath(path).with_suffix(EXTENSIONS[format_]))
    return str(PurePosixPath(path).with_suffix(".png"))


def _with_captions(action: Action, edit: CaptionEdit | None, rules: Sequence[str]) -> Action:
    if edit is None or action.kind in ("set aside", "quarantine"):
        return action
    because = tuple(rule for rule in rules if rule in CAPTION_RULES)
    step = Step("captions", because, {"done": list(edit.done), "dropped": edit.dropped})
    return replace(action, captions=edit.files, steps=(*action.steps, step) if edit.done else action.steps)


def _trimmed(row: Row, action: Action) -> Row:
    """Return the row as it is where a crop is cut: after trimming, before resizing."""
    for step in action.steps:
        if step.repair == "trim":
            row = crop.cropped_row(row, trim.window(row, step.parameters))
    return row


def _cut_out(actions: Sequence[Action], views: Mapping[str, Row], options: Options, taken: set[str]) -> list[Action]:
    """Return the images that are cut out of others to give each concept the scales it lacks."""
    sources = {action.record.image_id: action for action in actions}
    made = []
    for cut in balance.crops(views, options.resolution):
        source, row = sources[cut.image_id], views[cut.image_id]
        sides = dict(zip(("left", "top", "right", "bottom"), map(int, cut.window), strict=True))
        steps = [s for s in source.steps if s.repair in REPAIRS and s.repair != "resize"]
        steps.append(Step(CROP, (), {**sides, "for": cut.kind}))
        if options.resize:
            sized = resize.parameters(crop.cropped_row(row, cut.window), Centre(), options)
            if not isinstance(sized, str):
                steps.append(Step("resize", (), sized))
        path = PurePosixPath(_written(safe_path(source.record.path), str(row["format"] or ""), options))
        result = free_path(str(path.with_name(f"{path.stem}-{cut.kind}{path.suffix}")), taken)
        taken.add(result.casefold())
        made.append(replace(source, kind="change", result=result, steps=tuple(steps), skipped={},
                            derived_from=source.result))  # fmt: skip
    return made
