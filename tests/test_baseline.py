"""Baselines: accepted findings, kept in a file that can be read in a diff."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasieve.baseline import key, read_baseline, write_baseline
from datasieve.errors import InputError

words = st.text(st.characters(codec="utf-8"), max_size=20)


@given(findings=st.sets(st.tuples(words, words)))
def test_what_was_written_is_read(tmp_path_factory, findings):
    file = tmp_path_factory.mktemp("b") / "known.json"
    write_baseline(file, findings)
    assert read_baseline(file) == findings


def test_the_file_is_a_sorted_list_of_rule_and_path(tmp_path):
    write_baseline(tmp_path / "b.json", [("b.x", "2.jpg"), ("a.x", "1.jpg"), ("b.x", "2.jpg")])
    assert json.loads((tmp_path / "b.json").read_text()) == [
        {"rule": "a.x", "path": "1.jpg"},
        {"rule": "b.x", "path": "2.jpg"},
    ]


def test_findings_on_a_concept_are_known_by_its_name():
    assert key("a.x", "1.jpg", "cat") == ("a.x", "1.jpg")
    assert key("a.x", None, "cat") == ("a.x", "cat")
    assert key("a.x", None, None) == ("a.x", "")


@pytest.mark.parametrize("content", ["", "{}", '[{"rule": 1, "path": "a"}]', '[{"rule": "a"}]', "[[]]", "[\xff"])
def test_what_is_no_baseline_is_refused_by_name(tmp_path, content):
    file = tmp_path / "b.json"
    file.write_text(content, encoding="latin-1")
    with pytest.raises(InputError, match=r"b\.json"):
        read_baseline(file)


def test_a_missing_baseline_says_how_to_make_one(tmp_path):
    with pytest.raises(InputError) as caught:
        read_baseline(tmp_path / "none.json")
    assert "--write-baseline" in caught.value.remedy
