"""From SQL in a config to an `Expression`, in two steps: names are known before types are."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, pairwise
from typing import cast

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.dialects import Spark
from sqlglot.errors import SqlglotError, TokenError

from sessionlake.column_names import DEPTH, name_of
from sessionlake.columnar.expressions import CLOCK, Expression
from sessionlake.columnar.spark_sql.calls import CALLS, calls_in
from sessionlake.columnar.spark_sql.decimals import PLUS, as_double, column_digits, widened
from sessionlake.columnar.spark_sql.dialect import SparkByNames
from sessionlake.columnar.spark_sql.functions import ANY, BY_NAME, FUNCTIONS, RULES_BY_NAME, SHAPED
from sessionlake.columnar.spark_sql.nested import NESTED, NESTED_BY_NAME
from sessionlake.columnar.spark_sql.operators import OPERATORS
from sessionlake.columnar.spark_sql.typed import (
    DUCK,
    EXPRESSIONS,
    PAGE,
    Function,
    Rule,
    Typed,
    column_type,
    composed_type,
    operands,
    unread,
)
from sessionlake.columnar.sql_places import Origin, SqlError, sql_error
from sessionlake.errors import did_you_mean, first_line

_BY_NAME: Mapping[str, Rule] = {**RULES_BY_NAME, **NESTED_BY_NAME}
_RULES: Mapping[type[exp.Expression], Rule] = {**OPERATORS, **SHAPED, **NESTED}
_WORDS = (
    exp.Identifier,
    exp.Var,
    exp.DataType,
    exp.DataTypeParam,
    exp.JSONPath,
    exp.JSONPathPart,
    exp.Lambda,
    exp.PropertyEQ,
)
"""Parts of a tree that are no expressions; the rules for their parents read them."""
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_PREDICATES = (exp.Not, exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.Escape, exp.RegexpLike)
_LACKING = re.compile(r"Required keyword: '\w+' missing for <class .*>")
_UNARY_PLUS = re.compile(r"(?:^|[^\s\w)\]'\"`]|\b(?:div|and|or|not|then|else|when|in|between))\s*\+\s*$", re.IGNORECASE)
_PARTS = "parts"
"""The key of a column's parts in the notes on its node."""
_OPENING = re.compile(r"['\"`]|/\*")


@dataclass(frozen=True)
class Parsed:
    """SQL that was parsed, and not yet checked against the columns' types."""

    setting: str
    text: str
    tree: exp.Expression
    columns: tuple[str, ...]
    """The columns that it names, in order of first use."""
    origin: Origin | None = None
    """The SQL's source text, if it is not the SQL itself."""

    def typed(self, types: Mapping[str, pa.DataType], result: str) -> Expression:
        """Return the expression over columns of the given types; ConfigError, a single line, if its type is not `result`."""
        done, uses_clock = self.translated(types, {name: f"c{i}" for i, name in enumerate(self.columns)})
        if done.type not in (result, "null"):
            raise self.error(f"{self.text!r} is of type {done.type}, and must be of type {result}")
        found = Expression(self.text, f"try({done.sql})", self.columns, result, uses_clock)
        try:
            # Errors that only DuckDB finds, for example in an rlike's pattern, are reported before the first batch.
            found.evaluate({name: pa.nulls(1, types[name]) for name in self.columns}, 1)
        except Exception as error:
            raise self.error(f"{self.text!r} can't be computed ({first_line(error)}); {PAGE}") from error
        return found

    def translated(self, types: Mapping[str, pa.DataType], places: Mapping[str, str]) -> tuple[Typed, bool]:
        """Return the SQL over columns that DuckDB has under the names `places`, and whether it reads the clock."""
        for name in self.columns:
            if name not in types:
                used = next(node for node in self.tree.find_all(exp.Column, bfs=False) if _column_name(node) == name)
                raise self.error(f"{name!r} is no column; write one of {', '.join(types)}", used)
        walk = _Walk(self, types, places)
        try:
            return walk.of(self.tree), walk.uses_clock
        except RecursionError as error:
            raise _too_deep(self.setting, self.text) from error

    def error(self, told: str, node: exp.Expression | None = None) -> SqlError:
        """Return an error at a part, or without a part about the whole."""
        # Without an origin the message has the whole as the user wrote it.
        start = start_of(node) if node is not None else 0 if self.origin is not None else None
        return sql_error(self.setting, told, "" if start is None else (self.origin or Origin(self.text)).place(start))


