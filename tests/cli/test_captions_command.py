"""`datasieve captions`: what it prints about a small folder; pictures are never opened."""

import csv
import io
import json
from pathlib import Path

import pytest

from datasieve.cli import main

SCENES = ("on wet moss", "in front of a red wall", "beside a wooden door", "under a bright lamp", "near a river")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i, scene in enumerate(SCENES):
        (tmp_path / f"{i}.png").write_bytes(b"not opened")
        (tmp_path / f"{i}.txt").write_text(f"a photo of a corgi with white chest lying {scene}", encoding="utf-8")
    (tmp_path / "odd.png").write_bytes(b"not opened")
    (tmp_path / "odd.txt").write_text("a dog", encoding="utf-8")
    (tmp_path / "none.png").write_bytes(b"not opened")
    return tmp_path


def test_findings_table_histogram_and_tags_are_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["captions", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "7 images, 6 with a caption" in out
    assert "captions.granularity-outlier" in out
    assert "captions.missing" in out
    assert "coarse       1" in out
    assert "medium       5" in out
    assert "named most  chest 83%; corgi 83%" in out
    assert "together    chest + corgi: 5, 100% of chest, 1.2 times chance" in out


def test_csv_and_json_give_every_measurement(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["captions", str(folder), "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["path"] for row in rows] == ["0.png", "1.png", "2.png", "3.png", "4.png", "none.png", "odd.png"]
    assert rows[-1]["captions.tokens"] == "2"
    assert rows[-2]["captions.tokens"] == ""
    assert main(["captions", str(folder), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["images"][0]["captions.granularity"] == "medium"


def test_an_unknown_trainer_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["captions", str(folder), "--trainer", "nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err
