"""What lies beside an image and goes where it goes: captions, repaired, and the mask.

Sidecars of a folder are repaired as `datasieve captions --fix` does (`caption_files.py`); captions from a table or a
shard become a `.txt`. Safe edits run always, those that shorten (`NORMALISING`) with `--normalize`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from datasieve.captions.granularity import FAR
from datasieve.captions.reading import flavour, token_limit
from datasieve.config import Settings
from datasieve.records import ImageRecord
from datasieve.repair import Options, Row
from datasieve.repair.caption_files import SLACK, plan_captions
from datasieve.repair.captions import Wish, edit
from datasieve.sources.names import CAPTION_EXTENSIONS, nfc, split

SAFE_RULES = ("captions.damaged", "captions.stray-separators", "captions.repeated-tags", "layout.caption-encoding",
              "layout.caption-name")  # fmt: skip
NORMALISING = ("captions.granularity-outlier", "captions.too-long")
CAPTION_RULES = (*SAFE_RULES, *NORMALISING)
"""Rules that repairs of captions answer."""

MASK_SUFFIX = "-masklabel.png"
"""OneTrainer's name of a mask beside its image."""


@dataclass(frozen=True, slots=True)
class CaptionEdit:
    """The captions of one image after their repair.

    Attributes:
        files: extension -> content of the file beside the image.
        done: what was done, empty when nothing was.
        dropped: what edits that shorten left out.
    """

    files: Mapping[str, bytes]
    done: tuple[str, ...] = ()
    dropped: str = ""


def edits(
    dataset: Path,
    records: Sequence[ImageRecord],
    rows: Mapping[str, Row],
    options: Options,
    settings: Settings,
    wanted: Callable[[str], bool],
) -> dict[str, CaptionEdit]:
    """Return image path -> its captions repaired, for images that have some. Reads caption files only.

    Args:
        dataset: the folder, or a shard.
        records, rows: the images and what the audit says of them (image_id -> row).
        options, settings: as in a fix.
        wanted: whether the repairs that a rule calls for are to run.
    """
    if not any(map(wanted, CAPTION_RULES)):
        return {}
    shorten = options.normalize and any(map(wanted, NORMALISING))
    limit = token_limit(settings.trainer) if wanted("captions.too-long") else None
    wish = Wish(lossy=shorten, flavour=flavour(settings.trainer, settings.base), limit=limit)
    sidecars = _sidecars(dataset, wish, settings) if dataset.is_dir() else {}
    found = {}
    for record in records:
        whole = nfc(split(record.path)[0])
        if record.location.size is None and whole in sidecars:
            found[record.path] = sidecars[whole]
        elif record.captions:
            usual = _usual(rows.get(record.image_id, {})) if wanted("captions.granularity-outlier") else None
            edited = [edit(text, wish, usual) for text in record.captions]
            text = "\n".join(e.text for e in edited).encode("utf-8", "surrogateescape")
            done = tuple(dict.fromkeys(name for e in edited for name in e.done))
            found[record.path] = CaptionEdit({".txt": text}, done, "; ".join(e.dropped for e in edited if e.dropped))
    return found


def _sidecars(dataset: Path, wish: Wish, settings: Settings) -> dict[str, CaptionEdit]:
    """Return path without extension -> the repaired sidecars there."""
    repair = plan_captions(dataset, wish, settings)
    files: dict[str, dict[str, bytes]] = {}
    for path, content in repair.files.items():
        stem, extension = split(path)
        if extension in CAPTION_EXTENSIONS:
            files.setdefault(nfc(stem), {})[extension] = content
    done: dict[str, list[str]] = {}
    dropped: dict[str, list[str]] = {}
    for change in repair.changes:
        stem = nfc(split(change.path)[0])
        done.setdefault(stem, []).extend(change.done)
        dropped.setdefault(stem, []).extend([change.dropped] if change.dropped else [])
    return {
        stem: CaptionEdit(beside, tuple(dict.fromkeys(done.get(stem, ()))), "; ".join(dropped.get(stem, ())))
        for stem, beside in files.items()
    }


def _usual(row: Row) -> float | None:
    """Return the size that the concept's captions usually have, where this one says far more."""
    far, size, usual = (row.get(f"captions.{n}") for n in ("granularity-outlier", "size", "usual-size"))
    if far is None or size is None or usual is None or far <= FAR or size <= usual:
        return None
    return float(usual) + SLACK


def captions_of(record: ImageRecord) -> dict[str, bytes]:
    """Return extension -> content of an image's captions as they are: sidecars byte for byte, others as `.txt`."""
    found: dict[str, bytes] = {}
    if record.location.size is None:
        for file in sidecars_of(Path(record.location.file)):
            found[split(file.name)[1]] = file.read_bytes()
    if not found and record.captions:
        found[".txt"] = "\n".join(record.captions).encode("utf-8", "surrogateescape")
    return found


def sidecars_of(image: Path) -> list[Path]:
    """Return the caption files beside an image, whose names end in `.txt` or `.caption`."""
    files = (image.with_suffix(extension) for extension in CAPTION_EXTENSIONS)
    return [file for file in files if file.is_file()]


def mask_of(record: ImageRecord) -> Path | None:
    """Return the mask beside an image, None when there is none."""
    image = Path(record.location.file)
    mask = image.with_name(image.stem + MASK_SUFFIX)
    return mask if record.location.size is None and mask.is_file() else None
