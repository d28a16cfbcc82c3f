"""`make cluster`: it says where the master is, and leaves no process behind, however it ends."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

SCRIPT = Path(__file__).parents[2] / "infra" / "spark" / "cluster.py"


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_all_processes_end_with_the_script(tmp_path: Path, end: signal.Signals) -> None:
    command = [sys.executable, str(SCRIPT), "--folder", str(tmp_path), "--port", "0", "--workers", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None
        assert "--master spark://127.0.0.1:" in script.stdout.readline()
        started = psutil.Process(script.pid).children(recursive=True)
        assert len(started) == 2
        script.send_signal(end)
    assert psutil.wait_procs(started, timeout=20)[1] == []
