import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from datasieve.progress import Silent
from datasieve.records import Location
from datasieve.training.base import Base, load_base
from datasieve.training.batches import Batches, Prompts, sampler_for
from datasieve.training.examples import Example
from datasieve.training.latents import Latents
from datasieve.training.loop import Outcome, fit
from datasieve.training.run import make_adapter
from datasieve.training.settings import TrainSettings, read_settings

FIXTURES = Path(__file__).parents[2] / "fixtures"
TINY_SD = FIXTURES / "tiny-sd"
DUCKS = FIXTURES / "training" / "duck_toy"


@pytest.fixture(scope="session")
def base() -> Base:
    """The small trained base. Adapters that a test attaches it must also detach."""
    logging.getLogger("diffusers").setLevel(logging.ERROR)
    return load_base(TINY_SD)


def ducks(size: tuple[int, int] = (64, 64)) -> list[Example]:
    files = sorted(DUCKS.glob("*.jpg"))
    return [Example(f.name, Location(str(f)), "", "duck", i, 1.0, size) for i, f in enumerate(files)]


def settings_for(kind: Any, **options: Any) -> TrainSettings:
    quick = {"steps": 6, "batch_size": 2, "validation": 0.0, "save_every": 0, "sample_every": 0, "validate_every": 0}
    words = {"token": "<duck>", "init": "duck"} if kind == "ti" else {"init": "duck"}
    return read_settings(kind, **{**quick, **words, **options})


class Bench:
    """Runs the loop on the ducks, and keeps what it attached."""

    def __init__(self, base: Base, folder: Path) -> None:
        self.base, self.folder = base, folder
        self.adapter: Any = None

    def run(
        self,
        settings: TrainSettings,
        *,
        name: str = "run",
        held: int = 0,
        resume: bool = False,
        world: tuple[int, int] = (1, 0),
        progress: Any = None,
    ) -> Outcome:
        self.close()
        examples = ducks()
        names = {"": "<duck>" if settings.kind == "ti" else "duck"}
        self.adapter = make_adapter(settings, names, name=name)
        self.adapter.attach(self.base)
        shown = examples[: len(examples) - held]
        batches = Batches(
            shown,
            sampler_for(shown, settings, None, world=world[0]),
            Latents(self.base, None),
            Prompts(examples, names, settings, must_hold=settings.kind == "ti"),
            self.base,
            settings,
            world=world[0],
            rank=world[1],
        )
        return fit(
            self.base,
            self.adapter,
            batches,
            examples[len(shown) :],
            settings,
            self.folder / name,
            progress=progress or Silent(),
            resume=resume,
        )

    def close(self) -> None:
        if self.adapter is not None:
            self.adapter.detach()


@pytest.fixture
def bench(base: Base, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(base, tmp_path)
    yield made
    made.close()
