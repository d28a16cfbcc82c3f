"""The outer call of an aggregate, as `sum(price * quantity) filter (where type = 'buy')`, read without SQL's parser.

SQL's parser knows some functions of aggregates by other names or with other arguments. So it gets only the arguments and the
condition, which `Part` has.
"""

import re
from dataclasses import dataclass

from sessionlake.errors import ConfigError

_NAME = re.compile(r"\s*([A-Za-z_]\w*)\s*\(")
_FILTER = re.compile(r"\s*filter\s*\(\s*where\b", re.IGNORECASE)
_DISTINCT = re.compile(r"\s*distinct\b", re.IGNORECASE)
_REFUSED = re.compile(r"\b(?:respect\s+nulls|ignore\s+nulls|order\s+by)\b|--|/\*", re.IGNORECASE)
_QUOTES = "'\"`"
_HIDDEN = "\0"
"""Stands for a quoted character in a text that is searched for brackets, commas and words."""


@dataclass(frozen=True)
class Part:
    """A piece of a call's text."""

    text: str
    at: int
    """The place of the first character in the call's text, counted from 1."""


@dataclass(frozen=True)
class Call:
    """A function's name in small letters, its arguments, and its condition: `filter (where ...)`."""

    name: str
    arguments: tuple[Part, ...]
    distinct: int | None = None
    """The place of the word DISTINCT, as a part's; None without it."""
    condition: Part | None = None


def read_call(setting: str, text: str) -> Call:
    """Read the text; ConfigError names `setting` and the place in the text.

    >>> call = read_call("aggregates.a", "sum(price * if(b, 1, 2)) filter (where type = ')')")
    >>> call.name, call.arguments, call.condition
    ('sum', (Part(text='price * if(b, 1, 2)', at=5),), Part(text="type = ')'", at=40))
    """
    return _Reader(setting, text).call()


class _Reader:
    def __init__(self, setting: str, text: str) -> None:
        self._setting, self._text = setting, text

    def call(self) -> Call:
        name = _NAME.match(self._text)
        if name is None:
            raise self._error("is no call of a function", 0, "write it as in 'sum(column)'")
        self._seen = self._without_quoted()
        refused = _REFUSED.search(self._seen, name.end())
        if refused:
            raise self._error(f"has {refused[0]!r}, which is not supported", refused.start(), "leave it out")
        close = self._closing(name.end() - 1)
        distinct = _DISTINCT.match(self._seen, name.end(), close)
        arguments = self._arguments(distinct.end() if distinct else name.end(), close)
        of_word = None if distinct is None else distinct.end() - len("distinct") + 1
        return Call(name[1].lower(), arguments, of_word, self._condition(close + 1))

    def _without_quoted(self) -> str:
        """Return the text with each quoted character replaced, so that places stay."""
        seen, quote, at = list(self._text), "", 0
        while at < len(seen):
            character = self._text[at]
            if quote:
                seen[at] = _HIDDEN
                if character == "\\" and quote != "`":
                    at += 1
                    seen[at : at + 1] = _HIDDEN
                elif character == quote:
                    quote = ""
            elif character in _QUOTES:
                quote, begin, seen[at] = character, at, _HIDDEN
            at += 1
        if quote:
            raise self._error(f"opens a {quote} that is not closed", begin, "close it")
        return "".join(seen)

    def _closing(self, opening: int) -> int:
        """Return the place of the closing bracket for the one at `opening`."""
        depth = 0
        for at in range(opening, len(self._seen)):
            depth += {"(": 1, ")": -1}.get(self._seen[at], 0)
            if not depth:
                return at
        raise self._error("opens a bracket that is not closed", opening, "close it")

    def _arguments(self, start: int, end: int) -> tuple[Part, ...]:
        if not self._seen[start:end].strip():
            return ()
        depth, cuts = 0, [start - 1]
        for at in range(start, end):
            depth += {"(": 1, ")": -1}.get(self._seen[at], 0)
            if self._seen[at] == "," and not depth:
                cuts.append(at)
        return tuple(self._part(a + 1, b) for a, b in zip(cuts, [*cuts[1:], end], strict=True))

    def _condition(self, start: int) -> Part | None:
        if not self._seen[start:].strip():
            return None
        filtered = _FILTER.match(self._seen, start)
        if filtered is None:
            at = start + len(self._seen[start:]) - len(self._seen[start:].lstrip())
            raise self._error(f"goes on with {self._text[at:]!r}", at, "write filter (where ...) there, or nothing")
        close = self._closing(self._seen.index("(", start))
        if self._seen[close + 1 :].strip():
            raise self._error(f"goes on with {self._text[close + 1 :].strip()!r}", close + 1, "leave that out")
        return self._part(filtered.end(), close)

    def _part(self, start: int, end: int) -> Part:
        text = self._text[start:end]
        begin = start + len(text) - len(text.lstrip())
        if not text.strip():
            raise self._error("has nothing", begin, "write an expression there")
        return Part(text.strip(), begin + 1)

    def _error(self, told: str, at: int, advice: str) -> ConfigError:
        return ConfigError(f"{self._setting}: {self._text!r} {told} at character {at + 1}; {advice}")
