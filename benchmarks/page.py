"""How long the page of a report takes to write and to open.

    python benchmarks/page.py                      a made report of 50,000 records
    python benchmarks/page.py --records 12
    python benchmarks/page.py --report REPORT      a real one: writing it against the audit's own time

The made report holds as many records as asked for, in 100 concepts, with about two findings each of every kind of rule
the page shows differently; its pictures are drawn. Opening is timed to the load event in headless Chromium, median of
five fresh tabs. The time of an audit is the `total` that the report's run.json tells.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image

from datasieve.embedding import lite0
from datasieve.policy import all_rules
from datasieve.records import ImageRecord, Location, image_id
from datasieve.report import (
    Report,
    field_of,
    findings_table,
    open_report,
    pairs_table,
    schema_with_version,
    write_table,
)
from datasieve.reporting.page import write_page
from datasieve.rules import Finding
from datasieve.schema import IMAGE_FIELDS, SCHEMA_VERSION
from datasieve.sources import open_source
from datasieve.storage import write_json

PICTURES, CONCEPTS, MAX_PIXELS = 64, 100, 178_956_970
RULES = (
    "duplicates.exact", "duplicates.near", "captions.too-long", "captions.granularity-outlier", "colour.cast",
    "sharpness.blurred", "files.small", "semantics.conflict", "frame.border", "trainer.folder-ignored", "files.grey",
    "colour.underexposed",
)  # fmt: skip
CAPTION = "a photo of a {} on a wooden table beside the window in soft light, seen from the front"


def made(folder: Path, number: int) -> tuple[Report, list[ImageRecord]]:
    """Return a report of `number` records in `folder` and the records."""
    generator = np.random.default_rng(0)
    pictures = folder / "set"
    pictures.mkdir(parents=True)
    y, x = np.mgrid[0:384, 0:512]
    for i in range(min(PICTURES, number)):
        wave = np.stack([np.sin(x / (9 + i + c)) + np.cos(y / (14 + 2 * c)) for c in range(3)], axis=-1)
        Image.fromarray((127 + 60 * wave).astype(np.uint8)).save(pictures / f"{i}.jpg", quality=90)
    paths = [f"concept {i % CONCEPTS:02}/picture {i:06}.jpg" for i in range(number)]
    records = [
        ImageRecord(image_id(p), p, Location(str(pictures / f"{i % PICTURES}.jpg")), p.partition("/")[0])
        for i, p in enumerate(paths)
    ]
    report = folder / "report"
    cluster = generator.integers(0, 2, number)
    write_table(_images(records, cluster, generator), report / "images.parquet")
    write_table(_embeddings(records, cluster, generator), report / "embeddings.parquet")
    findings = _findings(records, generator)
    write_table(findings_table(findings), report / "findings.parquet")
    write_table(pairs_table([]), report / "pairs.parquet")
    names = sorted({record.concept for record in records})
    write_table(
        pa.table({"concept": names, "images": [number // len(names)] * len(names)}), report / "concepts.parquet"
    )
    severities = [f.severity for f in findings]
    run = {
        "datasieve": "made", "schema": SCHEMA_VERSION, "status": "complete",
        "dataset": {"path": str(pictures), "layout": "folder"}, "verdict": "fix first", "verdict_reasons": [],
        "settings": {"base": "sd15", "trainer": "kohya"}, "unmeasured": {}, "timing": {"total": 0.0},
        "counts": {"images": number, "ok": number, "concepts": len(names),
                   "findings": {s: severities.count(s) for s in ("error", "warning", "info")}},
    }  # fmt: skip
    write_json(report / "run.json", run)
    return open_report(report), records


def _images(records: list[ImageRecord], cluster: Any, generator: np.random.Generator) -> pa.Table:
    n = len(records)
    captions = [CAPTION.format(["dog", "cat", "cup", "vase", "toy"][i % 5]) for i in range(n)]
    columns: dict[str, Any] = {
        "image_id": [r.image_id for r in records], "path": [r.path for r in records],
        "concept": [r.concept for r in records], "caption": captions, "repeats": [1] * n, "group": [""] * n,
        "content": [generator.bytes(16).hex() for _ in range(n)], "width": [512] * n, "height": [384] * n,
        "format": ["JPEG"] * n, "status": ["ok"] * n, "error": [None] * n,
    }  # fmt: skip
    fields = [field_of(name) for name in IMAGE_FIELDS]
    arrays = [pa.array(columns[f.name], f.type) for f in fields]
    lost = generator.random(n) < 0.1
    more: dict[str, Any] = {
        "captions.granularity": ["medium"] * n, "captions.style": ["sentence"] * n, "captions.words": [18] * n,
        "captions.tokens-lost": np.where(lost, 12, 0), "captions.words-lost": [c[-20:] for c in captions],
        "colour.mired": generator.normal(160, 30, n), "colour.duv": generator.normal(0, 0.006, n),
        **{f"colour.light-{c}": generator.uniform(0.6, 1, n) for c in ("red", "green", "blue")},
        "semantics.cluster": cluster, "semantics.conflict": generator.uniform(0, 1, n),
        "buckets.width": generator.choice([448, 512, 576], n), "buckets.height": [512] * n,
        "buckets.fill": [100] * n, "buckets.crop-share": generator.uniform(0, 0.1, n),
        "buckets.scale": generator.uniform(0.5, 1.2, n), "buckets.shortfall": [0] * n,
        "duplicates.exact-of": [records[i - 1].path for i in range(n)],
        "trainer.folder-ignored-consequence": ["kohya will not train this file."] * n,
    }  # fmt: skip
    return pa.table({**dict(zip(IMAGE_FIELDS, arrays, strict=True)), **{k: pa.array(v) for k, v in more.items()}})


def _embeddings(records: list[ImageRecord], cluster: Any, generator: np.random.Generator) -> pa.Table:
    n = len(records)
    means = generator.normal(size=(CONCEPTS, 2, lite0.SIZE))
    chunks = []
    for start in range(0, n, 5000):
        part = np.arange(start, min(start + 5000, n))
        vectors = means[part % CONCEPTS, cluster[part]] + 0.6 * generator.normal(size=(len(part), lite0.SIZE))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        flat = pa.array(vectors.astype(np.float16).reshape(-1))
        chunks.append(pa.FixedSizeListArray.from_arrays(flat, lite0.SIZE))
    columns = {"image_id": [r.image_id for r in records], "path": [r.path for r in records]}
    table = pa.table({**columns, "concept": [r.concept for r in records], "embedding": pa.chunked_array(chunks)})
    return table.replace_schema_metadata(schema_with_version([]).metadata)


def _findings(records: list[ImageRecord], generator: np.random.Generator) -> list[Finding]:
    rules = all_rules()
    found = []
    for record in records:
        for name in generator.choice(len(RULES), 2, replace=False):
            rule = rules[RULES[name]]
            value = float(generator.uniform(1, 50))
            found.append(
                Finding(rule.id, rule.severity, record.image_id, record.path, record.concept, value, 1.0,
                        f"Measured {value:.1f}.", rule.remedy)
            )  # fmt: skip
    return found


def opened(page: Path, times: int = 5) -> tuple[float, int]:
    """Return the median time in seconds until the page is loaded, and the number of its elements."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("there is no chromium")
    seconds, nodes = [], 0
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(times):
            context = browser.new_context(viewport={"width": 1280, "height": 900})
            tab = context.new_page()
            tab.goto(page.as_uri(), wait_until="load")
            seconds.append(tab.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000)
            nodes = int(tab.evaluate("document.querySelectorAll('*').length"))
            context.close()
        browser.close()
    return statistics.median(seconds), nodes


