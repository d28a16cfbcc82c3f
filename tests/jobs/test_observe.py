"""Stream and tables tell the same, and what an independent count says; the stream's metrics cost no Spark job."""

import json
import shutil
import socket
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from sessionlake import metrics
from sessionlake.cli import main
from sessionlake.cli.observed import observed_stream
from sessionlake.config import Config, load_config
from sessionlake.errors import JobError
from sessionlake.jobs.observe.exporter import Exporter
from sessionlake.jobs.observe.stream import StreamReadings
from sessionlake.jobs.observe.watch import PASSING, Watch
from sessionlake.jobs.sessionizer.run import run
from sessionlake.metrics import METRICS
from sessionlake.readings import registry_of
from tests.jobs.support import make_config, write_rows

CONFIG = """\
[pipeline]
name = "clicks"
warehouse = "warehouse"
shards = 2
[source]
kind = "files"
path = "events"
format = "json"
max_files_per_batch = 1
types = {{time_us = "long"}}
[event]
key = "key"
time = "time_us"
time_unit = "us"
[session]
gap = "10 us"
grace = "20 us"
retention = "600 us"
[aggregates]
total = "sum(v)"
[metrics]
port = {port}
textfile = "textfiles"
[lineage]
transport = "file"
path = "lineage.jsonl"
namespace = "tests"
"""
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
OUTCOMES = {("accepted",): 10, ("late",): 1, ("dead",): 4, ("dropped",): 0, ("emitted",): 0}


