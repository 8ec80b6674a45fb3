"""Columns and rule of `semantics` that name what a concept's pictures contradict each other in; CLIP models only."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from datasieve.analyzers._groups import rows_of
from datasieve.captions.conflicts import MARKS, traits
from datasieve.captions.lexicon import COLOURS
from datasieve.embedding import TextSpace, attributes
from datasieve.embedding.attributes import Attribute, Option
from datasieve.embedding.openclip import OpenClip
from datasieve.embedding.probes import Contradiction, Probes
from datasieve.rules import Rule

if TYPE_CHECKING:
    import pyarrow as pa

    from datasieve.analyzers import Comparison

SHARE_COLUMN, TOLD_COLUMN, SCENES_COLUMN = "semantics.contradiction", "semantics.contradictions", "semantics.scenes"
MIN_IMAGES = 4
SHARE = 0.15
"""Of the clear answers, that must show another value than the most frequent."""

_OF_NOUN = re.compile(r"colour of the (?P<noun>.+)|(?P<part>.+) (?:colour|length)")

RULES: tuple[Rule, ...] = (
    Rule(
        id="semantics.contradiction",
        column=SHARE_COLUMN,
        side="above",
        limit=SHARE,
        severity="info",
        title="Contradicts itself",
        message="The pictures of this concept contradict each other: {semantics.contradictions}.",
        remedy="Split the concept, or write what differs into the captions.",
        why="What differs from picture to picture and stands in no caption is averaged under the one word: a face half "
        "with glasses, hair between two colours.",
        how="Zero-shot probes with a CLIP model: texts of each value are averaged, and a softmax with the model's own "
        "scale over the values is the picture's answer, counted when it is four times as probable as the next. Asked "
        "are attributes of the subject (glasses, hair, age, species, material, medium...) and those that captions "
        "name. A scene that varies (indoors, night, snow) is no contradiction. Not measured without a CLIP model.",
        source="Radford et al. 2021",
        evidence="provisional; answers can be trusted as far as the CLIP model can.",
        scope="concept",
    ),
)


def compare(found: Comparison, table: pa.Table, rows: Any, vectors: Any, space: TextSpace | str) -> None:
    """Add to the concepts what their pictures contradict each other in.

    Args:
        found: what is filled.
        table: the set.
        rows: those that have a vector, (n,).
        vectors: of these rows, (n, d).
        space: the CLIP model, or why there is none.
    """
    if isinstance(space, str):
        found.unmeasured["semantics.attributes"] = space
        return
    assert isinstance(space, OpenClip)
    probes = Probes(space)
    concepts, captions = (table[name].take(rows).to_pylist() for name in ("concept", "caption"))
    columns: dict[str, dict[str, Any]] = {name: {} for name in (SHARE_COLUMN, TOLD_COLUMN, SCENES_COLUMN)}
    for own in rows_of([concept or "" for concept in concepts]):
        if len(own) < MIN_IMAGES:
            continue
        name = concepts[own[0]] or ""
        every = probes.contradictions(vectors[own], named(captions[i] or "" for i in own))
        subject = [c for c in every if c.attribute.of == "subject"]
        columns[SHARE_COLUMN][name] = max((c.share for c in subject), default=0.0)
        columns[TOLD_COLUMN][name] = told(subject)
        columns[SCENES_COLUMN][name] = told(c for c in every if c.attribute.of == "scene")
    found.concepts.update({column: values for column, values in columns.items() if values})


def told(contradictions: Iterable[Contradiction]) -> str | None:
    """Return contradictions as one text, the most evenly split first; None without any."""
    ordered = sorted(contradictions, key=lambda c: -c.share)
    return "; ".join(f"{c.attribute.name}: {c}" for c in ordered) or None


def named(captions: Iterable[str]) -> list[Attribute]:
    """Return the attributes that captions name and the vocabulary lacks, as something to ask their pictures.

    Colours of things ("a red backpack") are asked against the other plain colours, marks ("with freckles") against
    their absence, whatever else captions tell apart ("long hair") as far as they name two values.
    """
    stated: dict[str, set[str]] = {}
    for caption in captions:
        for trait, said in traits(caption).items():
            stated.setdefault(trait, set()).update(said)
    known = {attribute.name for attribute in attributes.VOCABULARY}
    found = []
    for trait, values in sorted(stated.items()):
        if trait in known:
            continue
        if trait in MARKS:
            options = tuple(
                Option(f"{w} {trait}", (f"{w} {trait}", f"a photo {w} {trait}")) for w in ("with", "without")
            )
            found.append(Attribute(trait, options))
        elif match := _OF_NOUN.fullmatch(trait):
            of_colour = bool(values & COLOURS)
            asked = sorted({*values, *attributes.COLOURS}) if of_colour else sorted(values)
            if len(asked) > 1:
                found.append(attributes.of_subject(trait, match["noun"] or match["part"], tuple(asked)))
    return found
