"""Lists, structs and maps in expressions: their parts, functions over them, and lambdas.

A map is a list with its pairs (`SqlType.duck`). What is null for sure, as a column before its first value, has null parts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from sessionlake.columnar.spark_sql.typed import (
    PAGE,
    Rule,
    Typed,
    Walk,
    composed_type,
    part_type,
    plain_type,
    quoted,
)
from sessionlake.errors import did_you_mean
from sessionlake.sql_types import SqlType, wrong_fields

_NULL = Typed("null", "null")
_SIMPLE = re.compile(r"[a-z]\d+|'[^']*'|\(?-?\d+(::bigint)?\)?|true|false")
"""SQL that may be repeated at no cost: columns, variables and values."""
_INDEX = "list_extract({list}, case when {index} between 0 and 2147483646 then {index} + 1 end)"
_ELEMENT = "list_extract({list}, case when {index} between -2147483647 and 2147483647 then {index} end)"
_VALUE = "struct_extract(list_extract(list_filter({list}, lambda {it}: {it}.key = {key}), 1), 'value')"
_KEYS = "list_transform({list}, lambda {it}: {it}.key)"
_VALUES = "list_transform({list}, lambda {it}: {it}.value)"
_HAS_KEY = "(case when {key} is not null then list_contains(list_transform({list}, lambda {it}: {it}.key), {key}) end)"
_CONTAINS = """(case when {value} is null then null when list_contains({list}, {value}) then true
when list_count({list}) = len({list}) then false end)"""
_POSITION = """(case when {list} is not null and {value} is not null
then cast(coalesce(list_position({list}, {value}), 0) as bigint) end)"""
_FIRST = "list_extract({list}, list_position({list}, WORD({list})))"
"""The first of equal extremes, since 0.0 and -0.0 are equal."""
_JOINED = "(case when {list} is not null then coalesce(array_to_string({list}, {delimiter}), '') end)"
_FILLED = "list_transform({list}, lambda {it}: coalesce({it}, {default}))"
_SLICED = """(case when {start} = 0 or {length} < 0 or {start} is null or {length} is null or {list} is null then null
when {length} = 0 or {start} not between -len({list}) and len({list}) then list_filter({list}, lambda {it}: false)
when {start} > 0 then list_slice({list}, {start}, {start} + least({length}, len({list})) - 1)
else list_slice({list}, len({list}) + {start} + 1, len({list}) + {start} + least({length}, len({list}))) end)"""
_EXISTS = "(case when list_contains({list}, true) then true when list_count({list}) = len({list}) then false end)"
_FORALL = "(case when list_contains({list}, false) then false when list_count({list}) = len({list}) then true end)"
_ATOM = r"(?:[^\\\[\]{}()*+?.^$|]|\\[^A-Za-z0-9]|\\[tnrdws]|\[\^?(?:[^\\\[\]^&]|\\[^A-Za-z0-9])+\])\+?"
_SEPARATOR = re.compile(rf"(?:{_ATOM})+(?:\|(?:{_ATOM})+)*")
"""Patterns that never match an empty text, and mean the same in Java and RE2."""
_JAVA_BLANK = r"[ \t\n\x0B\f\r]"


def _filled(walk: Walk, template: str, **parts: str) -> str:
    """Fill a template. A part that it repeats is computed once; otherwise SQL would double with each call within another."""
    parts["it"] = walk.fresh()
    repeated = {
        name: sql for name, sql in parts.items() if template.count(f"{{{name}}}") > 1 and not _SIMPLE.fullmatch(sql)
    }
    if not repeated:
        return template.format(**parts)
    row = walk.fresh()
    given = ", ".join(f"'{name}': {sql}" for name, sql in repeated.items())
    return f"list_transform([{{{given}}}], lambda {row}: {template.format(**parts | {name: f'{row}.{name}' for name in repeated})})[1]"


@dataclass(frozen=True)
class _List:
    """A list; `element` is None for a part that is null for sure."""

    sql: str
    type: str
    element: SqlType | None


def _list(walk: Walk, node: exp.Expression) -> _List:
    part = walk.of(node)
    type_ = composed_type(part.type)
    if part.type != "null" and (type_ is None or type_.name != "array"):
        raise walk.error(node, f"is of type {part.type}, where a list is needed")
    return _List(part.sql, part.type, type_.parts[0] if type_ else None)


def _of_map(template: str, gives: str = "") -> Rule:
    """Return the rule for a function over a map; what it gives: an array of a type, or its values."""

    def rule(walk: Walk, node: exp.Expression) -> Typed:
        (given,) = node.expressions or [node.this]
        part = walk.of(given)
        type_ = composed_type(part.type)
        if part.type == "null":
            return _NULL
        if type_ is None or type_.name != "map":
            raise walk.error(given, f"is of type {part.type}, where a map is needed")
        return Typed(_filled(walk, template, list=part.sql), f"array<{gives or type_.parts[0]}>")

    return rule


def _has_key(walk: Walk, node: exp.Expression) -> Typed:
    part, key = walk.of(node.this), walk.text(node.args["key"])
    type_ = composed_type(part.type)
    if part.type != "null" and (type_ is None or type_.name != "map"):
        raise walk.error(node.this, f"is of type {part.type}, where a map is needed")
    return Typed(
        "cast(null as boolean)" if type_ is None else _filled(walk, _HAS_KEY, list=part.sql, key=key), "boolean"
    )


def _whole(walk: Walk, node: exp.Expression) -> str:
    part = walk.of(node)
    if part.type not in ("bigint", "null"):
        raise walk.error(node, f"is of type {part.type}, where a whole number is needed; cast it to bigint")
    return part.sql if part.type == "bigint" else "cast(null as bigint)"


def _bracket(walk: Walk, node: exp.Expression) -> Typed:
    """Translate `x[i]`, and `element_at(x, i)`, which the parser has as the same node with an offset."""
    if len(node.expressions) != 1:
        raise walk.error(node, f"is not listed; {PAGE}")
    part, (index,) = walk.of(node.this), node.expressions
    if part.type == "null":
        walk.of(index)
        return _NULL
    type_ = composed_type(part.type)
    if type_ is not None and type_.name == "map":
        return Typed(_filled(walk, _VALUE, list=part.sql, key=walk.text(index)), part_type(type_.parts[0]))
    if type_ is None or type_.name != "array":
        raise walk.error(
            node, f"has an index, and {node.this.sql('spark')!r} is of type {part.type}; take one from a list or a map"
        )
    template = _ELEMENT if node.args.get("offset") else _INDEX
    return Typed(_filled(walk, template, list=part.sql, index=_whole(walk, index)), part_type(type_.parts[0]))


def _dot(walk: Walk, node: exp.Expression) -> Typed:
    """Translate the field of a struct, of each struct in a list, or the value of a map, as Spark reads a dot."""
    part, field = walk.of(node.this), walk.seen(node.expression)
    if not isinstance(field, exp.Identifier):
        raise walk.error(node, f"is not listed; {PAGE}")
    name, type_ = field.name, composed_type(part.type)
    if part.type == "null":
        return _NULL
    if type_ is not None and type_.name == "map":
        return Typed(_filled(walk, _VALUE, list=part.sql, key=_key(walk, node, name)), part_type(type_.parts[0]))
    if type_ is not None and type_.name == "struct":
        return Typed(
            f"struct_extract({part.sql}, {_key(walk, node, name)})", part_type(_field(walk, node, type_, name))
        )
    if type_ is None or type_.parts[0].name != "struct":
        raise walk.error(node, f"names a field, and {node.this.sql('spark')!r} is of type {part.type}, which has none")
    it = walk.fresh()
    each = f"list_transform({part.sql}, lambda {it}: struct_extract({it}, {_key(walk, node, name)}))"
    return Typed(each, f"array<{_field(walk, node, type_.parts[0], name)}>")


def _key(walk: Walk, node: exp.Expression, name: str) -> str:
    if "\0" in name:
        raise walk.error(node, "has a character of the number 0; leave it out")
    return quoted(name)


def _field(walk: Walk, node: exp.Expression, struct: SqlType, name: str) -> SqlType:
    if name not in struct.fields:
        near = did_you_mean(name, struct.fields)
        raise walk.error(node, f"names no field{near}; write one of {', '.join(struct.fields)}")
    return struct.parts[struct.fields.index(name)]


def _size(walk: Walk, node: exp.Expression) -> Typed:
    (given,) = node.expressions or [node.this]
    part = walk.of(given)
    type_ = composed_type(part.type)
    if part.type != "null" and (type_ is None or type_.name == "struct"):
        raise walk.error(given, f"is of type {part.type}, where a list or a map is needed")
    return Typed("cast(null as bigint)" if type_ is None else f"len({part.sql})", "bigint")


def _searched(template: str, gives: str) -> Rule:
    """Return the rule for a function over a list and a value that may be in it."""

    def rule(walk: Walk, node: exp.Expression) -> Typed:
        given, value = _list(walk, node.this), walk.of(node.expression)
        if given.element is None:
            return Typed(f"cast(null as {gives})", gives)
        wanted = _plain(walk, node, given.element)
        if wanted == "decimal" and gives == "bigint":
            raise walk.error(node, "looks for the place of a decimal, which is not listed; cast the values to double")
        fits = value.type in (wanted, "null") or (wanted == "double" and value.type in ("bigint", "decimal"))
        if not fits:
            raise walk.error(node, f"looks for a {value.type} among values of type {wanted}; cast it to {wanted}")
        sql = value.sql if value.type == wanted else f"cast({value.sql} as {given.element.duck})"
        return Typed(_filled(walk, template, list=given.sql, value=sql), gives)

    return rule


def _plain(walk: Walk, node: exp.Expression, element: SqlType) -> str:
    if element.parts:
        raise walk.error(
            node, f"compares values of type {element}; compare a field of each, as in exists(x, y -> y.name = 'a')"
        )
    return part_type(element)


def _extreme(word: str) -> Rule:
    def rule(walk: Walk, node: exp.Expression) -> Typed:
        given = _list(walk, node.this)
        if given.element is None:
            return _NULL
        type_ = _plain(walk, node, given.element)
        if type_ != "double":
            return Typed(f"{word}({given.sql})", type_)
        return Typed(_filled(walk, _FIRST.replace("WORD", word), list=given.sql), type_)

    return rule


def _joined(walk: Walk, node: exp.Expression) -> Typed:
    given, delimiter = _list(walk, node.this), walk.seen(node.expression)
    default = walk.seen(node.args["null"]) if node.args.get("null") else None
    if not all(text is None or text.is_string for text in (delimiter, default)):
        raise walk.error(node, "is not listed; write the text between elements, and that for nulls, in quotes")
    if given.element is None:
        return Typed("cast(null as varchar)", "string")
    if given.element.name != "string":
        raise walk.error(
            node, f"joins values of type {given.element}; make them texts, as in transform(x, y -> cast(y as string))"
        )
    texts = given.sql if default is None else _filled(walk, _FILLED, list=given.sql, default=walk.text(default))
    return Typed(_filled(walk, _JOINED, list=texts, delimiter=walk.text(delimiter)), "string")


def _sorted(walk: Walk, node: exp.Expression) -> Typed:
    given, ascending = _list(walk, node.this), node.args.get("asc")
    for flag in (ascending, node.args.get("nulls_first")):
        if flag is not None and not isinstance(walk.seen(flag), exp.Boolean):
            raise walk.error(node, "is not listed; write true or false for its order")
    if given.element is None:
        return _NULL
    _plain(walk, node, given.element)
    order = "'DESC', 'NULLS LAST'" if ascending is not None and not ascending.this else "'ASC', 'NULLS FIRST'"
    return Typed(f"list_sort({given.sql}, {order})", given.type)


def _sliced(walk: Walk, node: exp.Expression) -> Typed:
    given, start, length = _list(walk, node.this), _whole(walk, node.args["start"]), _whole(walk, node.args["end"])
    if given.element is None:
        return _NULL
    return Typed(_filled(walk, _SLICED, list=given.sql, start=start, length=length), given.type)


def _each(walk: Walk, node: exp.Expression, *, is_test: bool) -> tuple[_List, str, Typed]:
    """Return a list, the variable of the lambda over it, and what the lambda computes."""
    array, function = node.expressions if isinstance(node, exp.Anonymous) else (node.this, node.expression)
    given, function = _list(walk, array), walk.seen(function)
    if not isinstance(function, exp.Lambda) or len(function.expressions) != 1:
        raise walk.error(node, "is not listed; write a list, and a function of one name, as in x -> x > 1")
    variable = Typed(walk.fresh(), "null" if given.element is None else part_type(given.element))
    with walk.naming(function.expressions[0].name, variable):
        body = Typed(walk.boolean(function.this), "boolean") if is_test else walk.of(function.this)
    return given, variable.sql, body


def _filter(walk: Walk, node: exp.Expression) -> Typed:
    given, name, body = _each(walk, node, is_test=True)
    return _NULL if given.element is None else Typed(f"list_filter({given.sql}, lambda {name}: {body.sql})", given.type)


def _transform(walk: Walk, node: exp.Expression) -> Typed:
    given, name, body = _each(walk, node, is_test=False)
    if given.element is None:
        return _NULL
    return Typed(f"list_transform({given.sql}, lambda {name}: {body.sql})", f"array<{_kept(walk, node, body)}>")


def _tested(template: str) -> Rule:
    def rule(walk: Walk, node: exp.Expression) -> Typed:
        given, name, body = _each(walk, node, is_test=True)
        if given.element is None:
            return Typed("cast(null as boolean)", "boolean")
        return Typed(_filled(walk, template, list=f"list_transform({given.sql}, lambda {name}: {body.sql})"), "boolean")

    return rule


def _kept(walk: Walk, node: exp.Expression, part: Typed) -> SqlType:
    """Return the type of a part within a list or a struct."""
    type_ = plain_type(part.type)
    if type_ is None:
        raise walk.error(node, f"has a part of type {part.type}; cast it to a type that a column may have")
    return type_


def _array(walk: Walk, node: exp.Expression) -> Typed:
    texts, type_ = walk.unified(node, [walk.of(part) for part in node.expressions])
    return Typed(f"list_value({', '.join(texts)})", f"array<{_kept(walk, node, Typed('', type_))}>")


def _struct(walk: Walk, node: exp.Expression) -> Typed:
    names, parts = [], []
    for pair in map(walk.seen, node.expressions):
        if not isinstance(pair, exp.PropertyEQ):
            raise walk.error(node, f"is not listed; {PAGE}")
        names.append(pair.this.name)
        parts.append(walk.of(pair.expression))
    reason = wrong_fields(names)
    if reason is not None:
        raise walk.error(node, reason)
    type_ = SqlType("struct", tuple(_kept(walk, node, part) for part in parts), tuple(names))
    pairs = ", ".join(f"{_key(walk, node, name)}: {part.sql}" for name, part in zip(names, parts, strict=True))
    return Typed(f"{{{pairs}}}", str(type_))


def _split(walk: Walk, node: exp.Expression) -> Typed:
    text, pattern = walk.text(node.this), walk.seen(node.expression)
    if not pattern.is_string or not _SEPARATOR.fullmatch(pattern.name):
        raise walk.error(
            node,
            "is not listed; write a text, and in quotes a pattern of characters, classes as [,;], \\s, + and | alone",
        )
    same = re.sub(r"\\(.)", lambda found: _JAVA_BLANK if found[1] == "s" else found[0], pattern.name, flags=re.DOTALL)
    return Typed(f"string_split_regex({text}, {quoted(same)})", "array<string>")


def _variable(walk: Walk, node: exp.Expression) -> Typed:
    return walk.variable(node)


NESTED: Mapping[type[exp.Expression], Rule] = {
    exp.Identifier: _variable,
    exp.Bracket: _bracket,
    exp.Dot: _dot,
    exp.ArraySize: _size,
    exp.ArrayContains: _searched(_CONTAINS, "boolean"),
    exp.ArrayPosition: _searched(_POSITION, "bigint"),
    exp.ArrayMin: _extreme("list_min"),
    exp.ArrayMax: _extreme("list_max"),
    exp.ArrayToString: _joined,
    exp.ArraySort: _sorted,
    exp.ArraySlice: _sliced,
    exp.ArrayFilter: _filter,
    exp.Transform: _transform,
    exp.Exists: _tested(_EXISTS),
    exp.MapKeys: _of_map(_KEYS, "string"),
    exp.MapContainsKey: _has_key,
    exp.Array: _array,
    exp.Struct: _struct,
    exp.RegexpSplit: _split,
}
NESTED_BY_NAME: Mapping[str, Rule] = {
    "cardinality": _size,
    "forall": _tested(_FORALL),
    "map_values": _of_map(_VALUES),
}
"""Functions that sqlglot knows only by name."""
