"""Stream and tables tell the same, and what an independent count says; the stream's metrics cost no Spark job."""

import json
import socket
import time
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from sessionlake.cli.observed import StreamMetrics, observed_stream
from sessionlake.config.load import Config, parse_config
from sessionlake.errors import JobError
from sessionlake.observe import metrics
from sessionlake.observe.exporter import Exporter
from sessionlake.observe.metrics import METRICS
from sessionlake.observe.readings import Readings, registry_of
from sessionlake.observe.stream import StreamReadings
from sessionlake.observe.watch import PASSING, Watch
from sessionlake.stream.run import run
from sessionlake.warehouse.batch_commit import BatchCommit, Settings
from tests.operators.keyed.table_support import table_sections
from tests.support import make_config, write_rows

LINEAGE = {"transport": "file", "path": "lineage.jsonl", "namespace": "tests"}
Values = dict[str, dict[tuple[str, ...], float]]
FIRST = [
    *({"key": k, "time_us": 1000 + i, "v": 1} for k in "abc" for i in range(3)),
    "not JSON",
    {"key": None, "time_us": 1000, "v": 1},
    {"key": "a", "time_us": "neither", "v": 1},
    {"key": "a", "time_us": "nor", "v": 1},
]
SECOND = [{"key": "d", "time_us": 1030, "v": 1}, {"key": "e", "time_us": 960, "v": 1}]
"""960 is late: the watermark is 1002, gap and grace are 30."""
OUTCOMES = {
    ("accepted",): 10,
    ("late",): 1,
    ("dead",): 4,
    ("dropped",): 0,
    ("emitted",): 0,
    ("filtered",): 0,
    ("duplicate",): 0,
}


