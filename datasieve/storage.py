"""Writing files so that they appear whole under their final name, or not at all, and never outside their folder."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from datasieve.errors import OutputError

TEMPORARY_PREFIX = ".writing-"
"""Names that begin so are unfinished; whoever finds one after a crash may delete it."""


@contextlib.contextmanager
def atomic_path(final: Path) -> Iterator[Path]:
    """Yield a temporary path beside `final`, renamed onto it when the block ends well, removed when it does not.

    Raises OutputError, naming `final`, when the folder is read-only, full, or cannot be made.
    """
    temporary: Path | None = None
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, suffix=final.suffix, dir=final.parent)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        with open(temporary, "rb") as written:
            os.fsync(written.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, final)
        temporary = None
    except OSError as error:
        raise cannot_write(final, error) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def cannot_write(final: Path, error: OSError) -> OutputError:
    """Return the error that says why `final` could not be written, and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "Free some space, or choose another folder with --out; a rerun continues."
    else:
        remedy = "Choose a folder you may write to with --out."
    return OutputError(f"cannot write {final}: {error.strerror or error}", remedy=remedy)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(final: Path, text: str) -> None:
    """Write `text` as UTF-8, atomically."""
    with atomic_path(final) as path:
        path.write_text(text, encoding="utf-8", errors="surrogateescape", newline="\n")


def write_json(final: Path, value: Any) -> None:
    """Write strict JSON (no NaN or Infinity: such numbers become null), atomically."""
    write_text(final, to_json(value) + "\n")


def to_json(value: Any, *, indent: int | None = 1) -> str:
    """Return strict JSON; numbers that are not finite become null, text that is not UTF-8 is escaped."""
    return json.dumps(plain(value), indent=indent, ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """Return `value` with only what JSON knows: non-finite floats become None, surrogates become escapes."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return readable(value)
    if isinstance(value, dict):
        return {readable(str(k)): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if hasattr(value, "item"):
        return plain(value.item())
    return value


def readable(text: str) -> str:
    r"""Return `text` fit for UTF-8: bytes of a file name that are not UTF-8 are shown as \xNN."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # a lone surrogate, as JSON can spell one
        return text.encode("utf-8", "backslashreplace").decode("utf-8")


def confined(root: Path, relative: str) -> Path:
    """Return `root / relative` if it stays inside `root`, also through links. Raises OutputError."""
    pure = PurePosixPath(relative)
    target = (root / pure).resolve()
    if pure.is_absolute() or not target.is_relative_to(root.resolve()):
        raise OutputError(f"{relative!r} would leave the folder {root}", remedy="Rename the file in the dataset.")
    return root / pure
