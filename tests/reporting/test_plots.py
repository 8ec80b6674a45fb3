"""The charts: figures without a display, with the numbers of the report."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from skimage import data

from datasieve.config import Settings
from datasieve.errors import DatasieveError, ReportError
from datasieve.pipeline.run import audit
from datasieve.report import Report
from datasieve.reporting import plots
from datasieve.reporting.plots.buckets import buckets_data
from datasieve.reporting.plots.caption_tags import caption_tags_data
from datasieve.reporting.plots.colour_casts import colour_casts_data
from datasieve.reporting.plots.embedding_map import embedding_map_data
from datasieve.reporting.plots.granularity import granularity_data
from datasieve.reporting.plots.sizes import sizes_data


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Six cats and six cups, two of them under a lamp, the cats captioned."""
    base = tmp_path_factory.mktemp("plots") / "set"
    for i in range(6):
        for name, pixels in (
            ("cat", data.chelsea()[:, i * 20 : i * 20 + 340]),
            ("$cup_1$", data.coffee()[:, i * 20 :]),
        ):
            (base / name).mkdir(parents=True, exist_ok=True)
            lamp = (1.0, 0.62, 0.2) if name != "cat" and i < 2 else (1.0, 1.0, 1.0)
            Image.fromarray((pixels * np.array(lamp)).astype(np.uint8)).save(base / name / f"{i}.png")
        (base / "cat" / f"{i}.txt").write_text("cat, orange fur, grass" if i % 2 else "cat, orange fur")
    return audit(base, settings=Settings(resolution=320))


@pytest.mark.parametrize("name", [n for n in plots.__all__ if n != "scales"])
def test_every_chart_is_a_figure_of_its_own(report: Report, name: str, tmp_path: Path) -> None:
    before = "matplotlib.pyplot" in sys.modules
    figure = getattr(plots, name)(report)
    figure.savefig(tmp_path / "chart.png", dpi=50)
    with Image.open(tmp_path / "chart.png") as picture:
        assert picture.convert("L").getextrema() != (255, 255)
    assert ("matplotlib.pyplot" in sys.modules) == before


def test_what_was_not_measured_says_so(report: Report, tmp_path: Path) -> None:
    chosen = Settings(embedder="none", select=("files",))
    blind = audit(Path(report.run["dataset"]["path"]) / "cat", tmp_path / "r", settings=chosen)
    with pytest.raises(ReportError, match=r"has not measured subject\.scale, subject\.share"):
        plots.scales(blind)
    with pytest.raises(DatasieveError, match="holds no embeddings"):
        plots.embedding_map(blind)


def test_the_map_is_the_same_every_time_and_keeps_kinds_apart(report: Report) -> None:
    one, other = embedding_map_data(report), embedding_map_data(report)
    assert np.array_equal(one.places, other.places)
    assert one.places.min() >= 0
    assert one.places.max() <= 1
    cats = np.array([group == "cat" for group in one.groups])
    between = np.linalg.norm(one.places[cats].mean(0) - one.places[~cats].mean(0))
    within = np.linalg.norm(one.places[cats] - one.places[cats].mean(0), axis=1).mean()
    assert between > 2 * within
    assert embedding_map_data(report, most=5).total == 12
    assert len(embedding_map_data(report, most=5).paths) == 5


def test_neighbours_are_placed_by_t_sne_from_thirty_pictures_on() -> None:
    from datasieve.reporting.plots.embedding_map import _places

    generator = np.random.default_rng(0)
    centres = np.repeat(np.eye(3, 20), 12, axis=0)
    vectors = (centres + 0.05 * generator.normal(size=centres.shape)).astype(np.float32)
    places, method = _places(vectors)
    assert "t-SNE" in method
    assert np.array_equal(places, _places(vectors)[0])
    distance = np.linalg.norm(places[:, None] - places[None], axis=2) + 9 * np.eye(len(places))
    assert (distance.argmin(1) // 12 == np.arange(36) // 12).all()


def test_the_lamp_is_on_the_orange_side_of_the_sets_own_centre(report: Report) -> None:
    light = colour_casts_data(report)
    lamp = [path in ("$cup_1$/0.png", "$cup_1$/1.png") for path in light.paths]
    assert light.mired[lamp].min() > np.delete(light.mired, np.flatnonzero(lamp)).max()
    assert light.centre[0] == pytest.approx(np.median(light.mired))


def test_captions_are_counted_as_they_are(report: Report) -> None:
    levels, words, without = granularity_data(report)
    assert without == 6
    assert sum(levels.values()) == 6
    assert dict(words)["3-5"] == 6
    tags, counts, total = caption_tags_data(report)
    assert total == 6
    assert tags == ["cat", "orange fur", "grass"]
    assert counts.tolist() == [[6, 6, 3], [6, 6, 3], [3, 3, 3]]


def test_sizes_and_buckets_hold_every_picture(report: Report) -> None:
    pictures, side = sizes_data(report)
    assert side == 320
    assert len(pictures) == 12
    assert [340, 300] in pictures.tolist()
    found = buckets_data(report)
    assert sum(bucket.images for bucket in found) == 12
    assert all(bucket.width % 64 == 0 and bucket.height % 64 == 0 for bucket in found)


def test_a_notebook_shows_the_report_and_nothing_is_run(report: Report) -> None:
    nasty = Report(report.path, {**report.run, "dataset": {"path": "<script>alert(1)</script>"}})
    shown = nasty._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "12 images, 12 usable" in shown
    for rule in set(report.findings()["rule"].to_pylist()):
        assert f"<td>{rule}</td>" in shown
