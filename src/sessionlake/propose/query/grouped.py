"""A GROUP BY over a window of time, as sessions or windows: keys, aggregates, and the same columns of the live view."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import TokenType, exp

from sessionlake.propose.query.aggregates import TAKEN, aggregate_text, free_aggregate, has_aggregate, is_aggregate
from sessionlake.propose.query.blocks import Block, refused, shown
from sessionlake.propose.query.brackets import Tokens, split
from sessionlake.propose.query.fields import free_name, quoted_name
from sessionlake.propose.query.gaps import Gap
from sessionlake.propose.query.inputs import Input, new_input, take_all_hints
from sessionlake.propose.query.items import Item, item_of
from sessionlake.propose.query.live import Shown, interval, key_sql
from sessionlake.propose.query.spans import Call, Grid, Span, call_of, is_span, shown_of, span_of
from sessionlake.propose.query.words import Found, Piece, Query, QueryError, name_of, parsed
from sessionlake.propose.sample import Sample

EVERYTHING = "everything"
"""The computed key of sessions of all events."""
_FURTHER = (TokenType.ROLLUP, TokenType.CUBE, TokenType.GROUPING_SETS)
_ALLOWED = "select the columns of GROUP BY, the window's start and end, and aggregates by themselves"
_LIVE = "compute it in SQL over the live view (`sessionlake sql`)"
_WINDOWS = "window(t, '1 hour') or session_window(t, '30 minutes')"
_LATEST = (
    "for the latest row of each key write row_number() over (partition by key order by time desc) = 1, and for totals that never end SQL "
    "over the live view of a pipeline with windows (`sessionlake sql`)"
)


@dataclass
class Groups:
    """A pipeline of sessions or windows."""

    input: Input
    span: Span
    aggregates: dict[str, str] = field(default_factory=dict)
    shown: list[Shown] = field(default_factory=list)

    @property
    def view(self) -> str:
        """The live view."""
        return "sessions_live" if isinstance(self.span, Gap) else "windows_live"

    @property
    def key(self) -> str:
        """The view's column of a key of one column."""
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


def groups_of(query: Query, block: Block, sample: Sample) -> Groups:
    """Return the pipeline of a GROUP BY; QueryErrors with all that no pipeline can have."""
    return _Reader(query, block, new_input(query, sample, block.source)).groups()


