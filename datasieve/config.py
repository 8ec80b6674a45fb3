"""Settings of an audit: defaults, then a TOML file, then the command line."""

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

Base = Literal["sd15", "sd21", "sdxl", "sd3", "flux"]
Target = Literal["ti", "hypernetwork", "lora"]
Trainer = Literal["kohya", "onetrainer", "ai-toolkit", "a1111", "diffusers", "simpletuner", "datasieve"]
ConceptBy = Literal["auto", "folder", "caption", "none"]
Embedder = Literal["auto", "lite0", "clip", "none"]
FailOn = Literal["never", "warning", "error"]

RESOLUTIONS: dict[str, int] = {"sd15": 512, "sd21": 768, "sdxl": 1024, "sd3": 1024, "flux": 1024}
"""Training resolution of each base in pixels: the side of the square whose area its latents were trained at."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="kebab", kw_only=True):
    """Everything that shapes an audit, under `[tool.datasieve]` in pyproject.toml or at the top of datasieve.toml.

    Attributes:
        select: run only rules with these ids or prefixes; empty means all default rules.
        ignore: leave these rules out.
        limits: rule id -> another limit.
        target: what will be trained (`for` in TOML).
        base: the base model; sets resolution and token limit.
        trainer: the program that will train; None leaves its habits unchecked.
        resolution: training resolution in pixels; None takes the base's.
        batch_size: images per training step, for buckets.
        concept_by: how images are told apart into concepts.
        max_pixels: images with more pixels are refused from their header.
        embedder: what turns pictures into vectors: "lite0", "clip" or "none"; "auto" is CLIP when `clip` names a model.
        clip: the CLIP model: MODEL/PRETRAINED, MODEL@FILE or a folder; "" is ViT-B-32/laion2b_s34b_b79k.
        fail_on: lowest severity of a finding that makes the exit code 1.
    """

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    limits: dict[str, float] = {}
    target: Target = msgspec.field(default="ti", name="for")
    base: Base = "sd15"
    trainer: Trainer | None = None
    resolution: int | None = None
    batch_size: int = 1
    concept_by: ConceptBy = "auto"
    max_pixels: int = 178_956_970
    embedder: Embedder = "auto"
    clip: str = ""
    fail_on: FailOn = "never"

    @property
    def pixels(self) -> int:
        """Training resolution in pixels: `resolution`, or that of `base`."""
        return self.resolution or RESOLUTIONS[self.base]

    def words(self) -> dict[str, Any]:
        """Return the settings that messages may name: trainer, resolution, batch-size, base, target."""
        return {
            "trainer": self.trainer,
            "resolution": self.pixels,
            "batch-size": self.batch_size,
            "base": self.base,
            "target": self.target,
        }


def find_config(start: Path) -> Path | None:
    """Return the nearest datasieve.toml, or pyproject.toml with a [tool.datasieve] table, at or above `start`."""
    for folder in (start, *start.parents):
        if (own := folder / "datasieve.toml").is_file():
            return own
        project = folder / "pyproject.toml"
        if project.is_file() and "datasieve" in _read(project).get("tool", {}):
            return project
    return None


def load_settings(path: Path | None, **overrides: Any) -> Settings:
    """Read settings from `path` (None: defaults) and replace those given as keyword arguments that are not None.

    Raises ConfigError naming the file and the setting.
    """
    table: dict[str, Any] = {}
    if path is not None:
        document = _read(path)
        table = document.get("tool", {}).get("datasieve", {}) if path.name == "pyproject.toml" else document
    names = dict(zip(Settings.__struct_fields__, Settings.__struct_encode_fields__, strict=True))
    given = {names[key]: value for key, value in overrides.items() if value is not None}
    for source, values in ((str(path), table), ("the options", given)):
        _check(values, source)
    settings = msgspec.convert({**table, **given}, Settings)
    for name in ("batch_size", "max_pixels", "resolution"):
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise ConfigError(f"{names[name]} is {value}", remedy="Give a number of at least 1.")
    return settings


def _check(values: dict[str, Any], source: str) -> None:
    try:
        msgspec.convert(values, Settings)
    except msgspec.ValidationError as error:
        known = ", ".join(Settings.__struct_encode_fields__)
        raise ConfigError(f"in {source}: {error}", remedy=f"Settings are: {known}.") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        return document
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(
            f"cannot read {path}: {error}", remedy="Mend the file, or name another with --config."
        ) from error
