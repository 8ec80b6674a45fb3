"""`audit`: from a folder of images to a finished report."""

from __future__ import annotations

import collections
import contextlib
import gc
import shutil
import time
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from datasieve.baseline import read_baseline
from datasieve.batch import DecodeRequest
from datasieve.config import Settings
from datasieve.errors import ConfigError, InputError, OutputError
from datasieve.pipeline.executors.local import DecodePool, usable_cores
from datasieve.pipeline.finish import finish
from datasieve.pipeline.measure import Measurer, open_stores, torch_threads
from datasieve.pipeline.plan import make_plan
from datasieve.pipeline.worker import Job
from datasieve.policy import rules_in_force
from datasieve.progress import Progress, Silent
from datasieve.records import ImageRecord
from datasieve.report import COLUMNS_FOLDER, PartStore, Report, open_report, read_run
from datasieve.schema import SCHEMA_VERSION
from datasieve.sources import open_source
from datasieve.storage import write_json

BATCH_IMAGES = {"cpu": 8, "cuda": 64}
"""Images measured at once: on CPUs what fits the cache, on GPUs what keeps them busy."""

WINDOW_IMAGES = 192
"""Pictures that may be decoded ahead of measuring: about 1 MB each."""

TABLES = ("images.parquet", "findings.parquet", "pairs.parquet", "concepts.parquet", "embeddings.parquet")


class Interrupted(KeyboardInterrupt):
    """An audit was interrupted after it had measured something.

    Attributes:
        report: the valid report of what was measured, or None if nothing was. A rerun continues.
    """

    def __init__(self, report: Report | None) -> None:
        super().__init__("interrupted")
        self.report = report


def default_report(dataset: Path) -> Path:
    """Return where the report of a dataset goes: the sibling folder `<name>-report`."""
    whole = dataset.resolve()
    return whole.parent / f"{whole.name or 'root'}-report"


def audit(
    path: str | Path,
    out: str | Path | None = None,
    *,
    settings: Settings | None = None,
    workers: int | None = None,
    device: str | None = None,
    fresh: bool = False,
    baseline: str | Path | None = None,
    progress: Progress | None = None,
) -> Report:
    """Measure every image of a dataset, judge the measurements, and write the report.

    Originals are only read. A rerun into the same report measures only what is new or changed, by content.

    Args:
        path: a folder, a `.tar` shard or folder of shards, a kohya dataset TOML, or a list of paths.
        out: the report's folder; None: the sibling folder `<name>-report`.
        settings: rules, limits, base, trainer and the like; None: the defaults.
        workers: decode processes; None: one per core.
        device: "cpu", "cuda" or "cuda:N"; None: CUDA when there is one.
        fresh: discard what an earlier audit measured.
        baseline: file of accepted findings, which are left out and counted.
        progress: told how far the audit is.

    Raises:
        InputError: the dataset is not there or holds nothing to audit.
        OutputError: the report cannot be written, or its folder holds something else.
        ConfigError: a setting or the device cannot be used.
        Interrupted: Ctrl-C; the report so far is valid.
    """
    settings = settings or Settings()
    progress = progress or Silent()
    dataset = Path(path)
    started = time.perf_counter()
    rules = rules_in_force(settings)
    accepted = read_baseline(Path(baseline)) if baseline else frozenset()
    ingest = open_source(dataset, concept_by=settings.concept_by)
    report = Path(out) if out is not None else default_report(dataset)
    plan = make_plan(settings)
    if device is not None:
        device = usable_device(device)
    _prepare(report, dataset, fresh)
    run: dict[str, Any] = {
        "datasieve": version("datasieve"),
        "schema": SCHEMA_VERSION,
        "status": "running",
        "dataset": {"path": str(dataset.resolve()), "layout": ingest.layout},
        "settings": settings,
        "embedder": plan.embedder(),
        "analyzers": {name: analyzer.version for name, analyzer in (plan.measuring | plan.comparing).items()},
    }
    write_json(report / "run.json", {**run, "settings": _settings(settings)})
    stores = open_stores(report, plan)
    known = _known(stores)
    count = workers or usable_cores()
    status = "complete"
    progress.stage("Measuring", ingest.total)
    with DecodePool(count, WINDOW_IMAGES) as pool:
        pending: collections.deque[ImageRecord] = collections.deque()
        decoding = pool.run(_jobs(ingest.records, pending, plan.request, known))
        # Decoding has begun; only now is torch loaded, which takes as long as decoding some hundred pictures.
        device = device or usable_device(None)
        threads = min(2, usable_cores()) if device == "cpu" else 1
        measurer = Measurer(plan, stores, device, BATCH_IMAGES[device.split(":")[0]], threads)
        try:
            with torch_threads(device, count):
                for decoded in decoding:
                    measurer.add(pending.popleft(), decoded)
                    progress.advance()
                measurer.finish_part()
        except KeyboardInterrupt:
            status = "interrupted"
            measurer.keep_finished()
        finally:
            measurer.close()
    measured = time.perf_counter()
    if status == "interrupted" and not measurer.parts:
        raise Interrupted(None)
    if not measurer.parts:
        raise InputError(
            f"there are no images in {dataset}",
            remedy="Name a folder with images; `datasieve doctor` lists the formats.",
        )
    progress.stage("Judging", None)
    run |= {
        "status": status,
        "device": device,
        "workers": count,
        "workers_replaced": [{"path": r.path, "reason": r.reason, "retried": r.retried} for r in pool.replacements],
        "passed_over": dict(sorted(ingest.passed_over.items())),
        "measured_images": measurer.measured_images,
        "timing": {"measure": measured - started, **{k: round(v, 4) for k, v in sorted(measurer.seconds.items())}},
    }
    run = finish(report, plan, measurer, ingest.notes, settings, rules, accepted, run, ingest.derived)
    run["timing"] = {"total": round(time.perf_counter() - started, 4), **run["timing"]}
    write_json(report / "run.json", {**run, "settings": _settings(settings)})
    if status == "interrupted":
        raise Interrupted(open_report(report))
    for store in stores.values():
        store.sweep()
    return open_report(report)


