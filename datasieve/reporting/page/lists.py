"""Long lists: the first items stand in the page, the others in a file beside it that is loaded when they are asked for.

A page opened from disk may not read JSON files, but may load scripts, so the data are a script that holds one call with
strict JSON. The script of the page writes every value as text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasieve.storage import write_text

DATA = "page-data"
MOST = 120
"""Items of a list that can be paged through; `datasieve show` and the tables hold all."""

Item = Mapping[str, Any]


def key_of(name: str) -> str:
    """Return a name for an element and a file: letters, digits and hyphens only."""
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in name)


@dataclass(slots=True)
class LongList:
    """A list that is shown a page at a time.

    Attributes:
        key: its name in the page and of its file.
        label: what is listed, for people who do not see it.
        items: at most `MOST`; functions fill them before the page is rendered.
        total: how many there are in all.
        size: items of a page.
        kind: name of the template of an item.
    """

    key: str
    label: str
    items: Sequence[Item]
    total: int
    size: int
    kind: str

    @property
    def first(self) -> Sequence[Item]:
        """Return what stands in the page itself."""
        return self.items[: self.size]

    @property
    def paged(self) -> int:
        """Return how many items can be paged through; 0 when the first page is all."""
        return len(self.items) if len(self.items) > self.size else 0


def write_lists(lists: Sequence[LongList], report: Path) -> None:
    """Write the data of every list with more than one page; files of earlier pages go."""
    folder = report / DATA
    wanted = set()
    for one in lists:
        if one.paged:
            rows = json.dumps([dict(item) for item in one.items], ensure_ascii=True, allow_nan=False)
            write_text(folder / f"{one.key}.js", f"datasieveList({json.dumps(one.key)}, {rows});\n")
            wanted.add(f"{one.key}.js")
    for file in folder.glob("*.js") if folder.is_dir() else ():
        if file.name not in wanted:
            file.unlink(missing_ok=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
