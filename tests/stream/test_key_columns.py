"""Keys of several columns (rule 214), for every operator: the tables beside SQL over the rows that were written."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
import tomli_w
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sessionlake
from sessionlake.cli import main
from sessionlake.config.load import Config, parse_config
from sessionlake.config.operators import OPERATORS
from sessionlake.jobs.compact import compact
from sessionlake.jobs.publish.records import to_records
from sessionlake.operators.views import read_live
from sessionlake.serve.views import live_view
from sessionlake.stream.run import run
from sessionlake.warehouse.changelog import changelog_of
from sessionlake.warehouse.dialects import SPARK
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows
from tests.operators_table import LAKES, PROCESSORS
from tests.serve.server_support import ask, serving
from tests.support import write_rows

TENANTS = ("acme", 'a"c', "back\\slash", "", "日本\U0001f600", "tab\there", "\\u0000")
USERS = ("u1", "", "long" * 750, "u,2", '","', '["u"]', "\x01")
Rows = list[dict[str, Any]]
pytestmark = pytest.mark.slow
_FILES = {"kind": "files", "path": "events", "format": "json", "max_files_per_batch": 1}
_KEYED = {"key": ["tenant", "user_id"], "time": "at", "time_unit": "us"}
_SIDE = {"time": "at", "time_unit": "us"}
_ONE = {"source": _FILES, "event": _KEYED}
_EARLY = {"early": "batch"}
_SUM = {"aggregates": {"total": "sum(v)"}}
_JOIN = {
    "on": ["tenant", "user_id"],
    "kind": "tumbling",
    "size": "10 us",
    "grace": "1 hour",
    "retention": "2 hours",
    "left": {"name": "one", "columns": ["v"], "source": _FILES, "event": _SIDE},
    "right": {"name": "two", "columns": ["v"], "source": _FILES, "event": _SIDE},
}
SECTIONS: dict[str, dict[str, Any]] = {
    "session": {**_ONE, **_SUM, "session": {"gap": "10 us", "grace": "1 hour", "retention": "2 hours"}},
    "window": {
        **_ONE,
        **_SUM,
        "window": {"kind": "tumbling", "size": "10 us", "retention": "1 hour"},
        "emit": _EARLY,
    },
    "count": {
        **_ONE,
        **_SUM,
        "emit": _EARLY,
        "window": {
            "kind": "tumbling",
            "by": "count",
            "per": "key",
            "size": 2,
            "retention": "1 hour",
            "retention_count": 10,
        },
    },
    "table": {**_ONE, "table": {"columns": ["v"]}},
    "group": {**_ONE, **_SUM, "group": {}},
    "join": {"join": _JOIN},
    "table_join": {"table_join": {name: _JOIN[name] for name in ("on", "left", "right")}},
    "process": {
        **_ONE,
        "process": {
            "class": "processors:Pauses",
            "columns": ["v", "tag"],
            "retention": "1 hour",
            "output": {"text": "string", "number": "long"},
        },
    },
}
# Here, so that also a run without slow tests says which operator was forgotten.
assert SECTIONS.keys() == LAKES.keys()
ORACLE = {
    "session": """
        with marked as (select *, coalesce(moment - lag(moment) over of_key > 10, true) as begins from given
                        window of_key as (partition by tenant, user_id order by moment)),
        numbered as (select *, sum(begins::int) over (partition by tenant, user_id order by moment) as session from marked)
        select tenant, user_id, min(moment), max(moment), count(*), sum(v) from numbered group by tenant, user_id, session""",
    "window": """
        select tenant, user_id, moment // 10 * 10, moment // 10 * 10 + 10, count(*), sum(v) from given
        group by tenant, user_id, moment // 10""",
    "count": """
        with numbered as (select *, row_number() over (partition by tenant, user_id order by rowid) - 1 as n from given)
        select tenant, user_id, 0, 0, count(*), sum(v) from numbered group by tenant, user_id, n // 2""",
    "table": """select tenant, user_id, max(moment), max(moment), 1, arg_max(v, moment) from given group by tenant, user_id""",
    "group": """select tenant, user_id, 0, 0, count(*), sum(v) from given group by tenant, user_id""",
    "join": """
        select l.tenant, l.user_id, greatest(l.moment, r.moment), greatest(l.moment, r.moment), l.v, r.v
        from given l join given r on l.tenant = r.tenant and l.user_id = r.user_id and l.moment // 10 = r.moment // 10""",
    "table_join": """select tenant, user_id, 0, 0, l.v, r.v from given l join given r using (tenant, user_id)""",
}
"""By operator: SQL over the rows that were written, tenant, user_id, start, end and two numbers."""
TOLD: dict[str, Callable[[dict[str, Any]], tuple[Any, ...]]] = {
    "session": lambda r: (_us(r["session_start"]), _us(r["session_end"]), r["event_count"], r["total"]),
    "window": lambda r: (_us(r["window_start"]), _us(r["window_end"]), r["event_count"], r["total"]),
    "count": lambda r: (0, 0, r["event_count"], r["total"]),
    "table": lambda r: (_us(r["event_time"]), _us(r["event_time"]), 1, r["v"]),
    "group": lambda r: (0, 0, r["event_count"], r["total"]),
    "join": lambda r: (_us(r["join_time"]), _us(r["join_time"]), r["one_v"], r["two_v"]),
    "table_join": lambda r: (0, 0, r["one_v"], r["two_v"]),
}


