"""Hypernetworks of the residual kind, as the community trains and loads them.

For each width of what enters `to_k` and `to_v` there are two small networks, K and V, and x becomes x + network(x).
They are chosen by width alone, so self-attentions take part too: their widths are those of the UNet's blocks. The last
layer starts at zero here, so that the first step starts from the base as it is; the published starts are offered, and
those that disturb the base from the first step say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from datasieve.errors import ConfigError, ModelError, OutputError

if TYPE_CHECKING:
    from datasieve.training.base import Base

INITS = ("zero-last", "Normal", "Normal-0.02", "XavierUniform", "XavierNormal", "KaimingUniform", "KaimingNormal")


@dataclass(frozen=True)
class Structure:
    """What each of the small networks looks like.

    Attributes:
        layers: widths as multiples of the input's; first and last are 1.
        activation: a name of `torch.nn.modules.activation` in lower case, or "linear". "swish" is Hardswish, as in
            A1111.
        layer_norm: a LayerNorm after every linear layer.
        dropout: chance after each layer, as long as `layers`, first and last 0; None for none.
        activate_output: the activation after the last layer too.
        init: one of `INITS`.
        cross_only: only the text's width, which leaves self-attention alone.
    """

    layers: tuple[float, ...] = (1, 2, 1)
    activation: str = "linear"
    layer_norm: bool = False
    dropout: tuple[float, ...] | None = None
    activate_output: bool = False
    init: str = "zero-last"
    cross_only: bool = False

    def __post_init__(self) -> None:
        if len(self.layers) < 2 or self.layers[0] != 1 or self.layers[-1] != 1 or min(self.layers) <= 0:
            raise ConfigError(f"the layer structure {list(self.layers)} must begin and end with 1, such as 1,2,1")
        if self.dropout is not None and (
            len(self.dropout) != len(self.layers)
            or self.dropout[0] != 0
            or self.dropout[-1] != 0
            or not all(0 <= p < 1 for p in self.dropout)
        ):
            raise ConfigError(
                f"dropout {list(self.dropout)} does not fit layers {list(self.layers)}",
                remedy="Give one chance for each layer, 0 first and last, such as 0,0.1,0.",
            )
        if self.init not in INITS:
            raise ConfigError(f"there is no start {self.init!r}", remedy=f"Choose from {', '.join(INITS)}.")
        if self.activation != "linear":
            activation(self.activation)


def activation(name: str) -> nn.Module:
    """Return the activation of that name. Raises ConfigError."""
    if name == "swish":
        return nn.Hardswish()
    kinds = {
        key.lower(): kind
        for key, kind in vars(torch.nn.modules.activation).items()
        if isinstance(kind, type) and issubclass(kind, nn.Module) and kind is not nn.MultiheadAttention
    }
    try:
        module: nn.Module = kinds[name.lower()]()
    except (KeyError, TypeError):
        raise ConfigError(
            f"there is no activation {name!r}", remedy="Use linear, relu, leakyrelu, elu, swish, tanh, mish, silu..."
        ) from None
    return module


def network(width: int, structure: Structure) -> nn.Sequential:
    """Build one network for inputs of that width; its parameters are named as A1111's files name them."""
    parts: list[nn.Module] = []
    last = len(structure.layers) - 2
    dropout = structure.dropout or (0.0,) * len(structure.layers)
    for i in range(last + 1):
        parts.append(nn.Linear(int(width * structure.layers[i]), int(width * structure.layers[i + 1])))
        if structure.activation != "linear" and (i < last or structure.activate_output):
            parts.append(activation(structure.activation))
        if structure.layer_norm:
            parts.append(nn.LayerNorm(int(width * structure.layers[i + 1])))
        if dropout[i + 1] > 0:
            parts.append(nn.Dropout(dropout[i + 1]))
    made = nn.Sequential(*parts)
    linears = [part for part in parts if isinstance(part, nn.Linear)]
    for part in parts:
        if isinstance(part, nn.LayerNorm):
            nn.init.normal_(part.weight, 0.0, 0.01)
            nn.init.zeros_(part.bias)
    for linear in linears:
        _start(linear, structure, is_last=linear is linears[-1])
    return made


