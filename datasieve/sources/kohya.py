"""kohya's layouts: folders called `N_concept`, and the dataset TOML.

Folders: `train_data_dir/10_red toy/*.png` is shown ten times an epoch and has the class tokens "red toy". TOML:
[general] < [[datasets]] < [[datasets.subsets]], the lower wins; each subset's `image_dir` is one folder, relative to
the TOML (or, if it is not there, to the working folder). Class tokens become the concept, not a caption: captions
are only what is written in files. Images that a kohya-style trainer would not see are noted and audited all the same.
Facts: sd-scripts' dataset documentation and code.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from datasieve.config import ConceptBy
from datasieve.errors import InputError
from datasieve.records import ImageRecord
from datasieve.sources import concepts
from datasieve.sources.captions import captioned
from datasieve.sources.ingest import Ledger, record
from datasieve.sources.names import CAPTION_EXTENSIONS, check_names, join, split
from datasieve.sources.walk import Folder, walk
from datasieve.storage import readable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_SEEN = frozenset([".png", ".jpg", ".jpeg", ".webp", ".bmp", ".avif", ".jxl"])


def repeats_of(folder: str) -> tuple[int, str] | None:
    """Return (repeats, class tokens) of a folder's name, None when a kohya-style trainer ignores the folder."""
    number, separator, tokens = folder.partition("_")
    if not separator or not re.fullmatch(r"\s*[+-]?\d+\s*", number, re.ASCII) or int(number) < 1:
        return None
    return int(number), tokens.strip()


def is_repeats_tree(folders: Sequence[Folder]) -> bool:
    """Tell whether the tree is meant for repeats: an `N_` folder with images right below the root.

    Numbers from 1000 up are years, and when every number has a leading zero they are an order ("01_beach").
    """
    numbers = [
        f.path.partition("_")[0] for f in folders if f.images and "/" not in f.path and repeats_of(f.path) is not None
    ]
    return any(int(n) < 1000 and not n.strip().startswith("0") for n in numbers)


def list_folders(folders: Sequence[Folder], ledger: Ledger, concept_by: ConceptBy) -> Iterator[ImageRecord]:
    """Yield the records of a tree of `N_concept` folders. Images of ignored folders count once."""
    for folder in folders:
        top, _, deeper = folder.path.partition("/")
        meaning = repeats_of(top)
        repeats, tokens = meaning if meaning is not None else (1, re.sub(r"^[+-]?\d*_", "", top) or top)
        if not top:
            ignored = "it lies in the root, and only images in folders called N_name are seen"
        elif meaning is None:
            ignored = f"the folder {readable(top)!r} does not begin with a number of at least 1 and _"
        elif deeper:
            ignored = f"it lies deeper than {readable(top)!r}, and only images right in that folder are seen"
        else:
            ignored = ""
        yield from _list_folder(
            folder, ledger, concept_by, tokens, 1 if ignored else repeats, ignored, CAPTION_EXTENSIONS
        )


def _list_folder(
    folder: Folder,
    ledger: Ledger,
    concept_by: ConceptBy,
    tokens: str,
    repeats: int,
    ignored: str,
    extensions: tuple[str, ...],
) -> Iterator[ImageRecord]:
    check_names(folder.path, folder.images, ledger)
    ledger.pass_over("not an image", len(folder.tables))
    ledger.pass_over("archive", len(folder.shards))
    for name, captions in captioned(folder, ledger, extensions=extensions):
        path = join(folder.path, name)
        if why := ignored or _wrong_extension(name):
            ledger.note("folder-ignored", path, f"a kohya-style trainer does not see {readable(path)}: {why}")
        yield record(
            path,
            os.path.join(folder.location, name),
            concept=concepts.choose(concept_by, folder=folder.path, captions=captions, automatic=tokens),
            captions=captions,
            group=folder.path,
            repeats=repeats,
        )


def _wrong_extension(name: str) -> str:
    written = os.path.splitext(name)[1]
    if written.lower() not in _SEEN:
        return f"it does not list files ending in {readable(written)!r}" if written else "the name has no extension"
    return (
        "" if written in (written.lower(), written.upper()) else f"it compares {readable(written)!r} letter by letter"
    )


@dataclass(frozen=True)
class Subset:
    """One subset of a dataset TOML, with what [general] and [[datasets]] hand down.

    Attributes:
        location: absolute path of `image_dir`.
        repeats: `num_repeats`.
        tokens: `class_tokens`, None when not given.
        extension: `caption_extension`, lower case with its dot.
    """

    location: str
    repeats: int
    tokens: str | None
    extension: str