def _jobs(
    records: Iterable[ImageRecord],
    pending: collections.deque[ImageRecord],
    request: DecodeRequest,
    known: dict[str, str],
) -> Iterator[Job]:
    """Turn records into decode jobs, remembering in `pending` which are under way."""
    for index, record in enumerate(records):
        pending.append(record)
        yield Job(index, record.path, record.location, request, known.get(record.image_id, ""))


def _known(stores: dict[str, PartStore]) -> dict[str, str]:
    """Return image_id -> content hash of the images for which every store has measurements."""
    keys: dict[str, str] = {}
    for position, store in enumerate(stores.values()):
        scanned = store.scan()
        keys = scanned if position == 0 else {i: k for i, k in keys.items() if scanned.get(i) == k}
    return {image: key.split(".")[0] for image, key in keys.items() if key}


def usable_device(name: str | None) -> str:
    """Return the device of that name, or the best there is. Raises ConfigError when it cannot be used."""
    with _no_collection():
        import torch

    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind = name.split(":")[0]
    if kind not in BATCH_IMAGES or (kind == "cuda" and not torch.cuda.is_available()):
        raise ConfigError(f"device {name!r} cannot be used here", remedy="Leave --device out, or give --device cpu.")
    return name


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Hold the garbage collector back: it finds nothing in a large import and costs an eighth of its time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _prepare(report: Path, dataset: Path, fresh: bool) -> None:
    """Make sure the report's folder is ours to write. Raises OutputError."""
    if report.resolve() == dataset.resolve():
        raise OutputError(f"{report} is the dataset itself", remedy="Choose another folder with --out.")
    if report.exists() and not report.is_dir():
        raise OutputError(f"{report} is a file", remedy="Choose another folder with --out.")
    ours = read_run(report) is not None
    if report.is_dir() and any(report.iterdir()) and not ours:
        raise OutputError(
            f"{report} holds something that is not a report", remedy="Choose an empty or new folder with --out."
        )
    if ours and fresh:
        shutil.rmtree(report / COLUMNS_FOLDER, ignore_errors=True)
    for name in TABLES if ours else ():
        (report / name).unlink(missing_ok=True)  # they belong to the run that is being replaced


def _settings(settings: Settings) -> Any:
    import msgspec

    return msgspec.to_builtins(settings)
