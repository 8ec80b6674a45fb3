"""Zero-shot probes, on a space in which every word is a direction and every text the sum of its words."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from datasieve.analyzers._contradictions import named, told
from datasieve.embedding import attributes, probes
from datasieve.embedding.attributes import Attribute, Option


class Words:
    """A text tower that knows words by their spelling."""

    scale = 100.0

    def __init__(self) -> None:
        self.asked = 0

    def texts(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += len(texts)
        return np.stack([self.text(text) for text in texts])

    def text(self, text: str) -> np.ndarray:
        vector = np.zeros(256, np.float32)
        for word in re.findall(r"[a-z0-9]+", text.lower()):
            if word not in ("a", "an", "of", "photo", "picture", "with", "in", "the"):
                generator = np.random.default_rng(int.from_bytes(word.encode(), "little") % (1 << 63))
                vector += generator.normal(size=256).astype(np.float32)
        return vector / max(float(np.linalg.norm(vector)), 1e-9)


def pictures(space: Words, *shown: tuple[int, str]) -> np.ndarray:
    return np.concatenate([np.repeat(space.texts([text]), count, 0) for count, text in shown])


def names(found: Sequence[probes.Contradiction]) -> set[str]:
    return {one.attribute.name for one in found}


def test_glasses_and_none_are_named_with_their_numbers() -> None:
    space = Words()
    seen = pictures(space, (12, "a person man with glasses"), (5, "a person man without glasses"))
    found = {c.attribute.name: c for c in probes.Probes(space).contradictions(seen)}
    assert str(found["glasses"]) == "12 'with glasses' against 5 'without glasses'"
    assert found["glasses"].share == pytest.approx(5 / 17)
    assert "species" not in found, "not asked of persons"
    assert "glasses: 12 'with glasses' against 5 'without glasses'" in str(told(found.values()))


def test_two_species_under_one_name_are_named() -> None:
    space = Words()
    found = probes.Probes(space).contradictions(pictures(space, (4, "an animal dog"), (3, "an animal cat")))
    assert "4 'dog' against 3 'cat'" in {str(c) for c in found}
    assert "glasses" not in names(found)


def test_pictures_that_agree_contradict_nothing() -> None:
    space = Words()
    seen = pictures(space, (9, "a person woman with blonde hair outdoors under sky in the snow by day"))
    assert probes.Probes(space).contradictions(seen) == []
    assert told([]) is None


def test_one_odd_picture_is_no_contradiction_and_an_unclear_one_is_no_answer() -> None:
    asked = Attribute("mood", (Option("happy", ("happy",)), Option("sad", ("sad",))))
    assert probes.contradiction(["happy"] * 9 + ["sad"], asked) is None
    assert probes.contradiction(["happy"] * 38 + ["sad"] * 2, asked) is None, "less than a tenth"
    assert probes.contradiction([None] * 5, asked) is None
    found = probes.contradiction(["happy", "happy", "sad", "sad", None], asked)
    assert found is not None
    assert (found.counts, found.share) == ({"happy": 2, "sad": 2}, 0.5)
    assert probes.shown(np.array([[0.55, 0.45], [0.1, 0.9]], np.float32), asked) == [None, "sad"]


def test_answers_are_the_softmax_of_scaled_cosines() -> None:
    seen, values = np.eye(2, dtype=np.float32), np.array([[1, 0], [0.6, 0.8]], np.float32)
    expected = np.exp([[2.0, 1.2], [0.0, 1.6]])
    found = probes.answers(seen, values, 2.0)
    assert np.allclose(found, expected / expected.sum(1, keepdims=True), atol=1e-6)


def test_a_varied_scene_is_told_apart_from_the_subject() -> None:
    space = Words()
    found = probes.Probes(space).contradictions(pictures(space, (4, "day by"), (4, "night at")))
    [time] = [c for c in found if c.attribute.name == "time"]
    assert time.attribute.of == "scene"


def test_texts_are_embedded_once_for_all_concepts() -> None:
    space = Words()
    seen = pictures(space, (4, "an animal dog"))
    asked = probes.Probes(space)
    asked.contradictions(seen)
    before = space.asked
    asked.contradictions(seen)
    assert space.asked == before


def test_what_captions_name_is_asked_too() -> None:
    found = {
        a.name: a for a in named(["a red backpack with freckles on a rock", "a red backpack", "a dog with short hair"])
    }
    assert {o.name for o in found["colour of the backpack"].options} == set(attributes.COLOURS)
    assert ("a red backpack", "a photo of a red backpack") in [o.texts for o in found["colour of the backpack"].options]
    assert [o.name for o in found["freckles"].options] == ["with freckles", "without freckles"]
    assert "hair length" not in found, "the vocabulary asks that already"
    space = Words()
    seen = pictures(space, (5, "a red backpack"), (3, "a green backpack"))
    contradicting = probes.Probes(space).contradictions(seen, list(found.values()))
    assert "5 'red' against 3 'green'" in {str(c) for c in contradicting}


@pytest.mark.parametrize("attribute", [attributes.KIND, *attributes.VOCABULARY], ids=lambda a: a.name)
def test_every_attribute_has_values_that_are_told_apart(attribute: Attribute) -> None:
    assert len({o.name for o in attribute.options}) == len(attribute.options) >= 2
    texts = [text for option in attribute.options for text in option.texts]
    assert len(set(texts)) == len(texts)
    assert attribute.kind in ("", *(o.name for o in attributes.KIND.options))
