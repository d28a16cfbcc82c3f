"""Fields of files' rows (rules 460 to 462): nested rows give the tables and dead letters that the same rows give flat."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.columnar.column_types import type_named
from sessionlake.preflight.check import check
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.files import decode
from sessionlake.sources.decoding.tables import text_of_rows
from sessionlake.sources.infer import infer_types
from tests.support import examples, write_config

TYPES = {"user": pa.string(), "at": pa.string(), "n": pa.int64(), "x": pa.float64(), "ok": pa.bool_()}
PATHS = {"user": "who.id", "at": "at", "n": "data.`a.b`.n", "x": "data.`a.b`.x", "ok": "data.ok"}
"""Where nested rows have the flat rows' columns."""

values = {
    "user": st.one_of(st.text(max_size=3), st.integers(-5, 5), st.booleans()),
    "at": st.sampled_from(["2024-01-01T00:00:00Z", "x", 5]),
    "n": st.one_of(st.integers(-(2**63), 2**63 - 1), st.just(1.5), st.just("7"), st.just(2**70)),
    "x": st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-9, 9), st.just("NaN"), st.just("x")),
    "ok": st.one_of(st.booleans(), st.just("true")),
}
rows = st.fixed_dictionaries({}, optional={name: st.one_of(st.none(), drawn) for name, drawn in values.items()})


def nested(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row's values as fields; a column that is missing is a field that is missing, or a column."""
    inner = {name: row[name] for name in ("n", "x") if name in row}
    found: dict[str, Any] = {"at": row["at"]} if "at" in row else {}
    found |= {"who": {"name": "?", "id": row["user"]}} if "user" in row else {}
    data = ({"a.b": {"n2": 1, **inner}} if inner else {}) | ({"ok": row["ok"]} if "ok" in row else {})
    return found | ({"data": data} if data else {})


def decoded(path: Path, names: dict[str, str]) -> tuple[str, list[str | None]]:
    """Return the rows by the flat names, and the reasons without the columns' names."""
    file_format: Any = path.suffix.removeprefix(".")
    columns = EventColumns(
        names["user"],
        names["at"],
        None,
        None,
        tuple(names[name] for name in ("n", "x", "ok")),
        {names[name]: type_ for name, type_ in TYPES.items()},
    )
    parts = [*decode(str(path), str(path), file_format, columns)]
    found = pa.concat_tables([part.table.select([*names.values()]).rename_columns([*names]) for part in parts])
    reasons = [reason for part in parts for reason in part.error.to_pylist()]
    back = {f"wrong type: {path}": f"wrong type: {name}" for name, path in names.items()}
    for nested_name, name in back.items():
        reasons = [None if reason is None else reason.replace(nested_name, name) for reason in reasons]
    return repr(found.to_pylist()), reasons


def write_json(path: Path, given_rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in given_rows))
    return path


@given(given_rows=st.lists(rows, min_size=1, max_size=8), again=st.sampled_from([1, 60]))
@examples(60)
def test_json(tmp_path_factory: pytest.TempPathFactory, given_rows: list[dict[str, Any]], again: int) -> None:
    # With many rows Arrow reads most of them, and Python the lines that it turns down.
    root = tmp_path_factory.mktemp("json")
    one = write_json(root / "flat.json", given_rows * again)
    other = write_json(root / "nested.json", [nested(row) for row in given_rows * again])
    assert decoded(one, dict(zip(TYPES, TYPES, strict=True))) == decoded(other, PATHS)


def test_parquet(tmp_path: Path) -> None:
    # The struct is null in one row, the field in another one. A column has the other path's name.
    data = pa.array([{"a.b": {"n": 1, "x": 0.5}, "ok": True}, None, {"a.b": None, "ok": None}])
    who = pa.array([{"id": "ann"}, {"id": None}, None])
    table = pa.table({"who": who, "who.id": ["no"] * 3, "at": ["a", "b", "c"], "data": data})
    path = tmp_path / "nested.parquet"
    pq.write_table(table, path)
    found, reasons = decoded(path, PATHS)
    assert found == repr(
        [
            {"user": "ann", "at": "a", "n": 1, "x": 0.5, "ok": True},
            {"user": None, "at": "b", "n": None, "x": None, "ok": None},
            {"user": None, "at": "c", "n": None, "x": None, "ok": None},
        ]
    )
    assert reasons == [None] * 3
    assert infer_types([str(path)], "parquet", ["who.id", "`who.id`", "data.`a.b`.n"]) == {
        "who.id": pa.string(),
        "`who.id`": pa.string(),
        "data.`a.b`.n": pa.int64(),
    }


def test_wrong_values_above_a_field(tmp_path: Path) -> None:
    lines = [
        '{"page": 12}',
        '{"page": [1]}',
        '{"page": "x"}',
        '{"page": null}',
        '{"page": {"url": "/", "url": "/"}}',
        "{}",
    ]
    path = tmp_path / "a.json"
    path.write_text("\n".join(lines))
    columns = EventColumns(None, None, None, None, ("page.url",), {"page.url": pa.string()})
    parts = [*decode(str(path), str(path), "json", columns)]
    reasons = [reason for part in parts for reason in part.error.to_pylist()]
    urls = [url for part in parts for url in part.table["page.url"].to_pylist()]
    told = "wrong type: page.url = none, because page = {} has no fields"
    assert reasons == [
        *(told.format(shown) for shown in ("12", "[1]", "'x'")),
        None,
        "bad JSON: column page.url is given twice",
        None,
    ]
    assert urls == [None] * 6


