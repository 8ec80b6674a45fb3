"""Decoding on this machine: a pool of worker processes that survives what files do to decoders."""

from __future__ import annotations

import collections
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO

from datasieve.batch import Decoded
from datasieve.errors import DatasieveError
from datasieve.pipeline.worker import Job, receive, send

SECONDS_PER_FILE = 120.0
"""A decoder that works longer than this on one file is stopped, and the file reported."""

_AHEAD = 2  # jobs given to a worker at once, so that it never waits for the next
_CODE = "import sys; sys.path[:] = {path!r}; from datasieve.pipeline.worker import main; main()"


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Replacement:
    """A worker that died, and the file it was decoding."""

    path: str
    reason: str
    retried: bool


def _widen(pipe: IO[bytes] | None) -> None:
    """Let a pipe hold a whole picture, so that a worker need not wait while the parent is busy (Linux only)."""
    if pipe is not None and sys.platform == "linux":
        import fcntl

        with contextlib.suppress(OSError):  # more than this user may have: the default will do
            fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, 1 << 20)


class _Worker:
    """One child process and what it has been given."""

    def __init__(self) -> None:
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed in stop()
        # A worker must use one core: the pool is the parallelism.
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-c", _CODE.format(path=[p or os.getcwd() for p in sys.path])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env={**os.environ, **single},
            bufsize=0,
        )
        _widen(self.process.stdout)
        self.given: collections.deque[Job] = collections.deque()
        self.since = time.monotonic()
        self.overdue = False
        self.served = 0

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self.log.close()

    def last_words(self) -> str:
        """Return the last line the process wrote to its log."""
        self.log.seek(0)
        lines = self.log.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""


