"""Every check of the shipped suites is seen to hold on a healthy warehouse and to fail on its planted defect."""

import datetime as dt
import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake.cli import main
from sessionlake.config.load import Config
from sessionlake.engine import failpoints
from sessionlake.errors import ConfigError, JobError
from sessionlake.jobs.run import JobReport, _record
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.delta_log import USER_METADATA
from sessionlake.warehouse.history import user_metadata
from sessionlake.warehouse.tables import Tables, spark_schema
from tests.support import make_config, write_config, write_rows

Row = dict[str, Any]
LAST_BATCH = 2
TABLES = ("events", "session_changelog", "sessions", "late_events")
LAX = {"max_late_rate": 1, "max_dead_rate": 1, "max_null_key_rate": 1}
SETTINGS: dict[str, Any] = {"event": {"id": "id"}, "quality": LAX}


def event(key: str | None, time_us: int) -> Row:
    return {"key": key, "time_us": time_us, "v": 2, "id": f"{key}{time_us}"}


def configure(root: Path, **quality: Any) -> Config:
    return make_config(root, **{**SETTINGS, "quality": {**LAX, **quality}})


@pytest.fixture(scope="module")
def healthy(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline after three batches: ten events accepted, one late, two dead, one of those without a key."""
    root = tmp_path_factory.mktemp("healthy")
    (root / "events").mkdir()
    config = configure(root)
    write_rows(
        root, "0", [event("a", 100), event("a", 105), event("b", 100), event("a", 140), event(None, 1), "{broken"]
    )
    write_rows(root, "1", [event("a", 150), event("b", 111), event("a", 90), event("a", 120)])
    write_rows(root, "2", [event("c", 200), event("a", 150), event("b", 160)])
    run(spark, config, once=True)
    return root


@pytest.fixture
def lake(healthy: Path, tmp_path: Path) -> Path:
    root = tmp_path / "lake"
    shutil.copytree(healthy, root)
    return root


def tables_of(spark: SparkSession, root: Path) -> Tables:
    return Tables(spark, str(root / "warehouse"), CHANGELOG)


def damaging(tables: Tables) -> AbstractContextManager[None]:
    """Let commits pass for a job's: what others change is refused before any check."""
    mark = {"copied": True, "maintenance": {"job": "test"}}
    return tables.settings({USER_METADATA: user_metadata(mark)})


def check(spark: SparkSession, root: Path, *only: str, config: Config | None = None, **options: Any) -> JobReport:
    from sessionlake.quality.run import run_quality

    return run_quality(spark, config or configure(root), only=only, **options)


def found(report: JobReport) -> dict[str, Any]:
    """Return what failed: rows that break a check, or else what was observed."""
    failed = {}
    for note in report.notes:
        if not note.startswith("Data Docs"):
            _, name, observed = note.split(": ", 2)
            failed[name] = json.loads(observed)
    return failed


def breaking(report: JobReport) -> dict[str, Any]:
    """Return how many rows break each failed check, by its name; of a check that is not about rows what was seen."""

    def short(seen: Row) -> Any:
        value = seen.get("observed_value", seen)
        return int(value.split(" of ")[0]) if isinstance(value, str) else value

    return {name.partition(".")[2]: short(seen) for name, seen in found(report).items()}


def plant(spark: SparkSession, root: Path, table: str, rows: list[Row]) -> None:
    """Append rows to a table; session_id is right but for where a row has one."""
    tables = tables_of(spark, root)
    schema = tables[table].read().schema
    arrow = pa.Table.from_pylist(rows, schema=to_arrow(schema))
    frame = spark.createDataFrame(arrow, spark_schema(arrow.schema))
    if "session_id" in schema.names:
        frame = frame.withColumn("session_id", F.coalesce("session_id", F.xxhash64("session_key", "session_start")))
    with damaging(tables):
        frame.coalesce(1).write.format("delta").mode("append").save(tables[table].uri)


def to_arrow(schema: Any) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema)


def session(key: str | None, start: int, end: int, **other: Any) -> Row:
    row = {"session_key": key, "session_start": start, "session_end": end, "session_date": dt.date(1970, 1, 1)}
    return {**row, "event_count": 1, "revision": 0, "total": 2, "state": b"x", **other}


