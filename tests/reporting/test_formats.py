"""Findings for machines, checked against the formats' own rules and readers."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasieve.reporting.formats import findings_github, findings_json, findings_sarif, rows_csv
from datasieve.schema import FINDING_FIELDS
from tests.reporting.stub import RULES, StubReport, finding

ODD = "a b/50% #1, x:y?\n👍.jpg"
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40)


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def test_json_is_strict_even_with_numbers_that_are_none():
    rows = [finding("demo.blur", "warning", path=ODD, value=float("nan"), limit=float("inf"))]
    text = findings_json(StubReport(counts={"images": 3, "bad": float("nan")}), rows)
    read = json.loads(text, parse_constant=refuse)
    assert read["findings"][0] | {"image_id": ""} == rows[0] | {"value": None, "limit": None, "image_id": ""}
    assert read["verdict"] == "fix first"
    assert list(read["findings"][0]) == list(FINDING_FIELDS)


@given(names, names)
def test_csv_brings_back_every_name(path, message):
    [row] = csv.DictReader(
        io.StringIO(rows_csv([finding("demo.blur", "info", path=path, message=message)]), newline="")
    )
    assert (row["path"], row["message"], row["value"]) == (path, message, "")


def sarif(rows, dataset=Path("set")):
    return json.loads(findings_sarif(rows, RULES, version="0.1.0", dataset=dataset), parse_constant=refuse)


def test_sarif_has_the_structure_of_2_1_0(report):
    log = sarif(report.findings().to_pylist())
    assert (log["version"], set(log)) == ("2.1.0", {"$schema", "version", "runs"})
    [run] = log["runs"]
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("datasieve", "0.1.0")
    assert [r["id"] for r in driver["rules"]] == ["demo.blur", "demo.cut", "demo.few"]
    assert len(run["results"]) == 4
    for result in run["results"]:
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("none", "note", "warning", "error")
        assert result["message"]["text"]
        [location] = result["locations"]
        assert not urlsplit(location["physicalLocation"]["artifactLocation"]["uri"]).scheme, "relative"
    for rule in driver["rules"]:
        assert rule["help"]["text"]
        assert rule["help"]["markdown"]
        assert rule["defaultConfiguration"]["level"] in ("note", "warning", "error")
    assert {r["ruleId"]: r["level"] for r in run["results"]} == {
        "demo.blur": "warning",
        "demo.cut": "error",
        "demo.few": "note",
    }


@given(names)
def test_sarif_locations_are_percent_encoded_and_lead_back_to_the_file(name):
    [result] = sarif([finding("demo.cut", "error", path=name)])["runs"][0]["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert re.fullmatch(r"[A-Za-z0-9._~/%\-]+", uri)
    assert re.search(r"%(?![0-9A-F]{2})", uri) is None
    shard = name.partition(".tar::")
    assert unquote(uri) == f"set/{shard[0] + '.tar' if shard[1] else name}"


def test_a_member_of_a_shard_is_located_in_its_shard():
    [result] = sarif([finding("demo.cut", "error", path="a/00000.tar::cat.jpg")])["runs"][0]["results"]
    [location] = result["locations"]
    assert location["physicalLocation"]["artifactLocation"]["uri"] == "set/a/00000.tar"
    assert location["logicalLocations"][0]["fullyQualifiedName"] == "a/00000.tar::cat.jpg"


def test_a_dataset_elsewhere_gets_a_base_of_its_own(tmp_path):
    log = sarif([finding("demo.cut", "error", path="a.jpg"), finding("gone.rule", "info")], tmp_path)
    [run] = log["runs"]
    artifact = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact == {"uri": "a.jpg", "uriBaseId": "DATASET"}
    assert run["originalUriBaseIds"]["DATASET"]["uri"] == tmp_path.as_uri() + "/"


def test_of_a_single_shard_paths_begin_at_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "0.tar").touch()
    row = finding("demo.cut", "error", path="0.tar::cat.jpg")
    [result] = sarif([row], Path("sub/0.tar"))["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "sub/0.tar"
    assert "file=sub/0.tar%3A%3Acat.jpg," in findings_github([row], RULES, dataset=Path("sub/0.tar"))


def undo(text: str, *, inside: bool) -> str:
    pairs = [("%0D", "\r"), ("%0A", "\n"), *([("%3A", ":"), ("%2C", ",")] if inside else []), ("%25", "%")]
    for code, letter in pairs:
        text = text.replace(code, letter)
    return text


@given(names, names)
def test_github_commands_are_one_line_each_and_say_what_was_meant(path, message):
    [row] = [finding("demo.cut", "warning", path=path, message=message, remedy="")]
    text = findings_github([row], RULES, dataset=Path("set"))
    assert text.endswith("\n")
    assert "\n" not in text[:-1]
    assert "\r" not in text
    # How the runner reads a command: properties end at the first "::" and are parted by commas.
    head, _, data = text[2:-1].partition("::")
    command, _, properties = head.partition(" ")
    told = dict(p.split("=", 1) for p in properties.split(","))
    assert command == "warning"
    assert undo(told["file"], inside=True) == f"set/{path}"
    assert undo(told["title"], inside=True) == "Cut-off file (demo.cut)"
    assert undo(data, inside=False) == f"{path}: {message}".strip()


@pytest.mark.parametrize(("severity", "command"), [("error", "error"), ("warning", "warning"), ("info", "notice")])
def test_github_has_a_command_for_each_severity(severity, command):
    text = findings_github([finding("demo.few", severity, concept="cat")], RULES, dataset=Path("set"))
    assert text.startswith(f"::{command} title=Few (demo.few)::cat: ")
