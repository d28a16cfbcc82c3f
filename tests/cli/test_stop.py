"""Commands are stopped as users and supervisors do: at any moment they end soon, in one line, with all that they have started."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

import psutil
import pytest

from tests.cli.support import Project

WAIT_S = 300
SOON_S = 60
"""A limit against hanging, not a measure: five seconds are promised, by a machine that has them to give."""
CTRL_C, SUPERVISOR = signal.SIGINT, signal.SIGTERM
CODES = {CTRL_C: 130, SUPERVISOR: 143}
REST = "the committed part stays, start it again for the rest"
PROGRESS = re.compile(r"(?!sessionlake: )[a-z-]+: |sessionlake: warning: ")
READS = "it only reads, and nothing was changed"
HALF = "(nothing was made yet, start it again|other is half made: remove it and start again; the pipeline's own warehouse is as it was)"
RUN_ID = r"( \(as the same run with `--run-id [\dT.-]+`\))?"
FOREVER = "select count(*) from range(100000000) a(n), range(100000000) b(n) where a.n * b.n = 7"
"""For DuckDB and Spark."""


class Process:
    """A command in a process group of its own, as a shell starts it, in a directory of its own."""

    def __init__(self, project: Project, *arguments: str) -> None:
        self.root = project.root
        self.directory = project.root / "here"
        self.directory.mkdir(exist_ok=True)
        words = [arguments[0], str(project.path), *arguments[1:]]
        self.files = [(self.root / name).open("w+") for name in ("stdout", "stderr")]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sessionlake", *words],
            stdin=subprocess.DEVNULL,
            stdout=self.files[0],
            stderr=self.files[1],
            cwd=self.directory,
            env={**os.environ, "SESSIONLAKE_QUIET": ""},
            start_new_session=True,
            preexec_fn=hear_ctrl_c,  # noqa: PLW1509 (sets one handler; no lock is taken)
        )

    def wait_for(self, pattern: str) -> None:
        """Wait until standard output or error has a pattern; progress tells by it where the command is."""
        deadline = monotonic() + WAIT_S
        while not re.search(pattern, "".join(self.texts())):
            assert monotonic() < deadline, self.texts()
            assert self.process.poll() is None, self.texts()
            sleep(0.02)

    def texts(self) -> list[str]:
        return [(self.root / name).read_text() for name in ("stdout", "stderr")]

    def send(self, number: int) -> None:
        """Send ctrl-C to all of the group, as a terminal does, or SIGTERM to the process alone, as a supervisor does."""
        (os.killpg if number == CTRL_C else os.kill)(self.process.pid, number)

    def ended(self) -> tuple[int, str]:
        """Return the exit code, and standard error without the lines of progress; nothing that was started is left."""
        started = [] if self.process.poll() is not None else psutil.Process(self.process.pid).children(recursive=True)
        code = self.process.wait(SOON_S)
        assert psutil.wait_procs(started, timeout=SOON_S)[1] == []
        assert list(self.directory.iterdir()) == []
        lines = self.texts()[1].splitlines(keepends=True)
        return code, "".join(line for line in lines if not PROGRESS.match(line))

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for file in self.files:
            file.close()


def hear_ctrl_c() -> None:
    """Undo what a shell does to all that it starts in the background, be it these tests."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def started(project: Project, *arguments: str) -> Iterator[Process]:
    process = Process(project, *arguments)
    try:
        yield process
    finally:
        process.close()


