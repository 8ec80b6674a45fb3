"""Token counts against the programs themselves: open_clip here, transformers by what it gave for the same captions."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasieve.captions.clip_tokens import cleaned, count_tokens, lost, split_piece, tokens

STORED = json.loads((Path(__file__).parent / "clip_counts.json").read_text(encoding="ascii"))["captions"]

TEXT = st.text() | st.lists(
    st.sampled_from(
        ["a photo of", "dog's", "I'VE", "&amp;", "&amp;lt;", "<b>", "â€™", "café", "東京", "12", ", ", "_", "\n"]
    )
    | st.text(max_size=4)
).map("".join)


@pytest.fixture(scope="module")
def open_clip_tokenizer() -> Any:
    return pytest.importorskip("open_clip.tokenizer").SimpleTokenizer()


def test_counts_equal_transformers() -> None:
    different = [text for text, count, _ in STORED if count_tokens(text, "transformers") != count]
    assert different == []


def test_the_first_token_beyond_the_limit_is_transformers_too() -> None:
    assert [tokens(text, "transformers")[75:76] for text, _, _ in STORED] == [token for _, _, token in STORED]


def test_tokens_equal_open_clip(open_clip_tokenizer: Any) -> None:
    for text, _, _ in STORED:
        assert tokens(text, "open_clip") == [open_clip_tokenizer.decoder[i] for i in open_clip_tokenizer.encode(text)]


@settings(deadline=None, max_examples=300)
@given(text=TEXT)
def test_any_text_has_open_clip_tokens(text: str, open_clip_tokenizer: Any) -> None:
    expected = [open_clip_tokenizer.decoder[i] for i in open_clip_tokenizer.encode(text)]
    assert tokens(text, "open_clip") == expected
    assert count_tokens(text, "open_clip") == len(expected)


def test_only_open_clip_resolves_html_and_mends_encoding() -> None:
    assert count_tokens("salt &amp; pepper", "open_clip") == 3
    assert count_tokens("salt &amp; pepper", "transformers") == 5
    assert count_tokens("cafÃ©", "open_clip") == count_tokens("café", "open_clip")
    assert count_tokens("cafÃ©", "transformers") > count_tokens("café", "transformers")


def test_what_is_lost_begins_with_the_first_word_that_is_not_read_whole() -> None:
    read = " ".join(["red"] * 75)
    assert lost(read, "transformers") == (0, "")
    assert lost(f"{read} Blue cup", "transformers") == (2, "Blue cup")
    # "bluish" makes two tokens, of which the first would still fit: half a word is not read.
    assert split_piece("bluish") == ["blu", "ish</w>"]
    assert lost(f"{read[:-4]} Bluish cup", "transformers") == (2, "Bluish cup")


@settings(deadline=None, max_examples=200)
@given(text=TEXT, limit=st.integers(0, 12))
def test_what_is_read_and_what_is_lost_make_the_whole(text: str, limit: int) -> None:
    over, unread = lost(text, "transformers", limit)
    total = count_tokens(text, "transformers")
    assert over == max(0, total - limit)
    assert (unread == "") == (over == 0)
    assert count_tokens(unread, "transformers") >= over


@settings(deadline=None, max_examples=200)
@given(text=st.text("ab c,.'éß0", max_size=60), limit=st.integers(0, 12))
def test_exactly_what_does_not_fit_is_lost(text: str, limit: int) -> None:
    clean = cleaned(text, "transformers")
    _, unread = lost(text, "transformers", limit)
    read = clean[: len(clean) - len(unread)]
    assert tokens(read, "transformers") == tokens(text, "transformers")[: count_tokens(read, "transformers")]
    assert count_tokens(read, "transformers") <= limit
    if unread:  # the next whole piece would not have fitted
        longer = next(unread[:end] for end in range(1, len(unread) + 1) if end == len(unread) or complete(unread, end))
        assert count_tokens(read + longer, "transformers") > limit


def complete(text: str, end: int) -> bool:
    """Tell whether `text` may be parted at `end` without parting a word."""
    return tokens(text, "transformers") == tokens(text[:end], "transformers") + tokens(text[end:], "transformers")


def test_a_word_of_a_megabyte_does_not_take_forever() -> None:
    assert count_tokens("ab" * 50_000, "transformers") == len(split_piece("ab" * 50_000))
