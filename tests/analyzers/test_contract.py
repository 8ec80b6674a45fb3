"""What holds for every analyzer, whoever wrote it."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from datasieve.analyzers import Analyzer, Compares, Measures, compared, load, measured, names
from datasieve.batch import TILE_SIDE, Batch, Decoded
from datasieve.config import RESOLUTIONS, Settings
from datasieve.errors import ConfigError
from datasieve.policy import all_rules, judge
from datasieve.records import ImageFacts, ImageRecord, Location, image_id
from datasieve.report import arrow_array, arrow_field
from datasieve.rules import Rule
from datasieve.schema import IMAGE_FIELDS

ANALYZERS = names()
MEASURING = [n for n in ANALYZERS if isinstance(load(n), Measures) and measured(load(n))]
COMPARING = [n for n in ANALYZERS if isinstance(load(n), Compares) and compared(load(n))]


def picture(height: int, width: int, seed: int, kind: str) -> np.ndarray:
    generator = np.random.default_rng(seed)
    if kind == "flat":
        return np.full((height, width, 3), generator.integers(0, 256, 3), np.uint8)
    if kind == "black":
        return np.zeros((height, width, 3), np.uint8)
    ramp = np.linspace(0, 200, width)[None, :, None] + np.linspace(0, 40, height)[:, None, None]
    blobs = generator.normal(0, 30, (height // 16 + 1, width // 16 + 1, 3)).repeat(16, 0).repeat(16, 1)
    noise = generator.normal(0, 4, (height, width, 3))
    return np.clip(ramp + blobs[:height, :width] + noise, 0, 255).astype(np.uint8)


def image(height: int, width: int, seed: int, kind: str = "scene") -> tuple[ImageRecord, Decoded]:
    path = f"a folder/{kind}-{height}x{width}-{seed}.jpg"
    pixels = picture(height, width, seed, kind)
    tile = TILE_SIDE
    starts = [(y, x) for y in range(0, height - tile + 1, 128) for x in range(0, width - tile + 1, 128)][:16]
    tiles = [pixels[y : y + tile, x : x + tile] for y, x in starts]
    facts = ImageFacts(format="JPEG", width=width, height=height, width_stored=width, height_stored=height)
    decoded = Decoded(
        content=f"{seed:032x}",
        facts=facts,
        file_bytes=pixels.size,
        pixels=pixels,
        tiles=np.stack(tiles) if tiles else np.zeros((0, tile, tile, 3), np.uint8),
        pixel_hash=f"{seed:032x}",
        grey=False,
    )
    return ImageRecord(image_id(path), path, Location("/nowhere"), concept="toy", group="a folder"), decoded


IMAGES = [
    image(384, 512, 1),
    image(512, 300, 2),
    image(100, 140, 3),
    image(512, 512, 4, "flat"),
    image(256, 256, 5, "black"),
    image(1, 1, 6),
    image(7, 512, 7),
    image(340, 512, 8),
]


def measure(analyzer: Analyzer, images: Sequence[tuple[ImageRecord, Decoded]]) -> Mapping[str, Sequence[Any]]:
    assert isinstance(analyzer, Measures)
    return analyzer.measure(Batch([i[0] for i in images], [i[1] for i in images]))


def equal(a: Any, b: Any, tolerance: float) -> bool:
    """Tell whether two measurements are the same: both missing, equal, or within the tolerance."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and np.allclose(a, b, atol=max(tolerance, 1e-3))
    missing = [v is None or v != v for v in (a, b)]
    if any(missing):
        return all(missing)
    return bool(abs(a - b) <= tolerance) if isinstance(a, float | np.floating) else bool(a == b)


@pytest.mark.parametrize("name", ANALYZERS)
def test_columns_and_rules_carry_the_name_of_the_file(name: str) -> None:
    analyzer = load(name)
    for declared in (*(c.name for c in analyzer.columns), *(r.id for r in analyzer.rules)):
        assert re.fullmatch(rf"{name}\.[a-z0-9]+(-[a-z0-9]+)*", declared), declared
    assert analyzer.version >= 1
    assert all(c.description for c in analyzer.columns)


@pytest.mark.parametrize("name", MEASURING)
def test_measurements_are_the_declared_columns_and_within_their_range(name: str) -> None:
    analyzer = load(name)
    values = measure(analyzer, IMAGES)
    declared = {c.name: c for c in measured(analyzer)}
    assert set(values) - {f"{name}.unmeasured"} == set(declared)
    for column, found in values.items():
        assert len(found) == len(IMAGES)
        if column not in declared or declared[column].kind not in ("float", "int"):
            continue
        numbers = [v for v in found if v is not None and v == v]
        low, high = declared[column].low, declared[column].high
        assert low is None or all(v >= low for v in numbers), column
        assert high is None or all(v <= high for v in numbers), column


@pytest.mark.parametrize("name", MEASURING)
def test_what_was_not_measured_says_why(name: str) -> None:
    values = measure(load(name), IMAGES)
    reasons = values.get(f"{name}.unmeasured", [None] * len(IMAGES))
    floats = [c.name for c in measured(load(name)) if c.kind == "float"]
    for row in range(len(IMAGES)):
        if floats and all(values[c][row] is None or values[c][row] != values[c][row] for c in floats):
            assert reasons[row], f"{name} left {IMAGES[row][0].path} empty without a reason"


