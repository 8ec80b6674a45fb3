"""Hugging Face imagefolder: `train/` and `validation/`, each with a metadata.jsonl of file, text and concept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from datasieve.curation.export import File, Item, caption_text

EXTENSIONS: frozenset[str] | None = None
CARRIES_CAPTIONS = True


def files(items: Sequence[Item], out: Path, resolution: int) -> Iterator[File]:
    """See `Layout.files`. `text` is the column that diffusers' scripts read by default."""
    for part in ("train", "validation"):
        lines = []
        for item in items:
            if item.part != part:
                continue
            name = f"{item.folder}/{item.name}" if item.folder else item.name
            yield File(f"{part}/{name}", item)
            row = {"file_name": name, "text": caption_text(item), "concept": item.record.concept}
            lines.append(json.dumps(row, ensure_ascii=False))
        if lines:
            content = ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")
            yield File(f"{part}/metadata.jsonl", content=content)
