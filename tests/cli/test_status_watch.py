"""`status --watch`: shows, goes on through what passes, and ends well on ctrl-C; the exporter's command as well."""

import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep, time_ns
from typing import Any, Self

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from sessionlake.cli import main
from sessionlake.config.load import load_config
from sessionlake.errors import PipelineStateError
from sessionlake.observe import watch
from sessionlake.observe.overview import Tables
from sessionlake.observe.status import Status, read_status
from tests.cli.statuses import STATUS
from tests.cli.support import CONFIG, Project

MAIN = "from sessionlake.cli import main; main()"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "clicks.toml"
    file.write_text(CONFIG)
    return file


def tables(status: Status) -> Tables:
    return Tables(status, (), None)


class Looks:
    """Stands in for `Watch`: each look finds something else, then ctrl-C is pressed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
        self.answers, self.pauses = list(answers), 0
        monkeypatch.setattr(watch, "Watch", lambda *_: self)
        monkeypatch.setattr(watch, "pause_until", self.pause)

    def look(self) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pause(self, _: float) -> None:
        self.pauses += 1
        if not self.answers:
            raise KeyboardInterrupt


def test_tables_come_and_go(ran: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    found = read_status(load_config(ran.path))
    older = replace(found, committed_us=time_ns() // 1000 - 3 * 3_600_000_000)
    gone = PipelineStateError("no batches yet\n  at a line of Java")
    looks = Looks(monkeypatch, gone, tables(found), FileNotFoundError("a file"), tables(older))
    before = signal.getsignal(signal.SIGTERM)
    result = CliRunner().invoke(main, ["status", str(ran.path), "--watch"])
    assert (result.exit_code, result.stderr) == (0, "sessionlake: status: stopped\n")
    shown = re.findall(
        r"no batches yet|clicks  batch \d+|a file|reconciles +yes|last commit 3 h(?= ago)", result.stdout
    )
    assert shown == [
        *("no batches yet", "clicks  batch 0", "reconciles   yes", "a file"),
        *("clicks  batch 0", "last commit 3 h", "reconciles   yes"),
    ]
    assert "line of Java" not in result.stdout
    assert looks.pauses == 4
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("form", ["json", "csv"])
def test_watched_by_a_program(config: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    Looks(monkeypatch, PipelineStateError("no batches yet"), *(tables(replace(STATUS, batch_id=n)) for n in (1, 2)))
    result = CliRunner().invoke(main, ["status", str(config), "--watch", "--format", form])
    assert (result.exit_code, result.stderr) == (0, "sessionlake: no batches yet\nsessionlake: status: stopped\n")
    lines = result.stdout.splitlines()
    if form == "csv":
        at = lines[0].split(",").index("batch_id")
        assert [line.split(",")[at] for line in lines[1:]] == ["1", "2"]
    else:
        assert [[one["batch_id"] for one in json.loads(line)] for line in lines] == [[1], [2]]


def test_a_defect_is_not_hidden(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Looks(monkeypatch, ZeroDivisionError())
    result = CliRunner().invoke(main, ["status", str(config), "--watch"])
    assert (result.exit_code, "sessionlake: ZeroDivisionError" in result.stderr) == (1, True)


@pytest.fixture
def project(ran: Project, tmp_path: Path) -> Path:
    """Return a project of a pipeline that has run, and one that has not."""
    root = tmp_path / "project"
    shutil.copytree(ran.root, root)
    (root / "project.toml").touch()
    (root / "later.toml").write_text(CONFIG.replace('"clicks"', '"later"').replace('"warehouse"', '"elsewhere"'))
    return root


def pause_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ctrl-C be pressed in the second pause between two looks."""
    pauses = iter((None, KeyboardInterrupt()))

    def pause(_: float) -> None:
        if (pressed := next(pauses)) is not None:
            raise pressed

    monkeypatch.setattr(watch, "pause_until", pause)