def parse(setting: str, text: str, origin: Origin | None = None) -> Parsed:
    """Parse Spark's SQL. Errors name `setting`, and the place in the text that the SQL was made of: `origin`, or itself.

    Raises SqlError in one line if the text is no SQL, or if it calls a function that is not listed.
    """
    written = origin or Origin(text)
    try:
        tree = cast("exp.Expression", sqlglot.parse_one(text, read=SparkByNames).transform(_with_names, copy=False))
        nodes = cast("list[exp.Expression]", list(tree.walk()))
    except RecursionError as error:
        raise _too_deep(setting, text) from error
    except SqlglotError as error:
        start = _start_of_error(text, error)
        reason = f"{text!r} is no expression of Spark's SQL ({told_by(error)}); correct it"
        raise sql_error(setting, reason, "" if start is None else written.place(start)) from error
    for node in nodes:
        if isinstance(node, exp.Literal) and _UNARY_PLUS.search(text[: node.meta.get("start", 0)]):
            node.meta[PLUS] = True
    tokens = Spark().tokenize(text)
    for pair in pairwise(tokens):
        # Spark reads '' as a quote, or as the end of a text and the begin of another, by its version.
        if all(token.token_type.name == "STRING" for token in pair):
            reason = f"{text!r} has two texts side by side; write \\' for a quote in a text"
            raise sql_error(setting, reason, written.place(pair[1].start))
        # The parser gives 0.05BD another number of digits than Spark.
        if pair[0].token_type.name == "DCOLON" and pair[1].text.upper() == "BD":
            raise sql_error(
                setting, f"{text!r} has a number with BD; leave the two letters out", written.place(pair[1].start)
            )
    columns = (_column_name(node) for node in tree.find_all(exp.Column, bfs=False))
    parsed = Parsed(setting, text, tree, tuple(dict.fromkeys(columns)), origin)
    _check_nodes(parsed, nodes)
    for call in calls_in(tokens):
        if call.wrong is not None:
            raise sql_error(setting, f"{call.name!r} {call.wrong}; {PAGE}", written.place(call.start))
    return parsed


def _with_names(node: exp.Expr) -> exp.Expr:
    """Return the column of a path's name for a path (rule 460), and any other part as it is."""
    fields: list[exp.Expr] = []
    base = node
    while isinstance(base, exp.Dot) and isinstance(base.expression, exp.Identifier):
        fields.append(base.expression)
        base = base.this
    if not isinstance(base, exp.Column) or not all(isinstance(part, exp.Identifier) for part in base.parts):
        return node
    parts = [*base.parts, *reversed(fields)]
    if len(parts) == 1:
        return node
    texts = [part.name for part in parts]
    name = exp.Identifier(this=name_of(texts), quoted=False)
    # Errors say the place of the path, which is the place of its first part.
    name.meta.update({**parts[0].meta, _PARTS: texts})
    return exp.Column(this=name)


def _column_name(node: exp.Column) -> str:
    return name_of(node.this.meta.get(_PARTS) or [node.name])


def _check_nodes(parsed: Parsed, nodes: Sequence[exp.Expression]) -> None:
    """Raise SqlError for the first node that is not listed, has an unread argument, or differs in Spark."""
    for node in nodes:
        if isinstance(node, exp.Anonymous):
            listed = node.name.lower() in BY_NAME or node.name.lower() in _BY_NAME
        else:
            listed = isinstance(node, _WORDS) or type(node) in _RULES or type(node) in FUNCTIONS
        if not listed:
            # Another function of Spark's is no slip of the pen.
            near = did_you_mean(node.name.lower(), [*CALLS]) if isinstance(node, exp.Anonymous) else ""
            raise parsed.error(f"{_name(node)!r} is not listed for expressions{near}; {PAGE}", node)
    for node in nodes:
        if isinstance(node, exp.Column) and len(node.this.meta.get(_PARTS, ())) > DEPTH:
            raise parsed.error(
                f"{node.sql('spark')!r} has more than {DEPTH} fields in each other; read a field above", node
            )
        argument = unread(node) if type(node) in EXPRESSIONS else None
        if argument is not None:
            raise parsed.error(f"{node.sql('spark')!r} has {argument!r}, which is not listed; {PAGE}", node)
        if isinstance(node, exp.Lambda):
            _check_variables(parsed, node)
        if isinstance(node, _COMPARISONS) and _reads_another_way(node):
            reason = f"{node.sql('spark')!r} compares the result of another comparison; write brackets around that"
            raise parsed.error(reason, node)


