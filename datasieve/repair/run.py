"""The whole of a fix: audit, plan, carry out, audit the result, and write down what was done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from datasieve.config import Settings
from datasieve.errors import InputError, OutputError
from datasieve.pipeline.run import audit, default_report
from datasieve.progress import Progress, Silent
from datasieve.records import ImageRecord
from datasieve.repair import Options, exposure, white_balance
from datasieve.repair.beside import edits
from datasieve.repair.carry_out import carry_out, prepare
from datasieve.repair.in_place import LAYOUTS, STAGED, Swap, back_up, carry_over, is_changed, prepare_backup
from datasieve.repair.journal import Journal
from datasieve.repair.looks import look
from datasieve.repair.plan import Action, plan
from datasieve.report import Report, open_report, schema_with_version, write_table
from datasieve.rules import selected
from datasieve.sources import open_source
from datasieve.sources.walk import PROVENANCE
from datasieve.storage import to_json, write_json

MEASURES = (
    "width",
    "height",
    "format",
    "files.icc-class",
    "files.orientation",
    "colour.cct",
    "colour.light-distance",
    "colour.lightness",
    "frame.border-share",
)
"""What provenance tells of an image before and after."""


@dataclass
class Fixed:
    """What a fix did, or would do.

    Attributes:
        actions: the plan, one entry per image and per image cut out of another.
        clean: folder of the clean set; the dataset itself in place.
        aside: folder of copies and unreadable files, which exists only when there are any; the backup in place.
        before: the report that the plan rests on.
        after: the report of the clean set; None for a plan alone, or when nothing was left.
        entries: what was written, one journal entry per action.
    """

    actions: list[Action]
    clean: Path
    aside: Path
    before: Report
    after: Report | None = None
    entries: list[dict[str, Any]] = field(default_factory=list)


def default_clean(dataset: Path) -> Path:
    """Return where the clean copy of a dataset goes: the sibling folder `<name>-clean`."""
    whole = dataset.resolve()
    return whole.parent / f"{whole.name or 'root'}-clean"


def fix(
    path: str | Path,
    out: str | Path | None = None,
    *,
    backup: str | Path | None = None,
    options: Options | None = None,
    settings: Settings | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Fixed:
    """Write a repaired copy of a dataset, or repair it in place with a backup.

    The dataset is audited first (what a report holds already is not measured again), the result afterwards. A second
    run makes only what is missing or was planned otherwise; what an earlier fix wrote and this one would not goes.

    Args:
        path: as in `audit`, but a folder or shards.
        out: folder of the copy; None: the sibling `<name>-clean`. Copies and unreadable files go to `<out>-set-aside`.
        backup: repair the dataset itself, which must be a folder with captions beside the images; every original that
            changes is first copied here. None: the originals are only read.
        options: what to repair and how.
        settings: as in `audit`.
        select, ignore: rule ids or prefixes whose repairs run, or do not.
        dry_run: plan only.
        progress: told how far it is.

    Raises:
        InputError: as `audit`; or a file changed while it was being repaired.
        OutputError: the copy cannot be written, or something that is not ours is in the way.
    """
    options, settings, progress = options or Options(), settings or Settings(), progress or Silent()
    dataset = Path(path)
    if dataset.is_file() and dataset.suffix != ".tar":
        raise InputError(f"{dataset} is not a folder", remedy="Name the folder of the images.")
    if backup is not None and options.balance:
        raise InputError("new images are not made in place", remedy="Write a copy with --out.")
    clean = Path(out) if out is not None else default_clean(dataset)
    aside = clean.parent / f"{clean.name}-set-aside"
    swap = None
    if backup is not None:
        clean, aside = dataset, Path(backup)
        swap = prepare_backup(dataset, aside, look_only=dry_run)
    elif not dry_run:
        prepare(dataset if dataset.is_dir() else dataset.parent / dataset.stem, clean, aside)
    before = audit(dataset, settings=settings, progress=progress)
    rows = {row["image_id"]: row for row in before.images().to_pylist()}
    source = open_source(dataset, concept_by=settings.concept_by)
    records = list(source.records)
    if backup is not None and source.layout not in LAYOUTS:
        raise InputError(
            f"{dataset} is a {source.layout} set, whose images are named in tables or lie in shards",
            remedy="Only a folder with captions beside the images is repaired in place; write a copy with --out.",
        )
    chosen = to_json([asdict(options), sorted(select), sorted(ignore)], indent=None)
    actions = _planned(dataset, records, rows, before, options, settings, tuple(select), tuple(ignore),
                       _settled(dataset, swap, chosen), source.derived)  # fmt: skip
    fixed = Fixed(actions, clean, aside, before)
    if dry_run:
        return fixed
    measures = _measures(before, "image_id")
    progress.stage("Repairing", len(actions))
    if backup is not None:
        _in_place(fixed, dataset, swap, settings.max_pixels, chosen, progress)
    else:
        for entry in carry_out(actions, clean, aside, settings.max_pixels, chosen):
            fixed.entries.append(entry)
            progress.advance()
    if any(action.kind not in ("set aside", "quarantine") for action in actions):
        fixed.after = audit(clean, default_report(clean), settings=settings, progress=progress)
        if backup is None:
            fixed.after = _noted(fixed.after, before)
    if backup is None or fixed.entries:
        table = provenance(fixed.entries, measures, fixed.after)
        write_table(table, (aside if backup is not None else clean) / PROVENANCE)
    return fixed


def _noted(after: Report, before: Report) -> Report:
    """Write into the clean set's report what it was made from, so that its page can show the pictures before."""
    source = {"dataset": before.run["dataset"]["path"], "report": str(before.path.absolute())}
    write_json(after.path / "run.json", {**after.run, "repaired-from": source})
    return open_report(after.path)


