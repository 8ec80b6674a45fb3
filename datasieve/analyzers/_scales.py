"""How much of the frame a subject takes, in words, and what a set of pictures lacks."""

from __future__ import annotations

from collections.abc import Sequence

SCALES = ("detail", "portrait", "half", "full", "wide")
"""From filling the frame to lost in it."""

LEAST_SHARES = (0.75, 0.4, 0.13, 0.04, 0.0)
"""The least share of the frame of each: a side of 87%, 63%, 36% and 20% of the frame's."""

GROUPS = {"close-ups": SCALES[:2], "half shots": SCALES[2:3], "full shots": SCALES[3:]}
"""Scales that teach the same: the surface, the subject, the subject in its surroundings."""

WANTED = {"close-ups": 0.3, "half shots": 0.3, "full shots": 0.2}
"""The share of each group that advice fills up to: conventions, not measurements."""

_WORDS = {
    "close-ups": "that show it from near",
    "half shots": "that show it with some room around",
    "full shots": "that show all of it small in its surroundings",
}


def scale_of(share: float) -> str:
    """Return the scale of a subject that takes so much of the frame, 0 to 1."""
    return next(scale for scale, least in zip(SCALES, LEAST_SHARES, strict=True) if share >= least)


def shares_of(shares: Sequence[float]) -> dict[str, float]:
    """Return which part of the pictures is of each scale."""
    found = [scale_of(share) for share in shares]
    return {scale: found.count(scale) / max(len(found), 1) for scale in SCALES}


def groups_of(shares: Sequence[float]) -> dict[str, float]:
    """Return which part of the pictures is of each group."""
    parts = shares_of(shares)
    return {group: sum(parts[scale] for scale in scales) for group, scales in GROUPS.items()}


def advice(shares: Sequence[float]) -> str:
    """Return one clause that tells which pictures to add, "" when no group is short.

    So many that each group has its `WANTED` share of the pictures there will be, the others kept.
    """
    count = len(shares)
    have = {group: round(part * count) for group, part in groups_of(shares).items()}
    missing = [group for group in GROUPS if have[group] < WANTED[group] * count]
    kept = sum(have[group] for group in GROUPS if group not in missing)
    total = kept / max(1 - sum(WANTED[group] for group in missing), 1e-9)
    short = {group: round(WANTED[group] * total) - have[group] for group in missing}
    return " and ".join(f"{number} {_WORDS[group]}" for group, number in short.items() if number > 0)
