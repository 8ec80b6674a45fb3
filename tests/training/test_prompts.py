import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasieve.errors import ConfigError, InputError
from datasieve.training.prompts import check_tokens, fill, holds, read_template, vary


@pytest.mark.parametrize(
    ("prompt", "found"),
    [
        ("a photo of <toy>", True),
        ("<toy>", True),
        ("a photo of <toy>, red", True),
        ("a photo of <toys>", False),
        ("a photo", False),
    ],
)
def test_a_token_counts_only_as_a_word_of_its_own(prompt, found):
    assert holds(prompt, "<toy>") is found


def test_a_token_inside_a_longer_word_is_not_there():
    assert not holds("mycharacter", "mychar")
    assert holds("portrait of mychar, smiling", "mychar")


def test_a_template_takes_the_name_and_the_caption():
    assert fill("a photo of [name], [filewords]", "<toy>", "on grass") == "a photo of <toy>, on grass"
    assert fill("[name], [filewords]", "<toy>", "") == "<toy>"


def test_prompts_without_their_token_stop_the_run_and_are_listed():
    prompts = {"a.png": ["a photo of <toy>"], "b.png": ["a photo"], "c.png": ["<toy>", "a thing"]}
    with pytest.raises(InputError) as caught:
        check_tokens(prompts, dict.fromkeys(prompts, "<toy>"))
    assert "2 of 3 images" in caught.value.message
    assert "b.png" in caught.value.message
    assert "c.png" in caught.value.message
    assert "a.png" not in caught.value.message


TAGS = st.lists(st.text("abcdef <>", min_size=1).filter(lambda t: t.strip()), max_size=8).map(", ".join)


@given(TAGS, st.integers(0, 99))
def test_without_shuffling_and_dropping_captions_stay_as_they_are(caption, seed):
    assert vary(caption, random.Random(seed), shuffle=False, dropout=0.0) == caption


@given(TAGS, st.integers(0, 99), st.booleans(), st.floats(0, 1), st.integers(0, 3))
def test_varied_tags_are_the_captions_own_and_the_kept_ones_lead(caption, seed, shuffle, dropout, keep):
    before = [tag.strip() for tag in caption.split(",") if tag.strip()]
    varied = vary(caption, random.Random(seed), shuffle=shuffle, dropout=dropout, keep=keep)
    after = [tag.strip() for tag in varied.split(",") if tag.strip()]
    assert after[:keep] == before[:keep]
    assert all(after.count(tag) <= before.count(tag) for tag in after)
    assert bool(after) == bool(before)


def test_a_template_file_is_read_line_by_line(tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("a drawing of [name]\n\n[name] in oil\n", encoding="utf-8")
    assert read_template(str(file)) == ("a drawing of [name]", "[name] in oil")


@pytest.mark.parametrize("content", [None, "", "\n\n"])
def test_a_template_that_holds_nothing_is_refused_by_name(tmp_path, content):
    file = tmp_path / "mine.txt"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"mine\.txt"):
        read_template(str(file))
