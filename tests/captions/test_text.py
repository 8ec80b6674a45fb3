"""Captions as text: style, phrases, damage, against hand counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasieve.captions import damage
from datasieve.captions.frequency import information, rarity
from datasieve.captions.measure import measure
from datasieve.captions.phrases import content
from datasieve.captions.reading import flavour, readings, token_limit
from datasieve.captions.style import is_unspaced, pieces, placeholders, plain, script, style, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a photo of a corgi lying on moss", "sentence"),
        ("dog", "sentence"),
        ("dog, brown, no_humans, photo_(medium), outdoors", "tags"),
        ("long_hair", "tags"),
        ("red thing, table,, table , window,", "tags"),
        ("1girl, solo, long hair, she is standing in a field of flowers near the river", "mixed"),
        ("A red thing stands on a table, by a window.", "sentence"),
        (",,,", "empty"),
        (" \n", "empty"),
    ],
)
def test_style(text: str, expected: str) -> None:
    assert style(plain(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"(red hair:1.2), hero \(old\)", "red hair, hero (old)"),
        ("<lora:style:0.8>dog", " dog"),
        ("[cat|dog] on grass", "cat dog on grass"),
        ("a photo of [name], [filewords]", "a photo of [name], [filewords]"),
        ("((very (nested:1.1)):1.3)", " very nested "),
        ("plain words", "plain words"),
    ],
)
def test_what_is_said_without_the_syntax(text: str, expected: str) -> None:
    assert plain(text).split() == expected.split()


def test_placeholders_are_found_and_network_tags_are_none() -> None:
    text = "a photo of <my-cat> and sks, [V], [name], <lora:x:1>, asks"
    assert placeholders(text) == ["<my-cat>", "sks", "[V]", "[name]"]
    assert placeholders("<b>bold</b>, <br/>, <3, an SKS rifle, a <| b") == []


def test_non_latin_text_is_kept_and_named() -> None:
    assert script("кот на траве") == "cyrillic"
    assert script("東京の夜") == "han"
    assert is_unspaced("東京の夜")
    assert not is_unspaced("한국어 문장")
    measured = measure("東京の夜")
    assert measured.words is None
    assert measured.details is None
    assert measured.tokens > 0


def test_objects_attributes_and_modifiers_by_hand() -> None:
    found = content("a photo of a red wooden chair on a table in front of a white wall")
    assert (found.objects, found.attributes, found.modifiers) == (4, 3, 3)  # chair, table, front, wall; on, in, of
    assert found.details == ("red", "wooden", "chair", "table", "front", "white", "wall")
    assert content("the chair is red").attributes == 1


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("a photo of", "none"),
        ("a dog", "coarse"),
        ("a photo of a corgi with white chest lying on a ledge", "medium"),
        (
            "a small white corgi with a blue collar lying on a wet wooden bench beside a tall green hedge, "
            "bright evening light, shallow focus",
            "fine",
        ),
    ],
)
def test_granularity_levels(text: str, level: str) -> None:
    assert measure(text).level == level


def test_damage_is_named() -> None:
    assert damage.kinds("the cafÃ© at night") == ["encoding"]
    assert damage.kinds("salt &amp; pepper<br/>") == ["HTML"]
    assert damage.kinds("a\x07b") == ["control characters"]
    assert damage.kinds("zero\u200bwidth") == ["invisible characters"]
    assert damage.kinds("“curly” – café, naïve, Ærø, 東京, <my-cat>, R&B") == []


def test_stray_separators_and_repeated_tags() -> None:
    assert damage.stray_separators("red thing, table,, table , window,") == 2
    assert damage.stray_separators("table., window") == 1
    assert damage.stray_separators("red, blue and green") == 0
    assert damage.repeated(pieces("red_hair, smile, Red hair, hair red")) == ["red_hair"]
    assert damage.repeated(pieces("cat ears, cat-ear, dog ears")) == ["cat ears"]


def test_machine_stutter_is_far_from_ordinary_text() -> None:
    assert damage.repetition(["white", "black"] * 60) == pytest.approx(1 - 2 / 119)
    found = damage.repetition(words("a red cup and a blue lamp on a table by a window with a view of a street"))
    assert found is not None
    assert found < 0.2
    assert damage.repetition(["dog"] * 5) is None


def test_rarity_orders_words_and_leaves_out_unknown_ones() -> None:
    assert rarity("the") < rarity("dog") < rarity("embroidery")  # type: ignore[operator]
    assert information(["qwzx"]) is None
    assert information(["dog", "qwzx"]) == rarity("dog")


def test_trainers_read_different_parts() -> None:
    text = "first line\nsecond line"
    assert readings(text, "kohya") == ("first line",)
    assert readings(text, "onetrainer") == ("first line", "second line")
    assert readings(text, "diffusers") == (text,)
    assert readings("(red:1.3) cup", "a1111") == ("red cup",)
    assert token_limit("a1111") is None
    assert token_limit("kohya") == 75
    assert flavour("a1111", "sd21") == "open_clip"
    assert flavour("kohya", "sd21") == "transformers"


@given(st.text())
def test_no_text_breaks_the_measures(text: str) -> None:
    found = measure(text)
    assert found.tokens >= 0
    assert found.chunks >= 1
    assert found.level in (None, "none", "coarse", "medium", "fine")
    assert found.repetition is None or 0 <= found.repetition <= 1