def _check_variables(parsed: Parsed, function: exp.Lambda) -> None:
    """Raise SqlError for a column named as a lambda's variable, perhaps but for case: Spark would take it for the variable."""
    names = {name.name.lower(): name.name for name in function.expressions}
    for column in function.this.find_all(exp.Column):
        name = (column.this.meta.get(_PARTS) or [column.name])[0]
        if name.lower() in names:
            raise parsed.error(
                f"{name!r} may mean the variable {names[name.lower()]!r} or a column; choose another variable", column
            )


def _reads_another_way(node: exp.Binary) -> bool:
    """Say whether Spark takes the operands of a comparison for others: `a = b is null` is `(a = b) is null` there, and `a = (b is null)` here."""
    behind = (*_COMPARISONS, *_PREDICATES)
    return isinstance(node.this, (exp.NullSafeEQ, exp.NullSafeNEQ, *_PREDICATES)) or isinstance(node.expression, behind)


def told_by(error: SqlglotError) -> str:
    """Return sqlglot's error in one line, without its place and class names."""
    if isinstance(error, TokenError):
        return "a quote or a comment is not closed"
    known = getattr(error, "errors", None)
    reason = known[0]["description"] if known else first_line(error)
    return "an operand or an argument is missing" if _LACKING.fullmatch(reason) else reason.rstrip(".")


def _start_of_error(text: str, error: SqlglotError) -> int | None:
    """Return the character of a text, from 0 on, at which the parser stops; None if it does not say."""
    if isinstance(error, TokenError):
        return next(
            (found.start() for found in reversed([*_OPENING.finditer(text)]) if _is_read(text[: found.start()])), None
        )
    for known in getattr(error, "errors", None) or ():
        lines, word = text.split("\n"), known["highlight"] or ""
        # The parser's column is a word's last character.
        start = sum(len(line) + 1 for line in lines[: known["line"] - 1]) + known["col"] - len(word)
        return start if word and text.startswith(word, start) else None
    return None


def _is_read(text: str) -> bool:
    try:
        Spark().tokenize(text)
    except TokenError:
        return False
    return True


def start_of(node: exp.Expression) -> int | None:
    """Return the first character of a part, from 0 on. The parser knows those of names, functions and values.

    Any other part begins with the first part in it that has one. Without any, the nearest part around it is taken.
    """
    around: exp.Expr | None = node
    while around is not None:
        starts = [part.meta["start"] for part in around.walk() if "start" in part.meta]
        if starts:
            return int(min(starts))
        around = around.parent
    return None


def _too_deep(setting: str, text: str) -> SqlError:
    return sql_error(
        setting,
        f"the SQL of {len(text):,} characters that begins with {text[:40]!r} is nested too deeply; write less of it, as "
        "`x in (1, 2, 3)` in place of many comparisons",
    )


def _name(node: exp.Expression) -> str:
    """Return a function's name, or an expression's SQL if it is no function."""
    if isinstance(node, exp.Anonymous):
        return node.name
    sql = node.sql("spark")
    return sql.partition("(")[0].lower() if isinstance(node, exp.Func) else sql