def values(text: str) -> Values:
    """Return the values by metric and the labels that follow `pipeline`."""
    order = {metric.name: metric.labels[1:] for metric in METRICS}
    found: Values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sample.labels[name] for name in order.get(sample.name, ()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def of_tables(exporter: Exporter) -> Values:
    return values(generate_latest(registry_of(exporter.readings)).decode())


class Ran:
    """A pipeline of two batches that was scraped while it ran, one folded."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        (root / "events").mkdir()
        file = root / "clicks.toml"
        file.write_text(CONFIG.format(port=port))
        self.root, self.config = root, load_config(file)
        self.scrapes: list[Values] = []
        self.jobs: list[int] = []
        scheduler, bus = spark.sparkContext._jsc.sc().dagScheduler(), spark.sparkContext._jsc.sc().listenerBus()

        def scrape() -> Values:
            bus.waitUntilEmpty(10_000)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                return values(answer.read().decode())

        write_rows(root, "1.json", FIRST)
        with observed_stream(spark, self.config) as committed:

            def on_commit(metadata: dict[str, Any]) -> None:
                before = scheduler.numTotalJobs()
                committed(metadata)
                self.jobs.append(scheduler.numTotalJobs() - before)
                self.scrapes.append(scrape())

            run(spark, self.config, once=True, on_commit=on_commit)
            folded = CliRunner().invoke(main, ["compact", str(file)])
            assert folded.exit_code == 0, folded.output
            write_rows(root, "2.json", SECOND)
            run(spark, self.config, once=True, on_commit=on_commit)
            self.end = scrape()
        self.exporter = Exporter(self.config)
        assert self.exporter.refresh(spark) is None
        self.tables = of_tables(self.exporter)


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


def test_what_both_tell_is_the_same(ran: Ran) -> None:
    both = [m.name for m in METRICS if set(m.sources) >= {"stream", "tables"} and m is not metrics.STORE_BYTES]
    assert {name: ran.end[name] for name in both} == {name: ran.tables[name] for name in both}


def test_each_source_has_all_that_the_registry_says(ran: Ran) -> None:
    here = {m.name for m in METRICS if "stream" in m.sources and m is not metrics.OFFSETS_BEHIND}
    assert {name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in ran.end} == here
    # No run of quality has left a table.
    assert set(ran.tables) == {m.name for m in METRICS if "tables" in m.sources and m is not metrics.FAILED_CHECKS}


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
    assert found["sessionlake_unfolded_batches"] == {(): 1}
    assert found["sessionlake_unfolded_changes"] == {(): 1}
    assert found["sessionlake_snapshot_timestamp_seconds"] == found["sessionlake_last_commit_timestamp_seconds"]
    assert found["sessionlake_exporter_refresh_success"] == {(): 1}
    started, ended = (found[f"sessionlake_job_last_{what}_timestamp_seconds"] for what in ("start", "success"))
    assert 0 < ended[("compact",)] - started[("compact",)] < 300
    for table in ("session_changelog", "sessions", "late_events"):
        files = spark.read.format("delta").load(f"{ran.config.pipeline.warehouse}/{table}").inputFiles()
        sizes = sum(Path(file.removeprefix("file://")).stat().st_size for file in files)
        assert (found["sessionlake_table_files"][(table,)], found["sessionlake_table_bytes"][(table,)]) == (
            len(files),
            sizes,
        )


def test_read_again_only_after_a_change(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "warehouse" / "batches" / "_delta_log"
    log.mkdir(parents=True)
    answers: list[Any] = ["first", JobError("gone"), "second"]

    def read(_: SparkSession, __: Config) -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    watch = Watch(spark, make_config(tmp_path), read)
    assert [watch.look(), watch.look()] == ["first", "first"]
    (log / f"{0:020d}.json").touch()
    with pytest.raises(PASSING, match="gone"):
        watch.look()
    assert [watch.look(), watch.look()] == ["second", "second"]
    assert answers == []


def test_exporter_outlives_its_tables(ran: Ran, spark: SparkSession, tmp_path: Path) -> None:
    config = copied(ran.config, tmp_path)
    warehouse = Path(config.pipeline.warehouse)
    exporter = Exporter(config)
    hidden = tmp_path / "hidden"
    warehouse.rename(hidden)
    assert "has no batches yet" in str(exporter.refresh(spark))
    assert of_tables(exporter) == {"sessionlake_exporter_refresh_success": {(): 0}}
    hidden.rename(warehouse)
    assert exporter.refresh(spark) is None
    read = of_tables(exporter)
    shutil.rmtree(warehouse / "late_events")
    assert exporter.refresh(spark) is not None
    assert of_tables(exporter) == {**read, "sessionlake_exporter_refresh_success": {(): 0}}


def test_lineage_names_what_was_read_and_written(ran: Ran) -> None:
    sent = [json.loads(line) for line in (ran.root / "lineage.jsonl").read_text().splitlines()]
    assert [(e["eventType"], e["job"]["namespace"], e["job"]["name"]) for e in sent] == [
        ("START", "tests", "clicks.sessionize"),
        ("START", "tests", "clicks.compact"),
        ("COMPLETE", "tests", "clicks.compact"),
        ("COMPLETE", "tests", "clicks.sessionize"),
    ]
    warehouse = ran.config.pipeline.warehouse
    stream, compacted = flow(sent[3]), flow(sent[2])
    assert stream == (
        {f"{ran.root}/events": 15, f"{warehouse}/corrections": 0},
        {f"{warehouse}/session_changelog": 4, f"{warehouse}/late_events": 1, f"{warehouse}/dead_letters": 4},
    )
    assert compacted == ({f"{warehouse}/session_changelog": 3}, {f"{warehouse}/sessions": 3})
    assert [set(names) for names in flow(sent[0])] == [set(names) for names in stream]
    kinds = [e["job"]["facets"]["jobType"]["processingType"] for e in sent]
    assert kinds == ["STREAMING", "BATCH", "BATCH", "STREAMING"]


def flow(event: dict[str, Any]) -> tuple[dict[str, int | None], dict[str, int | None]]:
    """Return inputs and outputs with the rows told of each."""
    assert {d["namespace"] for d in event["inputs"] + event["outputs"]} == {"file"}
    read = {d["name"]: d["inputFacets"].get("inputStatistics", {}).get("rowCount") for d in event["inputs"]}
    return read, {d["name"]: d["outputFacets"].get("outputStatistics", {}).get("rowCount") for d in event["outputs"]}


def test_textfile_of_the_command(ran: Ran) -> None:
    found = values((ran.root / "textfiles" / "sessionlake_clicks_compact.prom").read_text())
    assert found["sessionlake_job_last_run_success"] == {("compact",): 1}
    assert found["sessionlake_job_last_run_items"][("compact", "rows_folded")] == 3
    # The table's times are those of the job, the file's those of the command around it.
    times = [found, ran.tables, ran.tables, found]
    names = ("start", "start", "success", "success")
    found_at = [
        v[f"sessionlake_job_last_{n}_timestamp_seconds"][("compact",)] for v, n in zip(times, names, strict=True)
    ]
    assert found_at == sorted(found_at)


def copied(config: Config, root: Path) -> Config:
    warehouse = root / "warehouse"
    shutil.copytree(config.pipeline.warehouse, warehouse)
    return config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"warehouse": str(warehouse)})})


def test_kafka_sources_say_how_far_behind(tmp_path: Path) -> None:
    readings = StreamReadings(make_config(tmp_path))
    behind = [{"maxOffsetsBehindLatest": "7", "minOffsetsBehindLatest": "0"}, {}, {"maxOffsetsBehindLatest": "12"}]
    readings.triggered("2026-01-01T00:00:00.000Z", {"addBatch": 250, "triggerExecution": 300}, behind)
    readings.triggered("2026-01-01T00:00:10.000Z", {"addBatch": 500, "walCommit": 1}, [{}])
    assert readings.get(metrics.OFFSETS_BEHIND) == 12
    assert readings.get(metrics.LAST_TRIGGER) == 1767225610
    assert (readings.get(metrics.PHASE_SECONDS, "addBatch"), readings.get(metrics.PHASE_SECONDS, "walCommit")) == (
        0.75,
        0.001,
    )


def test_a_port_in_use_is_a_warning(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with observed_stream(spark, make_config(tmp_path, metrics={"port": port})) as committed:
            counts = {"input": 1, "accepted": 1}
            committed({"counts": counts, "committed_us": 2, "started_us": 1, "state": {"watermark_us": 1}})
    err = capsys.readouterr().err
    assert err.startswith(f"sessionlake: warning: metrics.port: 127.0.0.1:{port} can't be listened on")
    assert err.count("\n") == 1
