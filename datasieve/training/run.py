"""`train`: from a set and a base to a file that other tools load."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasieve.errors import ConfigError, InputError, OutputError
from datasieve.progress import Silent
from datasieve.sources.walk import is_report
from datasieve.storage import write_json, write_text
from datasieve.training.settings import to_toml

if TYPE_CHECKING:
    from datasieve.progress import Progress
    from datasieve.report import Report
    from datasieve.training.adapter import Adapter
    from datasieve.training.base import Base
    from datasieve.training.batches import Batches, Prompts
    from datasieve.training.examples import Example
    from datasieve.training.latents import Latents
    from datasieve.training.loop import Outcome
    from datasieve.training.settings import TrainSettings


@dataclass(frozen=True)
class Trained:
    """A finished run.

    Attributes:
        folder: log, checkpoints, samples and files.
        files: what was learned, for other tools.
        outcome: how the loop ended.
        report: the audit it used.
    """

    folder: Path
    files: list[Path]
    outcome: Outcome
    report: Report


def train(
    data: str | Path,
    base: str | Path,
    out: str | Path | None = None,
    *,
    settings: TrainSettings,
    resume: bool = False,
    anyway: bool = False,
    device: str | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Train on a set, audited first where it has not been.

    Args:
        data: a dataset, or the report of one.
        base: a diffusers folder, a checkpoint file, or a hub id in the cache.
        out: the run's folder; None: `<data>-<kind>` beside the data.
        settings: see `read_settings`.
        resume: go on with the run in `out`.
        anyway: train although the audit says "not trainable".
        device: "cpu", "cuda" or "cuda:N"; None: CUDA when there is one.
        progress: told how far it is.

    Raises:
        InputError: nothing usable, the verdict is "not trainable", or prompts lack the token.
        ModelError: the base cannot be used.
        ConfigError: a setting does not fit the set or the base.
        OutputError: the folder holds another run, or cannot be written.
        TrainingUnstable: the loss was not finite three times in a row.
    """
    from datasieve.training.base import load_base
    from datasieve.training.batches import Batches, Prompts, sampler_for
    from datasieve.training.examples import examples_of, held_out, regularisation_of
    from datasieve.training.latents import Latents
    from datasieve.training.loop import fit

    progress = progress or Silent()
    source = Path(data)
    folder = Path(out) if out is not None else source.absolute().with_name(f"{source.absolute().name}-{settings.kind}")
    _check_folder(folder, resume)
    world, rank = _join_processes()
    loaded = load_base(base, device=device or default_device(rank), dtype=settings.precision)
    resolution = settings.resolution or loaded.resolution
    report = _report(source, settings, resolution, progress)
    if report.verdict == "not trainable" and not anyway:
        raise InputError(
            f"the audit calls {source} not trainable: {'; '.join(report.run.get('reasons', []))}",
            remedy=f"See `datasieve show {report.path}`, or train nevertheless with --anyway.",
        )
    step = _size_step(loaded, resolution)
    options: dict[str, Any] = {"resolution": resolution, "step": step, "buckets": settings.buckets}
    everything = examples_of(report, loss_weights=settings.loss_weights, **options)
    names = _names(everything, settings)
    adapter = make_adapter(settings, names, name=folder.name)
    _prepare_base(loaded, settings)
    adapter.attach(loaded)
    try:
        shown, held = held_out(everything, settings.validation, settings.seed)
        if settings.regularisation:
            shown = [*shown, *_regularisation(settings, regularisation_of(Path(settings.regularisation), **options))]
        prompts = Prompts(everything, names, settings, must_hold=settings.kind == "ti")
        latents = Latents(loaded, folder / "latents", masks=settings.mask, unmasked_weight=settings.unmasked_weight)
        latents.prepare([*shown, *held], flip=settings.flip, progress=progress)
        sampler = sampler_for(shown, settings, report, world=world)
        if sampler.violations:
            progress.note(f"{sampler.violations} contradictory pairs share a step: there are too few other pictures")
        batches = Batches(shown, sampler, latents, prompts, loaded, settings, world=world, rank=rank)
        if rank == 0:
            _write_facts(folder, settings, loaded, report, shown, held, latents, prompts)
            _warn(adapter, settings, progress)
        outcome = fit(
            loaded,
            adapter,
            batches,
            held,
            settings,
            folder,
            progress=progress,
            resume=resume,
            on_sample=_sampler(loaded, adapter, batches, settings, folder) if rank == 0 else None,
        )
        files = [] if rank else export(adapter, folder, outcome.step)
    finally:
        adapter.detach()
    return Trained(folder, files, outcome, report)


