"""Arrow's types of columns: those of stored commits stay readable, and a list is one type by any writer's name of its elements."""

import pyarrow as pa
import pytest

from sessionlake.columnar.column_types import arrow_of, sql_type_of, stored_text, stored_type, type_name, type_named
from sessionlake.sql_types import PLAIN, parse_type

COMMITTED = {
    "int64": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "bool": pa.bool_(),
    "timestamp[us, tz=UTC]": pa.timestamp("us", "UTC"),
    "timestamp[us]": pa.timestamp("us"),
    "date32[day]": pa.date32(),
    "binary": pa.binary(),
    "decimal128(9, 2)": pa.decimal128(9, 2),
}
"""The texts in the commits of all releases, and their types."""


@pytest.mark.parametrize("text", COMMITTED)
def test_the_text_of_a_plain_type_in_commits_stays(text: str) -> None:
    assert stored_type(text) == COMMITTED[text]
    assert stored_text(COMMITTED[text]) == text


@pytest.mark.parametrize(
    "text",
    ["array<string>", "map<string, array<decimal(9, 2)>>", "struct<a: array<timestamp>, `b c`: map<string, date>>"],
)
def test_a_composed_type_is_read_again_from_its_text_in_commits(text: str) -> None:
    type_ = type_named(text)
    assert stored_text(type_) == type_name(type_) == text
    assert stored_type(text) == type_
    assert sql_type_of(type_) == parse_type(text)


@pytest.mark.parametrize("text", ["list<item: int64>", "array<int>", "int32", "", "decimals"])
def test_an_unknown_text_in_commits_is_an_error(text: str) -> None:
    with pytest.raises(KeyError):
        stored_type(text)


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (pa.list_(pa.field("element", pa.int32())), "array<bigint>"),
        (pa.large_list(pa.large_string()), "array<string>"),
        (pa.list_(pa.float32(), 3), "array<double>"),
        (pa.list_(pa.dictionary(pa.int32(), pa.string())), "array<string>"),
        (pa.map_(pa.string(), pa.timestamp("ns", "Europe/Berlin")), "map<string, timestamp>"),
        (pa.struct([("a", pa.uint8()), ("b", pa.list_(pa.bool_()))]), "struct<a: bigint, b: array<boolean>>"),
        (pa.map_(pa.int64(), pa.string()), None),
        (pa.map_(pa.list_(pa.string()), pa.string()), None),
        (pa.list_(pa.binary()), None),
        (pa.list_(pa.null()), None),
        (pa.struct([("a", pa.int64()), ("A", pa.int64())]), None),
        (pa.struct([]), None),
        (pa.struct([("a", pa.int64()), ("b", pa.duration("s"))]), None),
        (pa.list_view(pa.string()), None),
    ],
)
def test_types_of_files_are_read_as_the_widest(type_: pa.DataType, text: str | None) -> None:
    found = sql_type_of(type_)
    assert (None if found is None else str(found)) == text


def test_a_type_that_is_nested_too_deeply_is_none() -> None:
    type_ = pa.int64()
    for _ in range(32):
        type_ = pa.list_(type_)
    assert sql_type_of(type_) is not None
    assert sql_type_of(pa.list_(type_)) is None


@pytest.mark.parametrize("text", PLAIN)
def test_a_plain_type_is_called_in_errors_as_in_a_config(text: str) -> None:
    assert type_name(arrow_of(parse_type(text))) == text