def change(key: str | None, start: int, end: int, **other: Any) -> Row:
    row = session(key, start, end, op="upsert", batch_id=0, commit_id="x")
    del row["session_date"]
    return {**row, **other}


def test_healthy_warehouse_passes_and_its_results_are_kept(spark: SparkSession, lake: Path) -> None:
    tables = tables_of(spark, lake)
    names = {path.name for path in (lake / "warehouse").iterdir() if not path.name.startswith("_")}
    before = {name: tables[name].latest_version() for name in names}
    report = check(spark, lake, run_id="r1")
    assert found(report) == {}
    assert report.counts["checks"] == report.counts["passed"] == 45
    assert {name: tables[name].latest_version() for name in names} == before
    rows = tables[schemas.QUALITY_RESULTS].read().collect()
    assert len(rows) == 45
    assert {row["table"] for row in rows} == set(TABLES)
    version = next(row["version"] for row in rows if row["table"] == "sessions")
    assert version == f"sessions@{before['sessions']}, session_changelog@{before['session_changelog']}"
    assert (lake / "quality/gx/uncommitted/data_docs/local_site/index.html").exists()

    again = check(spark, lake, run_id="r1")
    assert again.repeated
    assert again.counts == report.counts
    assert tables[schemas.QUALITY_RESULTS].latest_version() == 1


def test_each_check_of_sessions_fails_on_its_defect(spark: SparkSession, lake: Path) -> None:
    far = 1_000
    rows = [
        *(session("overlap", far + a, far + b) for a, b in ((0, 100), (50, 60))),
        *(session("gap exactly", far + t, far + t) for t in (0, 10)),
        *(session("gap and 1 us", far + t, far + t) for t in (0, 11)),
        session("back", far, far - 1),
        session("empty", far, far, event_count=0),
        session("stateless", far, far, state=None),
        session("id", far, far, session_id=7),
        session("date", far, far, session_date=dt.date(1970, 1, 2)),
        session("uncommitted", far, far, revision=LAST_BATCH + 1),
        *[session("twice", far, far)] * 2,
        session(None, far, far),
        session("", far, far),
    ]
    plant(spark, lake, schemas.SESSIONS, rows)
    report = check(spark, lake, "sessions", dry_run=True)
    assert breaking(report) == {
        "apart_by_more_than_gap": 2,
        "end_not_before_start": 1,
        "has_events": 1,
        "has_state": 1,
        "id_of_key_and_start": 1,
        "date_of_start": 1,
        "revision_committed": 1,
        "one_row_a_session": 1,
        "key_present": 2,
        "events_add_up": 10 + 15,
    }


@pytest.mark.slow
def test_each_check_of_the_changelog_fails_on_its_defect(spark: SparkSession, lake: Path) -> None:
    rows = [
        change("op", 1, 1, op="merge"),
        change("stateless", 1, 1, state=None),
        change("empty", 1, 1, event_count=0),
        change("back", 1, 0),
        change("revision", 1, 1, revision=1),
        change("uncommitted", 1, 1, batch_id=LAST_BATCH + 1),
        change("id", 1, 1, session_id=7),
        *[change("twice", 1, 1)] * 2,
        *[change("emitted twice", 1, 1, op="emit")] * 2,
        change("deleted", 1, 1, op="delete", state=None, event_count=0),
        change(None, 1, 1),
    ]
    plant(spark, lake, schemas.CHANGELOG, rows)
    assert breaking(check(spark, lake, "session_changelog", dry_run=True)) == {
        "known_op": 1,
        "upsert_has_state": 1,
        "upsert_has_events": 1,
        "end_not_before_start": 1,
        "revision_not_after_batch": 1,
        "batch_committed": 1,
        "id_of_key_and_start": 1,
        "one_change_a_batch": 1,
        "key_present": 1,
    }


def late(key: str | None, **other: Any) -> Row:
    row = {"key": key, "event_time": 1, "event_id": "e", "event": {"v": 1}, "raw": "{}", "source": "here"}
    return {**row, "close_time": 2, "batch_id": 0, "commit_id": "x", **other}


