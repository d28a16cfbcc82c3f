"""Projects on real Spark: all pipelines in one process, their failures apart from each other, and what the commands say of them."""

import itertools
import json
import os
import random
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from urllib.error import URLError

import deltalake
import duckdb
import psutil
import pytest
from deltalake.exceptions import TableNotFoundError
from prometheus_client.parser import text_string_to_metric_families

from sessionlake.config.load import load_config
from sessionlake.serve.queries import query_tables
from tests.jobs.forget.forget_support import traces
from tests.project.project_support import PIPELINES, PROJECT, SESSIONLAKE, call, run, write_file, write_project


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a project with two files of events."""
    return write_project(tmp_path, 2)


def content(root: Path, name: str) -> list[Any]:
    """Return the latest rows of a pipeline."""
    config = load_config(root / f"{name}.toml")
    live = {"sittings": "sessions_live", "stragglers": "sessions_live", "hours": "windows_live", "latest": "table_live"}
    columns = {"hours": "window_key, window_start, total", "latest": "table_key, v"}.get(
        name.rstrip("23"), "session_key, session_start, session_end, event_count"
    )
    return sorted(query_tables(config, f"select {columns} from {live[name.rstrip('23')]}", 1000)[1])


def statuses(root: Path) -> dict[str, dict[str, Any]]:
    found = json.loads(call("status", str(root), "--format", "json").stdout)
    return {one["name"]: one for one in found}


def wait_for(what: Callable[[], bool], driver: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 200
    while not what():
        assert driver.poll() is None, driver.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.2)


def batches(root: Path, name: str) -> int:
    """Return how many batches a pipeline has committed."""
    with suppress(Exception):
        return int(query_tables(load_config(root / f"{name}.toml"), "select count(*) from batches", 1)[1][0][0])
    return 0


def test_before_anything_runs(root: Path) -> None:
    checked = call("check", str(root))
    assert "nothing is wrong with 4 pipelines" in checked.stdout
    assert "└─ stragglers" in checked.stdout
    found = json.loads(call("check", str(root), "--format", "json").stdout)
    assert (found["ok"], set(found["pipelines"])) == (True, {*PIPELINES})
    graph = {one["name"]: one["reads"] for one in json.loads(call("graph", str(root), "--format", "json").stdout)}
    reads = {"stragglers": [{"from": "sittings", "reads": "late_events", "to": "stragglers"}]}
    assert graph == {**{name: [] for name in PIPELINES}, **reads}
    assert "sittings -- late_events --> stragglers" in call("graph", str(root), "--format", "mermaid").stdout
    assert {one["state"] for one in statuses(root).values()} == {"new"}
    planned = json.loads(call("plan", str(root), "--json").stdout)
    assert {one["pipeline"]: one["runs"] for one in planned} == dict.fromkeys(PIPELINES, True)
    shown = call("show", str(root / "sittings.toml")).stdout
    assert 'format = "json"' in shown
    assert f"# {root}/project.toml:8" in shown


def test_wrong_words_are_errors_of_use(root: Path) -> None:
    assert "'x' is no pipeline of" in call("run", str(root), "--only", "x", code=2).output
    assert "--replan goes with one pipeline; name its file" in call("run", str(root), "--replan", code=2).output
    alone = call("run", str(root / "hours.toml"), "--only", "hours", code=2).output
    assert "--only, --parallel and --no-restart go with a project" in alone
    assert "no batches are committed yet by" in call("sql", str(root), "select 1", code=6).output


def test_what_is_wrong_in_any_file_stops_all_before_spark_starts(root: Path) -> None:
    (root / "hours.toml").write_text(PIPELINES["hours"].replace("1 day", "a day"))
    (root / "latest.toml").write_text(PIPELINES["latest"].replace('["v"]', '["w"]'))
    done = call("check", str(root), code=2)
    lines = [line.replace(f"{root}/", "") for line in done.output.splitlines()]
    assert len(lines) == 2
    assert lines[0].startswith("sessionlake: hours.toml:10: window.retention: 'a day' is not a duration")
    assert lines[1].startswith("sessionlake: latest.toml:7: table.columns: 'w' is no column of")
    assert run(root, "--once").returncode == 2
    assert not (root / "lake").exists()


UNWRITABLE = '[pipeline]\nstore = "/proc/stores"\n'
"""The store of a pipeline that can't run: whoever runs the tests, no directory can be made there."""


