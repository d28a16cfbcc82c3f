"""Times in texts of a format in Spark's letters, as `to_timestamp` reads them in UTC."""

import calendar
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Micros = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Part = dict[str, Micros]

_MONTHS = [calendar.month_name[number].lower() for number in range(1, 13)]
_SHORT = [name[:3] for name in _MONTHS]
_SOME_DIGITS = "0{0,17}[0-9]{1,2}"
_NUMBERS = {"M": "month", "d": "day", "H": "hour", "h": "half", "m": "minute", "s": "second"}
"""Letters of numbers: one for a number of any length, two for one of two digits."""
_OFFSETS = {
    "Z": ("[+-][0-9]{4}", ("Z", "ZZ", "ZZZ")),
    "X": ("Z|[+-][0-9]{2}(?:[0-9]{2})?", ("X",)),
    "XX": ("Z|[+-][0-9]{4}", ("XX",)),
    "XXX": ("Z|[+-][0-9]{2}:[0-9]{2}", ("XXX",)),
    "x": ("[+-][0-9]{2}(?:[0-9]{2})?", ("x",)),
    "xx": ("[+-][0-9]{4}", ("xx",)),
    "xxx": ("[+-][0-9]{2}:[0-9]{2}", ("xxx",)),
}
_RANGES = {"month": (1, 12), "hour": (0, 23), "half": (1, 12), "minute": (0, 59), "second": (0, 59)}
_LETTERS = "yyyy, yy, MM, M, MMM, MMMM, dd, d, HH, H, hh, h, a, mm, m, ss, s, S to SSSSSSSSS, Z, X, XX, XXX, x, xx, xxx"
_LONGEST_OFFSET = 18 * 60
_WIDTHS = {**dict.fromkeys(("yyyy",), 4), **dict.fromkeys(("yy", "MM", "dd", "HH", "hh", "mm", "ss", "a"), 2)}
_WIDTHS |= {"MMM": 3, "Z": 5, "ZZ": 5, "ZZZ": 5, "xx": 5, "xxx": 6}
"""Letters whose texts all have one length."""
_TOKEN = re.compile(r"([A-Za-z])\1*|'((?:[^']|'')*)'|(.)", re.DOTALL)
_MINUTE_US, _DAY_US = 60_000_000, 86_400_000_000


@dataclass(frozen=True)
class TimeFormat:
    """A format of times.

    >>> micros, bad = TimeFormat("dd/MMM/yyyy:HH:mm:ss Z").parse(pa.array(["29/Nov/2026:05:01:03 +0100", "now"]))
    >>> str(micros.view("datetime64[us]")[0]), bad.tolist()
    ('2026-11-29T04:01:03.000000', [False, True])
    """

    text: str
    """Letters as in Spark's `to_timestamp`; a letter that is none stands in single quotes, and `''` is a quote."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the text alone."""
        return TimeFormat, (self.text,)

    @cached_property
    def pattern(self) -> str:
        """The regular expression of all texts of the format, RE2, with a group for each part; ValueError in words for letters that are not read."""
        return _pattern(self.text)

    def parse(self, texts: pa.Array) -> tuple[Micros, Mask]:
        """Return UTC microseconds, and a mask that is true, with the time 0, for nulls and other texts; times without a zone are UTC."""
        fields, bad = self._fields(texts)
        parts = {name: _numbers(name, values, bad) for name, values in fields.items()}
        for name, (least, most) in _RANGES.items():
            if name in parts:
                bad |= (parts[name] < least) | (parts[name] > most)
        micros = _date(parts, bad) * _DAY_US + _time(parts)
        return np.where(bad, 0, micros), bad

    def _fields(self, texts: pa.Array) -> tuple[dict[str, pa.Array], Mask]:
        """Return the texts of the parts, and which texts are not of the format."""
        bad: Mask
        if self._places is None:
            found = pc.extract_regex(texts, self.pattern)
            bad = found.is_null().to_numpy(zero_copy_only=False)
            return {field.name: pc.struct_field(found, field.name) for field in found.type}, bad
        # A match without groups and slices take a fifth of the time of a match with groups.
        fits = pc.fill_null(pc.match_substring_regex(texts, self.pattern), fill_value=False)
        bad = ~fits.to_numpy(zero_copy_only=False)
        fitting = pc.if_else(fits, texts, "")
        return {name: pc.utf8_slice_codeunits(fitting, *place) for name, place in self._places.items()}, bad

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]] | None:
        """The begin and end of each part in a text; None if texts may have other lengths."""
        places, end = dict[str, tuple[int, int]](), 0
        for letters, literal in _tokens(self.text):
            start = end
            if literal is None and letters not in _WIDTHS:
                return None
            end += _WIDTHS[letters] if literal is None else len(literal)
            if literal is None:
                places[_part(letters)[0]] = (start, end)
        return places


