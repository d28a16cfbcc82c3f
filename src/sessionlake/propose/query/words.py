"""The words of a query: its tokens with their places, and pieces of it that the config can have as they are written.

Only known nodes with known arguments are read (docs/rules.md, rule 464).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.dialects import Spark
from sqlglot.errors import SqlglotError

from sessionlake.columnar.spark_sql import SparkByNames, start_of, told_by
from sessionlake.columnar.spark_sql.typed import EXPRESSIONS, Known, unread
from sessionlake.config.positions import Place
from sessionlake.config.problems import InvalidConfigError, Problem
from sessionlake.propose.query.brackets import Tokens
from sessionlake.propose.query.delays import without_delays

_READ: Known = {
    **EXPRESSIONS,
    exp.Select: ("expressions", "from_", "joins", "where", "group", "having", "qualify", "with_"),
    exp.With: ("expressions",),
    exp.CTE: ("this", "alias"),
    exp.Subquery: ("this", "alias", "with_"),
    exp.Table: ("this", "db", "catalog", "alias"),
    exp.TableAlias: ("this",),
    exp.Alias: ("this", "alias"),
    exp.Join: ("this", "on", "side", "kind"),
    exp.Group: ("expressions", "all"),
    exp.Column: ("this", "table", "db", "catalog"),
    exp.Dot: ("this", "expression"),
    exp.Star: ("except_",),
    exp.Window: ("this", "partition_by", "order", "over"),
    exp.Order: ("expressions",),
    exp.Ordered: ("this", "desc", "nulls_first"),
    exp.Filter: ("this", "expression"),
    exp.WithinGroup: ("this", "expression"),
    exp.Distinct: ("expressions",),
    exp.RowNumber: (),
    **dict.fromkeys((exp.From, exp.Where, exp.Having, exp.Qualify, exp.IgnoreNulls, exp.RespectNulls), ("this",)),
}


def unread_in(tree: exp.Expression) -> tuple[exp.Expression, str] | None:
    """Return the query's first partly read node, and its unread part; None if all is known.

    The config has calls of aggregates as written, so its own check reads their arguments.
    """
    for node in cast("list[exp.Expression]", list(tree.walk())):
        if issubclass(type(node), exp.AggFunc) and type(node) not in _READ:
            continue
        found = unread(node, _READ) if type(node) in _READ else type(node).__name__
        if found is not None:
            return node, found
    return None


WINDOW = "w1nd0w"
"""Stands for the word `window`, which is as long: sqlglot takes some uses of that word for a clause."""
BEGINNINGS = (TokenType.SELECT, TokenType.WITH, TokenType.L_PAREN)
"""The first words of a query."""
_FLINKS = re.compile(r"\b(tumble|hop|cumulate|session)\s*\(", re.IGNORECASE)
_SPARKS = "windows of Flink's SQL are not in Spark's; group by window(t, '1 hour') or session_window(t, '30 minutes')"
_SHOWN = 80
"""The number of a clause's characters in an error."""


class QueryError(Exception):
    """A part of a query, with its place, that no config can have."""

    def __init__(self, key: str, message: str, place: Place) -> None:
        super().__init__(message)
        self.key, self.message, self.place = key, message, place


class QueryErrors(Exception):  # noqa: N818 (the plural of QueryError)
    """Several errors of a query."""

    def __init__(self, errors: Sequence[QueryError]) -> None:
        super().__init__(str(len(errors)))
        self.errors = list(errors)


class Found:
    """The query's errors so far."""

    def __init__(self, errors: Iterable[QueryError] = ()) -> None:
        self.errors = list(errors)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep a step's error, and go on with the next step."""
        try:
            yield
        except QueryError as error:
            self.errors.append(error)

    @property
    def all(self) -> QueryErrors:
        """All errors as one."""
        return QueryErrors(self.errors)

    def raise_any(self) -> None:
        """Raise QueryErrors if there is an error."""
        if self.errors:
            raise self.all


