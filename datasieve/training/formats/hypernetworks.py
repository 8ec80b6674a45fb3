"""Hypernetwork files: A1111's `.pt`, and a `.safetensors` form of our own (docs/training-files.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from datasieve.errors import ModelError, OutputError
from datasieve.storage import atomic_path
from datasieve.training.formats.files import Contents, kind_of_contents, read_contents

Weights = dict[str, torch.Tensor]
FORMS = ("a1111", "datasieve")
SAFETENSORS_VERSION = "1"


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
    if not network.layers:
        raise ModelError(f"{path} holds no layers", remedy="Get the file again.")
    for width, pair in network.layers.items():
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


def read_hypernetwork(path: Path) -> Hypernetwork:
    """Read a hypernetwork: A1111's, NovelAI's, kohya's in memory form, or ours.

    Raises ModelError when the file is damaged, of another kind, or of a kind that cannot be used.
    """
    contents = read_contents(path)
    if kind_of_contents(contents, path) != "hypernetwork":
        raise ModelError(f"{path} is an embedding, not a hypernetwork")
    network = _ours(contents, path) if contents.metadata else _pickled(contents.values, path)
    check(network, path)
    return network


def _pickled(values: Mapping[Any, Any], path: Path) -> Hypernetwork:
    if values.get("skip_connection") or values.get("upsample_linear"):
        raise ModelError(
            f"{path} has skip connections of its own (an extension of A1111), which plain loaders cannot use",
            remedy="Use it with the extension that made it.",
        )
    try:
        structure = tuple(float(v) for v in values.get("layer_structure") or (1, 2, 1))
        drops = bool(values.get("use_dropout", False)) or any(values.get("dropout_structure") or ())
        dropout = values.get("dropout_structure")
        if dropout is None and drops:
            last = 0.3 if values.get("last_layer_dropout") else 0.0
            dropout = [0.0, *[0.3] * (len(structure) - 3), last, 0.0]
        layers = {
            int(width): (_renamed(pair[0]), _renamed(pair[1]))
            for width, pair in values.items()
            if isinstance(width, int)
        }
        activation = values.get("activation_func")
        return Hypernetwork(
            name=str(values.get("name") or path.stem),
            layers=layers,
            layer_structure=structure,
            activation=str(activation).lower() if activation else "linear",
            layer_norm=bool(values.get("is_layer_norm", False)),
            dropout_structure=tuple(float(v) for v in dropout) if dropout and drops else None,
            activate_output=bool(values.get("activate_output", True)),
            weight_init=str(values.get("weight_initialization") or "Normal"),
            step=int(values.get("step") or 0),
            base_name=str(values.get("sd_checkpoint_name") or ""),
            base_hash=str(values.get("sd_checkpoint") or ""),
            optional_info=str(values.get("optional_info") or ""),
        )
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise ModelError(f"{path} is no hypernetwork of a known kind: {error}", remedy="Get the file again.") from None


def _renamed(weights: Mapping[str, torch.Tensor]) -> Weights:
    """Return weights under today's names; NovelAI's first files call them `linear1` and `linear2`."""
    old = {"linear1": "linear.0", "linear2": "linear.1"}
    found = {}
    for key, value in weights.items():
        head, _, end = key.partition(".")
        found[f"{old[head]}.{end}" if head in old else key] = value.detach().float()
    return found


def _ours(contents: Contents, path: Path) -> Hypernetwork:
    told = contents.metadata
    try:
        facts = json.loads(told["hypernetwork"])
        layers: dict[int, tuple[Weights, Weights]] = {}
        for key, value in contents.values.items():
            width, which, name = key.split(".", 2)
            layers.setdefault(int(width), ({}, {}))["kv".index(which)][name] = value.float()
        facts["layer_structure"] = tuple(float(v) for v in facts["layer_structure"])
        facts["dropout_structure"] = tuple(facts["dropout_structure"]) if facts.get("dropout_structure") else None
        return Hypernetwork(layers=layers, **facts)
    except (KeyError, ValueError, TypeError) as error:
        raise ModelError(f"{path} is no hypernetwork of datasieve's form: {error}") from None


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
    from safetensors.torch import save_file

    form = form or {".pt": "a1111", ".safetensors": "datasieve"}.get(path.suffix.lower(), "")
    if (form, path.suffix.lower()) not in (("a1111", ".pt"), ("datasieve", ".safetensors")):
        raise OutputError(f"a hypernetwork is written as .pt (a1111) or .safetensors (datasieve), not as {path.name}")
    check(network, path)
    if form == "datasieve":
        facts = {k: v for k, v in vars(network).items() if k != "layers"}
        metadata = {"datasieve": "hypernetwork", "version": SAFETENSORS_VERSION, "hypernetwork": json.dumps(facts)}
        tensors = {
            f"{width}.{which}.{key}": value.detach().float().cpu().contiguous()
            for width, pair in network.layers.items()
            for which, weights in zip("kv", pair, strict=True)
            for key, value in weights.items()
        }
        with atomic_path(path) as temporary:
            save_file(tensors, str(temporary), metadata=metadata)
        return []
    bare = without_dropout(network)
    zeros = [0.0] * len(bare.layer_structure)
    whole: dict[Any, Any] = {
        width: (_float(keys), _float(values)) for width, (keys, values) in sorted(bare.layers.items())
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
    with atomic_path(path) as temporary:
        try:
            torch.save(whole, temporary)
        except RuntimeError as error:
            raise OutputError(f"cannot write {path}: {error}", remedy="Free some space.") from error
    return ["the dropout, which is for training"] if network.dropout_structure else []


def _float(weights: Weights) -> Weights:
    return {key: value.detach().float().cpu().contiguous() for key, value in weights.items()}