def _us(time: Any) -> int:
    return round(time.timestamp() * 1e6)


def given() -> Rows:
    """Return rows of all pairs of tenants and users, at times of their own."""
    keys = [(tenant, user) for tenant in TENANTS for user in USERS]
    return [
        {"tenant": tenant, "user_id": user, "at": 1_000_000 + at, "v": number * 7 % 11 + at % 5, "tag": "a"}
        for number, (tenant, user) in enumerate(keys)
        for at in (number, number + 3, number + 14 + number % 5, number + 60)
    ]


def config_of(root: Path, operator: str) -> Config:
    """Return a pipeline of an operator whose key is two columns."""
    return parse_config({"pipeline": _pipeline(), **SECTIONS[operator]}, root)


def _pipeline() -> dict[str, Any]:
    return {"name": "keys", "warehouse": "warehouse", "shards": 2, "code": str(PROCESSORS)}


def _operator(config: Config) -> str:
    return next(name for name, entry in OPERATORS.items() if entry is config.entry)


@pytest.fixture(scope="module", params=sorted(LAKES))
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Config:
    root = tmp_path_factory.mktemp(request.param)
    (root / "events").mkdir()
    config, rows = config_of(root, request.param), given()
    refused = [{**rows[0], "tenant": None}, {**rows[0], "user_id": None}]
    write_rows(root, "1.json", [*rows[::2], *refused])
    run(spark, config, once=True)
    compact(spark, config)
    write_rows(root, "2.json", rows[1::2])
    run(spark, config, once=True)
    return config


def named(rows: Rows, of: Any) -> list[tuple[Any, ...]]:
    return [(json.loads(row[of.key]), [row["tenant"], row["user_id"]]) for row in rows]


def test_rows_have_the_columns_of_their_key(spark: SparkSession, ran: Config) -> None:
    of = changelog_of(ran)
    live = read_live(spark, ran).toArrow()
    pairs = named(live.to_pylist(), of)
    assert pairs
    assert all(key == parts for key, parts in pairs)
    at = live.column_names.index(of.key)
    assert live.column_names[at + 1 : at + 3] == ["tenant", "user_id"]
    for table in of.tables:
        stored = Lake.of(ran)[table].open().to_pyarrow_table()
        assert all(key == parts for key, parts in named(stored.select([of.key, "tenant", "user_id"]).to_pylist(), of))
        assert len(stored)


def test_rows_are_those_of_sql_over_the_input(spark: SparkSession, ran: Config) -> None:
    operator = _operator(ran)
    live = sessionlake.read(ran).to_arrow_table().to_pylist()
    by_spark = sessionlake.read(spark, ran).toArrow().to_pylist()
    key = changelog_of(ran).identity
    assert sorted(live, key=lambda r: [str(r[n]) for n in key]) == sorted(
        by_spark, key=lambda r: [str(r[n]) for n in key]
    )
    if operator not in ORACLE:
        return
    with duckdb.connect() as database:
        database.execute("create table given (tenant text, user_id text, moment bigint, v bigint)")
        database.executemany(
            "insert into given values (?, ?, ?, ?)",
            [(r["tenant"], r["user_id"], r["at"], r["v"]) for r in (*given()[::2], *given()[1::2])],
        )
        wanted = database.execute(ORACLE[operator]).fetchall()
    found = [(row["tenant"], row["user_id"], *TOLD[operator](row)) for row in live]
    assert sorted(found) == sorted(tuple(int(x) if not isinstance(x, str) else x for x in row) for row in wanted)


def test_a_row_without_a_column_of_its_key_is_refused(ran: Config) -> None:
    """Or has no partner, as in SQL, if the results are of rows, not of events."""
    letters = Lake.of(ran)["dead_letters"].open().to_pyarrow_table().to_pylist()
    keys = [row["key"] for row in letters if row["kind"] == "event" and row["reason"] == "null key"]
    batches = Lake.of(ran)["batches"].open().to_pyarrow_table()
    without_key = sum(batches["without_key"].to_pylist()) if "without_key" in batches.column_names else 0
    is_of_rows = _operator(ran) == "table_join"
    assert (keys, without_key) == (([], 4) if is_of_rows else ([None] * 2 * len(ran.inputs), 0))


