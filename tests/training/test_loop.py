import os
import signal

import pytest
import torch

from datasieve.errors import ConfigError, ModelError, TrainingUnstable
from datasieve.training import checkpoint, logbook, loop

from .conftest import settings_for


def log_of(folder, *columns):
    return [tuple(row[c] for c in columns) for row in logbook.read(folder)]


class Interrupting:
    """A progress that presses Ctrl-C after so many steps."""

    def __init__(self, after):
        self.left = after

    def stage(self, name, total):
        pass

    def note(self, message):
        pass

    def advance(self, items=1):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("kind", ["ti", "hypernetwork"])
def test_a_run_that_was_stopped_and_resumed_is_the_run_that_was_not(bench, kind):
    options = {"dropout": (0, 0.2, 0)} if kind == "hypernetwork" else {}
    settings = settings_for(kind, ema=0.9, **options)
    bench.run(settings, name="whole")
    whole = bench.adapter.state()
    outcome = bench.run(settings, name="halves", progress=Interrupting(3))
    assert (outcome.step, outcome.why) == (3, "interrupted")
    outcome = bench.run(settings, name="halves", resume=True)
    assert (outcome.step, outcome.why) == (6, "finished")
    halves = bench.adapter.state()
    assert all(torch.equal(whole[key], halves[key]) for key in whole)
    columns = ("step", "loss", "gradient_norm", "learning_rate")
    assert log_of(bench.folder / "whole", *columns) == log_of(bench.folder / "halves", *columns)


def test_the_log_has_a_line_a_step_as_csv_and_parquet(bench):
    import pandas as pd

    bench.run(settings_for("ti", validate_every=3), held=1)
    rows = logbook.read(bench.folder / "run")
    assert [row["step"] for row in rows] == ["1", "2", "3", "4", "5", "6"]
    assert [bool(row["validation_loss"]) for row in rows] == [False, False, True, False, False, True]
    table = pd.read_parquet(bench.folder / "run" / "log.parquet")
    assert table["step"].tolist() == [1, 2, 3, 4, 5, 6]


def test_warm_up_rises_and_the_cosine_falls(bench):
    bench.run(settings_for("ti", steps=10, warmup=0.3, learning_rate=1e-3))
    rates = [float(rate) for (rate,) in log_of(bench.folder / "run", "learning_rate")]
    assert rates[:4] == pytest.approx([2.5e-4, 5e-4, 7.5e-4, 1e-3], rel=1e-5)
    assert rates[3:] == sorted(rates[3:], reverse=True)
    # cos at the last of seven steps: 0.5 (1 + cos(6/7 pi))
    assert rates[-1] == pytest.approx(1e-3 * 0.0495156, rel=1e-4)


def poisoned(monkeypatch, steps, value=float("nan")):
    """Make the loss of these steps not finite."""
    real, calls = loop.losses, []

    def losses(*arguments):
        calls.append(1)
        found = real(*arguments)
        return found * value if len(calls) - 1 in steps else found

    monkeypatch.setattr(loop, "losses", losses)


def test_one_loss_that_is_not_finite_is_skipped_its_pictures_named_and_the_rate_lowered(bench, monkeypatch):
    poisoned(monkeypatch, {2})
    outcome = bench.run(settings_for("ti", schedule="constant", warmup=0.0))
    assert outcome.why == "finished"
    assert len(outcome.events) == 1
    assert "step 2" in outcome.events[0]
    assert ".jpg" in outcome.events[0]
    assert bench.adapter.vectors.isfinite().all()
    rates = [rate for rate, event in log_of(bench.folder / "run", "learning_rate", "event") if not event]
    assert [float(rates[0]), float(rates[-1])] == pytest.approx([5e-3, 2.5e-3])


def test_an_infinite_gradient_never_reaches_the_weights(bench, monkeypatch):
    poisoned(monkeypatch, {1}, value=float("inf"))
    bench.run(settings_for("hypernetwork"))
    assert all(parameter.isfinite().all() for _, parameter in bench.adapter.named_parameters())