def test_a_project_is_watched_as_a_table(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pause_twice(monkeypatch)
    result = CliRunner().invoke(main, ["status", str(project), "--watch"])
    assert (result.exit_code, result.stderr) == (0, "sessionlake: status: stopped\n")
    shown = re.findall(
        r"^(\d{4}-\d\d-\d\d|pipeline|clicks|later) .*?(UTC|quality|stopped|new)", result.stdout, re.MULTILINE
    )
    words = [word for line in shown for word in line]
    look = [words[0], "UTC", "pipeline", "quality", "clicks", "stopped", "later", "new"]
    assert words == look * 2


@pytest.mark.parametrize("form", ["json", "csv"])
def test_a_project_is_watched_by_a_program(project: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    pause_twice(monkeypatch)
    result = CliRunner().invoke(main, ["status", str(project), "--watch", "--format", form])
    assert (result.exit_code, result.stderr) == (0, "sessionlake: status: stopped\n")
    lines = result.stdout.splitlines()
    if form == "json":  # a list a line
        found = [[(one["name"], one["state"]) for one in json.loads(line)] for line in lines]
        assert found == [[("clicks", "stopped"), ("later", "new")]] * 2
    else:
        assert [line.split(",")[:2] for line in lines] == [
            *(["pipeline", "state"], ["clicks", "stopped"], ["later", "new"]),
            *(["clicks", "stopped"], ["later", "new"]),
        ]


def test_exporter_of_a_project_once(project: Path) -> None:
    result = CliRunner().invoke(main, ["metrics", str(project), "--once"])
    # A pipeline without batches is no failure, and says so.
    assert result.exit_code == 0
    assert re.fullmatch(r"sessionlake: later: .* has no batches yet; run `sessionlake run` first\n", result.stderr)
    read = {"clicks": 1, "later": 0}
    assert values(result.stdout, "sessionlake_exporter_refresh_success") == read
    assert values(result.stdout, "sessionlake_input_events_total") == {"clicks": 1}
    shutil.rmtree(project / "warehouse" / "batches" / "_delta_log")
    result = CliRunner().invoke(main, ["metrics", str(project), "--once"])
    assert result.exit_code == 2, result.output
    assert values(result.stdout, "sessionlake_exporter_refresh_success") == dict.fromkeys(read, 0)
    assert re.findall(r"^sessionlake: (\w+): ", result.stderr, re.MULTILINE) == ["clicks", "later"]


def values(text: str, name: str) -> dict[str, float]:
    """Return the values of a metric by pipeline."""
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {sample.labels["pipeline"]: sample.value for sample in samples if sample.name == name}


@pytest.mark.slow
def test_exporter_serves_a_project_at_one_port(project: Path) -> None:
    with Process(project, "metrics", "--port", "0", "--interval", "200 ms", terminal=False) as exporter:
        url = exporter.wait_for(r"metrics at (http://127\.0\.0\.1:\d+/metrics)")[1]
        exporter.wait_for("warning: later: pipeline.warehouse: .* has no batches yet")
        with urllib.request.urlopen(url) as answer:  # noqa: S310 (our own)
            text = answer.read().decode()
        assert values(text, "sessionlake_exporter_refresh_success") == {"clicks": 1, "later": 0}
        assert exporter.end(signal.SIGINT) == 0
        assert "Traceback" not in exporter.text()
        assert exporter.text().count("warning:") == 1


@pytest.mark.parametrize("command", ["status", "metrics"])
@pytest.mark.parametrize(
    ("interval", "message"),
    [
        ("0 s", "--interval: '0 s' must be longer than zero; write for example '5 seconds'"),
        ("5", "--interval: '5' is not a duration; write a number and a unit, as in '30 minutes'"),
    ],
)
def test_interval(config: Path, command: str, interval: str, message: str) -> None:
    result = CliRunner().invoke(main, [command, str(config), "--interval", interval])
    assert (result.exit_code, result.stderr) == (2, f"sessionlake: {message}\n")


def test_exporters_port_in_use(config: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(main, ["metrics", str(config), "--port", str(port)])
    assert result.exit_code == 2
    assert re.fullmatch(rf"sessionlake: metrics\.port: 127\.0\.0\.1:{port} can't be listened on .*\n", result.stderr)


def test_exporter_once_without_batches(config: Path) -> None:
    result = CliRunner().invoke(main, ["metrics", str(config), "--once"])
    assert (result.exit_code, result.stdout) == (6, "")
    assert "has no batches yet; run `sessionlake run` first" in result.stderr


class Process:
    """A command in a process of its own; on a terminal where one is asked for."""

    def __init__(self, config: Path, *arguments: str, terminal: bool) -> None:
        self.output = b""
        self._read, write = pty.openpty() if terminal else os.pipe()
        os.set_blocking(self._read, False)
        command = [sys.executable, "-c", MAIN, arguments[0], str(config), *arguments[1:]]
        env = {**os.environ, "TERM": "xterm", "COLUMNS": "150", "LINES": "50"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=write, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )
        os.close(write)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._read)

    def text(self) -> str:
        with suppress(OSError):  # nothing there yet, or the other end of the terminal is closed
            self.output += os.read(self._read, 1 << 20)
        # A line may be broken anywhere between words: the path in it has no fixed length.
        return " ".join(ESCAPES.sub("", self.output.decode(errors="replace")).split())

    def wait_for(self, pattern: str, times: int = 1) -> re.Match[str]:
        deadline = monotonic() + 200
        while len(found := list(re.finditer(pattern, self.text()))) < times:
            assert monotonic() < deadline, self.text()
            assert self.process.poll() is None, self.text()
            sleep(0.05)
        return found[0]

    def end(self, number: int) -> int:
        """Send ctrl-C to all of it, as a terminal does, or SIGTERM to it alone, as a supervisor does."""
        (os.killpg if number == signal.SIGINT else os.kill)(self.process.pid, number)
        return self.process.wait(100)


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ended_by_a_signal(config: Path, number: int, terminal: bool) -> None:  # noqa: FBT001
    with Process(config, "status", "--watch", "--interval", "200 ms", terminal=terminal) as shown:
        shown.wait_for("has no batches yet; run `sessionlake run` first", times=3)
        assert shown.end(number) == 0
        assert "Traceback" not in shown.text()


@pytest.mark.slow
def test_exporter_serves_and_ends(config: Path) -> None:
    with Process(config, "metrics", "--port", "0", "--interval", "200 ms", terminal=False) as exporter:
        url = exporter.wait_for(r"metrics at (http://127\.0\.0\.1:\d+/metrics)")[1]
        exporter.wait_for("warning: pipeline.warehouse: .* has no batches yet")
        with urllib.request.urlopen(url) as answer:  # noqa: S310 (our own)
            families = list(text_string_to_metric_families(answer.read().decode()))
        samples = [(s.name, s.labels, s.value) for family in families for s in family.samples]
        assert samples == [("sessionlake_exporter_refresh_success", {"pipeline": "clicks"}, 0)]
        assert exporter.end(signal.SIGINT) == 0
        assert "Traceback" not in exporter.text()
        assert exporter.text().count("has no batches yet") == 1