def _settled(dataset: Path, swap: Swap | None, chosen: str) -> dict[str, str]:
    """Return path -> hash of what an earlier fix with the same options wrote into the dataset."""
    entries = Journal(dataset).entries
    found = {name: str(e["result_hash"]) for name, e in entries.items() if e["options"] == chosen}
    if swap is not None and swap.status == "done" and swap.options == chosen:
        found |= swap.images
    return found


def _planned(
    dataset: Path,
    records: Sequence[ImageRecord],
    rows: dict[str, dict[str, Any]],
    before: Report,
    options: Options,
    settings: Settings,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    settled: dict[str, str],
    derived: dict[str, str],
) -> list[Action]:
    def wanted(rule: str) -> bool:
        return (not select or selected(rule, select)) and not selected(rule, ignore)

    findings = before.findings().to_pylist()
    if options.normalize and any(map(wanted, (*white_balance.RULES, *exposure.RULES))):
        seen = look(records, rows, settings.max_pixels)
        rows = {image: {**row, **seen.get(image, {})} for image, row in rows.items()}
    captions = edits(dataset, records, rows, options, settings, wanted)
    return plan(records, rows, findings, options, select, ignore, settled, captions, derived)


def _in_place(fixed: Fixed, dataset: Path, swap: Swap | None, max_pixels: int, chosen: str, progress: Progress) -> None:
    """Stage, back up and swap. Raises OutputError when the backup holds the originals of an earlier fix."""
    backup = fixed.aside
    changing = [action for action in fixed.actions if is_changed(action)]
    if not changing:
        return
    if swap is not None and swap.status == "done":
        raise OutputError(
            f"{backup} holds the originals of an earlier fix",
            remedy=f"Choose another folder with --backup, or go back first with: datasieve undo {backup}",
        )
    staged = backup / STAGED
    prepare(dataset, staged, backup / "unused")
    staying = [action for action in changing if action.kind not in ("set aside", "quarantine")]
    for entry in carry_out(staying, staged, backup / "unused", max_pixels, chosen):
        fixed.entries.append(entry)
        progress.advance()
    carry_over(backup, back_up(dataset, backup, fixed.actions, fixed.entries, chosen))


def provenance(entries: Sequence[dict[str, Any]], old: dict[str, dict[str, Any]], after: Report | None) -> pa.Table:
    """Return one row an image: where it came from, what was done, and what that changed.

    Args:
        entries: journal entries.
        old: image_id -> measures before.
        after: the report of the result.
    """
    new = _measures(after, "path") if after is not None else {}
    columns: dict[str, list[Any]] = {
        "image_id": [e["image_id"] for e in entries],
        "path": [e["path"] for e in entries],
        "result": [e["result"] for e in entries],
        "action": [e["kind"] for e in entries],
        "reason": [e["reason"] for e in entries],
        "source_hash": [e["source_hash"] for e in entries],
        "result_hash": [e["result_hash"] for e in entries],
        "derived_from": [e.get("derived_from") or None for e in entries],
        "steps": [to_json(e["steps"], indent=None) for e in entries],
        "skipped": [to_json(e["skipped"], indent=None) for e in entries],
        "before": [to_json(old.get(e["image_id"]), indent=None) for e in entries],
        "after": [to_json(new.get(e["result"]), indent=None) for e in entries],
    }
    fields = [pa.field(name, pa.string()) for name in columns]
    return pa.table(columns, schema=schema_with_version(fields))


def _measures(report: Report, key: str) -> dict[str, dict[str, Any]]:
    known = report.columns()
    names = [name for name in MEASURES if name in known]
    rows = report.images([key, *names]).to_pylist()
    return {str(row[key]): {name: row[name] for name in names} for row in rows}
