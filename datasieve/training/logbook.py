"""The log of a run: one line a step in CSV, the same as Parquet at the end, and TensorBoard where it is installed."""

from __future__ import annotations

import contextlib
import csv
import io
import os
from pathlib import Path
from typing import Any

COLUMNS = (
    "step",
    "loss",
    "relative_loss",
    "validation_loss",
    "learning_rate",
    "gradient_norm",
    "clipped",
    "vector_norm",
    "vector_variance",
    "curvature",
    "event",
    "seconds",
)


class Logbook:
    """Writes the log of one run.

    Args:
        folder: of the run.
        upto: keep lines of a former run up to this step; later ones belong to what is done again.
    """

    def __init__(self, folder: Path, upto: int = 0) -> None:
        self.file = folder / "log.csv"
        folder.mkdir(parents=True, exist_ok=True)
        kept = [row for row in read(folder) if row["step"] and int(row["step"]) <= upto] if upto else []
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
        temporary = self.file.with_name(".writing-log.csv")
        temporary.write_text(text.getvalue(), encoding="utf-8")
        os.replace(temporary, self.file)
        self._handle = open(self.file, "a", encoding="utf-8", newline="")  # noqa: SIM115 - closed by close()
        self._writer = csv.DictWriter(self._handle, COLUMNS, lineterminator="\n")
        self._board: Any = None
        with contextlib.suppress(ImportError):
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=upto + 1 if upto else None)

    def write(self, step: int, **values: Any) -> None:
        """Add the line of a step; values that are None were not measured."""
        row = {k: f"{v:.7g}" if isinstance(v, float) else v for k, v in values.items() if v is not None}
        self._writer.writerow(row | {"step": step})
        self._handle.flush()
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, float):
                    self._board.add_scalar(name, value, step)

    def close(self) -> None:
        """Finish, and write the log as Parquet beside the CSV."""
        self._handle.close()
        if self._board is not None:
            self._board.close()
        import pandas as pd

        from datasieve.storage import atomic_path

        table = pd.read_csv(self.file)
        with atomic_path(self.file.with_suffix(".parquet")) as path:
            table.to_parquet(path, index=False)


def read(folder: Path) -> list[dict[str, str]]:
    """Return the lines of a run's log; none when there is no log."""
    file = folder / "log.csv"
    if not file.is_file():
        return []
    with open(file, encoding="utf-8", newline="") as handle:
        return [row for row in csv.DictReader(handle) if set(row) >= {"step", "loss"} and row["step"]]
