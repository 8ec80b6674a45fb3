"""The whole of a curation: choose, write the set, audit it, and tell before from after."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from datasieve.config import RESOLUTIONS
from datasieve.curation.choose import Choice, Wish, choose
from datasieve.curation.export import LAYOUTS, File, Item, Layout, layout
from datasieve.errors import ConfigError, InputError, OutputError
from datasieve.filenames import free_path, safe_path
from datasieve.pipeline.run import audit, default_report
from datasieve.pipeline.worker import content_hash
from datasieve.progress import Progress, Silent
from datasieve.records import ImageRecord
from datasieve.report import Report, schema_with_version, write_table
from datasieve.sources import open_source
from datasieve.sources.walk import CURATION, CURATION_MARK
from datasieve.storage import atomic_path, confined, readable, write_json

TRUE_EXTENSIONS = {"JPEG": (".jpg", ".jpeg"), "PNG": (".png",), "WEBP": (".webp",), "BMP": (".bmp",)}


@dataclass
class Curated:
    """What a curation did, or would do.

    Attributes:
        choices: what became of each picture of the report.
        folder: of the set.
        layout: its name.
        before: the report that was chosen from.
        after: the report of the set; None when it was not audited.
        notes: what the layout could not carry.
    """

    choices: list[Choice]
    folder: Path
    layout: str
    before: Report
    after: Report | None = None
    notes: tuple[str, ...] = ()


def curate(
    report: Report,
    out: str | Path,
    wish: Wish | None = None,
    *,
    layout_name: str | None = None,
    link: bool = False,
    dry_run: bool = False,
    audit_result: bool = True,
    progress: Progress | None = None,
) -> Curated:
    """Choose pictures of an audited set and write them as a set of their own; the originals are only read.

    Args:
        report: a finished audit.
        out: folder of the set: new, empty, or written by an earlier curation, which is then brought up to date.
        wish: what is wanted; None leaves out what cannot be used, errors and copies.
        layout_name: one of `LAYOUTS`; None: kohya for kohya's sets, else plain folders.
        link: hard links instead of copies.
        dry_run: choose only.
        audit_result: audit the set when it is written.
        progress: told how far it is.

    Raises:
        ConfigError, ReportError: as `choose`; or no such layout.
        InputError: nothing is left, or a picture changed since the audit.
        OutputError: the folder is not ours, cannot be written, or lies in the dataset; or links cannot be made.
    """
    wish, progress, folder = wish or Wish(), progress or Silent(), Path(out)
    source_layout = str(report.run["dataset"].get("layout", ""))
    name = layout_name or ("kohya" if source_layout.startswith("kohya") else "folder")
    if name not in LAYOUTS:
        raise ConfigError(f"there is no layout {name!r}", remedy=f"Choose from {', '.join(LAYOUTS)}.")
    chosen_layout = layout(name)
    choices = [_readable_by(choice, name, chosen_layout) for choice in choose(report, wish)]
    taken = [choice for choice in choices if choice.part != "left out"]
    if not taken:
        raise InputError("nothing is left to put into the set", remedy="See why with --dry-run; ask for less.")
    result = Curated(choices, folder, name, report)
    items = _items(report, taken)
    if not chosen_layout.CARRIES_CAPTIONS and any(item.record.captions for item in items):
        result.notes = (f"The layout {name} holds no captions; theirs are left out.",)
    if dry_run:
        return result
    _prepare(Path(report.run["dataset"]["path"]), folder)
    progress.stage("Writing", len(items))
    settings = report.run.get("settings", {})
    resolution = settings.get("resolution") or RESOLUTIONS[settings.get("base", "sd15")]
    contents = {choice.row["image_id"]: str(choice.row["content"] or "") for choice in taken}
    _write(folder, chosen_layout.files(items, folder, resolution), contents, link, progress)
    write_table(_manifest(choices, items), folder / CURATION)
    if audit_result:
        result.after = audit(folder, default_report(folder), settings=_settings(report), progress=progress)
    return result


def _readable_by(choice: Choice, name: str, chosen: Layout) -> Choice:
    """Leave out what the layout's reader would not see."""
    if choice.part == "left out" or chosen.EXTENSIONS is None:
        return choice
    extension = _extension(choice.row["path"], str(choice.row["format"] or ""))
    if extension in chosen.EXTENSIONS:
        return choice
    reason = f"Readers of the layout {name} do not take {extension or 'files without extension'}; `datasieve fix` can."
    return replace(choice, part="left out", reason=reason)


def _extension(path: str, form: str) -> str:
    own = PurePosixPath(path).suffix.lower()
    true = TRUE_EXTENSIONS.get(form)
    return own if true is None or own in true else true[0]


