"""What a job's run leaves behind: a textfile and lineage, whether it succeeds, fails or is not needed."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from openlineage.client.transport.transport import Config as TransportConfig
from openlineage.client.transport.transport import Transport
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from sessionlake.cli import main
from sessionlake.cli.observed import observed
from sessionlake.config.load import Config, load_config
from sessionlake.config.source import SourceSection
from sessionlake.errors import ConfigError, JobError, LockedError, MetricsError
from sessionlake.jobs.registry import JOBS
from sessionlake.observe.datasets import Dataset, datasets, located
from sessionlake.observe.lineage import Lineage
from sessionlake.observe.readings import registry_of
from sessionlake.observe.tables import read_state, readings_of
from sessionlake.stream.lock import locked_store
from sessionlake.stream.run import run
from sessionlake.warehouse.changelog import changelog_of
from tests.operators_table import LAKES
from tests.support import make_config, write_config, write_rows

OBSERVED = {"metrics": {"textfile": "textfiles"}, "lineage": {"transport": "file", "path": "lineage.jsonl"}}


def textfile(config: Config, job: str) -> dict[str, Any]:
    """Return the values of a job's file; those of items by item."""
    directory = Path(config.metrics.textfile or "")
    text = (directory / f"sessionlake_{config.pipeline.name}_{job}.prom").read_text()
    found: dict[str, Any] = {}
    for sample in (s for family in text_string_to_metric_families(text) for s in family.samples):
        assert (sample.labels["pipeline"], sample.labels["job_name"]) == (config.pipeline.name, job)
        name = sample.name.removeprefix("sessionlake_job_last_")
        if "item" in sample.labels:
            found.setdefault(name, {})[sample.labels["item"]] = sample.value
        else:
            found[name] = sample.value
    return found


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return make_config(tmp_path, **OBSERVED)


def events(root: Path) -> list[dict[str, Any]]:
    file = root / "lineage.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def states(root: Path) -> list[str]:
    return [event["eventType"] for event in events(root)]


def test_success_then_failure(config: Config, tmp_path: Path) -> None:
    with observed(config, "compact") as counted:
        counted({"rows_folded": 3})
    first = textfile(config, "compact")
    assert (first["run_success"], first["run_items"]) == (1, {"rows_folded": 3})
    assert first["success_timestamp_seconds"] == pytest.approx(
        first["start_timestamp_seconds"] + first["run_duration_seconds"]
    )
    with pytest.raises(JobError), observed(config, "compact"):
        raise JobError("no luck")
    second = textfile(config, "compact")
    assert second["run_success"] == 0
    assert second["start_timestamp_seconds"] > first["start_timestamp_seconds"]
    kept = ("success_timestamp_seconds", "run_items")
    assert [second[name] for name in kept] == [first[name] for name in kept]
    assert states(tmp_path) == ["START", "COMPLETE", "START", "FAIL"]
    assert events(tmp_path)[-1]["run"]["facets"]["errorMessage"]["message"] == "JobError: no luck"


@pytest.mark.parametrize(("code", "success", "state"), [(0, 1, "COMPLETE"), (None, 1, "COMPLETE"), (1, 0, "FAIL")])
def test_exit_codes(config: Config, tmp_path: Path, code: int | None, success: int, state: str) -> None:
    def command() -> None:
        with observed(config, "quality") as counted:
            counted({"checks": 9})
            raise SystemExit(code)

    with pytest.raises(SystemExit):
        command()
    found = textfile(config, "quality")
    assert (found["run_success"], found["run_items"]) == (success, {"checks": 9})
    assert states(tmp_path) == ["START", state]


def test_interrupted(config: Config, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), observed(config, "expire"):
        raise KeyboardInterrupt
    assert textfile(config, "expire")["run_success"] == 0
    assert states(tmp_path) == ["START", "ABORT"]


def test_a_pass_beside_a_stream_is_no_failure(config: Config, tmp_path: Path) -> None:
    with locked_store(config), pytest.raises(LockedError), observed(config, "run"), locked_store(config):
        pass
    assert not Path(config.metrics.textfile or "").exists()
    assert states(tmp_path) == ["START", "COMPLETE"]