def make_adapter(settings: TrainSettings, names: dict[str, str], *, name: str) -> Adapter:
    """Return the adapter that the settings describe, not attached yet."""
    if settings.kind == "ti":
        from datasieve.training.textual_inversion import TextualInversion, Token

        starts = settings.init
        tokens = [
            Token(word, settings.vectors, starts if isinstance(starts, str) else starts.get(concept, ""))
            for concept, word in names.items()
        ]
        return TextualInversion(tokens, norm_prior=settings.norm_prior, seed=settings.seed)
    from datasieve.training.hypernetwork import Hypernetwork, Structure

    structure = Structure(
        layers=settings.layers,
        activation=settings.activation,
        layer_norm=settings.layer_norm,
        dropout=settings.dropout or None,
        init=settings.network_init,
        cross_only=settings.cross_only,
    )
    return Hypernetwork(structure, name=name, seed=settings.seed)


def export(adapter: Adapter, folder: Path, step: int) -> list[Path]:
    """Write what was learned for other tools, and return the files."""
    suffix = ".safetensors" if adapter.kind == "ti" else ".pt"
    path = folder / f"{folder.name}{suffix}"
    return adapter.export(path, step=step)


def _report(source: Path, settings: TrainSettings, resolution: int, progress: Progress) -> Report:
    """Open the report that was named, or audit the set (quick when that was done before)."""
    from datasieve.config import Settings
    from datasieve.pipeline.run import audit
    from datasieve.report import open_report

    if source.is_dir() and is_report(str(source)):
        return open_report(source)
    chosen = Settings(target=settings.kind, trainer="datasieve", resolution=resolution, batch_size=settings.batch_size)
    return audit(source, settings=chosen, progress=progress)


def _names(examples: Sequence[Example], settings: TrainSettings) -> dict[str, str]:
    """Return the word of each concept, "" standing for all. Raises ConfigError when concepts lack one."""
    concepts = sorted({e.concept for e in examples})
    if isinstance(settings.token, dict):
        missing = [c for c in concepts if c not in settings.token]
        if missing:
            raise ConfigError(
                f"there is no token for {', '.join(map(repr, missing))}; the set's concepts are {', '.join(concepts)}",
                remedy="Give one --token CONCEPT=<word> for each.",
            )
        return {c: settings.token[c] for c in concepts}
    if settings.kind == "ti" and len(concepts) > 1:
        shown = " ".join(f"--token '{c}=<{c}>'" for c in concepts[:3])
        raise ConfigError(
            f"the set holds {len(concepts)} concepts ({', '.join(concepts[:6])}), and one token would be all of them",
            remedy=f"Give each its own, such as {shown}, or train on one folder.",
        )
    if settings.kind == "hypernetwork":
        plain = settings.init if isinstance(settings.init, str) else ""
        return {"": plain} if plain or len(concepts) == 1 else {c: c for c in concepts}
    return {"": settings.token}


def _regularisation(settings: TrainSettings, examples: list[Example]) -> list[Example]:
    if settings.kind == "ti":
        raise ConfigError(
            "regularisation pictures cannot change a token vector: their prompts do not hold the token",
            remedy="Leave out --regularisation, or train a hypernetwork.",
        )
    return examples