@pytest.mark.slow
def test_each_check_of_late_events_fails_on_its_defect(spark: SparkSession, lake: Path) -> None:
    rows = [
        late("at close time", close_time=1),
        late("eventless", event=None),
        late("rawless", raw=None),
        late("no id", event_id=None),
        late(None),
        late("of a batch under way", batch_id=LAST_BATCH + 1, event=None),
    ]
    plant(spark, lake, schemas.LATE_EVENTS, rows)
    report = check(spark, lake, "late_events", dry_run=True)
    wanted = {"before_close_time": 1, "event_kept": 2, "id_present": 1, "key_present": 1, "as_many_as_counted": 6}
    assert breaking(report) == wanted
    assert report.counts["failed_warning"] == 1


@pytest.mark.slow
def test_each_check_of_events_fails_on_its_defect(spark: SparkSession, lake: Path) -> None:
    zero = dict.fromkeys(schemas.COUNTS, 0)
    committed = {"started_at": 0, "committed_at": 0, "commit_id": "x", "changelog_version": 0, "watermark": 1}
    tables = tables_of(spark, lake)
    plant(spark, lake, "batches", [{**zero, **committed, "batch_id": 1, "input": 3, "accepted": 1, "corrections": 1}])
    plant(spark, lake, "late_events", [late("surplus", batch_id=0)])
    spark.sql(f"delete from delta.`{tables['dead_letters'].uri}` where reason = 'null key'")
    report = check(spark, lake, "events", config=configure(lake, max_age="0 seconds"), dry_run=True)
    seen = breaking(report)
    assert seen.pop("fresh") > 0
    # Batch 1 is there twice: its planted row, which counts none of its late event, is not as the tables have it.
    assert seen == {
        "counts_reconcile": 1,
        "total_reconciles": 2,
        "corrections_reconcile": 1,
        "late_rows_counted": 2,
        "dead_rows_counted": 1,
        "outcomes_counted": 1,
        "one_row_a_batch": 1,
        "watermark_never_back": 1,
    }


@pytest.mark.slow
def test_missing_batch_rates_and_bounds_fail(spark: SparkSession, lake: Path) -> None:
    spark.sql(f"delete from delta.`{tables_of(spark, lake)['batches'].uri}` where batch_id = 1")
    bounds = {"range": [3, 4], "mean": [10, 20], "quantiles": {"0.5": [0, 1]}, "severity": "critical"}
    strict = {"max_late_rate": 0, "max_dead_rate": 0, "max_null_key_rate": 0}
    config = configure(lake, **strict, aggregates={"total": bounds})
    report = check(spark, lake, "events", "sessions", config=config, dry_run=True)
    seen = breaking(report)
    assert seen.pop("no_batch_missing") == 1
    assert {name for name in seen if name.endswith(" of total")} == {
        "quantile 0.5 of total",
        "mean of total",
        "minimum of total",
        "maximum of total",
    }
    assert seen["dead_rate"] == pytest.approx(2 / 9)
    assert seen["null_key_rate"] == pytest.approx(1 / 9)
    assert seen["events_add_up"] == 10


@pytest.mark.slow
def test_late_rate_fails(spark: SparkSession, lake: Path) -> None:
    report = check(spark, lake, "events", config=configure(lake, max_late_rate=0.05), dry_run=True)
    assert breaking(report) == {"late_rate": pytest.approx(1 / 13)}


@pytest.mark.slow
def test_lost_sessions_fail_and_events_of_corrections_are_allowed_for(spark: SparkSession, lake: Path) -> None:
    tables = tables_of(spark, lake)
    with damaging(tables):
        spark.sql(f"delete from delta.`{tables['session_changelog'].uri}` where session_key = 'c'")
    assert breaking(check(spark, lake, "sessions", dry_run=True)) == {"events_add_up": 9}
    rows = [{"correction_id": "x", "kind": "tombstone", "key": "c", "start_time": 200, "revision": 2}]
    plant(spark, lake, "corrections", rows)
    assert breaking(check(spark, lake, "sessions", dry_run=True)) == {"events_add_up": 9}, "no batch has read it"
    told = [{"correction_id": "x", "kind": "tombstone", "key": "c", "outcome": "applied", "batch_id": LAST_BATCH}]
    plant(spark, lake, "correction_outcomes", told)
    assert breaking(check(spark, lake, "sessions", dry_run=True)) == {}


