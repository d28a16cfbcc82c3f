"""The columns of a query with GROUP BY, as columns of the live view: keys, bounds of windows, aggregates, and what is computed of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from types import MappingProxyType

import pyarrow as pa
from sqlglot import exp

from sessionlake.columnar.column_types import type_name
from sessionlake.errors import ConfigError
from sessionlake.propose.query.brackets import Tokens
from sessionlake.propose.query.computed import LIVE, Value, aggregate_type, computed
from sessionlake.propose.query.fields import free_name
from sessionlake.propose.query.inputs import Input
from sessionlake.propose.query.items import (
    TAKEN,
    Item,
    aggregate_text,
    free_aggregate,
    has_aggregate,
    is_aggregate,
    item_of,
)
from sessionlake.propose.query.live import Shown, identifier, interval, key_sql, struct_of
from sessionlake.propose.query.spans import Call, Gap, Grid, Span, shown_of
from sessionlake.propose.query.words import Query, QueryError, unmasked
from sessionlake.sources.columns import TIMESTAMP

EVERYTHING = "everything"
"""The computed key of sessions of all events."""
_ALLOWED = "select the columns of GROUP BY, the window's start and end, aggregates, and expressions of these"


@dataclass
class Groups:
    """A pipeline of sessions or windows."""

    input: Input
    span: Span
    aggregates: dict[str, str] = field(default_factory=dict)
    shown: list[Shown] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    """HAVING's conditions, in DuckDB's SQL over the live view, which has all groups."""

    @property
    def inputs(self) -> list[Input]:
        """Its one input."""
        return [self.input]

    @property
    def view(self) -> str:
        """The live view."""
        return "sessions_live" if isinstance(self.span, Gap) else "windows_live"

    @property
    def key(self) -> str:
        """The view's column for a key of a single column."""
        return "session_key" if isinstance(self.span, Gap) else "window_key"

    @property
    def start(self) -> str:
        """The SQL of the window's start."""
        return "session_start" if isinstance(self.span, Gap) else "window_start"

    @property
    def end(self) -> str:
        """The SQL of the window's end. Spark's session ends a gap after its last event."""
        if isinstance(self.span, Grid):
            return "window_end"
        return "open_until" if self.span.by is not None else f"session_end + {interval(self.span.gap_us)}"


