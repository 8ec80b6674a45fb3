"""What is said when conflicts leave too few images for a batch."""

from __future__ import annotations

from typing import Any

from datasieve.errors import ConfigError


class IsolationInfeasible(ConfigError, ValueError):
    """Conflicts leave too few images for a conflict-free batch.

    Attributes:
        feasible_batch_size: a batch size for which conflict-free batches were constructed; 0 when there is none.
        blocking: names of the groups that block, with how many different images a batch that holds them can have.
    """

    def __init__(self, batch_size: int, effective: int, feasible: int, blocking: list[tuple[str, int]]) -> None:
        shown = ", ".join(f"{name} (at most {most})" for name, most in blocking[:5])
        more = f" and {len(blocking) - 5} more" if len(blocking) > 5 else ""
        whole = "" if effective == batch_size else f" ({effective} images a step)"
        size = f"It can with batches of {feasible}" if feasible else "No batch size is small enough"
        super().__init__(
            f"batches of {batch_size}{whole} cannot be free of conflicts without showing an image twice: "
            f"too little goes together with {shown}{more}. {size}",
            remedy="Lower batch size or accumulation, add or merge images of these clusters, or choose "
            'on_infeasible="shrink" or "relax".',
        )
        self.batch_size, self.effective = batch_size, effective
        self.feasible_batch_size = feasible
        self.blocking = blocking

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.batch_size, self.effective, self.feasible_batch_size, self.blocking)
