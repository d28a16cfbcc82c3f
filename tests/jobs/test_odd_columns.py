"""Columns whose names have dots, backquotes, quotes, spaces, percent signs and words of SQL: run, readers and jobs."""

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import tomli_w
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config, load_config, parse_config
from sessionlake.errors import ConfigError
from sessionlake.jobs.backfill import backfill
from sessionlake.jobs.compact import compact
from sessionlake.jobs.expire import expire
from sessionlake.jobs.forget import forget
from sessionlake.jobs.publish import publish
from sessionlake.jobs.rebuild import rebuild
from sessionlake.operators.views import read_live
from sessionlake.quality.run import run_quality
from sessionlake.serve.queries import find_rows, query_tables
from sessionlake.serve.views import live_view
from sessionlake.stream.run import run
from sessionlake.warehouse.dialects import DUCKDB
from sessionlake.warehouse.spark_columns import column, columns
from tests.support import write_config, write_rows

NAMES = ["a", "a.b", "c`d", "e f", "select", "Ünït", '"q"', "100%", "x'y", "a.b.c", "1st", "a`.`b", "[0]", "b\\c", "*"]
"""`a` alone has a field `b` for those who read `a.b` as one."""
KEYS = ("k1", "k2", "gone")


def values(key: str, batch: int) -> dict[str, int]:
    """Return a row's values: each different."""
    return {name: 1000 * batch + 10 * number + int(key == "k2") for number, name in enumerate(NAMES)}


def event(key: str, batch: int) -> dict[str, Any]:
    return {"key": key, "time_us": 1000 * batch + 1, **values(key, batch)}


def write(root: Path, *batches: int) -> None:
    for batch in batches:
        write_rows(root, f"{batch}.json", [event(key, batch) for key in KEYS])


def expected(batch: int, *keys: str) -> list[tuple[Any, ...]]:
    return [(key, *values(key, batch).values()) for key in keys]


def in_duckdb(config: Config, where: str = "true") -> list[tuple[Any, ...]]:
    names = ", ".join(map(DUCKDB.named, NAMES))
    return query_tables(config, f"select table_key, {names} from table_live where {where} order by 1", 100)[1]


def in_spark(spark: SparkSession, config: Config) -> list[tuple[Any, ...]]:
    rows = read_live(spark, config).select("table_key", *columns(NAMES))
    return sorted(map(tuple, rows.collect()))


def checked(spark: SparkSession, config: Config) -> None:
    report = run_quality(spark, config)
    assert report.counts.get("failed_critical", 0) == 0, report.lines()


@pytest.mark.slow
def test_a_table_and_all_that_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    sections: dict[str, Any] = {
        "pipeline": {"archive": True},
        "source": {"max_files_per_batch": 16},
        "session": {},
        "table": {"columns": QUOTED, "retention": "1 day"},
    }
    path = without_session(write_config(tmp_path, **sections))
    config = load_config(path)
    write(tmp_path, 0)
    run(spark, config, once=True)
    compact(spark, config)
    write(tmp_path, 1)
    run(spark, config, once=True)
    assert in_duckdb(config) == in_spark(spark, config) == sorted(expected(1, *KEYS))
    for name in NAMES:
        wanted = values("k2", 1)[name]
        assert in_duckdb(config, f"{DUCKDB.named(name)} = {wanted}") == expected(1, "k2")
    names, (found,) = find_rows(config, "k1", None, None, 10)
    assert [found[names.index(name)] for name in NAMES] == list(values("k1", 1).values())
    with pytest.raises(ConfigError, match=r"^sink\.delta: column 'e f' has a character that Delta's writer refuses"):
        publish(spark, with_sink(path), once=True)
    compact(spark, config, method="merge")
    checked(spark, config)
    assert in_duckdb(config) == in_spark(spark, config) == sorted(expected(1, *KEYS))
    expire(spark, config, where="`a.b` = 1011 and `c``d` = 1021 and `select` > 0", max_share=1.0)
    forget(spark, config, ["gone"], wait="1 second")
    shutil.rmtree(config.driver_store_dir)
    write_rows(tmp_path, "2.json", [event("k1", 2)])
    run(spark, config, once=True)
    compact(spark, config, method="rewrite")
    assert in_duckdb(config) == in_spark(spark, config) == expected(2, "k1")
    statement = live_view(config, "spark").removesuffix(";").replace("view table_live", "temp view odd", 1)
    spark.sql(statement)
    assert spark.table("odd").select(*columns(NAMES)).count() == 1


