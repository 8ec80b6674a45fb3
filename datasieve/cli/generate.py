"""`datasieve generate`: pictures of a prompt, to see what was learned."""

from __future__ import annotations

from pathlib import Path

import click

from datasieve.cli.choices import PATH


def _seeds(ctx: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        if "-" in value:
            first, last = value.split("-")
            found = tuple(range(int(first), int(last) + 1))
        else:
            found = tuple(int(part) for part in value.split(","))
    except ValueError:
        found = ()
    if not found or len(found) > 256:
        raise click.BadParameter(f"{value!r} is not a list of seeds such as 0,1,2 or 0-7", ctx, parameter)
    return found


def _adapters(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> list[tuple[Path, float]]:
    found = []
    for value in values:
        # FILE:0.7 unless a file is really called so; a drive letter's colon is followed by no number.
        head, _, tail = value.rpartition(":")
        try:
            found.append((Path(value), 1.0) if not head or Path(value).exists() else (Path(head), float(tail)))
        except ValueError:
            found.append((Path(value), 1.0))
    for path, _ in found:
        if not path.is_file():
            raise click.BadParameter(f"there is no file {path}", ctx, parameter)
    return found


@click.command("generate", short_help="Draw a prompt with a base and learned files.")
@click.option(
    "--base", metavar="MODEL", required=True, help="A diffusers folder, a checkpoint, or a hub id in the cache."
)
@click.option("--with", "adapters", multiple=True, callback=_adapters, metavar="FILE[:STRENGTH]",
              help="An embedding or hypernetwork; repeat for several.")  # fmt: skip
@click.option("--prompt", multiple=True, required=True, help="What to draw; repeat for several rows.")
@click.option("--negative", default="", help="What to lead away from.")
@click.option("--seeds", default="0-3", callback=_seeds, show_default=True, metavar="LIST", help="One picture each.")
@click.option("--steps", type=click.IntRange(1, 1000), default=25, show_default=True, help="Steps of the sampler.")
@click.option("--guidance", type=float, default=5.0, show_default=True, help="Scale of guidance; 1 is without.")
@click.option("--size", metavar="WxH", help="In pixels.  [default: the base's]")
@click.option("--out", type=PATH, default="grid.png", show_default=True, metavar="FILE", help="The grid, a PNG.")
@click.option("--compare", is_flag=True, help="Also draw each row by the base alone, above it.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option("--device", metavar="DEVICE", help="cpu, cuda or cuda:N.  [default: CUDA if there is one]")
def command(
    base: str,
    adapters: list[tuple[Path, float]],
    prompt: tuple[str, ...],
    negative: str,
    seeds: tuple[int, ...],
    steps: int,
    guidance: float,
    size: str | None,
    out: Path,
    compare: bool,
    force: bool,
    device: str | None,
) -> int:
    """Draw every prompt with every seed into one grid, a row for each prompt.

    An embedding's word is the one in its file; this command prints it.

    \b
    Examples:
      datasieve generate --base sd15 --with my-cat.safetensors --prompt "a photo of <my-cat>"
      datasieve generate --base sd15 --with style.pt:0.7 --prompt "a house" --compare
    """
    from datasieve.errors import ConfigError, OutputError
    from datasieve.reporting.summary import here
    from datasieve.reporting.text import safe
    from datasieve.storage import atomic_path
    from datasieve.training.base import load_base
    from datasieve.training.pictures import generate, grid
    from datasieve.training.run import default_device
    from datasieve.training.use import adapted, plain_tokens

    if out.suffix.lower() != ".png":
        raise ConfigError(f"{out} should end in .png", remedy="Name a PNG file.")
    if out.exists() and not force:
        raise OutputError(f"{out} is there already", remedy="Choose another --out, or replace it with --force.")
    loaded = load_base(base, device=device or default_device(0))
    shape = _size(size, loaded.factor * 2 ** (len(loaded.unet.config.block_out_channels) - 1))
    rows = []
    for line in prompt:
        if compare:
            rows += generate(loaded, [line], plain_tokens(loaded), seeds=seeds, steps=steps, guidance=guidance,
                             negative=negative, size=shape)  # fmt: skip
        with adapted(loaded, adapters) as tokens:
            rows += generate(loaded, [line], tokens, seeds=seeds, steps=steps, guidance=guidance,
                             negative=negative, size=shape)  # fmt: skip
    with atomic_path(out) as path:
        grid(rows, len(seeds)).save(path, format="PNG")
    click.echo(f"{len(rows)} pictures in {safe(str(here(out)))}")
    return 0


def _size(value: str | None, step: int) -> tuple[int, int] | None:
    from datasieve.errors import ConfigError

    if value is None:
        return None
    try:
        width, height = (int(part) for part in value.lower().split("x"))
    except ValueError:
        raise ConfigError(f"{value!r} is no size", remedy="Give it as WIDTHxHEIGHT, such as 512x768.") from None
    if min(width, height) < step or width % step or height % step or max(width, height) > 4096:
        raise ConfigError(f"{value}: both sides must be multiples of {step}, and at most 4096")
    return width, height
