"""`datasieve train`: Textual Inversion and hypernetworks on an audited set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datasieve.cli.choices import PATH

if TYPE_CHECKING:
    from collections.abc import Callable

    from datasieve.training.run import Trained


def _shared(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that every kind of training has."""
    options = [
        click.option("--data", type=PATH, required=True, metavar="SET", help="A set of images, or the report of one."),
        click.option("--base", metavar="MODEL", required=True,
                     help="The base model: a diffusers folder, a checkpoint file, or a hub id in the cache."),
        click.option("--out", type=PATH, metavar="FOLDER", help="Where the run goes.  [default: SET-KIND beside SET]"),
        click.option("--config", type=PATH, metavar="FILE", help="Settings in TOML; options here go before it."),
        click.option("--write-config", is_flag=True, help="Print every setting as TOML and do nothing else."),
        click.option("--steps", type=int, help="Optimizer steps."),
        click.option("--rate", "learning_rate", type=float, help="Peak learning rate."),
        click.option("--batch-size", type=int, help="Pictures of a forward pass.  [default: 4]"),
        click.option("--accumulation", type=int, help="Forward passes of a step.  [default: 1]"),
        click.option("--template", metavar="NAME|FILE",
                     help="Prompts: subject, style, caption, name-caption, or a file with one a line.  "
                     "[default: what fits the captions]"),
        click.option("--resolution", type=int, help="In pixels.  [default: the base's]"),
        click.option("--sampling", type=click.Choice(("random", "isolation")),
                     help="Keep contradictory pictures out of each other's steps.  [default: random]"),
        click.option("--mask", type=click.Choice(("off", "alpha", "file")),
                     help="Where the loss counts: everywhere, or by a mask.  [default: off]"),
        click.option("--precision", type=click.Choice(("fp32", "bf16", "fp16")), help="Of the base.  [default: fp32]"),
        click.option("--device", metavar="DEVICE", help="cpu, cuda or cuda:N.  [default: CUDA if there is one]"),
        click.option("--minutes", type=float, help="Stop after that time; the run is saved and can be resumed."),
        click.option("--seed", type=int, help="Of everything that is drawn.  [default: 0]"),
        click.option("--resume", is_flag=True, help="Go on with the run in --out."),
        click.option("--anyway", is_flag=True, help="Train although the audit says: not trainable."),
        click.option("-q", "--quiet", is_flag=True, help="No progress and no notes."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def _pairs(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> str | dict[str, str] | None:
    """Return one value, or a table when they are given as CONCEPT=VALUE."""
    if not values:
        return None
    if len(values) == 1 and "=" not in values[0]:
        return values[0]
    if not all("=" in value for value in values):
        raise click.BadParameter("give one value, or CONCEPT=VALUE for each concept", ctx, parameter)
    return dict(value.split("=", 1) for value in values)


def _numbers(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[float, ...] | None:
    if value is None:
        return None
    try:
        return tuple(float(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of numbers such as 1,2,1", ctx, parameter) from None


@click.group("train", short_help="Train Textual Inversion or a hypernetwork on a set.")
def command() -> None:
    """Train on a set of images; it is audited first where it has not been.

    \b
    Examples:
      datasieve train ti --data photos --base sd15 --token "<my-cat>" --init cat
      datasieve train hypernetwork --data photos --base sd15 --init cat
      datasieve train ti --data photos --base sd15 --write-config > ti.toml
    """


@command.command("ti", short_help="Teach a new word to the text encoder.")
@_shared
@click.option("--token", multiple=True, callback=_pairs, metavar="WORD",
              help='The new word, such as "<my-cat>"; CONCEPT=WORD for several.  [default: <concept>]')  # fmt: skip
@click.option("--init", multiple=True, callback=_pairs, metavar="WORDS",
              help="What it starts from, such as cat.  [default: like a random word]")  # fmt: skip
@click.option("--vectors", type=int, help="Token vectors of each word.  [default: 2]")
@click.option("--norm-prior", type=click.Choice(("none", "pull", "rescale")),
              help="What holds the vectors' norm at the vocabulary's.  [default: pull]")  # fmt: skip
def textual_inversion(**options: Any) -> int:
    """Train Textual Inversion: new token vectors, everything else stays as it is.

    Writes FOLDER/NAME.safetensors, which A1111, ComfyUI, kohya's scripts and diffusers load.
    """
    return _run("ti", **options)


@command.command("hypernetwork", short_help="Train small networks on the attention's inputs.")
@_shared
@click.option("--init", multiple=True, callback=_pairs, metavar="WORDS",
              help="What [name] stands for in prompts, such as cat.  [default: the concept]")  # fmt: skip
@click.option("--layers", callback=_numbers, metavar="LIST",
              help="Widths as multiples of the input's.  [default: 1,2,1]")  # fmt: skip
@click.option("--activation", metavar="NAME", help="linear, relu, swish, mish...  [default: linear]")
@click.option("--layer-norm/--no-layer-norm", default=None, help="Layer norm after each layer.  [default: none]")
@click.option("--dropout", callback=_numbers, metavar="LIST", help="Chance after each layer, such as 0,0.1,0.")
@click.option("--network-init", metavar="NAME", help="zero-last, Normal, XavierNormal...  [default: zero-last]")
@click.option(
    "--cross-only/--all-attention", default=None, help="Leave self-attention alone.  [default: all attention]"
)
def hypernetwork(**options: Any) -> int:
    """Train a hypernetwork of the community's residual kind.

    Writes FOLDER/NAME.pt, which A1111 and ComfyUI load.
    """
    return _run("hypernetwork", **options)


def _run(
    kind: Any,
    *,
    data: Path,
    base: str,
    out: Path | None,
    config: Path | None,
    write_config: bool,
    resume: bool,
    anyway: bool,
    device: str | None,
    quiet: bool,
    **options: Any,
) -> int:
    from datasieve.training.settings import read_settings, to_toml

    settings = read_settings(kind, config, **options)
    if write_config:
        click.echo(to_toml(settings), nl=False)
        return 0
    from datasieve.progress import Silent
    from datasieve.reporting.bar import bar
    from datasieve.reporting.screen import stderr_console
    from datasieve.training.run import train

    arguments: dict[str, Any] = {"settings": settings, "resume": resume, "anyway": anyway, "device": device}
    try:
        if quiet:
            done = train(data, base, out, progress=Silent(), **arguments)
        else:
            with bar(stderr_console()) as drawn:
                done = train(data, base, out, progress=drawn, **arguments)
    except KeyboardInterrupt:
        click.echo("Interrupted. Run the same command with --resume to go on from the last checkpoint.", err=True)
        return 130
    _print(done)
    if done.outcome.why == "interrupted":
        click.echo("Interrupted. Run the same command with --resume to go on.", err=True)
        return 130
    return 0


def _print(done: Trained) -> None:
    from datasieve.reporting.summary import here
    from datasieve.reporting.text import safe, write_out

    outcome = done.outcome
    lines = [f"Steps      {outcome.step} ({outcome.why}), {outcome.seconds:.0f} s"]
    if outcome.loss == outcome.loss:
        lines.append(f"Loss       {outcome.loss:.2f} times what it was at the beginning")
    if outcome.validation:
        first, last = next(iter(outcome.validation.items())), list(outcome.validation.items())[-1]
        lines.append(
            f"Held out   {last[1]:.4f} at step {last[0]}"
            + (f", {first[1]:.4f} at step {first[0]}" if first[0] != last[0] else "")
        )
    lines += [f"Event      {safe(event)}" for event in outcome.events[:10]]
    lines += [f"Learned    {safe(str(here(file)))}" for file in done.files]
    lines.append(f"Run        {safe(str(here(done.folder)))} (log.csv, samples, checkpoints, pictures.parquet)")
    write_out("\n".join(lines) + "\n", machine=False)