@pytest.mark.parametrize("words", [("--once",), ()])
def test_pipelines_of_which_none_can_run_end_before_spark_starts(root: Path, words: tuple[str, ...]) -> None:
    for name in ("sittings", "stragglers"):
        (root / f"{name}.toml").write_text(f"{UNWRITABLE}{PIPELINES[name]}")
    done = call("run", str(root), "--only", "sittings,stragglers", *words, code=2)
    *problems, last = done.stderr.splitlines()
    assert [line.split(" can't be written")[0] for line in problems] == [
        f"sessionlake: {name}: {root}/{name}.toml:2: pipeline.store: '/proc/stores/{name}'"
        for name in ("sittings", "stragglers")
    ]
    assert last == f"sessionlake: run: 2 of 2 pipelines of {str(root)!r} failed: sittings, stragglers"
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["failed"], told["skipped"]) == (["sittings", "stragglers"], [])
    assert not (root / "lake").exists()


def test_what_reads_a_pipeline_that_can_not_run_is_skipped_and_named(root: Path) -> None:
    (root / "sittings.toml").write_text(f"{UNWRITABLE}{PIPELINES['sittings']}")
    done = call("run", str(root), "--only", "sittings,stragglers", "--once", code=2)
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["failed"], told["skipped"]) == (["sittings"], ["stragglers"])
    assert done.stdout.splitlines()[1] == "stragglers  skipped: it reads sittings"
    line = f"sessionlake: run: 1 of 2 pipelines of {str(root)!r} failed: sittings; skipped: stragglers"
    assert done.stderr.splitlines()[-1] == line


@pytest.mark.parametrize(
    "words", [("hours.toml", "--once"), ("hours.toml",), ("", "--once", "--only", "hours"), ("", "--only", "hours")]
)
def test_status_says_why_the_last_run_failed(root: Path, words: tuple[str, ...]) -> None:
    (root / "events").rename(root / "away")
    place, *options = words
    call("run", str(root / place), *options, code=2)
    failure = f"{root}/project.toml:7: source.path: '{root}/events' is no directory"
    told = statuses(root)["hours"]
    assert told["state"] == "new"
    assert told["error"].split(";")[0] == failure
    assert told["failed_at"].startswith("20")
    assert f"hours: the last run failed: {failure}" in call("status", str(root)).output
    assert f"; the last run failed: {failure}" in call("status", str(root / "hours.toml"), code=6).output


@pytest.mark.slow
def test_one_whose_disk_can_not_be_written_leaves_the_others_done(root: Path) -> None:
    (root / "sittings.toml").write_text(f"{UNWRITABLE}{PIPELINES['sittings']}")
    done = run(root, "--once")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("can't be written") == 1
    told = json.loads(done.stdout.splitlines()[-1])
    states = {"sittings": "failed", "hours": "done", "latest": "done", "stragglers": "skipped"}
    assert {name: one["state"] for name, one in told["pipelines"].items()} == states
    assert batches(root, "hours") == 2
    line = f"sessionlake: run: 1 of 4 pipelines of {str(root)!r} failed: sittings; skipped: stragglers"
    assert done.stderr.splitlines()[-1] == line


def test_a_job_that_airflow_can_not_start_by_itself_has_no_schedule(root: Path) -> None:
    (root / "latest.toml").write_text(
        f"{PIPELINES['latest']}[airflow.schedules]\nbackup = '@daily'\nbackfill = 'off'\ncompact = '@daily'\n"
    )
    (line,) = call("check", str(root), code=2).output.splitlines()
    assert line.replace(f"{root}/", "").startswith(
        "sessionlake: latest.toml:9: airflow.schedules.backup: is no job that Airflow can start by itself; write one of run, compact,"
    )


