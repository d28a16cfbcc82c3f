"""Values of JSON texts as Spark's `get_json_object` finds them, for texts that DuckDB reads in another way or not at all.

Spark's parser takes quotes `'`, line breaks within texts, and anything behind the object. This module reads one text after the
other: `columnar/spark_sql` gives it only the rows that need it.
"""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

Path = list[str | int]
"""An object's keys, and places in lists from 0 on, each within the value before it."""
FUNCTION = "lenient_json"
"""The name under which DuckDB calls `lenient_json`."""
_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:([{}\[\]:,])|"([^"\\]*(?:\\.[^"\\]*)*)"|'([^'\\]*(?:\\.[^'\\]*)*)'"""
    r"""|(-?(?:0|[1-9][0-9]*)((?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?))|(true|false|null))""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.?))", re.DOTALL)
_LETTERS = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", **{sign: sign for sign in "\"/\\'"}}
_WRITTEN = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_TO_ESCAPE = re.compile(r'["\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')
_SURROGATE = re.compile("[\ud800-\udfff]")
_CLOSING = {"{": "}", "[": "]"}
_MOST_NESTED, _MOST_DIGITS, _LONGEST_NAME, _LONGEST_TEXT = 1000, 1000, 50_000, 20_000_000
"""The bounds of Spark's parser. Lengths are in units of UTF-16."""


class _Token(NamedTuple):
    kind: str
    """A sign of JSON, `text`, `whole`, `fraction` or `word`."""
    text: str


class _WrongError(ValueError):
    """A text that is no JSON to Spark."""


def lenient_json(texts: pa.ChunkedArray, paths: pa.ChunkedArray) -> pa.Array:
    """Return the value at a path in each text; each path is a JSON list of an object's keys and of places in lists.

    >>> lenient_json(pa.chunked_array([["{'a': [{'b': 1e7}]} and more"] * 2]), pa.chunked_array([['["a"]', '["a",0,"b"]']])).to_pylist()
    ['[{"b":1.0E7}]', '1.0E7']
    """
    pairs = zip(texts.to_pylist(), paths.to_pylist(), strict=True)
    return pa.array([None if text is None else value_at(text, json.loads(path)) for text, path in pairs], pa.string())


def value_at(text: str, path: Path) -> str | None:
    """Return a value as Spark writes it: a text without its quotes, all else as JSON; None if there is none, or the text is no JSON."""
    tokens = _tokens(text)
    try:
        return _value(tokens, _next(tokens), path, 0)
    except _WrongError:
        return None


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while token_match := _TOKEN.match(text, at):
        at = token_match.end()
        sign, double, single, number, fraction, word = token_match.groups()
        if sign:
            yield _Token(sign, sign)
        elif number is not None:
            if len(number) > _MOST_DIGITS and sum(map(str.isdigit, number.lstrip("-0"))) > _MOST_DIGITS:
                raise _WrongError
            yield _Token("fraction" if fraction else "whole", number)
        elif word:
            yield _Token("word", word)
        else:
            yield _Token("text", _read(single if double is None else double))


def _next(tokens: Iterator[_Token]) -> _Token:
    token = next(tokens, None)
    if token is None:
        raise _WrongError
    return token


def _name(token: _Token, tokens: Iterator[_Token]) -> str:
    """Return the name that a token is, and read the colon behind it."""
    if token.kind != "text" or _next(tokens).kind != ":" or _length(token.text) > _LONGEST_NAME:
        raise _WrongError
    return token.text


def _value(tokens: Iterator[_Token], first: _Token, path: Path, depth: int) -> str | None:
    """Return the value at a path in the value that a token begins, and read all of it."""
    if not path:
        if first.kind == "text":
            if _SURROGATE.search(first.text):
                raise _WrongError
            return first.text
        out: list[str] = []
        _copy(tokens, first, depth, out)
        return "".join(out)
    if depth < _MOST_NESTED:
        if first.kind == "{" and isinstance(path[0], str):
            return _in_object(tokens, path, depth + 1)
        if first.kind == "[" and isinstance(path[0], int):
            return _in_list(tokens, path, depth + 1)
    _copy(tokens, first, depth, None)
    return None