def stopped(project: Project, moment: str, number: int, *arguments: str) -> tuple[int, str]:
    with started(project, *arguments) as process:
        process.wait_for(moment)
        process.send(number)
        return process.ended()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Two hundred files in one batch, done by a process of its own: no Spark of this one is needed."""
    project = Project(tmp_path_factory.mktemp("stop") / "project")
    for number in range(200):
        project.add_events(number)
    subprocess.run([sys.executable, "-m", "sessionlake", "run", str(project.path), "--once"], check=True)
    return project


@pytest.mark.parametrize("number", [CTRL_C, pytest.param(SUPERVISOR, marks=pytest.mark.slow)])
def test_while_spark_starts(project: Project, number: int) -> None:
    line = "sessionlake: bootstrap: stopped; its one batch was not committed, start it again\n"
    assert stopped(project, "starting Spark", number, "bootstrap") == (CODES[number], line)


@pytest.mark.slow
@pytest.mark.parametrize("number", [SUPERVISOR, CTRL_C])
def test_a_command_that_runs_until_it_is_stopped_succeeds(project: Project, number: int) -> None:
    assert stopped(project, "metrics at", number, "metrics", "--port", "0") == (0, "sessionlake: metrics: stopped\n")


def test_before_modules_are_there_it_ends_without_a_trace(project: Project) -> None:
    script = "import signal, sys; sys.modules['sessionlake.cli'] = None\nimport runpy\ntry: runpy.run_module('sessionlake')\nexcept ImportError: signal.raise_signal(signal.SIGINT)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=hear_ctrl_c,
        cwd=project.root,
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_ctrl_c_that_the_process_is_told_to_ignore_is_ignored(project: Project) -> None:
    """A script that starts a command in its background does not end it with its own ctrl-C."""
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); from sessionlake.cli import main; main()"
    command = [sys.executable, "-c", ignoring, "metrics", str(project.path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "metrics at" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SOON_S) == 0
        assert process.stderr is not None
        assert process.stderr.read().splitlines()[-1] == "sessionlake: metrics: stopped"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "number", "arguments", "says"),
    [
        ("running the query", CTRL_C, ["sql", FOREVER], READS),
        ("running the query", SUPERVISOR, ["sql", FOREVER, "--engine", "spark", "--allow-files"], READS),
        (r"compact: \d of", CTRL_C, ["compact"], REST + RUN_ID),
        (r"compact: \d of", SUPERVISOR, ["compact"], REST + RUN_ID),
        ("looking at", CTRL_C, ["compact", "--dry-run"], "a dry run writes nothing"),
        ("looking for", SUPERVISOR, ["reprocess-late"], REST + RUN_ID),
        ("looking for expired rows", CTRL_C, ["expire", "--where", "event_count < 0"], REST + RUN_ID),
        ("reading events", CTRL_C, ["backfill", "--from", "2023-11-14", "--to", "2023-11-16"], REST + RUN_ID),
        ("checking", CTRL_C, ["quality"], "there is no verdict, start it again" + RUN_ID),
        ("in one pass", SUPERVISOR, ["rebuild", "--warehouse", "other"], HALF),
        (
            "copying",
            CTRL_C,
            ["backup", "../copy"],
            r"\.\./copy is no backup yet, start it again with the same directory",
        ),
    ],
)
def test_at_work(committed: Project, moment: str, number: int, arguments: list[str], says: str) -> None:
    code, line = stopped(committed, moment, number, *arguments)
    assert code == CODES[number]
    assert re.fullmatch(f"sessionlake: {arguments[0]}: stopped; {says}\n", line), line


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 0.4, 1.1, 2.3])
def test_a_stream_at_any_moment_succeeds(project: Project, seconds: float) -> None:
    project.edit("[source]", 'trigger = "100 ms"\n\n[source]')
    with started(project, "run") as process:
        process.wait_for("batch    0")
        sleep(seconds)
        process.send(CTRL_C)
        assert process.ended() == (
            0,
            "sessionlake: run: stopped; nothing is lost, `sessionlake run` goes on from here\n",
        )


AT_THE_EDGES = """
import itertools, signal, sys
from sessionlake.cli.stop import stoppable

calls, set_wakeup_fd = itertools.count(), signal.set_wakeup_fd

def interrupted(*arguments, **options):
    if next(calls) == int(sys.argv[1]):
        signal.raise_signal(signal.SIGTERM)
    return set_wakeup_fd(*arguments, **options)

signal.set_wakeup_fd = interrupted
stoppable(lambda: print("done"))
"""


@pytest.mark.parametrize(("call", "output"), [(0, ""), (1, "done\n")], ids=["before the command", "after it"])
def test_while_handlers_are_put_in_place_or_taken_away(call: int, output: str) -> None:
    """Then an exception got by, and Python ended as by ctrl-C, without a line."""
    ended = subprocess.run([sys.executable, "-c", AT_THE_EDGES, str(call)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (
        CODES[SUPERVISOR],
        output,
        "sessionlake: stopped; nothing was done\n",
    )


TWICE = """
import signal
from sessionlake.cli import stop
from sessionlake.cli.stop import stoppable
from sessionlake.stopping import put_off

def command():
    with put_off():
        signal.raise_signal(signal.SIGTERM)

stop.end_all = lambda *_: signal.raise_signal(signal.SIGTERM)
stoppable(command)
"""


def test_a_second_signal_does_not_interrupt_the_end() -> None:
    ended = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (CODES[SUPERVISOR], "sessionlake: stopped; nothing was done\n")


@pytest.mark.slow
def test_a_second_ctrl_c_ends_it_at_once(committed: Project) -> None:
    with started(committed, "compact") as process:
        process.wait_for(r"compact: \d of")
        process.send(CTRL_C)
        sleep(0.4)
        with suppress(ProcessLookupError):
            process.send(CTRL_C)
        code, line = process.ended()
    assert code == CODES[CTRL_C]
    assert re.fullmatch(f"sessionlake: compact: stopped; {REST}{RUN_ID}\n", line), line


@pytest.mark.slow
def test_what_was_stopped_is_done_when_it_is_started_again(project: Project) -> None:
    line = "sessionlake: bootstrap: stopped; its one batch was not committed, start it again\n"
    assert stopped(project, "starting Spark", SUPERVISOR, "bootstrap") == (CODES[SUPERVISOR], line)
    code, _ = stopped(project, "in one pass", CTRL_C, "bootstrap")
    assert code == CODES[CTRL_C]
    with started(project, "run", "--once") as process:
        assert process.process.wait(WAIT_S) == 0
    assert '"input": 1,' in process.texts()[0]
