"""The columns of a query's input: its sample's columns, and the config's computed columns."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import pyarrow as pa
from sqlglot import TokenType, exp

from sessionlake.columnar.expressions import EVENT_TIME, KEY, result_type
from sessionlake.columnar.spark_sql import parse
from sessionlake.columnar.spark_sql.typed import plain_type
from sessionlake.columnar.sql_places import SqlError
from sessionlake.config.positions import Place
from sessionlake.propose.query.brackets import Tokens
from sessionlake.propose.query.scopes import Scope, Visible
from sessionlake.propose.query.words import Piece, Query, QueryError, name_of, parsed, unmasked
from sessionlake.sources.columns import TIMESTAMP

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass
class Fields:
    """The columns of an input by name, and how the query calls the input."""

    query: Query
    scope: Scope
    """The columns that the query sees, and how it calls the input."""
    types: dict[str, pa.DataType]
    """The types of the columns, also computed ones."""
    at: str = "event"
    """The section of the events in the config."""
    computed: dict[str, str] = field(default_factory=dict)
    """The SQL of computed columns by name."""
    places: dict[str, Place] = field(default_factory=dict)
    """The places in the query of the texts of the config's keys."""
    read: set[str] = field(default_factory=set)
    """The sample's columns that are read."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which the query calls the input, in small letters."""
        return self.scope.names

    def piece(
        self,
        tokens: Tokens,
        instead: Mapping[str, str] = MappingProxyType({}),
        scope: Scope | None = None,
    ) -> Piece:
        """Return an expression over the columns of a scope, by default the query's, as one over the input's columns.

        A column alone that a subquery computes is the subquery's expression. Within another expression it becomes a computed column.
        `instead` has other columns for some of the input's. QueryError for a column that the scope has not.
        """
        scope = scope or self.scope
        text = self.query.said(tokens, self._unqualified(tokens, scope.names))
        piece = Piece(text, self.query.place(tokens[0]), parsed(text))
        self._check(piece, scope)
        if isinstance(piece.tree, exp.Column) and (inner := scope.columns.get(_name(piece.tree))) and inner.tokens:
            return replace(self.piece(inner.tokens, instead, inner.scope), wish=inner.name)
        nodes = [node for node in piece.tree.find_all(exp.Column) if not isinstance(node.this, exp.Star)]
        for node in sorted(nodes, key=lambda one: one.this.meta["start"], reverse=True):
            column = self.column_of(scope.columns[_name(node)])
            column = instead.get(column, column)
            if column != unmasked(node.name):
                at = node.this.meta
                text = f"{text[: at['start']]}{quoted_name(column)}{text[at['end'] + 1 :]}"
        tree = parsed(text)
        # A column has one text, quoted or not, so that it is found again.
        text = quoted_name(unmasked(tree.name)) if isinstance(tree, exp.Column) else text
        piece = Piece(text, piece.place, parsed(text))
        self.read.update(piece.columns)
        return piece

    def named(self, name: str, place: Place) -> Piece:
        """Return the query's column of a name, in small letters."""
        one = self.scope.columns[name]
        if one.tokens:
            return replace(self.piece(one.tokens, scope=one.scope), wish=one.name)
        return piece_of(one.column, place)

    def sources(self, tokens: Tokens, scope: Scope | None = None) -> set[str]:
        """Return the sample's columns behind an expression."""
        scope = scope or self.scope
        tree = parsed(self.query.said(tokens, self._unqualified(tokens, scope.names)))
        read_names = set()
        for node in tree.find_all(exp.Column):
            one = scope.columns.get(_name(node))
            if one is not None:
                read_names |= self.sources(one.tokens, one.scope) if one.tokens else {one.column}
        return read_names

    def column_of(self, one: Visible) -> str:
        """Return the input's column behind a column of a scope."""
        return one.column or self.column(self.piece(one.tokens, scope=one.scope), one.name)

    def _unqualified(self, tokens: Tokens, names: Sequence[str]) -> dict[int, str]:
        """Return no words in place of the input's name and the dots before a column, by the number of their first character."""
        instead: dict[int, str] = {}
        for at, token in enumerate(tokens):
            if at and tokens[at - 1].token_type == TokenType.DOT:
                continue
            parts = [token]
            while at + 2 * len(parts) < len(tokens) and tokens[at + 2 * len(parts) - 1].token_type == TokenType.DOT:
                parts.append(tokens[at + 2 * len(parts)])
            for number in range(1, len(parts)):
                if ".".join(map(name_of, parts[:number])) in names:
                    instead |= {one.start: "" for one in tokens[at : at + 2 * number]}
        return instead

    def plain(self, tree: exp.Expression) -> exp.Expression:
        """Return an expression with columns in small letters, and without the input's name before them, to compare it with others."""
        tree = tree.copy()
        for node in list(tree.find_all(exp.Column)):
            table = node.args.get("table")
            if table is not None and table.name.lower() in self.names:
                node.set("table", None)
            node.set(
                "this", exp.to_identifier(node.name.lower()) if isinstance(node.this, exp.Identifier) else node.this
            )
        return tree

    def _check(self, piece: Piece, scope: Scope) -> None:
        """Raise QueryError if an expression names a column that a scope has not."""
        if piece.tree.find(exp.Query) is not None:
            reason = f"{piece.text!r} has a subquery, and an event is looked at by itself; write it in SQL over the live view (`sessionlake sql`)"
            raise piece.error("subquery", reason)
        for node in piece.tree.find_all(exp.Column):
            if node.args.get("table") is not None:
                reason = f"{unmasked(node.sql('spark'))!r} is no column of the sample's, and fields within a column are not read"
                raise piece.error("column", f"{reason}; write a column by its name, or get_json_object(text, '$.name')")
            if not isinstance(node.this, exp.Star):
                self.require(unmasked(node.name), piece.place, scope)

    def require(self, name: str, place: Place, scope: Scope | None = None) -> None:
        """Raise QueryError, with its place, if no expression over a scope, by default the query's, can read a named column."""
        wrong = (scope or self.scope).refused(name.lower())
        if wrong is not None:
            raise QueryError("column", f"{name!r} {wrong}", place)

    def of_event(self, tokens: Tokens, time: str, scope: Scope | None = None) -> Piece:
        """Return an expression for a place in which the names `key` and `event_time` mean the event's key and time, of column `time`.

        Columns with such a name are computed once more under other ones, so that the expression can read them.
        """
        piece = self.piece(tokens, scope=scope)
        again = {}
        for name in piece.columns:
            is_time = name == EVENT_TIME == time and self.types[name] == TIMESTAMP
            if name in (KEY, EVENT_TIME) and not is_time and not isinstance(piece.tree, exp.Column):
                again[name] = self.copied(name, f"{name}_of_row", piece.place)
        return self.piece(tokens, again, scope) if again else piece

    def column(self, piece: Piece, wish: str, taken: Sequence[str] = ()) -> str:
        """Return the column name of an expression: the sample's column, or a computed column, called as wished if possible."""
        if isinstance(piece.tree, exp.Column) and piece.tree.name not in taken:
            return piece.tree.name
        same = next((name for name, text in self.computed.items() if text == piece.text and name not in taken), None)
        if same is not None:
            return same
        return self.compute(piece, free_name(piece.wish or wish, [*self.types, *taken]))

    def copied(self, column: str, wish: str, place: Place, taken: Sequence[str] = ()) -> str:
        """Return the name of a computed copy of a column, called as wished if the name is free."""
        return self.column(piece_of(column, place), wish, [column, *taken])

    def compute(self, piece: Piece, name: str) -> str:
        """Add a computed column and return its name; QueryError if the config's own check refuses its SQL."""
        setting = f"{self.at}.columns.{name}"
        try:
            sql = parse(setting, piece.text)
            done, _ = sql.translated(self.types, dict.fromkeys(sql.columns, "c0"))
        except SqlError as error:
            raise piece.error(setting, error.told) from error
        self.types[name] = pa.null() if plain_type(done.type) is None else result_type(done.type)
        self.computed[name] = piece.text
        self.places[setting] = piece.place
        return name


