"""Which pictures a step sees, with which words, noise and timesteps: all of it a function of the seed and the step.

Nothing is drawn from a global stream of random numbers. So a resumed run sees what an undisturbed one would have seen,
and two processes with half a batch each see what one process with the whole batch sees.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from datasieve.training.objective import noise_for, timesteps_for
from datasieve.training.prompts import check_tokens, fill, holds, read_template, vary

if TYPE_CHECKING:
    from datasieve.report import Report
    from datasieve.sampling.planned import PlannedBatchSampler
    from datasieve.training.adapter import Adapter
    from datasieve.training.base import Base
    from datasieve.training.examples import Example
    from datasieve.training.latents import Latents
    from datasieve.training.settings import TrainSettings


class Batch(NamedTuple):
    """One forward pass of one process.

    Attributes:
        latents, noise: (B, C, h, w).
        masks: (B, h, w) or None.
        prompts: what each picture is shown with.
        timesteps: (B,).
        weights: (B,) of each picture's loss.
        paths: names of the pictures.
    """

    latents: torch.Tensor
    noise: torch.Tensor
    masks: torch.Tensor | None
    prompts: list[str]
    timesteps: torch.Tensor
    weights: torch.Tensor
    paths: list[str]


def seed_of(*numbers: int) -> int:
    """Return a seed below 2**62 that depends on all the numbers."""
    words = np.random.SeedSequence([n & (2**63 - 1) for n in numbers]).generate_state(2, np.uint32)
    return int(words[0]) << 30 ^ int(words[1])


class Prompts:
    """What may be said of each picture.

    Args:
        examples: the pictures.
        names: placeholder, or word, of each concept; "" for every other.
        settings: template and variations.
        must_hold: every prompt must hold its picture's placeholder.

    Raises:
        InputError: it does not.
        ConfigError: the template cannot be read.
    """

    def __init__(
        self, examples: Sequence[Example], names: Mapping[str, str], settings: TrainSettings, *, must_hold: bool
    ) -> None:
        self.names, self.settings = names, settings
        self.template = settings.template if settings.template != "auto" else _fitting(examples, self.name, must_hold)
        self.lines = read_template(self.template)
        if must_hold:
            # A picture without a caption is shown with the subject's template.
            prompts = {e.path: self.choices(e) for e in examples if not e.is_prior}
            check_tokens(prompts, {e.path: self.name(e) for e in examples})

    def name(self, example: Example) -> str:
        """Return the word that stands for a picture's concept."""
        return self.names.get(example.concept, self.names.get("", ""))

    def choices(self, example: Example) -> list[str]:
        """Return every prompt the picture may be given, before tags are varied."""
        name = self.settings.init if example.is_prior and isinstance(self.settings.init, str) else self.name(example)
        lines = self.lines if example.caption or self.template not in ("caption", "name-caption") else ("[name]",)
        return [fill(line, name, example.caption) for line in lines]

    def draw(self, example: Example, seed: int) -> str:
        """Return one prompt for one showing."""
        draw = random.Random(seed)
        prompt = draw.choice(self.choices(example))
        if draw.random() < self.settings.caption_dropout:
            return ""
        varied = vary(
            prompt,
            draw,
            shuffle=self.settings.tag_shuffle,
            dropout=self.settings.tag_dropout,
            keep=self.settings.keep_tags,
        )
        # The token is never among the tags that fall away.
        name = self.name(example)
        return varied if not name or holds(varied, name) or not holds(prompt, name) else f"{name}, {varied}"


def _fitting(examples: Sequence[Example], name: object, must_hold: bool) -> str:
    captioned = [e for e in examples if e.caption]
    if not captioned:
        return "subject"
    if not must_hold or all(holds(e.caption, name(e)) for e in captioned):  # type: ignore[operator]
        return "caption"
    return "name-caption"


