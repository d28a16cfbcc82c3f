"""Commands whose output nobody reads any more: those that only read end as Unix's tools do, all others do their work."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from urllib.request import urlopen

import pytest

from sessionlake.cli.registry import COMMANDS
from sessionlake.cli.stop import Command
from sessionlake.config.load import load_config
from sessionlake.observe.status import read_status
from tests.cli.support import Project
from tests.project.project_support import PIPELINES, write_project

WAIT_S = 200
UNREAD = 141
ENDS = ["pipe", "socket", "terminal"]


def unread(kind: str = "pipe") -> int:
    """Return the end to write to of a pipe, a socket or a terminal whose other end is closed."""
    if kind == "socket":
        ours, theirs = socket.socketpair()
        theirs.close()
        return ours.detach()
    theirs, ours = os.openpty() if kind == "terminal" else os.pipe()
    os.close(theirs)
    return ours


@contextmanager
def started(*words: str, stdout: int | None = None, stderr: int | None = None) -> Iterator["subprocess.Popen[str]"]:
    """Start a command, whose output nobody reads if it is not given a place."""
    nobody = unread()
    process = subprocess.Popen(
        [sys.executable, "-m", "sessionlake", *words],
        stdout=nobody if stdout is None else stdout,
        stderr=nobody if stderr is None else stderr,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        os.close(nobody)
        process.kill()
        process.communicate()


def ended(*words: str, stdout: int | None = None, stderr: int | None = None) -> tuple[int, str | None]:
    """Return a command's exit code and what it wrote on standard error."""
    with started(*words, stdout=stdout, stderr=stderr) as process:
        said = process.communicate(timeout=WAIT_S)[1]
        return process.returncode, said


def last_batch(path: Path) -> int:
    """Return the number of the last batch of a pipeline that is committed."""
    return read_status(load_config(path)).batch_id


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("words", [["show"], ["--help"]])
def test_a_command_that_only_reads_ends_quietly(project: Project, kind: str, words: list[str]) -> None:
    stdout = unread(kind)
    path = [str(project.path)] if words == ["show"] else []
    assert ended(*words, *path, stdout=stdout, stderr=subprocess.PIPE) == (UNREAD, "")
    os.close(stdout)


def test_rows_that_nobody_reads_end_quietly_after_the_first_ones(ran: Project) -> None:
    words = ["sql", str(ran.path), "select * from range(1000000)", "--format", "csv"]
    with started(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "range\n"
        process.stdout.close()
        process.stdout = None
        assert process.communicate(timeout=WAIT_S)[1] == ""
        assert process.returncode == UNREAD


@pytest.mark.parametrize("kind", ENDS)
def test_an_error_that_nobody_reads_keeps_its_exit_code(project: Project, kind: str) -> None:
    stderr = unread(kind)
    assert ended("status", str(project.path), stderr=stderr)[0] == 6
    os.close(stderr)


def test_results_are_complete_if_only_the_progress_is_not_read(project: Project) -> None:
    with started("show", str(project.path), stdout=subprocess.PIPE) as process:
        assert process.communicate(timeout=WAIT_S)[0] == project.call("show").stdout
        assert process.returncode == 0


def test_a_server_goes_on(ran: Project) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with started("metrics", str(ran.path), "--port", str(port)) as process:
        deadline = monotonic() + WAIT_S
        while True:
            try:
                with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                    assert b"sessionlake_" in answer.read()
                break
            except OSError:
                assert process.poll() is None
                assert monotonic() < deadline
                sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0


def test_only_what_changes_nothing_is_ended_by_its_reader() -> None:
    reads = {name for name in COMMANDS if Command(name, {}).only_reads}
    assert reads >= {"status", "sql", "show", "sessions", "graph", "check", "plan", "views"}
    assert not reads & {"run", "bootstrap", "serve", "metrics", "publish", "compact", "forget", "restore", "init"}
    assert not Command("plan", {"write": True}).only_reads


@pytest.mark.slow
def test_work_is_done_to_its_end(project: Project) -> None:
    assert ended("run", str(project.path), "--once")[0] == 0
    assert last_batch(project.path) == 0
    assert ended("compact", str(project.path))[0] == 0
    (status,) = json.loads(project.call("status", "--json").stdout)
    assert [(job["job"], job["finished"]) for job in status["jobs"]] == [("compact", True)]


@pytest.mark.slow
def test_a_stream_whose_log_reader_ends_goes_on(project: Project) -> None:
    project.edit("[source]", 'trigger = "100 ms"\n\n[source]')
    with started("run", str(project.path), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert "batch    0" in process.stdout.readline()
        process.stdout.close()
        process.stderr.close()
        process.stdout = process.stderr = None
        deadline = monotonic() + WAIT_S
        for number in (1, 2):
            project.add_events(number)
            while last_batch(project.path) < number:
                assert process.poll() is None
                assert monotonic() < deadline
                sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0


@pytest.mark.slow
def test_all_pipelines_of_a_project_are_run(tmp_path: Path) -> None:
    pipelines = {name: PIPELINES[name] for name in ("sittings", "latest")}
    directory = write_project(tmp_path, files=1, pipelines=pipelines)
    assert ended("run", str(directory), "--once")[0] == 0
    assert [last_batch(directory / f"{name}.toml") for name in pipelines] == [0, 0]
