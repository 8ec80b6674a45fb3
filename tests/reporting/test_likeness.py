"""The matrix of concepts and the neighbours of an image, on real photos."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from skimage import data

from datasieve.cli import main
from datasieve.config import Settings
from datasieve.pipeline.run import audit
from datasieve.reporting import likeness


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Cats under two names, cups under a third."""
    for i in range(8):
        cat = data.chelsea()[:, i * 15 : i * 15 + 330]
        for name, pixels in (("tom" if i % 2 else "felix", cat), ("$cup_1$", data.coffee()[:, i * 15 : i * 15 + 420])):
            folder = tmp_path / "set" / name
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / f"{i}.png")
    return tmp_path / "set"


def test_the_matrix_is_symmetric_with_ones_and_tells_cats_from_cups(photos: Path) -> None:
    names, sizes, cosines = likeness.matrix(audit(photos))
    assert names == ["$cup_1$", "felix", "tom"]
    assert sizes == [8, 4, 4]
    assert np.allclose(cosines, cosines.T)
    assert np.allclose(np.diag(cosines), 1)
    assert cosines[1, 2] > 0.8 > 0.2 > cosines[0, 1]


def test_it_is_drawn_and_only_where_there_is_something_to_compare(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audit(photos, tmp_path / "report")
    assert main(["matrix", str(tmp_path / "report"), "--out", str(tmp_path / "m.png")]) == 0
    with Image.open(tmp_path / "m.png") as picture:
        assert picture.width > 300
    assert main(["matrix", str(tmp_path / "report"), "--out", str(tmp_path / "m.txt")]) == 2
    audit(photos / "tom", tmp_path / "one")
    assert main(["matrix", str(tmp_path / "one"), "--out", str(tmp_path / "n.png")]) == 2
    assert "needs two concepts" in capsys.readouterr().err
    assert not (tmp_path / "n.png").exists()


def test_neighbours_of_a_cat_are_cats(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = audit(photos, tmp_path / "report")
    found = likeness.similar(report, "tom/1.png", 7)
    assert {row["path"].partition("/")[0] for row in found} == {"tom", "felix"}
    assert [row["cosine"] for row in found] == sorted((row["cosine"] for row in found), reverse=True)
    assert main(["similar", str(report.path), "tom/1.png", "--count", "2", "--format", "json"]) == 0
    assert [r["path"] for r in json.loads(capsys.readouterr().out)] == [r["path"] for r in found[:2]]


def test_without_vectors_it_says_how_to_get_them(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audit(photos, tmp_path / "blind", settings=Settings(embedder="none"))
    assert main(["similar", str(tmp_path / "blind"), "tom/1.png"]) == 2
    assert "holds no embeddings" in capsys.readouterr().err
