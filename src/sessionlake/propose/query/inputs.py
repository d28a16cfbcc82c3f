"""The events of a query's input: key, time, conditions, and comments' words about lateness and duplicates."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

import pyarrow as pa
from sqlglot import Token, exp

from sessionlake.columnar.column_types import type_name
from sessionlake.columnar.spark_sql import parse
from sessionlake.columnar.sql_places import SqlError
from sessionlake.config.durations import parse_duration
from sessionlake.config.positions import Place
from sessionlake.errors import ConfigError
from sessionlake.propose.choose import unit_of
from sessionlake.propose.query.brackets import Tokens, split
from sessionlake.propose.query.delays import delays_in
from sessionlake.propose.query.fields import Fields
from sessionlake.propose.query.scopes import Scope
from sessionlake.propose.query.words import Found, Piece, Query, QueryError, parsed
from sessionlake.propose.sample import Sample
from sessionlake.sources.columns import TIMESTAMP

_HINTS = re.compile(r"--[ \t]*(watermark|unique)[ \t]+(?P<rest>[^\n]*)", re.IGNORECASE)
_COLUMNS_AND_LENGTH = re.compile(r"(?P<columns>[^\s,]+(?:\s*,\s*[^\s,]+)*)\s+(?P<length>[\d.]+.*?)\s*;?\s*")
_UNITS = {"to_timestamp": "s", "timestamp_seconds": "s", "timestamp_millis": "ms", "timestamp_micros": "us"}
_FORMS = {"watermark": "-- watermark t 1 hour", "unique": "-- unique id 1 day"}


@dataclass
class Hint:
    """A comment that says what Spark's SQL has no words for: `-- watermark t 1 hour`, `-- unique id 1 day`."""

    word: str
    columns: tuple[str, ...]
    length: str
    place: Place
    used: bool = False

    def error(self, message: str) -> QueryError:
        """Return an error at the comment's place."""
        return QueryError(self.word, message, self.place)


@dataclass
class Input:
    """One event input."""

    fields: Fields
    sample: Sample
    conditions: list[tuple[Tokens, Scope]] = field(default_factory=list)
    """The subqueries' conditions, over the columns that they see."""
    key: list[str] = field(default_factory=list)
    time: str = ""
    time_unit: str | None = None
    where: str | None = None
    id: tuple[str, ...] = ()
    unique_for: str | None = None
    watermark: str | None = None

    def set_time(self, piece: Piece) -> None:
        """Take an expression as the event time: a column, or a computed column; QueryError if it is no time."""
        column, unit = _plain_time(piece)
        for name in piece.columns:
            self._read_as_time(name)
        if column is None:
            self.time = self.fields.column(piece, "happened_at")
            kind = self.fields.types[self.time]
            if self.time in self.fields.computed and kind not in (TIMESTAMP, pa.date32(), pa.string()):
                raise piece.error(
                    "time",
                    f"{piece.text!r} is of type {type_name(kind)}, and a time is needed; make it a timestamp",
                )
            return
        self.time = column
        self.fields.read.add(column)
        kind = self.sample.types[column]
        found = unit_of(self.sample.head()[column], column, strict=False)
        if found == "":
            raise piece.error("time", f"{column!r} holds no times in the sample; write a column of times")
        numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        self.time_unit = (unit or found) if numbers else None

    def expect_time(self, tokens: Tokens, scope: Scope | None = None) -> None:
        """Make the text columns of times behind an expression time columns."""
        for name in self.fields.sources(tokens, scope):
            self._read_as_time(name)

    def is_time(self, name: str) -> bool:
        """Say whether the query's column of a name, in small letters, holds times."""
        one = self.fields.scope.columns[name]
        column: str | None = one.column
        if one.tokens:
            self.expect_time(one.tokens, one.scope)
            piece = self.fields.piece(one.tokens, scope=one.scope)
            column, _ = _plain_time(piece)
            if column is None:
                return self.fields.types[self.fields.column(piece, one.name)] == TIMESTAMP
        return column in self.sample.types and unit_of(self.sample.head()[column], column, strict=True) != ""

    def _read_as_time(self, name: str) -> None:
        """Make a text column of times a time column, as Spark's is: comparable with times."""
        is_text = self.sample.types.get(name) == pa.string() and self.sample.source.get("format") in (
            "json",
            "csv",
            "text",
        )
        if is_text and unit_of(self.sample.head()[name], name, strict=True) is None:
            self.fields.types[name] = TIMESTAMP

    def set_where(self, pieces: Sequence[Tokens]) -> None:
        """Take conditions as the choice of events, after the subqueries' conditions."""
        found = [self.fields.piece(tokens, scope=scope) for tokens, scope in self.conditions]
        found += [self.fields.piece(tokens) for tokens in pieces]
        if not found:
            return
        texts = [piece.text for piece in found]
        self.where = texts[0] if len(texts) == 1 else " and ".join(bracketed(piece) for piece in found)
        setting = f"{self.fields.at}.where"
        self.fields.places[setting] = found[0].place
        for piece in found:
            try:
                parse(setting, piece.text).typed(self.fields.types, "boolean")
            except SqlError as error:
                raise piece.error(setting, error.told) from error

    def take_hints(self, hints: Sequence[Hint]) -> None:
        """Take the comments about the input's columns; QueryError for a column that a comment can't be about."""
        for hint in hints:
            found = [self._hinted(name) for name in hint.columns]
            columns = [name for name in found if name is not None]
            if len(columns) < len(found):
                continue
            hint.used = True
            if hint.word == "watermark":
                self._take_watermark(hint, columns)
            else:
                self.id, self.unique_for = tuple(columns), hint.length
                self.fields.read.update(columns)
                self.fields.places[f"{self.fields.at}.unique_for"] = hint.place

    def _take_watermark(self, hint: Hint, columns: Sequence[str]) -> None:
        times = {self.time, *_read_by(self.fields, self.time)}
        if set(columns) - times:
            raise hint.error(f"{hint.columns[0]!r} is not the query's event time, {self.time!r}; name that")
        self.watermark = hint.length

    def _hinted(self, name: str) -> str | None:
        """Return the input's column of a name in a comment, which may be a subquery's name; None if the input has none."""
        table, _, column = name.replace("`", "").rpartition(".")
        for scope in self.fields.scope.within():
            column_of_scope = scope.columns.get(column.lower())
            if column_of_scope is not None and (not table or table.lower() in scope.names):
                plain = (
                    _plain_time(self.fields.piece(column_of_scope.tokens, scope=column_of_scope.scope))[0]
                    if column_of_scope.tokens
                    else None
                )
                return plain or self.fields.column_of(column_of_scope)
        return None


