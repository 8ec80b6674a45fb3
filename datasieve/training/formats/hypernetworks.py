"""Hypernetwork files: A1111's `.pt`, and a `.safetensors` form of our own (docs/training-files.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from datasieve.errors import ModelError, OutputError
from datasieve.training.formats.files import (
    Contents,
    kind_of_contents,
    numbers,
    plain,
    read_contents,
    text,
    write_pickle,
    write_tensors,
)

Weights = dict[str, torch.Tensor]
FORMS = ("a1111", "datasieve")
SAFETENSORS_VERSION = "1"
_COMFY_UI = ("linear", "relu", "leakyrelu", "elu", "swish", "tanh", "sigmoid", "softsign", "mish")


@dataclass(frozen=True)
class Hypernetwork:
    """A residual hypernetwork.

    Attributes:
        name: what the file calls it.
        layers: by input width: weights of K and of V, named `linear.<position>.<weight|bias>` as A1111 does.
        layer_structure: widths as multiples of the input's.
        activation: lower case; "linear" for none.
        layer_norm: a LayerNorm after every linear layer.
        dropout_structure: chances after each layer; None for none.
        activate_output: the activation also after the last layer.
        weight_init: what it started from.
        step: optimizer steps; 0 unknown.
        base_name, base_hash, optional_info: "" unknown.
    """

    name: str
    layers: Mapping[int, tuple[Weights, Weights]]
    layer_structure: tuple[float, ...] = (1, 2, 1)
    activation: str = "linear"
    layer_norm: bool = False
    dropout_structure: tuple[float, ...] | None = None
    activate_output: bool = False
    weight_init: str = "Normal"
    step: int = 0
    base_name: str = ""
    base_hash: str = ""
    optional_info: str = ""


class Position(NamedTuple):
    """One module with weights within `linear`.

    Attributes:
        number: its place among linear layers, activations, norms and dropouts.
        kind: "linear" or "norm".
        layer: the layer it belongs to.
    """

    number: int
    kind: str
    layer: int


def positions(network: Hypernetwork) -> list[Position]:
    """Return where the weights stand: activations and dropouts take numbers too."""
    found, index, last = [], 0, len(network.layer_structure) - 2
    dropout = network.dropout_structure or (0.0,) * len(network.layer_structure)
    for i in range(last + 1):
        found.append(Position(index, "linear", i))
        index += 1
        if network.activation != "linear" and (i < last or network.activate_output):
            index += 1
        if network.layer_norm:
            found.append(Position(index, "norm", i))
            index += 1
        if dropout[i + 1] > 0:
            index += 1
    return found


def shapes(network: Hypernetwork, width: int) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes that the structure calls for at an input width."""
    sizes = [int(width * m) for m in network.layer_structure]
    wanted: dict[str, tuple[int, ...]] = {}
    for at in positions(network):
        out = sizes[at.layer + 1]
        wanted[f"linear.{at.number}.weight"] = (out, sizes[at.layer]) if at.kind == "linear" else (out,)
        wanted[f"linear.{at.number}.bias"] = (out,)
    return wanted


def check(network: Hypernetwork, path: Path) -> None:
    """Compare every weight with the structure. Raises ModelError naming the first that does not fit."""
    structure, dropout = network.layer_structure, network.dropout_structure
    if len(structure) < 2 or structure[0] != 1 or structure[-1] != 1 or not all(0 < m < 1000 for m in structure):
        raise ModelError(f"{path}: the layer structure {list(structure)} should begin and end with 1, such as 1, 2, 1")
    if dropout is not None and (
        len(dropout) != len(structure) or dropout[0] or dropout[-1] or not all(0 <= p < 1 for p in dropout)
    ):
        raise ModelError(f"{path}: the dropout {list(dropout)} does not fit the layer structure {list(structure)}")
    if not network.layers:
        raise ModelError(f"{path} holds no layers", remedy="Get the file again.")
    for width, pair in network.layers.items():
        if width < 1:
            raise ModelError(f"{path}: {width} is no width")
        wanted = shapes(network, width)
        for which, weights in zip(("K", "V"), pair, strict=True):
            for name, shape in wanted.items():
                if name not in weights:
                    raise ModelError(f"{path}: width {width}, {which} lacks {name} (its structure calls for it)")
                if tuple(weights[name].shape) != shape:
                    raise ModelError(
                        f"{path}: width {width}, {which}, {name} is {tuple(weights[name].shape)}, its structure "
                        f"{list(network.layer_structure)} calls for {shape}"
                    )
                if not bool(weights[name].isfinite().all()):
                    raise ModelError(f"{path}: width {width}, {which}, {name} holds NaN or infinity")
            if extra := set(weights) - set(wanted):
                raise ModelError(f"{path}: width {width}, {which} holds {sorted(extra)[0]}, which has no place in it")


