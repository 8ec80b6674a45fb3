"""Carrying out a plan: one image after another onto a copy, each file whole or not at all, and journalled."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

from datasieve.errors import InputError, OutputError
from datasieve.pipeline.worker import content_hash
from datasieve.repair.beside import MASK_SUFFIX, captions_of, mask_of
from datasieve.repair.journal import JOURNAL, Journal, hash_of, remove_leftovers
from datasieve.repair.making import made
from datasieve.repair.plan import Action
from datasieve.storage import TEMPORARY_PREFIX, atomic_path, confined, readable, to_json


def carry_out(
    actions: Sequence[Action], clean: Path, aside: Path, max_pixels: int, options: str
) -> Iterator[dict[str, Any]]:
    """Write every result; yield a journal entry per image. What an earlier run finished is not made again.

    Args:
        actions: the plan.
        clean: folder of the clean set.
        aside: folder of what was set aside, with a subfolder for copies and one for unreadable files.
        max_pixels: as in the audit.
        options: the options of the fix as text, kept with every file.

    Raises:
        InputError: a file has changed or vanished since the audit.
        OutputError: something cannot be written, or a file that is not ours is in the way.
    """
    journals = {clean: Journal(clean), aside: Journal(aside)}
    wanted: dict[Path, set[str]] = {clean: set(), aside: set()}
    for action in actions:
        root, name = _place(action, clean, aside)
        entry = _make(action, root, name, journals[root], max_pixels, options)
        wanted[root] |= {name, *entry["with"]}
        yield entry
    for root, journal in journals.items():
        _remove_stale(root, journal, wanted[root])


def _place(action: Action, clean: Path, aside: Path) -> tuple[Path, str]:
    if action.kind == "set aside":
        return aside, f"copies/{action.result}"
    if action.kind == "quarantine":
        return aside, f"unreadable/{action.result}"
    return clean, action.result


def _make(action: Action, root: Path, name: str, journal: Journal, max_pixels: int, options: str) -> dict[str, Any]:
    record = action.record
    steps = [asdict(step) for step in action.steps]
    try:
        data = record.location.read()
        captions = captions_of(record) if action.captions is None else action.captions
        mask_file = mask_of(record)
        mask = mask_file.read_bytes() if mask_file else None
    except OSError as error:
        raise InputError(
            f"cannot read {readable(record.path)}: {error.strerror or error}", remedy="Run the same command again."
        ) from error
    source = content_hash(data)
    if action.content and source != action.content:
        raise InputError(f"{readable(record.path)} has changed since it was audited", remedy="Run the command again.")
    stem = str(PurePosixPath(name).with_suffix(""))
    beside = {stem + extension: content for extension, content in captions.items()}
    plan = json.loads(
        to_json(
            {
                "kind": action.kind,
                "source_hash": source,
                "steps": steps,
                "reason": action.reason,
                "options": options,
                "derived_from": action.derived_from,
            }
        )
    )
    old = journal.entries.get(name)
    if old is not None and all(old.get(k) == v for k, v in plan.items()) and _whole(root, name, old, beside):
        return old
    result, new_mask = made(data, record.path, action.kind, plan["steps"], name, mask=mask, max_pixels=max_pixels)
    if new_mask is not None:
        beside[stem + MASK_SUFFIX] = new_mask
    hashes = {path: content_hash(content) for path, content in beside.items()}
    entry = {
        "result": name,
        "image_id": record.image_id,
        "path": readable(record.path),
        "from": record.location.file,
        **plan,
        "result_hash": content_hash(result),
        "with": hashes,
        "skipped": dict(action.skipped),
    }
    contents = {name: result, **beside}
    for path, content in contents.items():
        _refuse_strangers(root, path, content, journal)
    journal.add(entry)
    for path, content in contents.items():
        _put(root, path, content)
    for path, digest in (old["with"] if old is not None else {}).items():
        if path not in contents and hash_of(root / path) == digest:
            (root / path).unlink()
    return entry


def _whole(root: Path, name: str, old: Mapping[str, Any], beside: Mapping[str, bytes]) -> bool:
    """Tell whether an earlier run's files are all there, with the content they should have."""
    masks = {path for path in old["with"] if path.endswith(MASK_SUFFIX)}
    if {*beside} != {*old["with"]} - masks:
        return False
    if any(content_hash(content) != old["with"][path] for path, content in beside.items()):
        return False
    hashes = {name: old["result_hash"], **old["with"]}
    return all(hash_of(root / path) == digest for path, digest in hashes.items())


def _refuse_strangers(root: Path, relative: str, content: bytes, journal: Journal) -> None:
    """Raise OutputError when another file is in the way: one we did not write, or one that was changed since."""
    target = confined(root, relative)
    if not target.exists():
        return
    there = hash_of(target)
    if there == content_hash(content) or there in journal.hashes.get(relative, ()):
        return
    what = "has been changed since" if relative in journal.hashes else "is not a file that"
    raise OutputError(
        f"{target} {what} datasieve wrote{' it' if relative in journal.hashes else ''}",
        remedy="Move it away, or choose another folder with --out.",
    )


def _put(root: Path, relative: str, content: bytes) -> None:
    with atomic_path(confined(root, relative)) as temporary:
        temporary.write_bytes(content)


def _remove_stale(root: Path, journal: Journal, wanted: set[str]) -> None:
    """Remove files that an earlier fix wrote and this one would not, if they still are as it wrote them."""
    gone = [name for name in journal.entries if name not in wanted]
    for name in gone:
        entry = journal.entries.pop(name)
        for path, digest in ((name, entry["result_hash"]), *entry["with"].items()):
            file = root / path
            if path not in wanted and hash_of(file) == digest:
                file.unlink()
    if gone or journal.entries:
        journal.rewrite()


def prepare(source: Path, clean: Path, aside: Path) -> None:
    """Make sure that the folders are ours to write. Raises OutputError."""
    whole_source = source.resolve()
    for folder in (clean, aside):
        target = folder.resolve()
        if target == whole_source or whole_source in target.parents:
            raise OutputError(f"{folder} lies in the dataset itself", remedy="Choose another folder with --out.")
        if target in whole_source.parents:
            raise OutputError(f"{folder} holds the dataset", remedy="Choose another folder with --out.")
        if folder.exists() and not folder.is_dir():
            raise OutputError(f"{folder} is a file", remedy="Choose another folder with --out.")
        held = [name for name in os.listdir(folder) if not name.startswith(TEMPORARY_PREFIX)] if folder.is_dir() else []
        if held and JOURNAL not in held:
            raise OutputError(
                f"{folder} holds something that datasieve did not write",
                remedy="Choose an empty or new folder with --out.",
            )
        if JOURNAL in held:
            remove_leftovers(folder)
    with atomic_path(clean / JOURNAL) as temporary:  # also tells at once when the folder cannot be written
        temporary.write_bytes((clean / JOURNAL).read_bytes() if (clean / JOURNAL).is_file() else b"")