@pytest.mark.parametrize("engine", ["spark", "duckdb"])
def test_views_of_other_engines_have_the_columns(spark: SparkSession, ran: Config, engine: str) -> None:
    of = changelog_of(ran)
    statement = live_view(ran, engine).removesuffix(";")
    query = statement[statement.index(" as\n") + 4 :]
    wanted = {(r[of.key], r["tenant"], r["user_id"]) for r in sessionlake.read(ran).to_arrow_table().to_pylist()}
    if engine == "spark":
        found = {tuple(row) for row in spark.sql(f"select {of.key}, tenant, user_id from ({query})").collect()}
    else:
        with duckdb.connect() as database:
            for name in (*of.tables, "batches"):
                database.register(name, Lake.of(ran)[name].open().to_pyarrow_table())
                query = query.replace(f"delta_scan('{Lake.of(ran)[name].uri}')", name)
            found = {*database.execute(f"select {of.key}, tenant, user_id from ({query})").fetchall()}
    assert found == wanted


def test_commands_and_the_query_server_find_rows_by_columns(ran: Config) -> None:
    of, many = changelog_of(ran), ran.entry.rows.list
    file = Path(ran.directory) / "keys.toml"
    file.write_text(tomli_w.dumps({"pipeline": _pipeline(), **SECTIONS[_operator(ran)]}))
    live = sessionlake.read(ran).to_arrow_table().to_pylist()
    tenant, user = TENANTS[1], next(row["user_id"] for row in live if row["tenant"] == TENANTS[1])
    wanted = [row for row in live if (row["tenant"], row["user_id"]) == (tenant, user)]
    of_tenant = [row for row in live if row["tenant"] == tenant]
    assert len(of_tenant) > len(wanted) > 0

    def printed(*keys: str) -> int:
        options = [part for key in keys for part in ("--key", key)]
        result = CliRunner().invoke(main, [ran.entry.rows.command, str(file), *options, "--json"])
        assert result.exit_code == 0, result.output
        rows = json.loads(result.stdout)
        assert {row["tenant"] for row in rows} == {tenant}
        return len(rows)

    assert printed(f"user_id={user}", f"tenant={tenant}") == printed(wanted[0][of.key]) == len(wanted)
    assert printed(f"tenant={tenant}") == len(of_tenant)
    wrong = CliRunner().invoke(main, [ran.entry.rows.command, str(file), "--key", "acme"])
    assert (wrong.exit_code, wrong.stderr.count("\n")) == (2, 1)
    assert (
        "--key: 'acme' names no column of the key; write --key tenant=acme --key user_id=TEXT, or the first ones of them"
        in wrong.stderr
    )
    with serving(ran, max_rows=1000) as url:
        for given, rows in (({"key.user_id": user}, wanted), ({}, of_tenant)):
            status, answer, _ = ask(url, f"/v1/{many}", limit=1000, cold="true", **{"key.tenant": tenant}, **given)
            assert status == 200
            assert sorted(row[of.key] for row in answer[many]) == sorted(row[of.key] for row in rows)
            assert {row["tenant"] for row in answer[many]} == {tenant}


def test_records_are_named_by_the_columns(spark: SparkSession, ran: Config) -> None:
    tables = Tables.of(spark, ran)
    rows = merged_rows(tables).withColumn("op", F.lit("upsert"))
    keys = [json.loads(row.key) for row in to_records(rows, tables.changelog).collect()]
    assert {(key["tenant"], key["user_id"]) for key in keys} == {(r.tenant, r.user_id) for r in rows.collect()}
    assert {*keys[0]} == {"tenant", "user_id", *tables.changelog.identity} - {tables.changelog.key}


def test_files_of_the_snapshot_have_bounds_of_the_columns(ran: Config) -> None:
    added = Lake.of(ran)[changelog_of(ran).snapshot].open().get_add_actions(flatten=True)
    assert {"min.tenant", "max.tenant"} <= {*added.schema.names}


def test_a_changelog_without_the_columns_is_read_by_its_keys(spark: SparkSession, ran: Config) -> None:
    """As tables of joins that version 0.2 made."""
    tables = Tables.of(spark, ran)
    of = tables.changelog
    text = of.live_sql(SPARK, [name for name in tables[of.snapshot].read().columns if name not in of.key_columns])
    for name in of.tables:
        text = text.replace(f"from {name} ", f"from {{{name}}} ")
    without = {name: tables[name].read().drop(*of.key_columns) for name in of.tables}
    found = spark.sql(text, **without)
    assert sorted(map(repr, found.collect())) == sorted(map(repr, merged_rows(tables).select(*found.columns).collect()))
