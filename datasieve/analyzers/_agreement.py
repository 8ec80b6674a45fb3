"""Columns, rules and comparison of `semantics` that need texts: does a caption say what its picture shows?

The method stands in run.json under `facts`: "clip" with a CLIP model, else "conse", the embedded text path, which sees
kinds of objects and neither attributes nor styles (`datasieve.embedding.conse`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from datasieve.embedding import TextSpace, agreement, conse
from datasieve.rules import Rule
from datasieve.schema import Column

if TYPE_CHECKING:
    import pyarrow as pa

    from datasieve.analyzers import Comparison

SWAPPED = 3.5
"""Rise of two fits in sum from which on two captions are told as swapped."""

MISFIT = 0.6
"""Share of captions, and of pictures, that must fit better."""

SEPARATED = 0.8
"""Separation of captions from which on single ones are judged (`agreement.Fits`)."""

MOST = 10_000
"""Captioned images that are compared with one another; of more, an even sample."""

CLASSES = Column(
    "semantics.classes",
    "vector",
    description="Square roots of the 20 largest ImageNet class probabilities, less the 21st, as a unit vector.",
    low=0.0,
    high=1.0,
    source="EfficientNet-Lite0; ConSE: Norouzi et al. 2014",
    tolerance=0.03,
    size=conse.SIZE,
)

COLUMNS: tuple[Column, ...] = (
    Column(
        "semantics.caption-agreement",
        description="Cosine of the picture and its caption; only numbers of one method (run.json) can be compared.",
        low=-1.0,
        high=1.0,
        source="ConSE: Norouzi et al. 2014; with a CLIP model its cosine: Radford et al. 2021",
        tolerance=0.02,
        stage="compare",
    ),
    Column(
        "semantics.caption-fit",
        unit="standard deviations",
        description="The same above what the set's captions and pictures have in common; low fits badly.",
        tolerance=0.1,
        stage="compare",
    ),
    Column(
        "semantics.caption-rank",
        "int",
        description="Place of the own caption among the set's captions by how well they fit the picture; 1 is best.",
        low=1,
        stage="compare",
    ),
    Column(
        "semantics.caption-misfit",
        unit="share",
        description="Captions that fit the picture better, or pictures that fit the caption better, whichever is less.",
        low=0.0,
        high=1.0,
        tolerance=0.05,
        stage="compare",
    ),
    Column(
        "semantics.caption-swap",
        unit="standard deviations",
        description="By how much two fits would rise in sum if two captions were swapped; null without a partner.",
        low=0.0,
        tolerance=0.2,
        stage="compare",
    ),
    Column("semantics.caption-swap-with", "string", description="Image to swap captions with.", stage="compare"),
)

CLIP_SCORE = Column(
    "semantics.clip-score",
    description="2.5 times the cosine of picture and caption, not below 0; limits differ from model to model.",
    low=0.0,
    high=2.5,
    source="CLIPScore: Hessel et al., EMNLP 2021",
    tolerance=0.05,
    stage="compare",
)

_METHOD = (
    "Picture and caption are compared as classes of objects (ConSE: Lite0's 20 most probable classes against the "
    "classes whose names mean what the caption says, all-MiniLM-L6-v2) or, with --embedder clip, by a CLIP model. "
    "Cosines become fits in standard deviations over the set's captions and pictures. Colours, poses and styles are "
    "not seen without a CLIP model. "
)
_SOURCE = "ConSE: Norouzi et al. 2014"

RULES: tuple[Rule, ...] = (
    Rule(
        id="semantics.caption-swapped",
        column="semantics.caption-swap",
        side="above",
        limit=SWAPPED,
        severity="warning",
        title="Captions swapped",
        message="This caption and that of {semantics.caption-swap-with} fit much better the other way round "
        "({value:.1f} standard deviations, limit {limit}).",
        remedy="Swap captions with {semantics.caption-swap-with}, if both pictures say so too.",
        why="A caption of another picture teaches its words the wrong look, and leaves what the picture shows to the "
        "trigger word. Files that were renamed or sorted apart from their captions are wrong by the dozen.",
        how=_METHOD + "Two pictures are told when each is the other's best partner, neither fits its own caption (fit "
        "below 0.3), and both fits rise by 3.5 in sum. Needs 8 distinct captions that "
        "on the whole fit their own pictures better than others' (separation 0.8).",
        source=_SOURCE,
        evidence="embedded text path, limits chosen on 12 subjects and 241 captioned pictures. Captions swapped "
        "between subjects: found 37 of 48 there and 28 of 48 on 11 other subjects, told in their place 1 of 537 and 2 "
        "of 447; among dogs alone 25 of 48 and 1 of 240; drawings of single things 39 of 48 and 17 of 852, "
        "encyclopedia photos 50 of 144 and 4 of 1125 (docs/caption-agreement.md). With a CLIP model: provisional.",
    ),
    Rule(
        id="semantics.caption-misfit",
        column="semantics.caption-misfit",
        side="above",
        limit=MISFIT,
        severity="info",
        title="Caption of another thing",
        message="{value:.0%} of the set's captions fit this picture better than its own, or as many pictures fit that "
        "caption better; it may say something else than the picture shows.",
        remedy="Read the caption beside its picture.",
        why="What the caption names and the picture does not show is learned as the look of those words.",
        how=_METHOD + "The own caption must be worse than 60% of the set's captions for its picture, and the picture "
        "worse than 60% for its caption. Needs 8 distinct captions that on the whole fit their own pictures better "
        "than others' (separation 0.8).",
        source=_SOURCE,
        evidence="embedded text path, limit chosen on 12 subjects and 241 captioned pictures. Captions of another "
        "subject: found 18 of 48 there and 16 of 48 on 11 other subjects, false alarms 0 of 537 and 0 of 447; drawings "
        "of single things 11 of 48 and 34 of 852, encyclopedia photos 38 of 144 and 9 of 1125 "
        "(docs/caption-agreement.md). With a CLIP model: provisional.",
    ),
)


def clip_columns(columns: Sequence[Column], clip: str) -> tuple[Column, ...]:
    """Return the columns of `semantics` as they are with a CLIP model: its own vectors, no classes, its score.

    Raises ConfigError for an unknown model.
    """
    from datasieve.embedding.clip_weights import ClipWeights, located

    weights = located(clip)
    changed = []
    for column in columns:
        if column.name == "semantics.embedding":
            size = weights.size if isinstance(weights, ClipWeights) else column.size
            column = replace(column, size=size, source="a CLIP model's image tower, not centred")
        changed.append(column)
    return (*(c for c in changed if c.name != CLASSES.name), CLIP_SCORE)


def clip_identity(clip: str) -> str:
    """Return the name and revision of a CLIP model's weights, "no weights" when they are not here."""
    from datasieve.embedding.clip_weights import ClipWeights, located

    weights = located(clip)
    return f"clip {weights.identity}" if isinstance(weights, ClipWeights) else "no weights"


