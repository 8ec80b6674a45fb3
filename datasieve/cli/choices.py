"""Choices and option types that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

# Written out so that --help need not import the settings; a test holds them to config.py.
TARGETS = ("ti", "hypernetwork", "lora")
BASES = ("sd15", "sd21", "sdxl", "sd3", "flux")
TRAINERS = ("kohya", "onetrainer", "ai-toolkit", "a1111", "diffusers", "simpletuner", "datasieve")

PATH: click.Path = click.Path(path_type=Path)


def names(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return rule ids given repeatedly or separated by commas; None when there are none."""
    found = tuple(name.strip() for value in values for name in value.split(",") if name.strip())
    return found or None
