"""Small image folders for whole audits."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def scene(seed: int, width: int = 200, height: int = 150) -> Image.Image:
    """Return a picture that differs plainly from seed to seed."""
    generator = np.random.default_rng(seed)
    coarse = Image.fromarray(generator.integers(0, 256, (6, 8, 3), np.uint8)).resize((width, height))
    noise = generator.normal(0, 3, (height, width, 3))
    return Image.fromarray(np.clip(np.asarray(coarse) + noise, 0, 255).astype(np.uint8))


@pytest.fixture
def images(tmp_path: Path) -> Callable[[int], Path]:
    """Return a function that makes a folder of so many JPEGs."""

    def make(count: int) -> Path:
        folder = tmp_path / "images"
        folder.mkdir()
        for i in range(count):
            scene(i).save(folder / f"{i:04d}.jpg", quality=90)
        return folder

    return make
