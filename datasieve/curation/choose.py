"""Which pictures of a report go into a set, and why each other one does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from datasieve.curation.conditions import Condition, parse
from datasieve.curation.diversity import facility_location, k_centre
from datasieve.curation.split import hold_out
from datasieve.errors import ReportError

if TYPE_CHECKING:
    from datasieve.report import Report

Method = Literal["coverage", "spread", "quality"]
COPIES = ("duplicates.exact-of", "duplicates.near-of")
ALIKE = ("exact", "near", "similar", "duplicates.exact", "duplicates.near", "semantics.similar")
"""Kinds of pairs that must not be parted by a validation split."""

PENALTIES = {"error": 1.0, "warning": 0.5, "info": 0.1}
"""What a finding of each severity takes from a picture's quality, which starts at 1 and ends at 0.05."""


@dataclass(frozen=True)
class Wish:
    """What is wanted.

    Attributes:
        drop: rules or prefixes: pictures that they name are left out, beside unusable ones, copies and errors.
        keep: rules or prefixes whose findings never leave a picture out.
        where: conditions that every picture must meet; one that was not measured for a picture leaves it out.
        most: pictures of each concept, at most; None for all.
        method: how these are chosen: "coverage" represents the rest best, "spread" differs most, "quality" is best.
        balance: a column whose values each concept should hold equally often, such as semantics.cluster; "" for none.
        validation: share of each concept held out.
        seed: of the validation split.
    """

    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    most: int | None = None
    method: Method = "coverage"
    balance: str = ""
    validation: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Choice:
    """What became of one picture.

    Attributes:
        row: its row of the report.
        part: "train", "validation" or "left out".
        reason: why, as a sentence.
        quality: 0..1.
    """

    row: Mapping[str, Any]
    part: str
    reason: str
    quality: float


def choose(report: Report, wish: Wish) -> list[Choice]:
    """Decide on every picture of a report.

    Raises:
        ConfigError: a condition cannot be read or names no column.
        ReportError: diversity is asked for and the report holds no embeddings, or no such column to balance by.
    """
    rows = report.images().to_pylist()
    columns = list(report.columns())
    conditions = [parse(text, columns) for text in wish.where]
    if wish.balance and wish.balance not in columns:
        raise ReportError(f"{report.path} has no column {wish.balance!r}", remedy="Name another column to balance by.")
    by_image: dict[str, list[dict[str, Any]]] = {}
    for finding in report.findings().to_pylist():
        if finding["image_id"]:
            by_image.setdefault(finding["image_id"], []).append(finding)
    quality = np.array([_quality(by_image.get(row["image_id"], [])) for row in rows])
    reasons = [_against(row, by_image.get(row["image_id"], []), wish, conditions) for row in rows]
    # A copy stays when the picture it is a copy of does not.
    paths = {row["path"]: i for i, row in enumerate(rows)}
    for i, row in enumerate(rows):
        of = next((row[c] for c in COPIES if row.get(c)), None)
        if reasons[i] == "" and of is not None and not _matches("duplicates", wish.keep):
            original = paths.get(of)
            if original is not None and reasons[original] == "":
                reasons[i] = f"It is a copy of {of}."
    vectors = _vectors(report, rows, wish)
    chosen = [i for i, reason in enumerate(reasons) if not reason]
    if wish.most is not None or wish.balance:
        for concept in sorted({_concept(rows[i]) for i in chosen}):
            mine = np.array([i for i in chosen if _concept(rows[i]) == concept], np.int64)
            taken = set(_taken(mine, rows, vectors, quality, wish))
            for i in mine.tolist():
                if i not in taken:
                    reasons[i] = _surplus(wish)
        chosen = [i for i, reason in enumerate(reasons) if not reason]
    held = _held(report, rows, chosen, wish)
    return [
        Choice(row, "left out", reasons[i], float(quality[i]))
        if reasons[i]
        else Choice(row, "validation" if i in held else "train", "", float(quality[i]))
        for i, row in enumerate(rows)
    ]


def _concept(row: Mapping[str, Any]) -> str:
    return row["concept"] or ""


def _matches(rule: str, patterns: Sequence[str]) -> bool:
    return any(rule == p or rule.startswith(f"{p}.") for p in patterns)


def _quality(findings: Sequence[Mapping[str, Any]]) -> float:
    return max(0.05, 1 - sum(PENALTIES[f["severity"]] for f in findings))


