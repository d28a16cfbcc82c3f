"""The window of a GROUP BY: `window` and `session_window`, their names in SELECT, and the gap: a duration, or a CASE for each event."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sqlglot import TokenType, exp

from sessionlake.propose.query.brackets import Tokens, inner_of
from sessionlake.propose.query.fields import Fields
from sessionlake.propose.query.inputs import Input, arguments_of, duration_of
from sessionlake.propose.query.items import Item
from sessionlake.propose.query.live import Shown, interval, struct_of
from sessionlake.propose.query.words import Found, Piece, Query, QueryError, name_of, parsed, shown, unmasked

_SUPPORTED = (
    "write one duration, or a CASE over conditions on the event with a duration in quotes in each THEN and in ELSE"
)


@dataclass(frozen=True)
class Gap:
    """The gap of sessions."""

    gap_us: int
    by: str | None = None
    """SQL of an event's own gap."""
    longest_us: int = 0
    """The longest of all, with `by`."""


def gap_of(query: Query, fields: Fields, tokens: Tokens, time: str) -> Gap:
    """Return the gap of sessions over events with a column `time`; QueryError if sessions can't have it."""
    if tokens[0].token_type != TokenType.CASE:
        if tokens[0].token_type not in (TokenType.STRING, TokenType.INTERVAL):
            raise query.refusal("gap", tokens, f"is no duration; {_SUPPORTED}")
        fields.places["session.gap"] = query.place(tokens[0])
        return Gap(duration_of(query, tokens, "gap"))
    values = {words[0].start: (word, duration_of(query, words, "gap")) for word, words in _values(query, tokens)}
    default = next((micros for word, micros in values.values() if word == TokenType.ELSE), None)
    if default is None:
        reason = "a CASE without ELSE gives some events no gap, and Spark leaves these out; add ELSE, and their condition to WHERE"
        raise QueryError("gap", f"{shown(query.said(tokens))!r}: {reason}", query.place(tokens[0]))
    longest = max(micros for _, micros in values.values())
    by = _case(query, fields, tokens, time, {start: interval(micros) for start, (_, micros) in values.items()})
    fields.places["session.gap_by"] = by.place
    return Gap(default, by.text, longest)


def _values(query: Query, tokens: Tokens) -> Iterator[tuple[TokenType, Tokens]]:
    """Yield the words THEN and ELSE with each duration's token."""
    cases = [token for token in tokens if token.token_type == TokenType.CASE]
    for number, token in enumerate(tokens[:-1]):
        if token.token_type in (TokenType.THEN, TokenType.ELSE):
            value = tokens[number + 1]
            if value.token_type != TokenType.STRING or len(cases) > 1:
                said = shown(query.said(tokens))
                raise QueryError("gap", f"{said!r} is no gap of a pipeline; {_SUPPORTED}", query.place(value))
            yield token.token_type, [value]


def _case(query: Query, fields: Fields, tokens: Tokens, time: str, instead: dict[int, str]) -> Piece:
    """Return the CASE with intervals in place of texts."""
    piece = fields.of_event(tokens, time)
    text = piece.text
    for start, words in instead.items():
        token = next(token for token in tokens if token.start == start)
        text = text.replace(query.said([token]), words, 1)
    return Piece(text, piece.place, piece.tree)


SESSION, TIME = "session_window", "window_time"
CALLS = {SESSION: 2, "window": 4}
"""The functions, and their most arguments."""
_FORMS = {
    SESSION: "session_window(t, '30 minutes')",
    "window": "window(t, '1 hour'), window(t, '1 hour', '5 minutes') or window(t, '1 hour', '1 hour', '15 minutes')",
}


@dataclass(frozen=True)
class Grid:
    """Windows of fixed length."""

    size_us: int
    advance_us: int | None
    """The time from a window's start to the next; None for adjacent windows."""
    offset_us: int


Span = Gap | Grid