@pytest.mark.usefixtures("spark")
def test_expire_without_a_rule_is_no_failure(tmp_path: Path) -> None:
    file = write_config(tmp_path, **OBSERVED)
    result = CliRunner().invoke(main, ["expire", str(file)])
    assert (result.exit_code, result.stderr.startswith("sessionlake: expire: no rule says what expires;")) == (3, True)
    assert not (tmp_path / "textfiles").exists()
    assert states(tmp_path) == ["START", "COMPLETE"]


def test_dry_run(config: Config, tmp_path: Path) -> None:
    with observed(config, "compact", dry_run=True) as counted:
        counted({"rows_folded": 3})
    assert not Path(config.metrics.textfile or "").exists()
    assert states(tmp_path) == []


def test_a_file_of_somebody_else_is_replaced(config: Config) -> None:
    directory = Path(config.metrics.textfile or "")
    directory.mkdir()
    (directory / "sessionlake_test_compact.prom").write_text("}no metrics{\n")
    with pytest.raises(JobError), observed(config, "compact"):
        raise JobError("no luck")
    assert textfile(config, "compact")["run_success"] == 0


def test_textfile_that_cannot_be_written(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    Path(config.metrics.textfile or "").write_text("a file")
    with observed(config, "compact"):
        pass
    err = capsys.readouterr().err
    assert err.startswith("sessionlake: warning: metrics.textfile: ")
    assert err.count("\n") == 1


def test_running_is_sent_now_and_then(tmp_path: Path) -> None:
    section = {"transport": "file", "path": "lineage.jsonl"}
    often = Lineage(make_config(tmp_path, lineage={**section, "every": "0 s"}), "run", streaming=True)
    often.start()
    for _ in range(2):
        often.add({"input": 5, "upserts": 2, "deletes": 1, "emitted": 0, "late": 1, "dead": 0, "corrections": 0})
    often.end()
    assert states(tmp_path) == ["START", "RUNNING", "RUNNING", "COMPLETE"]
    assert len({event["run"]["runId"] for event in events(tmp_path)}) == 1
    rows = [d["outputFacets"]["outputStatistics"]["rowCount"] for d in events(tmp_path)[-1]["outputs"]]
    assert rows == [6, 2, 0, 0]
    (tmp_path / "lineage.jsonl").unlink()
    seldom = Lineage(make_config(tmp_path, lineage=section), "run", streaming=True)
    seldom.start()
    seldom.add({"input": 5})
    assert states(tmp_path) == ["START"]


def test_lineage_that_cannot_be_sent_harms_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "directory").mkdir()
    with observed(make_config(tmp_path, lineage={"transport": "file", "path": "directory"}), "compact"):
        pass
    assert "lineage: START was not sent: " in caplog.text


class Unclosable(Transport):
    """What OPENLINEAGE__TRANSPORT__TYPE names below."""

    def __init__(self, _: TransportConfig) -> None:
        pass

    def emit(self, event: Any) -> None:
        pass

    def close(self, timeout: float = -1) -> bool:
        raise RuntimeError(f"not within {timeout} s")


def test_transport_that_cannot_be_closed_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", f"{__name__}.Unclosable")
    with observed(make_config(tmp_path, lineage={"transport": "client"}), "compact"):
        pass
    assert "lineage: the transport was not closed: not within 5.0 s" in caplog.text


def test_parent(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "OPENLINEAGE_PARENT_ID", "http://airflow:8080/compact_tables.compact/01941f29-7c00-7087-8906-40e512c257bd"
    )
    with observed(config, "compact"):
        pass
    parent = events(tmp_path)[0]["run"]["facets"]["parent"]
    assert parent["job"]["namespace"] == "http://airflow:8080"
    assert parent["job"]["name"] == "compact_tables.compact"
    assert parent["run"]["runId"] == "01941f29-7c00-7087-8906-40e512c257bd"


@pytest.mark.parametrize(
    ("uri", "dataset"),
    [
        ("/data/events", Dataset("file", "/data/events")),
        ("file:///data/events/", Dataset("file", "/data/events")),
        ("s3a://bucket/a/b", Dataset("s3://bucket", "a/b")),
        ("gs://bucket/a/b/", Dataset("gs://bucket", "a/b")),
        ("abfss://box@me.dfs.core.windows.net/a", Dataset("abfss://box@me.dfs.core.windows.net", "/a")),
        ("hdfs://name:8020/a", Dataset("hdfs://name:8020", "/a")),
    ],
)
def test_dataset_names(uri: str, dataset: Dataset) -> None:
    assert located(uri) == dataset