def _start(linear: nn.Linear, structure: Structure, *, is_last: bool) -> None:
    nonlinearity: Any = "leaky_relu" if structure.activation == "leakyrelu" else "relu"
    nn.init.zeros_(linear.bias)
    match structure.init:
        case "zero-last":
            if is_last:
                nn.init.zeros_(linear.weight)
            else:
                nn.init.kaiming_normal_(linear.weight, nonlinearity="linear")
        case "Normal":
            nn.init.normal_(linear.weight, 0.0, 0.01)
        case "Normal-0.02":
            nn.init.normal_(linear.weight, 0.0, 0.02)
        case "XavierUniform":
            nn.init.xavier_uniform_(linear.weight)
        case "XavierNormal":
            nn.init.xavier_normal_(linear.weight)
        case "KaimingUniform":
            nn.init.kaiming_uniform_(linear.weight, nonlinearity=nonlinearity)
        case "KaimingNormal":
            nn.init.kaiming_normal_(linear.weight, nonlinearity=nonlinearity)


class Hypernetwork:
    """The networks of all widths. Implements `datasieve.training.adapter.Adapter`.

    Args:
        structure: what the networks look like.
        name: what the file is called inside.
        seed: of random starts.
    """

    kind = "hypernetwork"
    learns_text = False

    def __init__(self, structure: Structure | None = None, *, name: str = "hypernetwork", seed: int = 0) -> None:
        self.structure = structure or Structure()
        self.name = name
        self.seed = seed
        self.strength = 1.0
        self._hooks: list[Any] = []
        self._base: Base | None = None

    @classmethod
    def of_file(cls, file: Any, strength: float = 1.0) -> Hypernetwork:
        """Return a learned hypernetwork, ready to be attached.

        Args:
            file: a `datasieve.training.formats.hypernetworks.Hypernetwork`.
            strength: how much of it is added; 1 is as trained.
        """
        shape = Structure(
            layers=tuple(file.layer_structure),
            activation=file.activation or "linear",
            layer_norm=file.layer_norm,
            dropout=tuple(file.dropout_structure) if file.dropout_structure and any(file.dropout_structure) else None,
            activate_output=file.activate_output,
        )
        made = cls(shape, name=file.name)
        made.strength = strength
        made.networks = nn.ModuleDict()
        for width, pair in file.layers.items():
            modules = nn.ModuleList([network(int(width), shape), network(int(width), shape)])
            for module, state in zip(modules, pair, strict=True):
                module.load_state_dict({key.removeprefix("linear."): value for key, value in state.items()})
            made.networks[str(width)] = modules
        made.networks.eval()
        return made

    def attach(self, base: Base) -> None:
        """See `Adapter.attach`. Makes the networks when there are none yet."""
        present = set(_entries(base.unet).values())
        widths = {base.text_width} if self.structure.cross_only else present
        if not hasattr(self, "networks"):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed)
                self.networks = nn.ModuleDict(
                    {
                        str(width): nn.ModuleList([network(width, self.structure), network(width, self.structure)])
                        for width in sorted(widths)
                    }
                )
        if not present & {int(width) for width in self.networks}:
            raise ModelError(
                f"the hypernetwork is for widths {', '.join(self.networks)}, the attentions of {base.path} have "
                f"{', '.join(map(str, sorted(present)))}",
                remedy="A hypernetwork only fits the family of base that it was trained on.",
            )
        self.networks.to(device=base.device, dtype=torch.float32)
        self._base = base
        for layer_name, width in _entries(base.unet).items():
            cross = layer_name.split(".")[-2] == "attn2"
            if str(width) in self.networks and (cross or not self.structure.cross_only):
                pair: Any = self.networks[str(width)]
                which = pair[0] if layer_name.endswith("to_k") else pair[1]
                self._hooks.append(base.unet.get_submodule(layer_name).register_forward_pre_hook(self._hook(which)))

    def _hook(self, which: nn.Module) -> Any:
        def before(_: Any, arguments: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            x = arguments[0]
            # One rule for mixed precision: the trained part computes in float32, keys and values in the base's type.
            with torch.autocast(x.device.type, enabled=False):
                wide = x.float()
                strength = 1.0 if which.training else self.strength
                changed = wide + which(wide) * strength
            return (changed.to(x.dtype), *arguments[1:])

        return before

    def detach(self) -> None:
        """See `Adapter.detach`."""
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._base = [], None

    def named_parameters(self) -> Iterable[tuple[str, nn.Parameter]]:
        """See `Adapter.named_parameters`."""
        return self.networks.named_parameters()

    def state(self) -> Mapping[str, torch.Tensor]:
        """See `Adapter.state`."""
        return {key: value.detach().cpu().clone() for key, value in self.networks.state_dict().items()}

    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """See `Adapter.load_state`."""
        try:
            self.networks.load_state_dict(dict(state))
        except RuntimeError as error:
            raise ModelError(
                f"the checkpoint is of another hypernetwork: {str(error).splitlines()[-1].strip()}"
            ) from None

    def train(self, training: bool) -> None:
        """See `Adapter.train`."""
        self.networks.train(training)

    def tokens(self, captions: Sequence[str]) -> torch.Tensor:
        """See `Adapter.tokens`."""
        assert self._base is not None, "attach the adapter first"
        tokenizer = self._base.tokenizer
        found = tokenizer(
            list(captions),
            padding="max_length",
            truncation=True,
            max_length=int(tokenizer.model_max_length),
            return_tensors="pt",
        )
        return torch.as_tensor(found.input_ids)

    def after_step(self) -> None:
        """See `Adapter.after_step`: nothing is constrained."""

    def disturbance(self) -> float:
        """Return ||network(x)|| / ||x|| for normal x, the largest over the networks: 0 leaves the base as it is."""
        generator = torch.Generator().manual_seed(0)
        worst = 0.0
        self.networks.eval()
        with torch.no_grad():
            for width, pair in self.networks.items():
                modules: Any = pair
                x = torch.randn(64, int(width), generator=generator).to(next(modules.parameters()).device)
                worst = max(worst, *(float(part(x).norm() / x.norm()) for part in modules))
        return worst

    def export(self, path: Path, *, step: int) -> list[Path]:
        """See `Adapter.export`: A1111's `.pt` or our `.safetensors`, with the dropout taken out.

        Raises:
            OutputError: the file does not hold what was learned.
        """
        from datasieve.training.formats.hypernetworks import read_hypernetwork, write_hypernetwork

        file = self.as_file(step)
        write_hypernetwork(path, file)
        kept = read_hypernetwork(path)
        for width, (keys, values) in kept.layers.items():
            modules: Any = self.networks[str(width)]
            for stored, module in zip((keys, values), modules, strict=True):
                learned = [value.detach().cpu() for value in module.state_dict().values()]
                if not all(torch.equal(a, b) for a, b in zip(stored.values(), learned, strict=True)):
                    raise OutputError(f"{path} does not hold what was learned", remedy="Check the disk and try again.")
        return [path]

    def as_file(self, step: int) -> Any:
        """Return what is written to a file, a `datasieve.training.formats.hypernetworks.Hypernetwork`."""
        from datasieve.training.formats import hypernetworks as files

        shape = self.structure
        layers = {}
        for width, pair in self.networks.items():
            modules: Any = pair
            k, v = ({f"linear.{n}": t.detach().float().cpu() for n, t in m.state_dict().items()} for m in modules)
            layers[int(width)] = (k, v)
        return files.Hypernetwork(
            name=self.name,
            step=step,
            layers=layers,
            layer_structure=shape.layers,
            activation=shape.activation,
            layer_norm=shape.layer_norm,
            weight_init="Normal" if shape.init in ("zero-last", "Normal-0.02") else shape.init,
            dropout_structure=shape.dropout,
            activate_output=shape.activate_output,
            base_name=Path(self._base.path).name if self._base is not None else "",
        )


def _entries(unet: Any) -> dict[str, int]:
    """Return the width of what enters each `to_k` and `to_v` of the UNet's attentions."""
    return {
        name: int(module.in_features)
        for name, module in unet.named_modules()
        if name.endswith((".attn1.to_k", ".attn1.to_v", ".attn2.to_k", ".attn2.to_v"))
    }
