"""The text form of aggregates: "sum(added)", "sum(price * quantity) filter (where type = 'buy')", "package.module:Class"."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from sessionlake.aggregates.base import Aggregate
from sessionlake.aggregates.calls import Call, Part, read_call
from sessionlake.aggregates.custom import Custom, load_user
from sessionlake.aggregates.folded import KIP_94, Folded, Reduced
from sessionlake.aggregates.full import Evaluated
from sessionlake.aggregates.functions import ALIASES, FUNCTIONS, Asked, Function, Literal, Number
from sessionlake.aggregates.numeric import OFFSET, PARTITION
from sessionlake.aggregates.signed.functions import build_signed, refused
from sessionlake.column_names import column_name, parts_of
from sessionlake.columnar.equality import BY_TEXT, IdOrder
from sessionlake.columnar.expressions import EVENT_TIME, KEY
from sessionlake.columnar.sql_places import Origin, at_character
from sessionlake.errors import ConfigError, did_you_mean

_CLASS = re.compile(r"[\w.]+:\w+")
_PLAIN = re.compile(r"[^\W\d]\w*")
_PATH = re.compile(rf"(?:`[^`]+`|{_PLAIN.pattern})(?:\.(?:`[^`]+`|{_PLAIN.pattern}))*")
_OF_TODAY = re.compile(r"\s*([a-z_]+)\s*\(\s*([^,()]*?)\s*(?:,\s*([^,()]+?)\s*)?\)\s*")
"""A call as releases before SQL read it: a column's name may have any character but these."""
_WHEN, _THEN = "case when ", " then "
_OF_POSITIONS = ("first_position", "last_position")


@dataclass(frozen=True)
class AggregateSpec:
    """A parsed aggregate: a function of columns, with literals after them, or a class."""

    name: str
    function: str
    columns: tuple[str, ...] = ()
    """The columns read. A hidden column, of an expression, is named by its own text."""
    literals: tuple[Literal, ...] = ()
    computed: Mapping[str, str] = field(default_factory=dict)
    """Each hidden column's SQL by name. Names that are no words have backquotes. It also sees `key` and `event_time`."""
    path: str | None = None
    origins: Mapping[str, Origin] = field(default_factory=dict, compare=False)
    """The places in the aggregate's text behind each hidden column's SQL."""

    @classmethod
    def parse(cls, name: str, text: str, columns: Collection[str] | None = None) -> "AggregateSpec":
        """Parse the text; ConfigError names the aggregate, the place in the text and the valid forms.

        An argument that is the name of one of `columns`, those of the source, is this column, whatever it would mean as SQL.
        Without `columns` a text that may be such a name is not checked as SQL.

        >>> AggregateSpec.parse("r", "sum(price * 2) filter (where buys)", ["price", "buys"]).computed
        {'case when buys then price * 2 end': 'case when `buys` then price * 2 end'}
        """
        if _CLASS.fullmatch(text.strip()):
            return cls(name, "class", path=text.strip())
        return _Parser(name, text, columns).spec()

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns that the aggregate reads, hidden ones too, if its text names any."""
        return (PARTITION, OFFSET) if self.of_positions else self.columns

    @property
    def of_positions(self) -> bool:
        """Whether it reads the events' positions in their topic."""
        return self.function in _OF_POSITIONS


