"""WebDataset: tar shards, listed without unpacking; a record points at the bytes inside the shard.

A sample is what lies together and has the same key: everything up to the first dot of the file name. The image is
the field with one extension (`key.jpg`); `key.seg.png` belongs to the sample but is not its image. Captions are the
field txt, else caption, else json (its key caption, text or prompt; its key concept names the concept). When no field
of a key has one extension, the names hold dots: such images are paired with captions by their whole stem, and noted,
because a trainer loses them. A shard cut short is used up to the cut.
Source: webdataset 1.0, tariterators.
"""

from __future__ import annotations

import itertools
import json
import os
import posixpath
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from datasieve.config import ConceptBy
from datasieve.records import ImageRecord
from datasieve.sources import concepts, rows
from datasieve.sources.captions import MOST_BYTES, read_caption
from datasieve.sources.ingest import Ledger, record
from datasieve.sources.names import IMAGE_EXTENSIONS, odd, shadow, split
from datasieve.storage import readable

_BLOCK = 512
_TEXTS = (".txt", ".caption", ".json")


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    offset: int
    size: int


@dataclass
class _Sample:
    """The members of one key, by stem (the name without its last extension)."""

    key: str
    stems: dict[str, dict[str, _Member]] = field(default_factory=dict)


def list_records(shards: Sequence[tuple[str, str]], ledger: Ledger, concept_by: ConceptBy) -> Iterator[ImageRecord]:
    """Yield the records of `shards`, given as (relative POSIX path, absolute path), in their order."""
    note_gaps([path for path, _ in shards], ledger)
    for path, file in shards:
        yield from _list_shard(path, file, ledger, concept_by)


def note_gaps(paths: Sequence[str], ledger: Ledger) -> None:
    """Note numbers missing between the first and the last shard of a series ("name-00003.tar")."""
    series: dict[tuple[str, str], list[int]] = {}
    widths: dict[tuple[str, str], int] = {}
    for path in paths:
        match = re.fullmatch(r"(.*?)(\d+)(\D*)", path, re.ASCII | re.DOTALL)
        if match:
            key = (match[1], match[3])
            series.setdefault(key, []).append(int(match[2]))
            widths[key] = max(widths.get(key, 0), len(match[2]))
    for (before, after), numbers in series.items():
        missing = _gaps(sorted(set(numbers)))
        number = sum(last - first + 1 for first, last in missing)
        # Far more holes than shards: the numbers are dates or hashes, not a count.
        if not number or number > 10 * len(numbers) + 100:
            continue
        names = []
        for first, last in missing:
            low, high = (f"{n:0{widths[(before, after)]}d}" for n in (first, last))
            names.append(low if first == last else f"{low} and {high}" if last == first + 1 else f"{low} to {high}")
        ledger.note(
            "shard-gap",
            posixpath.dirname(before),
            f"{number} shards of {readable(before)}*{readable(after)} are missing: {', '.join(names[:20])}",
        )


def _gaps(numbers: Sequence[int]) -> list[tuple[int, int]]:
    return [(a + 1, b - 1) for a, b in itertools.pairwise(numbers) if b > a + 1]


def _list_shard(path: str, file: str, ledger: Ledger, concept_by: ConceptBy) -> Iterator[ImageRecord]:
    keys: set[str] = set()
    listed: set[str] = set()
    scattered: list[str] = []
    number, before = 0, len(ledger.notes)
    try:
        with open(file, "rb") as handle:
            for sample in _samples(_members(path, file, ledger), ledger):
                if sample.key in keys:
                    scattered.append(sample.key)
                keys.add(sample.key)
                for found in _images(path, sample, ledger):
                    if found.name in listed:
                        ledger.pass_over("repeated member")
                        continue
                    listed.add(found.name)
                    number += 1
                    stem = split(found.name)[0]
                    captions, named = _described(handle.fileno(), path, sample.stems[stem], ledger)
                    folder = posixpath.dirname(found.name)
                    member = f"{path}::{found.name}"
                    if what := odd(posixpath.basename(found.name)):
                        ledger.note("odd-name", member, f"the name {readable(found.name)!r} in {readable(path)} {what}")
                    yield record(
                        member,
                        file,
                        concept=concepts.choose(
                            concept_by, folder=folder, captions=captions, automatic=named or posixpath.basename(folder)
                        ),
                        captions=captions,
                        group=path,
                        offset=found.offset,
                        size=found.size,
                    )
    except OSError as error:
        ledger.note("shard-truncated", path, f"{readable(path)} cannot be read: {error.strerror or error}")
        return
    if scattered:
        ledger.note(
            "shard-key",
            path,
            f"{readable(path)} has {len(scattered)} samples whose files do not lie together "
            f"({readable(scattered[0])}); readers of WebDataset take these as two samples",
        )
    if not number and len(ledger.notes) == before:
        ledger.note("shard-truncated", path, f"{readable(path)} holds no complete image")


