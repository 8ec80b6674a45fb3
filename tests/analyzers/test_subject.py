"""The subject analyzer: through the pipeline, on real photos set where the answer is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from skimage import data

from datasieve.analyzers._scales import advice, groups_of, scale_of
from datasieve.config import Settings
from datasieve.pipeline.run import audit
from datasieve.report import Report
from tests.embedding.test_saliency import CAT, GROUND, set_into


def photo(folder: Path, name: str, pixels: np.ndarray) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(folder / name, quality=92)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Cats small and large on plain ground, one of them alone in its concept."""
    folder = tmp_path_factory.mktemp("subject") / "set"
    for i, (side, top, left) in enumerate(
        ((120, 30, 40), (120, 250, 260), (240, 20, 180), (240, 180, 20), (400, 20, 20))
    ):
        cat = np.asarray(Image.fromarray(CAT).resize((side, side)))
        photo(folder / "cat", f"{i}.jpg", set_into(GROUND, cat, top, left))
    photo(folder / "lone", "cat.jpg", set_into(GROUND, CAT, 104, 104))
    return audit(folder, settings=Settings(select=("subject",)))


def rows(report: Report) -> dict[str, dict[str, Any]]:
    return {row["path"]: row for row in report.images().to_pylist()}


def test_boxes_lie_on_what_was_set_and_grow_with_it(report: Report) -> None:
    """Small subjects are boxed too large (docs/subject.md), so it is the place and the order that must hold."""
    found = rows(report)
    for name, side, top, left in (("0", 120, 30, 40), ("2", 240, 20, 180), ("4", 400, 20, 20)):
        row = found[f"cat/{name}.jpg"]
        across, down = (
            (row["subject.left"] + row["subject.right"]) / 2,
            (row["subject.top"] + row["subject.bottom"]) / 2,
        )
        assert across == pytest.approx((left + side / 2) / 448, abs=0.12)
        assert down == pytest.approx((top + side / 2) / 448, abs=0.12)
        width, height = row["subject.right"] - row["subject.left"], row["subject.bottom"] - row["subject.top"]
        assert row["subject.share"] == pytest.approx(width * height, abs=1e-5)
        assert row["subject.scale"] == scale_of(row["subject.share"])
        assert 0 <= row["subject.certainty"] <= 1
        assert 0 <= row["subject.consistency"] <= 1
    shares = [found[f"cat/{name}.jpg"]["subject.share"] for name in "024"]
    assert shares == sorted(shares)
    assert shares[2] > 2 * shares[0]


def test_a_concept_of_one_picture_is_measured_by_itself(report: Report) -> None:
    row = rows(report)["lone/cat.jpg"]
    assert (row["subject.left"] + row["subject.right"]) / 2 == pytest.approx(0.5, abs=0.12)
    assert row["subject.share"] == pytest.approx((240 / 448) ** 2, abs=0.2)
    assert row["subject.certainty"] is not None


def test_what_the_maps_are_made_of_stays_out_of_the_embeddings(report: Report) -> None:
    assert report.embeddings().column_names == ["image_id", "path", "concept", "embedding"]
    assert "subject.features" not in report.images().column_names


def test_a_rerun_measures_nothing_anew_and_tells_the_same(report: Report) -> None:
    before = rows(report)
    again = audit(Path(report.run["dataset"]["path"]), report.path, settings=Settings(select=("subject",)))
    assert again.run["measured_images"] == 0
    assert rows(again) == before


def test_without_an_embedder_it_is_said_once_and_the_columns_are_empty(tmp_path: Path) -> None:
    for i in range(3):
        photo(tmp_path / "set", f"{i}.jpg", data.chelsea()[:, i * 20 : i * 20 + 300])
    report = audit(tmp_path / "set", settings=Settings(select=("subject",), embedder="none"))
    assert report.run["unmeasured"]["subject"] == "3 images: embedder is set to none"
    assert all(row["subject.share"] is None for row in report.images().to_pylist())


@pytest.mark.parametrize(
    ("share", "scale"),
    [
        (1.0, "detail"),
        (0.75, "detail"),
        (0.74, "portrait"),
        (0.39, "half"),
        (0.12, "full"),
        (0.03, "wide"),
        (0, "wide"),
    ],
)
def test_scales_by_share(share: float, scale: str) -> None:
    assert scale_of(share) == scale


def test_the_literatures_broken_set_is_told_what_it_lacks() -> None:
    """27 close-ups, 5 half shots, 1 full shot of 33: 27 are half of 54, so 16 half and 11 full shots are wanted."""
    shares = [0.9] * 27 + [0.2] * 5 + [0.05]
    assert groups_of(shares) == pytest.approx({"close-ups": 27 / 33, "half shots": 5 / 33, "full shots": 1 / 33})
    assert advice(shares) == (
        "11 that show it with some room around and 10 that show all of it small in its surroundings"
    )


def test_a_mixed_set_lacks_nothing() -> None:
    assert advice([0.9, 0.5, 0.2, 0.2, 0.1, 0.05]) == ""