def test_types_are_inferred_as_those_of_columns(tmp_path: Path) -> None:
    given_rows = [{"user": "1", "n": 1, "x": 1}, {"user": "b", "n": 2**70, "x": 0.5, "ok": True}]
    flat = write_json(tmp_path / "flat.json", given_rows)
    other = write_json(tmp_path / "nested.json", [nested(row) for row in given_rows])
    names = ["user", "n", "x", "ok"]
    types = infer_types([str(flat)], "json", names)
    assert types == {"user": pa.string(), "n": pa.string(), "x": pa.float64(), "ok": pa.bool_()}
    assert infer_types([str(other)], "json", [PATHS[name] for name in names]) == {
        PATHS[name]: type_ for name, type_ in types.items()
    }


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("tags", "event.key: 'tags' is a list; write 'tags[0]'"),
        ("user", "event.key: 'user' has fields; write 'user.id'"),
        ("user.nam", "event.key: 'user.nam' is no column of "),
        ("user.id.x", "event.key: 'user.id.x' is no column of "),
        (
            "user..id",
            "event.key: 'user..id' is no name of a column; write for example user.id, and a name with a dot in backquotes",
        ),
        ("a" + ".a" * 32, "has 33 fields in each other; 32 at most can be read"),
    ],
)
def test_keys_that_are_refused(tmp_path: Path, key: str, told: str) -> None:
    (tmp_path / "events").mkdir()
    write_json(
        tmp_path / "events" / "a.json", [{"user": {"name": "x", "id": "ann"}, "tags": ["a"], "time_us": 1, "v": 1}]
    )
    path = write_config(tmp_path, event={"key": key, "time": "time_us", "time_unit": "us"})
    assert told in str(check(path).problems[0])


COMPOSED = {
    "tags": ("array<string>", [["a", None], [], None], ["a", ["a", {}], {"a": 1}]),
    "props": ("map<string, double>", [{"x": 1.5, "y": None}, {}, None], [["x"], {"x": "y"}, 5]),
    "items": (
        "array<struct<sku: string, n: bigint>>",
        [[{"sku": "a", "n": 2}], [{}, None], None],
        [[{"n": "a"}], [5], {}],
    ),
}
"""By column the type, right values and wrong values."""


@pytest.mark.parametrize("name", COMPOSED)
@pytest.mark.parametrize("again", [1, 60])
def test_lists_maps_and_objects_of_json(tmp_path: Path, name: str, again: int) -> None:
    text, right, wrong = COMPOSED[name]
    type_ = type_named(text)
    rows = [{"of": {name: value}} for value in (*right, *wrong)] * again
    path = write_json(tmp_path / "a.json", rows)
    columns = EventColumns(None, None, None, None, (f"of.{name}",), {f"of.{name}": type_})
    parts = [*decode(str(path), str(path), "json", columns)]
    found = [value for part in parts for value in part.table[f"of.{name}"].to_pylist()]
    whole = pa.array([list(value.items()) if isinstance(value, dict) else value for value in right], type_).to_pylist()
    assert found == [*whole, None, None, None] * again
    reasons = [reason for part in parts for reason in part.error.to_pylist()]
    assert [reason is None for reason in reasons] == [True, True, True, False, False, False] * again
    assert all(reason.startswith(f"wrong type: of.{name} = ") for reason in reasons if reason is not None)


def test_text_is_no_list(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"tags": ["x", None]}), path)
    columns = EventColumns(None, None, None, None, ("tags",), {"tags": pa.list_(pa.string())})
    (part,) = decode(str(path), str(path), "parquet", columns)
    assert part.table["tags"].to_pylist() == [None, None]
    assert [reason is None for reason in part.error.to_pylist()] == [False, True]


def test_the_text_of_a_row_is_read_as_the_row(tmp_path: Path) -> None:
    rows = [{"who": {"id": "ann", "n": 1}, "a.b": 2, "tags": ["x"]}, {"who": None, "a.b": None, "tags": None}]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    types = {"who.id": pa.string(), "who.n": pa.int64(), "`a.b`": pa.int64(), "tags": pa.list_(pa.string())}
    columns = EventColumns("who.id", None, None, None, tuple(types), types)
    (part,) = decode(str(path), str(path), "parquet", columns)
    texts = part.raw(np.arange(2)).to_pylist()
    assert [*map(json.loads, texts)] == [*map(json.loads, text_of_rows(part.table).to_pylist())]
    again = tmp_path / "a.json"
    again.write_text("".join(f"{text}\n" for text in texts))
    (read,) = decode(str(again), str(again), "json", columns)
    assert read.table.to_pylist() == part.table.to_pylist()
    assert read.error.null_count == 2