@pytest.mark.parametrize("name", MEASURING)
def test_a_batch_of_one_equals_a_batch_of_many_in_any_order(name: str) -> None:
    analyzer = load(name)
    tolerance = {c.name: max(c.tolerance * 0.1, 1e-4) for c in analyzer.columns}
    order = [5, 2, 7, 0, 4, 1, 6, 3]
    together = measure(analyzer, [IMAGES[i] for i in order])
    for position, index in enumerate(order):
        alone = measure(analyzer, [IMAGES[index]])
        for column, found in alone.items():
            many = together[column][position]
            assert equal(found[0], many, tolerance.get(column, 0)), (column, IMAGES[index][0].path, found[0], many)


@pytest.mark.parametrize("name", MEASURING)
def test_measuring_twice_gives_the_same_numbers(name: str) -> None:
    first, second = measure(load(name), IMAGES), measure(load(name), IMAGES)
    for column in first:
        assert all(equal(a, b, 0.0) for a, b in zip(first[column], second[column], strict=True)), column


@pytest.mark.parametrize("name", MEASURING)
def test_cuda_agrees_with_the_cpu(name: str) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    analyzer = load(name)
    assert isinstance(analyzer, Measures)
    records, decoded = [i[0] for i in IMAGES], [i[1] for i in IMAGES]
    here, there = analyzer.measure(Batch(records, decoded)), analyzer.measure(Batch(records, decoded, "cuda"))
    tolerance = {c.name: c.tolerance or 1e-4 for c in analyzer.columns}
    for column in here:
        for a, b in zip(here[column], there[column], strict=True):
            assert equal(a, b, tolerance.get(column, 0)), column


def table_of(needs: Sequence[str]) -> pa.Table:
    """Return a table of the images with their fields and measured columns, as the pipeline would make it."""
    fields = {
        "image_id": [r.image_id for r, _ in IMAGES],
        "path": [r.path for r, _ in IMAGES],
        "concept": ["toy"] * len(IMAGES),
        "caption": pa.nulls(len(IMAGES), pa.string()),
        "repeats": [1] * len(IMAGES),
        "group": ["a folder"] * len(IMAGES),
        "content": [d.content for _, d in IMAGES],
        "width": [d.facts.width for _, d in IMAGES],
        "height": [d.facts.height for _, d in IMAGES],
        "format": ["JPEG"] * len(IMAGES),
        "status": ["ok"] * len(IMAGES),
        "error": pa.nulls(len(IMAGES), pa.string()),
    }
    assert set(fields) == set(IMAGE_FIELDS)
    table = pa.table(fields)
    for owner in sorted({n.split(".")[0] for n in needs if n not in IMAGE_FIELDS}):
        analyzer = load(owner)
        values = measure(analyzer, IMAGES)
        for column in measured(analyzer):
            field = arrow_field(column)
            table = table.append_column(field, arrow_array(values[column.name], field.type))
        for column in compared(analyzer):
            if column.name in needs:
                field = arrow_field(column)
                table = table.append_column(field, pa.nulls(len(IMAGES), field.type))
    return table


@pytest.mark.parametrize("name", COMPARING)
@pytest.mark.parametrize("trainer", [None, "kohya", "a1111"])
@pytest.mark.parametrize("count", [0, 1, 2, 8])
def test_comparisons_fill_the_declared_columns_for_sets_of_any_size(name: str, trainer: Any, count: int) -> None:
    analyzer = load(name)
    assert isinstance(analyzer, Compares)
    found = analyzer.compare(table_of(analyzer.needs).slice(0, count), Settings(trainer=trainer))
    assert set(found.columns) == {c.name for c in compared(analyzer)}
    for column in compared(analyzer):
        values = found.columns[column.name]
        assert len(values) == count
        arrow_array(values, arrow_field(column).type)  # fits its declared type


@pytest.mark.parametrize("name", COMPARING)
def test_a_comparison_needs_only_what_it_declares(name: str) -> None:
    analyzer = load(name)
    assert isinstance(analyzer, Compares)
    table = table_of(analyzer.needs).select([*IMAGE_FIELDS, *(n for n in analyzer.needs if n not in IMAGE_FIELDS)])
    analyzer.compare(table, Settings(trainer="kohya"))


RULES = all_rules()


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_every_rule_tells_a_person_all_they_need(rule: Rule) -> None:
    for text in (rule.title, rule.remedy, rule.why, rule.how, rule.evidence):
        assert text.strip()
    assert rule.scope == "note" or rule.message.strip()
    assert set(rule.limits) <= {*RESOLUTIONS, "ti", "hypernetwork", "lora"}
    if rule.scope == "image":
        declared = {c.name for c in load(rule.id.split(".")[0]).columns}
        assert rule.column in declared


@pytest.mark.parametrize("rule", [r for r in RULES.values() if r.scope == "image"], ids=lambda r: r.id)
def test_every_rule_fires_beyond_its_limit_and_is_silent_at_it_and_without_a_value(rule: Rule) -> None:
    kind = {c.name: c.kind for c in load(rule.id.split(".")[0]).columns}[rule.column]
    if rule.side == "is":
        beyond: Any = rule.limit
        within: Any = (not rule.limit) if isinstance(rule.limit, bool) else None
    else:
        assert isinstance(rule.limit, int | float)
        step = 1 if kind == "int" else 0.01
        within, beyond = rule.limit, rule.limit + (step if rule.side == "above" else -step)
    table = pa.table({"path": ["a.jpg"] * 3, "image_id": list("abc"), rule.column: [beyond, within, None]})
    findings = judge(table, [rule], "image", Settings(trainer="kohya").words())
    assert [f.image_id for f in findings] == ["a"]


def test_an_unknown_analyzer_is_refused_with_the_choice() -> None:
    with pytest.raises(ConfigError, match=r"Choose from: .*colour"):
        load("nonsense")