@pytest.mark.slow
def test_erased_late_events_fail_unless_a_job_forgot_them(spark: SparkSession, lake: Path) -> None:
    tables = tables_of(spark, lake)
    spark.sql(f"delete from delta.`{tables['late_events'].uri}`")
    failed = breaking(check(spark, lake, "events", "late_events", dry_run=True))
    assert failed == {"late_rows_counted": 1, "as_many_as_counted": 0}
    check(spark, lake, "late_events")  # creates job_runs
    _record(tables, "forget", "f", "started", 0, {}, {}, None)
    assert found(check(spark, lake, "events", "late_events", dry_run=True)) == {}


@pytest.mark.parametrize(
    ("table", "column", "suite"),
    [
        pytest.param("sessions", "total", "sessions", marks=pytest.mark.slow),
        pytest.param("session_changelog", "event_count", "session_changelog", marks=pytest.mark.slow),
        pytest.param("session_changelog", "event_count", "sessions", marks=pytest.mark.slow),
        pytest.param("late_events", "raw", "late_events", marks=pytest.mark.slow),
        pytest.param("batches", "dead", "events", marks=pytest.mark.slow),
    ],
)
def test_missing_column_fails_the_schema(spark: SparkSession, lake: Path, table: str, column: str, suite: str) -> None:
    tables = tables_of(spark, lake)
    rows = tables[table].read().drop(column)
    with damaging(tables):
        rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(tables[table].uri)
    report = check(spark, lake, suite, dry_run=True)
    failed = found(report)
    if (table, suite) == ("session_changelog", "sessions"):
        # A column that the changelog lacks is null in rows that are merged; the suite of the changelog names it.
        assert {"sessions.has_events", "sessions.events_add_up"} == failed.keys()
        return
    assert failed[f"{suite}.schema"]["observed_value"] == {"missing": [column]}
    # A check that needs the column says so, and takes no other one with it.
    assert all(column in str(seen) for seen in failed.values())


@pytest.mark.slow
def test_fail_on(spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessionlake.cli.jobs.open_session", lambda *_, **__: spark)
    file = write_config(lake, event={"id": "id"})

    def code(*arguments: str) -> int:
        return CliRunner().invoke(main, ["quality", str(file), "--table", "events", *arguments]).exit_code

    assert code("--dry-run") == 0
    assert not (lake / "quality").exists()
    assert not tables_of(spark, lake)[schemas.QUALITY_RESULTS].exists()
    assert code("--dry-run", "--fail-on", "warn") == 8
    write_config(lake, event={"id": "id"}, quality={"max_age": "0 seconds"})
    assert code("--run-id", "x", "--data-docs", str(lake / "docs")) == 8
    assert code("--run-id", "x", "--data-docs", str(lake / "docs")) == 8
    pages = list((lake / "docs").rglob("validations/events/x/**/*.html"))
    assert len(pages) == 1
    assert "fresh: seconds since the last commit" in pages[0].read_text()
    assert len(list((lake / "docs").rglob("validations/events/x/**/*.json"))) == 1


@pytest.mark.parametrize(
    "point",
    [
        "quality_checked_late_events",
        "quality_stored",
        "quality_documented",
    ],
)
@pytest.mark.slow
def test_killed_and_retried_is_once_on_the_pinned_versions(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    def crash(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "hit", crash)
        with pytest.raises(KeyboardInterrupt):
            check(spark, lake, "late_events", run_id="k")
    plant(spark, lake, schemas.LATE_EVENTS, [late(None)])
    report = check(spark, lake, "late_events", run_id="k")
    assert found(report) == {}
    assert tables_of(spark, lake)[schemas.QUALITY_RESULTS].read().count() == report.counts["checks"] == 6
    assert len(list((lake / "quality").rglob("validations/late_events/k/**/*.json"))) == 1
    assert "key_present" in str(found(check(spark, lake, "late_events", dry_run=True)))


def with_suite(root: Path, change: Callable[[list[Any]], list[Any]]) -> Config:
    shipped = json.loads((Path(__file__).parents[2] / "expectations/sessions.json").read_text())
    (root / "mine").mkdir()
    suite = {**shipped, "expectations": change(shipped["expectations"])}
    (root / "mine/sessions.json").write_text(json.dumps(suite))
    return configure(root, expectations="mine")


@pytest.mark.slow
def test_standard_expectations_of_a_users_file_run_too(spark: SparkSession, lake: Path) -> None:
    mine = [
        {"type": "expect_column_max_to_be_between", "kwargs": {"column": "total", "max_value": 5}, "severity": "info"},
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "session_key"}},
    ]
    report = check(spark, lake, "sessions", config=with_suite(lake, lambda shipped: shipped + mine), dry_run=True)
    assert found(report) == {"sessions.expect_column_max_to_be_between": {"observed_value": 6}}
    assert report.counts["checks"] == 11 + 2
    assert report.counts["failed_info"] == 1


