"""What a command has started ends with it."""

import subprocess
import sys
from time import monotonic

import psutil

from sessionlake.cli.children import Process, descendants, end_all

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {STUBBORN!r}])"
"""Ends by SIGTERM, and leaves a child that does not."""


def test_grandchildren_that_hear_no_sigterm_end_too() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        tree = [parent.pid, *(child.pid for child in psutil.Process(parent.pid).children(recursive=True))]
        mine = [process for process in descendants() if process.pid in tree]
        assert [process.pid for process in mine] == tree
        end_all(mine, monotonic())
        assert (
            psutil.wait_procs([psutil.Process(pid) for pid in tree[1:] if psutil.pid_exists(pid)], timeout=30)[1] == []
        )
        assert not any(process.lives for process in mine)


def test_a_later_process_of_the_same_id_is_let_alone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        other = Process(child.pid, "1")
        assert not other.lives
        other.send(9)
        assert child.poll() is None
        child.kill()
