"""From a report to batches, to items, and to what `datasieve batches` says."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

import datasieve
from datasieve.cli import main
from datasieve.errors import ReportError
from datasieve.report import Report, pairs_table
from datasieve.sampling import (
    GradientBalancedBatchSampler,
    IsolationGradientSampler,
    ReportDataset,
    SemanticIsolationBatchSampler,
)
from tests.pipeline.conftest import scene


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """An audited kohya set: six upright and two sideways cats twice over, a copy of a cat, and four dogs."""
    folder = tmp_path_factory.mktemp("set") / "images"
    cats, dogs = folder / "2_cat", folder / "1_dog"
    cats.mkdir(parents=True)
    dogs.mkdir()
    for i in range(8):
        scene(i, *((128, 128) if i < 6 else (96, 192))).save(cats / f"{i}.png")
        (cats / f"{i}.txt").write_text(f"a photo of cat {i}")
    (cats / "8.png").write_bytes((cats / "0.png").read_bytes())
    for i in range(4):
        scene(20 + i, 128, 128).save(dogs / f"{i}.png")
    (dogs / "broken.png").write_bytes(b"no picture")
    return datasieve.audit(folder, folder.parent / "report")


def with_semantics(report: Report, clusters: dict[str, int | None], confused: list[tuple[str, str]]) -> Report:
    """Return the report with these clusters and pairs in place of the measured ones."""
    table = report.images()
    paths = table["path"].to_pylist()
    column = pa.array([clusters.get(path) for path in paths], pa.int64())
    table = table.drop_columns([c for c in table.column_names if c.startswith("semantics.")])
    pq.write_table(table.append_column("semantics.cluster", column), report.path / "images.parquet")
    ids = dict(zip(paths, table["image_id"].to_pylist(), strict=True))
    rows = [("confusion", ids[a], ids[b], a, b, 0.9) for a, b in confused]
    pq.write_table(pairs_table(rows), report.path / "pairs.parquet")
    return Report(report.path, report.run)


@pytest.fixture
def report(audited: Report, tmp_path: Path) -> Report:
    """A copy of the audited report that a test may change."""
    for name in ("images.parquet", "pairs.parquet"):
        (tmp_path / name).write_bytes((audited.path / name).read_bytes())
    (tmp_path / "run.json").write_bytes((audited.path / "run.json").read_bytes())
    table = pq.read_table(tmp_path / "images.parquet")
    kept = [c for c in table.column_names if not c.startswith("semantics.")]
    pq.write_table(table.select(kept), tmp_path / "images.parquet")
    pairs = pq.read_table(tmp_path / "pairs.parquet")
    unlike = [kind not in ("confusion", "similar") for kind in pairs["kind"].to_pylist()]
    pq.write_table(pairs.filter(pa.array(unlike, pa.bool_())), tmp_path / "pairs.parquet")
    return Report(tmp_path, audited.run)


def paths_of(report: Report) -> list[str]:
    """Return the paths of the usable images, by index."""
    return ReportDataset(report).paths


def test_a_report_without_clusters_is_refused_naming_the_column(report: Report) -> None:
    with pytest.raises(ReportError, match=r"no column 'semantics.cluster'.*\n.*clusters=\"concept\""):
        SemanticIsolationBatchSampler.from_report(report, batch_size=2)


def test_buckets_repeats_and_usable_images_come_from_the_report(report: Report) -> None:
    sampler = SemanticIsolationBatchSampler.from_report(report, batch_size=2, clusters="concept", seed=1)
    paths = paths_of(report)
    shown = [[paths[i] for i in batch] for batch in sampler]
    times = {path: sum(batch.count(path) for batch in shown) for path in paths}
    assert len(paths) == 13
    assert not any("broken" in path for path in paths)
    assert all(times[path] >= (2 if "cat" in path else 1) for path in paths)
    sideways = {"2_cat/6.png", "2_cat/7.png"}
    assert all(len(set(batch) & sideways) in (0, len(set(batch))) for batch in shown)


def test_clusters_of_one_concept_and_confused_pairs_of_two_never_share_a_batch(report: Report) -> None:
    clusters = {f"2_cat/{i}.png": int(i >= 4) for i in range(9)} | {f"1_dog/{i}.png": 0 for i in range(4)}
    measured = with_semantics(report, clusters, [("2_cat/1.png", "1_dog/2.png")])
    sampler = SemanticIsolationBatchSampler.from_report(measured, batch_size=2)
    paths = paths_of(measured)
    kinds = {frozenset((paths[i][2:5], clusters[paths[i]]) for i in batch) for epoch in range(3) for batch in sampler}
    assert frozenset({("cat", 0), ("cat", 1)}) not in kinds
    assert frozenset({("cat", 0), ("dog", 0)}) not in kinds
    assert frozenset({("cat", 1), ("dog", 0)}) in kinds


def test_copies_share_a_weight_or_are_dropped_when_asked(report: Report) -> None:
    paths = paths_of(report)
    copy, original = paths.index("2_cat/8.png"), paths.index("2_cat/0.png")
    shared = SemanticIsolationBatchSampler.from_report(report, batch_size=1, clusters="concept", copies="share")
    assert shared.weights is not None
    assert shared.weights[[copy, original]].tolist() == [0.5, 0.5]
    assert shared.weights.sum() == 12
    dropped = SemanticIsolationBatchSampler.from_report(report, batch_size=1, clusters="concept", copies="drop")
    assert dropped.left_out == [copy]
    assert copy not in set(itertools.chain(*dropped))


def test_a_quality_score_can_weigh_images_and_a_missing_score_is_the_mean(report: Report) -> None:
    table = report.images()
    scores = pa.array([None if i == 3 else float(i) for i in range(table.num_rows)], pa.float32())
    pq.write_table(table.append_column("made.quality", scores), report.path / "images.parquet")
    sampler = SemanticIsolationBatchSampler.from_report(report, clusters="concept", weights="made.quality")
    assert sampler.weights is not None
    usable = [s for s, ok in zip(scores.to_pylist(), table["status"].to_pylist(), strict=True) if ok == "ok"]
    measured = [s for s in usable if s is not None]
    expected = [np.mean(measured) if s is None else s for s in usable]
    np.testing.assert_allclose(sampler.weights, expected)


def test_gradient_samplers_are_built_from_a_report_too(report: Report) -> None:
    balanced = GradientBalancedBatchSampler.from_report(report, batch_size=2, copies="drop")
    assert len(set(itertools.chain(*balanced))) == 12
    both = IsolationGradientSampler.from_report(report, batch_size=2, clusters="concept", beta=0.5)
    assert set(itertools.chain(*both)) == set(range(13))
    assert both.beta == 0.5


class Tokenizer:
    """Calls like those of a transformers tokenizer, counted in letters."""

    model_max_length = 77

    def __call__(self, text: str, **options: Any) -> Any:
        assert options == {"padding": "max_length", "truncation": True, "max_length": 77, "return_tensors": "pt"}
        ids = torch.zeros(1, 77, dtype=torch.long)
        ids[0, : len(text)] = torch.tensor([ord(letter) for letter in text])
        return SimpleNamespace(input_ids=ids)


def test_items_are_what_diffusers_scripts_read_and_batch_by_bucket(report: Report) -> None:
    items = ReportDataset(report, tokenizer=Tokenizer(), caption=lambda text: text.replace("cat", "<cat>"))
    sampler = SemanticIsolationBatchSampler.from_report(report, batch_size=2, clusters="concept")
    seen = set()
    for batch in DataLoader(items, batch_sampler=sampler):
        assert batch["input_ids"].shape == (2, 77)
        assert batch["pixel_values"].dtype == torch.float32
        height, width = batch["pixel_values"].shape[2:]
        assert all(items.sizes[i] == (width, height) for i in batch["index"].tolist())
        seen |= set(batch["index"].tolist())
    assert seen == set(range(13))
    first = items[items.paths.index("2_cat/3.png")]
    assert "".join(chr(i) for i in first["input_ids"].tolist() if i) == "a photo of <cat> 3"


def test_pixels_are_the_upright_picture_covered_and_scaled_to_minus_one_to_one(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    upright = Image.new("RGB", (512, 512), (255, 0, 0))
    upright.paste((0, 0, 255), (0, 0, 512, 256))
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = upright.transpose(Image.Transpose.ROTATE_90)
    stored.save(folder / "turned.png", exif=exif)
    Image.new("RGBA", (512, 512), (0, 255, 0, 0)).save(folder / "clear.png")
    items = ReportDataset(datasieve.audit(folder, tmp_path / "report"))
    turned = items[items.paths.index("turned.png")]["pixel_values"]
    assert turned.shape == (3, 512, 512)
    assert turned[:, 10, 10].tolist() == [-1, -1, 1]
    assert turned[:, 500, 10].tolist() == [1, -1, -1]
    clear = items[items.paths.index("clear.png")]["pixel_values"]
    torch.testing.assert_close(clear, torch.full_like(clear, 128 / 127.5 - 1))
    assert items[0]["caption"] == ""


def test_a_dataset_that_lost_images_is_refused_naming_one(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for i in range(2):
        scene(i).save(folder / f"{i}.png")
    report = datasieve.audit(folder, tmp_path / "report")
    (folder / "1.png").unlink()
    with pytest.raises(ReportError, match=r"1 of the report's images .* such as 1.png"):
        ReportDataset(report)


def test_the_command_tells_conflicts_avoided_coverage_and_repeats(
    report: Report, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    clusters = {f"2_cat/{i}.png": int(i >= 4) for i in range(9)} | {f"1_dog/{i}.png": 0 for i in range(4)}
    measured = with_semantics(report, clusters, [])
    plot = tmp_path / "plot.png"
    assert main(["batches", str(measured.path), "--batch-size", "2", "--plot", str(plot)]) == 0
    told = capsys.readouterr().out
    assert "conflicts     0 pairs of images; random batches would have" in told
    assert "coverage      100 % of the images shown" in told
    with Image.open(plot) as drawn:
        assert drawn.size[0] > 500
    assert main(["batches", str(measured.path), "--batch-size", "2", "--format", "json", "--ranks", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["effective_batch_size"] == 4
    assert sum(found["gradient_share"].values()) == pytest.approx(1)
    assert found["conflicts_avoided"] == found["conflicts_random"] > 0


def test_the_command_without_clusters_says_what_is_missing(report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batches", str(report.path)]) == 2
    assert "no column 'semantics.cluster'" in capsys.readouterr().err
    assert main(["batches", str(report.path), "--clusters", "concept", "--batch-size", "8"]) == 0


def test_measured_clusters_are_taken_and_a_report_without_an_embedder_is_refused(tmp_path: Path) -> None:
    from skimage import data

    from datasieve.config import Settings

    folder = tmp_path / "set" / "thing"
    folder.mkdir(parents=True)
    for i in range(6):
        Image.fromarray(data.chelsea()[:, i * 20 : i * 20 + 330]).save(folder / f"cat{i}.png")
        Image.fromarray(data.coffee()[:, i * 20 : i * 20 + 420]).save(folder / f"cup{i}.png")
    sampler = SemanticIsolationBatchSampler.from_report(datasieve.audit(folder.parent), batch_size=3)
    names = ReportDataset(datasieve.open_report(tmp_path / "set-report")).paths
    for indices in sampler:
        assert len({Path(names[i]).name[:3] for i in indices}) == 1, "cats and cups never meet"
    blind = datasieve.audit(folder.parent, tmp_path / "blind", settings=Settings(embedder="none"))
    with pytest.raises(ReportError, match="no embedder ran"):
        SemanticIsolationBatchSampler.from_report(blind, batch_size=3)
