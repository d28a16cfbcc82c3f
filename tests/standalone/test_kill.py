"""A process that is killed with SIGKILL between any two of its calls: replayed from the last flush, it gives the same again."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

MESSAGES = 40
PROGRAM = """
import json, sys
from sessionlake import HoppingWindows
from sessionlake.standalone import Emit, WindowedAggregator

directory, outputs, messages = sys.argv[1], sys.argv[2], int(sys.argv[3])
windows = HoppingWindows.of("12 us", "4 us").grace("15 us").until("40 us")

def taken(row):
    with open(outputs, "a") as file:
        file.write(json.dumps(row) + chr(10))

run = WindowedAggregator(directory, windows, {"total": "sum(v)"}, key="key", emit=Emit(early="7 us", late="5 us"),
                         downstream=taken if outputs else None, schema={"v": "long", "key": "string"})
for n in range(run.positions().get(0, -1) + 1, messages):
    seen = len(run.get_result())
    message = {"key": "ab"[n % 2], "time_us": n + n * 7 % 20, "v": n}
    run.add_message(message, position=n, clock_us=n * 3)
    print(json.dumps(["added", n, run.get_result()[seen:]]), flush=True)
    if not outputs and n % 5 == 4:
        run.flush()
        print(json.dumps(["flushed", n]), flush=True)
print(json.dumps(["windows", run.get_windows(-100, 1000)]), flush=True)
"""


def played(directory: Path, outputs: str, until: int | None) -> list[Any]:
    """Run the program, kill it once it has written so many lines, and return all that it has written."""
    arguments = [sys.executable, "-c", PROGRAM, str(directory), outputs, str(MESSAGES)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(json.loads(line))
            if len(lines) == until:
                os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == (0 if until is None else -signal.SIGKILL)
    return lines


@pytest.fixture(scope="module")
def undisturbed() -> list[Any]:
    with tempfile.TemporaryDirectory() as root:
        return played(Path(root, "w"), "", None)


@pytest.mark.slow
def test_outputs_are_the_same_again(tmp_path: Path, undisturbed: list[Any]) -> None:
    expected = {line[1]: line[2] for line in undisturbed if line[0] == "added"}
    assert sum(map(len, expected.values())) > MESSAGES
    flushed, first = -1, 0
    for until in (9, 16, None):
        lines = played(tmp_path / "w", "", until)
        added = [line for line in lines if line[0] == "added"]
        assert flushed < added[0][1] <= first
        for _, number, rows in added:
            assert rows == expected[number]
        first = added[-1][1] + 1
        flushed = max(line[1] for line in lines if line[0] == "flushed")
    assert lines[-1] == undisturbed[-1]


def test_what_comes_downstream_lacks_nothing(tmp_path: Path, undisturbed: list[Any]) -> None:
    outputs = tmp_path / "outputs"
    for until in (7, 20, None):
        lines = played(tmp_path / "w", str(outputs), until)
    expected = [row for line in undisturbed if line[0] == "added" for row in line[2]]
    found = [json.loads(line) for line in outputs.read_text().splitlines()]
    assert lines[-1] == undisturbed[-1]
    # What was taken and not flushed yet comes again, and nothing else does.
    assert list({json.dumps(row): row for row in found}.values()) == expected