def hints_in(query: Query) -> list[Hint]:
    """Return comments about watermarks and duplicates, and clauses about watermarks; QueryError for an unreadable one."""
    hints = []
    for match in _HINTS.finditer(query.text):
        if any(token.start <= match.start() <= token.end for token in query.tokens):
            continue  # Within a text in quotes.
        word, place = match[1].lower(), query.place_at(match.start())
        parts = _COLUMNS_AND_LENGTH.fullmatch(match["rest"].strip())
        if parts is None:
            reason = f"{match[0].strip()!r} names no column and duration; write it as in {_FORMS[word]!r}"
            raise QueryError(word, reason, place)
        try:
            parse_duration(parts["length"], word)
        except ConfigError as error:
            raise QueryError(word, str(error).removeprefix(f"{word}: "), place) from error
        columns = tuple(name.strip() for name in parts["columns"].split(","))
        hints.append(Hint(word, columns, parts["length"], place))
    clauses = [Hint("watermark", (one.column,), one.length, query.place_at(one.start)) for one in delays_in(query.text)]
    return [*hints, *clauses]


def take_all_hints(query: Query, inputs: Sequence[Input], found: Found) -> None:
    """Give the inputs the comments of a query; errors are kept in `found`."""
    with found.kept():
        hints = hints_in(query)
        for read in inputs:
            with found.kept():
                read.take_hints(hints)
        found.errors.extend(_unused(hints, inputs))


def _unused(hints: Sequence[Hint], inputs: Sequence[Input]) -> Iterator[QueryError]:
    """Yield an error for each comment about a column that no input has."""
    known = ", ".join(dict.fromkeys(name for one in inputs for name in one.sample.types))
    for hint in hints:
        if not hint.used:
            yield hint.error(f"{', '.join(hint.columns)!r} is no column of the sample's; write one of {known}")


def duration_of(query: Query, tokens: Tokens, key: str, *, signed: bool = False) -> int:
    """Return the microseconds of a duration as Spark takes it: '30 minutes', or interval 30 minutes; QueryError for others.

    `signed`: it may be negative.
    """
    place = query.place(tokens[0])
    said = query.said(tokens)
    words = " ".join(re.sub("['\"]", " ", said).split())
    text = re.sub(r"^interval ", "", words, flags=re.IGNORECASE)
    negative = signed and text.startswith("-")
    try:
        return (-1 if negative else 1) * parse_duration(text.lstrip("- ") if negative else text, key)
    except ConfigError as error:
        reason = f"{said} is no duration; write a number and a unit of weeks or less, as in '30 minutes'"
        raise QueryError(key, reason, place) from error


def arguments_of(tokens: Sequence[Token]) -> list[Tokens]:
    """Return the arguments of a call, which begins with the function's name."""
    return split(tokens[2:-1])


def _plain_time(piece: Piece) -> tuple[str | None, str | None]:
    """Return the column that an expression reads as a time, and the unit of its numbers; None for other SQL."""
    tree = piece.tree
    if isinstance(tree, exp.Column):
        return tree.name, None
    if isinstance(tree, exp.Cast) and isinstance(tree.this, exp.Column):
        kind = cast("exp.DataType", tree.args["to"]).this.value
        return (tree.this.name, "s") if kind in ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ") else (None, None)
    called = tree.expressions if isinstance(tree, exp.Anonymous) and tree.name.lower() in _UNITS else []
    if len(called) == 1 and isinstance(called[0], exp.Column):
        return called[0].name, _UNITS[tree.name.lower()]
    return None, None


def _read_by(fields: Fields, name: str) -> tuple[str, ...]:
    """Return the columns that a computed column reads."""
    text = fields.computed.get(name)
    return () if text is None else tuple(node.name for node in parsed(text).find_all(exp.Column))


def bracketed(piece: Piece) -> str:
    """Return a condition's text, to be joined to others by `and`."""
    return f"({piece.text})" if isinstance(piece.tree, exp.Or) else piece.text
