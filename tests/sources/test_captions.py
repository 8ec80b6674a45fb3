from __future__ import annotations

import codecs
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasieve.sources.captions import HUGE, decode, read_caption, tidy
from datasieve.sources.ingest import Ledger
from tests.sources.layouts import JPEG, listed, notes, put

# Text without surrogates and NUL, and without the mark that decoding takes away on purpose.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"))


@given(TEXT)
def test_utf8_is_read_back_and_not_complained_about(text: str) -> None:
    assert decode(text.encode()) == (text, "")


@given(TEXT, st.sampled_from(["utf-8-sig", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]))
def test_marked_encodings_are_read_back_and_named(text: str, codec: str) -> None:
    marks = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}
    marks |= {"utf-32-le": codecs.BOM_UTF32_LE, "utf-32-be": codecs.BOM_UTF32_BE}
    read, problem = decode(marks.get(codec, b"") + text.encode(codec))
    assert read == text
    assert problem


@given(
    st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=3), st.sampled_from(["utf-16-le", "utf-16-be"])
)
def test_utf16_without_a_mark_is_recognised(text: str, codec: str) -> None:
    read, problem = decode(text.encode(codec))
    assert read == text
    assert "UTF-16" in problem


def test_windows_1252_keeps_quotes_accents_and_dashes_and_says_it_guessed() -> None:
    text, problem = decode("a “red” café – old".encode("cp1252"))
    assert text == "a “red” café – old"
    assert "guess" in problem
    assert "0x93 at position 2" in problem


@given(st.binary(max_size=200))
def test_no_bytes_make_reading_fail_or_give_unwritable_text(raw: bytes) -> None:
    caption = read_caption(raw, "a.txt", Ledger())
    caption.encode("utf-8")
    assert caption == tidy(caption)
    assert "\r" not in caption


@given(TEXT.map(lambda t: t.replace("\r", "")), st.sampled_from(["\n", "\r\n", "\r"]))
def test_line_ends_do_not_change_a_caption(text: str, end: str) -> None:
    assert tidy(text.replace("\n", end) + end) == tidy(text)


@pytest.mark.parametrize(
    ("raw", "fires"),
    [
        (b"one line\n", False),
        (b"one line\r\n\r\n", False),
        (b"first\nsecond", True),
        (b"\n\nafter a blank line", True),
        (b"\n\n", False),
        (b"", False),
    ],
)
def test_several_lines_and_a_blank_first_line_are_noted(raw: bytes, fires: bool) -> None:
    ledger = Ledger()
    read_caption(raw, "a.txt", ledger)
    assert [n.rule for n in ledger.notes] == (["layout.caption-lines"] if fires else [])


def test_lines_stay_lines_and_the_lost_ones_are_quoted(tmp_path: Path) -> None:
    put(tmp_path, {"a.png": JPEG, "a.txt": "a red thing\non a table\nby a window\n"})
    ingest, found = listed(tmp_path)
    assert found["a.png"].captions == ("a red thing\non a table\nby a window",)
    (note,) = notes(ingest, "caption-lines")
    assert note.path == "a.txt"
    assert "'on a table'; 'by a window'" in note.message


def test_an_empty_caption_is_not_a_missing_one(tmp_path: Path) -> None:
    put(tmp_path, {"empty.png": JPEG, "empty.txt": " \n", "none.png": JPEG})
    _, found = listed(tmp_path)
    assert found["empty.png"].captions == ("",)
    assert found["none.png"].captions == ()


def test_txt_wins_over_caption_and_the_conflict_says_so(tmp_path: Path) -> None:
    put(tmp_path, {"a.png": JPEG, "a.txt": "red", "a.caption": "green"})
    put(tmp_path, {"b.png": JPEG, "b.caption": "blue", "c.png": JPEG, "c.txt": "same", "c.caption": "same\n"})
    ingest, found = listed(tmp_path)
    assert [found[p].captions for p in ("a.png", "b.png", "c.png")] == [("red",), ("blue",), ("same",)]
    (note,) = notes(ingest, "caption-conflict")
    assert note.path == "a.png"
    assert "a.txt is used" in note.message
    assert len(notes(ingest, "caption-mixed")) == 1


