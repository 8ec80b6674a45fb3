"""Repairing a set where it lies, so that the originals can be had back: staged, backed up, swapped.

1. *Staged*: everything that changes is made beside, in the backup's folder, as for a copy.
2. *Backed up*: every original that will be replaced or taken away is copied into the backup and read back.
3. *Swapped*: a list of all changes is written (`STATE`), then the dataset is changed file by file, each whole.

Until the list is there the dataset is as it was. A run that is stopped later is finished by the next one, from the
list alone and without measuring a half-changed set; `undo` goes back from the same list.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from datasieve.errors import InputError, OutputError
from datasieve.repair.beside import mask_of, sidecars_of
from datasieve.repair.journal import hash_of, remove_leftovers
from datasieve.repair.plan import Action
from datasieve.storage import TEMPORARY_PREFIX, atomic_path, confined, readable, to_json, write_text

STATE = "datasieve-in-place.json"
ORIGINALS, STAGED = "originals", "staged"
LAYOUTS = ("folder", "kohya")
"""Layouts whose captions lie beside the images, so that no table names a file that gets another name."""


@dataclass
class Swap:
    """What is exchanged in a dataset. All paths are relative to it, all hashes are of whole files.

    Attributes:
        dataset: its absolute path.
        options: the options of the fix, as text.
        status: "swapping", "done" or "undone".
        originals: path -> hash of every file that is replaced or taken away; `ORIGINALS` holds them.
        results: path -> hash of every file that is put there; `STAGED` holds them until the swap is done.
        images: path -> hash of every image of the set after the fix, by which it is known again.
    """

    dataset: str
    options: str
    status: str = "swapping"
    originals: dict[str, str] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)


def read_swap(backup: Path) -> Swap | None:
    """Return the list of changes in a backup; None when there is none. Raises InputError when it is damaged."""
    if not (backup / STATE).is_file():
        return None
    try:
        return msgspec.json.decode((backup / STATE).read_bytes(), type=Swap)
    except (msgspec.MsgspecError, OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot read {backup / STATE}: {error}", remedy=f"The originals are in {backup / ORIGINALS}."
        ) from error


def write_swap(backup: Path, swap: Swap) -> None:
    """Write the list of changes, whole or not at all."""
    write_text(backup / STATE, to_json(msgspec.to_builtins(swap)) + "\n")


def prepare_backup(dataset: Path, backup: Path, *, look_only: bool = False) -> Swap | None:
    """Make sure that the backup is ours to write and finish a swap that was interrupted; return what is in it.

    With `look_only` nothing is written, and a swap that was interrupted is an error.

    Raises OutputError when the folder holds something else, or lies in the dataset or around it.
    """
    if not dataset.is_dir():
        raise InputError(f"{dataset} is not a folder", remedy="Only a folder can be repaired in place; use --out.")
    source, target = dataset.resolve(), backup.resolve()
    if target == source or source in target.parents:
        raise OutputError(f"{backup} lies in the dataset itself", remedy="Choose another folder with --backup.")
    if target in source.parents:
        raise OutputError(f"{backup} holds the dataset", remedy="Choose another folder with --backup.")
    if backup.exists() and not backup.is_dir():
        raise OutputError(f"{backup} is a file", remedy="Choose another folder with --backup.")
    held = [n for n in os.listdir(backup) if not n.startswith(TEMPORARY_PREFIX)] if backup.is_dir() else []
    swap = read_swap(backup)
    if held and swap is None and not (backup / STAGED).is_dir():
        raise OutputError(
            f"{backup} holds something that datasieve did not write",
            remedy="Choose an empty or new folder with --backup.",
        )
    if swap is not None and Path(swap.dataset) != source:
        raise OutputError(f"{backup} is the backup of {swap.dataset}", remedy="Choose another folder with --backup.")
    if look_only:
        if swap is not None and swap.status == "swapping":
            raise OutputError(f"the fix into {backup} was interrupted", remedy="Run it without --dry-run to finish it.")
        return swap
    remove_leftovers(backup)
    if swap is not None and swap.status == "swapping":
        carry_over(backup, swap)
    return swap


def originals_of(action: Action) -> list[Path]:
    """Return the files that belong to an image: itself, its captions, its mask."""
    image = Path(action.record.location.file)
    mask = mask_of(action.record)
    return [image, *sidecars_of(image), *([mask] if mask else [])]


def is_changed(action: Action) -> bool:
    """Tell whether a fix in place touches the files of this image."""
    return action.kind != "copy" or bool(action.steps) or action.result != action.record.path


def back_up(
    dataset: Path, backup: Path, actions: Sequence[Action], entries: Sequence[dict[str, Any]], options: str
) -> Swap:
    """Copy every original that will change into the backup, read it back, and write the list of changes.

    Args:
        dataset: the set.
        backup: the backup's folder, in which the results are staged.
        actions: the whole plan.
        entries: journal entries of the staged results, those of `is_changed` that stay in the set.
        options: as text.

    Raises OutputError when a file cannot be backed up, or one that is no part of the set is in the way of a result.
    """
    swap = Swap(str(dataset.resolve()), options)
    staying: set[str] = set()
    for action in actions:
        if not is_changed(action):
            staying |= {_relative(dataset, file) for file in originals_of(action)}
            swap.images[action.record.path] = action.content
    for entry in entries:
        swap.results |= {entry["result"]: entry["result_hash"], **entry["with"]}
        swap.images[entry["result"]] = entry["result_hash"]
    for action in actions:
        for file in originals_of(action) if is_changed(action) else ():
            relative = _relative(dataset, file)
            if relative in swap.results and hash_of(file) == swap.results[relative]:
                staying.add(relative)
            elif relative not in staying:
                swap.originals[relative] = _copied(file, confined(backup / ORIGINALS, relative))
    for path in staying & swap.results.keys():
        if hash_of(dataset / path) == swap.results[path]:
            del swap.results[path]
    for path in swap.results.keys() - swap.originals.keys():
        if confined(dataset, path).exists():
            raise OutputError(f"{dataset / path} is in the way", remedy="Rename it, or write a copy with --out.")
    write_swap(backup, swap)
    return swap


def _relative(dataset: Path, file: Path) -> str:
    """Return the path of a file below the dataset. Raises InputError for links: what they lead to is not ours."""
    relative = PurePosixPath(os.path.relpath(file, dataset)).as_posix()
    inside = dataset
    for part in PurePosixPath(relative).parts:
        inside = inside / part
        if inside.is_symlink():
            raise InputError(
                f"{readable(str(inside))} is a link", remedy="Links are not repaired in place; write a copy with --out."
            )
    return relative


def _copied(file: Path, target: Path) -> str:
    """Copy a file with its times and rights, read the copy back, and return its hash."""
    digest = hash_of(file)
    if digest is None:
        raise InputError(f"{file} has vanished", remedy="Run the command again.")
    if hash_of(target) != digest:
        with atomic_path(target) as temporary:
            shutil.copyfile(file, temporary)
        shutil.copystat(file, target)
    if hash_of(target) != digest:
        raise OutputError(f"the backup {target} differs from {file}", remedy="Check the disk; nothing was changed.")
    return digest


def carry_over(backup: Path, swap: Swap) -> None:
    """Change the dataset as listed; what is changed already stays. Raises OutputError when somebody else changed it."""
    dataset = Path(swap.dataset)
    for path, digest in swap.results.items():
        target = confined(dataset, path)
        there = hash_of(target)
        if there == digest:
            continue
        if there is not None and there != swap.originals.get(path):
            raise OutputError(
                f"{target} has been changed since its backup",
                remedy=f"Move it away and run the command again, or go back with: datasieve undo {backup}",
            )
        staged = confined(backup / STAGED, path)
        if hash_of(staged) != digest:
            raise OutputError(f"{staged} is missing or damaged", remedy=f"Go back with: datasieve undo {backup}")
        with atomic_path(target) as temporary:
            shutil.copyfile(staged, temporary)
    for path, digest in swap.originals.items():
        if path not in swap.results and hash_of(dataset / path) == digest:
            (dataset / path).unlink()
    swap.status = "done"
    write_swap(backup, swap)
    shutil.rmtree(backup / STAGED)


def restore(backup: Path, swap: Swap) -> tuple[list[str], list[str], list[str]]:
    """Go back to the originals; return the paths restored, removed, and left because somebody changed them since."""
    dataset = Path(swap.dataset)
    restored, removed, left = [], [], []
    for path, digest in swap.originals.items():
        target, kept = confined(dataset, path), confined(backup / ORIGINALS, path)
        there = hash_of(target)
        if there == digest:
            continue
        if there is not None and there != swap.results.get(path):
            left.append(path)
            continue
        if hash_of(kept) != digest:
            raise OutputError(f"the backup {kept} is missing or damaged", remedy="Bring it back from another copy.")
        with atomic_path(target) as temporary:
            shutil.copyfile(kept, temporary)
        shutil.copystat(kept, target)
        restored.append(path)
    for path, digest in swap.results.items():
        target = confined(dataset, path)
        if path in swap.originals or not target.exists():
            continue
        if hash_of(target) == digest:
            target.unlink()
            removed.append(path)
        else:
            left.append(path)
    swap.status = "done" if left else "undone"
    write_swap(backup, swap)
    return restored, removed, left
