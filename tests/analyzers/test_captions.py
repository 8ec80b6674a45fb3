"""Captions of a set: what fires, and what a consistent set in any style does not."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasieve.analyzers import Comparison
from datasieve.analyzers.captions import ANALYZER, MOST_LETTERS
from datasieve.captions.granularity import FAR
from datasieve.config import Settings
from datasieve.policy import judge
from datasieve.report import arrow_array, arrow_field
from datasieve.reporting.actions import CAPTION, LOOK, action

SCENES = (
    "on wet moss",
    "in front of a red wall",
    "beside a wooden door",
    "under a bright lamp",
    "near a river",
    "at dusk",
)
DESCRIBED = [f"a photo of a corgi with white chest lying {scene}" for scene in SCENES]
BARE = ["a dog"] * 6
TAGGED = [
    f"dog, no_humans, animal_focus, {tag}, simple_background"
    for tag in ("moss", "wall", "door", "lamp", "water", "sky")
]
LONG = [
    f"{text}, its head turned to the left and its ears up, with long shadows on the ground, a blurred "
    "background of green trees, soft evening light and a thin leash"
    for text in DESCRIBED
]


def table(captions: Sequence[str | None], concepts: Sequence[str] | None = None) -> pa.Table:
    n = len(captions)
    names = [f"{i}.jpg" for i in range(n)]
    return pa.table(
        {
            "image_id": names,
            "path": names,
            "concept": list(concepts or ["dog"] * n),
            "caption": pa.array(list(captions), pa.string()),
            "content": names,
            "status": ["ok"] * n,
        }
    )


def compare(captions: Sequence[str | None], **chosen: Any) -> Comparison:
    return ANALYZER.compare(table(captions), Settings(**chosen))


def fired(captions: Sequence[str | None], **chosen: Any) -> dict[str, set[str]]:
    """Return rule -> file names (concepts for rules on concepts) of the findings on these captions."""
    found = compare(captions, **chosen)
    images = table(captions)
    for name, values in found.columns.items():
        images = images.append_column(name, pa.array(values))
    concepts = pa.table({"concept": ["dog"], **{c: [v["dog"]] for c, v in found.concepts.items()}})
    words = Settings(**chosen).words()
    out: dict[str, set[str]] = {}
    for scope, rows in (("image", images), ("concept", concepts)):
        for finding in judge(rows, ANALYZER.rules, scope, words):
            out.setdefault(finding.rule.removeprefix("captions."), set()).add(finding.path or finding.concept or "")
    return out


@pytest.mark.parametrize("captions", [DESCRIBED, BARE, TAGGED, LONG], ids=["described", "bare", "tagged", "long"])
@pytest.mark.parametrize("trainer", [None, "kohya", "a1111", "onetrainer", "datasieve"])
def test_a_consistent_set_raises_nothing_in_any_style(captions: list[str], trainer: Any) -> None:
    assert fired(captions, trainer=trainer, batch_size=4) == {}


@pytest.mark.parametrize(("usual", "odd"), [(DESCRIBED, "a dog"), (BARE, LONG[0]), (DESCRIBED, TAGGED[0])])
def test_one_caption_of_another_level_or_style_stands_out(usual: list[str], odd: str) -> None:
    found = fired([*usual[:5], odd])
    assert found.pop("granularity-outlier") == {"5.jpg"}
    assert found in ({}, {"granularity-break": {"dog"}})


def test_a_half_and_half_set_is_broken_at_any_size() -> None:
    for times in (1, 2, 8):
        captions = [*DESCRIBED[:3] * times, *BARE[:3] * times]
        assert "granularity-break" in fired(captions)


def test_from_twenty_captions_on_the_dip_test_decides() -> None:
    concepts = compare([*DESCRIBED * 2, *BARE * 2]).concepts
    assert concepts["captions.granularity-dip-p"]["dog"] < 0.05
    assert "captions.granularity-dip-p" not in compare([*DESCRIBED, *BARE]).concepts


def test_missing_captions_count_only_beside_others() -> None:
    assert fired([*DESCRIBED[:5], None])["missing"] == {"5.jpg"}
    nothing = compare([None] * 4)
    assert nothing.unmeasured == {"captions": "no image has a caption"}
    assert fired([None] * 4) == {"none": {"0.jpg", "1.jpg", "2.jpg", "3.jpg"}}
    assert set(nothing.columns["captions.missing"]) == {None}


def test_words_beyond_the_limit_are_named_and_a1111_reads_them() -> None:
    tags = [
        f"{c} {o}"
        for c in ("red", "blue", "green", "old", "tiny")
        for o in ("cup", "lamp", "chair", "book", "shoe", "coin")
    ]
    long = ", ".join(tags)
    assert fired([long])["too-long"] == {"0.jpg"}
    found = compare([long])
    assert found.columns["captions.tokens"] == [89]  # two words and a comma each, no comma at the end
    assert found.columns["captions.tokens-lost"] == [14]
    assert found.columns["captions.words-lost"] == [", ".join(tags[25:])]
    assert "too-long" not in fired([long], trainer="a1111")


def test_a_first_line_trainer_is_judged_by_the_first_line() -> None:
    text = "a photo of a corgi\nand a second line that says much more about it"
    assert compare([text], trainer="kohya").columns["captions.words"] == [5]
    assert compare([text]).columns["captions.words"] == [15]


def test_the_trainer_decides_about_html() -> None:
    text = "salt &amp; pepper"
    assert compare([text], trainer="kohya").columns["captions.tokens"] == [5]
    assert compare([text], trainer="a1111", base="sd21").columns["captions.tokens"] == [3]


def test_the_case_of_the_long_and_the_stuttering_caption() -> None:
    tags = [
        f"{c} {o}"
        for c in ("red", "blue", "green", "old", "tiny")
        for o in ("cup", "lamp", "chair", "book", "shoe", "coin", "leaf", "bowl")
    ]
    found = fired([", ".join(tags), ", ".join(["white", "black"] * 60), ", ".join(tags[:20])])
    assert found["too-long"] == {"0.jpg", "1.jpg"}
    assert found["stutter"] == {"1.jpg"}


def test_the_case_of_the_escaped_brackets() -> None:
    found = fired([r"hero \(old series\), red coat, smile :\)", "hero (old series), red coat"])
    assert set(found) <= {"granularity-outlier"}


def test_the_case_of_the_stray_separators() -> None:
    captions = ["red thing, table,, table , window,", ",,,", "", "", "A red thing stands on a table, by a window."]
    found = fired(captions)
    assert found["empty"] == {"1.jpg", "2.jpg", "3.jpg"}
    assert found["stray-separators"] == {"0.jpg"}
    assert found["repeated-tags"] == {"0.jpg"}


def test_the_case_of_the_token_that_one_caption_holds() -> None:
    captions = ["a photo of <thing> on a table", *(f"a photo of a thing {scene}" for scene in SCENES[:4])]
    assert fired(captions)["placeholder-missing"] == {"1.jpg", "2.jpg", "3.jpg", "4.jpg"}


def test_what_a_captioner_left_in_one_of_many_captions_is_no_placeholder() -> None:
    assert "placeholder-missing" not in fired([*DESCRIBED, "a photo of a corgi with <unk> lying on a mat"])


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.none() | st.text(max_size=30) | st.sampled_from([*DESCRIBED, *TAGGED, "sks", "<a> <a>"]), max_size=30)
)
def test_any_captions_can_be_compared(captions: list[str | None]) -> None:
    for trainer in (None, "kohya", "a1111", "onetrainer"):
        found = compare(captions, trainer=trainer, batch_size=4)
        for column in ANALYZER.columns:
            values = found.columns[column.name]
            assert len(values) == len(captions)
            arrow_array(values, arrow_field(column).type)
            if column.low is not None:
                assert all(value >= column.low for value in values if value is not None)


def test_a_placeholder_that_most_hold_is_missed_and_doubling_is_told() -> None:
    captions = [f"a photo of <my-cat> {scene}" for scene in SCENES[:4]]
    found = fired([*captions, "a photo of a cat at dusk", "<my-cat> beside <my-cat> near a river"])
    assert found["placeholder-missing"] == {"4.jpg"}
    assert found["placeholder-doubled"] == {"5.jpg"}
    assert "placeholder-missing" not in fired(DESCRIBED)


def test_contradictions_damage_and_identical_descriptions() -> None:
    red = [f"a red backpack {scene}" for scene in SCENES[:5]]
    assert fired([*red, "a blue backpack at dusk"])["contradiction"] == {"5.jpg"}
    assert fired([*DESCRIBED[:5], "a photo of a corgi with white chest lying in a cafÃ©"])["damaged"] == {"5.jpg"}
    assert fired([*DESCRIBED[:5], DESCRIBED[0]])["identical"] == {"0.jpg", "5.jpg"}


def test_captions_that_say_nothing_and_boilerplate_said_twice() -> None:
    found = fired([*DESCRIBED[:5], "a photo of"])
    assert found["says-nothing"] == {"5.jpg"}
    assert "says-nothing" not in fired(["a photo of <cat>"] * 4)
    twice = f"{DESCRIBED[0]}, an image of a dog"
    assert fired([*DESCRIBED[:5], twice])["boilerplate"] == {"5.jpg"}


def test_tags_that_never_vary_are_listed_from_eight_captions_on() -> None:
    captions = [f"dog, no_humans, {tag}" for tag in ("moss", "wall", "door", "lamp", "water", "sky", "sand", "snow")]
    found = compare(captions)
    assert found.concepts["captions.never-varying"] == {"dog": 2}
    assert found.concepts["captions.never-varying-names"] == {"dog": "dog, no humans"}
    assert "never-varying" not in fired(captions[:7])


def test_tags_fused_with_the_placeholder_are_those_that_nearly_always_stand_beside_it() -> None:
    captions = [f"sks, red_hair, {'hat, ' if i else ''}{i}_cups" for i in range(20)]
    concepts = compare([*captions, "red_hair, table, lamp"]).concepts
    assert concepts["captions.fused-names"] == {"dog": "hat, red hair"}
    assert concepts["captions.never-varying-names"] == {"dog": "red hair"}


def test_batch_entropy_stands_beside_its_share_of_the_possible() -> None:
    concepts = compare(DESCRIBED, batch_size=4).concepts
    assert concepts["captions.batch-entropy-bits"]["dog"] == pytest.approx(2)
    assert concepts["captions.batch-entropy"]["dog"] == pytest.approx(1)
    assert compare(BARE, batch_size=4).concepts["captions.batch-entropy"]["dog"] == 0
    assert "captions.batch-entropy" not in compare(BARE).concepts


def test_concepts_are_compared_apart() -> None:
    found = ANALYZER.compare(table([*DESCRIBED, *BARE], ["corgi"] * 6 + ["dog"] * 6), Settings())
    assert max(found.columns["captions.granularity-distance"]) < FAR


def test_what_cannot_be_measured_says_so() -> None:
    found = compare(["word " * 30_000, "a dog", None, "東京の夜"])
    assert found.columns["captions.unmeasured"] == [
        "more than 100,000 characters, of which only the tokens were counted",
        None,
        "no caption",
        "a script without blanks between words",
    ]
    assert found.columns["captions.tokens-lost"][0] == 30_000 - 75
    assert "more than 100,000 characters" in found.unmeasured["captions"]
    assert "T5" in compare(DESCRIBED, base="flux").unmeasured["captions.tokens"]


def test_remedies_are_grouped_under_captions() -> None:
    headings = {rule.id: action(rule.remedy) for rule in ANALYZER.rules}
    assert {name for name, heading in headings.items() if heading != CAPTION} == {"captions.never-varying"}
    assert headings["captions.never-varying"] == LOOK


def test_of_a_caption_of_megabytes_only_the_beginning_is_counted_and_it_says_so() -> None:
    found = compare(["word " * 600_000, "a dog"])
    assert found.columns["captions.tokens"] == [MOST_LETTERS // 5, 2]
    assert "3,000,000 characters" in found.columns["captions.unmeasured"][0]