def test_three_in_a_row_stop_the_run_with_the_last_good_state_saved(bench, monkeypatch):
    poisoned(monkeypatch, set(range(3, 100)))
    with pytest.raises(TrainingUnstable, match="3 steps in a row") as caught:
        bench.run(settings_for("ti", steps=50))
    assert caught.value.exit_code == 3
    assert ".jpg" in caught.value.message
    kept = checkpoint.load(checkpoint.found(bench.folder / "run" / "checkpoints")[-1])
    assert kept["adapter"]["vectors"].isfinite().all()


def test_accumulated_parts_make_one_step_of_the_same_mean(bench):
    """Two parts of two pictures step as far as their mean loss says, not twice as far."""
    bench.run(settings_for("ti", accumulation=2, steps=1))
    two = float(log_of(bench.folder / "run", "gradient_norm")[0][0])
    bench.run(settings_for("ti", batch_size=4, steps=1), name="one")
    one = float(log_of(bench.folder / "one", "gradient_norm")[0][0])
    assert two == pytest.approx(one, rel=1.0)  # other noise, same size: a sum would be about twice


def test_settings_that_changed_are_named_on_resuming(bench):
    bench.run(settings_for("ti"))
    with pytest.raises(ConfigError, match=r"seed = 0"):
        bench.run(settings_for("ti", seed=1), resume=True)


def test_a_damaged_checkpoint_is_told_by_name(bench):
    bench.run(settings_for("ti"))
    file = checkpoint.found(bench.folder / "run" / "checkpoints")[-1]
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ModelError, match=file.name):
        bench.run(settings_for("ti"), resume=True)


def test_a_time_budget_ends_a_run_early_and_saves_it(bench):
    outcome = bench.run(settings_for("ti", steps=10_000, minutes=1e-6))
    assert outcome.why == "out of time"
    assert checkpoint.found(bench.folder / "run" / "checkpoints")


def test_only_the_last_three_checkpoints_stay(bench):
    bench.run(settings_for("ti", save_every=1))
    names = [file.name for file in checkpoint.found(bench.folder / "run" / "checkpoints")]
    assert names == ["step-0000004.pt", "step-0000005.pt", "step-0000006.pt"]


def test_bf16_stays_near_fp32(bench, base):
    from datasieve.training.base import load_base

    bench.run(settings_for("ti"))
    full = [float(v) for (v,) in log_of(bench.folder / "run", "loss")]
    bench.close()
    own, bench.base = bench.base, load_base(base.path, dtype="bf16")
    bench.run(settings_for("ti"), name="half")
    bench.close()
    bench.base = own
    half = [float(v) for (v,) in log_of(bench.folder / "half", "loss")]
    assert half == pytest.approx(full, rel=0.05)


def test_fp16_on_a_processor_is_refused(bench):
    with pytest.raises(ConfigError, match="GPUs only"):
        bench.run(settings_for("ti", precision="fp16"))


def test_two_processes_learn_what_one_does(bench, tmp_path):
    import subprocess
    import sys

    from datasieve.training.settings import to_toml

    settings = settings_for("hypernetwork", batch_size=2, steps=3)
    bench.run(settings_for("hypernetwork", batch_size=4, steps=3), name="one")
    one = bench.adapter.state()
    (tmp_path / "settings.toml").write_text(to_toml(settings), encoding="utf-8")
    script = f"""
import sys, torch
from pathlib import Path
from datasieve.training.base import load_base
from datasieve.training.settings import read_settings
from tests.training.conftest import Bench
torch.set_num_threads(1)
rank = int(sys.argv[1])
torch.distributed.init_process_group("gloo", init_method="file://{tmp_path}/meet", world_size=2, rank=rank)
bench = Bench(load_base({str(bench.base.path)!r}), Path({str(tmp_path)!r}))
bench.run(read_settings("hypernetwork", Path({str(tmp_path)!r}) / "settings.toml"), name="two", world=(2, rank))
torch.save(dict(bench.adapter.state()), f"{tmp_path}/rank{{rank}}.pt")
torch.distributed.destroy_process_group()
"""
    started = [subprocess.Popen([sys.executable, "-c", script, str(rank)]) for rank in (0, 1)]
    assert [process.wait(timeout=300) for process in started] == [0, 0]
    two = [torch.load(tmp_path / f"rank{rank}.pt", weights_only=True) for rank in (0, 1)]
    for key, value in one.items():
        assert torch.equal(two[0][key], two[1][key])
        assert torch.allclose(two[0][key], value, atol=2e-5), key
