"""datasieve finds what in a set of images and captions will make a diffusion training run collapse.

The public names load on first use, so that `import datasieve` stays light.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasieve.errors import DatasieveError
    from datasieve.pipeline.run import audit
    from datasieve.repair.run import fix
    from datasieve.report import Report, open_report

__all__ = ["DatasieveError", "Report", "__version__", "audit", "fix", "open_report"]

_HOMES = {
    "DatasieveError": "datasieve.errors",
    "Report": "datasieve.report",
    "audit": "datasieve.pipeline.run",
    "fix": "datasieve.repair.run",
    "open_report": "datasieve.report",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version("datasieve")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
