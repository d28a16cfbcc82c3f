"""Patterns of dates and times in Spark's letters (`dd/MMM/yyyy:HH:mm:ss Z`), as SQL of DuckDB that writes and reads texts.

Written and read is what Java's formatter does under the English locale in UTC: https://spark.apache.org/docs/latest/sql-ref-datetime-pattern.html.
Letters that are not listed are refused.
"""

import calendar
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_MONTHS = tuple(name.lower() for name in calendar.month_name[1:])
_YEAR = "(case when year({0}) < 0 then '-' || lpad(cast(-year({0}) as varchar), 4, '0') when year({0}) > 9999 then '+' || year({0}) else lpad(cast(year({0}) as varchar), 4, '0') end)"
_LAST_OF_YEAR = "lpad(cast(abs(year({0})) % 100 as varchar), 2, '0')"
_WRITTEN = {
    "M": "%-m",
    "MM": "%m",
    "MMM": "%b",
    "MMMM": "%B",
    "d": "%-d",
    "dd": "%d",
    "D": "%-j",
    "DDD": "%j",
    "E": "%a",
    "EE": "%a",
    "EEE": "%a",
    "EEEE": "%A",
    "a": "%p",
    "SSS": "%g",
    "SSSSSS": "%f",
    "H": "%-H",
    "HH": "%H",
    "h": "%-I",
    "hh": "%I",
    "m": "%-M",
    "mm": "%M",
    "s": "%-S",
    "ss": "%S",
    "Z": "+0000",
    "X": "Z",
    "XX": "Z",
    "XXX": "Z",
    "x": "+00",
    "xx": "+0000",
    "xxx": "+00:00",
}
"""Letters that are written, as codes of DuckDB's strftime."""
_WRITTEN_BY_SQL = {
    "yyyy": _YEAR,
    "y": "cast(year({0}) as varchar)",
    "yy": _LAST_OF_YEAR,
    "Q": "cast(quarter({0}) as varchar)",
}
_TWO, _ANY = "([0-9]{2})", "([0-9]{1,19})"
_OFFSET = "([+-])([0-9]{{2}}){}([0-9]{{2}})"
_READ = {
    "yyyy": r"([0-9]{4}|\+[0-9]{5,19}|-[0-9]{4,19})",
    "y": "(-?[0-9]{1,19})",
    **dict.fromkeys(("yy", "MM", "dd", "HH", "hh", "mm", "ss"), _TWO),
    **dict.fromkeys(("M", "d", "H", "h", "m", "s"), _ANY),
    **dict.fromkeys(("Z", "ZZ", "ZZZ", "xx"), _OFFSET.format("")),
    "X": f"(?:{_OFFSET.format('')}?|[zZ])",
    "XX": f"(?:{_OFFSET.format('')}|[zZ])",
    "XXX": f"(?:{_OFFSET.format(':')}|[zZ])",
    "x": f"{_OFFSET.format('')}?",
    "xxx": _OFFSET.format(":"),
}
"""Letters that are read, as patterns of RE2 with a group, an offset with three; beside these, months by name, AM or PM, and fractions."""
_FIXED = frozenset(letters for letters, pattern in _READ.items() if pattern == _TWO)
_NUMBERS = frozenset("yMdHhmsS")
_MOST = {"hour": 23, "minute": 59, "second": 59}
_OTHER_CASES = {"i": "\u0131\u0130", "s": "\u017f", "k": "\u212a"}
"""Letters that are one with a letter of ASCII if cases are ignored."""
_ZONE_S = "(coalesce(try_cast(p.hours as bigint), 0) * 3600 + coalesce(try_cast(p.minutes as bigint), 0) * 60)"
_ZONE_US = f"""(case when try_cast(p.minutes as bigint) > 59 or {_ZONE_S} > 64800 then null
when p.sign = '-' then -{_ZONE_S} else {_ZONE_S} end * 1000000)"""
"""The microseconds of an offset; null if it is beyond 18 hours, or its minutes beyond 59."""
_FRACTIONS = tuple("S" * digits for digits in range(1, 7))
_READ_FRACTIONS = tuple("S" * digits for digits in range(1, 10))
_ZONE = "zone"
_OF_ZONE = ("sign", "hours", "minutes")
"""The groups of an offset."""
_FIELDS = {
    "y": "year",
    "M": "month",
    "d": "day",
    "H": "hour",
    "h": "half",
    "m": "minute",
    "s": "second",
    "S": "fraction",
    "a": "noon",
}
_FIELDS |= dict.fromkeys("ZXx", _ZONE)
"""The fields of what is read, by the first letters."""