def _members(path: str, file: str, ledger: Ledger) -> Iterator[_Member]:
    """Yield the whole files of a shard; note it when it is empty, damaged or cut."""
    size = os.path.getsize(file)
    if size == 0:
        ledger.note("shard-truncated", path, f"{readable(path)} is empty (0 bytes)")
        return
    number = 0
    try:
        with tarfile.open(file, "r:", errors="surrogateescape") as tar:
            while (member := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # it would keep every header of a large shard
                if member.isreg() and not member.issparse():
                    if member.offset_data + member.size > size:
                        _note_cut(path, f"inside {readable(member.name)}", number, ledger)
                        return
                    number += 1
                    yield _Member(_clean(member.name), member.offset_data, member.size)
                elif not member.isdir():
                    ledger.pass_over("link or device")
            end = tar.offset
    except (tarfile.TarError, ValueError) as error:
        if number:
            _note_cut(path, f"({error})", number, ledger)
        else:
            ledger.note("shard-truncated", path, f"{readable(path)} is not a readable tar file ({error})")
        return
    with open(file, "rb") as handle:
        handle.seek(end)
        block = handle.read(_BLOCK)
    if len(block) < _BLOCK and not block.strip(b"\0"):
        _note_cut(path, "after a whole file, without the mark that ends a tar", number, ledger)
    elif block.strip(b"\0"):
        _note_cut(path, f"in a damaged header at byte {end}", number, ledger)


def _note_cut(path: str, where: str, number: int, ledger: Ledger) -> None:
    ledger.note(
        "shard-truncated", path, f"{readable(path)} ends early {where}; the {number} whole files before are used"
    )


def _clean(name: str) -> str:
    return posixpath.normpath(name).lstrip("/") if name.startswith(("./", "/")) or "//" in name else name


def _samples(members: Iterator[_Member], ledger: Ledger) -> Iterator[_Sample]:
    """Group members that lie together by key; pass over what is no field of a sample."""
    sample: _Sample | None = None
    for member in members:
        folder, name = posixpath.split(member.name)
        if "__MACOSX" in folder.split("/"):
            ledger.pass_over("archive shadow")
            continue
        if (reason := shadow(name)) is not None:
            ledger.pass_over(reason)
            continue
        stem, extension = split(member.name)
        if not extension:
            ledger.pass_over("not an image")
            continue
        key = posixpath.join(folder, name.split(".", 1)[0])
        if sample is None or sample.key != key:
            if sample is not None:
                yield sample
            sample = _Sample(key)
        fields = sample.stems.setdefault(stem, {})
        if extension in fields:
            ledger.pass_over("repeated member")
        else:
            fields[extension] = member
    if sample is not None:
        yield sample


def _images(path: str, sample: _Sample, ledger: Ledger) -> Iterator[_Member]:
    """Yield the image of a sample; count fields that are neither image nor text."""
    images = {stem: [m for e, m in fields.items() if e in IMAGE_EXTENSIONS] for stem, fields in sample.stems.items()}
    others = sum(e not in IMAGE_EXTENSIONS and e not in _TEXTS for fields in sample.stems.values() for e in fields)
    ledger.pass_over("not an image", others)
    if not any(images.values()):
        texts = sum(e in _TEXTS for fields in sample.stems.values() for e in fields)
        ledger.pass_over("caption without image", texts)
        return
    plain = images.get(sample.key, [])
    if plain:
        yield plain[0]
        ledger.pass_over("further field of a sample", sum(map(len, images.values())) - 1)
        if len(plain) > 1:
            ledger.note(
                "same-stem",
                f"{path}::{plain[0].name}",
                f"the sample {readable(sample.key)} in {readable(path)} has {len(plain)} images; "
                "only the first is used",
            )
        return
    for members in images.values():
        for member in members[:1]:
            ledger.note(
                "shard-key",
                f"{path}::{member.name}",
                f"{readable(member.name)!r} has a dot in its name: in a shard the key ends at the first dot "
                f"({readable(sample.key)!r}), so trainers see a field {readable(member.name[len(sample.key) + 1 :])!r}",
            )
            yield member
        ledger.pass_over("further field of a sample", len(members[1:]))


def _described(
    descriptor: int, path: str, fields: dict[str, _Member], ledger: Ledger
) -> tuple[tuple[str, ...], str | None]:
    """Return the captions and the concept of one sample."""
    texts: dict[str, str] = {}
    for extension in (".txt", ".caption"):
        if (member := fields.get(extension)) is not None:
            raw = _bytes(descriptor, member)
            texts[extension] = read_caption(raw, f"{path}::{member.name}", ledger)
    captions: tuple[str, ...] = tuple(texts.values())[:1]
    if len(set(texts.values())) > 1:
        member = fields[".txt"]
        name = f"{path}::{member.name}"
        ledger.note("caption-conflict", name, f"{readable(name)} and the field caption differ; txt is used")
    if (member := fields.get(".json")) is None:
        return captions, None
    try:
        cells = json.loads(_bytes(descriptor, member))
    except (ValueError, RecursionError):
        cells = None
    if not isinstance(cells, dict):
        name = f"{path}::{member.name}"
        ledger.note("metadata-malformed", name, f"{readable(name)} is not a JSON object; it was left out")
        return captions, None
    return captions or rows.captions_in(cells), rows.concept_in(cells)


def _bytes(descriptor: int, member: _Member) -> bytes:
    os.lseek(descriptor, member.offset, os.SEEK_SET)
    parts, left = [], min(member.size, MOST_BYTES)
    while left and (part := os.read(descriptor, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
