"""What a command has started ends with it."""

import subprocess
import sys

import psutil

from sessionlake.cli.stop import Process

# All that a process has started is ended: it is one of its own here, for the tests' has Java.
ENDED = """
import subprocess, sys
from time import monotonic
from sessionlake.cli.stop import descendants, end_all
with subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, text=True) as parent:
    assert parent.stdout.readline() == "up\\n"
    found = descendants()
    end_all(found, monotonic())
    print(*(process.pid for process in found))
"""
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {STUBBORN!r}])"
"""Ends by SIGTERM, and leaves a child that does not."""


def test_grandchildren_that_hear_no_sigterm_end_too() -> None:
    ended = subprocess.run([sys.executable, "-c", ENDED, PARENT], capture_output=True, text=True, check=True).stdout
    pids = [int(pid) for pid in ended.split()]
    assert len(pids) == 2
    gone = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    assert psutil.wait_procs(gone, timeout=30)[1] == []


def test_a_later_process_of_the_same_id_is_let_alone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        other = Process(child.pid, "1")
        assert not other.lives
        other.send(9)
        assert child.poll() is None
        child.kill()