def _in_object(tokens: Iterator[_Token], path: Path, depth: int) -> str | None:
    """Return the value at a path in an object whose bracket is read. Of a key that is given twice the first value counts that is not null."""
    value: str | None = None
    token = _next(tokens)
    while token.kind != "}":
        name, first = _name(token, tokens), _next(tokens)
        if value is not None or name != path[0] or (first.text == "null" and first.kind == "word"):
            _copy(tokens, first, depth, None)
        else:
            value = _value(tokens, first, path[1:], depth)
        token = _further(tokens, "}")
    return value


def _in_list(tokens: Iterator[_Token], path: Path, depth: int) -> str | None:
    """Return the value at a path in a list whose bracket is read. An element that is null has the text `null`, as in Spark."""
    value: str | None = None
    number, token = 0, _next(tokens)
    while token.kind != "]":
        if number == path[0]:
            value = _value(tokens, token, path[1:], depth)
        else:
            _copy(tokens, token, depth, None)
        number, token = number + 1, _further(tokens, "]")
    return value


def _further(tokens: Iterator[_Token], closing: str) -> _Token:
    """Return the first token behind a comma, or the closing bracket."""
    token = _next(tokens)
    if token.kind == ",":
        token = _next(tokens)
        if token.kind != closing:
            return token
    elif token.kind == closing:
        return token
    raise _WrongError


def _copy(tokens: Iterator[_Token], token: _Token, depth: int, out: list[str] | None) -> None:
    """Read the value from a token on, and write it to `out` if given."""
    open_: list[str] = []
    while True:
        if token.kind in _CLOSING:
            open_.append(_CLOSING[token.kind])
            if depth + len(open_) > _MOST_NESTED:
                raise _WrongError
            _write(out, token)
            token = _next(tokens)
            if token.kind != open_[-1]:
                token = _first_of(tokens, token, open_[-1], out)
                continue
        elif len(token.kind) == 1:
            raise _WrongError
        else:
            _write(out, token)
            token = _next(tokens) if open_ else token
        while open_ and token.kind == open_[-1]:
            _write(out, token)
            open_.pop()
            token = _next(tokens) if open_ else token
        if not open_:
            return
        if token.kind != ",":
            raise _WrongError
        _write(out, token)
        token = _first_of(tokens, _next(tokens), open_[-1], out)


def _first_of(tokens: Iterator[_Token], token: _Token, closing: str, out: list[str] | None) -> _Token:
    """Return the first token of a value in an object or a list, behind its name in an object."""
    if closing == "]":
        return token
    name = _name(token, tokens)
    if out is not None:
        out.append(f"{_written(name)}:")
    return _next(tokens)


def _write(out: list[str] | None, token: _Token) -> None:
    if out is None:
        return
    if token.kind == "text":
        out.append(_written(token.text))
    elif token.kind == "fraction":
        out.append(java_double(float(token.text)))
    else:
        out.append("0" if token.text == "-0" else token.text)


def java_double(value: float) -> str:
    """Return a double as Java writes it; infinities are in quotes, as Spark has them in JSON.

    >>> [java_double(value) for value in (0.5, 1e7, 12345678.9, 1e-4, -0.0, float("inf"))]
    ['0.5', '1.0E7', '1.23456789E7', '1.0E-4', '-0.0', '"Infinity"']
    """
    if value in (float("inf"), -float("inf")):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits, _, exponent = f"{value!r}".lstrip("-").partition("e")
    before, _, after = digits.partition(".")
    all_digits = (before + after).lstrip("0")
    power = int(exponent or 0) + len(before) - 1 - (len(before + after) - len(all_digits))
    all_digits = all_digits.rstrip("0")
    return f"{'-' if value < 0 else ''}{all_digits[0]}.{all_digits[1:] or '0'}E{power}"


def _read(text: str) -> str:
    if "\\" in text:
        # Two escaped halves of a character form a character; a half alone stays as it is.
        text = _ESCAPED.sub(_unescaped, text).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    if len(text) * 2 > _LONGEST_TEXT and _length(text) > _LONGEST_TEXT:
        raise _WrongError
    return text


def _unescaped(found: re.Match[str]) -> str:
    code, sign = found.groups()
    if code:
        return chr(int(code, 16))
    if sign not in _LETTERS:
        raise _WrongError
    return _LETTERS[sign]


def _length(text: str) -> int:
    return len(text) + sum(character > "\uffff" for character in text)


def _written(text: str) -> str:
    return f'"{_TO_ESCAPE.sub(_escaped, text)}"'


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    units = character.encode("utf-16-be", "surrogatepass").hex().upper()
    return _WRITTEN.get(character) or "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
