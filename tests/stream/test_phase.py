"""How far a driver has come, as seen from outside: from its lock and the word beside it. No Spark."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from sessionlake.config.load import Config
from sessionlake.errors import ConfigError, LockedError, NoBatchesError
from sessionlake.observe.overview import Overview, State, overview
from sessionlake.observe.standing import phase
from sessionlake.stopping import put_off
from sessionlake.stream.lock import locked_store
from sessionlake.stream.phase import ENDED, FAILED, FILE, RUNNING, Phase, phases
from tests.support import make_config


def seen(config: Config) -> tuple[str, bool | None]:
    def read() -> object:
        raise NoBatchesError("pipeline.warehouse: has none yet")

    found: Overview = overview(config, read)  # type: ignore[arg-type]
    return found.state.value, found.ended


def run(config: Config, work: Callable[[Phase], None] = lambda _: None, *, is_stream: bool = True) -> None:
    with locked_store(config), phases(config, is_stream=is_stream) as reached:
        work(reached)


def test_a_driver_starts_until_it_has_a_batch_or_waits_for_input(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    assert seen(config) == ("new", None)

    def work(reached: Phase) -> None:
        assert seen(config) == (State.STARTING.value, None)
        reached.reached(RUNNING)
        assert seen(config) == (State.RUNNING.value, None)

    run(config, work)
    assert seen(config) == ("new", True)


@pytest.mark.parametrize(("error", "word"), [(KeyboardInterrupt(), ENDED), (ConfigError("x: is wrong"), FAILED), (SystemExit(1), FAILED)])  # fmt: skip
def test_the_end_of_a_run(tmp_path: Path, error: BaseException, word: str) -> None:
    config = make_config(tmp_path)

    def work(_: Phase) -> None:
        raise error

    with suppress(type(error)):
        run(config, work)
    assert (phase(config), seen(config)[1]) == (word, word == ENDED)


def test_a_run_that_fails_while_it_is_asked_to_end_has_ended_as_asked(tmp_path: Path) -> None:
    """In a project's process, whose main thread puts signals off; Java may have gone by the same ctrl-C."""
    config = make_config(tmp_path)

    def work(_: Phase) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        raise ConfigError("java: has gone")

    with put_off() as asked:
        with pytest.raises(ConfigError):
            run(config, work)
        assert asked.wait(10)
    assert phase(config) == ENDED


def test_a_driver_that_is_killed_has_not_ended_as_asked(tmp_path: Path) -> None:
    """And the pass of a job after it changes nothing about that."""
    config = make_config(tmp_path)
    run(config)
    driver = """if True:
        import sys, time
        from pathlib import Path
        from sessionlake.stream.phase import RUNNING
        from tests.stream.test_phase import make_config, run
        def work(reached):
            reached.reached(RUNNING)
            print("runs", flush=True)
            time.sleep(600)
        run(make_config(Path(sys.argv[1])), work)
    """
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", driver, str(tmp_path)], stdout=subprocess.PIPE, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"runs\n"
        assert seen(config) == ("running", None)
        # A second driver is refused, and leaves the word of the first one.
        with pytest.raises(LockedError):
            run(config)
        assert phase(config) == RUNNING
        process.send_signal(signal.SIGKILL)
    assert seen(config) == ("new", False)
    run(config, is_stream=False)
    assert (phase(config), seen(config)) == (RUNNING, ("new", False))
    run(config)
    assert seen(config) == ("new", True)
    run(config, is_stream=False)
    assert seen(config) == ("new", True)


def test_a_word_that_can_not_be_written_or_is_of_no_release_stops_nothing(tmp_path: Path) -> None:
    config = make_config(tmp_path)
    file = Path(config.lock_dir, FILE)
    file.mkdir(parents=True)
    run(config)
    assert (phase(config), seen(config)) == (None, ("new", None))
    file.rmdir()
    file.write_text("asleep\n")
    assert seen(config) == ("new", False)
