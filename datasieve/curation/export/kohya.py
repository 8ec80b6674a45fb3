"""kohya sd-scripts: folders called `N_concept` with `.txt` captions, and the dataset TOML that reads them.

Facts: sd-scripts' dataset documentation and code. Its default caption extension is `.caption`; the TOML says `.txt`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from datasieve.curation.export import File, Item, sidecar

EXTENSIONS: frozenset[str] | None = frozenset([".png", ".jpg", ".jpeg", ".webp", ".bmp"])
CARRIES_CAPTIONS = True


def files(items: Sequence[Item], out: Path, resolution: int) -> Iterator[File]:
    """See `Layout.files`. Held-out pictures lie in `validation`, which the TOML does not name."""
    subsets: dict[tuple[str, int], str] = {}
    for item in items:
        repeats = max(1, item.record.repeats)
        # A concept's name may itself begin with a number and an underscore: the first number is the repeats.
        folder = f"{repeats}_{item.folder or 'concept'}"
        if item.part == "train":
            subsets[(folder, repeats)] = item.record.concept or item.folder
        path = f"{'img' if item.part == 'train' else 'validation'}/{folder}/{item.name}"
        yield File(path, item)
        yield from sidecar(path, item)
    lines = [
        "# For kohya sd-scripts: --dataset_config dataset.toml. Correct image_dir when the folder moves.",
        "[general]",
        'caption_extension = ".txt"',
        "enable_bucket = true",
        "",
        "[[datasets]]",
        f"resolution = {resolution}",
        "batch_size = 1",
    ]
    for (folder, repeats), concept in sorted(subsets.items()):
        lines += [
            "",
            "  [[datasets.subsets]]",
            f"  image_dir = {_string(str(out.resolve() / 'img' / folder))}",
            f"  class_tokens = {_string(concept)}",
            f"  num_repeats = {repeats}",
        ]
    yield File("dataset.toml", content=("\n".join(lines) + "\n").encode())


def _string(text: str) -> str:
    # JSON's escapes are TOML's, but for DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