def _check_folder(folder: Path, resume: bool) -> None:
    if resume and not (folder / "checkpoints").is_dir():
        raise OutputError(f"{folder} holds no run to go on with", remedy="Start it without --resume.")
    if not resume and folder.is_dir() and any(folder.iterdir()):
        hint = "Go on with it by --resume, or choose" if (folder / "checkpoints").is_dir() else "Choose"
        raise OutputError(f"{folder} is not empty", remedy=f"{hint} another folder with --out.")


def _join_processes() -> tuple[int, int]:
    """Join the group that torchrun or accelerate started. Returns (processes, which of them this is)."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        return 1, 0
    import torch

    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    return world, torch.distributed.get_rank()


def default_device(rank: int) -> str:
    import torch

    return f"cuda:{int(os.environ.get('LOCAL_RANK', rank))}" if torch.cuda.is_available() else "cpu"


def _size_step(base: Base, resolution: int) -> int:
    """Return what sides are multiples of: 64 as the community has it, less for small bases."""
    halvings = len(base.unet.config.block_out_channels) - 1
    smallest = base.factor * 2**halvings
    return int(max(smallest, 64) if resolution >= 256 else smallest)


def _prepare_base(base: Base, settings: TrainSettings) -> None:
    if settings.checkpointing:
        base.unet.enable_gradient_checkpointing()
    if settings.compile:
        base.unet.compile()


def _warn(adapter: Adapter, settings: TrainSettings, progress: Progress) -> None:
    disturbance = getattr(adapter, "disturbance", None)
    if disturbance is not None and (share := disturbance()) > 0.2:
        progress.note(
            f"the start {settings.network_init} changes what attention sees by {share:.0%} before the first step; "
            "zero-last starts from the base as it is"
        )


def _write_facts(
    folder: Path,
    settings: TrainSettings,
    base: Base,
    report: Report,
    shown: Sequence[Example],
    held: Sequence[Example],
    latents: Latents,
    prompts: Prompts,
) -> None:
    """Write config.toml, run.json, and pictures.parquet: what each picture is shown as, and what it can never teach."""
    import pandas as pd

    from datasieve.storage import atomic_path

    write_text(folder / "config.toml", to_toml(settings))
    rows: list[dict[str, Any]] = [
        {
            "path": e.path,
            "concept": e.concept,
            "used": "held out" if e in held else ("regularisation" if e.is_prior else "trained on"),
            "prompt": prompts.choices(e)[0],
            "width": e.size[0],
            "height": e.size[1],
            "loss_weight": e.weight,
            "round_trip_error": latents.round_trip(e),
        }
        for e in [*shown, *held]
    ]
    with atomic_path(folder / "pictures.parquet") as path:
        pd.DataFrame(rows).to_parquet(path, index=False)
    facts = {
        "datasieve": version("datasieve"),
        "kind": settings.kind,
        "base": {"path": base.path, "family": base.family, "prediction": base.prediction, "identity": base.identity},
        "report": str(report.path.resolve()),
        "verdict": report.verdict,
        "template": prompts.template,
        "trained_on": len(shown),
        "held_out": [e.path for e in held],
    }
    write_json(folder / "run.json", facts)


def _sampler(base: Base, adapter: Adapter, batches: Batches, settings: TrainSettings, folder: Path) -> Any:
    """Return the function that draws the sample grid of a step: a prompt a row, the same seeds each time."""
    from datasieve.storage import atomic_path
    from datasieve.training.pictures import generate, grid

    names = list(dict.fromkeys(batches.prompts.names.values()))
    prompts = [line.replace("[name]", name) for name in names for line in settings.samples]

    def draw(step: int) -> None:
        if not prompts:
            return
        seeds = range(4)
        pictures = generate(base, prompts, adapter.tokens, seeds=seeds)
        with atomic_path(folder / "samples" / f"step-{step:07d}.png") as path:
            grid(pictures, len(seeds)).save(path, format="PNG")

    return draw