def _against(
    row: Mapping[str, Any], findings: Sequence[Mapping[str, Any]], wish: Wish, conditions: Sequence[Condition]
) -> str:
    """Return why a picture is left out whatever the others are; "" when nothing speaks against it."""
    if row["status"] != "ok":
        return f"It cannot be used: {row.get('error') or row['status']}."
    for finding in findings:
        rule = finding["rule"]
        if _matches(rule, wish.keep) or rule.startswith("duplicates."):
            continue
        if finding["severity"] == "error" or _matches(rule, wish.drop):
            return f"{rule}: {finding['message']}"
    for condition in conditions:
        met = condition.holds(row)
        if met is None:
            return f"{condition.column} was not measured, and {condition} is asked for."
        if not met:
            return f"It has {condition.column} {_shown(row[condition.column])}, and {condition} is asked for."
    return ""


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _vectors(report: Report, rows: Sequence[Mapping[str, Any]], wish: Wish) -> npt.NDArray[np.float32] | None:
    """Return (N, d) vectors in the order of rows, zeros where there is none; None when no choice needs them."""
    if wish.most is None or wish.method == "quality":
        return None
    table = report.embeddings()
    if not table.num_rows:
        raise ReportError(
            f"{report.path} holds no embeddings to choose by",
            remedy="Audit again with an embedder, or choose with --method quality.",
        )
    column = table["embedding"].combine_chunks()
    flat = column.flatten().to_numpy(zero_copy_only=False)
    found = np.asarray(flat, np.float32).reshape(len(column) - column.null_count, -1)
    place = {image: i for i, image in enumerate(table.filter(table["embedding"].is_valid())["image_id"].to_pylist())}
    made = np.zeros((len(rows), found.shape[1]), np.float32)
    for i, row in enumerate(rows):
        if row["image_id"] in place:
            made[i] = found[place[row["image_id"]]]
    made /= np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-12)
    return made


def _taken(
    mine: npt.NDArray[np.int64],
    rows: Sequence[Mapping[str, Any]],
    vectors: npt.NDArray[np.float32] | None,
    quality: npt.NDArray[np.float64],
    wish: Wish,
) -> list[int]:
    """Return which pictures of one concept are taken."""
    groups: dict[str, list[int]] = {}
    for i in mine.tolist():
        groups.setdefault(str(rows[i].get(wish.balance)) if wish.balance else "", []).append(i)
    sizes = quotas([len(g) for g in groups.values()], wish.most, level=bool(wish.balance))
    taken: list[int] = []
    for group, size in zip(groups.values(), sizes, strict=True):
        members = np.array(group)
        if size >= len(members):
            taken += members.tolist()
        elif wish.method == "quality" or vectors is None:
            best = sorted(members.tolist(), key=lambda i: (-quality[i], -_area(rows[i]), rows[i]["path"]))
            taken += best[:size]
        else:
            pick = facility_location if wish.method == "coverage" else k_centre
            taken += members[pick(vectors[members], size, quality[members])].tolist()
    return taken


def _area(row: Mapping[str, Any]) -> int:
    return int(row["width"] or 0) * int(row["height"] or 0)


def quotas(sizes: Sequence[int], most: int | None, *, level: bool) -> list[int]:
    """Return how many to take of each group.

    Args:
        sizes: of the groups.
        most: in all; None for no bound.
        level: none more than the smallest allows, as far as `most` lets it; else in proportion to the sizes.
    """
    if level:
        even = min(sizes)
        if most is None:
            return [even] * len(sizes)
        # Fill up evenly: small groups give all they have, the rest is shared among the others.
        left, found = most, [0] * len(sizes)
        for place, i in enumerate(sorted(range(len(sizes)), key=lambda i: sizes[i])):
            found[i] = min(sizes[i], -(-left // (len(sizes) - place)))
            left -= found[i]
        return found
    total = sum(sizes)
    if most is None or most >= total:
        return list(sizes)
    exact = [size * most / total for size in sizes]
    found = [int(e) for e in exact]
    for i in sorted(range(len(sizes)), key=lambda i: found[i] - exact[i])[: most - sum(found)]:
        found[i] += 1
    return found


def _surplus(wish: Wish) -> str:
    how = {"coverage": "others represent it", "spread": "others differ more", "quality": "others are better"}
    balanced = f", with {wish.balance} in balance" if wish.balance else ""
    bound = f"{wish.most} pictures of its concept were wanted" if wish.most is not None else "balance was wanted"
    return f"{bound[0].upper()}{bound[1:]}{balanced}, and {how[wish.method]}."


def _held(report: Report, rows: Sequence[Mapping[str, Any]], chosen: Sequence[int], wish: Wish) -> set[int]:
    if wish.validation <= 0:
        return set()
    place = {rows[i]["image_id"]: k for k, i in enumerate(chosen)}
    ends = [(p["image_id_a"], p["image_id_b"]) for p in report.pairs().to_pylist() if p["kind"] in ALIKE]
    edges = [(place[a], place[b]) for a, b in ends if a in place and b in place]
    # Copies that were kept on purpose hang together too.
    by_path = {rows[i]["path"]: k for k, i in enumerate(chosen)}
    edges += [
        (k, by_path[rows[i][c]])
        for k, i in enumerate(chosen)
        for c in COPIES
        if rows[i].get(c) and rows[i][c] in by_path
    ]
    held = hold_out([_concept(rows[i]) for i in chosen], edges, wish.validation, wish.seed)
    return {i for i, out in zip(chosen, held, strict=True) if out}


def told(choices: Sequence[Choice]) -> Counter[str]:
    """Return how many pictures each part has."""
    return Counter(choice.part for choice in choices)