class DecodePool:
    """Worker processes that decode files, in order and with bounded memory.

    A file whose decoder dies is tried once more in a fresh process; if that dies too, the file is reported as
    unreadable and the run goes on. Use as a context manager.

    Args:
        workers: number of processes, at least 1.
        window: most results that may be finished or in work but not yet taken.
    """

    def __init__(self, workers: int, window: int) -> None:
        self.workers = workers
        self.window = max(window, workers * _AHEAD)
        self.replacements: list[Replacement] = []
        self._live: set[_Worker] = set()
        self._lock = threading.Condition()
        self._closed = False

    def __enter__(self) -> DecodePool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop every worker at once."""
        with self._lock:
            self._closed = True
            live = list(self._live)
            self._lock.notify_all()
        for worker in live:
            with contextlib.suppress(OSError):
                worker.process.kill()

    def run(self, jobs: Iterable[Job]) -> Iterator[Decoded]:
        """Begin decoding, and return the results in the order of the jobs (their indices must count up from 0)."""
        run = _Run(self, iter(jobs))
        threads = [threading.Thread(target=run.serve, daemon=True) for _ in range(self.workers)]
        threads.append(threading.Thread(target=run.watch, daemon=True))
        for thread in threads:
            thread.start()
        return self._results(run, threads)

    def _results(self, run: _Run, threads: list[threading.Thread]) -> Iterator[Decoded]:
        try:
            yield from run.results()
        finally:
            run.finish()
            for thread in threads:
                thread.join()


class _Run:
    """The state one `DecodePool.run` shares between its threads."""

    def __init__(self, pool: DecodePool, jobs: Iterator[Job]) -> None:
        self.pool = pool
        self.lock = pool._lock
        self.jobs = jobs
        self.done: dict[int, Decoded] = {}
        self.open = 0  # taken by a worker and not yet handed out
        self.issued = 0
        self.exhausted = False
        self.over = False
        self.failure: BaseException | None = None

    def results(self) -> Iterator[Decoded]:
        """Hand out results in order."""
        position = 0
        while True:
            with self.lock:
                while position not in self.done:
                    if self.failure is not None:
                        raise self.failure
                    if self.exhausted and position >= self.issued:
                        return
                    self.lock.wait(0.5)
                result = self.done.pop(position)
                self.open -= 1
                self.lock.notify_all()
            yield result
            position += 1

    def finish(self) -> None:
        with self.lock:
            self.over = True
            self.lock.notify_all()
            for worker in self.pool._live:
                with contextlib.suppress(OSError):
                    worker.process.kill()

    def ending(self) -> bool:
        """Tell whether no further result is wanted."""
        return self.over or self.pool._closed

    def take(self, *, wait: bool) -> Job | None:
        """Return the next job if the window has room; None when there is none (or none now, unless `wait`)."""
        with self.lock:
            while not (self.ending() or self.exhausted):
                if self.open < self.pool.window:
                    job = next(self.jobs, None)
                    if job is None:
                        self.exhausted = True
                        self.lock.notify_all()
                        return None
                    self.open += 1
                    self.issued += 1
                    return job
                if not wait:
                    return None
                self.lock.wait(0.5)
            return None

    def serve(self) -> None:
        """Feed one worker until the jobs are used up."""
        worker: _Worker | None = None
        try:
            worker = self._start()
            tried: set[int] = set()
            while not self.ending():
                while len(worker.given) < _AHEAD and (job := self.take(wait=not worker.given)) is not None:
                    self._give(worker, job)
                if not worker.given:
                    break
                try:
                    index, result = receive(worker.process.stdout)  # type: ignore[arg-type]  # IO[bytes], unbuffered
                except (EOFError, OSError):
                    if self.ending():
                        break
                    worker = self._replace(worker, tried)
                    continue
                worker.given.popleft()
                worker.since = time.monotonic()
                worker.served += 1
                self._publish(index, result)
        except BaseException as error:
            with self.lock:
                self.failure = self.failure or error
                self.lock.notify_all()
        finally:
            if worker is not None:
                with self.lock:
                    self.pool._live.discard(worker)
                worker.stop()

    def watch(self) -> None:
        """Stop decoders that have been at one file for too long."""
        while True:
            with self.lock:
                if self.ending() or (self.exhausted and not self.open):
                    return
                for worker in self.pool._live:
                    if worker.given and time.monotonic() - worker.since > SECONDS_PER_FILE:
                        worker.overdue = True
                        worker.process.kill()
                self.lock.wait(1.0)

    def _start(self) -> _Worker:
        worker = _Worker()
        with self.lock:
            self.pool._live.add(worker)
        return worker

    def _give(self, worker: _Worker, job: Job) -> None:
        if not worker.given:
            worker.since = time.monotonic()
        worker.given.append(job)
        with contextlib.suppress(OSError):  # a dead worker shows when its result is read
            send(worker.process.stdin, job)  # type: ignore[arg-type]  # IO[bytes], unbuffered

    def _publish(self, index: int, result: Decoded) -> None:
        with self.lock:
            self.done[index] = result
            self.lock.notify_all()

    def _replace(self, worker: _Worker, tried: set[int]) -> _Worker:
        """Start a fresh worker in place of a dead one; its file is tried once more, then given up."""
        with self.lock:
            self.pool._live.discard(worker)
        code = worker.process.wait()
        words = worker.last_words()
        if worker.overdue:
            reason = f"took longer than {SECONDS_PER_FILE:.0f} s"
        elif code < 0:
            reason = f"was killed by signal {-code}"
        else:
            reason = f"ended with code {code}" + (f" ({words})" if words else "")
        given = list(worker.given)
        worker.stop()
        if code > 0 and not worker.served:  # faults of a file never end a worker this way: it could not start
            raise DatasieveError(f"a decode worker {reason}", remedy="Run `datasieve doctor`.")
        job, *rest = given
        again = job.index not in tried and not worker.overdue
        self.pool.replacements.append(Replacement(job.path, reason, again))
        fresh = self._start()
        if again:
            tried.add(job.index)
            rest = [job, *rest]
        else:
            self._publish(
                job.index,
                Decoded(
                    status="unreadable",
                    error=f"The decoder {reason} while reading this file. Save the image anew or leave it out.",
                ),
            )
        for other in rest:
            self._give(fresh, other)
        return fresh
