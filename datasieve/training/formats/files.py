"""A file's raw contents, read without executing anything in it, and written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from datasieve.errors import MissingExtra, ModelError, OutputError
from datasieve.storage import atomic_path

Kind = Literal["embedding", "hypernetwork"]

PICTURES = (".png", ".webp", ".jxl", ".avif")
"""Extensions under which A1111 keeps embeddings within pictures."""

ENCODERS = ("clip_l", "clip_g", "t5", "t5xxl", "llama")
"""Keys that name the text encoder whose vectors they hold."""

SINGLE = ("emb_params", "emp_params")
"""Keys that hold the vectors of the only text encoder: kohya's and most others', and OneTrainer's."""

_LORA = ("lora_", "lora.", "lycoris_", "unet.", "text_encoder.", "text_encoder_2.", "transformer.")
_MODEL = ("model.diffusion_model.", "first_stage_model.", "cond_stage_model.", "conditioner.")


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
        ModelError: there is no such file, it is damaged, of another kind, or it holds objects that could run code.
        MissingExtra: the package safetensors is needed and not there.
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
    return kind_of_contents(read_contents(path, allow_parameter_dict=allow_parameter_dict))


def kind_of_contents(contents: Contents) -> Kind:
    """Tell a hypernetwork from an embedding."""
    if contents.metadata.get("datasieve") == "hypernetwork" or any(isinstance(k, int) for k in contents.values):
        return "hypernetwork"
    return "embedding"


def _refuse_others(keys: Iterable[Any], path: Path) -> None:
    """Raise ModelError when the keys are those of a model, of a LoRA alone, or of an optimizer's state."""
    names = [str(k) for k in keys]
    if any(n.startswith(_MODEL) for n in names):
        raise ModelError(f"{path} is a whole model", remedy="Give it as --base.")
    if "optimizer_state_dict" in names:
        raise ModelError(
            f"{path} is an optimizer's state, which lies beside the file that was trained",
            remedy="Name that file: the same name without .optim.",
        )
    # Embeddings travel within LoRA files, as `bundle_emb.` (OneTrainer) or under their own keys (ai-toolkit).
    travels = any(n.startswith("bundle_emb.") or n in (*ENCODERS, *SINGLE) for n in names)
    if any(n.startswith(_LORA) and "." in n for n in names) and not travels:
        raise ModelError(f"{path} is a LoRA, with no embedding in it", remedy="Name an embedding or a hypernetwork.")


def _safetensors(path: Path) -> Contents:
    _need_safetensors()
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            keys = list(file.keys())
            _refuse_others(keys, path)  # before gigabytes of another kind are loaded
            return Contents({k: file.get_tensor(k) for k in keys}, dict(file.metadata() or {}))
    except (SafetensorError, OSError, ValueError) as error:
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
    if isinstance(found, list) and found and all(isinstance(part, dict) for part in found):
        return _by_width(found, path)
    if not isinstance(found, dict):
        raise ModelError(f"{path} holds a {type(found).__name__}, not tensors by name")
    _refuse_others(found, path)
    return found


def _by_width(parts: list[dict[Any, Any]], path: Path) -> dict[Any, Any]:
    """Return a list of dictionaries, one a text encoder, as one: the widths tell the encoders apart."""
    of_width: dict[int, list[torch.Tensor]] = {}
    for part in parts:
        for value in part.values():
            matrix = numbers(value, f"{path}: what it lists")
            of_width.setdefault(matrix.shape[-1] if matrix.ndim else 0, []).append(matrix)
    widths = sorted(of_width)
    names = ["emb_params"] if len(widths) == 1 else ["clip_l", "clip_g"] if widths == [768, 1280] else []
    if not names:
        raise ModelError(f"{path} lists vectors of widths {', '.join(map(str, widths))}, of encoders not known")
    return {
        name: torch.cat([m.reshape(-1, width) for m in of_width[width]])
        for name, width in zip(names, widths, strict=True)
    }


def numbers(value: Any, what: str) -> torch.Tensor:
    """Return a stored tensor as float32. Raises ModelError when it is none, or claims more numbers than it stores."""
    if not isinstance(value, torch.Tensor):
        raise ModelError(f"{what} should be numbers, not {type(value).__name__}")
    if value.layout != torch.strided or value.is_meta or value.is_quantized or not value.is_floating_point():
        raise ModelError(f"{what} should be ordinary fractional numbers, not {value.dtype} ({value.layout})")
    if value.numel() * value.element_size() > value.untyped_storage().nbytes():
        # A few bytes can pose as a tensor of any size, which would fill the memory once it is copied.
        raise ModelError(f"{what} claims {value.numel()} numbers and stores fewer", remedy="Get the file again.")
    return value.detach().float()


def text(value: Any) -> str:
    """Return a value that should be a text, with what is not Unicode escaped; "" for all else."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else ""


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None) -> None:
    """Write a `.safetensors`, whole or not at all. Raises OutputError."""
    _need_safetensors()
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    with atomic_path(path) as temporary:
        try:
            save_file({k: plain(v) for k, v in tensors.items()}, str(temporary), metadata=dict(metadata or {}) or None)
        except SafetensorError as error:
            raise OutputError(f"cannot write {path}: {error}", remedy="Free some space.") from error


def write_pickle(path: Path, value: dict[Any, Any]) -> None:
    """Write what `plain` returned, and values, as torch does, whole or not at all. Raises OutputError."""
    with atomic_path(path) as temporary:
        try:
            torch.save(value, temporary)
        except RuntimeError as error:  # so torch tells of a full disk
            raise OutputError(f"cannot write {path}: {error}", remedy="Free some space.") from error


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return float32 numbers in memory of their own: a view would take its whole table into the file."""
    return tensor.detach().float().cpu().clone(memory_format=torch.contiguous_format)


def _need_safetensors() -> None:
    try:
        import safetensors  # noqa: F401
    except ImportError as error:
        raise MissingExtra(str(error.name), extra="train", purpose="This file") from None
