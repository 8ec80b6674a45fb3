"""Settings of a training run: the community's defaults for each adapter, then a TOML file, then the command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Literal

import msgspec

from datasieve.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Kind = Literal["ti", "hypernetwork"]
Schedule = Literal["constant", "linear", "cosine"]
Optimizer = Literal["adamw", "adamw8bit", "prodigy"]
Precision = Literal["fp32", "bf16", "fp16"]
Sampling = Literal["random", "isolation"]
Mask = Literal["off", "alpha", "file"]


class TrainSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab", kw_only=True):
    """Everything that shapes a run. Rates are per optimizer step; shares and chances lie in 0..1.

    Attributes:
        kind: what is trained.
        token: TI: the placeholder of a set with one concept; concept -> placeholder for several.
        init: TI: words each placeholder starts from; "" draws vectors like the vocabulary's.
        vectors: TI: token vectors of each placeholder.
        norm_prior: TI: "none", "pull" or "rescale", see `TextualInversion`.
        layers, activation, layer_norm, dropout, network_init, cross_only: hypernetwork, see `Structure`.
        template: "subject", "style", "caption", "name-caption", or a text file; "auto" is "subject" for a set without
            captions, else "caption" when every caption holds the token, else "name-caption".
        tag_shuffle, tag_dropout, keep_tags: see `prompts.vary`.
        caption_dropout: chance of an empty prompt (hypernetworks only: a TI prompt without its token teaches nothing).
        resolution: in pixels; None takes the base's.
        buckets: aspect-ratio buckets as kohya makes them; off crops every picture to a square.
        flip: show each picture mirrored half of the time.
        mask: loss masks from the pictures' alpha channels, or from `NAME-masklabel.png` files.
        unmasked_weight: weight of the loss where the mask is black.
        regularisation: a folder of pictures of the class without the subject.
        prior_weight: weight of their loss.
        loss_weights: the report's column to weight each picture's loss by; "" weighs all alike.
        steps: optimizer steps.
        batch_size, accumulation: pictures of a forward pass, and passes of a step, on each process.
        learning_rate, schedule, warmup: peak rate, its course, and the share of steps to reach it.
        optimizer, weight_decay, clip: clip bounds the gradients' norm; 0 leaves it free.
        min_snr: gamma of Hang et al. 2023; 0 weighs all timesteps alike.
        noise_offset: strength of a shared offset of each channel's noise; 0 for none.
        ema: decay of an exponential mean of the parameters, which is what is saved; 0 for none.
        precision: of the base's network; what is trained stays float32.
        checkpointing: recompute activations instead of keeping them.
        compile: torch.compile the network.
        sampling: "isolation" keeps contradictory pictures out of each other's steps; needs clusters in the report.
        validation: share of pictures held out to measure the loss on, at most 8 pictures; 0 for none.
        validate_every, save_every, sample_every: steps between; 0 for never.
        samples: prompts of the sample grid, with [name].
        minutes: stop after that time, saved; 0 for no limit.
        seed: of everything that is drawn.
    """

    kind: Kind
    token: str | dict[str, str] = "<concept>"
    init: str | dict[str, str] = ""
    vectors: int = 2
    norm_prior: Literal["none", "pull", "rescale"] = "pull"
    layers: tuple[float, ...] = (1.0, 2.0, 1.0)
    activation: str = "linear"
    layer_norm: bool = False
    dropout: tuple[float, ...] = ()
    network_init: str = "zero-last"
    cross_only: bool = False
    template: str = "auto"
    tag_shuffle: bool = False
    tag_dropout: float = 0.0
    keep_tags: int = 0
    caption_dropout: float = 0.0
    resolution: int | None = None
    buckets: bool = True
    flip: bool = False
    mask: Mask = "off"
    unmasked_weight: float = 0.1
    regularisation: str = ""
    prior_weight: float = 1.0
    loss_weights: str = ""
    steps: int = 1500
    batch_size: int = 4
    accumulation: int = 1
    learning_rate: float = 5e-3
    schedule: Schedule = "cosine"
    warmup: float = 0.05
    optimizer: Optimizer = "adamw"
    weight_decay: float = 0.0
    clip: float = 1.0
    min_snr: float = 0.0
    noise_offset: float = 0.0
    ema: float = 0.0
    precision: Precision = "fp32"
    checkpointing: bool = False
    compile: bool = False
    sampling: Sampling = "random"
    validation: float = 0.1
    validate_every: int = 100
    save_every: int = 250
    sample_every: int = 250
    samples: tuple[str, ...] = ("a photo of [name]", "[name] on a white background", "a close-up of [name]")
    minutes: float = 0.0
    seed: int = 0


DEFAULTS: dict[Kind, dict[str, Any]] = {
    # A1111's and invoke-training's rate for vectors of SD 1.x; warm-up and cosine keep the late steps quiet.
    "ti": {"learning-rate": 5e-3, "steps": 1500},
    # Ten times A1111's 1e-5: its files start from small random weights, ours from zero.
    "hypernetwork": {"learning-rate": 1e-4, "steps": 2000, "caption-dropout": 0.05},
}

_BOUNDS = {
    "vectors": (1, 75),
    "steps": (1, 10_000_000),
    "batch_size": (1, 4096),
    "accumulation": (1, 4096),
    "learning_rate": (0.0, 10.0),
    "warmup": (0.0, 1.0),
    "tag_dropout": (0.0, 1.0),
    "caption_dropout": (0.0, 1.0),
    "unmasked_weight": (0.0, 1.0),
    "ema": (0.0, 0.99999),
    "validation": (0.0, 0.9),
    "clip": (0.0, 1e9),
    "min_snr": (0.0, 1e9),
    "weight_decay": (0.0, 1.0),
}


def read_settings(kind: Kind, file: Path | None = None, **overrides: Any) -> TrainSettings:
    """Return the defaults of a kind, changed by a TOML file and then by overrides (None leaves a value alone).

    Raises:
        ConfigError: the file cannot be read, a name is unknown, or a value is out of range.
    """
    values: dict[str, Any] = dict(DEFAULTS[kind])
    if file is not None:
        try:
            values |= tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigError(f"{file} cannot be read: {error}", remedy="Print one with --write-config.") from None
        if values.get("kind", kind) != kind:
            raise ConfigError(f"{file} is for {values['kind']}, not {kind}", remedy="Print one with --write-config.")
    values |= {name.replace("_", "-"): value for name, value in overrides.items() if value is not None}
    try:
        settings = msgspec.convert(values | {"kind": kind}, TrainSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"a training setting is wrong: {error}", remedy="See them all with --write-config.") from None
    for name, (low, high) in _BOUNDS.items():
        value = getattr(settings, name)
        if not low <= value <= high:
            raise ConfigError(f"{name.replace('_', '-')} = {value} is not within {low} to {high}")
    if kind == "ti" and settings.caption_dropout > 0:
        raise ConfigError(
            "caption-dropout is for hypernetworks: an empty prompt does not hold the token, and teaches it nothing"
        )
    return settings


def to_toml(settings: TrainSettings) -> str:
    """Return the settings as the TOML that `read_settings` reads."""
    lines = []
    for name, value in msgspec.to_builtins(settings).items():
        if value is not None and not isinstance(value, dict):
            lines.append(f"{name} = {_toml(value)}")
    for name, value in msgspec.to_builtins(settings).items():
        if isinstance(value, dict):
            lines += ["", f"[{name}]", *(f"{_toml(k)} = {_toml(v)}" for k, v in value.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for DEL, which TOML wants escaped.
        return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    return repr(value)
