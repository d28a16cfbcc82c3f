"""A GROUP BY over a window of time, as sessions or windows: keys, aggregates, and the same columns of the live view.

A SELECT around it, as Spark asks for with `window_time`, chooses other columns of the same live view. Errors name the window of
Spark's SQL for one of another system, or for a slip of the pen.
"""

from collections.abc import Iterator

import pyarrow as pa
from sqlglot import TokenType, exp

from sessionlake.errors import did_you_mean
from sessionlake.propose.query.blocks import Block, refused
from sessionlake.propose.query.brackets import Tokens, inner_of, split
from sessionlake.propose.query.fields import free_name
from sessionlake.propose.query.inlined import input_of
from sessionlake.propose.query.inputs import Input, arguments_of, take_all_hints
from sessionlake.propose.query.items import TAKEN, Item, has_aggregate, is_aggregate, item_of
from sessionlake.propose.query.live import Shown, interval, struct_of
from sessionlake.propose.query.results import EVERYTHING, Groups, Results
from sessionlake.propose.query.spans import CALLS, SESSION, TIME, Call, Gap, call_of, is_span, span_of
from sessionlake.propose.query.words import Found, Query, QueryError, name_of, shown, unmasked
from sessionlake.propose.sample import Sample

_FLINKS = {"tumble": ("window", (0, 1)), "hop": ("window", (0, 2, 1))}
"""Flink's functions: Spark's function, and its arguments by their numbers in Flink."""
_UNITS = ("second", "minute", "hour", "day")
"""Units of fixed length, whose windows begin where `date_trunc` does."""


def window_meant(query: Query, tokens: Tokens) -> str | None:
    """Return how a pipeline has the window meant in GROUP BY, to follow its text; None if none is meant."""
    inside, name = inner_of(tokens[1:]), name_of(tokens[0])
    if inside is None or len(inside) + 3 != len(tokens):
        return None
    given = [query.said(argument) for argument in arguments_of(tokens)]
    reason = None
    if name in _FLINKS and len(given) == len(_FLINKS[name][1]):
        ours, order = _FLINKS[name]
        reason = f"is a window of Flink's SQL; write {ours}({', '.join(given[at] for at in order)})"
    elif name == "date_trunc" and len(given) == 2 and given[0].strip("'\"").lower() in _UNITS:
        reason = f"is a window of time; write window({given[1]}, '1 {given[0].strip(chr(39) + chr(34)).lower()}')"
    elif near := did_you_mean(name, list(CALLS)):
        reason = f"is no window{near}; write {name_like(near)}"
    return reason


def name_like(near: str) -> str:
    """Return the form of the function in a question of `did_you_mean`."""
    return "session_window(t, '30 minutes')" if SESSION in near else "window(t, '1 hour')"


_FURTHER = (TokenType.ROLLUP, TokenType.CUBE, TokenType.GROUPING_SETS)
_WINDOWS = "window(t, '1 hour') or session_window(t, '30 minutes')"
_LATEST = (
    "for the latest row of each key write row_number() over (partition by key order by time desc) = 1, and for totals over all "
    "time a config whose event.key is these columns, with a section [group] and the totals in [aggregates] (docs/group.md)"
)


def groups_of(query: Query, block: Block, sample: Sample) -> Groups:
    """Return a GROUP BY's pipeline; QueryErrors with all that no pipeline can have."""
    return _Reader(query, block, input_of(query, sample, block.source, block.named)).groups()