@pytest.mark.parametrize(
    ("archive", "kafka", "read"),
    [
        (False, False, ["{root}/events"]),
        (True, False, ["{root}/warehouse/events", "{root}/events"]),
        (True, True, ["{root}/warehouse/events"]),
    ],
)
def test_what_a_backfill_reads_again(tmp_path: Path, archive: bool, kafka: bool, read: list[str]) -> None:  # noqa: FBT001
    topic = {"kind": "kafka", "bootstrap_servers": "a:9092,b:9092", "topic": "clicks", "format": "json"}
    config = make_config(tmp_path, pipeline={"archive": archive})
    if kafka:
        config = config.model_copy(update={"source": SourceSection.model_validate(topic)})
        assert datasets(config, "run", {"input": 2})[0][0] == Dataset("kafka://a:9092", "clicks", 2)
    inputs, _ = datasets(config, "backfill", {})
    others = [
        f"{tmp_path}/warehouse/{name}"
        for name in ("session_changelog", "sessions", "late_events", "correction_outcomes")
    ]
    assert [d.name for d in inputs] == [name.format(root=tmp_path) for name in read] + others
    archived = Dataset("file", f"{tmp_path}/warehouse/events")
    assert (archived in datasets(config, "run", {})[1]) == archive


def test_publish_writes_to_its_sinks(tmp_path: Path) -> None:
    sink = {"kafka": {"bootstrap_servers": "a:9092,b:9092", "topic": "sessions"}, "delta": {"path": "s3a://lake/out"}}
    read, written = datasets(make_config(tmp_path, sink=sink), "publish", {})
    assert written == [Dataset("kafka://a:9092", "sessions"), Dataset("s3://lake", "out")]
    assert [dataset.name for dataset in read] == [
        f"{tmp_path}/warehouse/{n}" for n in ("session_changelog", "sessions")
    ]


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        ("metrics", {"port": 70000}, r"^metrics\.port: 70000 is too large; write 65535 or less"),
        (
            "metrics",
            {"textfile": "s3://b/x"},
            r"^metrics\.textfile: 's3://b/x' must be a local directory; write a path",
        ),
        ("lineage", {"transport": "http"}, r"^lineage\.url: is missing; transport 'http' needs it"),
        ("lineage", {"transport": "file"}, r"^lineage\.path: is missing; transport 'file' needs it"),
        ("lineage", {"transport": "kafka"}, r"^lineage\.transport: 'kafka' is not allowed; write "),
        ("lineage", {"listener": True}, r"^lineage\.transport: is missing; the listener needs 'http' or 'file'"),
    ],
)
def test_config(tmp_path: Path, section: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_config(tmp_path, **{section: values})


def test_no_key_in_the_environment(tmp_path: Path) -> None:
    lineage = {"transport": "http", "url": "http://127.0.0.1:1", "api_key_variable": "NO_SUCH_KEY"}
    with pytest.raises(MetricsError, match=r"^lineage\.api_key_variable: the environment has no 'NO_SUCH_KEY'"):
        Lineage(make_config(tmp_path, lineage=lineage), "compact")


COMMANDS: dict[str, list[str]] = {
    "compact": [],
    "expire": ["--ttl", "1 day"],
    "forget": ["--keys-file", "-"],
    "reprocess_late": [],
    "backfill": ["--from", "2026-01-01", "--to", "2026-01-02"],
    "quality": [],
    "redeem": ["--reason", "bad JSON"],
}


def test_these_are_all_jobs_with_a_record() -> None:
    assert set(COMMANDS) == {job.name for job in JOBS if job.recorded}


@pytest.mark.parametrize("job", COMMANDS)
def test_each_command_is_observed(spark: SparkSession, tmp_path: Path, job: str) -> None:
    del spark  # the commands find it active
    file = write_config(tmp_path, **OBSERVED)
    result = CliRunner().invoke(main, [job.replace("_", "-"), str(file), *COMMANDS[job]], input="a")
    assert (result.exit_code, "has no batches yet" in result.stderr) == (6, True), result.stderr
    assert textfile(load_config(file), job)["run_success"] == 0
    assert [(event["eventType"], event["job"]["name"]) for event in events(tmp_path)] == [
        ("START", f"test.{job}"),
        ("FAIL", f"test.{job}"),
    ]


@pytest.mark.slow
def test_a_pass_and_a_fold(spark: SparkSession, tmp_path: Path) -> None:
    del spark  # the commands find it active
    file = write_config(tmp_path, **OBSERVED)
    write_rows(
        tmp_path, "1.json", [{"key": "a", "time_us": 1000, "v": 1}, {"key": "b", "time_us": 1005, "v": 1}, "no JSON"]
    )
    for command in (["run", str(file), "--once"], ["compact", str(file)]):
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 0, result.output
    config = load_config(file)
    items = textfile(config, "run")["run_items"]
    assert (items["batches"], items["input"], items["accepted"], items["dead"]) == (1, 3, 2, 1)
    compacted = textfile(config, "compact")
    assert compacted["run_items"]["rows_folded"] == 2
    assert states(tmp_path) == ["START", "COMPLETE", "START", "COMPLETE"]
    last = events(tmp_path)[-1]
    assert [d["inputFacets"]["inputStatistics"]["rowCount"] for d in last["inputs"]] == [2]
    assert [d["name"] for d in last["outputs"]] == [f"{config.pipeline.warehouse}/sessions"]
    assert [d["outputFacets"]["outputStatistics"]["rowCount"] for d in last["outputs"]] == [2]
    state = read_state(config)
    assert (state.batches, state.unfolded_batches, state.unfolded_changes, state.unfolded_since_us) == (1, 0, 0, None)
    # job_runs has the times of the job, the file those of the command around it.
    started, ended = state.started_us["compact"] / 1e6, state.finished_us["compact"] / 1e6
    assert compacted["start_timestamp_seconds"] < started < ended < compacted["success_timestamp_seconds"]
    told = generate_latest(registry_of(readings_of(config, state))).decode()
    samples = {s.name: s for family in text_string_to_metric_families(told) for s in family.samples}
    assert abs(time.time() - samples["sessionlake_snapshot_timestamp_seconds"].value) < 60
    success = samples["sessionlake_job_last_success_timestamp_seconds"]
    assert (success.labels["job_name"], success.value) == ("compact", ended)


@pytest.mark.slow
def test_a_job_that_is_terminated_tells_of_it(spark: SparkSession, tmp_path: Path) -> None:
    file = write_config(tmp_path, **OBSERVED)
    config = load_config(file)
    write_rows(tmp_path, "1.json", [{"key": "a", "time_us": 1000, "v": 1}])
    run(spark, config, once=True)
    command = [sys.executable, "-c", "from sessionlake.cli import main; main()", "compact", str(file)]
    recorded = tmp_path / "warehouse" / "job_runs" / "_delta_log" / f"{1:020d}.json"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while not recorded.exists():
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.05)
        process.terminate()
        assert process.wait(60) == 143
    assert textfile(config, "compact")["run_success"] == 0
    assert states(tmp_path) == ["START", "ABORT"]


@pytest.mark.parametrize(
    ("name", "states"),
    [
        ("session", []),
        ("window", ["slice"]),
        ("count", ["slice"]),
        ("table", []),
        ("join", []),
        ("process", ["process_state"]),
    ],
)
def test_lineage_has_the_tables_of_an_operators_state(tmp_path: Path, name: str, states: list[str]) -> None:
    config = LAKES[name](tmp_path / "lake", tmp_path / "events").config
    changes, snapshots = [
        [dataset.name.rpartition("/")[2] for dataset in side] for side in datasets(config, "compact", {})
    ]
    of = changelog_of(config)
    assert changes == [of.changes, *(f"{state}_changelog" for state in states)]
    assert [snapshot for snapshot in snapshots if snapshot != of.snapshot] == [
        f"{state}_snapshot" if state == "process_state" else f"{state}s" for state in states
    ]
    written = [dataset.name.rpartition("/")[2] for dataset in datasets(config, "run", {})[1]]
    assert set(changes) <= set(written)