def device() -> str:
    """Return the best device for texts when no picture had to be measured."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


_CENTRED = ("semantics.clusters", "semantics.minority", "semantics.cluster-angle", "semantics.confusion")


def withhold(found: Comparison, why: str) -> None:
    """Take back what rules judge by limits that were set for centred vectors; plain numbers stay."""
    for name in ("semantics.deviation", "semantics.cluster"):
        found.columns[name] = [None] * len(found.columns[name])
    for name in _CENTRED:
        found.concepts.pop(name, None)
    found.pairs = [pair for pair in found.pairs if pair[0] not in ("similar", "confusion")]
    found.unmeasured["semantics.limits"] = why


def compare(
    found: Comparison, table: pa.Table, vectors: Callable[[Any], Any], opened: Callable[[], TextSpace | str], clip: bool
) -> None:
    """Fill the columns of captions, their pairs, the concepts' recall and the facts of the run.

    Args:
        found: what is filled.
        table: the set, with captions.
        vectors: rows to pictures' vectors (n, d) in the space; None of the rows lacks one.
        opened: opens the space, or says why there is none; asked only when there are captions.
        clip: the space is a CLIP model's.
    """
    columns = (*COLUMNS, CLIP_SCORE) if clip else COLUMNS
    values: dict[str, list[Any]] = {c.name: [None] * len(table) for c in columns}
    found.columns = {**found.columns, **values}
    source = "semantics.embedding" if clip else CLASSES.name
    captions = [(c or "").strip() for c in table["caption"].to_pylist()]
    known = np.asarray(table[source].is_valid().to_pylist(), bool) & np.array([bool(c) for c in captions], bool)
    rows = np.flatnonzero(known)
    if not len(rows):
        return
    space = opened()
    if isinstance(space, str):
        found.unmeasured["semantics.caption-agreement"] = space
        return
    if len(rows) > MOST:
        found.unmeasured["semantics.caption-agreement"] = (
            f"of {len(rows):,} captions an even sample of {MOST:,} is read"
        )
        rows = rows[np.linspace(0, len(rows) - 1, MOST).astype(int)]
    distinct = list(dict.fromkeys(captions[i] for i in rows))
    place = {text: i for i, text in enumerate(distinct)}
    caption = np.array([place[captions[i]] for i in rows], np.intp)
    pictures, texts = vectors(rows), space.texts(distinct)
    facts: dict[str, Any] = {"method": space.method, "models": space.identity, "captions": len(rows)}
    found.facts["caption-agreement"] = facts

    def put(name: str, found_values: npt.NDArray[Any]) -> None:
        for row, value in zip(rows.tolist(), found_values.tolist(), strict=True):
            values[f"semantics.{name}"][row] = value

    cosine = agreement.cosines(pictures, texts, caption)
    put("caption-agreement", np.clip(cosine, -1, 1))
    if clip:
        put("clip-score", 2.5 * np.clip(cosine, 0, 1))
    if len(distinct) < agreement.FEWEST:
        found.unmeasured["semantics.caption-fit"] = (
            f"{len(distinct)} distinct captions are too few to tell which is whose; {agreement.FEWEST} are needed"
        )
        return
    fits = agreement.fits(pictures, texts, caption)
    put("caption-fit", fits.fit)
    put("caption-rank", fits.rank)
    _recall(found, [table["concept"][int(i)].as_py() or "" for i in rows], fits.rank)
    facts[f"recall@{agreement.K}"] = round(float((fits.rank <= agreement.K).mean()), 4)
    facts["separation"] = round(fits.separation, 4)
    if fits.separation < SEPARATED:
        found.unmeasured["semantics.caption-misfit"] = (
            f"captions fit their own pictures hardly better than others' (separation {fits.separation:.2f}, needed "
            f"{SEPARATED}): many are mixed up, or {space.method} knows too little of such pictures; none is judged"
        )
        return
    put("caption-misfit", fits.misfit)
    put("caption-swap", fits.swap)
    paths = table["path"].to_pylist()
    for row, other in zip(rows.tolist(), fits.partner.tolist(), strict=True):
        values["semantics.caption-swap-with"][row] = paths[rows[other]] if other >= 0 else None
    found.pairs += _pairs(rows, fits)


def _pairs(rows: npt.NDArray[np.intp], fits: agreement.Fits) -> list[tuple[str, int, int, float]]:
    return [
        ("swapped", int(rows[i]), int(rows[other]), float(fits.swap[i]))
        for i, other in enumerate(fits.partner.tolist())
        if i < other and fits.swap[i] > SWAPPED
    ]


def _recall(found: Comparison, concepts: Sequence[str], rank: npt.NDArray[np.intp]) -> None:
    """Add each concept's share of captions that are among the `agreement.K` of the set that fit their picture best."""
    owners = np.array(concepts, dtype=object)
    found.concepts["semantics.caption-recall"] = {
        name: float((rank[owners == name] <= agreement.K).mean()) for name in dict.fromkeys(concepts)
    }