def test_a_near_miss_is_named_with_the_image_and_not_read(tmp_path: Path) -> None:
    put(tmp_path, {"0.jpg": JPEG, "0.jpg.txt": "meant", "Dog.jpg": JPEG, "dog.txt": "other case"})
    ingest, found = listed(tmp_path)
    assert found["0.jpg"].captions == found["Dog.jpg"].captions == ()
    assert {n.path: "look for 0.txt" in n.message for n in notes(ingest, "caption-name")} == {
        "0.jpg": True,
        "Dog.jpg": False,
    }
    assert not notes(ingest, "caption-orphan")


def test_an_orphan_is_noted_but_a_readme_is_not(tmp_path: Path) -> None:
    put(tmp_path, {"a.jpg": JPEG, "a.txt": "a", "lost.txt": "b", "README.txt": "hello", "LICENSE.txt": "mit"})
    ingest, _ = listed(tmp_path)
    assert [n.path for n in notes(ingest, "caption-orphan")] == ["lost.txt"]
    assert ingest.passed_over == {"not an image": 2, "caption without image": 1}


def test_a_folder_of_captions_alone_is_one_note(tmp_path: Path) -> None:
    put(tmp_path, {"LICENSES/1.txt": "x", "LICENSES/2.txt": "x", "LICENSES/3.txt": "x", "prompts.txt": "x"})
    put(tmp_path, {"images/a.jpg": JPEG, **{f"texts/{i}.txt": "x" for i in range(30)}})
    ingest, _ = listed(tmp_path)
    assert [n.path for n in notes(ingest, "caption-orphan")] == ["texts"]


@pytest.mark.parametrize(("length", "fires"), [(HUGE, False), (HUGE + 1, True)])
def test_a_caption_past_the_limit_is_noted_and_kept_whole(tmp_path: Path, length: int, fires: bool) -> None:
    put(tmp_path, {"a.png": JPEG, "a.txt": "x" * length})
    ingest, found = listed(tmp_path)
    assert len(found["a.png"].captions[0]) == length
    assert bool(notes(ingest, "caption-huge")) is fires


def test_a_caption_that_cannot_be_opened_costs_only_itself(tmp_path: Path) -> None:
    put(tmp_path, {"a.png": JPEG, "b.png": JPEG, "b.txt": "fine"})
    (tmp_path / "a.txt").symlink_to(tmp_path / "gone.txt")
    ingest, found = listed(tmp_path)
    assert [found[p].captions for p in ("a.png", "b.png")] == [(), ("fine",)]
    assert [n.path for n in notes(ingest, "caption-unreadable")] == ["a.txt"]


def test_composed_and_decomposed_names_are_matched_and_noted_once(tmp_path: Path) -> None:
    for word in ("café", "학점"):
        put(
            tmp_path,
            {unicodedata.normalize("NFD", word) + ".png": JPEG, unicodedata.normalize("NFC", word) + ".txt": word},
        )
    ingest, found = listed(tmp_path)
    assert sorted(r.captions[0] for r in found.values()) == ["café", "학점"]
    (note,) = ingest.notes
    assert note.rule == "layout.unicode-form"
    assert "and 1 more" in note.message


def test_names_with_dots_keep_apart(tmp_path: Path) -> None:
    put(tmp_path, {"a.b.jpg": JPEG, "a.b.txt": "one", "a.c.jpg": JPEG, "a.c.txt": "two", "v1.5.final.png": JPEG})
    ingest, found = listed(tmp_path)
    assert [r.captions for r in found.values()] == [("one",), ("two",), ()]
    assert ingest.notes == []
