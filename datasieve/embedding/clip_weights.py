"""Where the weights of a CLIP model lie: which files, and what they are called. Nothing is loaded here.

A model is named in one of three ways:

    MODEL/PRETRAINED   a model and weights that open_clip knows: ViT-B-32/laion2b_s34b_b79k
    MODEL@FILE         a model that open_clip knows and a checkpoint of yours: ViT-B-32@weights/mine.safetensors
    FOLDER             a folder with open_clip_config.json and its weights, as open_clip saves them

Weights of the first kind are looked for in the caches of huggingface_hub and open_clip. Only when they are not there,
and the hub can be reached, are they fetched; without a network that is known within three seconds.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import socket
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from datasieve.errors import ConfigError, ModelError

DEFAULT = "ViT-B-32/laion2b_s34b_b79k"
CONFIG_NAME = "open_clip_config.json"
WEIGHT_NAMES = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "open_clip_pytorch_model.bin")
SECONDS = 3.0
"""Within which a hub must answer."""

_BLOCK = 1 << 16
_BLOCKS = 64


@dataclass(frozen=True)
class ClipWeights:
    """A CLIP model whose files are here.

    Attributes:
        name: as the user named it.
        model: what open_clip builds: the name of a model, or `local-dir:FOLDER`.
        file: the checkpoint.
        size: length of its vectors.
        quick_gelu: the weights were trained with QuickGELU.
        preprocessing: mean, std, interpolation and resize mode that come with the weights, where they tell them.
        revision: what tells these weights from others of the same name.
    """

    name: str
    model: str
    file: Path
    size: int
    quick_gelu: bool
    preprocessing: Mapping[str, Any]
    revision: str

    @property
    def identity(self) -> str:
        """Name and revision."""
        return f"{self.name} ({self.revision})"


@lru_cache(maxsize=8)
def located(spec: str) -> ClipWeights | str:
    """Return the files of the CLIP model that `spec` names ("" is `DEFAULT`), or one sentence why they are not here.

    Raises:
        ConfigError: `spec` names nothing that open_clip knows, or a file or folder that is not there.
        ModelError: the folder's description cannot be read.
    """
    spec = spec or DEFAULT
    if Path(spec).expanduser().is_dir():
        return _in_folder(spec, Path(spec).expanduser())
    model, at, file = spec.partition("@")
    if at:
        path = Path(file).expanduser()
        if not path.is_file():
            raise ConfigError(f"there is no file {path}", remedy="Give --clip MODEL@FILE with a checkpoint.")
        return ClipWeights(spec, model, path, _size_of(model), False, {}, fingerprint(path))
    model, slash, tag = spec.rpartition("/")
    if not slash or model.startswith((".", "/", "~")):
        remedy = "Give --clip MODEL/PRETRAINED, MODEL@FILE, or a folder with open_clip_config.json."
        raise ConfigError(f"{spec!r} names no CLIP model and no folder", remedy=remedy)
    return _pretrained(spec, model, tag)


def _in_folder(spec: str, folder: Path) -> ClipWeights:
    config = folder / CONFIG_NAME
    try:
        described = json.loads(config.read_text(encoding="utf-8"))
        size = int(described["model_cfg"]["embed_dim"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = f"Name a folder that open_clip saved: {CONFIG_NAME} and {WEIGHT_NAMES[0]}."
        raise ModelError(f"cannot read {config}: {error!r}", remedy=remedy) from error
    file = next((folder / name for name in WEIGHT_NAMES if (folder / name).is_file()), None)
    if file is None:
        raise ModelError(f"{folder} holds no weights", remedy=f"Put {WEIGHT_NAMES[0]} there.")
    mark = hashlib.blake2b(config.read_bytes(), digest_size=4).hexdigest()
    return ClipWeights(spec, f"local-dir:{folder}", file, size, False, {}, f"{fingerprint(file)}, config {mark}")


def _size_of(model: str) -> int:
    """Return the length of a known model's vectors. Raises ConfigError."""
    import open_clip

    config = open_clip.get_model_config(model)
    if config is None:
        near = difflib.get_close_matches(model, open_clip.list_models(), n=3, cutoff=0)
        raise ConfigError(f"open_clip knows no model {model!r}", remedy=f"Perhaps: {', '.join(near)}.")
    return int(config["embed_dim"])


