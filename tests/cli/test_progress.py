"""Progress: on a terminal a line that lives, elsewhere plain lines now and then; standard output stays what scripts read."""

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

from sessionlake.cli.progress import EVERY_S, PATIENCE_S, Progress, elapsed
from sessionlake.cli.registry import COMMANDS, LOOKUPS
from sessionlake.preflight.project import check_project
from tests.cli.support import CONFIG

STEPS = """
import time
import click
from sessionlake.cli import main
from sessionlake.cli.progress import progress
from sessionlake.cli.shared import console, one_line_errors
from sessionlake.cli.registry import COMMANDS
import sys, types

@click.command("status")
@one_line_errors
def command():
    with progress() as shown:
        shown.step("1 of 2: waiting")
        time.sleep({seconds})
        console.print("a batch")
        shown.step("2 of 2: copying")
        shown.count(3, 4)
        time.sleep({seconds})
    click.echo('{{"job": "status"}}')

module = types.ModuleType("made")
module.command = command
sys.modules["made.up"] = module
COMMANDS["status"] = ("made.up:command", "")
main(sys.argv[1:])
"""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shown(clock: Clock) -> Progress:
    return Progress("compact", lambda: (7, 9, "tasks"), clock)


def test_who_waits_less_than_two_seconds_sees_nothing(shown: Progress, clock: Clock) -> None:
    shown.step("1 of 2: fold")
    clock.now += PATIENCE_S - 0.1
    assert shown.due_line() is None
    clock.now += 0.1
    assert shown.due_line() == "compact: 1 of 2: fold"


def test_each_step_has_a_line_and_a_long_one_another_now_and_then(shown: Progress, clock: Clock) -> None:
    clock.now += PATIENCE_S
    shown.step("1 of 2: fold")
    assert shown.due_line() == "compact: 1 of 2: fold"
    clock.now += EVERY_S - 1
    shown.count(1_200, 3_000)
    assert shown.due_line() is None
    clock.now += 1
    assert shown.due_line() == "compact: 1 of 2: fold, 1,200 of 3,000 files (0:30)"
    shown.step("2 of 2: trim")
    assert shown.due_line() == "compact: 2 of 2: trim"


def test_what_nobody_counts_is_counted_in_tasks(shown: Progress, clock: Clock) -> None:
    clock.now += PATIENCE_S
    shown.step("fold")
    shown.look()
    assert shown.due_line() == "compact: fold, 7 of 9 tasks"
    shown.step("copy")
    shown.count(1, 2)
    shown.look()
    assert shown.due_line() == "compact: copy, 1 of 2 files"


SHORT = {
    **dict.fromkeys(("graph", "show", "views"), "read configs alone"),
    "completion": "prints a script",
    "files": "copies small files",
    "jars": "fetches with a progress of its own",
    "demo": "shows what it does itself: examples/demo.py",
}
"""Commands that end within `PATIENCE_S`, or show their progress in another way, and the reason."""


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in SHORT])
def test_a_command_that_may_take_long_shows_it(name: str) -> None:
    place = COMMANDS[name][0].partition(":")[0] or ("lookups" if name in LOOKUPS else "jobs")
    module = import_module(f"sessionlake.cli.{place}")
    assert {"progress", "open_session"} & vars(module).keys()  # `open_session` shows that Spark starts


def test_pipelines_of_a_project_are_counted(tmp_path: Path) -> None:
    (tmp_path / "project.toml").touch()
    for name in ("clicks", "visits"):
        text = CONFIG.replace('"clicks"', f'"{name}"').replace('"warehouse"', f'"{name}"')
        (tmp_path / f"{name}.toml").write_text(text)
    seen: list[tuple[int, int, str]] = []
    check_project(tmp_path, lambda *count: seen.append(count))
    assert seen == [(1, 2, "pipelines"), (2, 2, "pipelines")]


def test_elapsed() -> None:
    assert [elapsed(seconds) for seconds in (0.9, 61, 3599, 3661)] == ["0:00", "1:01", "59:59", "1:01:01"]


def made(*arguments: str, seconds: float = 2.6) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", STEPS.format(seconds=seconds), *arguments, "status"]
    env = {**os.environ, "SESSIONLAKE_QUIET": ""}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=env)


def test_without_a_terminal_lines_are_plain_and_on_standard_error() -> None:
    done = made()
    assert done.stdout == 'a batch\n{"job": "status"}\n'
    assert done.stderr == "status: 1 of 2: waiting\nstatus: 2 of 2: copying, 3 of 4 files\n"


def test_quiet() -> None:
    done = made("--quiet", seconds=1.1)
    assert (done.stdout, done.stderr) == ('a batch\n{"job": "status"}\n', "")


@pytest.mark.parametrize("both", [True, False], ids=["both are the terminal", "standard output is a pipe"])
def test_on_a_terminal_a_line_lives(both: bool) -> None:  # noqa: FBT001
    ours, theirs = pty.openpty()
    env = {**os.environ, "SESSIONLAKE_QUIET": "", "TERM": "xterm", "COLUMNS": "120"}
    command = [sys.executable, "-c", STEPS.format(seconds=0.5), "status"]
    with subprocess.Popen(command, stdout=theirs if both else subprocess.PIPE, stderr=theirs, env=env) as process:
        os.close(theirs)
        seen = b""
        with suppress(OSError):  # the other end is closed
            while more := os.read(ours, 1 << 16):
                seen += more
        piped = b"" if process.stdout is None else process.stdout.read()
    os.close(ours)
    text = seen.decode()
    assert process.returncode == 0
    assert re.search(r"status.*1 of 2: waiting.*0:00", text)
    assert re.search(r"2 of 2: copying.*3 of 4 files", text)
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is shown again
    if both:
        assert "a batch" in text
        assert text.rstrip().endswith('{"job": "status"}')
    else:
        assert piped == b'a batch\n{"job": "status"}\n'


def test_what_is_logged_by_a_stop_is_not_shown_on_a_terminal() -> None:
    """The live line stands in the place of standard error there, and prints above itself."""
    stopped = STEPS.format(seconds=0.1).replace(
        'shown.step("2 of 2: copying")',
        """
        import logging, os, signal
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
        except KeyboardInterrupt:
            logging.exception("noise")
            print("more noise", file=sys.stderr)
            raise
        """,
    )
    ours, theirs = pty.openpty()
    env = {**os.environ, "SESSIONLAKE_QUIET": "", "TERM": "xterm", "COLUMNS": "120"}
    command = [
        sys.executable,
        "-c",
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n" + stopped,
        "status",
    ]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        seen = b""
        with suppress(OSError):  # the other end is closed
            while more := os.read(ours, 1 << 16):
                seen += more
    os.close(ours)
    assert process.returncode == 130
    assert b"sessionlake: status: stopped" in seen
    assert b"a batch" in seen
    assert b"noise" not in seen
