"""Textual Inversion files of every known writer. What is written where is told in docs/training-files.md."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from datasieve.errors import ModelError, OutputError
from datasieve.training.formats.files import (
    ENCODERS,
    SINGLE,
    Contents,
    kind_of_contents,
    numbers,
    plain,
    read_contents,
    text,
    write_pickle,
    write_tensors,
)

_XTI = re.compile(r"^(IN|OUT|MID)\d*$")
_OUTPUTS = {f"{key}_out": "text" if key in SINGLE else key for key in (*ENCODERS, *SINGLE)}
_UNDERSTOOD = {"name", "step", "sd_checkpoint", "sd_checkpoint_name", "string_to_token", "string_to_param"}
_SAYS_NOTHING = {"format", "software"}

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
        notes: what else the file told, which no form keeps.
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
    if kind_of_contents(contents) != "embedding":
        raise ModelError(f"{path} is a hypernetwork, not an embedding")
    found = _bundled(contents, path) or _terms(contents, path)
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


def _terms(contents: Contents, path: Path) -> list[Embedding]:
    """Understand a file of one word, or an original one of several (`string_to_param` holds them by word)."""
    values, facts = contents.values, _facts(contents)
    name = text(values.get("name")) or text(contents.metadata.get("name")) or path.stem
    if "string_to_param" not in values:
        vectors, outputs, own_name = _vectors(values, path)
        return [Embedding(own_name or name, vectors, outputs, **facts)]
    params = _as_dict(values["string_to_param"])
    if not params:
        raise ModelError(f"{path} is an A1111 embedding without vectors", remedy="Get the file again.")
    names = [name] if len(params) == 1 else [str(term) for term in params]
    return [
        Embedding(n, {"text": _matrix(value, path)}, **facts) for n, value in zip(names, params.values(), strict=True)
    ]


def _vectors(
    values: Mapping[Any, Any], path: Path
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], str | None]:
    """Return the vectors, the output vectors, and the word when the only key is one."""
    keys = [k for k in values if isinstance(values[k], torch.Tensor)]
    if keys and all(_XTI.match(str(k)) for k in keys):
        raise ModelError(
            f"{path} is an XTI embedding, with other vectors for every block of the network",
            remedy="No common tool loads these; train a plain embedding.",
        )
    outputs = {_OUTPUTS[k]: _matrix(values[k], path) for k in keys if k in _OUTPUTS}
    encoders = {k: _matrix(values[k], path) for k in keys if k in ENCODERS}
    if encoders:
        return encoders, outputs, None
    for key in SINGLE:
        if key in values:
            return {"text": _matrix(values[key], path)}, outputs, None
    if len(keys) == 1 and not outputs:  # diffusers: the key is the word; a bare tensor has none
        return _both_files(str(keys[0]), _matrix(values[keys[0]], path), path), {}, str(keys[0]) or None
    return {}, outputs, None


def _both_files(word: str, first: torch.Tensor, path: Path) -> dict[str, torch.Tensor]:
    """Return diffusers' vectors; for SDXL its script writes the second encoder's into learned_embeds_2 beside them."""
    second = path.with_name(path.name.replace("learned_embeds", "learned_embeds_2", 1))
    if first.shape[1] == 768 and second != path and second.is_file():
        other = read_contents(second).values
        if list(other) == [word] and (more := _matrix(other[word], second)).shape[1] == 1280:
            return {"clip_l": first, "clip_g": more}
    return {"text": first}


def _by_token(contents: Contents, path: Path) -> list[Embedding]:
    """Understand cloneofsimo's files, which have one (width,) vector a word.

    The newer say `<embed>` of each in their metadata; the older hold nothing else.
    """
    values = contents.values
    words = [k for k, v in contents.metadata.items() if v == "<embed>" and k in values]
    flat = all(isinstance(v, torch.Tensor) and v.ndim == 1 for v in values.values())
    if not words and flat and len({len(v) for v in values.values()}) == 1:
        words = [k for k in values if re.fullmatch(r"<.+>", str(k))]
        words = words if len(words) == len(values) else []
    if not words:
        shown = ", ".join(map(repr, list(values)[:5])) or "none"
        raise ModelError(
            f"{path} holds no embedding that is known (keys: {shown})",
            remedy="See docs/training-files.md for what is read.",
        )
    return [Embedding(str(word), {"text": _matrix(values[word], path)}) for word in words]


def _bundled(contents: Contents, path: Path) -> list[Embedding]:
    """Understand embeddings that lie beside a LoRA: `bundle_emb.NAME.KEY`."""
    of_name: dict[str, dict[str, Any]] = {}
    for key, value in contents.values.items():
        parts = str(key).split(".")
        if parts[0] == "bundle_emb" and len(parts) >= 3:
            # A name can hold dots; the key is the last part, or string_to_param and its term.
            cut = parts.index("string_to_param") if "string_to_param" in parts else len(parts) - 1
            inner = {"emb_params" if cut < len(parts) - 1 else parts[-1]: value}
            of_name.setdefault(".".join(parts[1:cut]), {}).update(inner)
    found = []
    for name, values in of_name.items():
        vectors, outputs, _ = _vectors(values, path)
        found.append(Embedding(name, vectors, outputs, notes=("a LoRA, in whose file it lay",)))
    return found


def _facts(contents: Contents) -> dict[str, Any]:
    """Return step, base and notes, from the dictionary itself or from the metadata, where texts may be JSON."""
    values, metadata = contents.values, contents.metadata

    def told(key: str) -> Any:
        value = values.get(key)
        if value is None and key in metadata:
            try:
                value = json.loads(metadata[key])
            except (ValueError, RecursionError):
                return metadata[key]
            if key != "step" and value is not None and not isinstance(value, str):
                return metadata[key]  # a hash such as 1234567e89 is no number
        return value

    step = told("step")
    whole = isinstance(step, int | float) and not isinstance(step, bool) and math.isfinite(step)
    more = [k for k, v in values.items() if not isinstance(v, torch.Tensor) and k not in _UNDERSTOOD and v is not None]
    more += [k for k, v in metadata.items() if k not in _UNDERSTOOD | _SAYS_NOTHING and v != "<embed>"]
    return {
        "step": int(step) if whole else None,
        "base_name": text(told("sd_checkpoint_name")),
        "base_hash": text(told("sd_checkpoint")),
        "notes": tuple(f"the entry {k}" for k in more),
    }


def _as_dict(value: Any) -> Mapping[Any, Any]:
    """Return a dict, or what a ParameterDict of any torch version holds."""
    inside = vars(value) if isinstance(value, torch.nn.ParameterDict) else value if isinstance(value, dict) else {}
    inner = inside.get("_parameters", inside)
    return inner if isinstance(inner, dict) else {}


def _matrix(value: Any, path: Path) -> torch.Tensor:
    if not isinstance(value, torch.Tensor) or value.ndim not in (1, 2) or not value.numel():
        shape = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
        raise ModelError(f"{path}: the vectors should be a matrix of numbers, not {shape}")
    return numbers(value, f"{path}: the vectors").reshape(-1, value.shape[-1]).contiguous()


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
    suffixes = {"a1111": (".pt",), "diffusers": (".safetensors", ".bin")}.get(form, (".safetensors",))
    if form not in FORMS:
        raise ModelError(f"there is no form {form!r}", remedy=f"Choose from {', '.join(FORMS)}.")
    if path.suffix.lower() not in suffixes:
        raise OutputError(f"the form {form} is written as {' or '.join(suffixes)}, not as {path.name}")
    _check(embedding, form)
    lost = list(embedding.notes)
    tensors = {k: plain(v) for k, v in embedding.vectors.items()}
    outputs = {k: plain(v) for k, v in embedding.outputs.items()}
    only = next(iter(tensors.values()))
    if outputs and form != "onetrainer":
        lost.append("the output vectors")
    if form in ("diffusers", "onetrainer"):  # neither reads metadata
        lost += ["the step"] if embedding.step is not None else []
        lost += ["the base"] if embedding.base_name or embedding.base_hash else []
    if form == "a1111":
        whole = {
            "string_to_token": {"*": 265},
            "string_to_param": {"*": only},
            "name": embedding.name,
            "step": embedding.step,
            "sd_checkpoint": embedding.base_hash or None,
            "sd_checkpoint_name": embedding.base_name or None,
        }
        write_pickle(path, whole)
    elif form == "diffusers":
        if path.suffix.lower() == ".bin":
            write_pickle(path, {embedding.name: only})
        else:
            write_tensors(path, {embedding.name: only}, {"format": "pt"})
    elif form == "onetrainer":
        # OneTrainer knows a single encoder's vectors only under this spelling.
        lost.append("the name")
        single = _is_single(embedding)
        kept = {"emp_params": only} if single else tensors
        write_tensors(path, kept | {("emp_params_out" if single else f"{k}_out"): v for k, v in outputs.items()}, None)
    else:
        write_tensors(path, {"emb_params": only} if _is_single(embedding) else tensors, _metadata(embedding))
    return lost


def _is_single(embedding: Embedding) -> bool:
    """Tell whether the model has one text encoder, CLIP-L or SD 2's."""
    return len(embedding.vectors) == 1 and next(iter(embedding.vectors)) in ("text", "clip_l")


