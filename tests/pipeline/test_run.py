"""Whole audits: what the report holds, and that it holds the same after whatever happened on the way."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest

import datasieve
from datasieve.config import Settings
from datasieve.errors import ConfigError, InputError, OutputError, ReportError
from datasieve.pipeline.run import Interrupted, audit, default_report
from datasieve.progress import Silent
from datasieve.report import open_report
from datasieve.schema import FINDING_FIELDS, IMAGE_FIELDS, PAIR_FIELDS
from tests.pipeline.conftest import scene

TABLES = ("images", "findings", "pairs", "concepts")


def snapshot(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(p.relative_to(folder)): (hashlib.sha256(p.read_bytes()).hexdigest(), p.stat().st_mtime_ns)
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def tables(report: Path) -> dict[str, pd.DataFrame]:
    return {name: pq.read_table(report / f"{name}.parquet").to_pandas() for name in TABLES}


def assert_same_tables(a: Path, b: Path) -> None:
    first, second = tables(a), tables(b)
    for name in TABLES:
        pd.testing.assert_frame_equal(first[name], second[name])


def test_an_audit_writes_the_promised_tables_and_leaves_the_originals_alone(images: Callable[[int], Path]) -> None:
    folder = images(6)
    (folder / "0002.jpg").write_bytes((folder / "0002.jpg").read_bytes()[:900])
    before = snapshot(folder)
    report = audit(folder)
    assert snapshot(folder) == before
    assert report.path == default_report(folder) == folder.parent / "images-report"
    table = report.images()
    assert table.column_names[: len(IMAGE_FIELDS)] == list(IMAGE_FIELDS)
    assert report.findings().column_names == list(FINDING_FIELDS)
    assert report.pairs().column_names == list(PAIR_FIELDS)
    statuses = dict(zip(table["path"].to_pylist(), table["status"].to_pylist(), strict=True))
    assert statuses == {f"{i:04d}.jpg": "unreadable" if i == 2 else "ok" for i in range(6)}
    truncated = [f for f in report.findings().to_pylist() if f["rule"] == "files.truncated"]
    assert [f["path"] for f in truncated] == ["0002.jpg"]
    assert report.run["counts"]["images"] == 6
    assert report.run["status"] == "complete"


def test_the_tables_open_in_pandas_and_duckdb_with_units_in_the_schema(images: Callable[[int], Path]) -> None:
    report = audit(images(3))
    assert len(pd.read_parquet(report.path / "images.parquet")) == 3
    count = duckdb.sql(f"select count(*) from '{report.path}/images.parquet' where status = 'ok'").fetchall()[0]
    assert count == (3,)
    assert report.columns()["complexity.texture-entropy"]["unit"] == "bits"
    assert pq.read_schema(report.path / "images.parquet").metadata[b"datasieve.schema"] == b"1"


def test_every_machine_readable_output_is_strict_json(images: Callable[[int], Path]) -> None:
    from PIL import Image

    folder = images(1)
    Image.new("RGB", (80, 80), (200, 10, 10)).save(folder / "flat.png")
    Image.new("RGB", (80, 80)).save(folder / "black.png")
    report = audit(folder)

    def refuse(literal: str) -> None:
        raise AssertionError(f"{literal} in run.json")

    json.loads((report.path / "run.json").read_text(), parse_constant=refuse)
    frame = report.images().to_pandas()
    assert not frame.select_dtypes("float").isin([float("inf"), float("-inf")]).any().any()


def test_one_worker_and_several_give_the_same_tables(images: Callable[[int], Path], tmp_path: Path) -> None:
    folder = images(20)
    audit(folder, tmp_path / "one", workers=1)
    audit(folder, tmp_path / "three", workers=3)
    assert_same_tables(tmp_path / "one", tmp_path / "three")


def test_a_rerun_measures_nothing_and_changes_nothing(images: Callable[[int], Path]) -> None:
    folder = images(8)
    first = audit(folder)
    assert first.run["measured_images"] == 8
    before = tables(first.path)
    parts = snapshot(first.path / "columns")
    second = audit(folder)
    assert second.run["measured_images"] == 0
    assert snapshot(second.path / "columns") == parts
    for name, table in tables(second.path).items():
        pd.testing.assert_frame_equal(table, before[name])


def test_only_what_is_new_or_changed_is_measured_also_when_size_and_time_stamp_are_the_same(
    images: Callable[[int], Path], tmp_path: Path
) -> None:
    folder = images(8)
    for number in (3, 4):  # BMPs of the same size: same byte count whatever they show
        scene(number).save(folder / f"{number}.bmp")
    stamp = (folder / "3.bmp").stat()
    report = audit(folder)
    shutil.copyfile(folder / "4.bmp", folder / "3.bmp")
    os.utime(folder / "3.bmp", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    (folder / "0000.jpg").rename(folder / "zzzz.jpg")
    scene(99).save(folder / "0001b.jpg")
    again = audit(folder)
    # the swapped picture's content is known from 4.bmp, and so is the renamed one's; only 0001b.jpg is new
    assert again.run["measured_images"] <= 3
    fresh = audit(folder, tmp_path / "fresh")
    assert_same_tables(report.path, fresh.path)


def test_fresh_measures_everything_again(images: Callable[[int], Path]) -> None:
    folder = images(3)
    audit(folder)
    assert audit(folder, fresh=True).run["measured_images"] == 3


class StopAfter(Silent):
    """Presses Ctrl-C after so many images."""

    def __init__(self, count: int) -> None:
        self.left = count

    def advance(self, items: int = 1) -> None:
        self.left -= items
        if self.left == 0:
            raise KeyboardInterrupt


def test_ctrl_c_leaves_a_valid_report_of_the_finished_parts_and_a_rerun_continues(
    images: Callable[[int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasieve.pipeline.measure.PART_IMAGES", 8)
    folder = images(30)
    with pytest.raises(Interrupted) as stopped:
        audit(folder, tmp_path / "stopped", progress=StopAfter(20))
    partial = stopped.value.report
    assert partial is not None
    assert partial.run["status"] == "interrupted"
    assert len(partial.images()) == 16
    rerun = audit(folder, tmp_path / "stopped")
    assert rerun.run["measured_images"] == 14
    audit(folder, tmp_path / "undisturbed")
    assert_same_tables(tmp_path / "stopped", tmp_path / "undisturbed")


def test_killed_at_any_moment_then_run_again_gives_the_tables_of_an_undisturbed_run(
    images: Callable[[int], Path], tmp_path: Path
) -> None:
    folder = images(60)
    code = (
        "import sys, datasieve.pipeline.measure as m; m.PART_IMAGES = 8; import datasieve; "
        "datasieve.audit(sys.argv[1], sys.argv[2])"
    )
    command = [sys.executable, "-c", code, str(folder)]
    started = time.monotonic()
    subprocess.run([*command, str(tmp_path / "undisturbed")], check=True)
    whole = time.monotonic() - started
    generator = random.Random(5)
    report = tmp_path / "killed"
    for _ in range(3):
        process = subprocess.Popen([*command, str(report)])
        time.sleep(whole * generator.uniform(0.4, 0.95))
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([*command, str(report)], check=True)
    assert_same_tables(report, tmp_path / "undisturbed")
    leftovers = [p for p in (report / "columns").rglob("*") if p.name.startswith(".writing-")]
    assert leftovers == []


def test_accepted_findings_are_left_out_and_counted(images: Callable[[int], Path], tmp_path: Path) -> None:
    from datasieve.baseline import write_baseline

    folder = images(3)
    first = audit(folder)
    findings = first.findings().to_pylist()
    assert findings
    write_baseline(tmp_path / "accepted.json", [(f["rule"], f["path"] or "") for f in findings])
    second = audit(folder, baseline=tmp_path / "accepted.json")
    assert len(second.findings()) == 0
    assert second.run["counts"]["accepted"] == len(findings)


def test_limits_select_and_ignore_decide_what_is_found(images: Callable[[int], Path]) -> None:
    folder = images(3)  # 200 x 150 pixels
    tiny = audit(folder, settings=Settings(select=("files.small",)))
    assert {f["rule"] for f in tiny.findings().to_pylist()} == {"files.small"}
    assert tiny.findings()["limit"].to_pylist() == [512.0] * 3
    larger = audit(folder, settings=Settings(select=("files.small",), base="sdxl"))
    assert larger.findings()["limit"].to_pylist() == [1024.0] * 3
    lower = audit(folder, settings=Settings(select=("files",), limits={"files.small": 100}))
    assert "files.small" not in lower.findings()["rule"].to_pylist()
    ignored = audit(folder, settings=Settings(ignore=("files",)))
    assert not [r for r in ignored.findings()["rule"].to_pylist() if r.startswith("files.")]
    with pytest.raises(ConfigError, match=r"no rule is called 'colour\.nonsense'"):
        audit(folder, settings=Settings(select=("colour.nonsense",)))


def test_a_report_in_the_dataset_is_passed_over(images: Callable[[int], Path]) -> None:
    folder = images(3)
    audit(folder, folder / "its-report")
    again = audit(folder, folder / "its-report")
    assert again.run["counts"]["images"] == 3


def test_other_peoples_folders_are_not_written_into(images: Callable[[int], Path], tmp_path: Path) -> None:
    folder = images(2)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "novel.txt").write_text("chapter one")
    with pytest.raises(OutputError, match="holds something that is not a report"):
        audit(folder, tmp_path / "taken")
    with pytest.raises(OutputError, match="is the dataset itself"):
        audit(folder, folder)
    assert (tmp_path / "taken" / "novel.txt").read_text() == "chapter one"


def test_nothing_to_audit_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing"):
        audit(tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError):
        audit(tmp_path / "empty")


def test_an_unfinished_report_is_not_shown_as_a_finished_one(images: Callable[[int], Path]) -> None:
    report = audit(images(2))
    run = json.loads((report.path / "run.json").read_text())
    (report.path / "run.json").write_text(json.dumps({**run, "status": "running"}))
    with pytest.raises(ReportError, match="did not finish"):
        open_report(report.path)


def test_the_public_names_do_the_same(images: Callable[[int], Path]) -> None:
    report = datasieve.audit(images(2))
    assert datasieve.open_report(report.path).images().equals(report.images())


def test_a_device_that_is_not_there_is_refused(images: Callable[[int], Path]) -> None:
    with pytest.raises(ConfigError, match="'tpu'"):
        audit(images(1), device="tpu")


def test_batches_are_halved_until_they_fit_the_device() -> None:
    import torch

    from datasieve.batch import Batch, Decoded
    from datasieve.pipeline.measure import measure_within_memory
    from datasieve.records import ImageRecord, Location
    from datasieve.schema import Column

    class Greedy:
        version, views, needs, rules = 1, (), (), ()
        columns = (Column("greedy.size", "int", description="batch size it was measured in"),)

        def measure(self, batch: Batch) -> dict[str, list[int]]:
            if len(batch) > 3:
                raise torch.cuda.OutOfMemoryError("too large")
            return {"greedy.size": [len(batch)] * len(batch)}

    records = [ImageRecord(str(i), f"{i}.jpg", Location("")) for i in range(8)]
    values = measure_within_memory("greedy", Greedy(), Batch(records, [Decoded() for _ in records]))
    assert values == {"greedy.size": [2] * 8}


def test_a_damaged_table_is_named_with_what_to_do(tmp_path: Path) -> None:
    from datasieve.errors import ReportError

    folder = tmp_path / "set"
    folder.mkdir()
    for i in range(3):
        scene(i, 128, 128).save(folder / f"{i}.png")
    report = audit(folder)
    (report.path / "images.parquet").write_bytes(b"garbage")
    for read in (report.columns, report.images, lambda: report.images(["path"])):
        with pytest.raises(ReportError, match=r"cannot read .*images\.parquet"):
            read()
