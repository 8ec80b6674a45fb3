"""A file's raw contents, read without executing anything in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from datasieve.errors import ModelError

Kind = Literal["embedding", "hypernetwork"]

PICTURES = (".png", ".webp", ".jxl", ".avif")
"""Extensions under which A1111 keeps embeddings within pictures."""


class Contents(NamedTuple):
    """What a file holds.

    Attributes:
        values: keys as stored (hypernetworks have numbers among them).
        metadata: of safetensors; empty otherwise.
    """

    values: dict[Any, Any]
    metadata: dict[str, str]


def read_contents(path: Path, *, allow_parameter_dict: bool = False) -> Contents:
    """Read a `.safetensors`, a pickle of tensors and plain values, or a picture that carries an embedding.

    Args:
        path: by its content; the extension decides only between pictures and the rest.
        allow_parameter_dict: let torch.nn.ParameterDict be built, which files of the original Textual Inversion hold.

    Raises:
        ModelError: there is no such file, it is damaged, or it holds objects that could run code.
    """
    try:
        with open(path, "rb") as handle:
            head = handle.read(16)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}", remedy="Check the name.") from None
    if not head:
        raise ModelError(f"{path} is empty", remedy="Get the file again.")
    if path.suffix.lower() in PICTURES:
        from datasieve.training.formats.picture_embeddings import read_picture

        return Contents(read_picture(path), {})
    if head[8:9] == b"{" or path.suffix.lower() == ".safetensors":
        return _safetensors(path)
    return Contents(_pickle(path, allow_parameter_dict), {})


def kind_of(path: Path, *, allow_parameter_dict: bool = False) -> Kind:
    """Tell by its contents what a file holds. Raises ModelError when it is neither."""
    contents = read_contents(path, allow_parameter_dict=allow_parameter_dict)
    return kind_of_contents(contents, path)


def kind_of_contents(contents: Contents, path: Path) -> Kind:
    """Tell an embedding from a hypernetwork. Raises ModelError naming what was found."""
    values = contents.values
    if contents.metadata.get("datasieve") == "hypernetwork" or any(isinstance(k, int) for k in values):
        return "hypernetwork"
    names = [str(k) for k in values]
    if any(n.startswith(("lora_unet_", "lora_te", "unet.", "lora.")) for n in names) and not any(
        n.startswith("bundle_emb.") for n in names
    ):
        raise ModelError(f"{path} is a LoRA, with no embedding in it", remedy="Name an embedding or a hypernetwork.")
    if any(n.startswith(("model.diffusion_model.", "first_stage_model.")) for n in names):
        raise ModelError(f"{path} is a whole model", remedy="Give it as --base.")
    return "embedding"


def _safetensors(path: Path) -> Contents:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            return Contents({k: file.get_tensor(k) for k in file.keys()}, dict(file.metadata() or {}))  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, json.JSONDecodeError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"{path} is no whole .safetensors file: {reason}", remedy="Get the file again.") from None


def _pickle(path: Path, allow_parameter_dict: bool) -> dict[Any, Any]:
    allowed: list[Any] = [torch.nn.ParameterDict] if allow_parameter_dict else []
    try:
        with torch.serialization.safe_globals(allowed):
            found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        message = str(error)
        if "ParameterDict" in message and not allow_parameter_dict:
            raise ModelError(
                f"{path} is an original Textual Inversion file: its vectors lie in a torch.nn.ParameterDict",
                remedy="If you trust it, allow that one type: datasieve convert FILE NEW.safetensors "
                "--allow-parameter-dict",
            ) from None
        if "Unsupported global" in message or "Unsupported class" in message or "Unsupported operand" in message:
            raise ModelError(
                f"{path} holds more than tensors and plain values, which could run code, and is not opened",
                remedy="Get it as .safetensors.",
            ) from None
        reason = message.strip().split("\n")[0][:200]
        raise ModelError(f"{path} cannot be read: {reason}", remedy="It may be damaged; get it again.") from None
    if isinstance(found, torch.Tensor):
        return {"": found}
    if isinstance(found, list) and all(isinstance(part, dict) for part in found):
        return {k: v for part in found for k, v in part.items()}
    if not isinstance(found, dict):
        raise ModelError(f"{path} holds a {type(found).__name__}, not tensors by name")
    return found