class _Reader:
    def __init__(self, query: Query, block: Block, read: Input) -> None:
        self._query, self._block, self._input = query, block, read
        self._found = Found(refused(query, block))
        self._items = [item_of(query, tokens, read.fields) for tokens in split(block.select)]
        self._keys: dict[str, str] = {}
        """The columns of the key, by the texts that the query has for them."""

    def groups(self) -> Groups:
        call, keys = self._grouped()
        groups = Groups(self._input, span_of(self._query, self._input, call, self._found))
        for tokens, alias in keys:
            with self._found.kept():
                self._add_key(tokens, alias)
        self._set_key(groups)
        with self._found.kept():
            self._input.set_where([self._block.where] if self._block.where else [])
        take_all_hints(self._query, [self._input], self._found)
        for item in self._items:
            with self._found.kept():
                self._show(item, groups, call)
        self._found.raise_any()
        return groups

    def _grouped(self) -> tuple[Call, list[tuple[Tokens, str | None]]]:
        """Return the call of the window, and the other expressions of GROUP BY, each with its alias."""
        spans: list[tuple[Tokens, str | None]] = []
        keys: list[tuple[Tokens, str | None]] = []
        with self._found.kept():
            for tokens, alias in self._group_items():
                (spans if is_span(tokens) else keys).append((tokens, alias))
            if len(spans) == 1:
                return call_of(self._query, self._input.fields, *spans[0], self._items), keys
            if spans or not self._found.errors:
                raise self._not_one_window(spans[1][0] if spans else None)
        raise self._found.all

    def _not_one_window(self, second: Tokens | None) -> QueryError:
        group = self._block.group
        if second is not None:
            told = f"{shown(self._query.said(second))!r} is a second window; a pipeline has one, make one for each"
        elif group:
            said = shown(f"group by {self._query.said(group)}")
            told = f"{said!r} has no window of time, {_WINDOWS}, so that no result ever ends; {_LATEST}"
        else:
            said = shown(f"select {self._query.said(self._block.select)}")
            told = (
                f"{said!r} neither groups events by {_WINDOWS}, nor keeps the latest row of a key, nor joins two streams; a pipeline does one "
                "such thing, and anything else is SQL over the source or over the live view of a pipeline (`sessionlake sql`)"
            )
        token = second[0] if second else group[0] if group else self._block.start
        return QueryError("group_by" if group else "select", told, self._query.place(token))

    def _group_items(self) -> Iterator[tuple[Tokens, str | None]]:
        """Yield the expressions of GROUP BY; those of SELECT in place of their numbers and aliases, and of ALL."""
        group = self._block.group
        further = next((token for token in group if token.token_type in _FURTHER), None)
        if further is not None:
            said = shown(f"group by {self._query.said(group)}")
            told = f"{said!r} groups in several ways; a pipeline groups in one, make one for each"
            raise QueryError("group_by", told, self._query.place(further))
        if len(group) == 1 and name_of(group[0]) == "all":
            yield from ((item.tokens, item.alias) for item in self._items if not has_aggregate(item.tree))
            return
        columns = {name.lower() for name in self._input.sample.types}
        aliases = {item.alias.lower(): item for item in self._items if item.alias}
        for tokens in split(group):
            word = name_of(tokens[0]) if len(tokens) == 1 else ""
            if word.isdigit() and 0 < int(word) <= len(self._items):
                item = self._items[int(word) - 1]
                yield item.tokens, item.alias
            elif word in aliases and word not in columns:
                yield aliases[word].tokens, aliases[word].alias
            else:
                yield tokens, None

    def _add_key(self, tokens: Tokens, alias: str | None) -> None:
        piece = self._input.fields.piece(tokens)
        said = self._query.said(tokens)
        wish = alias or next((item.alias for item in self._items if item.said == said and item.alias), None)
        column = self._input.fields.column(piece, wish or f"key_{len(self._keys) + 1}")
        self._keys[piece.text] = column
        if column not in self._input.key:
            self._input.key.append(column)

    def _set_key(self, groups: Groups) -> None:
        """Give sessions a key if the query has none: all events have the same. Key columns get names that rows can have beside others."""
        if len(self._input.key) > 1:
            aliases = [item.alias for item in self._items if item.alias and is_aggregate(item)]
            self._keys = {text: self._beside(column, aliases) for text, column in self._keys.items()}
            self._input.key = list(dict.fromkeys(self._keys.values()))
        if not self._input.key and isinstance(groups.span, Gap) and not self._found.errors:
            fields = self._input.fields
            fields.computed[EVERYTHING], fields.types[EVERYTHING] = "'all'", pa.string()
            self._input.key.append(EVERYTHING)

    def _beside(self, column: str, others: list[str]) -> str:
        """Return a key column, or a copy of it if rows can't have its name."""
        taken = {name.lower() for name in (*TAKEN, *others)}
        if column.lower() not in taken and free_name(column, []) == column:
            return column
        copied = Piece(quoted_name(column), self._query.place(self._block.start), parsed(quoted_name(column)))
        return self._input.fields.column(copied, f"{column}_key", [column, *taken])

    def _show(self, item: Item, groups: Groups, call: Call) -> None:
        """Take an item of SELECT as a column of the live view."""
        of_window = shown_of(item, call, groups.start, groups.end)
        if of_window is not None:
            groups.shown.append(of_window)
        elif wrong := self._wrong(item, call):
            raise QueryError("select", f"{shown(item.said)!r} {wrong}", self._query.place(item.tokens[0]))
        elif is_aggregate(item):
            self._show_aggregate(item, groups)
        else:
            self._show_key(item, groups)

    def _wrong(self, item: Item, call: Call) -> str | None:
        """Return why no item of SELECT can be this one; None if it may."""
        if item.is_star:
            return f"stands for columns of single events, and a row is of several; {_ALLOWED}"
        if any(call.is_another(node) for node in item.tree.find_all(exp.Anonymous)):
            return "is another window than that of GROUP BY; a pipeline has one"
        if item.tree.find(exp.Window) is not None:
            return f"is computed over several rows; {_LIVE}"
        if has_aggregate(item.tree) and not is_aggregate(item):
            return f"computes with aggregates; select each of them by itself, and {_LIVE}"
        return None

    def _show_key(self, item: Item, groups: Groups) -> None:
        piece = self._input.fields.piece(item.tokens)
        column = self._keys.get(piece.text)
        if column is None:
            told = (
                f"{shown(item.said)!r} is no expression of GROUP BY, and no aggregate of docs/aggregates.md; {_ALLOWED}"
            )
            raise QueryError("select", told, piece.place)
        name = column if len(self._input.key) > 1 else groups.key
        groups.shown.append(Shown(key_sql(name, self._input.fields.types[column]), item.name or item.said))

    def _show_aggregate(self, item: Item, groups: Groups) -> None:
        taken = [*groups.aggregates, *(self._input.key if len(self._input.key) > 1 else [])]
        name = free_aggregate(item, taken)
        piece = self._input.fields.of_event(item.tokens, self._input.time)
        groups.aggregates[name] = aggregate_text(piece.text)
        self._input.fields.places[f"aggregates.{name}"] = piece.place
        groups.shown.append(Shown(name, item.alias or item.said))
