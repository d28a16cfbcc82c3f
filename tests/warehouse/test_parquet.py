"""Times of any year in Parquet files, INT96 ones among them, and the one place that opens such files."""

import ast
import datetime as dt
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

import sessionlake
from sessionlake.config.load import Config, parse_config
from sessionlake.jobs.compact.job import compact
from sessionlake.jobs.publish.job import publish
from sessionlake.propose.tables import read_delta
from sessionlake.serve.queries import query_tables
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.files import decode
from sessionlake.sources.infer import infer_types
from sessionlake.stream.run import run
from sessionlake.warehouse.arrow_files import delta_files, delta_rows, moment_sql
from sessionlake.warehouse.scan import TableScan
from tests.support import write_rows

ROOT = Path(sessionlake.__file__).parent
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
UTC = pa.timestamp("us", "UTC")
TIMES = [
    "0001-01-01T00:00:00.000000",
    "0001-01-01T00:00:00.000001",
    "1582-10-10T00:00:00.000000",
    "1600-05-05T00:00:00.000000",
    "1677-09-21T00:12:43.145224",
    "1969-12-31T23:59:59.999999",
    "2026-01-31T12:00:00.123456",
    "2262-04-11T23:47:16.854776",
    "2262-04-12T00:00:00.000000",
    "9999-12-31T00:00:00.000000",
    "9999-12-31T23:59:59.999999",
]
"""In order, beyond what 64 bits of nanoseconds hold and just inside of it."""
OPENS = {"to_pyarrow_dataset", "to_pyarrow_table", "QueryBuilder", "load_cdf", "scan", "read_parquet"}
"""Calls of deltalake, DuckDB and pandas that open Parquet files."""


def micros(text: str) -> int:
    return (dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC) - EPOCH) // dt.timedelta(microseconds=1)


def as_texts(column: pa.ChunkedArray) -> list[str | None]:
    moments = [
        None if us is None else EPOCH + dt.timedelta(microseconds=us) for us in column.cast(pa.int64()).to_pylist()
    ]
    return [moment and moment.replace(tzinfo=None).isoformat(timespec="microseconds") for moment in moments]


def rows() -> pa.Table:
    times = [*map(micros, TIMES), None]
    return pa.table(
        {
            "Key": [f"k{n}" for n in range(len(times))],
            "t": pa.array(times, pa.int64()).cast(UTC),
            "s": pa.array([{"a": us} for us in times], pa.struct([("a", UTC)])),
            "l": pa.array([[us] for us in times], pa.list_(UTC)),
        }
    )


def int96(table: pa.Table, path: Path) -> None:
    """Write a file as Spark does by default, of small row groups."""
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, store_schema=False, row_group_size=4)


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    """Return a table with two files, the second one INT96."""
    path = tmp_path / "table"
    write_deltalake(str(path), rows().slice(0, 0))
    write_deltalake(str(path), rows(), mode="append")
    log = path / "_delta_log" / f"{1:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    add = next(action["add"] for action in actions if "add" in action)
    int96(rows(), path / add["path"])
    add["size"] = (path / add["path"]).stat().st_size
    log.write_text("\n".join(map(json.dumps, actions)))
    write_deltalake(str(path), rows(), mode="append")
    return DeltaTable(str(path))


def test_rows_of_a_delta_table_have_times_of_all_years(table: DeltaTable) -> None:
    for found in (pa.table(delta_rows(table)), delta_files(table).to_table()):
        assert sorted(as_texts(found["t"]), key=str) == sorted([*TIMES, None] * 2, key=str)
        assert found["s"].combine_chunks().field("a").equals(found["t"].combine_chunks())
        assert found["l"].combine_chunks().flatten().equals(found["t"].combine_chunks())


def test_names_keep_their_case_and_any_character(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), pa.table({'A "b"': [1], "a": [2]}))
    assert pa.table(delta_rows(DeltaTable(str(tmp_path / "t")), ['A "b"'])).to_pydict() == {'A "b"': [1]}


@pytest.mark.parametrize("operator", ["=", "<", "<=", ">", ">=", "<>"])
def test_conditions_on_times_of_all_years(table: DeltaTable, operator: str) -> None:
    """Pushed into the scan, which leaves out files and row groups; the oracle is DuckDB over the rows in memory."""
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        database.register("given", pa.concat_tables([rows(), rows()]))
        database.from_arrow(TableScan(table)).create_view("scanned")
        for bound in TIMES:
            query = f"select Key from {{}} where t {operator} timestamptz '{bound}+00' order by 1"
            right = database.execute(query.format("given")).fetchall()
            assert database.execute(query.format("scanned")).fetchall() == right, bound
            own = pa.table(delta_rows(table, ["Key"], f"t {operator} {moment_sql(micros(bound))}"))
            assert sorted((key,) for key in own["Key"].to_pylist()) == right


def test_lists_ranges_and_negations_of_times(table: DeltaTable) -> None:
    low, high = TIMES[3], TIMES[-2]
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        database.register("given", pa.concat_tables([rows(), rows()]))
        database.from_arrow(TableScan(table)).create_view("scanned")
        for condition in (
            f"t in ('{low}+00', '{high}+00')",
            f"t not in ('{low}+00', '{high}+00')",
            f"t between '{low}+00' and '{high}+00'",
            f"not (t < '{low}+00' or t > '{high}+00')",
            "t is null",
        ):
            query = f"select Key from {{}} where {condition} order by 1"
            right = database.execute(query.format("given")).fetchall()
            assert right
            assert database.execute(query.format("scanned")).fetchall() == right, condition


def test_init_reads_them(table: DeltaTable) -> None:
    _, parts, _ = read_delta(Path(table.table_uri.removeprefix("file://")), 1 << 20)
    assert sorted(as_texts(pa.concat_tables(parts)["t"]), key=str) == sorted([*TIMES, None] * 2, key=str)


