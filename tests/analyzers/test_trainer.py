"""What each trainer does to awkward files, claim by claim (sources: their image loading code)."""

from typing import Any

import pyarrow as pa
import pytest

from datasieve.analyzers.trainer import ANALYZER, CONSEQUENCES, consequences
from datasieve.config import Settings

PLAIN: dict[str, Any] = {
    "path": "10_cat/a.jpg",
    "status": "ok",
    "files.orientation": 1,
    "files.bit-depth": 8,
    "files.colour-model": "rgb",
    "files.has-alpha": False,
    "files.alpha-share": None,
    "files.hidden-colour-share": None,
    "files.icc-class": "srgb",
}
TRAINERS = ("a1111", "kohya", "diffusers", "onetrainer", "simpletuner", "ai-toolkit", "datasieve")

SIDEWAYS = {"files.orientation": 6}
GREY_16 = {"files.bit-depth": 16, "files.colour-model": "grey"}
RGB_16 = {"files.bit-depth": 16}
HIDDEN = {"files.has-alpha": True, "files.alpha-share": 0.4, "files.hidden-colour-share": 0.3}
OPAQUE = {"files.has-alpha": True, "files.alpha-share": 0.0, "files.hidden-colour-share": 0.0}
CMYK = {"files.colour-model": "cmyk", "files.icc-class": "cmyk"}
WIDE = {"files.icc-class": "wide"}
BROKEN = {"status": "unreadable", "files.orientation": 6}


@pytest.mark.parametrize("trainer", TRAINERS)
def test_an_ordinary_photo_has_nothing_to_fear(trainer: str) -> None:
    assert consequences(PLAIN, trainer) == {}


@pytest.mark.parametrize(
    ("what", "fault", "meeting"),
    [
        (SIDEWAYS, "sideways", {"kohya", "diffusers", "a1111"}),
        (GREY_16, "clipped", {"a1111", "kohya", "diffusers", "ai-toolkit", "onetrainer", "simpletuner"}),
        (RGB_16, "clipped", {"onetrainer"}),
        (HIDDEN, "hidden-colours", {"a1111", "kohya", "diffusers", "onetrainer", "ai-toolkit", "simpletuner"}),
        (OPAQUE, "hidden-colours", set()),
        (OPAQUE, "loss-nan", {"a1111"}),
        (HIDDEN, "loss-nan", set()),
        (CMYK, "print-colours", {"a1111", "kohya", "diffusers", "ai-toolkit", "onetrainer", "simpletuner"}),
        (WIDE, "profile-ignored", {"a1111", "kohya", "diffusers", "ai-toolkit", "onetrainer", "simpletuner"}),
        (BROKEN, "broken", {"a1111", "kohya", "diffusers", "ai-toolkit", "onetrainer", "simpletuner"}),
        (BROKEN, "sideways", set()),
        ({"path": "10_cat/a.tif"}, "not-listed", {"kohya"}),
        ({"path": "10_cat/a.gif"}, "not-listed", {"kohya", "onetrainer"}),
        ({"path": "10_cat/a.JPG"}, "not-listed", set()),
        ({"path": "10_cat/a.JpG"}, "not-listed", {"kohya"}),
        ({"path": "cat/a.jpg"}, "folder-ignored", {"kohya"}),
        ({"path": "a.jpg"}, "folder-ignored", {"kohya"}),
        ({"path": "10_cat/deep/a.jpg"}, "folder-ignored", {"kohya"}),
        ({"path": "0_cat/a.jpg"}, "folder-ignored", {"kohya"}),
        ({"path": "_cat/a.jpg"}, "folder-ignored", {"kohya"}),
        ({"path": "00.tar::a.gif"}, "not-listed", set()),
    ],
)
def test_each_fault_meets_the_trainers_that_have_it(what: dict[str, Any], fault: str, meeting: set[str]) -> None:
    assert {t for t in TRAINERS if fault in consequences({**PLAIN, **what}, t)} == meeting


def test_what_was_not_run_is_only_said_to_be_possible() -> None:
    for fault, trainer in [("sideways", "a1111"), ("clipped", "onetrainer"), ("clipped", "simpletuner")]:
        assert " may " in CONSEQUENCES[fault][trainer]
    assert " may " not in CONSEQUENCES["sideways"]["kohya"]


@pytest.mark.parametrize("layout", ["kohya", "kohya-toml"])
def test_folder_names_are_not_judged_twice_nor_where_a_toml_names_the_folders(layout: str) -> None:
    assert "folder-ignored" not in consequences({**PLAIN, "path": "cat/a.jpg"}, "kohya", layout)


def table(*rows: dict[str, Any]) -> pa.Table:
    types = {"files.alpha-share": pa.float32(), "files.hidden-colour-share": pa.float32()}
    whole = [{**PLAIN, **row} for row in rows]
    return pa.table({name: pa.array([r[name] for r in whole], types.get(name)) for name in PLAIN})


def test_the_sentence_stands_beside_the_truth_value() -> None:
    found = ANALYZER.compare(table(SIDEWAYS, {}), Settings(trainer="kohya"))
    assert found.columns["trainer.sideways"] == [True, False]
    assert found.columns["trainer.sideways-consequence"][0].startswith("kohya ignores EXIF orientation")


def test_without_a_trainer_nothing_is_claimed_and_that_is_said() -> None:
    found = ANALYZER.compare(table(SIDEWAYS), Settings())
    assert found.columns["trainer.sideways"] == [None]
    assert "no --trainer given" in found.unmeasured["trainer"]
