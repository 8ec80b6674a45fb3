"""The decode worker: a child process that turns files into working pictures, one after another.

It is started as a program of its own, not forked and not spawned through the caller's main module, so that audits run
from scripts without a main guard, from notebooks, and after torch has started threads. It imports no torch. Messages
are length-prefixed pickles between this process and its own parent only; arrays follow as raw buffers.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import signal
import struct
import sys
from dataclasses import dataclass
from typing import Any, BinaryIO

from datasieve.batch import Decoded, DecodeRequest
from datasieve.records import Location

_COUNT = struct.Struct("<I")
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Job:
    """One file to decode.

    Attributes:
        index: position in the run; results are put back in this order.
        path: relative path, for its extension and for messages.
        location: where the bytes are.
        request: what is needed of it.
        known: content hash already measured; when the bytes still have it they are not decoded.
    """

    index: int
    path: str
    location: Location
    request: DecodeRequest
    known: str = ""


UNCHANGED = "unchanged"
"""Status of a result whose content equals `Job.known`: nothing else in it is filled."""


def content_hash(data: bytes) -> str:
    """Return 32 hex digits of BLAKE2b over a file's bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def carry_out(job: Job) -> Decoded:
    """Read and decode one file. Faults of the file become a status, never an exception."""
    from datasieve.imaging.decode import decode

    try:
        data = job.location.read()
    except OSError as error:
        reason = error.strerror or str(error)
        return Decoded(status="unreadable", error=f"The file cannot be opened: {reason}. Check its permissions.")
    if job.known and content_hash(data) == job.known:
        return Decoded(status=UNCHANGED, content=job.known)
    try:
        return decode(data, job.path, job.request)
    except Exception as error:  # a codec's surprise costs one row, not the run
        reason = f"{type(error).__name__}: {error}"
        return Decoded(
            status="unreadable",
            error=f"The decoder failed ({reason}). Save the image anew or leave it out.",
            content=content_hash(data),
            file_bytes=len(data),
        )


def send(stream: BinaryIO, message: Any) -> None:
    """Write one message. Raises OSError when the other side is gone."""
    buffers: list[pickle.PickleBuffer] = []
    payload = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
    parts: list[bytes | memoryview] = [payload, *(b.raw() for b in buffers)]
    stream.write(_COUNT.pack(len(parts)) + b"".join(_LENGTH.pack(len(p)) for p in parts))
    for part in parts:
        stream.write(part)
    stream.flush()


def receive(stream: BinaryIO) -> Any:
    """Read one message. Raises EOFError when the other side is gone."""
    (count,) = _COUNT.unpack(_exactly(stream, _COUNT.size))
    lengths = [_LENGTH.unpack(_exactly(stream, _LENGTH.size))[0] for _ in range(count)]
    payload, *buffers = [_exactly(stream, n) for n in lengths]
    return pickle.loads(payload, buffers=buffers)


def _exactly(stream: BinaryIO, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        got = stream.readinto(view)  # type: ignore[attr-defined]  # typeshed's BinaryIO lacks readinto
        if not got:
            raise EOFError
        view = view[got:]
    return data


def main() -> None:
    """Serve jobs from standard input until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    with os.fdopen(os.dup(0), "rb", buffering=0) as jobs, os.fdopen(os.dup(1), "wb", buffering=1 << 20) as results:
        os.dup2(2, 1)  # whatever a codec prints must not get between the messages
        try:
            while True:
                job = receive(jobs)
                send(results, (job.index, carry_out(job)))
        except (EOFError, BrokenPipeError):
            sys.stderr.flush()
            os._exit(0)  # the parent is gone: nothing to tidy, and the buffer has nowhere to go
