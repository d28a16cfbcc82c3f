"""Types in a config's words: what is printed is read again, in Spark and DuckDB too, and what is no type is refused in one line."""

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.sql_types import DEEPEST, FORMS, PLAIN, SqlType, parse_type, wrong_fields

plain = st.sampled_from([*PLAIN, "bigint", "decimal(10, 2)", "decimal(38, 0)"]).map(parse_type)
names = st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=4).filter(lambda some: not wrong_fields(some))


def composed(part: st.SearchStrategy[SqlType]) -> st.SearchStrategy[SqlType]:
    structs = names.flatmap(
        lambda fields: st.lists(part, min_size=len(fields), max_size=len(fields)).map(
            lambda parts: SqlType("struct", tuple(parts), tuple(fields))
        )
    )
    lone = st.sampled_from(["array", "map"]).flatmap(lambda name: part.map(lambda one: SqlType(name, (one,))))
    return structs | lone


types = st.recursive(plain, composed, max_leaves=6)


@given(types)
def test_what_is_printed_is_read_again(type_: SqlType) -> None:
    assert parse_type(str(type_)) == type_


@given(types.filter(lambda type_: not any(mark in str(type_) for mark in '"\0\ud800')))
def test_duckdb_has_each_type(type_: SqlType) -> None:
    with duckdb.connect() as database:
        (found,) = database.sql(f"select cast(null as {type_.duck})").types
        (again,) = database.sql(f"select cast(null as {found})").types
        assert found == again
        assert str(found).count("[]") == str(type_).count("array<") + str(type_).count("map<")


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("long", "bigint"),
        ("ARRAY < Map<STRING,array<long>> >", "array<map<string, array<bigint>>>"),
        ("struct<a: long, `x y` decimal(3,1)>", "struct<a: bigint, `x y`: decimal(3, 1)>"),
        ("struct<a long,`b``c`:date>", "struct<a: bigint, `b``c`: date>"),
        ("array<" * DEEPEST + "date" + ">" * DEEPEST, "array<" * DEEPEST + "date" + ">" * DEEPEST),
    ],
)
def test_forms_of_types(text: str, printed: str) -> None:
    assert str(parse_type(text)) == printed


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("int", "'int' is no type"),
        ("", "'' lacks a type"),
        ("array<int>", "'array<int>' has 'int', which is no type"),
        ("array<long", "'array<long' lacks '>'"),
        ("array<long>>", "'array<long>>' has '>' behind its end"),
        ("array", "'array' lacks '<'"),
        ("map<long, string>", "'map<long, string>' has a map with keys of type bigint, and only strings can be keys"),
        ("map<string>", "'map<string>' has '>' in place of ','"),
        ("decimal(3, 4)", "'decimal(3, 4)' has a decimal without a precision from 1 to 38 and a scale up to it"),
        ("decimal(39, 4)", "'decimal(39, 4)' has a decimal without a precision from 1 to 38 and a scale up to it"),
        ("decimal", "'decimal' has a decimal without a precision from 1 to 38 and a scale up to it"),
        ("struct<>", "'struct<>' lacks the name of a field"),
        ("struct<a>", "'struct<a>' has '>', which is no type"),
        ("struct<a::long>", "'struct<a::long>' has ':', which is no type"),
        ("struct<a long,>", "'struct<a long,>' lacks the name of a field"),
        ("struct<a long, A date>", "'struct<a long, A date>' has the fields 'a' and 'A', which are one name in SQL"),
        ("struct<a long, a long>", "'struct<a long, a long>' has the field 'a' twice"),
        ("struct<`a long>", "'struct<`a long>' has a backquote that is not closed"),
        ("`array`<long>", "'`array`<long>' lacks a type"),
        ("array<" * 33 + "date" + ">" * 33, f"'{('array<' * 33)[:77]}...' is nested deeper than 32 types"),
    ],
)
def test_what_is_no_type_is_refused_in_one_line(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]*$") as raised:
        parse_type(text)
    assert str(raised.value) == f"{told}; write {FORMS}"