class LettersError(ValueError):
    """A pattern that is not listed: the reason with the remedy."""


@dataclass(frozen=True)
class Part:
    """A part of a pattern: a letter, as often as it stands there, or a text as it is."""

    text: str
    is_letters: bool


def parts_of(pattern: str) -> list[Part]:
    """Return the parts of a pattern; LettersError if a quote is open or a sign is not listed.

    >>> [part.text for part in parts_of("yyyy-MM'T'")]
    ['yyyy', '-', 'MM', 'T']
    """
    return list(_parts(pattern))


def _parts(pattern: str) -> Iterator[Part]:
    at = 0
    while at < len(pattern):
        sign = pattern[at]
        if sign == "'":
            quoted = re.compile("'((?:[^']|'')*)'").match(pattern, at)
            if quoted is None:
                raise LettersError("has an open quote; close it, or write '' for a quote")
            at = quoted.end()
            yield Part(quoted[1].replace("''", "'") or "'", is_letters=False)
        elif sign.isascii() and sign.isalpha():
            run = re.compile(f"{sign}+").match(pattern, at)
            at += len(run[0]) if run else 1
            yield Part(run[0] if run else sign, is_letters=True)
        elif sign in "[]{}#":
            raise LettersError(f"has {sign!r}, which is not listed; put it in quotes")
        else:
            at += 1
            yield Part(sign, is_letters=False)


def written(pattern: str) -> str:
    """Return SQL that writes a time in UTC, which stands for `{0}`; LettersError if a letter is not listed.

    >>> written("dd.MM. HH 'Uhr'")
    "strftime({0}, '%d.%m. %H Uhr')"
    """
    pieces: list[str] = []
    codes = ""
    for part in parts_of(pattern):
        if not part.is_letters:
            codes += part.text.replace("%", "%%")
        elif part.text in _WRITTEN:
            codes += _WRITTEN[part.text]
        elif part.text in _WRITTEN_BY_SQL or part.text in _FRACTIONS:
            pieces += [_strftime(codes)] if codes else []
            codes = ""
            pieces.append(_WRITTEN_BY_SQL.get(part.text) or f"left(strftime({{0}}, '%f'), {len(part.text)})")
        else:
            raise _not_listed(part, [*_WRITTEN_BY_SQL, *_WRITTEN, *_FRACTIONS])
    if codes or not pieces:
        pieces.append(_strftime(codes))
    return pieces[0] if len(pieces) == 1 else f"({' || '.join(pieces)})"


def _strftime(codes: str) -> str:
    return f"strftime({{0}}, {_literal(codes)})"


def _literal(text: str) -> str:
    """Return a text as a literal of DuckDB's in a template."""
    return "'" + text.replace("'", "''").replace("{", "{{").replace("}", "}}") + "'"


def read(pattern: str, needed: Sequence[str] = ()) -> str:
    """Return SQL of the time in a text, which stands for `{0}`: null if the text is not of the pattern.

    LettersError if a letter is not listed, or if one of the fields `needed` is missing, for example `year`.

    >>> "make_timestamp" in read("yyyy-MM-dd")
    True
    """
    expression, fields = "", dict[str, str]()
    last: Part | None = None
    for part in parts_of(pattern):
        expression += _read_part(part, last)
        if part.is_letters:
            field = _FIELDS[part.text[0]]
            if field in fields:
                raise LettersError(f"has {fields[field]!r} and {part.text!r}; write one of them")
            fields[field] = part.text
        last = part
    if not fields:
        raise LettersError("has no letters; write some, as in yyyy-MM-dd HH:mm:ss")
    if {"hour", "half"} <= {*fields} or ("noon" in fields and "half" not in fields):
        raise LettersError("has AM or PM, or an hour of 12, without the other; write hh:mm a, or HH:mm")
    missing = next((field for field in needed if field not in fields), None)
    if missing is not None:
        raise LettersError(f"has no {missing}; write for example yyyy-MM-dd HH:mm:ss")
    if fields.keys() == {_ZONE}:
        raise LettersError("has an offset alone; write a time before it, as in HH:mm XXX")
    groups = [group for field in fields for group in (_OF_ZONE if field == _ZONE else (field,))]
    names = ", ".join(f"'{group}'" for group in groups)
    found = f"regexp_extract({{0}}, {_literal(f'^{expression}$')}, [{names}])"
    return f"list_transform([{found}], lambda p: {_time_of(fields)})[1]"


