"""Words and numbers for people."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from datasieve.reporting.text import near, number, safe, shortened, spoken

anything = st.text(st.characters(codec=None), max_size=80)


@given(anything)
def test_safe_text_is_one_line_without_controls_and_can_be_encoded(text):
    shown = safe(text)
    assert len(shown.splitlines()) <= 1
    assert all(unicodedata.category(c) not in ("Cc", "Cs", "Zl", "Zp") for c in shown)
    shown.encode("utf-8")


@given(anything, st.integers(8, 60))
def test_shortened_text_fits(text, width):
    assert cell_len(shortened(text, width)) <= width


def test_shortening_keeps_both_ends_of_a_path():
    short = shortened("folder/" + "x" * 100 + "/picture.jpg", 24)
    assert short.startswith("folder/")
    assert short.endswith("/picture.jpg")


def test_ordinary_names_are_left_alone_and_odd_bytes_shown():
    assert safe("köln/日本 👩‍👩‍👧.jpg") == "köln/日本 👩‍👩‍👧.jpg"
    assert safe("a\tb\x7f") == r"a\tb\x7f"
    assert safe(b"caf\xe9.jpg".decode("utf-8", "surrogateescape")) == r"caf\xe9.jpg"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "px", "not measured"),
        (True, "", "yes"),
        (4032.0, "px", "4,032 px"),
        (0.12345, "share", "12.3 %"),
        (6503.7, "kelvin", "6,504 K"),
        (3.14159, "degree", "3.14°"),
        (0.00012, "", "0.00012"),
        (0.0, "bits", "0 bits"),
    ],
)
def test_numbers_carry_units(value, unit, text):
    assert number(value, unit) == text


def test_durations_are_spoken():
    assert [spoken(s) for s in (0.42, 12.4, 59.7, 200, 7500)] == [
        "0.4 s",
        "12 s",
        "1 min 0 s",
        "3 min 20 s",
        "2 h 5 min",
    ]


def test_near_misses_are_found_by_typing_errors_case_and_file_name():
    known = ["colour.cast", "files.truncated", "dog/IMG_0042.jpg"]
    assert near("color.cast", known)[0] == "colour.cast"
    assert near("Truncated", known)[0] == "files.truncated"
    assert near("img_0024.jpg", known)[0] == "dog/IMG_0042.jpg"
    assert near("zzzzzz", known) == []
