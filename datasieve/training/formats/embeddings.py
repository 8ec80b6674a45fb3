"""Textual Inversion files of every known writer. What is written where is told in docs/training-files.md."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from datasieve.errors import ModelError, OutputError
from datasieve.storage import atomic_path
from datasieve.training.formats.files import Contents, kind_of_contents, read_contents

ENCODERS = ("clip_l", "clip_g", "t5", "t5xxl", "llama")
SINGLE = ("emb_params", "emp_params")
"""Keys that hold the vectors of the only text encoder: kohya's and most others', and OneTrainer's."""

_XTI = re.compile(r"^(IN|OUT|MID)\d*$")

FORMS = ("datasieve", "a1111", "diffusers", "onetrainer")
"""What can be written. "datasieve" is kohya's key with the name, step and base in the metadata."""


@dataclass(frozen=True)
class Embedding:
    """Vectors of one word.

    Attributes:
        name: the word in prompts; the file's stem where the file does not say.
        vectors: by text encoder, (n, width) float32. "text" when the model has only one.
        outputs: OneTrainer's vectors that replace the encoder's output instead.
        step: optimizer steps it was trained for; None unknown.
        base_name, base_hash: the model it was trained on; "" unknown.
        notes: what else the file told, or what could not be kept.
    """

    name: str
    vectors: Mapping[str, torch.Tensor]
    outputs: Mapping[str, torch.Tensor] = field(default_factory=dict)
    step: int | None = None
    base_name: str = ""
    base_hash: str = ""
    notes: tuple[str, ...] = ()


def read_embeddings(path: Path, *, allow_parameter_dict: bool = False) -> list[Embedding]:
    """Read every embedding of a file.

    Args:
        path: any variant that docs/training-files.md lists.
        allow_parameter_dict: see `read_contents`.

    Raises:
        ModelError: the file is damaged, holds no embedding, or numbers that are not finite.
    """
    contents = read_contents(path, allow_parameter_dict=allow_parameter_dict)
    if kind_of_contents(contents, path) != "embedding":
        raise ModelError(f"{path} is a hypernetwork, not an embedding")
    found = _bundled(contents, path) or [_single(contents.values, contents.metadata, path)]
    if not any(e.vectors or e.outputs for e in found):
        found = _by_token(contents, path)
    for embedding in found:
        for encoder, vectors in [*embedding.vectors.items(), *embedding.outputs.items()]:
            if not bool(vectors.isfinite().all()):
                raise ModelError(
                    f"{path}: the vectors of {embedding.name} ({encoder}) hold NaN or infinity",
                    remedy="That training run was lost; use an earlier step of it.",
                )
    return found


def _single(values: dict[Any, Any], metadata: Mapping[str, str], path: Path) -> Embedding:
    """Understand a file with one word."""
    facts = _facts(values, metadata)
    name = str(values.get("name") or metadata.get("name") or path.stem)
    if "string_to_param" in values:
        params = _plain(values["string_to_param"])
        if len(params) != 1:
            raise ModelError(f"{path} holds {len(params)} terms, and readers take files with one")
        return Embedding(name, {"text": _matrix(next(iter(params.values())), path)}, **facts)
    keys = [k for k in values if isinstance(values[k], torch.Tensor)]
    if keys and all(_XTI.match(str(k)) for k in keys):
        raise ModelError(
            f"{path} is an XTI embedding, with other vectors for every block of the network",
            remedy="No common tool loads these; train a plain embedding.",
        )
    outputs = {
        k.removesuffix("_out") if k not in ("emp_params_out", "emb_params_out") else "text": _matrix(values[k], path)
        for k in keys
        if str(k).endswith("_out")
    }
    encoders = {k: _matrix(values[k], path) for k in keys if k in ENCODERS}
    if encoders:
        return Embedding(name, encoders, outputs, **facts)
    for key in SINGLE:
        if key in values:
            return Embedding(name, {"text": _matrix(values[key], path)}, outputs, **facts)
    if len(keys) == 1 and not outputs:  # diffusers: the key is the word; a bare tensor has none
        word = str(keys[0]) or path.stem
        return Embedding(word, {"text": _matrix(values[keys[0]], path)}, **facts)
    return Embedding(name, {}, outputs, **facts)


def _by_token(contents: Contents, path: Path) -> list[Embedding]:
    """Understand cloneofsimo's file, which has one (width,) vector a word and says `<embed>` of each."""
    words = [k for k, v in contents.metadata.items() if v == "<embed>" and k in contents.values]
    if not words:
        shown = ", ".join(map(repr, list(contents.values)[:5]))
        raise ModelError(
            f"{path} holds no embedding that is known (keys: {shown})",
            remedy="See docs/training-files.md for what is read.",
        )
    return [Embedding(word, {"text": _matrix(contents.values[word], path)}) for word in words]


def _bundled(contents: Contents, path: Path) -> list[Embedding]:
    """Understand embeddings that lie beside a LoRA: `bundle_emb.NAME.KEY`."""
    of_name: dict[str, dict[str, Any]] = {}
    for key, value in contents.values.items():
        parts = str(key).split(".")
        if parts[0] == "bundle_emb" and len(parts) >= 3:
            # A name with a dot cannot be told from a key; the key is the last part, or string_to_param and its term.
            cut = parts.index("string_to_param") if "string_to_param" in parts else len(parts) - 1
            name, rest = ".".join(parts[1:cut]), ".".join(parts[cut:])
            inner = {"string_to_param": {"*": value}} if rest.startswith("string_to_param") else {rest: value}
            of_name.setdefault(name, {}).update(inner)
    found = []
    for name, values in of_name.items():
        one = _single(values | {"name": name}, {}, path)
        found.append(Embedding(name, one.vectors, one.outputs, notes=("it lay in a LoRA's file",)))
    return found