def _in_order(network: Hypernetwork) -> Hypernetwork:
    """Return a checked network with its weights in the order of computation, which is how ComfyUI takes them."""
    layers = {
        width: ({n: k[n] for n in names}, {n: v[n] for n in names})
        for width, (k, v) in sorted(network.layers.items())
        for names in [shapes(network, width)]
    }
    return replace(network, layers=layers)


def read_hypernetwork(path: Path) -> Hypernetwork:
    """Read a hypernetwork: A1111's, NovelAI's, kohya's in memory form, or ours.

    Raises ModelError when the file is damaged, of another kind, or of a kind that cannot be used.
    """
    contents = read_contents(path)
    if kind_of_contents(contents) != "hypernetwork":
        raise ModelError(f"{path} is an embedding, not a hypernetwork")
    network = _ours(contents, path) if contents.metadata else _pickled(contents.values, path)
    check(network, path)
    return _in_order(network)


def _pickled(values: Mapping[Any, Any], path: Path) -> Hypernetwork:
    if values.get("skip_connection") is True:
        raise ModelError(
            f"{path} has skip connections of its own (an extension of A1111), which plain loaders cannot use",
            remedy="Use it with the extension that made it.",
        )
    try:
        structure = tuple(float(v) for v in values.get("layer_structure") or (1, 2, 1))
        dropout = values.get("dropout_structure")
        # With a single layer what is derived comes after all weights: it moves none, and use knows no dropout.
        if dropout is None and values.get("use_dropout") and len(structure) > 2:
            last = 0.3 if values.get("last_layer_dropout") else 0.0
            dropout = [0.0, *[0.3] * (len(structure) - 3), last, 0.0]
        layers = {
            int(width): (
                _renamed(pair[0], f"{path}: width {width}, K"),
                _renamed(pair[1], f"{path}: width {width}, V"),
            )
            for width, pair in values.items()
            if isinstance(width, int)
        }
        activation = values.get("activation_func")
        return Hypernetwork(
            name=text(values.get("name")) or path.stem,
            layers=layers,
            layer_structure=structure,
            activation=str(activation).lower() if activation else "linear",
            layer_norm=bool(values.get("is_layer_norm", False)),
            dropout_structure=tuple(float(v) for v in dropout) if dropout and any(dropout) else None,
            activate_output=bool(values.get("activate_output", True)),
            weight_init=str(values.get("weight_initialization") or "Normal"),
            step=int(values.get("step") or 0),
            base_name=text(values.get("sd_checkpoint_name")),
            base_hash=text(values.get("sd_checkpoint")),
            optional_info=text(values.get("optional_info")),
        )
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise ModelError(f"{path} is no hypernetwork of a known kind: {error}", remedy="Get the file again.") from None


def _renamed(weights: Mapping[str, torch.Tensor], what: str) -> Weights:
    """Return weights under today's names; NovelAI's first files call them `linear1` and `linear2`."""
    old = {"linear1": "linear.0", "linear2": "linear.1"}
    found = {}
    for key, value in weights.items():
        head, _, end = key.partition(".")
        found[f"{old[head]}.{end}" if head in old else key] = numbers(value, f"{what}, {key}")
    return found


