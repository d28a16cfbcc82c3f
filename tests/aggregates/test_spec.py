"""The text form of aggregates: columns, hidden columns of SQL, FILTER (docs/rules.md, rule 215)."""

import re

import pyarrow as pa
import pytest

from sessionlake.aggregates import AggregateSpec, build_aggregates
from sessionlake.aggregates.functions import FUNCTIONS
from sessionlake.aggregates.spec import hidden_columns
from sessionlake.errors import ConfigError
from sessionlake.stream.shape import Shaping

COLUMNS = ("price", "item", "type", "load-ms", "user's", "b")
PARSED = {
    "count()": ("count", (), ()),
    "count(*)": ("count", (), ()),
    "sum(price)": ("sum", ("price",), ()),
    "sum(`price`)": ("sum", ("price",), ()),
    "sum(load-ms)": ("sum", ("load-ms",), ()),
    "count(user's)": ("count", ("user's",), ()),
    "percentile(load-ms, 0.5)": ("percentile", ("load-ms",), (0.5,)),
    "sum(price * 2)": ("sum", ("price * 2",), ()),
    "count(distinct item)": ("count_distinct", ("item",), (4096,)),
    "count() filter (where b)": ("count_if", ("b",), ()),
    "count(*) filter (where type = 'x')": ("count_if", ("type = 'x'",), ()),
    "sum(load-ms) filter (where b)": ("sum", ("case when b then load-ms end",), ()),
    "sum(price * 2) filter (where type = 'x')": ("sum", ("case when type = 'x' then price * 2 end",), ()),
    "last(key)": ("last", ("key",), ()),
}


@pytest.mark.parametrize("text", PARSED)
def test_columns_are_those_of_the_source_or_hidden(text: str) -> None:
    spec = AggregateSpec.parse("a", text, COLUMNS)
    assert (spec.function, spec.columns, spec.literals) == PARSED[text]
    assert list(spec.computed) == [name for name in spec.columns if name not in COLUMNS]


@pytest.mark.parametrize("text", PARSED)
def test_hidden_columns_are_found_among_the_types_that_shaping_gives(text: str) -> None:
    names = AggregateSpec.parse("a", text, COLUMNS).columns
    types = dict.fromkeys((*COLUMNS, *names), pa.int64()) | {"b": pa.bool_(), "type = 'x'": pa.bool_()}
    (aggregate,) = build_aggregates({"a": text}, types)
    assert aggregate.inputs == names


def test_names_that_are_no_words_have_backquotes_in_sql() -> None:
    found = AggregateSpec.parse("a", "sum(load-ms) filter (where b)", COLUMNS).computed
    assert found == {"case when b then load-ms end": "case when `b` then `load-ms` end"}
    assert AggregateSpec.parse("a", "last(key)", COLUMNS).computed == {"key": "key"}


@pytest.mark.parametrize("text", PARSED)
def test_names_do_not_depend_on_known_columns(text: str) -> None:
    assert AggregateSpec.parse("a", text).columns == PARSED[text][1]


def test_a_name_that_no_source_has_shown_is_a_column() -> None:
    assert AggregateSpec.parse("a", "last(key)").computed == {}
    assert AggregateSpec.parse("a", "sum(load-ms)").columns == ("load-ms",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("summ(price)", "aggregates.a: 'summ(price)' is unknown (did you mean 'sum'?); write one of count, "),
        ("sum(distinct price)", "aggregates.a: 'sum(distinct price)' has DISTINCT, which only count(distinct column) may have; leave it out (at character 5: 'distinct price)')"),
        ("m.n:C filter (where b)", "aggregates.a: 'm.n:C filter (where b)' is a class, which takes no filter; "),
        ("first_position() filter (where b)", "aggregates.a: 'first_position() filter (where b)' has a filter, which first_position "),
        ("sum(price, 3)", "aggregates.a: sum takes one column only; remove '3' (at character 12: '3)')"),
        ("collect(price, 0)", "aggregates.a: '0' must be a number from 1 to 1000000; write 'collect(column, 100)' (at character 16: '0)')"),
        ("sum(price * (2)", "aggregates.a: 'sum(price * (2)' opens a bracket that is not closed at character 4"),
        ("sum(price +)", "aggregates.a: 'price +' is no expression of Spark's SQL (an operand or an argument is missing); correct it (at character 11: '+)')"),
        ("sum(row_number() over (order))", "aggregates.a: "),
        ("sum(soundex(item))", "aggregates.a: 'soundex' is not listed for expressions; docs/expressions.md lists all of them (at character 5: 'soundex(item))')"),
    ],
)  # fmt: skip
def test_wrong_texts_are_told_in_one_line(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(told)}[^\n]*$"):
        AggregateSpec.parse("a", text, COLUMNS)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sum( item * 2 )", "'item * 2' has bigint and string side by side; cast them to numbers (at character 6: 'item * 2 )')"),
        ("sum(price) filter (where item = 1)", "'item = 1' has bigint and string side by side; cast one of them (at character 26: 'item = 1)')"),
        (
            "sum(if(item, 1, 2)) filter (where b)",
            "'item' is of type string, where boolean is needed; compare it (at character 8: 'item, 1, 2)) filter (where b)')",
        ),
        (
            "sum(interval 1 hour) filter (where b)",
            "'case when `b` then interval 1 hour end' is of type interval; make it boolean or bigint or double or string or date or timestamp (at character 5: 'interval 1 hour) filter (where b)')",
        ),
    ],
)  # fmt: skip
def test_an_error_of_types_has_its_place_in_the_aggregate(text: str, told: str) -> None:
    spec = AggregateSpec.parse("a", text, COLUMNS)
    types = {"price": pa.int64(), "item": pa.string(), "b": pa.bool_()}
    with pytest.raises(ConfigError, match=f"^aggregates.a: {re.escape(told)}$"):
        Shaping("event", (), None, (), spec.inputs, hidden_columns([spec])).shape(types)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_in_an_error_is_a_call_of_its_function(name: str) -> None:
    spec = AggregateSpec.parse("a", FUNCTIONS[name].example(name))
    assert (spec.function, len(spec.columns)) == (name, FUNCTIONS[name].columns)