def _facts(values: Mapping[Any, Any], metadata: Mapping[str, str]) -> dict[str, Any]:
    def told(key: str) -> Any:
        value = values.get(key)
        if value is None and key in metadata:
            try:
                value = json.loads(metadata[key])
            except ValueError:
                value = metadata[key]
        return value

    step = told("step")
    return {
        "step": int(step) if isinstance(step, int | float) or (isinstance(step, str) and step.isdigit()) else None,
        "base_name": str(told("sd_checkpoint_name") or ""),
        "base_hash": str(told("sd_checkpoint") or ""),
    }


def _plain(value: Any) -> dict[str, Any]:
    """Return a ParameterDict or dict as a dict."""
    if isinstance(value, torch.nn.ParameterDict):
        return dict(value.items())
    if isinstance(value, dict):
        inner = value.get("_parameters")
        return dict(inner) if isinstance(inner, dict) else value
    return {}


def _matrix(value: Any, path: Path) -> torch.Tensor:
    if not isinstance(value, torch.Tensor) or value.ndim not in (1, 2) or not value.numel():
        shape = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
        raise ModelError(f"{path}: the vectors should be a matrix of numbers, not {shape}")
    return value.detach().float().reshape(-1, value.shape[-1]).contiguous()


def write_embedding(path: Path, embedding: Embedding, form: str) -> list[str]:
    """Write one embedding, whole or not at all.

    Args:
        path: its extension must fit the form.
        embedding: one word.
        form: one of `FORMS`.

    Returns:
        what the form cannot hold and was left out, in words.

    Raises:
        ModelError: the form cannot hold these vectors.
        OutputError: the extension does not fit, or the file cannot be written.
    """
    from safetensors.torch import save_file

    suffixes = {"a1111": (".pt",), "diffusers": (".safetensors", ".bin")}.get(form, (".safetensors",))
    if form not in FORMS:
        raise ModelError(f"there is no form {form!r}", remedy=f"Choose from {', '.join(FORMS)}.")
    if path.suffix.lower() not in suffixes:
        raise OutputError(f"the form {form} is written as {' or '.join(suffixes)}, not as {path.name}")
    for encoder, vectors in embedding.vectors.items():
        if not bool(vectors.isfinite().all()):
            raise ModelError(f"the vectors of {embedding.name} ({encoder}) hold NaN or infinity, and are not written")
    if not embedding.vectors:
        raise ModelError(f"{embedding.name} holds only output vectors, which {form} does not know")
    several = len(embedding.vectors) > 1 or next(iter(embedding.vectors)) in ("clip_g", "t5", "t5xxl", "llama")
    if several and form in ("a1111", "diffusers"):
        raise ModelError(
            f"{embedding.name} has vectors for {', '.join(embedding.vectors)}; the form {form} holds one encoder's",
            remedy="Write it as datasieve (clip_l and clip_g in one .safetensors), which A1111, ComfyUI, kohya, "
            "OneTrainer and diffusers (each part by itself) read.",
        )
    lost = ["the output vectors"] if embedding.outputs and form != "onetrainer" else []
    tensors = {k: v.detach().float().cpu().contiguous() for k, v in embedding.vectors.items()}
    only = next(iter(tensors.values()))
    with atomic_path(path) as temporary:
        if form == "a1111":
            whole = {
                "string_to_token": {"*": 265},
                "string_to_param": {"*": only},
                "name": embedding.name,
                "step": embedding.step,
                "sd_checkpoint": embedding.base_hash or None,
                "sd_checkpoint_name": embedding.base_name or None,
            }
            _torch_save(whole, temporary, path)
        elif form == "diffusers":
            lost += [w for w, known in (("the step", embedding.step), ("the base", embedding.base_name)) if known]
            if path.suffix.lower() == ".bin":
                _torch_save({embedding.name: only}, temporary, path)
            else:
                save_file({embedding.name: only}, str(temporary), metadata={"format": "pt"})
        elif form == "onetrainer":
            # OneTrainer reads no metadata, and knows a single encoder's vectors only under this spelling.
            lost += ["the name", *(w for w, known in (("the step", embedding.step),) if known)]
            kept = tensors if several else {"emp_params": only}
            kept |= {f"{'emp_params' if k == 'text' else k}_out": v for k, v in embedding.outputs.items()}
            save_file(kept, str(temporary))
        else:
            kept = tensors if several else {"emb_params": only}
            save_file(kept, str(temporary), metadata=_metadata(embedding))
    return lost


def _torch_save(value: Any, temporary: Path, path: Path) -> None:
    try:
        torch.save(value, temporary)
    except RuntimeError as error:
        raise OutputError(f"cannot write {path}: {error}", remedy="Free some space.") from error


def _metadata(embedding: Embedding) -> dict[str, str]:
    """Return what ai-toolkit also writes: values as JSON."""
    told: dict[str, Any] = {"name": embedding.name, "step": embedding.step, "software": "datasieve", "format": "pt"}
    told |= {"sd_checkpoint": embedding.base_hash or None, "sd_checkpoint_name": embedding.base_name or None}
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in told.items() if v is not None}


def checksum(vectors: torch.Tensor) -> str:
    """Return A1111's four hex digits of an embedding, by which its infotexts name it.

    Args:
        vectors: (n, width), finite.
    """
    found = 0
    for value in (vectors.reshape(-1) * 100).tolist():
        found = (found * 281 ^ int(value) * 997) & 0xFFFFFFFF
    return f"{found & 0xFFFF:04x}"