def _pretrained(spec: str, model: str, tag: str) -> ClipWeights | str:
    """Return the cached weights of a known name, fetched when they can be, or why they cannot."""
    from open_clip.pretrained import get_pretrained_cfg, list_pretrained_tags_by_model

    size = _size_of(model)
    known = get_pretrained_cfg(model, tag)
    if not known:
        tags = ", ".join(list_pretrained_tags_by_model(model)) or "none"
        raise ConfigError(f"open_clip knows no weights {tag!r} of {model}", remedy=f"Those of {model}: {tags}.")
    file: Path | str = _cached(known) or _fetched(known)
    if isinstance(file, str):
        return f"the weights of {spec} are not on this machine: {file}. {how_to_get(spec, known)}"
    in_hub_cache = file.parent.parent.name == "snapshots"
    revision = file.parent.name[:12] if in_hub_cache else fingerprint(file)
    preprocessing = {k: known[k] for k in ("mean", "std", "interpolation", "resize_mode") if known.get(k)}
    quick = bool(known.get("quick_gelu"))
    return ClipWeights(spec, model, file, size, quick, preprocessing, revision)


def how_to_get(spec: str, known: Mapping[str, Any]) -> str:
    """Return the sentence that tells how weights are brought onto a machine without a network."""
    repository, name = _on_hub(known)
    if repository:
        return (
            f"Where there is a network: `hf download {repository} {name}`; then copy ~/.cache/huggingface here, or "
            f"give the file with --clip {spec.rpartition('/')[0]}@FILE"
        )
    return f"Fetch {known.get('url', 'them')} and give the file with --clip {spec.rpartition('/')[0]}@FILE"


def _on_hub(known: Mapping[str, Any]) -> tuple[str, str]:
    """Return repository and file name on the hub, ("", "") when the weights are not there."""
    repository, _, name = str(known.get("hf_hub") or "").rpartition("/")
    if not repository:
        return "", ""
    return repository, name or WEIGHT_NAMES[0]


def _names(name: str) -> tuple[str, ...]:
    """Return the names under which a hub's file may lie: safetensors first."""
    if name in WEIGHT_NAMES:
        return WEIGHT_NAMES
    safe = str(Path(name).with_suffix(".safetensors"))
    return (safe, name) if safe != name else (name,)


def _cached(known: Mapping[str, Any]) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    repository, name = _on_hub(known)
    for candidate in _names(name) if repository else ():
        found = try_to_load_from_cache(repository, candidate)
        if isinstance(found, str):
            return Path(found)
    if url := str(known.get("url") or ""):
        file = Path("~/.cache/clip").expanduser() / url.rpartition("/")[2]
        return file if file.is_file() else None
    return None


def _fetched(known: Mapping[str, Any]) -> Path | str:
    """Fetch weights from the hub; return the file, or why that cannot be done."""
    import huggingface_hub
    from huggingface_hub import constants

    repository, name = _on_hub(known)
    if not repository:
        return "they are not on the hub"
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    if not reachable(constants.ENDPOINT):
        return f"{constants.ENDPOINT} cannot be reached"
    why = "the hub does not hold them"
    for candidate in _names(name):
        try:
            return Path(huggingface_hub.hf_hub_download(repository, candidate, etag_timeout=SECONDS))
        except huggingface_hub.errors.EntryNotFoundError:
            continue
        except Exception as error:  # whatever a network does: it is told, and the audit goes on without
            why = f"fetching failed ({type(error).__name__})"
            break
    return why


def reachable(url: str, seconds: float = SECONDS) -> bool:
    """Tell whether the host of `url`, or the proxy in front of it, takes a connection within some seconds."""
    parts = urlsplit(url)
    if proxy := getproxies().get(parts.scheme):
        parts = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    host, port = parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)
    answered: list[bool] = []

    def connect() -> None:
        try:
            socket.create_connection((host, port), seconds).close()
            answered.append(True)
        except OSError:
            pass

    # In a thread: looking a name up cannot be given a time limit, and takes half a minute on some machines.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(answered)


def fingerprint(path: Path) -> str:
    """Return 12 hex digits that tell a checkpoint from others: BLAKE2b of its size and 64 blocks spread over it."""
    size = os.path.getsize(path)
    digest = hashlib.blake2b(str(size).encode(), digest_size=6)
    with path.open("rb") as file:
        for block in range(_BLOCKS):
            file.seek(max(size - _BLOCK, 0) * block // (_BLOCKS - 1))
            digest.update(file.read(_BLOCK))
    return digest.hexdigest()