def _tokens(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield the letters of each part, and None; or of characters that stand for themselves the text in the format, and these."""
    for token in _TOKEN.finditer(text):
        letters, quoted, other = token.group(0), token.group(2), token.group(3)
        if other is not None and other in "[]{}#'":
            raise ValueError(f"{other!r} has a meaning of its own in Spark; write it in single quotes")
        literal = "'" if letters == "''" else other if quoted is None else quoted.replace("''", "'")
        yield letters, literal


@cache
def _pattern(text: str) -> str:
    parts: list[str] = []
    names: list[str] = []
    previous = ""
    for letters, literal in _tokens(text):
        if literal is not None:
            parts.append(re.sub(r"([^A-Za-z0-9_\s])", r"\\\1", literal))
            previous = ""
            continue
        name, pattern = _part(letters)
        if name in names:
            raise ValueError(f"{letters!r} gives the {name} again; name each part once")
        if previous and len(previous) == 1 and previous not in "aSXZx":
            raise ValueError(
                f"{previous!r} has no fixed number of digits, so {letters!r} can't follow; write {previous * 2!r}"
            )
        names.append(name)
        parts.append(f"(?P<{name}>{pattern})")
        previous = letters
    missing = next((part for part in ("year", "month", "day") if part not in names), None)
    if missing is not None:
        raise ValueError(f"has no {missing}; write for example 'yyyy-MM-dd HH:mm:ss'")
    if ("half" in names) != ("ampm" in names) or ("half" in names and "hour" in names):
        raise ValueError("an hour of half a day is 'h' and 'a' together, without 'H'; write for example 'hh:mm a'")
    return rf"(?i)\A(?:{''.join(parts)})\z"


def _part(letters: str) -> tuple[str, str]:
    """Return the name of a part and the pattern of its texts; ValueError for letters that are not read."""
    letter, length = letters[0], len(letters)
    if letters in ("yyyy", "yy"):
        return "year", f"[0-9]{{{length}}}"
    if letters in ("MMM", "MMMM"):
        return "month", "|".join(_SHORT if length == 3 else _MONTHS)
    if letter in _NUMBERS and length <= 2:
        return _NUMBERS[letter], _SOME_DIGITS if length == 1 else "[0-9]{2}"
    if letters == "a":
        return "ampm", "AM|PM"
    if letter == "S" and length <= 9:
        return "fraction", f"[0-9]{{1,{length}}}"
    offset = next((pattern for pattern, spelled in _OFFSETS.values() if letters in spelled), None)
    if offset is None:
        raise ValueError(f"{letters!r} is not read; write letters among {_LETTERS}, and others in single quotes")
    return "offset", offset


def _numbers(name: str, texts: pa.Array, bad: Mask) -> Micros:
    """Return a part as numbers: of a fraction microseconds, of an offset minutes. Those of other offsets are marked as bad."""
    texts = pc.fill_null(texts, "") if texts.null_count else texts
    if name == "ampm":
        return _ints(pc.equal(pc.utf8_lower(texts), "pm"))
    if name == "fraction":
        return _ints(_digits(pc.utf8_slice_codeunits(pc.utf8_rpad(texts, 6, "0"), 0, 6)))
    if name == "offset":
        return _offset(texts, bad)
    if name == "month":
        named = pc.index_in(pc.utf8_slice_codeunits(pc.utf8_lower(texts), 0, 3), pa.array(_SHORT))
        if named.null_count < len(named):
            return _ints(pc.fill_null(named, -1)) + 1
    numbers = _ints(_digits(texts))
    is_short = name == "year" and len(texts) and pc.max(pc.binary_length(texts)).as_py() == 2
    return numbers + 2000 if is_short else numbers


def _digits(texts: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(texts, ""), "0", texts)


def _ints(values: pa.Array) -> Micros:
    numbers: Micros = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


def _offset(texts: pa.Array, bad: Mask) -> Micros:
    signs = np.where(_ints(pc.starts_with(texts, "-")) == 1, -1, 1)
    digits = pc.utf8_rpad(pc.replace_substring(pc.utf8_slice_codeunits(texts, 1, 6), ":", ""), 4, "0")
    hours, minutes = (_ints(pc.utf8_slice_codeunits(digits, start, start + 2)) for start in (0, 2))
    total = hours * 60 + minutes
    bad |= (minutes > 59) | (total > _LONGEST_OFFSET)
    return signs * total


def _date(parts: Part, bad: Mask) -> Micros:
    """Return days since 1970; days that a month does not have are marked as bad."""
    year, month, day = (parts[name] for name in ("year", "month", "day"))
    ok = ~bad & (year > 0)
    months = np.where(ok, (year - 1970) * 12 + month - 1, 0).astype("datetime64[M]")
    first: Micros = months.astype("datetime64[D]").astype(np.int64)
    length = (months + 1).astype("datetime64[D]").astype(np.int64) - first
    bad |= ~ok | (day < 1) | (day > length)
    return first + day - 1


def _time(parts: Part) -> Micros:
    zero = np.zeros(1, np.int64)
    hour = parts["half"] % 12 + 12 * parts["ampm"] if "half" in parts else parts.get("hour", zero)
    minutes = hour * 60 + parts.get("minute", zero) - parts.get("offset", zero)
    micros: Micros = minutes * _MINUTE_US + parts.get("second", zero) * 1_000_000 + parts.get("fraction", zero)
    return micros
