import json
import shutil

import pytest

from datasieve import audit
from datasieve.cli import main
from datasieve.config import Settings
from datasieve.reporting.difference import difference
from tests.pipeline.conftest import scene

QUICK = Settings(select=("files", "duplicates", "complexity"), embedder="none")


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """A: eight scenes, one broken. B: the broken one gone, one new, one re-saved, all with a copy."""
    root = tmp_path_factory.mktemp("diff")
    a, b = root / "a", root / "b"
    a.mkdir()
    for i in range(8):
        scene(i, 320, 240).save(a / f"{i}.png")
    (a / "7.png").write_bytes((a / "7.png").read_bytes()[:100])
    shutil.copytree(a, b)
    (b / "7.png").unlink()
    scene(50, 320, 240).save(b / "new.png")
    scene(51, 320, 240).save(b / "3.png")
    shutil.copy(b / "0.png", b / "copy.png")
    return [audit(folder, root / f"{folder.name}-report", settings=QUICK) for folder in (a, b)]


def test_images_that_came_went_and_changed_are_told_apart(reports):
    found = difference(*reports)
    assert (found.gone, found.new, found.changed) == (["7.png"], ["copy.png", "new.png"], ["3.png"])


def test_findings_are_counted_before_and_after(reports):
    found = difference(*reports)
    assert found.rules["files.truncated"] == (1, 0)
    assert found.rules["duplicates.exact"] == (0, 1)
    assert all(a != b for a, b in found.rules.values())


def test_a_report_does_not_differ_from_itself(reports):
    found = difference(reports[0], reports[0])
    assert found.is_empty
    assert not found.moved
    assert not found.notes


def test_other_settings_are_said(reports, tmp_path):
    dataset = reports[0].run["dataset"]["path"]
    other = audit(dataset, tmp_path / "other", settings=Settings(select=("files",), embedder="none", base="sdxl"))
    assert any("base" in note for note in difference(reports[0], other).notes)


def test_the_command_prints_text_and_json(reports, capsys):
    paths = [str(report.path) for report in reports]
    assert main(["diff", *paths]) == 0
    assert "copy.png" in capsys.readouterr().out
    assert main(["diff", *paths, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["images"]["gone"] == ["7.png"]
    assert main(["diff", paths[0], paths[1] + "-nothing"]) == 2
    assert "is not a report" in capsys.readouterr().err
