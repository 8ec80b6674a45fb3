"""`index.html` in a report: the findings as pictures, in the order in which to act on them.

One file and a folder of thumbnails; no script, no network, opens from disk. Lists are capped, so the page stays small
however many images the set has; `datasieve show` and the Parquet tables hold the rest. Everything that came from
outside is escaped by the template.
"""

from __future__ import annotations

import io
import posixpath
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from PIL import Image

from datasieve.batch import DecodeRequest
from datasieve.imaging.decode import decode
from datasieve.records import ImageRecord, Location
from datasieve.report import Report
from datasieve.reporting.actions import ACTIONS
from datasieve.reporting.summary import MARKS, Entry, command, entries
from datasieve.reporting.text import count, number, safe, spoken
from datasieve.rules import SEVERITIES, Rule
from datasieve.storage import write_text

PAGE, THUMBNAILS = "index.html", "thumbnails"
SIDE = 256
"""Longer side of a thumbnail in px."""

PICTURES, FIRST, MOST_CONCEPTS, MOST_CLUSTERS, CLUSTER_PICTURES = 12, 5, 200, 12, 6
_RANK: dict[str, int] = {severity: rank for rank, severity in enumerate(reversed(SEVERITIES))}


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
    grouped = entries(report.findings().to_pylist(), rules, report.columns())
    clusters = _clusters(report)
    wanted = {str(row["image_id"]) for entry in grouped for row in entry.findings[:PICTURES] if row["image_id"]}
    wanted |= {image for concept in clusters for part in concept["clusters"] for image, _ in part["images"]}
    places = {record.image_id: record.location for record in records if record.image_id in wanted}
    thumbnails = _Thumbnails(report.path / THUMBNAILS, places, max_pixels)
    context = {
        "name": safe(str(report.run.get("dataset", {}).get("path", ""))),
        "verdict": report.verdict,
        "reasons": _sentence(report.run.get("verdict_reasons", ())),
        "counts": _counts(report, grouped),
        "first": _first(grouped),
        "groups": _groups(report, grouped, rules, thumbnails),
        "clusters": [_cluster_view(concept, thumbnails) for concept in clusters],
        "concepts": _concepts(report),
        "advice": [safe(str(line)) for line in report.run.get("advice", ())],
        "unmeasured": [(safe(str(k)), safe(str(v))) for k, v in (report.run.get("unmeasured") or {}).items()],
        "facts": _facts(report),
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    final = report.path / PAGE
    write_text(final, environment.get_template("page.html").render(page=context))
    return final


class _Thumbnails:
    """Makes thumbnails as they are asked for, each once.

    Args:
        folder: where they go; what an earlier page left there is removed.
        places: image_id -> where its bytes are.
        max_pixels: larger pictures are not decoded.
    """

    def __init__(self, folder: Path, places: Mapping[str, Location], max_pixels: int) -> None:
        self.folder, self.places = folder, places
        self.request = DecodeRequest(tiles=False, pixel_hash=False, max_pixels=max_pixels)
        self.made: dict[str, str] = {}
        shutil.rmtree(folder, ignore_errors=True)

    def of(self, image_id: str | None, path: str | None) -> dict[str, str]:
        """Return what the template shows of an image: thumbnail, link, path and, without a picture, why."""
        place = self.places.get(image_id or "")
        view = {"path": safe(path or ""), "thumbnail": "", "link": "", "why": ""}
        if image_id is None or place is None:
            return {**view, "why": "no picture" if image_id is None else "not found any more"}
        if image_id not in self.made:
            self.made[image_id] = self._make(image_id, path or "", place)
        if not self.made[image_id]:
            view["why"] = "cannot be shown"
        else:
            view["thumbnail"] = f"{THUMBNAILS}/{self.made[image_id]}"
        if place.size is None:
            view["link"] = Path(place.file).as_uri()
        return view

    def _make(self, image_id: str, path: str, place: Location) -> str:
        try:
            decoded = decode(place.read(), path, self.request)
        except OSError:
            return ""
        if decoded.pixels is None:
            return ""
        image = Image.fromarray(decoded.pixels)
        image.thumbnail((SIDE, SIDE))
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=82)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{image_id}.jpg").write_bytes(buffer.getvalue())
        return f"{image_id}.jpg"


def _sentence(reasons: Sequence[Any]) -> str:
    text = ", ".join(safe(str(reason)) for reason in reasons)
    return text[:1].upper() + text[1:]


def _counts(report: Report, grouped: Sequence[Entry]) -> str:
    counts = report.run.get("counts", {})
    found = counts.get("findings", {})
    told = ", ".join(count(int(found[s]), s, "infos" if s == "info" else "") for s in reversed(SEVERITIES) if found[s])
    images = count(int(counts.get("images", 0)), "image")
    return f"{images}, {int(counts.get('ok', 0)):,} usable; {told or 'no findings'} of {count(len(grouped), 'rule')}."


def _anchor(rule_id: str) -> str:
    return "rule-" + "".join(c if c.isalnum() else "-" for c in rule_id)