class _Parser:
    """A text's parser."""

    def __init__(self, name: str, text: str, known: Collection[str] | None) -> None:
        self._name, self._text, self._known = name, text, known
        self._setting = f"aggregates.{name}"
        self._computed: dict[str, str] = {}
        self._origins: dict[str, Origin] = {}

    def spec(self) -> AggregateSpec:
        call = self._call()
        if call.distinct is not None:
            call = self._of_distinct(call)
        called = call.name
        call = replace(call, name=ALIASES.get(called, called))
        function = FUNCTIONS.get(call.name)
        if function is None:
            near = did_you_mean(called, [*FUNCTIONS, *ALIASES])
            raise self._error(
                f"is unknown{near}; write one of {', '.join(FUNCTIONS)} as in 'sum(column)', or 'package.module:Class'"
            )
        parts = self._columns(call, function)
        literals = self._literals(called, call, function, call.arguments[len(parts) :])
        name, columns = self._filtered(call, function, parts)
        return AggregateSpec(self._name, name, columns, literals, self._computed, origins=self._origins)

    def _call(self) -> Call:
        today = _OF_TODAY.fullmatch(self._text)
        if today is not None and self._known is not None and today[2] in self._known:
            return _call_of_today(today)
        if re.match(r"\s*[\w.]+:\w+\s+filter\b", self._text, re.IGNORECASE):
            raise self._error("is a class, which takes no filter; leave events out in its own code")
        try:
            call = read_call(self._setting, self._text)
        except ConfigError:
            if today is None or self._known is not None:
                raise
            return _call_of_today(today)
        every = call.name == "count" and [part.text for part in call.arguments] == ["*"]
        return replace(call, arguments=()) if every else call

    def _of_distinct(self, call: Call) -> Call:
        if call.name != "count" or len(call.arguments) != 1:
            raise self._error("has DISTINCT, which only count(distinct column) may have; leave it out", call.distinct)
        return Call("count_distinct", call.arguments, condition=call.condition)

    def _columns(self, call: Call, function: Function) -> tuple[Part, ...]:
        """Return the arguments that are columns."""
        given = call.arguments
        least = function.columns if function.least is None else function.least
        if len(given) < least:
            missing = "column" if not given else "second column"
            raise self._error(f"names no {missing}; write '{function.example(call.name)}'")
        if given and not function.columns:
            raise self._error(f"takes no column; write '{call.name}()'")
        return given[: function.columns]

    def _literals(self, called: str, call: Call, function: Function, given: Sequence[Part]) -> tuple[Literal, ...]:
        """Return the literals after the columns; `called` is the function's name in the text, which may be an alias."""
        if len(given) > len(function.literals):
            count = "one column only" if function.columns == 1 else f"{function.columns} columns only"
            allowed = count if not function.literals else f"{len(function.literals)} arguments after the column"
            more = given[len(function.literals)]
            raise ConfigError(
                f"{self._setting}: {call.name} takes {allowed}; remove {more.text!r}{self._place(more.at)}"
            )
        found = []
        for i, literal in enumerate(function.literals):
            text = given[i].text if i < len(given) else None
            if text is None and isinstance(literal, Number) and literal.optional:
                continue
            if text is None and literal.is_required:
                written = function.example(called, [part.text for part in call.arguments])
                raise self._error(f"names no {literal.role}; write '{written}'")
            value = literal.read(text)
            if value is None:
                place = self._place(given[i].at) if i < len(given) else ""
                raise ConfigError(
                    f"{self._setting}: {text!r} must be {literal.wanted()}; write '{function.example(call.name)}'{place}"
                )
            found.append(value)
        return tuple(found)

    def _filtered(self, call: Call, function: Function, parts: Sequence[Part]) -> tuple[str, tuple[str, ...]]:
        """Return the function and its columns: for `f(e) filter (where c)` the column `case when c then e end`."""
        if call.condition is None:
            return call.name, tuple(self._column(part) for part in parts)
        if not function.filtered:
            raise self._error(f"has a filter, which {call.name} does not take; leave it out", call.condition.at)
        self._check(call.condition)
        if call.name == "count" and not parts:
            return "count_if", (self._column(call.condition),)
        return call.name, tuple(self._chosen(call.condition, part) for part in parts)

    def _chosen(self, condition: Part, part: Part) -> str:
        """Return the hidden column's name for an argument under a condition."""
        when, value = self._sql(condition), self._sql(part)
        at = len(_WHEN)
        pieces = ((at, condition.at - 1), (at + len(when) + len(_THEN), part.at - 1))
        return self._hidden(_case(condition.text, part.text), _case(when, value), pieces)

    def _column(self, part: Part) -> str:
        """Return the name of an argument's column, which is hidden if the argument is SQL."""
        named = self._named(part)
        if named is not None:
            return named
        self._check(part)
        return self._hidden(part.text, part.text, ((0, part.at - 1),))

    def _named(self, part: Part) -> str | None:
        """Return the source's column of an argument; None for SQL."""
        if self._known is not None and part.text in self._known:
            return part.text
        is_own = self._known is not None and part.text in (KEY, EVENT_TIME)
        return column_name(part.text) if _PATH.fullmatch(part.text) and not is_own else None

    def _sql(self, part: Part) -> str:
        named = self._named(part)
        if named is None:
            self._check(part)
            return part.text
        return ".".join(f"`{name.replace('`', '``')}`" for name in parts_of(named))

    def _hidden(self, name: str, sql: str, pieces: tuple[tuple[int, int], ...]) -> str:
        # The name depends on the texts alone, not on the known columns.
        self._computed[name], self._origins[name] = sql, Origin(self._text, pieces)
        return name

    def _check(self, part: Part) -> None:
        """Parse SQL; without the source's columns only what can be no column's name."""
        if self._known is None and not set(part.text) & set("(),"):
            return
        from sessionlake.columnar.spark_sql import parse  # noqa: PLC0415 (configs without SQL are read without it)

        parse(self._setting, part.text, Origin(self._text, ((0, part.at - 1),)))

    def _error(self, told: str, at: int | None = None) -> ConfigError:
        """Return an error about the text, at a place in it if given; `at` as in `Part`."""
        return ConfigError(f"{self._setting}: {self._text!r} {told}{'' if at is None else self._place(at)}")

    def _place(self, at: int) -> str:
        return at_character(self._text, at - 1)