@pytest.mark.parametrize(
    ("expectation", "message"),
    [
        ({"type": "expect_wonders", "kwargs": {}}, "expectation 1 is wrong: .*expect_wonders"),
        ({"type": "expect_rows_to_satisfy", "kwargs": {"name": "x"}}, "(?s)expectation 1 is wrong: .*condition"),
        (
            {"type": "expect_rows_to_satisfy", "kwargs": {"name": "x", "condition": "a = {gapp}"}},
            "no parameter is named 'gapp'; write one of .*gap_us",
        ),
    ],
)
def test_wrong_suite_is_refused(tmp_path: Path, expectation: Row, message: str) -> None:
    from sessionlake.quality.suites import load_suite

    with pytest.raises(ConfigError, match=message):
        load_suite(with_suite(tmp_path, lambda _: [expectation]), "sessions", {"gap_us": 10})


@pytest.mark.slow
def test_wrong_table_bounds_and_directory_are_refused(spark: SparkSession, lake: Path) -> None:
    with pytest.raises(JobError, match="--table: 'nope' has no suite; write one of events, "):
        check(spark, lake, "nope")
    with pytest.raises(ConfigError, match=r"quality.aggregates.totl: 'totl' is no aggregate"):
        configure(lake, aggregates={"totl": {}})
    with pytest.raises(ConfigError, match=r"quality.aggregates.total.maen: is unknown \(did you mean 'mean'\?\)"):
        configure(lake, aggregates={"total": {"maen": [1, 2]}})
    with pytest.raises(ConfigError, match=r"quality.aggregates.total.range: \[2.0, 1.0\] is empty"):
        configure(lake, aggregates={"total": {"range": [2, 1]}})
    with pytest.raises(ConfigError, match=r"quantiles: '99' is no quantile"):
        configure(lake, aggregates={"total": {"quantiles": {"99": [2, 3]}}})
    with pytest.raises(ConfigError, match="can't be read"):
        check(spark, lake, "sessions", config=configure(lake, expectations="nowhere"), dry_run=True)


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_a_shipped_suite_is_answered_by_one_query(
    spark: SparkSession, lake: Path, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sessionlake.quality.context import open_context, validate
    from sessionlake.quality.frames import Inputs, frames_of, pin
    from sessionlake.quality.suites import load_suite, parameters

    config, tables = configure(lake), tables_of(spark, lake)
    inputs = Inputs(tables, config, pin(tables), 0)
    checked = frames_of(inputs.config)[table](inputs)
    suite = load_suite(config, table, {**parameters(inputs), "columns": checked.columns})
    queries = []
    collect = type(checked.frame).collect

    def counted(frame: Any) -> Any:
        queries.append(frame)
        return collect(frame)

    monkeypatch.setattr(type(checked.frame), "collect", counted)
    result = validate(open_context(None), suite, checked.frame, "r", 0)
    assert len(queries) == 1
    assert len(result.results) == len(suite.expectations) > 5
