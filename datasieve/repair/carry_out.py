"""Carrying out a plan: one image after another onto a copy, each file whole or not at all, and journalled."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

from PIL import Image, PngImagePlugin

from datasieve.errors import InputError, OutputError
from datasieve.imaging.decode import whole
from datasieve.imaging.strip import without_personal
from datasieve.pipeline.worker import content_hash
from datasieve.repair import Picture, Pixels
from datasieve.repair.plan import REPAIRS, Action
from datasieve.storage import atomic_path, confined, readable, to_json, write_text

JOURNAL = ".datasieve-fix.jsonl"
"""What was written so far, one line a file; the mark by which a folder is known to be ours."""

CAPTIONS = (".txt", ".caption")
MASK_SUFFIX = "-masklabel.png"
"""OneTrainer's name of a mask beside its image."""


class Journal:
    """The files that fixes have written into a folder.

    Attributes:
        entries: relative path -> what it was made from and of.
        files: relative paths of all files written, captions and masks included.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / JOURNAL
        self.entries: dict[str, dict[str, Any]] = {}
        if self.path.is_file():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                try:
                    entry = json.loads(line)
                    self.entries[entry["result"]] = entry
                except (ValueError, TypeError, KeyError):
                    continue  # the line that a crash cut off; its file is made again
        self.files = {path for name, entry in self.entries.items() for path in (name, *entry["with"])}

    def add(self, entry: dict[str, Any]) -> None:
        """Note one file, at once."""
        self.entries[entry["result"]] = entry
        self.files |= {entry["result"], *entry["with"]}
        with self.path.open("a", encoding="utf-8") as handle:
            handle.write(to_json(entry, indent=None) + "\n")

    def rewrite(self) -> None:
        """Write the entries anew, without the lines they replace."""
        write_text(self.path, "".join(to_json(e, indent=None) + "\n" for e in self.entries.values()))


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
    except OSError as error:
        raise InputError(
            f"cannot read {readable(record.path)}: {error.strerror or error}", remedy="Run the same command again."
        ) from error
    source = content_hash(data)
    if action.content and source != action.content:
        raise InputError(f"{readable(record.path)} has changed since it was audited", remedy="Run the command again.")
    beside = _captions(action, name)
    plan = json.loads(
        to_json(
            {"kind": action.kind, "source_hash": source, "steps": steps, "reason": action.reason, "options": options}
        )
    )
    old = journal.entries.get(name)
    if old is not None and all(old.get(k) == v for k, v in plan.items()) and _whole(root, name, old, beside):
        return old
    mask: Pixels | None = None
    if action.kind == "change":
        result, mask = _changed(data, action, max_pixels)
    elif action.kind == "strip":
        result = without_personal(data) or data
    else:
        result = data
    if mask is not None:
        beside[str(PurePosixPath(name).with_suffix("")) + MASK_SUFFIX] = _png(mask)
    for path, content in ((name, result), *beside.items()):
        _put(root, path, content, journal)
    hashes = {path: content_hash(content) for path, content in beside.items()}
    entry = {
        "result": name,
        "image_id": record.image_id,
        "path": readable(record.path),
        **plan,
        "result_hash": content_hash(result),
        "with": hashes,
        "skipped": dict(action.skipped),
    }
    journal.add(entry)
    return entry


def _whole(root: Path, name: str, old: Mapping[str, Any], beside: Mapping[str, bytes]) -> bool:
    """Tell whether an earlier run's files are all there, with the content they should have."""
    hashes = {name: old["result_hash"], **old["with"]}
    masks = {path for path in old["with"] if path.endswith(MASK_SUFFIX)}
    if {*beside} != {*old["with"]} - masks:
        return False
    if any(content_hash(content) != old["with"][path] for path, content in beside.items()):
        return False
    for path, digest in hashes.items():
        file = root / path
        if not file.is_file() or content_hash(file.read_bytes()) != digest:
            return False
    return True


def _captions(action: Action, name: str) -> dict[str, bytes]:
    """Return relative path -> bytes of the caption files to write beside the image.

    Sidecars are copied byte for byte; captions from tables and shards become a `.txt`.
    """
    found: dict[str, bytes] = {}
    stem = str(PurePosixPath(name).with_suffix(""))
    source = Path(action.record.location.file)
    if action.record.location.size is None:
        for extension in CAPTIONS:
            sidecar = source.with_suffix(extension)
            if sidecar.is_file():
                found[stem + extension] = sidecar.read_bytes()
    if not found and action.record.captions:
        found[stem + ".txt"] = "\n".join(action.record.captions).encode("utf-8", "surrogateescape")
    return found


def _changed(data: bytes, action: Action, max_pixels: int) -> tuple[bytes, Pixels | None]:
    """Return the repaired picture as PNG, and its mask."""
    decoded = whole(data, action.record.path, max_pixels)
    picture = Picture(decoded.pixels, decoded.alpha)
    for step in action.steps:
        if step.repair in REPAIRS:
            picture = REPAIRS[step.repair].apply(picture, step.parameters)
    return _png(picture.pixels, picture.alpha), picture.mask


def _png(pixels: Pixels, alpha: Pixels | None = None) -> bytes:
    """Return a PNG that says it is sRGB (PNG 11.3.2.5), perceptual intent."""
    image = Image.fromarray(pixels)
    if alpha is not None:
        image.putalpha(Image.fromarray(alpha))
    chunks = PngImagePlugin.PngInfo()
    chunks.add(b"sRGB", b"\0")
    buffer = io.BytesIO()
    image.save(buffer, "PNG", pnginfo=chunks)
    return buffer.getvalue()


def _put(root: Path, relative: str, content: bytes, journal: Journal) -> None:
    target = confined(root, relative)
    if target.exists() and relative not in journal.files and target.read_bytes() != content:
        raise OutputError(
            f"{target} is not a file that datasieve wrote", remedy="Move it away, or choose another folder with --out."
        )
    with atomic_path(target) as temporary:
        temporary.write_bytes(content)


def _remove_stale(root: Path, journal: Journal, wanted: set[str]) -> None:
    """Remove files that an earlier fix wrote and this one would not, if they still are as it wrote them."""
    gone = [name for name in journal.entries if name not in wanted]
    for name in gone:
        entry = journal.entries.pop(name)
        for path, digest in ((name, entry["result_hash"]), *entry["with"].items()):
            file = root / path
            if path not in wanted and file.is_file() and content_hash(file.read_bytes()) == digest:
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
        if folder.is_dir() and any(folder.iterdir()) and not (folder / JOURNAL).is_file():
            raise OutputError(
                f"{folder} holds something that datasieve did not write",
                remedy="Choose an empty or new folder with --out.",
            )
    with atomic_path(clean / JOURNAL) as temporary:  # also tells at once when the folder cannot be written
        temporary.write_bytes((clean / JOURNAL).read_bytes() if (clean / JOURNAL).is_file() else b"")