@dataclass
class Call:
    """The call of a window in GROUP BY."""

    tokens: Tokens
    tree: exp.Expression
    names: set[str] = field(default_factory=set)
    """The names by which the query may call it, in small letters."""

    def is_meant(self, tree: exp.Expression) -> bool:
        """Say whether an expression is the window: the same call, or a name of it."""
        named = isinstance(tree, exp.Column) and not tree.table and unmasked(tree.name).lower() in self.names
        return named or tree == self.tree

    def is_another(self, tree: exp.Expression) -> bool:
        """Say whether an expression is another window than this one."""
        called = isinstance(tree, exp.Anonymous) and unmasked(tree.name.lower()) in CALLS
        return called and tree != self.tree


def call_of(query: Query, fields: Fields, tokens: Tokens, alias: str | None, items: list[Item]) -> Call:
    """Return the call of a window; the items of SELECT may give it names."""
    tree = fields.plain(parsed(query.said(tokens)))
    aliases = [item.alias for item in items if item.tree == tree]
    names = {name.lower() for name in (name_of(tokens[0]), alias, *aliases) if name is not None}
    return Call(tokens, tree, names)


def is_span(tokens: Tokens) -> bool:
    """Say whether tokens are a single call of `window` or `session_window`."""
    inside = inner_of(tokens[1:])
    return inside is not None and len(inside) + 3 == len(tokens) and name_of(tokens[0]) in CALLS


def span_of(query: Query, read: Input, call: Call, found: Found) -> Span:
    """Return the window, and take its time as the events' time; QueryErrors if no pipeline can have it."""
    arguments, name = arguments_of(call.tokens), name_of(call.tokens[0])
    with found.kept():
        if not 2 <= len(arguments) <= CALLS[name]:
            raise query.refusal("group_by", call.tokens, f"has {len(arguments)} arguments; write {_FORMS[name]}")
        with found.kept():
            read.expect_time(arguments[0])
            read.set_time(read.fields.piece(arguments[0]))
        if name == SESSION:
            return gap_of(query, read.fields, arguments[1], read.time)
        return _grid(query, read, arguments[1:])
    raise found.all


def _grid(query: Query, read: Input, lengths: list[Tokens]) -> Grid:
    keys = ("size", "advance", "offset")
    found = [
        duration_of(query, tokens, key, signed=key == "offset") for key, tokens in zip(keys, lengths, strict=False)
    ]
    for key, tokens in zip(keys, lengths, strict=False):
        read.fields.places[f"window.{key}"] = query.place(tokens[0])
    size, advance, offset = [*found, *[0] * (3 - len(found))]
    step = advance if len(found) > 1 else size
    hops = len(found) > 1 and advance != size
    return Grid(size, advance if hops else None, offset % step if step else 0)


def shown_of(item: Item, call: Call, start: str, end: str) -> Shown | None:
    """Return an item for the window, a bound or its time, by the SQL of both bounds; None for other items."""
    tree, bound = item.tree, None
    if isinstance(tree, exp.Anonymous) and tree.name.lower() == TIME and len(tree.expressions) == 1:
        meant = call.is_meant(tree.expressions[0])
        return Shown(f"{end} - {interval(1)}", item.alias or TIME) if meant else None
    if isinstance(tree, exp.Dot):
        tree, bound = tree.this, tree.expression.name.lower()
    elif isinstance(tree, exp.Column) and tree.table:
        tree, bound = exp.column(tree.table), tree.name.lower()
    if not call.is_meant(tree) or bound not in (None, "start", "end"):
        return None
    if bound is None:
        return Shown(struct_of(start, end), item.alias or name_of(call.tokens[0]))
    # Spark calls a call's field `window.end`, and a column's field `end`.
    name = f"{name_of(call.tokens[0])}.{bound}" if isinstance(item.tree, exp.Dot) else bound
    return Shown(start if bound == "start" else end, item.alias or name)
