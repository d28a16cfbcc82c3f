"""A stream is stopped as users and supervisors do: it ends soon, well, and in one line."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import write_config, write_rows

WAIT_S = 300


@pytest.mark.timeout(WAIT_S)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "everybody"),
    [(signal.SIGINT, True), (signal.SIGTERM, False)],
    ids=["ctrl-C in a terminal", "SIGTERM of a supervisor"],
)
def test_a_stream_that_is_stopped_ends_in_one_line(tmp_path: Path, number: int, everybody: bool) -> None:  # noqa: FBT001
    file = write_config(tmp_path, pipeline={"trigger": "100 ms"})
    for name in ("0.json", "1.json"):
        write_rows(tmp_path, name, [{"key": "a", "time_us": 1, "v": 1}])
    command = [sys.executable, "-m", "sessionlake", "run", str(file)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as stream:
        assert stream.stdout is not None
        assert any("batch    1" in line for line in stream.stdout)
        (os.killpg if everybody else os.kill)(stream.pid, number)
        assert stream.stdout.read() == "stopped; nothing is lost, `sessionlake run` goes on from here\n"
        assert stream.wait(WAIT_S) == 0
