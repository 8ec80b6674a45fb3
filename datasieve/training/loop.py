"""The training loop, top to bottom: batch, loss, gradients, checks, step, signs, checkpoint."""

from __future__ import annotations

import contextlib
import copy
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from datasieve.errors import ConfigError, TrainingUnstable
from datasieve.training import checkpoint
from datasieve.training.batches import Batches, TextStates, seed_of
from datasieve.training.early_warning import RelativeLoss, judge
from datasieve.training.logbook import Logbook
from datasieve.training.objective import losses, noise_for, timestep_weights
from datasieve.training.optimize import make_optimizer, make_scaler, rate_at
from datasieve.training.settings import to_toml

if TYPE_CHECKING:
    from datasieve.progress import Progress
    from datasieve.training.adapter import Adapter
    from datasieve.training.base import Base
    from datasieve.training.examples import Example
    from datasieve.training.settings import TrainSettings

SNAPSHOT_EVERY = 25
"""Steps between the copies in memory to which a step that is not finite goes back."""

STRIKES = 3
"""Steps in a row without a finite loss and gradient that end a run."""

LOWERED = 0.5
"""What the learning rate is multiplied by when the run had to go back."""


@dataclass
class Outcome:
    """How a run ended.

    Attributes:
        step: optimizer steps done.
        why: "finished", "out of time" or "interrupted".
        loss, validation: the last relative loss, and the losses on held-out pictures by step.
        events: what the loop did beside training, such as going back.
        seconds: of this call.
    """

    step: int
    why: str
    loss: float = float("nan")
    validation: dict[int, float] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class Progressing:
    """What changes from step to step besides weights; kept in every checkpoint."""

    step: int = 0
    rate_scale: float = 1.0
    held_warmup: int = 0
    strikes: int = 0
    relative: list[float] = field(default_factory=list)
    variances: list[float] = field(default_factory=list)
    judged_from: int = 0