@pytest.mark.slow
def test_once_in_the_order_of_the_graph_then_sql_and_status_over_all(root: Path) -> None:
    done = run(root, "--once", "--parallel", "1")
    assert (done.returncode, done.stderr) == (0, "")
    order = list(dict.fromkeys(line.split()[0] for line in done.stdout.splitlines() if " batch " in line))
    assert order.index("sittings") < order.index("stragglers")
    told = json.loads(done.stdout.splitlines()[-1])["pipelines"]
    assert {name: (one["state"], one["input"]) for name, one in told.items()} == {
        "sittings": ("done", 20), "hours": ("done", 20), "latest": ("done", 20), "stragglers": ("done", told["sittings"]["late"])
    }  # fmt: skip
    assert told["sittings"]["late"] > 0
    query = "select count(*) n from sittings.sessions_live s join latest.table_live t on s.session_key = t.table_key"
    assert int(call("sql", str(root), query, "--format", "csv").stdout.split()[1]) == len(content(root, "sittings"))
    own = call("sql", str(root / "hours.toml"), "select count(*) n from hours.windows_live", "--format", "csv").stdout
    assert int(own.split()[1]) == len(content(root, "hours"))
    found = statuses(root)
    assert {(one["state"], one["reconciles"]) for one in found.values()} == {("stopped", True)}
    assert found["hours"]["lag_seconds"] > 0
    again = run(root, "--once", "--only", "hours,latest")
    told = json.loads(again.stdout.splitlines()[-1])["pipelines"]
    assert {name: one["input"] for name, one in told.items()} == {"hours": 0, "latest": 0}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_one_fails_is_mended_and_the_driver_is_killed_while_the_others_equal_undisturbed_runs(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = write_project(tmp_path_factory.mktemp("undisturbed"), 4)
    for name in PIPELINES:  # each alone
        done = subprocess.run([SESSIONLAKE, "run", str(other / f"{name}.toml"), "--once"], capture_output=True, text=True, timeout=200, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
    with _driver(root) as driver:
        wait_for(lambda: all(batches(root, name) >= 2 for name in ("sittings", "hours", "latest")), driver)
        assert {one["state"] for one in statuses(root).values()} == {"running"}
        # A checkpoint that is gone: the pipeline can't go on, whatever is tried.
        checkpoint = root / "lake" / "hours" / "_checkpoints"
        checkpoint.rename(root / "kept")
        write_file(root, 2)
        wait_for(lambda: batches(root, "sittings") >= 3 and batches(root, "latest") >= 3, driver)
        wait_for(lambda: statuses(root)["hours"]["state"] == "failing", driver)
        assert "checkpoint" in statuses(root)["hours"]["error"] or "_checkpoints" in statuses(root)["hours"]["error"]
        (root / "kept").rename(checkpoint)
        wait_for(lambda: batches(root, "hours") >= 3, driver)
        wait_for(lambda: statuses(root)["hours"]["state"] == "running", driver)
        os.killpg(driver.pid, signal.SIGKILL)
    write_file(root, 3)
    with _driver(root) as driver:
        wait_for(lambda: all(batches(root, name) >= 4 for name in ("sittings", "hours", "latest")), driver)
        wait_for(lambda: content(root, "stragglers") == content(other, "stragglers"), driver)
        driver.send_signal(signal.SIGINT)
        assert driver.wait(30) == 0
        assert "nothing is lost" in driver.communicate()[1]
    for name in ("sittings", "hours", "latest"):
        assert content(root, name) == content(other, name), name
    assert all(one["reconciles"] for one in statuses(root).values())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_batch_that_hangs_is_cancelled_and_leaves_the_cores_to_the_others(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its tasks, two of one file each, hold all cores."""
    other = write_project(tmp_path_factory.mktemp("undisturbed"), 4)
    assert run(other, "--once").returncode == 0
    stuck = PIPELINES["sittings"].replace("[aggregates]", '[aggregates]\nstuck = "tests.project.hanging:Hanging"')
    (root / "stuck.toml").write_text(
        f'[pipeline]\nbatch_timeout = "10 seconds"\ncode = "{Path(__file__).parents[2]}"\n'
        + stuck.replace("[event]", "max_files_per_batch = 2\n[event]", 1)
    )
    with _driver(root) as driver:
        wait_for(lambda: statuses(root)["stuck"]["state"] == "failing", driver)
        line = "pipeline.batch_timeout: batch 0 was not done after '10 seconds', and was cancelled; "
        assert line in statuses(root)["stuck"]["error"]
        write_file(root, 2)
        write_file(root, 3)
        wait_for(lambda: all(content(root, name) == content(other, name) for name in PIPELINES), driver)
        driver.send_signal(signal.SIGINT)
        assert driver.wait(60) == 0
        assert "Traceback" not in driver.communicate()[1]
    for name in PIPELINES:
        assert content(root, name) == content(other, name), name


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_workers_of_ten_pipelines_are_killed_again_and_again(root: Path) -> None:
    """Whatever worker is killed, whichever pipelines' batches it was at work for, all tables are those of undisturbed runs."""
    for kind, number in itertools.product(("sittings", "hours", "latest"), "23"):
        (root / f"{kind}{number}.toml").write_text(PIPELINES[kind])
    names = [path.stem for path in root.glob("*.toml") if path.stem != "project"]
    assert len(names) == 10
    killed = 0
    with _driver(root) as driver:
        files = iter(range(2, 8))
        wait_for(lambda: batches(root, "hours") > 0, driver)
        process = psutil.Process(driver.pid)
        deadline = time.monotonic() + 100
        while killed < 25 and time.monotonic() < deadline:
            if (number := next(files, None)) is not None:
                write_file(root, number)
            # The daemon too: it forks the workers.
            for child in _pythons(process)[killed % 3 :]:
                child.kill()
                killed += 1
            time.sleep(random.Random(killed).random())
        for number in files:
            write_file(root, number)
        assert killed >= 25
        other = write_project(root / "undisturbed", 8)
        assert run(other, "--once").returncode == 0
        wanted = {name: content(other, name) for name in PIPELINES}
        wait_for(lambda: all(content(root, name) == wanted[name.rstrip("23")] for name in names), driver)
        driver.send_signal(signal.SIGINT)
        assert driver.wait(60) == 0
        assert "Traceback" not in driver.communicate()[1]
    found = statuses(root)
    assert {name for name in names if found[name]["reconciles"]} == {*names}


def _pythons(driver: psutil.Process) -> list[psutil.Process]:
    """Return the daemon and the workers of a driver."""
    found = []
    for child in driver.children(recursive=True):
        with suppress(psutil.Error):
            if "sessionlake.engine.daemon" in child.cmdline():
                found.append(child)
    return found


@contextmanager
def _driver(
    root: Path, command: str = "run", stderr: int | IO[str] = subprocess.PIPE, **env: str
) -> "Iterator[subprocess.Popen[str]]":
    """Run a command over a project; whatever becomes of the test, no process is left."""
    with subprocess.Popen(
        [SESSIONLAKE, "--quiet", command, str(root)],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        text=True,
        env={**os.environ, **env},
    ) as driver:
        try:
            yield driver
        finally:
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)


def scraped(port: int) -> dict[tuple[str, str], float]:
    """Return the values of the metrics without labels of their own by name and pipeline; none if nothing answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            text = answer.read().decode()
    except URLError:
        return {}
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(one.name, one.labels["pipeline"]): one.value for one in samples if len(one.labels) == 1}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_metrics_tell_of_a_pipeline_that_fails_again_and_again_until_it_is_mended(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    ends = PIPELINES["hours"].replace("total = ", 'ends = "tests.project.ending:Ending"\ntotal = ')
    pipelines = {"hours": f'[pipeline]\ncode = "{Path(__file__).parents[2]}"\n{ends}', "latest": PIPELINES["latest"]}
    root = write_project(tmp_path, 2, f"{PROJECT}[metrics]\nport = {port}\n", pipelines)
    failing, began = "sessionlake_pipeline_failing", "sessionlake_stream_start_timestamp_seconds"
    looked = "sessionlake_last_trigger_timestamp_seconds"
    stop = root / "stop"
    with _driver(root, SESSIONLAKE_TEST_ENDS=str(stop)) as driver:
        # Each is there before its first batch.
        wait_for(lambda: bool(scraped(port)), driver)
        assert {scraped(port)[failing, name] for name in pipelines} == {0}
        wait_for(lambda: all(scraped(port).get(("sessionlake_batches_total", name)) == 2 for name in pipelines), driver)
        stop.touch()
        write_file(root, 2)
        wait_for(lambda: scraped(port)[failing, "hours"] == 1, driver)
        starts, beats = set[float](), list[float]()

        def started_again() -> bool:
            found = scraped(port)
            # Also while it is being started, and its query runs.
            assert (found[failing, "hours"], found[failing, "latest"]) == (1, 0)
            assert found["sessionlake_batches_total", "hours"] == 2
            assert found["sessionlake_input_events_total", "hours"] == 20
            starts.add(found[began, "hours"])
            beats.append(found[looked, "hours"])
            return len(starts) == 4

        wait_for(started_again, driver)
        assert beats == sorted(beats)
        assert scraped(port)["sessionlake_batches_total", "latest"] == 3
        stop.unlink()
        wait_for(lambda: scraped(port)[failing, "hours"] == 0, driver)
        assert scraped(port)["sessionlake_batches_total", "hours"] == 3
        driver.send_signal(signal.SIGINT)
        assert driver.wait(60) == 0


def sunk(root: Path, name: str) -> set[tuple[str, int]]:
    """Return keys and totals of the table of [sink.delta] of windows, or keys and values of a table's; none if there is no table."""
    columns = "window_key, total" if name == "hours" else "table_key, v"
    with suppress(TableNotFoundError):
        rows = deltalake.DeltaTable(str(root / "out" / name)).to_pyarrow_table()  # noqa: F841 (DuckDB finds it by name)
        return set(duckdb.sql(f"select {columns} from rows").fetchall())
    return set()


def live(root: Path, name: str) -> set[tuple[str, int]]:
    return {(row[0], row[-1]) for row in content(root, name)}


def with_sinks(root: Path) -> None:
    for name in ("hours", "latest"):
        (root / f"{name}.toml").write_text(f'{PIPELINES[name]}[sink.delta]\npath = "out/{name}"\n')


def test_publish_of_a_project_without_such_sinks_ends_before_spark_starts(root: Path) -> None:
    line = f"sessionlake: sink: no pipeline of {str(root)!r} has one to serve; add [sink.kafka], [sink.delta], [sink.postgres] or [sink.python] to its file\n"
    assert call("publish", str(root), "--once", code=2).stderr == line
    with_sinks(root)
    line = f"sessionlake: sink: no pipeline of {str(root)!r} has one to serve; add [sink.python] to its file\n"
    assert call("publish", str(root), "--only", "python", code=2).stderr == line


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_publish_keeps_the_tables_of_all_pipelines_that_have_one_each_apart_from_the_others(root: Path) -> None:
    with_sinks(root)
    assert run(root, "--once", "--only", "sittings,latest").returncode == 0
    done = job(root, "publish", "--once")
    told = json.loads(done.stdout.splitlines()[-1])
    states = {"sittings": "not_needed", "stragglers": "not_needed", "hours": "no_batches", "latest": "done"}
    assert (done.returncode, told["pipelines"]) == (0, states), done.stderr
    assert sunk(root, "latest") == live(root, "latest") != set()
    told_by = root / "errors"
    with told_by.open("w") as stderr, _driver(root, "publish", stderr) as driver:
        assert run(root, "--once").returncode == 0  # one waits for its first batch
        wait_for(lambda: sunk(root, "hours") == live(root, "hours") != set(), driver)
        # The table of one pipeline can't be written any more; that of the other is kept up to date.
        (root / "out" / "hours").rename(root / "kept")
        (root / "out" / "hours").write_text("")
        write_file(root, 2)
        assert run(root, "--once").returncode == 0
        wait_for(lambda: sunk(root, "latest") == live(root, "latest"), driver)
        wait_for(lambda: "sessionlake: hours: is started again in 1 s; the others go on" in told_by.read_text(), driver)
        done = job(root, "publish", "--once")
        ended = json.loads(done.stdout.splitlines()[-1])["pipelines"]
        assert (done.returncode, ended["hours"], ended["latest"]) == (1, "failed", "done")
        (root / "out" / "hours").unlink()
        (root / "kept").rename(root / "out" / "hours")
        wait_for(lambda: sunk(root, "hours") == live(root, "hours"), driver)
        driver.send_signal(signal.SIGINT)
        assert driver.wait(30) == 0
    errors = told_by.read_text()
    assert re.search(r"^sessionlake: hours: waits: .* has no windows yet", errors, re.MULTILINE)
    assert errors.endswith("sessionlake: publish: stopped; nothing is lost, `sessionlake publish` goes on from here\n")
    assert "sessionlake: latest: is started" not in errors


@pytest.mark.slow
def test_one_that_fails_once_leaves_the_others_done_and_those_behind_it_skipped(root: Path) -> None:
    assert run(root, "--once").returncode == 0
    checkpoint = root / "lake" / "sittings" / "_checkpoints"
    checkpoint.rename(root / "kept")
    write_file(root, 2)
    done = run(root, "--once")
    assert done.returncode == 2, done.stderr
    assert "sessionlake: sittings: checkpoint:" in done.stderr
    assert "Traceback" not in done.stderr
    told = json.loads(done.stdout.splitlines()[-1])["pipelines"]
    states = {"sittings": "failed", "hours": "done", "latest": "done", "stragglers": "skipped"}
    assert {name: one["state"] for name, one in told.items()} == states
    assert told["hours"]["input"] == 10


def job(root: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [SESSIONLAKE, "--quiet", words[0], str(root), *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_forget_leaves_no_key_in_any_pipeline_and_those_behind_go_on(root: Path) -> None:
    """`u4` is in the sessions, in their late events, and so in the pipeline behind; the others stay."""
    assert run(root, "--once").returncode == 0
    keys = root / "keys"
    keys.write_text("u4\n")
    keys.chmod(0o600)
    (root / "events" / "0.json").unlink()  # the sources are the sender's, and hold the key
    (root / "events" / "1.json").unlink()
    configs = {name: load_config(root / f"{name}.toml") for name in PIPELINES}
    assert all(traces(config, ["u4"]) for config in configs.values())
    done = job(root, "forget", "--keys-file", str(keys))
    told = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, told["pipelines"]) == (0, dict.fromkeys(PIPELINES, "done")), done.stdout + done.stderr
    assert told["found"] == 0
    assert {name: traces(config, ["u4"]) for name, config in configs.items()} == {name: [] for name in PIPELINES}
    write_file(root, 2)
    again = run(root, "--once")
    states = json.loads(again.stdout.splitlines()[-1])["pipelines"]
    assert {one["state"] for one in states.values()} == {"done"}, again.stderr
    assert states["hours"]["input"] == 10
    assert all(one["reconciles"] for one in statuses(root).values())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_job_goes_over_all_pipelines_that_have_it(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    nothing = job(root, "compact")
    assert nothing.returncode == 6
    assert json.loads(nothing.stdout.splitlines()[-1])["pipelines"] == dict.fromkeys(PIPELINES, "no_batches")
    assert run(root, "--once").returncode == 0
    done = job(root, "reprocess-late", "--no-apply")
    told = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, told["pipelines"]["latest"], told["pipelines"]["sittings"]) == (0, "not_needed", "done"), (
        done.stderr
    )
    assert told["late_events"] == 2
    saved = tmp_path_factory.mktemp("saved")
    assert job(root, "backup", str(saved)).returncode == 0
    assert {folder.name for folder in saved.iterdir()} == {*PIPELINES}
    checkpoint = root / "lake" / "hours" / "window_changelog"
    checkpoint.rename(root / "kept")
    broken = job(root, "compact")
    told = json.loads(broken.stdout.splitlines()[-1])["pipelines"]
    assert told["hours"] not in ("done", "not_needed"), broken.stdout
    assert {told[name] for name in ("sittings", "latest", "stragglers")} == {"done"}
    assert "Traceback" not in broken.stderr