def _first(grouped: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return the rules to act on first: errors, then warnings, the most frequent first."""
    urgent = [e for e in grouped if e.severity != "info"] or list(grouped)
    urgent = sorted(urgent, key=lambda e: (_RANK[e.severity], -len(e.findings), e.rule_id))[:FIRST]
    return [
        {
            "number": i,
            "severity": e.severity,
            "title": e.title,
            "count": f"{len(e.findings):,}",
            "anchor": _anchor(e.rule_id),
            "remedy": safe(str(e.findings[0]["remedy"] or "")),
        }
        for i, e in enumerate(urgent, 1)
    ]


def _groups(
    report: Report, grouped: Sequence[Entry], rules: Mapping[str, Rule], thumbnails: _Thumbnails
) -> list[dict[str, Any]]:
    out = []
    for heading in ACTIONS:
        mine = [e for e in grouped if e.heading == heading]
        if mine:
            out.append({"heading": heading, "rules": [_rule(report, e, rules, thumbnails) for e in mine]})
    return out


def _rule(report: Report, entry: Entry, rules: Mapping[str, Rule], thumbnails: _Thumbnails) -> dict[str, Any]:
    rule, worst = rules.get(entry.rule_id), entry.findings[0]
    pictures = []
    for row in entry.findings[:PICTURES]:
        view = thumbnails.of(row["image_id"], row["path"] or row["concept"] or "the whole set")
        value = number(row["value"], entry.unit) if entry.judged and row["value"] is not None else ""
        pictures.append({**view, "value": value})
    limit = number(worst["limit"], entry.unit) if entry.judged and worst["limit"] is not None else ""
    return {
        "id": entry.rule_id,
        "anchor": _anchor(entry.rule_id),
        "severity": entry.severity,
        "mark": MARKS[entry.severity],
        "title": entry.title,
        "count": count(len(entry.findings), "finding"),
        "limit": limit,
        "of": safe(str(worst["path"] or worst["concept"] or "")) if len(entry.findings) > 1 else "",
        "message": safe(str(worst["message"])),
        "remedy": safe(str(worst["remedy"] or "")),
        "pictures": pictures,
        "more": f"{len(entry.findings) - PICTURES:,}" if len(entry.findings) > PICTURES else "",
        "command": command("show", report.path, "--rule", entry.rule_id),
        "why": rule.why if rule else "",
        "how": rule.how if rule else "",
        "evidence": rule.evidence if rule else "",
    }


def _clusters(report: Report) -> list[dict[str, Any]]:
    """Return concepts with more than one cluster, each with some of its images."""
    if "semantics.cluster" not in report.columns():
        return []
    table = report.images(["image_id", "path", "concept", "semantics.cluster"])
    parts: dict[str, dict[int, list[tuple[str, str]]]] = {}
    for row in table.filter(table["semantics.cluster"].is_valid()).to_pylist():
        mine = parts.setdefault(row["concept"] or "", {})
        mine.setdefault(row["semantics.cluster"], []).append((row["image_id"], row["path"]))
    return [
        {
            "name": safe(name) or "the set",
            "clusters": [
                {"number": n + 1, "count": count(len(images), "image"), "images": images[:CLUSTER_PICTURES]}
                for n, images in sorted(mine.items())
            ],
        }
        for name, mine in sorted(parts.items())
        if len(mine) > 1
    ][:MOST_CLUSTERS]


def _cluster_view(concept: Mapping[str, Any], thumbnails: _Thumbnails) -> dict[str, Any]:
    clusters = [
        {**part, "pictures": [thumbnails.of(image, posixpath.basename(path)) for image, path in part["images"]]}
        for part in concept["clusters"]
    ]
    return {"name": concept["name"], "clusters": clusters}


_CONCEPT_COLUMNS = {
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


def _concepts(report: Report) -> dict[str, Any] | None:
    table = report.concepts()
    names = [n for n in _CONCEPT_COLUMNS if n in table.column_names]
    rows = table.select(names).slice(0, MOST_CONCEPTS).to_pylist()
    if not rows:
        return None
    cells = [
        [safe(str(row["concept"])) or "the set", *("–" if row[n] is None else number(row[n]) for n in names[1:])]
        for row in rows
    ]
    return {"names": [_CONCEPT_COLUMNS[n] for n in names], "rows": cells}


def _facts(report: Report) -> list[tuple[str, str]]:
    run = report.run
    settings: Mapping[str, Any] = run.get("settings") or {}
    chosen = ", ".join(f"{k} {v}" for k, v in settings.items() if v not in (None, (), [], {}, ""))
    embedder = run.get("embedder") or {}
    total = float(run.get("timing", {}).get("total", 0.0))
    facts = {
        "Report": str(report.path),
        "Layout": run.get("dataset", {}).get("layout", ""),
        "Settings": chosen,
        "Embedder": f"{embedder.get('weights', 'none')}, {embedder.get('backend', '')}" if embedder else "none",
        "Device": run.get("device", ""),
        "Time": spoken(total) if total else "",
        "Passed over": ", ".join(f"{n} {why}" for why, n in (run.get("passed_over") or {}).items()),
        "datasieve": run.get("datasieve", ""),
    }
    return [(name, safe(str(value))) for name, value in facts.items() if value]