def test_a_published_table(spark: SparkSession, tmp_path: Path) -> None:
    """Delta's own writer refuses a space in a name, and takes all others."""
    names = [name for name in NAMES if " " not in name]
    quoted = [written for name, written in zip(NAMES, QUOTED, strict=True) if name in names]
    sections: dict[str, Any] = {"source": {}, "session": {}, "sink": {"delta": {"path": "plain"}}}
    config = load_config(without_session(write_config(tmp_path, **sections, table={"columns": quoted})))
    for batch in range(2):
        write(tmp_path, batch)
        run(spark, config, once=True)
        publish(spark, config, once=True)
        plain = DeltaTable(tmp_path / "plain").to_pyarrow_table().to_pylist()
        found = sorted((row["table_key"], *(row[name] for name in names)) for row in plain)
        assert found == sorted((key, *(values(key, batch)[name] for name in names)) for key in KEYS)


def with_sink(path: Path) -> Config:
    """Return a config with a table for the results, in a file next to it."""
    other = path.with_name("with_sink.toml")
    other.write_text(f'{path.read_text()}\n[sink.delta]\npath = "plain"\n')
    return load_config(other)


def without_session(path: Path) -> Path:
    """Take the sections of sessions out of a config."""
    raw = tomllib.loads(path.read_text())
    for name in ("session", "aggregates"):
        raw.pop(name)
    path.write_text(tomli_w.dumps(raw))
    return path


QUOTED = [
    "`a`",
    "`a.b`",
    "`c``d`",
    "`e f`",
    "`select`",
    "`Ünït`",
    '`"q"`',
    "`100%`",
    "`x'y`",
    "`a.b.c`",
    "`1st`",
    "`a``.``b`",
    "`[0]`",
    "`b\\c`",
    "`*`",
]
"""The names as SQL in a config writes them."""


def over_changes(root: Path, *, section: dict[str, Any], kind: str) -> Config:
    """Return a pipeline over a Delta table whose key and time have dots, too."""
    return parse_config(
        {
            "pipeline": {"name": "over", "warehouse": f"wh_{kind}", "shards": 1, "archive": kind == "delta"},
            "source": {"kind": kind, "path": "given"},
            "event": {
                "key": "`user.id`",
                "time": "`at.us`",
                "time_unit": "us",
                "where": " and ".join(f"{n} >= 0" for n in QUOTED),
                "columns": {"sum2": "`a.b` + `c``d`"},
            },
            "aggregates": {
                "number": "count()",
                "twice": "sum(sum2)",
                **{f"s{i}": f"sum({name})" for i, name in enumerate(QUOTED)},
            },
            **section,
        },
        root,
    )


def given(root: Path, batch: int) -> None:
    rows = [{"user.id": key, "at.us": 1000 * batch + 1, **values(key, batch)} for key in KEYS]
    write_deltalake(
        root / "given", pa.Table.from_pylist(rows), mode="append", configuration={"delta.enableChangeDataFeed": "true"}
    )


SUMS = ", ".join(["number", "twice", *(f"s{i}" for i in range(len(NAMES)))])


def summed(*keys: str) -> list[tuple[Any, ...]]:
    both = {key: [values(key, batch) for batch in (0, 1)] for key in sorted(keys)}
    return [
        (key, 2, sum(v["a.b"] + v["c`d"] for v in rows), *(sum(v[name] for v in rows) for name in NAMES))
        for key, rows in both.items()
    ]