def _items(report: Report, taken: Sequence[Choice]) -> list[Item]:
    """Find the pictures again, and give each a name of its own."""
    wanted = {choice.row["image_id"]: choice for choice in taken}
    settings = report.run.get("settings", {})
    dataset = Path(report.run["dataset"]["path"])
    records: dict[str, ImageRecord] = {}
    for record in open_source(dataset, concept_by=settings.get("concept-by", "auto")).records:
        if record.image_id in wanted:
            records[record.image_id] = record
    missing = [c.row["path"] for i, c in wanted.items() if i not in records]
    if missing:
        raise InputError(
            f"{len(missing)} pictures of the report are no longer in {dataset}, such as {readable(missing[0])}",
            remedy="Audit the set again.",
        )
    names: dict[tuple[str, str], set[str]] = {}
    items = []
    for image, choice in wanted.items():
        record = records[image]
        folder = safe_path(record.concept).replace("/", "_") if record.concept else ""
        extension = _extension(record.path, str(choice.row["format"] or ""))
        plain = PurePosixPath(safe_path(record.path)).name
        stem = plain[: -len(PurePosixPath(plain).suffix)] if PurePosixPath(plain).suffix else plain
        # Stems are kept apart, not names: a.jpg and a.png would share a.txt. The stand-in extension does that.
        used = names.setdefault((choice.part, folder), set())
        free = free_path(f"{stem}.x", used)
        used.add(free.casefold())
        items.append(Item(record, choice.part, free[:-2] + extension, folder))
    return items


def _prepare(dataset: Path, folder: Path) -> None:
    """Make sure that the folder is ours to write. Raises OutputError."""
    source, target = dataset.resolve(), folder.resolve()
    root = source if source.is_dir() else source.parent
    if target == root or root in target.parents:
        raise OutputError(f"{folder} lies in the dataset itself", remedy="Choose another folder with --out.")
    if target in root.parents:
        raise OutputError(f"{folder} holds the dataset", remedy="Choose another folder with --out.")
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file", remedy="Choose another folder with --out.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / CURATION_MARK).is_file():
        raise OutputError(
            f"{folder} holds something that datasieve did not write",
            remedy="Choose an empty or new folder with --out.",
        )


def _write(folder: Path, files: Iterator[File], contents: dict[str, str], link: bool, progress: Progress) -> None:
    """Write every file, whole or not at all; what an earlier curation wrote and this one does not is removed."""
    mark = folder / CURATION_MARK
    before = _marked(mark)
    ours = dict(before)
    written: set[str] = set()
    try:
        for file in files:
            target = confined(folder, file.path)
            if file.item is None:
                content = file.content
            else:
                content = _original(file.item, contents)
                progress.advance()
            digest = content_hash(content)
            written.add(file.path)
            if target.is_file() and content_hash(target.read_bytes()) == digest:
                ours[file.path] = digest
                continue
            if target.exists() and file.path not in before:
                raise OutputError(f"{target} is not a file that datasieve wrote", remedy="Move it away.")
            ours[file.path] = digest
            if link and file.item is not None and file.item.record.location.size is None:
                _link(Path(file.item.record.location.file), target)
                continue
            with atomic_path(target) as temporary:
                temporary.write_bytes(content)
    finally:
        if folder.is_dir() or written:
            write_json(mark, {"datasieve": "curation", "files": ours})
    for path in sorted(set(before) - written):
        stale = confined(folder, path)
        if stale.is_file() and content_hash(stale.read_bytes()) == before[path]:
            stale.unlink()
        ours.pop(path, None)
    write_json(mark, {"datasieve": "curation", "files": ours})


def _marked(mark: Path) -> dict[str, str]:
    try:
        return {str(k): str(v) for k, v in json.loads(mark.read_text(encoding="utf-8"))["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _original(item: Item, contents: dict[str, str]) -> bytes:
    try:
        data = item.record.location.read()
    except OSError as error:
        raise InputError(f"cannot read {readable(item.record.path)}: {error.strerror or error}") from error
    known = contents.get(item.record.image_id)
    if known and content_hash(data) != known:
        raise InputError(f"{readable(item.record.path)} has changed since it was audited", remedy="Audit it again.")
    return data


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".writing-{target.name}")
    try:
        temporary.unlink(missing_ok=True)
        os.link(source, temporary)
        os.replace(temporary, target)
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise OutputError(
                f"{target} cannot be a hard link: the set lies on another file system", remedy="Leave out --link."
            ) from error
        raise OutputError(f"cannot link {target}: {error.strerror or error}", remedy="Leave out --link.") from error


def _manifest(choices: Sequence[Choice], items: Sequence[Item]) -> pa.Table:
    """Return one row a picture of the report: what became of it, and why."""
    placed = {item.record.image_id: item for item in items}
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "image_id": (pa.string(), [c.row["image_id"] for c in choices]),
        "path": (pa.string(), [c.row["path"] for c in choices]),
        "source_hash": (pa.string(), [c.row["content"] for c in choices]),
        "concept": (pa.string(), [c.row["concept"] for c in choices]),
        "part": (pa.string(), [c.part for c in choices]),
        "name": (
            pa.string(),
            [placed[c.row["image_id"]].name if c.row["image_id"] in placed else None for c in choices],
        ),
        "reason": (pa.string(), [c.reason for c in choices]),
        "quality": (pa.float32(), [c.quality for c in choices]),
    }
    fields = [pa.field(name, kind) for name, (kind, _) in columns.items()]
    return pa.table({name: values for name, (_, values) in columns.items()}, schema=schema_with_version(fields))


def _settings(report: Report) -> Any:
    import msgspec

    from datasieve.config import Settings

    kept = dict(report.run.get("settings", {}))
    kept["concept-by"] = "auto"
    return msgspec.convert(kept, Settings)