@dataclass(frozen=True)
class Query:
    """A query's text and file."""

    text: str
    file: str

    @cached_property
    def tokens(self) -> list[Token]:
        """The tokens, without a semicolon at the end; InvalidConfigError unless the text is a query of Spark's SQL."""
        try:
            text = masked(without_delays(self.text))
            found = _once(Spark().tokenize(text))
            # sqlglot would only log that it can't read another statement.
            if found and found[0].token_type not in BEGINNINGS:
                reason = f"{found[0].text!r} begins no query; pass the SELECT alone, without the statement around it"
                raise self.error("sql", reason, self.place(found[0]))
        except (SqlglotError, RecursionError) as error:
            raise self.not_sql(error) from error
        _ = self.tree  # Raises for a text that is not one query.
        while found and found[-1].token_type == TokenType.SEMICOLON:
            found.pop()
        return found

    @cached_property
    def tree(self) -> exp.Expression:
        """The tree, with WINDOW for the word `window`; InvalidConfigError unless the text is a query of Spark's SQL."""
        try:
            text = masked(without_delays(self.text))
            statements = [one for one in sqlglot.parse(text, read=SparkByNames) if one is not None]
        except (SqlglotError, RecursionError) as error:
            raise self.not_sql(error) from error
        if len(statements) != 1:
            raise self.error("sql", f"has {len(statements)} statements; pass one query", Place(1, 1))
        return cast("exp.Expression", statements[0])

    def check_known(self) -> None:
        """Raise QueryError for the query's first unread part."""
        unknown = unread_in(self.tree)
        if unknown is not None:
            node, what = unknown
            start = start_of(node)
            reason = (
                f"{shown(unmasked(node.sql('spark')))!r} has {unmasked(what)!r}, which a pipeline has not; leave it out"
            )
            raise QueryError("sql", reason, self.place_at(start or 0))

    def not_sql(self, error: SqlglotError | RecursionError) -> InvalidConfigError:
        """Return the error for a text that sqlglot can't read."""
        reason = _not_sql(error, _SPARKS if _FLINKS.search(self.text) else "correct it")
        return self.error("sql", reason, _place_of(error))

    def error(self, key: str, message: str, place: Place) -> InvalidConfigError:
        """Return a single-place error."""
        return InvalidConfigError([self.problem(QueryError(key, message, place))])

    def problem(self, error: QueryError) -> Problem:
        """Return an error's problem, with its place in the file."""
        return Problem(error.key, error.message, self.file, error.place.line, error.place.column)

    def refusal(self, key: str, tokens: Tokens, told: str, *, word: str = "") -> QueryError:
        """Return a part's error, which shows the part and the reason; `word` is its clause's, to stand before it."""
        said = shown(f"{word} {self.said(tokens)}".strip())
        return QueryError(key, f"{said!r} {told}", self.place(tokens[0]))

    def place(self, token: Token) -> Place:
        """Return the place of a token's first character."""
        return self.place_at(token.start)

    def place_at(self, at: int) -> Place:
        """Return a character's place by its number."""
        before = self.text[:at]
        return Place(before.count("\n") + 1, at - before.rfind("\n"))

    def said(self, tokens: Tokens, instead: Mapping[int, str] | None = None) -> str:
        """Return the text of tokens as it is written, in one line and without comments.

        `instead` has other words for some tokens, by the number of their first character.
        """
        words: list[str] = []
        end = tokens[0].start if tokens else 0
        for token in tokens:
            gap = self.text[end : token.start]
            words.append(gap if not gap.strip() and "\n" not in gap else " ")
            word = self.text[token.start : token.end + 1]
            words.append(word if instead is None else instead.get(token.start, word))
            end = token.end + 1
        return "".join(words).strip()


@dataclass(frozen=True)
class Piece:
    """An expression of a query."""

    text: str
    """The part as written, in a single line, and without the names of tables before columns."""
    place: Place
    tree: exp.Expression = field(compare=False)
    """The word `window` is WINDOW in it."""
    wish: str = ""
    """The name that a subquery gives it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it names."""
        return tuple(dict.fromkeys(node.name for node in self.tree.find_all(exp.Column, bfs=False)))

    def error(self, key: str, message: str) -> QueryError:
        """Return an error at the piece's place."""
        return QueryError(key, message, self.place)


def masked(text: str) -> str:
    """Return a text with another word, as long, in place of each word `window`."""
    at = [token.start for token in Spark().tokenize(text) if _is_window(token, text)]
    for start in at:
        text = text[:start] + WINDOW + text[start + len(WINDOW) :]
    return text


def parsed(text: str) -> exp.Expression:
    """Return the tree of an expression."""
    return cast("exp.Expression", sqlglot.parse_one(masked(text), read=SparkByNames))


def unmasked(text: str) -> str:
    """Return a text with the word `window` as it was written."""
    return text.replace(WINDOW, "window")


def shown(text: str) -> str:
    """Return a clause for an error: not all of a long clause."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def name_of(token: Token) -> str:
    """Return the name that a token is, in small letters."""
    return unmasked(token.text).lower()


def _once(tokens: Tokens) -> list[Token]:
    """Return each token once: a number such as 1.5D has several at the same place."""
    once: list[Token] = []
    for token in tokens:
        if not once or token.start > once[-1].end:
            once.append(token)
    return once


def _is_window(token: Token, text: str) -> bool:
    return text[token.start : token.end + 1].lower() == "window"


def _not_sql(error: SqlglotError | RecursionError, remedy: str) -> str:
    if isinstance(error, RecursionError):
        return "is nested too deeply; write less of it"
    return f"is no query of Spark's SQL ({unmasked(told_by(error))}); {remedy}"


def _place_of(error: Exception) -> Place:
    known = getattr(error, "errors", None)
    found = known[0] if known else {}
    return Place(found.get("line") or 1, found.get("col") or 1)
