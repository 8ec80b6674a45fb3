"""WebDataset shards: `train-000000.tar` with a picture, its caption and its facts side by side.

A key ends at the first dot of the name (webdataset's rule), so keys are numbers and words without dots.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from datasieve.curation.export import File, Item, caption_text

EXTENSIONS: frozenset[str] | None = None
CARRIES_CAPTIONS = True
SHARD_BYTES = 256 * 2**20
"""A shard is closed when it is this large."""


def files(items: Sequence[Item], out: Path, resolution: int) -> Iterator[File]:
    """See `Layout.files`. The same set gives the same bytes."""
    for part in ("train", "validation"):
        number, buffer, shard = 0, io.BytesIO(), None
        for i, item in enumerate(item for item in items if item.part == part):
            if shard is None:
                buffer = io.BytesIO()
                shard = tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115
            key = f"{i:08d}-{re.sub(r'[^A-Za-z0-9-]+', '-', item.name.rpartition('.')[0])[:60]}"
            extension = item.name.rpartition(".")[2].lower()
            _add(shard, f"{key}.{extension}", item.record.location.read())
            if item.record.captions:
                _add(shard, f"{key}.txt", caption_text(item).encode("utf-8", "surrogateescape"))
            facts = {"concept": item.record.concept, "path": item.record.path, "repeats": item.record.repeats}
            _add(shard, f"{key}.json", json.dumps(facts).encode())
            if buffer.tell() >= SHARD_BYTES:
                shard.close()
                yield File(f"{part}-{number:06d}.tar", content=buffer.getvalue())
                number, shard = number + 1, None
        if shard is not None:
            shard.close()
            yield File(f"{part}-{number:06d}.tar", content=buffer.getvalue())


def _add(shard: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    shard.addfile(member, io.BytesIO(content))
