"""The types that columns and expressions may have: Spark's text and DuckDB's.

Arrow's types are in `columnar/column_types.py`, because importing pyarrow costs more than a config may.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

PLAIN = ("long", "double", "string", "boolean", "timestamp", "date")
"""Plain types, as a config names them, except decimals."""
FORMS = f"{', '.join(PLAIN)}, decimal(p, s), array<T>, map<string, T> or struct<name: T, ..>"
"""All forms that a type may have in a config."""
DEEPEST = 32
"""Types may be nested this deep at most."""
_MOST_DIGITS = 38
_SHOWN = 80
"""How many characters an error shows."""
_MARKS = ("", *"<>(),:")
_NAMES = {**{name: name for name in PLAIN}, "long": "bigint", "bigint": "bigint"}
_DUCK = {
    "boolean": "boolean",
    "bigint": "bigint",
    "double": "double",
    "string": "varchar",
    "date": "date",
    "timestamp": "timestamp",
}
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([<>(),:])|([^\s<>(),:`]+))")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class SqlType:
    """A type. Its text is Spark's.

    >>> SqlType("array", (SqlType("struct", (SqlType("string"), SqlType("bigint")), ("sku", "a b")),))
    array<struct<sku: string, `a b`: bigint>>
    """

    name: str
    """`boolean`, `bigint`, `double`, `decimal`, `string`, `date`, `timestamp`, `array`, `map` or `struct`."""
    parts: tuple["SqlType", ...] = ()
    """The type for an array's elements, for a map's values (keys are strings), or for each field."""
    fields: tuple[str, ...] = ()
    """A struct's field names, as many as parts."""
    digits: tuple[int, int] = (0, 0)
    """A decimal's precision and scale."""

    def __str__(self) -> str:
        match self.name:
            case "decimal":
                return f"decimal({self.digits[0]}, {self.digits[1]})"
            case "map":
                return f"map<string, {self.parts[0]}>"
            case "struct":
                pairs = zip(self.fields, self.parts, strict=True)
                return f"struct<{', '.join(f'{_field(name)}: {part}' for name, part in pairs)}>"
        return f"array<{self.parts[0]}>" if self.parts else self.name

    __repr__ = __str__

    @property
    def duck(self) -> str:
        """DuckDB's text. A map is a list with pairs there, because DuckDB refuses a column with a key twice.

        >>> SqlType("map", (SqlType("double"),)).duck
        'struct("key" varchar, "value" double)[]'
        """
        match self.name:
            case "decimal":
                return f"decimal({self.digits[0]}, {self.digits[1]})"
            case "array":
                return f"{self.parts[0].duck}[]"
            case "map":
                return f'struct("key" varchar, "value" {self.parts[0].duck})[]'
            case "struct":
                named = (f'"{_doubled(name)}" {part.duck}' for name, part in zip(self.fields, self.parts, strict=True))
                return f"struct({', '.join(named)})"
        return _DUCK[self.name]

    @property
    def depth(self) -> int:
        """How many types are around the innermost type, this type included; 0 for a plain type."""
        return 1 + max(part.depth for part in self.parts) if self.parts else 0


def _field(name: str) -> str:
    return name if _WORD.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _doubled(name: str) -> str:
    return name.replace('"', '""')


def wrong_fields(names: Sequence[str]) -> str | None:
    """Return why a struct can't have fields with some names; None if it can.

    >>> wrong_fields(["a", "A"])
    "has the fields 'a' and 'A', which are one name in SQL"
    """
    known = {name.lower(): name for name in reversed(names)}
    twice = next(((known[name.lower()], name) for name in names if known[name.lower()] != name), None)
    if twice is not None:
        return f"has the fields {twice[0]!r} and {twice[1]!r}, which are one name in SQL"
    if len(known) < len(names):
        return f"has the field {next(name for name in names if names.count(name) > 1)!r} twice"
    return None if names and all(names) else "has a struct without fields, or a field without a name"