def values(text: str) -> Values:
    """Return the values by metric and the labels that follow `pipeline`."""
    order = {metric.name: metric.labels[1:] for metric in METRICS}
    found: Values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sample.labels[name] for name in order.get(sample.name, ()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def exposed(readings: Readings) -> Values:
    return values(generate_latest(registry_of(readings)).decode())


class Ran:
    """A pipeline of two batches that was scraped while it ran, one folded."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.root, self.config = (
            root,
            make_config(
                root,
                source={"types": {"time_us": "long"}},
                session={"retention": "600 us"},
                metrics={"port": port},
                lineage=LINEAGE,
            ),
        )
        self.scrapes: list[Values] = []
        self.jobs: list[int] = []
        scheduler, bus = spark.sparkContext._jsc.sc().dagScheduler(), spark.sparkContext._jsc.sc().listenerBus()

        def scrape() -> Values:
            bus.waitUntilEmpty(10_000)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                return values(answer.read().decode())

        write_rows(root, "1.json", FIRST)
        with observed_stream(spark, self.config) as committed:

            def on_commit(batch: BatchCommit) -> None:
                before = scheduler.numTotalJobs()
                committed(batch)
                self.jobs.append(scheduler.numTotalJobs() - before)
                self.scrapes.append(scrape())

            run(spark, self.config, once=True, on_commit=on_commit)
            write_rows(root, "2.json", SECOND)
            run(spark, self.config, once=True, on_commit=on_commit)
            self.end = scrape()
        self.exporter = Exporter(self.config)
        assert self.exporter.refresh() is None
        self.tables = exposed(self.exporter.readings)


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Ran(spark, tmp_path_factory.mktemp("observed"))


def test_counts(ran: Ran) -> None:
    for found in (ran.end, ran.tables):
        assert found["sessionlake_input_events_total"] == {(): 15}
        assert found["sessionlake_events_total"] == OUTCOMES
        assert found["sessionlake_session_changes_total"] == {("upsert",): 4, ("delete",): 0}
        assert found["sessionlake_batches_total"] == {(): 2}
        assert found["sessionlake_watermark_timestamp_seconds"] == {(): 1030 / 1e6}


CHANGING = {metrics.STORE_BYTES, metrics.DISK_FREE, metrics.DISK_SIZE}
"""Other processes write, too."""


def test_what_both_tell_is_the_same(ran: Ran) -> None:
    both = [m.name for m in METRICS if set(m.sources) >= {"stream", "tables"} and m not in CHANGING]
    assert {name: ran.end[name] for name in both} == {name: ran.tables[name] for name in both}


def test_each_source_has_all_that_the_registry_says(ran: Ran) -> None:
    # Of topics, and where the config has [quarantine] or [ttl].
    of_ttl = {metrics.TABLE_ROWS, metrics.EXPIRED_ROWS, metrics.EXPIRY_SCANNED, metrics.EXPIRY_LAG}
    of_ttl |= {metrics.CLEANUP_SECONDS, metrics.CLEANUP_ROUND}
    elsewhere = {metrics.OFFSETS_BEHIND, metrics.QUARANTINED, *of_ttl}
    here = {m.name for m in METRICS if "stream" in m.sources and m not in elsewhere}
    assert {name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in ran.end} == here
    of_jobs = {metrics.FAILED_CHECKS, metrics.JOB_START, metrics.JOB_SUCCESS}  # none has run
    of_followers = {metrics.FOLLOWER_BATCHES, metrics.FOLLOWER_SECONDS, metrics.FOLLOWER_READABLE}  # there are none
    absent = of_jobs | of_followers
    assert set(ran.tables) == {m.name for m in METRICS if "tables" in m.sources and m not in absent}


def test_scraped_while_it_runs(ran: Ran) -> None:
    first, second = ran.scrapes
    assert (first["sessionlake_input_events_total"], second["sessionlake_input_events_total"]) == ({(): 13}, {(): 15})
    assert first["sessionlake_watermark_timestamp_seconds"] == {(): 1002 / 1e6}
    assert ran.end["sessionlake_batch_duration_seconds_count"] == {(): 2}
    assert 0 < ran.end["sessionlake_batch_duration_seconds_sum"][()] < 300
    assert time.time() - ran.end["sessionlake_last_trigger_timestamp_seconds"][()] < 300
    phases = ran.end["sessionlake_trigger_phase_seconds_total"]
    assert phases[("addBatch",)] > 0
    assert ("triggerExecution",) not in phases


def test_costs_no_spark_job(ran: Ran) -> None:
    assert ran.jobs == [0, 0]


def test_state_of_the_tables(ran: Ran, spark: SparkSession) -> None:
    found = ran.tables
    assert found["sessionlake_late_events"] == {("waiting",): 1, ("reprocessed",): 0, ("expired",): 0}
    assert found["sessionlake_dead_letters"] == {("bad JSON",): 1, ("null key",): 1, ("wrong type",): 2}
    assert found["sessionlake_reconciles"] == {(): 1}
    assert found["sessionlake_unfolded_batches"] == {(): 2}
    assert found["sessionlake_unfolded_changes"] == {(): 4}
    committed = "sessionlake_last_commit_timestamp_seconds"
    assert found["sessionlake_snapshot_timestamp_seconds"] == ran.scrapes[0][committed] != found[committed]
    assert found["sessionlake_exporter_refresh_success"] == {(): 1}
    for table in ("session_changelog", "sessions", "late_events"):
        files = spark.read.format("delta").load(f"{ran.config.pipeline.warehouse}/{table}").inputFiles()
        sizes = sum(Path(urlsplit(file).path).stat().st_size for file in files)
        assert (found["sessionlake_table_files"][(table,)], found["sessionlake_table_bytes"][(table,)]) == (
            len(files),
            sizes,
        )


def test_read_again_only_after_a_change(tmp_path: Path) -> None:
    log = tmp_path / "warehouse" / "batches" / "_delta_log"
    log.mkdir(parents=True)
    answers: list[Any] = ["first", JobError("gone"), "second"]

    def read(_: Config) -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    watch = Watch(make_config(tmp_path), read)
    assert [watch.look(), watch.look()] == ["first", "first"]
    (log / f"{0:020d}.json").touch()
    with pytest.raises(PASSING, match="gone"):
        watch.look()
    assert [watch.look(), watch.look()] == ["second", "second"]
    assert answers == []


def test_exporter_outlives_its_tables(ran: Ran) -> None:
    warehouse, new = Path(ran.config.pipeline.warehouse), Exporter(ran.config)
    hidden = warehouse.rename(warehouse.with_name("hidden"))
    try:
        for exporter, known in ((new, {"sessionlake_pipeline_failing": {(): 0}}), (ran.exporter, ran.tables)):
            assert "has no batches yet" in str(exporter.refresh())
            assert exposed(exporter.readings) == {**known, "sessionlake_exporter_refresh_success": {(): 0}}
    finally:
        hidden.rename(warehouse)


def test_lineage_names_what_was_read_and_written(ran: Ran) -> None:
    first, last = [json.loads(line) for line in (ran.root / "lineage.jsonl").read_text().splitlines()]
    assert (first["eventType"], last["eventType"]) == ("START", "COMPLETE")
    assert (last["job"]["namespace"], last["job"]["name"]) == ("tests", "test.run")
    assert last["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    warehouse = ran.config.pipeline.warehouse
    assert flow(last) == (
        {f"{ran.root}/events": 15, f"{warehouse}/corrections": 0},
        {
            f"{warehouse}/session_changelog": 4,
            f"{warehouse}/late_events": 1,
            f"{warehouse}/dead_letters": 4,
            f"{warehouse}/correction_outcomes": 0,
        },
    )
    assert [set(side) for side in flow(last)] == [set(side) for side in flow(first)]


def flow(event: dict[str, Any]) -> tuple[dict[str, int | None], dict[str, int | None]]:
    """Return inputs and outputs with the rows told of each."""
    assert {d["namespace"] for d in event["inputs"] + event["outputs"]} == {"file"}
    read = {d["name"]: d["inputFacets"].get("inputStatistics", {}).get("rowCount") for d in event["inputs"]}
    return read, {d["name"]: d["outputFacets"].get("outputStatistics", {}).get("rowCount") for d in event["outputs"]}


def test_kafka_sources_say_how_far_behind(tmp_path: Path) -> None:
    readings = StreamReadings(make_config(tmp_path))
    behind = [{"maxOffsetsBehindLatest": "7", "minOffsetsBehindLatest": "0"}, {}, {"maxOffsetsBehindLatest": "12"}]
    readings.triggered("2026-01-01T00:00:00.000Z", {"addBatch": 250, "triggerExecution": 300}, behind)
    readings.triggered("2026-01-01T00:00:10.000Z", {"addBatch": 500, "walCommit": 1}, [{}])
    found = exposed(readings)
    assert found["sessionlake_source_offsets_behind"] == {(): 12}
    assert found["sessionlake_last_trigger_timestamp_seconds"] == {(): 1767225610}
    assert found["sessionlake_trigger_phase_seconds_total"] == {("addBatch",): 0.75, ("walCommit",): 0.001}


def test_rows_that_expire_are_counted_by_cause(tmp_path: Path) -> None:
    config = parse_config({**table_sections(), "ttl": {"pattern": "scan", "ttl": "1 day"}}, tmp_path)
    readings = StreamReadings(config)
    assert exposed(readings)["sessionlake_expired_rows_total"] == {("ttl",): 0, ("lru",): 0}
    for n, state in enumerate([{"live_rows": 7}, {"live_rows": None, "expiry_lag_us": 5_000_000}]):
        counts = {"deleted_by_ttl": 2 + n, "scanned": 9, "cleanup_us": 250_000}
        readings.committed(BatchCommit("p", "id", n, "c", state, counts, (None,), "", Settings({}, {}, {}), None, 1, 2))
    found = exposed(readings)
    assert found["sessionlake_expired_rows_total"] == {("ttl",): 5, ("lru",): 0}
    assert found["sessionlake_expiry_scanned_rows_total"] == {(): 18}
    assert found["sessionlake_table_rows"] == {(): 7}
    assert found["sessionlake_expiry_lag_seconds"] == {(): 5}
    assert found["sessionlake_cleanup_seconds_total"] == {(): 0.5}


def test_a_failure_ends_with_a_trigger_that_ends_well(tmp_path: Path) -> None:
    readings = StreamReadings(make_config(tmp_path))
    committed = BatchCommit("p", "id", 0, "c", {}, {"input": 3}, (None,), "", Settings({}, {}, {}), None, 1, 2)
    seen = []

    def look() -> None:
        found = exposed(readings)
        seen.append((found["sessionlake_pipeline_failing"][()], found["sessionlake_batches_total"][()]))

    look()
    readings.committed(committed)
    readings.fails()
    look()
    readings.starts(make_config(tmp_path))
    readings.looked("2026-01-01T00:00:00.000Z")  # as its query starts
    look()
    readings.triggered("2026-01-01T00:00:10.000Z", {}, ())  # of an idle stream
    look()
    readings.fails()
    readings.committed(committed)
    look()
    assert seen == [(0, 0), (1, 1), (1, 1), (0, 1), (0, 2)]


def test_kept_metrics_move_with_the_port_of_the_config(tmp_path: Path) -> None:
    def answers(port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [server.getsockname()[1] for server in (one, other)]
    configs = [make_config(tmp_path, metrics={"port": port} if port else {}) for port in (*ports, None)]
    with closing(StreamMetrics(configs[0])) as kept:
        answered = []
        for config in (configs[0], configs[0], configs[1], configs[2], configs[1]):
            served = kept.serve(config)
            answered.append((served, *map(answers, ports)))
    assert answered == [(True, True, False)] * 2 + [(True, False, True), (False, False, False), (True, False, True)]
    assert not answers(ports[1])


def test_a_port_in_use_is_a_warning(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with observed_stream(spark, make_config(tmp_path, metrics={"port": port})) as committed:
            counts = {"input": 1, "accepted": 1}
            settings = Settings({}, {}, {})
            counts = {"input": 1, "accepted": 1}
            committed(BatchCommit("p", "id", 0, "c", {"watermark_us": 1}, counts, (None,), "", settings, None, 1, 2))
    err = capsys.readouterr().err
    assert err.startswith(f"sessionlake: warning: metrics.port: 127.0.0.1:{port} can't be listened on")
    assert err.count("\n") == 1
