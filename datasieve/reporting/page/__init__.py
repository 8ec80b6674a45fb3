"""`index.html` in a report: the findings as pictures, in the order in which to act on them.

    index.html      the page: text, charts, and the first items of every list
    thumbnails/     the pictures on it, called by the content of the files they show
    page-data/      the further items of long lists, loaded when somebody turns the page

No network, no server: it opens from disk. Lists are capped, so the page stays small however many images the set has;
`datasieve show` and the Parquet tables hold the rest. Everything that came from outside is escaped by the template, or
written as text by the script; the page's own script and style are allowed by their hash alone. Without scripts every
list still shows its first page, and the charts name their points.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from datasieve.records import ImageRecord
from datasieve.report import Report
from datasieve.reporting.page import colours, findings, likeness, texts
from datasieve.reporting.page.lists import DATA, LongList, write_lists
from datasieve.reporting.page.pictures import THUMBNAILS, Pictures
from datasieve.reporting.page.repairs import repairs
from datasieve.reporting.page.trainer import trainer
from datasieve.reporting.summary import advice_lines, entries
from datasieve.reporting.text import safe, spoken
from datasieve.rules import Rule
from datasieve.storage import write_text

__all__ = ["DATA", "PAGE", "THUMBNAILS", "write_page"]

PAGE = "index.html"
TEMPLATES = Path(__file__).parent.parent / "templates"
MOST_CONCEPTS = 200
CONCEPT_COLUMNS = {
    "concept": "concept",
    "images": "images",
    "usable": "usable",
    "distinct": "distinct",
    "samples": "per epoch",
    "semantics.clusters": "groups",
    "semantics.spread": "spread",
    "semantics.nearest-concept": "most like",
    "colour.shared-cast": "shared cast, mired",
}


def write_page(report: Report, records: Iterable[ImageRecord], rules: Mapping[str, Rule], max_pixels: int) -> Path:
    """Write the page of a report and return its path.

    Args:
        report: a finished report.
        records: the dataset, for the pictures; images that are gone are shown by name.
        rules: rules by id, for what they mean.
        max_pixels: as in the audit.

    Raises:
        OutputError: the page cannot be written.
    """
    pictures = Pictures(report)
    view = _view(report, rules, pictures)
    repaired = repairs(report)
    view["repairs"] = repaired.view() if repaired else None
    pictures.find(records, max_pixels)
    also = repaired.find(max_pixels) if repaired else set()
    lists = _filled(_lists(view))
    write_lists(lists, report.path)
    final = report.path / PAGE
    write_text(final, render(view))
    pictures.sweep(also)
    return final


def _view(report: Report, rules: Mapping[str, Rule], pictures: Pictures) -> dict[str, Any]:
    """Return everything the template shows, pictures not yet found."""
    grouped = entries(report.findings().to_pylist(), rules, report.columns())
    members = likeness.group_members(report)
    matrix = likeness.matrix_of(report)
    path = str(report.run.get("dataset", {}).get("path", ""))
    return {
        "name": safe(Path(path).name) or safe(path),
        "path": safe(path),
        "verdict": findings.verdict(report, grouped),
        "todo": findings.todo(report, grouped, rules, pictures),
        "groups": findings.groups(report, grouped, rules, pictures),
        "heat": likeness.heat(matrix),
        "contradictions": likeness.contradictions(matrix, members, pictures),
        "clusters": likeness.clusters(members, pictures),
        "map": likeness.picture_map(report, pictures),
        "scales": likeness.scale_mix(report, pictures),
        "concepts": likeness.concept_table(report, CONCEPT_COLUMNS, MOST_CONCEPTS),
        "advice": advice_lines(report.run.get("advice")),
        "captions": texts.captions(report, pictures),
        "casts": colours.casts(report, pictures),
        "buckets": colours.buckets(report),
        "trainer": trainer(report, rules, pictures),
        "unmeasured": [(safe(str(k)), safe(str(v))) for k, v in (report.run.get("unmeasured") or {}).items()],
        "facts": _facts(report),
    }


def _lists(view: Any) -> list[LongList]:
    """Return every long list in the view."""
    if isinstance(view, LongList):
        return [view]
    inner = view.values() if isinstance(view, dict) else view if isinstance(view, list) else ()
    return [one for part in inner for one in _lists(part)]


def _filled(lists: list[LongList]) -> list[LongList]:
    """Lay out the items of lists, now that their pictures are known."""
    for one in lists:
        one.items = [findings.filled(item) for item in one.items]
    return lists


def render(view: Mapping[str, Any]) -> str:
    """Return the page. Style and script are allowed by the hash of their text, nothing else is run."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    style, script = ((TEMPLATES / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    hashes = {"style_hash": _hash(style), "script_hash": _hash(script)}
    trusted = {"style": markupsafe.Markup(style), "script": markupsafe.Markup(script)}
    return environment.get_template("page.html").render(page=view, **trusted, **hashes)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _facts(report: Report) -> list[tuple[str, str]]:
    run = report.run
    settings: Mapping[str, Any] = run.get("settings") or {}
    chosen = ", ".join(f"{k} {v}" for k, v in settings.items() if v not in (None, (), [], {}, ""))
    embedder = run.get("embedder") or {}
    total = float(run.get("timing", {}).get("total", 0.0))
    facts = {
        "Report": str(report.path.absolute()),
        "Layout": run.get("dataset", {}).get("layout", ""),
        "Settings": chosen,
        "Embedder": f"{embedder.get('weights', 'none')}, {embedder.get('backend', '')}" if embedder else "none",
        "Device": run.get("device", ""),
        "Time": spoken(total) if total else "",
        "Passed over": ", ".join(f"{n} {why}" for why, n in (run.get("passed_over") or {}).items()),
        "datasieve": run.get("datasieve", ""),
    }
    return [(name, safe(str(value))) for name, value in facts.items() if value]
