"""The semantics analyzer: vectors through the pipeline, conflicts and clusters on real photos."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from skimage import data

from datasieve.config import Settings
from datasieve.errors import ReportError
from datasieve.pipeline.run import audit

CATS = [data.chelsea()[:, i * 20 : i * 20 + 330] for i in range(6)]
CUPS = [data.coffee()[:, i * 25 : i * 25 + 420] for i in range(3)]


def photo(folder: Path, name: str, pixels: np.ndarray) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(folder / name, quality=92)


def only_semantics(path: Path, **options: object) -> dict[str, dict[str, object]]:
    report = audit(path, settings=Settings(select=("semantics",), **options))  # type: ignore[arg-type]
    return {row["path"]: row for row in report.findings().to_pylist()}


def test_a_cup_among_cats_is_found_and_no_cat(tmp_path: Path) -> None:
    for i, pixels in enumerate(CATS):
        photo(tmp_path / "set" / "cat", f"cat{i}.jpg", pixels)
    photo(tmp_path / "set" / "cat", "cup.jpg", CUPS[0])
    report = audit(tmp_path / "set", settings=Settings(select=("semantics",)))
    found = report.findings().to_pylist()
    assert [(f["rule"], f["path"]) for f in found] == [("semantics.conflict", "cat/cup.jpg")]
    rows = {r["path"]: r for r in report.images(["path", "semantics.conflict"]).to_pylist()}
    assert rows["cat/cup.jpg"]["semantics.conflict"] > 0.8
    assert report.run["embedder"]["name"] == "lite0"


def test_cats_and_cups_under_one_name_are_two_groups(tmp_path: Path) -> None:
    for i, pixels in enumerate([*CATS, *CUPS]):
        photo(tmp_path / "set" / "thing", f"{i}.jpg", pixels)
    report = audit(tmp_path / "set", settings=Settings(select=("semantics.split",)))
    [found] = report.findings().to_pylist()
    assert (found["rule"], found["concept"], found["value"]) == ("semantics.split", "thing", 2.0)
    clusters = [r["semantics.cluster"] for r in report.images(["path", "semantics.cluster"]).to_pylist()]
    assert clusters == [0] * 6 + [1] * 3


def test_two_concepts_of_the_same_thing_are_told(tmp_path: Path) -> None:
    for i, pixels in enumerate(CATS):
        photo(tmp_path / "set" / ("tom" if i % 2 else "felix"), f"{i}.jpg", pixels)
        photo(tmp_path / "set" / "cup", f"{i}.jpg", data.coffee()[:, i * 20 : i * 20 + 420])
    report = audit(tmp_path / "set", settings=Settings(select=("semantics.confusion",)))
    told = {f["concept"]: f["message"] for f in report.findings().to_pylist()}
    assert set(told) == {"felix", "tom"}
    assert "tom" in told["felix"]


def test_vectors_are_half_floats_of_unit_length_in_a_table_of_their_own(tmp_path: Path) -> None:
    for i, pixels in enumerate(CATS[:4]):
        photo(tmp_path / "set", f"{i}.jpg", pixels)
    report = audit(tmp_path / "set")
    table = report.embeddings()
    assert str(table.schema.field("embedding").type) == "fixed_size_list<element: halffloat>[1280]"
    lengths = np.linalg.norm(np.array(table["embedding"].to_pylist(), np.float32), axis=1)
    assert np.allclose(lengths, 1, atol=2e-3)
    assert "semantics.embedding" not in pq.read_schema(report.path / "images.parquet").names
    measured = report.run["measured_images"]
    assert measured == 4
    assert audit(tmp_path / "set").run["measured_images"] == 0, "vectors are reused"


def test_without_an_embedder_nothing_is_invented(tmp_path: Path) -> None:
    for i, pixels in enumerate(CATS[:4]):
        photo(tmp_path / "set", f"{i}.jpg", pixels)
    audit(tmp_path / "set")
    report = audit(tmp_path / "set", settings=Settings(embedder="none"))
    assert report.images(["semantics.conflict"])["semantics.conflict"].null_count == 4
    assert "embedder is set to none" in report.run["unmeasured"]["semantics"]
    assert report.run["embedder"] is None
    with pytest.raises(ReportError, match="no embeddings"):
        report.embeddings()


def test_the_missing_text_tower_is_told_once(tmp_path: Path) -> None:
    for i, pixels in enumerate(CATS[:4]):
        photo(tmp_path / "set", f"{i}.jpg", pixels)
    told = audit(tmp_path / "set").run["unmeasured"]
    assert sum("CLIP" in str(text) for text in told.values()) == 1


def test_a_concept_of_copies_has_no_spread_and_a_null_says_so(tmp_path: Path) -> None:
    photo(tmp_path / "set" / "cat", "0.jpg", CATS[0])
    for i in range(1, 5):
        (tmp_path / "set" / "cat" / f"{i}.jpg").write_bytes((tmp_path / "set" / "cat" / "0.jpg").read_bytes())
    [row] = audit(tmp_path / "set").concepts().to_pylist()
    assert row["distinct"] == 1
    assert row["semantics.spread"] is None


def test_an_intruder_that_is_a_copy_from_another_concept_still_counts(tmp_path: Path) -> None:
    for i, pixels in enumerate(CATS):
        photo(tmp_path / "set" / "cat", f"cat{i}.jpg", pixels)
    for i in range(3):
        photo(tmp_path / "set" / "cup", f"{i}.jpg", CUPS[i])
        (tmp_path / "set" / "cat" / f"cup{i}.jpg").write_bytes((tmp_path / "set" / "cup" / f"{i}.jpg").read_bytes())
    report = audit(tmp_path / "set", settings=Settings(select=("semantics.split",)))
    assert [f["concept"] for f in report.findings().to_pylist()] == ["cat"]
