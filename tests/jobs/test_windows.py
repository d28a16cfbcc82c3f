"""The jobs on a pipeline of windows, each against DuckDB over the Delta tables. Its compaction: tests/jobs/compact/test_compact_windows.py."""

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sessionlake
from infra.kafka.broker import Broker
from sessionlake.cli import main
from sessionlake.config.load import Config
from sessionlake.errors import ConfigError
from sessionlake.jobs.compact import compact
from sessionlake.jobs.publish import publish
from sessionlake.jobs.publish.final import Reached, closed_us, finals
from sessionlake.jobs.publish.records import to_records
from sessionlake.observe.datasets import datasets
from sessionlake.observe.status import read_status
from sessionlake.observe.tables import read_state, readings_of
from sessionlake.operators.windows.table import WINDOWS
from sessionlake.serve.queries import find_rows, query_tables
from sessionlake.serve.views import live_view
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.delta_log import USER_METADATA
from sessionlake.warehouse.history import user_metadata
from sessionlake.warehouse.views import merged_rows
from tests.jobs.backup.copies import copy_pipeline
from tests.jobs.window_support import folded, rows_of, run_files, tables_of, window_config
from tests.sources.kafka_support import records

GRACE = 20


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Three batches, the first two of them folded."""
    root = tmp_path_factory.mktemp("windows")
    config = window_config(root)
    run_files(spark, root, config, range(2))
    compact(spark, config)
    run_files(spark, root, config, range(2, 3))
    return config


@pytest.fixture
def config(ran: Config, tmp_path: Path) -> Config:
    """The same pipeline, to be changed."""
    return copy_pipeline(Path(ran.directory), tmp_path / "copy", window_config)


def sections_of(config: Config) -> dict[str, Any]:
    """Return the sections of windows as a config file has them."""
    window = config.section.model_dump(exclude={"aggregates"}, exclude_none=True)
    return {"emit": window.pop("emit"), "window": window}


def shown(config: Config) -> list[tuple[Any, ...]]:
    query = "select window_key, epoch_us(window_start), event_count, revision from windows_live order by all"
    return query_tables(config, query, 10_000)[1]


def test_status_reconciles_and_tells_of_events_that_windows_lack(
    spark: SparkSession, ran: Config, config: Config
) -> None:
    status = read_status(ran)
    events = sum(row[2] for row in folded(ran))
    assert status.reconciles
    assert status.counts["accepted"] == events
    assert status.late.waiting == status.late.events == status.counts["late"] > 0
    # A row less, by a commit that says it is ours.
    tables = tables_of(spark, config)
    last = tables["window_changelog"].last_commit()
    assert last is not None
    with tables.settings({USER_METADATA: user_metadata({**last.metadata, "copied": True})}):
        name = tables["window_changelog"].sql_name()
        spark.sql(f"delete from {name} where batch_id = 2 and window_key = 'a'").collect()
    assert not read_status(config).reconciles


def test_metrics_and_lineage_name_the_tables_of_windows(ran: Config) -> None:
    state = read_state(ran)
    assert state.unfolded_batches == 1
    assert {"windows", "window_changelog"} < set(state.sizes)
    assert "sessions" not in state.sizes
    assert list(readings_of(ran, state).collect())
    names = [dataset.name.rpartition("/")[2] for of in datasets(ran, "compact", {}) for dataset in of]
    assert names == ["window_changelog", "windows"]
    _, written = datasets(ran, "run", {"upserts": 3, "deletes": 1, "emitted": 0})
    assert (written[0].name.rpartition("/")[2], written[0].rows) == ("window_changelog", 4)


def test_every_way_of_reading_shows_the_windows_that_were_sent_and_which_are_final(
    spark: SparkSession, ran: Config
) -> None:
    assert shown(ran) == folded(ran)
    final = sorted(closed(ran))
    assert 0 < len(final) < len(folded(ran))
    columns = "window_key, epoch_us(window_start)"
    relation = sessionlake.read_windows(ran)
    assert sorted(relation.filter("final").project(columns).fetchall()) == final
    frame = sessionlake.read_windows(spark, ran)
    rows = frame.where("final").selectExpr("window_key", "unix_micros(window_start)").collect()
    assert sorted(map(tuple, rows)) == final
    statement = live_view(ran, "spark").removesuffix(";").replace("view windows_live", "temp view other", 1)
    spark.sql(statement)
    assert [name for name in spark.sql("select * from other").columns if name != "state"] == frame.columns
    # The saved batches are all there is: the view, which knows no others, says the same.
    assert spark.sql("select * from other").where("final").count() == len(final)
    with duckdb.connect() as database:
        database.execute("set timezone = 'UTC'")
        database.execute("create schema mine")
        for name in ("windows", "window_changelog", "batches"):
            table = tables_of(spark, ran)[name].read().toArrow()
            database.register(f"given_{name}", table)
            database.execute(f"create table mine.{name} as select * from given_{name}")
        database.execute(live_view(ran, "duckdb", "mine"))
        found = database.execute(f"select {columns} from mine.windows_live where final order by all").fetchall()
    assert found == final


def test_a_keys_windows(ran: Config) -> None:
    of_key = [row for row in folded(ran) if row[0] == "a"]
    columns, rows = find_rows(ran, "a", None, None, 100)
    assert [row[columns.index("revision")] for row in rows] == [row[3] for row in of_key]
    start = of_key[1][1]
    # The end is exclusive: a window that ends at --from has no time from there on.
    assert len(find_rows(ran, "a", start, start + 1, 100)[1]) == 1
    assert len(find_rows(ran, "a", start - 1, start + 1, 100)[1]) == 1 + (of_key[0][1] + 10 > start - 1)


def test_the_command_windows_and_its_counterpart(ran: Config, tmp_path: Path) -> None:
    import tomli_w

    sections = ran.model_dump(include={"pipeline", "source", "event", "aggregates"}, exclude_none=True)
    path = tmp_path / "test.toml"
    path.write_text(tomli_w.dumps({**sections, **sections_of(ran)}))
    done = CliRunner().invoke(main, ["windows", str(path), "--key", "a", "--json"])
    assert done.exit_code == 0, done.output
    lines = json.loads(done.stdout)
    assert len(lines) == sum(row[0] == "a" for row in folded(ran))
    assert all(isinstance(line["final"], bool) for line in lines)
    done = CliRunner().invoke(main, ["sessions", str(path), "--key", "a"])
    assert done.exit_code == 2
    assert f"sessions: this pipeline computes windows; use: sessionlake windows {path} --key KEY" in done.stderr
    with pytest.raises(
        ConfigError, match=r"^read_sessions: this pipeline computes windows; use: sessionlake.read_windows"
    ):
        sessionlake.read_sessions(ran)
    assert sorted(sessionlake.read(ran).fetchall()) == sorted(sessionlake.read_windows(ran).fetchall())


def closed(config: Config) -> dict[tuple[str, int], tuple[Any, ...]]:
    """Return the windows that no event changes any more, by key and start."""
    watermark = read_status(config).watermark_us
    assert watermark is not None
    return {row[:2]: row for row in folded(config) if row[1] + 10 <= watermark - GRACE}


@pytest.mark.slow
def test_a_window_is_published_as_final_once_when_it_closes_and_again_where_it_changes_after(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = window_config(tmp_path)
    topic: dict[tuple[str, int], tuple[Any, ...]] = {}
    reached, sent = Reached(), 0
    for number in range(4):
        run_files(spark, tmp_path, config, range(number, number + 1))
        last = last_batch(tables_of(spark, config))
        now = Reached(last.batch_id, closed_us(config, last), last.version)
        rows = finals(tables_of(spark, config), config.section, reached, now).where("op = 'upsert'")
        found = rows_of(rows)
        topic |= {row[:2]: row for row in found}
        reached, sent = now, sent + len(found)
        assert topic == closed(config)
    assert sent == len(topic) > 0


def test_a_windows_record_is_named_by_key_and_start(ran: Config, spark: SparkSession) -> None:
    of = WINDOWS
    rows = merged_rows(tables_of(spark, ran)).withColumn("op", F.lit("upsert"))
    first = json.loads(to_records(rows, of).orderBy("key").head().value)
    names = [
        "window_key",
        "window_start",
        "window_end",
        "window_id",
        "event_count",
        "revision",
        "trigger",
        "emitted_at",
        "total",
    ]
    assert list(first) == names
    keys = [json.loads(row.key) for row in to_records(rows, of).collect()]
    assert sorted(key["window_key"] for key in keys) == sorted(row[0] for row in folded(ran))
    assert all(set(key) == {"window_key", "window_start"} for key in keys)
    gone = to_records(rows.withColumn("op", F.lit("delete")), of)
    assert gone.where("value is not null").isEmpty()


@pytest.mark.slow
@pytest.mark.parametrize("emit", ["changes", "final"])
def test_the_topic_is_what_was_sent_or_what_is_final(
    spark: SparkSession, broker: Broker, tmp_path: Path, emit: str
) -> None:
    topic = f"windows-{emit}-{tmp_path.name}"
    sink = {"kafka": {"bootstrap_servers": broker.bootstrap_servers, "topic": topic, "emit": emit}}
    config = window_config(tmp_path, sink=sink)
    for number in range(3):
        run_files(spark, tmp_path, config, range(number, number + 1))
        assert publish(spark, config, once=True).from_the_beginning == (number == 0)
        wanted = closed(config) if emit == "final" else {row[:2]: row for row in folded(config)}
        found = records(broker, topic, "window").values()
        assert sorted((row["window_key"], row["event_count"], row["revision"]) for row in found) == sorted(
            (key, count, revision) for key, _, count, revision in wanted.values()
        )


PLANTED = {
    "known_op": "'emit' as op",
    "upsert_has_state": "cast(null as binary) as state",
    "upsert_has_events": "0l as event_count",
    "start_on_grid": "window_start + make_dt_interval(0, 0, 0, 0.000001) as window_start",
    "as_long_as_its_size": "window_end + make_dt_interval(0, 0, 0, 0.000001) as window_end",
    "known_trigger": "'some' as trigger",
    "revision_not_after_batch": "9l as revision",
    "id_of_key_and_start": "7l as window_id",
    "key_present": "'' as window_key",
}


@pytest.mark.slow
def test_checks_of_windows_hold_and_each_fails_on_its_defect(spark: SparkSession, config: Config) -> None:
    from sessionlake.quality.run import run_quality

    lax = config.quality.model_copy(update={"max_late_rate": 1, "max_dead_rate": 1})
    config = config.model_copy(update={"quality": lax})
    report = run_quality(spark, config)
    assert not report.failed, report.notes
    assert report.counts["checks"] == report.counts["passed"] > 30
    tables = tables_of(spark, config)
    # Pinned: else each row would be read among those that are planted before it.
    version = tables["window_changelog"].latest_version()
    row = tables["window_changelog"].read(version).where("batch_id = 2").limit(1)
    rows = []
    for defect in PLANTED.values():
        column = defect.rpartition(" as ")[2]
        kept = [name for name in row.columns if name != column]
        rows.append(row.selectExpr(*kept, defect).select(*row.columns))
    with tables.settings({USER_METADATA: user_metadata({"copied": True, "maintenance": {"job": "test"}})}):
        for planted in rows:
            planted.write.format("delta").mode("append").save(tables["window_changelog"].uri)
        held = spark.sql(f"select * from {tables['windows'].sql_name()} limit 1")
        held.write.format("delta").mode("append").save(tables["windows"].uri)
    broken = run_quality(spark, config)
    assert broken.failed
    names = {note.split(": ")[1] for note in broken.notes if note.startswith("critical")}
    wanted = {f"window_changelog.{check}" for check in (*PLANTED, "one_change_a_batch")}
    assert wanted | {"windows.one_row_a_window", "windows.events_add_up"} <= names


def test_an_aggregate_may_not_be_called_final(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"aggregates\.final: 'final' can't name a column;"):
        window_config(tmp_path, aggregates={"final": "count()"})
