"""Conditions on columns, such as `sharpness.detail > 0.2`, as data: nothing a user writes is evaluated."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datasieve.errors import ConfigError

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "!=": operator.ne,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_SHAPE = re.compile(r"^\s*([\w.-]+?)\s*(>=|<=|!=|==|>|<)\s*(.+?)\s*$")


@dataclass(frozen=True)
class Condition:
    """One comparison.

    Attributes:
        column: of the report's images.
        sign: one of `OPERATORS`.
        value: a number, or a word.
    """

    column: str
    sign: str
    value: float | str

    def __str__(self) -> str:
        return f"{self.column} {self.sign} {self.value}"

    def holds(self, row: Mapping[str, Any]) -> bool | None:
        """Tell whether a row meets it; None when the column was not measured for it."""
        found = row.get(self.column)
        if found is None or found != found:
            return None
        if isinstance(self.value, str):
            return OPERATORS[self.sign](str(found), self.value)
        return OPERATORS[self.sign](float(found), self.value)


def parse(text: str, columns: Sequence[str]) -> Condition:
    """Read `COLUMN SIGN VALUE`. Raises ConfigError for anything else, naming columns that are alike."""
    found = _SHAPE.match(text)
    if found is None:
        raise ConfigError(f"{text!r} is no condition", remedy="Write it like: 'frame.border-share < 0.1'.")
    column, sign, value = found.groups()
    if column not in columns:
        import difflib

        near = difflib.get_close_matches(column, columns, n=3)
        raise ConfigError(
            f"the report has no column {column!r}" + (f"; did you mean {', '.join(near)}?" if near else ""),
            remedy="`datasieve show REPORT --image NAME` lists the columns.",
        )
    try:
        return Condition(column, sign, float(value))
    except ValueError:
        word = value.strip("'\"")
        if sign not in ("==", "!="):
            raise ConfigError(f"{text!r} compares with a word, which only == and != can do") from None
        return Condition(column, sign, word)
