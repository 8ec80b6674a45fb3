"""The README's example of batches runs as it is printed."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import torch
from torch.utils.data import DataLoader

README = Path(__file__).parent.parent.parent / "README.md"


def test_the_example_of_batches_runs_and_does_what_its_comments_say() -> None:
    section = README.read_text(encoding="utf-8").split("### Batches without conflicts", 1)[1].split("\n### ", 1)[0]
    assert len(section.strip().splitlines()) <= 15
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert code is not None
    dataset = [{"index": i, "pixels": torch.zeros(3)} for i in range(60)]
    scope = {"dataset": dataset, "DataLoader": DataLoader}
    exec(code.group(1), scope)
    sampler = scope["sampler"]
    assert set(itertools.chain(*sampler)) == set(range(60))
    for batch in sampler:
        assert not {0, 1} <= {i // 20 for i in batch}
    assert sampler.describe().conflicts == 0
