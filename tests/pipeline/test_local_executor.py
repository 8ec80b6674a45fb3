"""The decode pool: order, bounds, and what happens when decoders die."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from datasieve.batch import DecodeRequest
from datasieve.pipeline import worker
from datasieve.pipeline.executors import local
from datasieve.pipeline.executors.local import DecodePool
from datasieve.pipeline.worker import UNCHANGED, Job, content_hash
from datasieve.records import Location

REQUEST = DecodeRequest()


def jobs_for(folder: Path) -> list[Job]:
    files = sorted(folder.iterdir())
    return [Job(i, f.name, Location(str(f)), REQUEST) for i, f in enumerate(files)]


def test_results_come_in_order_and_equal_decoding_here(images: Callable[[int], Path]) -> None:
    jobs = jobs_for(images(12))
    with DecodePool(2, window=6) as pool:
        results = list(pool.run(jobs))
    assert len(results) == len(jobs)
    for job, result in zip(jobs, results, strict=True):
        here = worker.carry_out(job)
        assert result.content == here.content == content_hash(Path(job.location.file).read_bytes())
        assert result.pixels is not None
        assert here.pixels is not None
        np.testing.assert_array_equal(result.pixels, here.pixels)
        assert result.facts == here.facts


def test_no_more_than_the_window_is_taken_before_results_are_wanted(images: Callable[[int], Path]) -> None:
    taken = []

    def jobs() -> Iterator[Job]:
        for job in jobs_for(images(30)):
            taken.append(job.index)
            yield job

    with DecodePool(2, window=5) as pool:
        results = pool.run(jobs())
        next(results)
        time.sleep(1.0)
        assert len(taken) <= 6  # the window, and the one that was handed out
        assert len(list(results)) == 29


def test_a_file_that_is_gone_is_one_unreadable_row(images: Callable[[int], Path]) -> None:
    folder = images(3)
    jobs = jobs_for(folder)
    (folder / "0001.jpg").unlink()
    with DecodePool(1, window=4) as pool:
        assert [r.status for r in pool.run(jobs)] == ["ok", "unreadable", "ok"]


def test_bytes_that_are_known_are_not_decoded(images: Callable[[int], Path]) -> None:
    (job,) = jobs_for(images(1))
    known = content_hash(Path(job.location.file).read_bytes())
    with DecodePool(1, window=4) as pool:
        (same,) = pool.run([Job(0, job.path, job.location, REQUEST, known)])
        (other,) = pool.run([Job(0, job.path, job.location, REQUEST, "0" * 32)])
    assert (same.status, same.pixels) == (UNCHANGED, None)
    assert other.status == "ok"


def fifo(folder: Path) -> Job:
    """Return a job whose file never ends: a named pipe nobody writes to."""
    path = folder / "stuck.jpg"
    os.mkfifo(path)
    return Job(1, path.name, Location(str(path)), REQUEST)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_worker_killed_by_the_system_is_replaced_and_its_file_named(images: Callable[[int], Path]) -> None:
    folder = images(4)
    first, *rest = jobs_for(folder)
    stuck = fifo(folder)
    jobs = [first, stuck, *(Job(i + 2, j.path, j.location, REQUEST) for i, j in enumerate(rest))]

    def assassin(pool: DecodePool) -> None:
        killed: set[int] = set()
        while len(killed) < 2:
            for child in list(pool._live):
                given = child.given[0].path if child.given else ""
                if given == "stuck.jpg" and child.process.pid not in killed and time.monotonic() - child.since > 0.5:
                    killed.add(child.process.pid)
                    os.kill(child.process.pid, signal.SIGKILL)
            time.sleep(0.05)

    with DecodePool(1, window=8) as pool:
        threading.Thread(target=assassin, args=(pool,), daemon=True).start()
        results = list(pool.run(jobs))
    assert [r.status for r in results] == ["ok", "unreadable", "ok", "ok", "ok"]
    assert "signal 9" in results[1].error
    assert [(r.path, r.retried) for r in pool.replacements] == [("stuck.jpg", True), ("stuck.jpg", False)]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_decoder_that_hangs_is_stopped_and_the_run_goes_on(
    images: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "SECONDS_PER_FILE", 2.0)
    folder = images(2)
    first, last = jobs_for(folder)
    with DecodePool(1, window=4) as pool:
        results = list(pool.run([first, fifo(folder), Job(2, last.path, last.location, REQUEST)]))
    assert [r.status for r in results] == ["ok", "unreadable", "ok"]
    assert "longer than 2 s" in results[1].error


def test_workers_start_from_a_script_without_a_main_guard_after_torch_ran(
    images: Callable[[int], Path], tmp_path: Path
) -> None:
    script = tmp_path / "plain_script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import torch
            torch.randn(300, 300) @ torch.randn(300, 300)
            import datasieve
            print(datasieve.audit({str(images(5))!r}, workers=2).run["counts"]["images"])
            """
        )
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split()) == (0, ["5"]), done.stderr
