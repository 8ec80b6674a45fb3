"""Reading a report back: one rule, one image."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from datasieve.errors import InputError
from datasieve.reporting.detail import findings_of, image_json, image_lines, image_row, measurements, rule_lines
from tests.reporting.stub import RULES, StubReport, finding, image


@pytest.fixture
def pair() -> StubReport:
    return StubReport(
        [finding("demo.blur", "warning", path="cat/1.jpg", value=2.0, limit=20.0, message="Blurred.")],
        [
            image("cat/1.jpg", **{"demo.blur": 2.0, "demo.cut": False, "demo.share": 0.25, "caption": "a\ncat"}),
            image("dog/1.jpg", **{"demo.unmeasured": "too small"}),
            image("odd\nname.jpg"),
        ],
    )


def wide() -> Console:
    return Console(file=io.StringIO(), width=100)


def test_an_image_is_found_by_path_id_end_of_path_and_as_it_is_shown(pair):
    row = image_row(pair, "cat/1.jpg")
    assert image_row(pair, row["image_id"]) == image_row(pair, "./cat/1.jpg") == row
    assert image_row(pair, r"odd\nname.jpg")["path"] == "odd\nname.jpg"


def test_an_ambiguous_or_unknown_image_is_refused_with_candidates(pair):
    with pytest.raises(InputError) as caught:
        image_row(pair, "1.jpg")
    assert "cat/1.jpg, dog/1.jpg" in caught.value.remedy
    with pytest.raises(InputError) as caught:
        image_row(pair, "cat/11.jpg")
    assert "cat/1.jpg" in caught.value.remedy


def test_every_measurement_is_shown_with_its_unit_and_nulls_with_their_reason(pair):
    row = image_row(pair, "cat/1.jpg")
    text = "\n".join(line.plain for line in image_lines(row, measurements(pair, row), pair.findings_, wide()))
    assert "JPEG, 640 x 480 px, status ok" in text
    assert "Caption: a\\ncat" in text
    assert "blur   2 px" in text
    assert "cut    no" in text
    assert "share  25 %" in text
    assert "! warning  demo.blur" in text
    other = image_row(pair, "dog/1.jpg")
    text = "\n".join(line.plain for line in image_lines(other, measurements(pair, other), [], wide()))
    assert "not measured" in text
    assert "too small" in text


def test_an_image_as_json_is_strict(pair):
    row = image_row(pair, "cat/1.jpg")
    read = json.loads(image_json(row, measurements(pair, row), pair.findings_))
    assert {"column": "demo.blur", "value": 2.0, "unit": "px", "description": "Width of edges; low is sharp."} in read[
        "measurements"
    ]
    assert read["findings"][0]["rule"] == "demo.blur"


def test_findings_of_a_rule_come_worst_first_and_a_prefix_takes_all(report):
    assert [row["value"] for row in findings_of(report, RULES, "demo.blur")] == [2.0, 4.0]
    assert len(findings_of(report, RULES, "demo")) == len(findings_of(report, RULES, None)) == 4
    text = "\n".join(line.plain for line in rule_lines(report, RULES, findings_of(report, RULES, "demo.blur"), wide()))
    assert text.index("softest.jpg") < text.index("soft.jpg")
    assert "datasieve explain demo.blur" in text


def test_an_unknown_rule_is_refused_with_near_ones(report):
    with pytest.raises(InputError) as caught:
        findings_of(report, RULES, "demo.blurr")
    assert "demo.blur" in caught.value.remedy


def test_a_rule_without_findings_is_no_error(report):
    report.findings_ = []
    assert "no such findings" in rule_lines(report, RULES, findings_of(report, RULES, "demo.cut"), wide())[0].plain
