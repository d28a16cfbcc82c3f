"""Expressions over the columns of a live view, in DuckDB's SQL: with Spark's results, as `sessionlake sql` gives them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import TokenType, exp

from sessionlake.aggregates.spec import AggregateSpec, build_aggregates, hidden_columns
from sessionlake.columnar.expressions import LENIENT, result_type
from sessionlake.columnar.spark_sql import parse
from sessionlake.columnar.spark_sql.typed import COMPUTED, Typed
from sessionlake.columnar.sql_places import SqlError
from sessionlake.propose.query.brackets import Tokens, inner_of
from sessionlake.propose.query.fields import free_name
from sessionlake.propose.query.inputs import Input
from sessionlake.propose.query.live import identifier
from sessionlake.propose.query.words import Query, QueryError, parsed, shown
from sessionlake.sources.columns import TIMESTAMP
from sessionlake.stream.shape import Shaping

_SETTING = "select"
LIVE = "compute it in SQL over the live view (`sessionlake sql`)"
_AS_TIME = "at time zone 'UTC'"
"""Makes a timestamp of the live view one without a zone, as expressions need it, and back."""


@dataclass(frozen=True)
class Value:
    """A column of the live view, or what is computed of some."""

    sql: str
    type: pa.DataType
    name: str = "value"
    """Its name in errors."""


OfCall = Callable[[Tokens], Value | None]
"""Returns the value of a call's tokens, perhaps with its FILTER or a field of it; None if the live view has none."""
OfColumn = Callable[[exp.Column], Value]
"""Returns a column's value; QueryError for a column that the live view lacks."""


def computed(query: Query, tokens: Tokens, of_call: OfCall, of_column: OfColumn) -> Value:
    """Return an expression over a live view; QueryError if it is not listed for expressions, or does not fit the types."""
    values: dict[str, Value] = {}

    def named(value: Value) -> str:
        same = next((name for name, one in values.items() if one.sql == value.sql), None)
        name = same or free_name(value.name, list(values))
        values[name] = value
        return name if identifier(name) == name else f"`{name}`"

    instead: dict[int, str] = {}
    for call, value in _calls(tokens, of_call):
        instead |= {token.start: "" for token in call} | {call[0].start: named(value)}
    text = query.said(tokens, instead)
    columns = [node for node in parsed(text).find_all(exp.Column) if node.table or node.name not in values]
    for node in sorted(columns, key=lambda one: one.parts[0].meta["start"], reverse=True):
        at, end = node.parts[0].meta["start"], node.parts[-1].meta["end"] + 1
        text = f"{text[:at]}{named(of_column(node))}{text[end:]}"
    if text.strip("`") in values:
        return values[text.strip("`")]
    try:
        done, uses_clock = _translated(text, values)
    except SqlError as error:
        reason = f"{shown(query.said(tokens))!r}: {error.told}"
        raise QueryError("select", reason, query.place(tokens[0])) from error
    if uses_clock:
        raise query.refusal("select", tokens, f"asks for the present; {LIVE}")
    if any(f"{name}(" in done.sql for name in LENIENT):
        raise query.refusal("select", tokens, f"reads a text as Spark does, which `sessionlake sql` does not; {LIVE}")
    if done.type not in (*COMPUTED, "null"):
        raise query.refusal("select", tokens, f"is of type {done.type}; {LIVE}")
    kind = pa.null() if done.type == "null" else result_type(done.type)
    return Value(f"try({done.sql}) {_AS_TIME}" if kind == TIMESTAMP else f"try({done.sql})", kind)


def aggregate_type(name: str, text: str, read: Input) -> pa.DataType:
    """Return the type of an aggregate's values; ConfigError, as a config with it has."""
    types = read.fields.types
    spec = AggregateSpec.parse(name, text, types)
    own = tuple(dict.fromkeys([*read.key, read.time, *read.id]))
    shape = Shaping(read.fields.at, (), None, own, spec.inputs, hidden_columns([spec])).shape(types)
    (built,) = build_aggregates({name: text}, {**types, **shape.types}, with_id=bool(read.id))
    return built.value_type


def _translated(text: str, values: dict[str, Value]) -> tuple[Typed, bool]:
    """Return an expression in DuckDB's SQL, and whether it asks for the present; SqlError if it is not listed."""
    places = {
        name: f"({value.sql} {_AS_TIME})" if value.type == TIMESTAMP else value.sql for name, value in values.items()
    }
    return parse(_SETTING, text).translated({name: value.type for name, value in values.items()}, places)


def _calls(tokens: Tokens, of_call: OfCall) -> Iterator[tuple[Tokens, Value]]:
    """Yield the outermost calls that are values of the live view."""
    at = 0
    while at < len(tokens):
        for end in _ends(tokens, at):
            value = of_call(tokens[at:end])
            if value is not None:
                yield tokens[at:end], value
                at = end - 1
                break
        at += 1


def _ends(tokens: Tokens, at: int) -> Iterator[int]:
    """Yield the numbers of the tokens after a call: with its field, with its FILTER, and by itself."""
    inside = inner_of(tokens[at + 1 :])
    if inside is None or tokens[at].token_type == TokenType.L_PAREN:
        return
    end = at + len(inside) + 3
    if end + 1 < len(tokens) and tokens[end].token_type == TokenType.DOT:
        yield end + 2
    if end < len(tokens) and tokens[end].token_type == TokenType.FILTER:
        condition = inner_of(tokens[end + 1 :])
        yield end + 3 + len(condition or ())
    yield end