def sampler_for(
    examples: Sequence[Example], settings: TrainSettings, report: Report | None, *, world: int
) -> PlannedBatchSampler:
    """Return the batch sampler: full batches of one shape, and with "isolation" no contradictory pictures in a step.

    Args:
        examples: pictures to train on; those of the report carry their row in it.
        settings: of the run.
        report: where clusters and conflicts come from.
        world: processes; a batch is what all of them see at once.

    Raises:
        ReportError: isolation is asked for and the report holds no clusters.
    """
    from datasieve.sampling.columns import arrays_of
    from datasieve.sampling.isolation import SemanticIsolationBatchSampler

    clusters: list[str] = [""] * len(examples)
    concepts: list[str] | None = None
    conflicts: list[tuple[str, str]] = []
    if settings.sampling == "isolation" and report is not None:
        read = arrays_of(report)
        clusters = [str(read.clusters[e.row]) if e.row >= 0 else "prior" for e in examples]
        concepts = [str(read.concepts[e.row]) if e.row >= 0 else "prior" for e in examples]
        conflicts = [(str(a), str(b)) for a, b in read.conflicts if {str(a), str(b)} <= set(clusters)]
    priors = sum(e.is_prior for e in examples)
    subjects = len(examples) - priors
    # Regularisation pictures come as often as the others, as in kohya's trainer.
    repeats = [max(1, round(priors / subjects)) if not e.is_prior and priors > subjects else 1 for e in examples]
    if priors and priors < subjects:
        repeats = [max(1, round(subjects / priors)) if e.is_prior else 1 for e in examples]
    return SemanticIsolationBatchSampler(
        clusters,
        conflicts,
        concepts,
        batch_size=settings.batch_size * world,
        accumulation=settings.accumulation,
        buckets=np.array([e.size for e in examples], np.int64),
        repeats=np.array(repeats, np.int64),
        seed=settings.seed,
        num_replicas=1,
        rank=0,
        on_infeasible="relax",
    )


class Batches:
    """The batches of a run.

    Args:
        examples: pictures to train on.
        sampler: see `sampler_for`.
        latents, prompts: what is known of the pictures.
        base: for the number of timesteps.
        settings: of the run.
        world, rank: processes, and which of them this is.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        sampler: PlannedBatchSampler,
        latents: Latents,
        prompts: Prompts,
        base: Base,
        settings: TrainSettings,
        *,
        world: int = 1,
        rank: int = 0,
    ) -> None:
        self.examples, self.sampler, self.latents, self.prompts = examples, sampler, latents, prompts
        self.base, self.settings, self.world, self.rank = base, settings, world, rank
        self._epoch: tuple[int, np.ndarray] | None = None

    def rows(self, step: int, part: int) -> list[int]:
        """Return which pictures all processes together see in part `part` of a step."""
        number, of_epoch = step * self.settings.accumulation + part, len(self.sampler)
        epoch = number // of_epoch
        if self._epoch is None or self._epoch[0] != epoch:
            self._epoch = (epoch, self.sampler.batches_of(epoch))
        return [int(i) for i in self._epoch[1][number % of_epoch]]

    def at(self, step: int, part: int) -> Batch:
        """Return this process's batch in part `part` of a step."""
        settings = self.settings
        rows = self.rows(step, part)
        share = len(rows) // self.world
        mine = range(self.rank * share, (self.rank + 1) * share)
        seeds = [seed_of(settings.seed, step, part, place) for place in mine]
        shown = [self.examples[rows[place]] for place in mine]
        drawn = [
            self.latents.draw(e, seed, mirrored=settings.flip and seed & 1 == 1)
            for e, seed in zip(shown, seeds, strict=True)
        ]
        latents = torch.stack([d[0] for d in drawn])
        masks = None
        if any(d[1] is not None for d in drawn):
            masks = torch.stack([torch.ones(latents.shape[-2:]) if d[1] is None else d[1] for d in drawn])
        weights = [e.weight * (settings.prior_weight if e.is_prior else 1.0) for e in shown]
        device = self.base.device
        return Batch(
            latents=latents.to(device),
            noise=noise_for(latents.shape, seeds, offset=settings.noise_offset).to(device),
            masks=None if masks is None else masks.to(device),
            prompts=[self.prompts.draw(e, seed) for e, seed in zip(shown, seeds, strict=True)],
            timesteps=timesteps_for(seeds, len(self.base.noise.alphas_cumprod)).to(device),
            weights=torch.tensor(weights, device=device),
            paths=[e.path for e in shown],
        )


class TextStates:
    """The text encoder's output; kept by prompt when the adapter does not change it."""

    def __init__(self, base: Base, adapter: Adapter) -> None:
        self.base, self.adapter = base, adapter
        self._kept: dict[str, torch.Tensor] = {}

    def of(self, prompts: Sequence[str]) -> torch.Tensor:
        """Return (B, tokens, width)."""
        if self.adapter.learns_text:
            return self._encode(prompts)
        missing = [prompt for prompt in dict.fromkeys(prompts) if prompt not in self._kept]
        if missing:
            with torch.no_grad():
                self._kept |= dict(zip(missing, self._encode(missing), strict=True))
        return torch.stack([self._kept[prompt] for prompt in prompts])

    def _encode(self, prompts: Sequence[str]) -> torch.Tensor:
        return torch.as_tensor(self.base.text_encoder(self.adapter.tokens(prompts).to(self.base.device))[0])