def read_toml(file: Path, ledger: Ledger) -> list[Subset]:
    """Return the subsets of a dataset TOML, in its order, each folder once.

    Raises InputError for TOML that cannot be parsed, has no subset, or has a value of the wrong type.
    """
    try:
        document = tomllib.loads(file.read_bytes().decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"cannot read {file}: {error}", remedy="Mend the TOML at that place.") from error
    general = document.get("general", {})
    subsets: dict[str, Subset] = {}
    for dataset in _tables(document, "datasets", file):
        for values in _tables(dataset, "subsets", file):
            merged = {**general, **dataset, **values} if isinstance(general, dict) else {**dataset, **values}
            subset = _subset(merged, file)
            if subset.location in subsets:
                ledger.note(
                    "metadata-mismatch",
                    "",
                    f"{file.name} lists {readable(subset.location)} twice; trainers use it once",
                )
            elif not os.path.isdir(subset.location):
                ledger.note(
                    "unreadable-folder", "", f"{file.name} names {readable(subset.location)}, which is not there"
                )
            else:
                subsets[subset.location] = subset
            if "metadata_file" in merged:
                ledger.note(
                    "metadata-unused",
                    "",
                    f"{file.name} names the metadata file {merged['metadata_file']!r}, which is not read here; "
                    "captions are taken from the files beside the images",
                )
    return list(subsets.values())


def _tables(table: Mapping[str, object], key: str, file: Path) -> list[dict[str, object]]:
    value = table.get(key)
    if not isinstance(value, list) or not value or not all(isinstance(v, dict) for v in value):
        raise InputError(
            f"{file} is not a dataset TOML: it has no [[{'datasets.' if key == 'subsets' else ''}{key}]]",
            remedy="Give a TOML with [[datasets]], each with [[datasets.subsets]] that have an image_dir.",
        )
    return value


def _subset(values: Mapping[str, object], file: Path) -> Subset:
    folder, repeats = values.get("image_dir"), values.get("num_repeats", 1)
    extension, tokens = values.get("caption_extension", ".caption"), values.get("class_tokens")
    if not isinstance(folder, str) or not folder:
        raise InputError(f"a subset of {file} has no image_dir", remedy="Give every subset an image_dir.")
    if not isinstance(repeats, int) or isinstance(repeats, bool) or repeats < 1:
        raise InputError(f"num_repeats in {file} is {repeats!r}", remedy="Give a whole number of at least 1.")
    if not isinstance(extension, str) or not isinstance(tokens, str | None):
        raise InputError(f"caption_extension and class_tokens in {file} must be text", remedy="Put them in quotes.")
    location = os.path.normpath(os.path.join(file.parent, os.path.expanduser(folder.replace("\\", "/"))))
    if not os.path.isdir(location) and os.path.isdir(folder):
        location = os.path.abspath(folder)
    extension = extension.lower() if extension.startswith(".") else "." + extension.lower()
    return Subset(location, repeats, tokens, extension)


def list_toml(
    subsets: Sequence[Subset], root: str, ledger: Ledger, concept_by: ConceptBy
) -> tuple[list[tuple[Subset, list[Folder]]], Iterator[ImageRecord]]:
    """Walk every subset below `root`; return its folders, and the stream of records."""
    tops = frozenset(subset.location for subset in subsets)
    walked = []
    for subset in subsets:
        path = os.path.relpath(subset.location, root).replace(os.sep, "/")
        folders = list(walk(subset.location, ledger, path="" if path == "." else path, skip=tops))
        walked.append((subset, folders))

    def stream() -> Iterator[ImageRecord]:
        for subset, folders in walked:
            for folder in folders:
                nested = os.path.normpath(folder.location) != subset.location
                name = os.path.basename(subset.location)
                tokens = subset.tokens if subset.tokens is not None else name
                ignored = "it lies deeper than the subset's image_dir" if nested else ""
                repeats = 1 if nested else subset.repeats
                yield from _list_folder(folder, ledger, concept_by, tokens, repeats, ignored, (subset.extension,))

    return walked, stream()


def is_dataset_toml(file: str) -> bool:
    """Tell whether `file` is a TOML with [[datasets]]."""
    try:
        with open(file, "rb") as handle:
            return isinstance(tomllib.load(handle).get("datasets"), list)
    except (OSError, ValueError):
        return False


def note_toml(folders: Sequence[Folder], ledger: Ledger) -> None:
    """Note dataset TOMLs lying in a folder that is audited by itself."""
    for folder in folders:
        for name in folder.tables:
            if split(name)[1] == ".toml" and is_dataset_toml(os.path.join(folder.location, name)):
                path = join(folder.path, name)
                message = f"{readable(path)} is a dataset TOML, not used; to audit it: datasieve audit {readable(path)}"
                ledger.note("metadata-unused", path, message)
