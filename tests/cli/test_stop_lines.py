"""Each command has a line for its end by a signal, and an exit code that says whether that is how it usually ends."""

import signal
import threading

import pytest

from sessionlake import stopping
from sessionlake.cli import stop
from sessionlake.cli.registry import COMMANDS
from sessionlake.cli.stop import Command, exit_code, line


@pytest.fixture(autouse=True)
def nothing_told() -> None:
    stopping.forget_all()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_says_how_things_stand(name: str) -> None:
    said = line(Command(name, {"directory": "D", "once": True}))
    if name in ("serve", "metrics"):
        assert said == f"{name}: stopped"
    else:
        assert said.startswith(f"{name}: stopped; ")
        assert "{" not in said


@pytest.mark.parametrize(
    ("name", "params", "code"),
    [
        ("run", {"once": False}, 0),
        ("run", {"once": True}, 130),
        ("publish", {"once": False}, 0),
        ("publish", {"once": True}, 130),
        ("serve", {}, 0),
        ("metrics", {"once": False}, 0),
        ("status", {"watch": True}, 0),
        ("status", {"watch": False}, 130),
        ("demo", {"what": "serve"}, 0),
        ("demo", {"what": "all"}, 130),
        ("compact", {}, 130),
    ],
)
def test_to_be_stopped_is_no_failure_of_what_runs_until_then(name: str, params: dict[str, object], code: int) -> None:
    assert exit_code(Command(name, params), signal.SIGINT) == code


def test_before_a_command_is_known_nothing_was_done() -> None:
    assert (line(None), exit_code(None, signal.SIGTERM)) == ("stopped; nothing was done", 143)


def test_a_recorded_run_is_named_and_others_are_not() -> None:
    stopping.runs_as("monday")
    assert line(Command("compact", {})).endswith("for the rest (as the same run with `--run-id monday`)")
    assert "monday" not in line(Command("demo", {"directory": "D"}))


def test_what_the_work_says_goes_before_what_the_command_says_and_a_dry_run_before_both() -> None:
    stopping.leaves("the job is done")
    assert line(Command("compact", {})) == "compact: stopped; the job is done"
    assert line(Command("compact", {"dry_run": True})) == "compact: stopped; a dry run writes nothing"


def test_the_second_thread_that_ends_the_process_waits_for_the_line_of_the_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of them ends the process, and with it the other, which may have been about to write the line."""
    ending, asked, may_write, ended = stop.Stop(), threading.Event(), threading.Event(), []

    def slow_line(_: Command | None) -> str:
        asked.set()
        assert may_write.wait(60)
        return "compact: stopped"

    monkeypatch.setattr(stop, "line", slow_line)
    monkeypatch.setattr(stop, "_LINE_S", 60)
    threads = [threading.Thread(target=lambda: ended.append(ending.end()))]
    threads[0].start()
    assert asked.wait(60)
    threads.append(threading.Thread(target=lambda: ended.append(ending.end())))
    threads[1].start()
    threads[1].join(0.2)
    assert not ended
    may_write.set()
    for thread in threads:
        thread.join(60)
    assert (len(ended), capsys.readouterr().err) == (2, "sessionlake: compact: stopped\n")