class _Reader:
    def __init__(self, query: Query, block: Block, read: Input) -> None:
        self._query, self._block, self._input = query, block, read
        self._found = Found(refused(query, block, but_having=True))
        if block.qualify:
            reason = (
                "is beside a GROUP BY; leave it out here, and write it in SQL over the live view (`sessionlake sql`)"
            )
            self._found.errors.append(query.refusal("qualify", block.qualify, reason, word="qualify"))
        self._items = [item_of(query, tokens, read.fields) for tokens in split(block.select)]
        self._keys: dict[str, str] = {}
        """The key's columns, by their texts in the query."""

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
        self._show(groups, call)
        self._found.raise_any()
        return groups

    def _show(self, groups: Groups, call: Call) -> None:
        """Take the items of SELECT, and HAVING, as columns and conditions of the live view."""
        results = Results(self._query, groups, call, self._keys, self._items)
        shown: dict[int, Shown] = {}
        # Plain aggregates come first, so that expressions can use them.
        for number, item in sorted(enumerate(self._items), key=lambda one: not is_aggregate(one[1])):
            with self._found.kept():
                shown[number] = results.shown(item)
        groups.shown += [shown[number] for number in sorted(shown)]
        with self._found.kept():
            groups.conditions += [results.condition(self._block.having[1:])] if self._block.having else []

    def _grouped(self) -> tuple[Call, list[tuple[Tokens, str | None]]]:
        """Return the window's call, and the other expressions of GROUP BY, each with its alias."""
        spans: list[tuple[Tokens, str | None]] = []
        keys: list[tuple[Tokens, str | None]] = []
        with self._found.kept():
            for tokens, alias in self._group_items():
                (spans if is_span(tokens) else keys).append((tokens, alias))
            if len(spans) == 1:
                return call_of(self._query, self._input.fields, *spans[0], self._items), keys
            if spans or not self._found.errors:
                raise self._not_one_window(spans[1][0] if spans else None, [tokens for tokens, _ in keys])
        raise self._found.all

    def _not_one_window(self, second: Tokens | None, others: list[Tokens]) -> QueryError:
        group = self._block.group
        if second is not None:
            return self._query.refusal("group_by", second, "is a second window; a pipeline has one, make one for each")
        for tokens in others:
            if meant := window_meant(self._query, tokens):
                return self._query.refusal("group_by", tokens, meant)
        if group:
            reason = f"has no window of time, {_WINDOWS}, so that no result ever ends; {_LATEST}"
            return self._query.refusal("group_by", group, reason, word="group by")
        reason = (
            f"neither groups events by {_WINDOWS}, nor keeps the latest row of a key, nor joins two streams; a pipeline does one "
            "such thing, and anything else is SQL over the source or over the live view of a pipeline (`sessionlake sql`)"
        )
        return self._query.refusal("select", [self._block.start, *self._block.select], reason)

    def _group_items(self) -> Iterator[tuple[Tokens, str | None]]:
        """Yield the expressions of GROUP BY. Numbers, aliases and ALL stand for SELECT's expressions."""
        group = self._block.group
        further = next((token for token in group if token.token_type in _FURTHER), None)
        if further is not None:
            said = shown(f"group by {self._query.said(group)}")
            reason = f"{said!r} groups in several ways; a pipeline groups in one, make one for each"
            raise QueryError("group_by", reason, self._query.place(further))
        if len(group) == 1 and name_of(group[0]) == "all":
            yield from ((item.tokens, item.alias) for item in self._items if not has_aggregate(item.tree))
            return
        columns = self._input.fields.scope.columns
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
        """Return a key column, or a copy if rows can't have its name."""
        taken = {name.lower() for name in (*TAKEN, *others)}
        if column.lower() not in taken and free_name(column, []) == column:
            return column
        return self._input.fields.copied(column, f"{column}_key", self._query.place(self._block.start), list(taken))


_BEHIND = "make a pipeline of the subquery, and another one behind it (a chain), or write it in SQL over the live view (`sessionlake sql`)"


def chosen_of(query: Query, block: Block, groups: Groups) -> Groups:
    """Return a subquery's pipeline with the outer query's columns; QueryErrors for all else around it."""
    refusals = Found(refused(query, block))
    around = {"where": block.where, "group by": block.group, "qualify": block.qualify}
    for word, words in around.items():
        if words:
            reason = f"is around a subquery; {_BEHIND}"
            refusals.errors.append(query.refusal("_".join(word.split()), words, reason, word=word))
    refusals.raise_any()
    before, groups.shown = groups.shown, []
    for tokens in split(block.select):
        item = item_of(query, tokens)
        with refusals.kept():
            groups.shown += _columns(query, item, groups, before)
    refusals.raise_any()
    return groups


def _columns(query: Query, item: Item, groups: Groups, before: list[Shown]) -> list[Shown]:
    if item.is_star:
        return before
    tree, bound = item.tree, None
    if isinstance(tree, exp.Anonymous) and tree.name.lower() == TIME and len(tree.expressions) == 1:
        tree, bound = tree.expressions[0], TIME
    by_name = {column.name.lower(): column for column in before}
    if isinstance(tree, exp.Column):
        name = unmasked(tree.name).lower()
        inside = by_name.get(unmasked(tree.table).lower())
        if bound is None and inside is not None and name in ("start", "end"):
            tree, bound = exp.column(tree.table), name
            name = inside.name.lower()
        column = by_name.get(name)
        if column is not None and bound is None:
            return [Shown(column.sql, item.alias or column.name)]
        if column is not None and column.sql == struct_of(groups.start, groups.end):
            sql = {"start": groups.start, "end": groups.end, TIME: f"{groups.end} - {interval(1)}"}[str(bound)]
            return [Shown(sql, item.alias or (f"{TIME}({column.name})" if bound == TIME else str(bound)))]
    reason = f"is no column of the subquery, nor a bound or the time of its window; {_BEHIND}"
    raise query.refusal("select", item.tokens, reason)