class Results:
    """The SELECT items of a query with GROUP BY, and its HAVING."""

    def __init__(
        self, query: Query, groups: Groups, call: Call, keys: Mapping[str, str], items: Sequence[Item]
    ) -> None:
        """Take the window's call, and the key's columns by text."""
        self._query, self._groups, self._call, self._keys = query, groups, call, keys
        self._fields = groups.input.fields
        self._items = {item.alias.lower(): item for item in items if item.alias}

    def shown(self, item: Item) -> Shown:
        """Return an item as a column of the live view; its aggregates become the config's. QueryError if the view can't have it."""
        of_window = shown_of(item, self._call, self._groups.start, self._groups.end)
        if of_window is not None:
            return of_window
        if wrong := self._wrong(item):
            raise self._query.refusal("select", item.tokens, wrong)
        if is_aggregate(item):
            name = self._add(item, free_aggregate(item, self._taken))
            return Shown(identifier(name), item.alias or item.said)
        value = self._key(item) or self._computed(item.tokens, item.alias or "value")
        return Shown(value.sql, item.name or item.said)

    def condition(self, tokens: Tokens) -> str:
        """Return HAVING as a condition on rows of the live view. It may name the aliases of SELECT."""
        try:
            value = self._computed(tokens, "having", self._items)
        except QueryError as error:
            raise QueryError(error.key.replace("select", "having"), error.message, error.place) from error
        if value.type not in (pa.bool_(), pa.null()):
            reason = f"is of type {type_name(value.type)}, and a condition is needed; compare it"
            raise self._query.refusal("having", tokens, reason)
        return value.sql

    @property
    def _taken(self) -> list[str]:
        """The names that no further aggregate can have."""
        key = self._groups.input.key
        return [*self._groups.aggregates, *(key if len(key) > 1 else [])]

    def _wrong(self, item: Item) -> str | None:
        """Return why no SELECT item can be this item; None if it may."""
        if item.is_star:
            return f"stands for columns of single events, and a row is of several; {_ALLOWED}"
        if any(self._call.is_another(node) for node in item.tree.find_all(exp.Anonymous)):
            return "is another window than that of GROUP BY; a pipeline has one"
        if item.tree.find(exp.Window) is not None:
            return f"is computed over several rows; {LIVE}"
        return None

    def _add(self, item: Item, name: str) -> str:
        """Add an aggregate to the config, and return its name."""
        piece = self._fields.of_event(item.tokens, self._groups.input.time)
        self._groups.aggregates[name] = aggregate_text(piece.text)
        self._fields.places[f"aggregates.{name}"] = piece.place
        return name

    def _key(self, item: Item) -> Value | None:
        """Return an item's column of the key; None for other items."""
        of_window = any(self._bound(node) for node in item.tree.find_all(exp.Column, exp.Dot, exp.Anonymous))
        return None if of_window or has_aggregate(item.tree) else self._key_of(self._fields.piece(item.tokens).text)

    def _key_of(self, text: str) -> Value | None:
        column = self._keys.get(text)
        if column is None:
            return None
        name = identifier(column) if len(self._groups.input.key) > 1 else self._groups.key
        kind = self._fields.types[column]
        return Value(key_sql(name, kind), kind, column)

    def _bound(self, tree: exp.Expression) -> Value | None:
        """Return the bound or the time of the window behind an expression; None for other expressions."""
        start, end = self._groups.start, self._groups.end
        found = shown_of(Item((), None, "", "", tree), self._call, start, end)
        if found is None or found.sql == struct_of(start, end):
            return None
        sql = f"({found.sql})" if " " in found.sql else found.sql
        return Value(sql, TIMESTAMP, "window_start" if found.sql == start else "window_end")

    def _computed(self, tokens: Tokens, wish: str, aliases: Mapping[str, Item] = MappingProxyType({})) -> Value:
        """Return an expression over the live view. Its aggregates are called as wished, with a number; it may name `aliases`."""

        def of_call(call: Tokens) -> Value | None:
            item = item_of(self._query, call, self._fields)
            return self._aggregate(item, wish) if is_aggregate(item) else self._bound(item.tree)

        def of_column(node: exp.Column) -> Value:
            value = self._bound(node) or self._column(node, tokens)
            alias = aliases.get(unmasked(node.name).lower())
            if value is None and alias is not None and not node.table:
                return self._computed(alias.tokens, wish)
            if value is None:
                reason = f"is no expression of GROUP BY, and no aggregate of docs/aggregates.md; {_ALLOWED}"
                raise self._query.refusal("select", tokens, reason)
            return value

        return computed(self._query, tokens, of_call, of_column)

    def _aggregate(self, item: Item, wish: str) -> Value:
        """Return an expression's aggregate: the query's own, or a further one."""
        piece = self._fields.of_event(item.tokens, self._groups.input.time)
        text = aggregate_text(piece.text)
        name = next((name for name, same in self._groups.aggregates.items() if same == text), None)
        if name is None:
            name = self._add(item, self._numbered(wish))
        try:
            return Value(identifier(name), aggregate_type(name, text, self._groups.input), name)
        except ConfigError as error:
            key = f"aggregates.{name}"
            raise piece.error(key, str(error).removeprefix(f"{key}: ")) from error

    def _numbered(self, wish: str) -> str:
        """Return a name with a number that no aggregate has."""
        taken = {name.lower() for name in (*self._taken, *TAKEN)}
        name = free_name(wish, [])
        return next(f"{name}_{n}" for n in count(1) if f"{name}_{n}".lower() not in taken)

    def _column(self, node: exp.Column, tokens: Tokens) -> Value | None:
        """Return the key's column behind a column; None for other columns."""
        name, table = unmasked(node.name).lower(), ".".join(part.name.lower() for part in node.parts[:-1])
        place = self._query.place(tokens[0])
        if name not in self._fields.scope.columns or (table and table not in self._fields.names):
            return None
        self._fields.require(name, place)
        return self._key_of(self._fields.named(name, place).text)