def test_groups_over_changes_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    config = over_changes(tmp_path, section={"group": {}}, kind="change_feed")
    for batch in range(2):
        given(tmp_path, batch)
        run(spark, config, once=True)
    compact(spark, config)
    query = f"select group_key, {SUMS} from groups_live order by 1"
    assert query_tables(config, query, 100)[1] == summed(*KEYS)


@pytest.mark.slow
def test_sessions_of_a_delta_table_and_their_jobs(spark: SparkSession, tmp_path: Path) -> None:
    section = {"session": {"gap": "1 hour", "grace": "1 hour", "retention": "1 day"}}
    config = over_changes(tmp_path, section=section, kind="delta")
    for batch in range(2):
        given(tmp_path, batch)
        run(spark, config, once=True)
    query = f"select session_key, {SUMS} from sessions_live order by 1"
    assert query_tables(config, query, 100)[1] == summed(*KEYS)
    compact(spark, config)
    checked(spark, config)
    counts = backfill(spark, config, from_us=0, to_us=10**9, dry_run=True).counts
    assert counts["sessions"] == counts["unchanged"] == 3
    report = forget(spark, config, ["gone"], wait="1 second")
    assert (report.counts["found"], report.counts.get("source_rows")) == (0, 2), "the source is searched by its column"
    assert query_tables(config, query, 100)[1] == summed("k1", "k2")


@pytest.mark.slow
def test_columns_that_are_looked_up(spark: SparkSession, tmp_path: Path) -> None:
    rows = [{"its.id": key, "n`n": f"name of {key}", "a.b": "x"} for key in KEYS]
    for kind in ("delta", "json"):
        place = tmp_path / kind
        if kind == "delta":
            write_deltalake(place, pa.Table.from_pylist(rows))
        else:
            place.mkdir()
            (place / "0.json").write_text("\n".join(map(json.dumps, rows)))
        lookup = {"name": "of", "path": kind, "on": "key = `its.id`", "columns": ["`n``n`", "`a.b`"]} | (
            {} if kind == "delta" else {"format": kind}
        )
        root = tmp_path / f"of_{kind}"
        root.mkdir()
        lookup["path"] = str(place)
        path = write_config(root, lookup=[lookup], aggregates={"n": "max(`of_n``n`)", "b": "max(`of_a.b`)"})
        write(root, 0)
        run(spark, load_config(path), once=True)
        found = query_tables(load_config(path), "select session_key, n, b from sessions_live order by 1", 10)[1]
        assert found == [(row["its.id"], row["n`n"], "x") for row in sorted(rows, key=lambda row: row["its.id"])]


@pytest.mark.slow
def test_rebuild_from_an_archive(spark: SparkSession, tmp_path: Path) -> None:
    aggregates = {f"s{i}": f"sum({name})" for i, name in enumerate(QUOTED)}
    path = write_config(tmp_path, pipeline={"archive": True}, aggregates=aggregates, session={"gap": "1 hour"})
    write(tmp_path, 0, 1)
    run(spark, load_config(path), once=True)
    query = f"select session_key, {', '.join(aggregates)} from sessions_live order by 1"
    before = query_tables(load_config(path), query, 10)[1]
    for file in (tmp_path / "events").iterdir():
        file.unlink()
    rebuild(spark, path, "again", from_archive=True)
    path.write_text(path.read_text().replace('"warehouse"', '"again"'))
    assert query_tables(load_config(path), query, 10)[1] == before


def test_a_name_is_a_column(spark: SparkSession) -> None:
    rows = spark.range(1).select(*(F.lit(number).alias(name) for number, name in enumerate(NAMES)))
    assert list(rows.select(*columns(NAMES)).first() or ()) == list(range(len(NAMES)))
    assert rows.select(column("a.b")).columns == ["a.b"]