def _read_part(part: Part, last: Part | None) -> str:
    """Return the pattern of a part."""
    text = part.text
    if not part.is_letters:
        return "".join(map(_any_case, text))
    behind_number = last is not None and _is_number(last) and _is_number(part)
    if text in _READ_FRACTIONS:
        if behind_number:
            raise LettersError(f"has {text!r} behind another number; write a sign between them")
        return f"([0-9]{{1,{len(text)}}})"
    if text in ("MMM", "MMMM"):
        return "(" + "|".join("".join(map(_any_case, name if text == "MMMM" else name[:3])) for name in _MONTHS) + ")"
    if text == "a":
        return "([aA][mM]|[pP][mM])"
    if text not in _READ:
        raise _not_listed(part, [*_READ, "MMM", "MMMM", "a", *_READ_FRACTIONS])
    # Of several numbers without a sign between them all but the first have two digits, or the year is the last.
    if behind_number and text not in _FIXED and not (text == "yyyy" and last is not None and last.text in _FIXED):
        raise LettersError(f"has {text!r} behind another number; write a sign between them, or two letters")
    if behind_number and last is not None and last.text not in (*_FIXED, "yyyy"):
        raise LettersError(f"has {last.text!r} before another number; write a sign between them, or two letters")
    return _READ[text]


def _is_number(part: Part) -> bool:
    return part.is_letters and part.text[0] in _NUMBERS and not _is_name(part.text)


def _is_name(letters: str) -> bool:
    return letters in ("MMM", "MMMM")


def _any_case(sign: str) -> str:
    """Return a pattern of a sign in any case, as Java ignores cases."""
    if not sign.isascii() and sign.lower() != sign.upper():
        raise LettersError(f"has {sign!r}, which is not listed; write letters of ASCII")
    if not sign.isascii() or not sign.isalpha():
        return re.escape(sign) if sign.isascii() else sign
    return f"[{sign.lower()}{sign.upper()}{_OTHER_CASES.get(sign.lower(), '')}]"


def _time_of(fields: dict[str, str]) -> str:
    """Return SQL of the time in the struct `p` of texts, by the fields' letters."""

    def number(field: str, default: int) -> str:
        return f"try_cast(p.{field} as bigint)" if field in fields else str(default)

    month, year = number("month", 1), number("year", 1970)
    if _is_name(fields.get("month", "")):
        names = ", ".join(f"'{name[:3]}'" for name in _MONTHS)
        month = f"list_position([{names}], left(replace(replace(lower(p.month), '\u0131', 'i'), '\u017f', 's'), 3))"
    # In a text of the pattern each field has a character, but for the parts of an offset.
    wrong = [f"p.{next(field for field in fields if field != _ZONE)} = ''"]
    if fields.get("year") == "yy":
        year = f"2000 + {year}"
    elif "year" in fields:
        wrong.append("(p.year like '-%' and try_cast(p.year as bigint) = 0)")  # Java reads no zero with a minus.
    hour = number("hour", 0)
    if "half" in fields:
        wrong.append(f"not ({number('half', 0)} between 1 and 12)")
        hour = f"{number('half', 0)} % 12" + (
            " + case when lower(p.noon) = 'pm' then 12 else 0 end" if "noon" in fields else ""
        )
    wrong += [f"not ({number(field, 0)} between 0 and {most})" for field, most in _MOST.items() if field in fields]
    micros = "cast(left(rpad(p.fraction, 6, '0'), 6) as bigint)" if "fraction" in fields else "0"
    zone = _ZONE_US if _ZONE in fields else "0"
    time = f"make_timestamp({year}, {month}, {number('day', 1)}, {hour}, {number('minute', 0)}, {number('second', 0)}::double)"
    return (
        f"case when {' or '.join(wrong)} then null else try(make_timestamp(epoch_us({time}) + {micros} - {zone})) end"
    )


def _not_listed(part: Part, listed: list[str]) -> LettersError:
    return LettersError(f"has {part.text!r}, which is not listed; write some of {', '.join(dict.fromkeys(listed))}")
