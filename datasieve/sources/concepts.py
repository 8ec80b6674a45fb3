"""Which concept an image belongs to.

"folder" takes the image's folder, relative to the dataset, as it is written. "caption" takes the first tag: the
caption's text before its first comma, from the first line that is not blank. "none" gives every image the concept "".
"auto" takes what the layout itself declares (kohya's class tokens, a metadata column called concept) and else looks
at the folders: see `by_folders`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable

from datasieve.config import ConceptBy

_GENERIC = frozenset(
    {"train", "training", "test", "val", "valid", "validation", "dev", "data", "dataset", "images", "image", "img"}
)


def by_folders(folders: Iterable[str]) -> Callable[[str], str]:
    """Return the function folder -> concept for a dataset whose images lie in `folders` (relative POSIX).

    Folders that all images share say nothing and are left out, and so are leading folders that name a split or the
    fact that there are images (train, val, images...). Of what is left the first folder is the concept:
    "people/anna/day" and "people/bob" give "anna" and "bob". An image directly in the shared folder has the concept
    "". When all images lie in one folder, that folder is the concept, or "" if it is the root or a generic name.
    """
    parts = {folder: _meaningful(folder) for folder in folders}
    distinct = sorted(set(parts.values()))
    if len(distinct) == 1:
        only = distinct[0][-1] if distinct[0] else ""
        return lambda folder: only
    shared = len(posixpath.commonprefix(distinct)) if distinct else 0
    concepts = {folder: path[shared] if len(path) > shared else "" for folder, path in parts.items()}
    return lambda folder: concepts.get(folder, "")


def _meaningful(folder: str) -> tuple[str, ...]:
    parts = [part for part in folder.split("/") if part]
    while parts and parts[0].lower() in _GENERIC:
        parts.pop(0)
    return tuple(parts)


def first_tag(captions: tuple[str, ...]) -> str:
    """Return the text before the first comma of the first caption's first line that is not blank, "" without one."""
    for line in captions[0].split("\n") if captions else ():
        if line.strip():
            return line.split(",", 1)[0].strip()
    return ""


def choose(concept_by: ConceptBy, *, folder: str, captions: tuple[str, ...], automatic: str) -> str:
    """Return the concept of one image; `automatic` is what "auto" means in its layout."""
    if concept_by == "auto":
        return automatic
    if concept_by == "folder":
        return folder
    return first_tag(captions) if concept_by == "caption" else ""
