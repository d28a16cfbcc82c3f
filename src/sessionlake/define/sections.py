"""Sections of a config and aggregate calls as Python objects, unchecked: the config made from them is checked as a file's is."""

from collections.abc import Mapping
from typing import Any, ClassVar


class Section:
    """The keys and values of a section of a config."""

    AT: ClassVar[str]
    """The section's name in a config."""
    FIXED: ClassVar[Mapping[str, Any]] = {}
    """Keys that are known by the class, for example a source's kind."""
    FIRST: ClassVar[str | None] = None
    """The key whose value may be given without its name."""
    ALIASES: ClassVar[Mapping[str, str]] = {}
    """Keys that can't be names in Python, by their substitutes."""

    def __init__(self, *first: Any, **values: Any) -> None:
        if len(first) > (self.FIRST is not None):
            raise TypeError(f"{type(self).__name__}: {first[-1]!r} needs its key; write it as key=value")
        named = dict(zip([str(self.FIRST)], first, strict=False))
        self.values: dict[str, Any] = {**self.FIXED, **named, **{self.ALIASES.get(k, k): v for k, v in values.items()}}

    def __repr__(self) -> str:
        given = ", ".join(f"{key}={value!r}" for key, value in self.values.items() if key not in self.FIXED)
        return f"{type(self).__name__}({given})"


class Operator(Section):
    """The section of an operator."""


class Source(Section):
    """The section of a source."""


class Aggregate:
    """A call of a function of [aggregates]."""

    FUNCTION: ClassVar[str]
    """The function's name in a config."""
    COLUMNS: ClassVar[int]
    """How many of the arguments are SQL, at most; literals follow."""

    def __init__(self, *arguments: Any, where: str | None = None) -> None:
        self.arguments, self.where = arguments, where

    def __str__(self) -> str:
        """Return the text that a config has."""
        columns, literals = self.arguments[: self.COLUMNS], self.arguments[self.COLUMNS :]
        given = ", ".join([*map(str, columns), *map(_literal, literals)])
        return f"{self.FUNCTION}({given})" + (f" filter (where {self.where})" if self.where is not None else "")

    def __repr__(self) -> str:
        given = [*map(repr, self.arguments), *([] if self.where is None else [f"where={self.where!r}"])]
        return f"{type(self).__name__}({', '.join(given)})"


def _literal(value: Any) -> str:
    if not isinstance(value, str):
        return repr(value)
    escaped = value.translate({ord("\\"): "\\\\", ord("'"): "\\'", ord("\n"): "\\n", ord("\t"): "\\t"})
    return f"'{escaped}'"