def _call_of_today(found: re.Match[str]) -> Call:
    parts = [Part(found[group], found.start(group) + 1) for group in (2, 3) if found[group]]
    return Call(found[1], tuple(parts))


def _case(condition: str, value: str) -> str:
    return f"{_WHEN}{condition}{_THEN}{value} end"


def parse_aggregates(texts: Mapping[str, str], columns: Callable[[], Collection[str]]) -> list[AggregateSpec]:
    """Return the parsed aggregates of a config.

    `columns` returns the names of the source's columns, and is called only if a text may be one of them or SQL.
    """
    specs = [AggregateSpec.parse(name, text) for name, text in texts.items()]
    if any(spec.computed or {KEY, EVENT_TIME} & set(spec.columns) for spec in specs):
        known = columns()
        specs = [AggregateSpec.parse(name, text, known) for name, text in texts.items()]
    return specs


def hidden_columns(specs: Iterable[AggregateSpec]) -> dict[str, tuple[str, str, Origin]]:
    """Return by name the hidden columns of aggregates: the key in the config, the SQL, and its source text."""
    return {
        name: (f"aggregates.{spec.name}", sql, spec.origins[name])
        for spec in specs
        for name, sql in spec.computed.items()
    }


def build_aggregates(
    specs: Mapping[str, str],
    types: Mapping[str, pa.DataType],
    *,
    with_id: bool = False,
    directory: str | None = None,
    subtracts: bool = False,
    id_order: IdOrder = BY_TEXT,
) -> tuple[Aggregate, ...]:
    """Return the aggregates of a config, in its order.

    `types` gives the Arrow type of every column, hidden ones too; `with_id` says that events carry an id (ties of first, last,
    collect), which are compared by `id_order`; a user's class is looked for in `directory` too, last. With `subtracts` all have `inverted`; ConfigError names one
    that can't.

    >>> (total,) = build_aggregates({"total": "sum(x)"}, {"x": pa.int64()}, subtracts=True)
    >>> states = [pa.array([0]), pa.array([7]), pa.array([1])]
    >>> [column.to_pylist() for column in total.inverted(states)]
    [[-1], [4294967289], [-1]]
    """
    built = tuple(
        _build(AggregateSpec.parse(name, text, types), types, with_id=with_id, directory=directory, subtracts=subtracts)
        for name, text in specs.items()
    )
    for aggregate in built:
        aggregate.id_order = id_order
    return built


def _build(
    spec: AggregateSpec,
    types: Mapping[str, pa.DataType],
    *,
    with_id: bool,
    directory: str | None,
    subtracts: bool,
) -> Aggregate:
    if spec.path is not None:
        custom = build_custom(spec.name, spec.path, directory)
        if subtracts and custom.inverted([pa.array([], type_) for type_ in custom.state]) is None:
            raise refused(spec.name, spec.path, "a class that has merger and inverse(aggregate)")
        return custom
    for column in spec.columns:
        if column not in types:
            raise ConfigError(
                f"aggregates.{spec.name}: no column {column!r} in the events; pick one of {', '.join(sorted(types))}"
            )
    of_columns = tuple(types[column] for column in spec.columns)
    build = build_signed if subtracts else FUNCTIONS[spec.function].build
    return build(Asked(spec.name, spec.function, spec.columns, of_columns, spec.literals, with_id))


def build_custom(name: str, path: str, directory: str | None = None) -> Custom:
    """Return the aggregate of a user's class: by KIP-94's three methods, by `evaluate` or by `reducer`; ConfigError for none."""
    user = load_user(name, path, directory)
    missing = [part for part in KIP_94 if not callable(getattr(user, part, None))]
    if not missing:
        return Folded(name, path, directory, user)
    if callable(getattr(user, "evaluate", None)):
        return Evaluated(name, path, directory, user)
    if callable(getattr(user, "reducer", None)):
        return Reduced(name, path, directory, user)
    raise ConfigError(
        f"aggregates.{name}: {path!r} lacks {', '.join(missing)}; add these methods, or in their place reducer(left, right) or evaluate(key, rows)"
    )