class _Walk:
    """One walk over a tree; see `Walk`."""

    def __init__(self, parsed: Parsed, types: Mapping[str, pa.DataType], places: Mapping[str, str]) -> None:
        self._parsed, self._types, self._places = parsed, types, places
        self._seen: set[int] = set()
        self._variables: dict[str, Typed] = {}
        self._fresh = count(1)
        self.uses_clock = False

    def of(self, node: exp.Expression) -> Typed:
        self._seen.add(id(node))
        rule = _BY_NAME.get(node.name.lower()) if isinstance(node, exp.Anonymous) else _RULES.get(type(node))
        if rule is not None:
            done = rule(self, node)
        elif isinstance(node, exp.Anonymous):
            done = self._call(node, BY_NAME[node.name.lower()])
        elif type(node) in FUNCTIONS:
            done = self._call(node, FUNCTIONS[type(node)])
        else:
            raise self.error(node, f"is not listed; {PAGE}")
        # A rule that does not read a part, such as a function's flag, does not know its meaning.
        for child in node.iter_expressions():
            if id(child) not in self._seen:
                raise self.error(node, f"has {child.sql('spark')!r}, which is not listed; {PAGE}")
        return done

    def _call(self, node: exp.Expression, function: Function) -> Typed:
        self.uses_clock = self.uses_clock or CLOCK in function.sql
        given = operands(node)
        if len(given) != len(function.takes):
            raise self.error(node, f"has {len(given)} arguments; write {len(function.takes)}")
        arguments: list[str] = []
        for child, takes in zip(given, function.takes, strict=True):
            types, part = takes.split("|"), self.of(child)
            if part.type not in (*types, "null") and takes != ANY:
                raise self.error(node, f"is called with a {part.type}; cast it to {' or '.join(types)}")
            # A null without a type would leave open which of several functions of a name is meant.
            arguments.append(f"cast({part.sql} as {DUCK[types[0]]})" if part.type == "null" else part.sql)
        return Typed(function.sql.format(*arguments), function.gives)

    def boolean(self, node: exp.Expression) -> str:
        return self._as(node, "boolean", "compare it")

    def text(self, node: exp.Expression) -> str:
        return self._as(node, "string", "cast it to string")

    def _as(self, node: exp.Expression, type_: str, advice: str) -> str:
        part = self.of(node)
        if part.type not in (type_, "null"):
            composed = composed_type(part.type)
            if composed is not None and composed.fields:
                advice = f"read a field, as {node.sql('spark')}.{composed.fields[0]}"
            raise self.error(node, f"is of type {part.type}, where {type_} is needed; {advice}")
        return f"cast({part.sql} as {DUCK[type_]})" if part.type == "null" else part.sql

    def seen(self, node: exp.Expression) -> exp.Expression:
        self._seen.add(id(node))
        return node

    def column(self, node: exp.Expression) -> Typed:
        name = _column_name(cast("exp.Column", node))
        given = self._types[name]
        type_ = column_type(given)
        if type_ is None:
            raise self.error(node, f"is of type {given}, which expressions can't read; leave it out")
        return Typed(self._places[name], type_, column_digits(given))

    def fresh(self) -> str:
        return f"e{next(self._fresh)}"

    @contextmanager
    def naming(self, name: str, part: Typed) -> Iterator[None]:
        before = self._variables
        self._variables = {**before, name: part}
        yield
        self._variables = before

    def variable(self, node: exp.Expression) -> Typed:
        if node.name not in self._variables:
            raise self.error(node, f"is not listed; {PAGE}")
        return self._variables[node.name]

    def unified(self, node: exp.Expression, parts: list[Typed]) -> tuple[list[str], str]:
        types = {part.type for part in parts} - {"null"}
        if types == {"decimal"} and len({part.digits for part in parts}) > 1:
            types |= {"bigint"}
        if len(types) <= 1:
            return [part.sql for part in parts], next(iter(types), "null")
        if types <= {"bigint", "double", "decimal"} and "double" in types:
            return [as_double(part) for part in parts], "double"
        if types == {"bigint", "decimal"}:
            decimals = widened(parts)
            if decimals is not None:
                return decimals, "decimal"
        if types == {"date", "timestamp"}:
            return [f"cast({part.sql} as timestamp)" for part in parts], "timestamp"
        raise self.error(node, f"has {' and '.join(sorted(types))} side by side; cast one of them")

    def error(self, node: exp.Expression, told: str) -> SqlError:
        return self._parsed.error(f"{node.sql('spark')!r} {told}", node)
