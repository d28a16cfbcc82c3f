"""`make cluster`: it says where the master is, and leaves no process behind, however it ends."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

SCRIPT = Path(__file__).parents[2] / "infra" / "spark" / "cluster.py"


def is_zombie(process: psutil.Process) -> bool:
    """Say whether a process has ended and waits for its parent, which may be slow to ask."""
    return process.status() == psutil.STATUS_ZOMBIE


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_all_processes_end_with_the_script(tmp_path: Path, end: signal.Signals) -> None:
    command = [sys.executable, str(SCRIPT), "--folder", str(tmp_path), "--port", "0", "--workers", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None
        told = script.stdout.readline()
        started = [p for p in psutil.Process(script.pid).children(recursive=True) if not is_zombie(p)]
        commands = " ".join(word for process in started for word in process.cmdline())
        classes = [
            word for process in started for word in process.cmdline() if word.startswith("org.apache.spark.deploy")
        ]
        script.send_signal(end)
    assert "--master spark://127.0.0.1:" in told
    properties = tmp_path / "spark.properties"
    assert properties.stat().st_mode & 0o777 == 0o600
    secret = dict(line.split("=", 1) for line in properties.read_text().splitlines())["spark.authenticate.secret"]
    assert secret not in told + commands
    assert [name.rpartition(".")[2] for name in classes] == ["Master", "Worker"]
    assert [process for process in psutil.wait_procs(started, timeout=20)[1] if not is_zombie(process)] == []