def fit(
    base: Base,
    adapter: Adapter,
    batches: Batches,
    held: Sequence[Example],
    settings: TrainSettings,
    folder: Path,
    *,
    progress: Progress,
    resume: bool = False,
    on_sample: Any = None,
) -> Outcome:
    """Train an attached adapter until its steps, or its time, are over.

    Args:
        base, adapter: the adapter is attached and has its parameters.
        batches: what each step sees.
        held: pictures to measure the loss on, at fixed noise and timesteps.
        settings: of the run.
        folder: for log and checkpoints.
        progress: told of each step.
        resume: go on from the last checkpoint in `folder`.
        on_sample: called with the step when a sample grid is due.

    Raises:
        TrainingUnstable: three steps in a row had no finite loss; the last good state is saved.
        ConfigError: the checkpoint is of a run with other settings.
    """
    world = World(batches.world, batches.rank)
    parameters = [parameter for _, parameter in adapter.named_parameters()]
    optimizer = make_optimizer(settings, parameters)
    scaler = make_scaler(settings, base)
    text = TextStates(base, adapter)
    reference = RelativeLoss(len(base.noise.alphas_cumprod))
    now = Progressing()
    mean = [p.detach().clone() for p in parameters] if settings.ema else []

    def whole_state() -> dict[str, Any]:
        return copy.deepcopy(
            {
                "step": now.step,
                "now": vars(now),
                "adapter": dict(adapter.state()),
                "optimizer": optimizer.state_dict(),
                "mean": mean,
                "reference": reference.state(),
                "settings": to_toml(settings),
            }
        )

    def restore(state: dict[str, Any], *, keep: Sequence[str] = ()) -> None:
        kept = {name: getattr(now, name) for name in keep}
        adapter.load_state(state["adapter"])
        optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
        for old, new in zip(mean, state["mean"], strict=True):
            old.copy_(new)
        reference.load(state["reference"])
        vars(now).update(copy.deepcopy(state["now"]) | kept)

    checkpoints = folder / "checkpoints"
    if resume:
        restore(_resumable(checkpoints, settings))
    outcome = Outcome(now.step, "finished")
    log = Logbook(folder, upto=now.step) if world.is_first else None
    snapshot = healthy = whole_state()
    began, steps_per_epoch = time.monotonic(), max(1, len(batches.sampler) // settings.accumulation)
    window = max(10, min(50, steps_per_epoch))
    progress.stage("training", settings.steps - now.step)

    with _stops() as stop, contextlib.ExitStack() as closing:
        if log is not None:
            closing.callback(log.close)
        while now.step < settings.steps:
            if stop or (settings.minutes and time.monotonic() - began > settings.minutes * 60):
                outcome.why = "interrupted" if stop else "out of time"
                break
            step, started = now.step, time.monotonic()

            # Forward and backward. The loss of a step is the mean over all its pictures, however they are dealt out.
            adapter.train(True)
            torch.manual_seed(seed_of(settings.seed, step, batches.rank, 1))  # dropout
            optimizer.zero_grad(set_to_none=True)
            rate = rate_at(settings, step - now.held_warmup) * now.rate_scale
            for group in optimizer.param_groups:
                group["lr"] = rate
            each: list[float] = []
            moments: list[int] = []
            paths: list[str] = []
            for part in range(settings.accumulation):
                batch = batches.at(step, part)
                loss = losses(base, batch.latents, text.of(batch.prompts), batch.noise, batch.timesteps, batch.masks)
                weight = batch.weights * timestep_weights(base, batch.timesteps, settings.min_snr)
                count = len(loss) * world.size * settings.accumulation
                scaler.scale((loss * weight).sum() / count).backward()
                each += loss.detach().tolist()
                moments += batch.timesteps.tolist()
                paths += batch.paths
            scaler.unscale_(optimizer)
            world.sum_gradients(parameters)

            # Nothing that is not finite reaches the weights.
            norm = torch.nn.utils.clip_grad_norm_(parameters, settings.clip or float("inf"))
            relative = world.mean(reference.of(each, moments) if all(map(_finite, each)) else float("nan"))
            if not (_finite(float(norm)) and _finite(relative)):
                scaler.update()
                strikes = now.strikes + 1
                event = f"step {step}: the loss or its gradient is not finite; batch: {', '.join(paths)}"
                outcome.events.append(event)
                progress.note(event)
                if log is not None:
                    log.write(step, event="not finite", seconds=time.monotonic() - started)
                if not scaler.is_enabled() or strikes > 1:  # a first overflow of fp16 is how its scaler works
                    restore(snapshot)
                    now.rate_scale *= LOWERED
                now.strikes = strikes
                if strikes >= STRIKES:
                    restore(snapshot)
                    checkpoint.save(checkpoints, whole_state())
                    raise TrainingUnstable(
                        f"{STRIKES} steps in a row had no finite loss, the last at step {step} with {', '.join(paths)}",
                        remedy=f"The state of step {now.step} is saved in {checkpoints}. Lower --rate, or look at "
                        "these pictures.",
                    )
                # Another batch: what failed would fail again.
                now.step = max(now.step, step + 1)
                continue
            scaler.step(optimizer)
            scaler.update()
            if hasattr(adapter, "rate"):
                adapter.rate = rate
            adapter.after_step()
            for old, new in zip(mean, parameters, strict=bool(mean)) if mean else ():
                old.lerp_(new.detach(), 1 - settings.ema)
            now.step, now.strikes = step + 1, 0
            now.relative = [*now.relative, relative][-3 * window :]
            outcome.loss = relative

            # Signs of collapse.
            vectors = getattr(adapter, "vectors", None)
            variance = None
            if vectors is not None and now.step % window == 0:
                variance = float(vectors.detach().var(dim=1).mean() / base.token_table.weight.float().var(dim=1).mean())
                now.variances = [*now.variances, variance][-5:]
            action, bend, _ = judge(now.relative, now.variances, window)
            if action != "none" and now.step - now.judged_from >= 3 * window:
                now.judged_from = now.step
                outcome.events.append(f"step {now.step}: {action} (loss curvature {bend:.2f})")
                progress.note(outcome.events[-1])
                if action == "pause" and step < settings.warmup * settings.steps:
                    now.held_warmup += window
                if action == "roll back":
                    restore(healthy, keep=("step", "judged_from"))
                    now.rate_scale *= LOWERED
                    now.relative, now.variances = [], []
            else:
                action = "none"

            # Measure, save, show.
            validation = None
            due = now.step == settings.steps
            if held and settings.validate_every and (due or now.step % settings.validate_every == 0):
                with _averaged(parameters, mean):
                    validation = validate(base, adapter, batches, held, text)
                outcome.validation[now.step] = validation
            if now.step % SNAPSHOT_EVERY == 0:
                snapshot = whole_state()
            if settings.save_every and now.step % settings.save_every == 0:
                healthy = snapshot = whole_state()
                if world.is_first:
                    checkpoint.save(checkpoints, healthy)
            if log is not None:
                log.write(
                    now.step,
                    loss=sum(each) / len(each),
                    relative_loss=relative,
                    validation_loss=validation,
                    learning_rate=rate,
                    gradient_norm=float(norm),
                    clipped=int(bool(settings.clip) and float(norm) > settings.clip),
                    vector_norm=None if vectors is None else float(vectors.detach().norm(dim=1).mean()),
                    vector_variance=variance,
                    curvature=bend,
                    event=action if action != "none" else None,
                    seconds=time.monotonic() - started,
                )
            if on_sample is not None and settings.sample_every and (due or now.step % settings.sample_every == 0):
                with _averaged(parameters, mean):
                    adapter.train(False)
                    on_sample(now.step)
            progress.advance()

    if world.is_first:
        checkpoint.save(checkpoints, whole_state())
    if mean:
        for parameter, value in zip(parameters, mean, strict=True):
            parameter.data.copy_(value)
    adapter.train(False)
    outcome.step, outcome.seconds = now.step, time.monotonic() - began
    return outcome


@torch.no_grad()
def validate(base: Base, adapter: Adapter, batches: Batches, held: Sequence[Example], text: TextStates) -> float:
    """Return the mean loss of held-out pictures at four fixed timesteps, with fixed noise and their first prompt."""
    adapter.train(False)
    count = len(base.noise.alphas_cumprod)
    moments = [count * k // 8 for k in (1, 3, 5, 7)]
    found = []
    for i, example in enumerate(held):
        latents, mask = batches.latents.draw(example, 0)
        prompt = batches.prompts.choices(example)[0]
        states = text.of([prompt]).expand(len(moments), -1, -1)
        stack = latents.to(base.device).expand(len(moments), *latents.shape)
        noise = noise_for(stack.shape, [seed_of(11, i, m) for m in moments]).to(base.device)
        masks = None if mask is None else mask.to(base.device).expand(len(moments), *mask.shape)
        found.append(losses(base, stack, states, noise, torch.tensor(moments, device=base.device), masks).mean())
    return float(torch.stack(found).mean())


class World:
    """The processes of a run. Gradients are added up by hand: an adapter is small, and nothing has to be wrapped."""

    def __init__(self, size: int, rank: int) -> None:
        self.size, self.is_first = size, rank == 0

    def sum_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Make every process hold the sum of all processes' gradients."""
        if self.size == 1:
            return
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            torch.distributed.all_reduce(parameter.grad)

    def mean(self, value: float) -> float:
        """Return the mean over all processes; not finite when any is not."""
        if self.size == 1:
            return value
        held = torch.tensor(value, dtype=torch.float64)
        torch.distributed.all_reduce(held)
        return float(held) / self.size


def _finite(value: float) -> bool:
    return value - value == 0


def _resumable(folder: Path, settings: TrainSettings) -> dict[str, Any]:
    kept = checkpoint.found(folder)
    if not kept:
        raise ConfigError(f"{folder} holds no checkpoint to go on from", remedy="Start the run without --resume.")
    state = checkpoint.load(kept[-1])
    mine, theirs = to_toml(settings).splitlines(), str(state["settings"]).splitlines()
    other = [line for line in theirs if line not in mine]
    if other:
        raise ConfigError(
            f"the run in {folder.parent} has other settings: {'; '.join(other)}",
            remedy="Go on with the same settings, or start another run in another --out.",
        )
    return state


@contextlib.contextmanager
def _averaged(parameters: Sequence[torch.nn.Parameter], mean: Sequence[torch.Tensor]) -> Iterator[None]:
    """Put the exponential mean in the parameters' place for a while."""
    if not mean:
        yield
        return
    own = [p.detach().clone() for p in parameters]
    for parameter, value in zip(parameters, mean, strict=True):
        parameter.data.copy_(value)
    try:
        yield
    finally:
        for parameter, value in zip(parameters, own, strict=True):
            parameter.data.copy_(value)


@contextlib.contextmanager
def _stops() -> Iterator[list[int]]:
    """Collect the first Ctrl-C, so that the step at hand is finished and saved; the second acts at once."""
    asked: list[int] = []

    def first(number: int, _: Any) -> None:
        asked.append(number)
        signal.signal(signal.SIGINT, before)

    try:
        before = signal.signal(signal.SIGINT, first)
    except ValueError:  # not in the main thread: nobody presses keys there
        yield asked
        return
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
