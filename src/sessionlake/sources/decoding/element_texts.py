"""Texts of single elements: a row's JSON with one element of a list in place of all, so that no text holds another event's part."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from sessionlake.column_names import ELEMENT
from sessionlake.columnar.arrays import Ints

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(strict=False)
_NOT_READ = (ValueError, IndexError, RecursionError)


@dataclass(frozen=True)
class ElementTexts:
    """A row's text, and the places of a list and its elements in it."""

    text: str
    begin: int
    end: int
    elements: Ints
    """The begin and end of each, in two columns: a text may have many."""
    first: int = 0
    """The number of the first element: that of ELEMENT if the text has it."""
    number: tuple[int, int] | None = None
    """The place of ELEMENT's value."""

    @classmethod
    def of(cls, text: str, path: Sequence[str]) -> "ElementTexts | None":
        """Find the list at a path; None if the text is no JSON object, or does not have the list once and in full.

        >>> ElementTexts.of('{"user": 7, "items": [1.10, 2]}', ["items"]).with_element(1)
        '{"_element":1,"user": 7, "items": [2]}'
        """
        try:
            place, number = _place(text, path), _place(text, [ELEMENT])
            if place is None or text[place[0]] != "[":
                return None
            elements = np.array([*_elements(text, place[0])], np.int64).reshape(-1, 2)
            return cls(text, *place, elements, 0 if number is None else int(text[slice(*number)]), number)
        except _NOT_READ:
            return None

    def element(self, number: int) -> str:
        """Return an element's own text."""
        return self.text[slice(*self.elements[number])]

    def with_element(self, number: int) -> str:
        """Return the row's text with one of the elements, and its number."""
        return self._with(f"[{self.element(number)}]", self.first + number)

    def without_elements(self) -> str:
        """Return the row's text without the list."""
        return self._with("null", self.first)

    def _with(self, value: str, number: int) -> str:
        changes = [(self.begin, self.end, value)]
        if self.number is not None:
            changes.append((*self.number, str(number)))
        else:
            # The list lies in an object, so a comma follows.
            after = self.text.index("{") + 1
            changes.append((after, after, f'"{ELEMENT}":{number},'))
        parts, at = [], 0
        for begin, end, new in sorted(changes):
            parts += [self.text[at:begin], new]
            at = end
        return "".join([*parts, self.text[at:]])


def _place(text: str, path: Sequence[str]) -> tuple[int, int] | None:
    """Return where a value begins and ends; None if it is missing. ValueError if it is there twice, or above it is no object."""
    begin, end = _after_space(text, 0), len(text)
    for part in path:
        found = [place for name, *place in _fields(text, begin) if name == part]
        if not found:
            return None
        if len(found) > 1:
            raise ValueError(part)
        begin, end = found[0]
    return begin, end


def _fields(text: str, at: int) -> Iterator[tuple[str, int, int]]:
    """Yield the names of an object's fields, each with the place of its value."""
    at = _passed(text, at, "{")
    while text[at] != "}":
        name, after = _DECODER.raw_decode(text, at)
        begin = _passed(text, _after_space(text, after), ":")
        end = _DECODER.raw_decode(text, begin)[1]
        yield name, begin, end
        at = _next(text, end, "}")


def _elements(text: str, at: int) -> Iterator[tuple[int, int]]:
    """Yield the places of a list's elements."""
    at = _passed(text, at, "[")
    while text[at] != "]":
        end = _DECODER.raw_decode(text, at)[1]
        yield at, end
        at = _next(text, end, "]")


def _next(text: str, at: int, closing: str) -> int:
    at = _after_space(text, at)
    return at if text[at] == closing else _passed(text, at, ",")


def _passed(text: str, at: int, mark: str) -> int:
    """Return the place after a mark, and after the space behind it; ValueError if it is not there."""
    if text[at] != mark:
        raise ValueError(mark)
    return _after_space(text, at + 1)


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()