def _ours(contents: Contents, path: Path) -> Hypernetwork:
    told = contents.metadata
    if told.get("version") != SAFETENSORS_VERSION:
        raise ModelError(
            f"{path} is a hypernetwork of version {told.get('version')}; version {SAFETENSORS_VERSION} is read here",
            remedy="Use the datasieve that wrote it.",
        )
    try:
        facts = json.loads(told["hypernetwork"])
        layers: dict[int, tuple[Weights, Weights]] = {}
        for key, value in contents.values.items():
            width, which, name = key.split(".", 2)
            layers.setdefault(int(width), ({}, {}))["kv".index(which)][name] = numbers(value, f"{path}: {key}")
        dropout = facts["dropout_structure"]
        return Hypernetwork(
            layers=layers,
            layer_structure=tuple(float(v) for v in facts["layer_structure"]),
            dropout_structure=tuple(float(v) for v in dropout) if dropout else None,
            step=int(facts["step"]),
            name=text(facts["name"]),
            activation=text(facts["activation"]),
            layer_norm=bool(facts["layer_norm"]),
            activate_output=bool(facts["activate_output"]),
            weight_init=text(facts["weight_init"]),
            base_name=text(facts["base_name"]),
            base_hash=text(facts["base_hash"]),
            optional_info=text(facts["optional_info"]),
        )
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ModelError(
            f"{path} is no hypernetwork of datasieve's form: {error!r}", remedy="Get the file again."
        ) from None


def without_dropout(network: Hypernetwork) -> Hypernetwork:
    """Return the network for use: dropout taken out, the weights numbered as without it.

    One reader keeps dropout layers at work in use, so that pictures come out noisy.
    """
    if network.dropout_structure is None or not any(network.dropout_structure):
        return replace(network, dropout_structure=None)
    bare = replace(network, dropout_structure=None)
    new = {f"linear.{a.number}": f"linear.{b.number}" for a, b in zip(positions(network), positions(bare), strict=True)}

    def moved(weights: Weights) -> Weights:
        return {f"{new[key.rpartition('.')[0]]}.{key.rpartition('.')[2]}": value for key, value in weights.items()}

    return replace(bare, layers={width: (moved(k), moved(v)) for width, (k, v) in network.layers.items()})


def write_hypernetwork(path: Path, network: Hypernetwork, form: str | None = None) -> list[str]:
    """Write a hypernetwork, whole or not at all.

    Args:
        path: `.pt` or `.safetensors`.
        network: for A1111 its dropout is taken out.
        form: one of `FORMS`; None: by the extension.

    Returns:
        what the form cannot hold and was left out, in words.

    Raises:
        ModelError: the weights do not fit the structure.
        OutputError: the extension does not fit, or the file cannot be written.
    """
    form = form or {".pt": "a1111", ".safetensors": "datasieve"}.get(path.suffix.lower(), "")
    if (form, path.suffix.lower()) not in (("a1111", ".pt"), ("datasieve", ".safetensors")):
        raise OutputError(f"a hypernetwork is written as .pt (a1111) or .safetensors (datasieve), not as {path.name}")
    check(network, path)
    network = _in_order(network)
    if form == "datasieve":
        facts = {k: v for k, v in vars(network).items() if k != "layers"}
        metadata = {"datasieve": "hypernetwork", "version": SAFETENSORS_VERSION, "hypernetwork": json.dumps(facts)}
        tensors = {
            f"{width}.{which}.{key}": value
            for width, pair in network.layers.items()
            for which, weights in zip("kv", pair, strict=True)
            for key, value in weights.items()
        }
        write_tensors(path, tensors, metadata)
        return []
    bare = without_dropout(network)
    zeros = [0.0] * len(bare.layer_structure)
    whole: dict[Any, Any] = {
        width: ({n: plain(v) for n, v in keys.items()}, {n: plain(v) for n, v in values.items()})
        for width, (keys, values) in bare.layers.items()
    }
    whole |= {
        "step": bare.step,
        "name": bare.name,
        "layer_structure": [int(m) if m == int(m) else m for m in bare.layer_structure],
        "activation_func": bare.activation,
        "is_layer_norm": bare.layer_norm,
        "weight_initialization": bare.weight_init,
        "use_dropout": False,
        "dropout_structure": zeros,
        "last_layer_dropout": False,
        "activate_output": bare.activate_output,
        "sd_checkpoint": bare.base_hash or None,
        "sd_checkpoint_name": bare.base_name or None,
        "optional_info": bare.optional_info or None,
    }
    write_pickle(path, whole)
    return ["the dropout, which is for training"] if any(network.dropout_structure or ()) else []


def readers(network: Hypernetwork, form: str) -> str:
    """Return which tools read the hypernetwork in a form, in words."""
    if form == "datasieve":
        return "datasieve alone"
    # With other activations ComfyUI only says so in its log, and draws without the hypernetwork.
    return "A1111, ComfyUI" if network.activation in _COMFY_UI else "A1111"