def _check(embedding: Embedding, form: str) -> None:
    """Raise ModelError when the form cannot hold the embedding."""
    for encoder, vectors in [*embedding.vectors.items(), *embedding.outputs.items()]:
        if not bool(vectors.isfinite().all()):
            raise ModelError(f"the vectors of {embedding.name} ({encoder}) hold NaN or infinity, and are not written")
    if not embedding.vectors:
        raise ModelError(f"{embedding.name} holds only output vectors, which only OneTrainer's own files carry")
    if not embedding.name or text(embedding.name) != embedding.name:
        raise ModelError(
            f"{text(embedding.name)!r} cannot be a name", remedy='Give another, such as --name "<my-cat>".'
        )
    too_many = {"a1111": not _is_single(embedding), "diffusers": len(embedding.vectors) > 1}
    if too_many.get(form, False):
        raise ModelError(
            f"{embedding.name} has vectors for {', '.join(embedding.vectors)}, and the form {form} holds "
            + ("those of SD 1 and 2's text encoder" if form == "a1111" else "one text encoder's"),
            remedy=f"Write it as datasieve (.safetensors), which is read by {readers(embedding, 'datasieve')}.",
        )


def readers(embedding: Embedding, form: str) -> str:
    """Return which tools read the embedding in a form, in words."""
    if form == "onetrainer" and embedding.outputs:
        return "OneTrainer"
    if not _is_single(embedding):
        if set(embedding.vectors) == {"clip_l", "clip_g"}:
            return "A1111, ComfyUI, kohya, OneTrainer, diffusers (each part with its own text_encoder= and tokenizer=)"
        return "OneTrainer and ComfyUI, as far as they know the encoder" if form != "diffusers" else "diffusers"
    return {
        "datasieve": f"A1111, ComfyUI, kohya, diffusers (with token={embedding.name!r})",
        "a1111": "A1111, ComfyUI, kohya, diffusers",
        "diffusers": "diffusers, A1111, ComfyUI, kohya",
        "onetrainer": f"OneTrainer, A1111, ComfyUI, kohya, diffusers (with token={embedding.name!r})",
    }[form]


def _metadata(embedding: Embedding) -> dict[str, str]:
    """Return what ai-toolkit also writes: texts as they are, all else as JSON."""
    told: dict[str, Any] = {"name": embedding.name, "step": embedding.step, "software": "datasieve", "format": "pt"}
    told |= {
        "sd_checkpoint": text(embedding.base_hash) or None,
        "sd_checkpoint_name": text(embedding.base_name) or None,
    }
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