def measure(report: Report, records: Any) -> dict[str, Any]:
    """Return how long writing and opening took, and how large the page is."""
    for folder in ("thumbnails", "page-data"):
        shutil.rmtree(report.path / folder, ignore_errors=True)
    started, worked = time.perf_counter(), time.process_time()
    page = write_page(report, records, all_rules(), MAX_PIXELS)
    seconds, own = time.perf_counter() - started, time.process_time() - worked
    load, nodes = opened(page)
    thumbnails = list((report.path / "thumbnails").glob("*"))
    audit = float(report.run["timing"]["total"])
    return {
        "records": report.run["counts"]["images"],
        "write_seconds": round(seconds, 1),
        "write_seconds_of_this_process": round(own, 1),
        "thumbnails": len(thumbnails),
        "html_kb": round(page.stat().st_size / 1000),
        "thumbnails_mb": round(sum(file.stat().st_size for file in thumbnails) / 1e6, 1),
        "data_kb": round(sum(file.stat().st_size for file in (report.path / "page-data").glob("*")) / 1000),
        "open_seconds": round(load, 2),
        "elements": nodes,
        **({"audit_seconds": round(audit, 1), "share_of_audit": round(seconds / audit, 4)} if audit else {}),
    }


def main() -> None:
    """Measure one report and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--report", type=Path, help="a finished report instead of a made one")
    parser.add_argument("--keep", type=Path, help="make the report in this folder and leave it there")
    options = parser.parse_args()
    if options.report:
        report = open_report(options.report)
        print(json.dumps(measure(report, open_source(Path(report.run["dataset"]["path"])).records), indent=1))
        return
    with tempfile.TemporaryDirectory() as temporary:
        report, records = made(options.keep or Path(temporary), options.records)
        print(json.dumps(measure(report, records), indent=1))


if __name__ == "__main__":
    main()
