"""The whole of a fix: audit, plan, carry out, audit the result, and write down what was done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from datasieve.config import Settings
from datasieve.errors import InputError
from datasieve.pipeline.run import audit, default_report
from datasieve.progress import Progress, Silent
from datasieve.repair import Options
from datasieve.repair.carry_out import Journal, carry_out, prepare
from datasieve.repair.plan import Action, plan
from datasieve.report import Report, open_report, schema_with_version, write_table
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
        actions: the plan, one entry per image.
        clean: folder of the clean set.
        aside: folder of copies and unreadable files, which exists only when there are any.
        before: the report that the plan rests on.
        after: the report of the clean set; None for a plan alone, or when nothing was left.
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
    options: Options | None = None,
    settings: Settings | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Fixed:
    """Write a repaired copy of a dataset; the originals are only read.

    The dataset is audited first (what a report holds already is not measured again), the copy afterwards. A second
    run makes only what is missing or was planned otherwise; what an earlier fix wrote and this one would not goes.

    Args:
        path: as in `audit`, but a folder or shards.
        out: folder of the copy; None: the sibling `<name>-clean`. Copies and unreadable files go to `<out>-set-aside`.
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
    clean = Path(out) if out is not None else default_clean(dataset)
    aside = clean.parent / f"{clean.name}-set-aside"
    if dataset.is_file() and dataset.suffix != ".tar":
        raise InputError(f"{dataset} is not a folder", remedy="Name the folder of the images.")
    if not dry_run:
        prepare(dataset if dataset.is_dir() else dataset.parent / dataset.stem, clean, aside)
    before = audit(dataset, settings=settings, progress=progress)
    rows = {row["image_id"]: row for row in before.images().to_pylist()}
    records = open_source(dataset, concept_by=settings.concept_by).records
    chosen = to_json([asdict(options), sorted(select), sorted(ignore)], indent=None)
    settled = {
        name: entry["result_hash"] for name, entry in Journal(dataset).entries.items() if entry["options"] == chosen
    }
    findings = before.findings().to_pylist()
    actions = plan(records, rows, findings, options, tuple(select), tuple(ignore), settled)
    fixed = Fixed(actions, clean, aside, before)
    if dry_run:
        return fixed
    progress.stage("Repairing", len(actions))
    for entry in carry_out(actions, clean, aside, settings.max_pixels, chosen):
        fixed.entries.append(entry)
        progress.advance()
    if any(action.kind not in ("set aside", "quarantine") for action in actions):
        fixed.after = _noted(audit(clean, default_report(clean), settings=settings, progress=progress), before)
    write_table(provenance(fixed.entries, before, fixed.after), clean / PROVENANCE)
    return fixed


def _noted(after: Report, before: Report) -> Report:
    """Write into the clean set's report what it was made from, so that its page can show the pictures before."""
    source = {"dataset": before.run["dataset"]["path"], "report": str(before.path.absolute())}
    write_json(after.path / "run.json", {**after.run, "repaired-from": source})
    return open_report(after.path)


def provenance(entries: Sequence[dict[str, Any]], before: Report, after: Report | None) -> pa.Table:
    """Return one row an image: where it came from, what was done, and what that changed."""
    old = _measures(before, "image_id")
    new = _measures(after, "path") if after is not None else {}
    columns: dict[str, list[Any]] = {
        "image_id": [e["image_id"] for e in entries],
        "path": [e["path"] for e in entries],
        "result": [e["result"] for e in entries],
        "action": [e["kind"] for e in entries],
        "reason": [e["reason"] for e in entries],
        "source_hash": [e["source_hash"] for e in entries],
        "result_hash": [e["result_hash"] for e in entries],
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
