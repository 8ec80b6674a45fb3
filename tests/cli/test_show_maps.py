"""`datasieve show --maps`: the subject's maps as pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from datasieve.cli import main
from datasieve.config import Settings
from datasieve.pipeline.run import audit
from datasieve.reporting.maps import outline, overlaid
from tests.embedding.test_saliency import CAT, GROUND, set_into

NAME = "a cat; on <it>'s own.jpg"


@pytest.fixture
def audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "set"
    folder.mkdir()
    Image.fromarray(set_into(GROUND, CAT, 20, 20)).save(folder / NAME, quality=92)
    audit(folder, tmp_path / "r", settings=Settings(select=("subject",)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_maps_are_written_under_safe_names_and_named(audited: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "r", "--image", NAME, "--maps", "maps"]) == 0
    written = sorted(p.name for p in (audited / "maps").iterdir())
    assert len(written) == 4
    assert all(
        name.startswith("a-cat-on-it-s-own-") and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")
        for name in written
    )
    assert sorted(capsys.readouterr().out.split()) == [f"maps/{name}" for name in written]
    for name in written:
        with Image.open(audited / "maps" / name) as picture:
            assert picture.size == (448, 448)


def test_the_subject_is_drawn_yellow_and_the_rest_blue(audited: Path) -> None:
    main(["show", "r", "--image", NAME, "--maps", "maps"])
    [path] = (audited / "maps").glob("*-subject.png")
    with Image.open(path) as picture:
        pixels = np.asarray(picture).astype(int)
    warmth = pixels[..., 0] - pixels[..., 2]
    assert warmth[100:180, 100:180].mean() > warmth[350:, 350:].mean() + 60


def test_maps_of_a_picture_that_changed_are_refused(audited: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.fromarray(GROUND).save(audited / "set" / NAME)
    assert main(["show", "r", "--image", NAME, "--maps", "maps"]) == 2
    assert "no longer what was audited" in capsys.readouterr().err
    assert not (audited / "maps").exists()


def test_maps_without_an_image_or_without_an_embedder_are_refused(
    audited: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "r", "--maps", "maps"]) == 2
    assert "--image" in capsys.readouterr().err
    audit(audited / "set", audited / "bare", settings=Settings(select=("subject",), embedder="none"))
    assert main(["show", "bare", "--image", NAME, "--maps", "maps"]) == 2
    assert "embedder is set to none" in capsys.readouterr().err


def test_a_map_of_nought_and_one_gives_the_ends_of_cividis() -> None:
    grey = np.full((20, 20, 3), 100, np.uint8)
    low, high = overlaid(grey, np.zeros((14, 14))), overlaid(grey, np.ones((14, 14)))
    # cividis runs from (0, 34, 78) to (254, 232, 56); 0.4 of the grey and 0.6 of it.
    assert np.abs(low[10, 10].astype(int) - [40, 60, 86]).max() <= 2
    assert np.abs(high[10, 10].astype(int) - [192, 179, 74]).max() <= 2


def test_an_outline_stays_inside_the_picture() -> None:
    for box in ((0, 0, 1, 1), (0.5, 0.5, 0.5, 0.5), (0.2, 0.3, 0.9, 1.0)):
        pixels = np.full((30, 20, 3), 9, np.uint8)
        outline(pixels, *box)
    assert (pixels[9, 5] == 0).all()
    assert (pixels[10, 6] == 255).all()