def test_int96_of_a_source_is_microseconds(tmp_path: Path) -> None:
    """As a column, as the event's time, and in what a dead letter shows."""
    path = str(tmp_path / "f.parquet")
    int96(rows().select(["Key", "t"]), Path(path))
    assert infer_types([path], "parquet", ["t"]) == {"t": UTC}
    columns = EventColumns("Key", "t", None, None, ("t",), {"Key": pa.string(), "t": UTC})
    (decoded,) = decode(path, path, "parquet", columns)
    assert as_texts(decoded.table["t"]) == [*TIMES, None]
    assert json.loads(decoded.raw(pa.array([9]))[0].as_py())["t"].startswith("9999-12-31")


@pytest.mark.slow
def test_a_lookup_of_int96_finds_the_rows_of_an_open_end(spark: SparkSession, tmp_path: Path) -> None:
    """And a table keeps such times, although the session was told to write others. Both through `run`, `compact`, `publish` and `sql`."""
    config = with_prices(tmp_path)
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
    try:
        run(spark, config, once=True)
        query = "select table_key, prices_price, valid_to, d::varchar from table_live order by 1"
        right = query_tables(config, query, 99)[1]
        assert [(key, price) for key, price, *_ in right] == [(f"k{n:02}", 12.0) for n in range(len(TIMES))]
        assert [day for *_, day in right] == [text[:10] for text in TIMES]
        publish(spark, config, once=True)
        compact(spark, config)
        assert query_tables(config, query, 99)[1] == right
        write_rows(tmp_path, "1.json", [event(0, TIMES[0])])
        run(spark, config, once=True)
        publish(spark, config, once=True)
        compact(spark, config)
        assert query_tables(config, query, 99)[1] == right
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
        spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInWrite")
    shown = query_tables(config, "select valid_to from table_live order by 1", 99)[1]
    published = pa.table(delta_rows(DeltaTable(str(tmp_path / "out"))))
    assert sorted(as_texts(published["valid_to"])) == TIMES
    assert sorted(str(day) for day in published["d"].to_pylist()) == [text[:10] for text in TIMES]
    assert len(shown) == len(TIMES)
    files = [*tmp_path.glob("warehouse/*/*.parquet"), *tmp_path.glob("out/*.parquet")]
    assert {file.parent.name for file in files} >= {"table_snapshot", "batches", "job_runs", "out"}
    assert [file for file in files if "INT96" in physical_types(file)] == []


def with_prices(root: Path) -> Config:
    prices = {
        "product": ["p", "p"],
        "valid_from": [0, 10**15],
        "valid_to": [10**15, micros("9999-12-31")],
        "price": [10.0, 12.0],
    }
    times = {name: pa.array(prices[name], pa.int64()).cast(UTC) for name in ("valid_from", "valid_to")}
    (root / "prices").mkdir()
    int96(pa.table({**prices, **times}), root / "prices" / "a.parquet")
    lookup: dict[str, Any] = {
        "name": "prices",
        "path": "prices",
        "format": "parquet",
        "on": "product",
        "columns": ["price"],
    }
    bounds = {"as_of": "event_time", "valid_from": "valid_from", "valid_to": "valid_to"}
    sections = {
        "pipeline": {"name": "test", "warehouse": "warehouse", "shards": 2},
        "source": {
            "kind": "files",
            "path": "events",
            "format": "json",
            "types": {"valid_to": "timestamp", "d": "date"},
        },
        "event": {"key": "key", "time": "time_us", "time_unit": "us"},
        "lookup": [{**lookup, **bounds}],
        "table": {"columns": ["valid_to", "d", "prices_price"], "retention": "1 day"},
        "sink": {"delta": {"path": "out"}},
    }
    (root / "events").mkdir()
    config = parse_config(sections, root)
    write_rows(root, "0.json", [event(n, text) for n, text in enumerate(TIMES)])
    return config


def event(number: int, text: str) -> dict[str, Any]:
    return {
        "key": f"k{number:02}",
        "time_us": 1_760_000_000_000_000,
        "product": "p",
        "valid_to": f"{text}Z",
        "d": text[:10],
    }


def physical_types(file: Path) -> set[str]:
    with pq.ParquetFile(file) as opened:
        return {opened.schema.column(n).physical_type for n in range(len(opened.schema))}


def opens(text: str) -> Iterator[str]:
    """Yield what a module calls or imports to open Parquet files by itself."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="pq" | "parquet"), attr=name)) if "rite" not in name:
                yield name
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in OPENS:
                yield name
            case ast.ImportFrom(module="pyarrow.parquet" | "pyarrow.dataset" as name):
                yield name
            case ast.Import(names=[ast.alias(name="pyarrow.dataset" as name)]):
                yield name


def test_parquet_files_are_opened_in_one_place() -> None:
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in ROOT.rglob("*.py")}
    able = {name: text for name, text in texts.items() if re.search("parquet|deltalake|pyarrow.dataset", text)}
    assert {name for name, text in able.items() if any(opens(text))} == {"warehouse/arrow_files.py"}


def test_delta_tables_are_written_by_spark_in_one_place() -> None:
    """Where the session is told how to write times."""
    texts = {path.relative_to(ROOT).as_posix(): "".join(path.read_text().split()) for path in ROOT.rglob("*.py")}
    writes = ('.write.format("delta")', ".write.save", ".write.parquet", "writeTo(", "saveAsTable(", "writeFiles(")
    found = {name for (name, text), form in itertools.product(texts.items(), writes) if form in text}
    assert found == {"warehouse/tables.py", "warehouse/replacement.py"}