def piece_of(column: str, place: Place) -> Piece:
    """Return a column of the input as an expression."""
    text = quoted_name(column)
    return Piece(text, place, parsed(text))


def _name(node: exp.Column) -> str:
    return unmasked(node.name).lower()


def free_name(wish: str, taken: Sequence[str]) -> str:
    """Return a name that is a word and not taken, in whatever case: as wished, or with `_` and a number."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", wish).strip("_")
    name = name if _WORD.fullmatch(name) else f"column_{name}".rstrip("_")
    used, number, free = {one.lower() for one in taken}, 1, name
    while free.lower() in used:
        number += 1
        free = f"{name}_{number}"
    return free


def quoted_name(name: str) -> str:
    """Return a name as SQL has it: in backquotes if it is no word."""
    return name if _WORD.fullmatch(name) else f"`{name.replace('`', '``')}`"


def without_stream(tokens: Tokens) -> Tokens:
    """Return the tokens of FROM without Databricks' word for a table read as a stream."""
    if len(tokens) < 2 or name_of(tokens[0]) != "stream":
        return tokens
    return [token for token in tokens[1:] if token.token_type not in (TokenType.L_PAREN, TokenType.R_PAREN)]


def tables(query: Query, tokens: Tokens) -> tuple[str, ...]:
    """Return the names of a FROM or JOIN table in a query, its alias last; QueryError for anything but a table."""
    words = list(without_stream(tokens))
    parts: list[str] = []
    while words and (not parts or words[0].token_type == TokenType.DOT):
        if parts:
            words.pop(0)
        if words:
            parts.append(name_of(words.pop(0)))
    if words and words[0].token_type == TokenType.ALIAS:
        words.pop(0)
    alias = name_of(words.pop(0)) if words and words[0].token_type != TokenType.L_PAREN else None
    if words or not parts or tokens[0].token_type in (TokenType.L_PAREN, TokenType.VALUES):
        place = query.place(tokens[0]) if tokens else query.place_at(len(query.text))
        reason = f"{query.said(tokens)!r} is no table" if tokens else "FROM is missing"
        raise QueryError("from", f"{reason}; write a table's name: events are read from SAMPLE, whatever it is", place)
    return tuple(dict.fromkeys((".".join(parts), parts[-1], *([alias] if alias else []))))