@lru_cache(1024)
def parse_type(text: str) -> SqlType:
    """Return the type that a text names; ValueError in one line if it names none.

    >>> parse_type("array<struct<sku string, price decimal(10, 2)>>")
    array<struct<sku: string, price: decimal(10, 2)>>
    """
    reader = _Reader(text)
    type_ = reader.type(0)
    if reader.ahead:
        raise reader.wrong(f"has {reader.ahead!r} behind its end")
    return type_


class _Reader:
    """A text's tokens, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, bool]] = []
        """Each with whether it stood in backquotes, as only a field's name may."""
        end = 0
        while text[end:].strip():
            token = _TOKEN.match(text, end)
            if token is None:
                raise self.wrong("has a backquote that is not closed")
            end = token.end()
            self._tokens.append((token[1].replace("``", "`"), True) if token[1] else (token[2] or token[3], False))
        self._tokens.reverse()

    @property
    def ahead(self) -> str:
        """The next token, which is not read yet; empty behind the last one."""
        return self._tokens[-1][0] if self._tokens else ""

    def type(self, depth: int) -> SqlType:
        """Read a type."""
        if depth > DEEPEST:
            raise self.wrong(f"is nested deeper than {DEEPEST} types")
        word, is_field = self._tokens.pop() if self._tokens else ("", True)
        if is_field:
            raise self.wrong("lacks a type")
        known = word.lower()
        if known in _NAMES:
            return SqlType(_NAMES[known])
        read = {"decimal": self._decimal, "array": self._array, "map": self._map, "struct": self._struct}.get(known)
        if read is None:
            raise self.wrong("is no type" if word == self._text.strip() else f"has {word!r}, which is no type")
        return read(depth + 1)

    def _decimal(self, depth: int) -> SqlType:
        del depth
        marks = [self._tokens.pop()[0] for _ in range(min(5, len(self._tokens)))]
        digits = re.fullmatch(r"\((\d{1,2}),(\d{1,2})\)", "".join(marks))
        precision, scale = (int(digits[1]), int(digits[2])) if digits else (0, 0)
        if not 1 <= precision <= _MOST_DIGITS or scale > precision:
            raise self.wrong(f"has a decimal without a precision from 1 to {_MOST_DIGITS} and a scale up to it")
        return SqlType("decimal", digits=(precision, scale))

    def _array(self, depth: int) -> SqlType:
        self._over("<")
        element = self.type(depth)
        self._over(">")
        return SqlType("array", (element,))

    def _map(self, depth: int) -> SqlType:
        self._over("<")
        key = self.type(depth)
        if key.name != "string":
            raise self.wrong(f"has a map with keys of type {key}, and only strings can be keys")
        self._over(",")
        value = self.type(depth)
        self._over(">")
        return SqlType("map", (value,))

    def _struct(self, depth: int) -> SqlType:
        names, parts, mark = [], [], "<"
        while self.ahead == mark:
            self._over(mark)
            name, is_field = self._tokens.pop() if self._tokens else ("", False)
            if not is_field and name in _MARKS:
                raise self.wrong("lacks the name of a field")
            if self.ahead == ":":
                self._over(":")
            names.append(name)
            parts.append(self.type(depth))
            mark = ","
        self._over(">" if names else "<")
        reason = wrong_fields(names)
        if reason is not None:
            raise self.wrong(reason)
        return SqlType("struct", tuple(parts), tuple(names))

    def _over(self, mark: str) -> None:
        """Read a mark."""
        token = self._tokens.pop() if self._tokens else ("", False)
        if token != (mark, False):
            raise self.wrong(f"has {token[0]!r} in place of {mark!r}" if token[0] else f"lacks {mark!r}")

    def wrong(self, reason: str) -> ValueError:
        """Return an error about the text."""
        shown = self._text if len(self._text) <= _SHOWN else f"{self._text[: _SHOWN - 3]}..."
        return ValueError(f"{shown!r} {reason}; write {FORMS}")
