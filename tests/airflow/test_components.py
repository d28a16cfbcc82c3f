"""The processes of `make airflow`, with scripts in the place of Airflow: restarted, given up, and ended without a rest."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.airflow.support import alive, wait_for

INFRA = Path(__file__).parents[2] / "infra" / "airflow"
TEND = """\
import signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from components import ComponentError, Components
import os
def stop(*_): raise KeyboardInterrupt
signal.signal(signal.SIGTERM, stop)
components = Components(os.environ, Path("."), pause=0.1, patience=0.5)
try:
    components.start("api-server", "scheduler")
    while True:
        components.tend()
        time.sleep(0.05)
except KeyboardInterrupt:
    components.stop()
except ComponentError as error:
    components.stop()
    sys.exit(str(error))
"""
# The worker outlives its scheduler, as Airflow's do; `stubborn` is a task's process that no signal but KILL ends.
AIRFLOW = """\
#!/usr/bin/env python3
import os, signal, subprocess, sys, time
name = sys.argv[1]
if name == "scheduler" and os.path.exists("fails"):
    sys.exit(1)
if name == "scheduler":
    title = "airflow worker -- LocalExecutor: <idle>"
    idle = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)", title], start_new_session=True)
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open('ready', 'w'); time.sleep(100)"
    stubborn = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    open("idle.pid", "w").write(str(idle.pid))
    open("stubborn.pid", "w").write(str(stubborn.pid))
time.sleep(100)
"""


@pytest.fixture
def tended(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    airflow = tmp_path / "bin" / "airflow"
    airflow.parent.mkdir()
    airflow.write_text(AIRFLOW)
    airflow.chmod(0o755)
    env = {**os.environ, "PATH": f"{airflow.parent}{os.pathsep}{os.environ['PATH']}"}
    process = subprocess.Popen(
        [sys.executable, "-c", TEND, str(INFRA)], cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True
    )
    with process:
        yield process
        process.kill()


def pid(root: Path, name: str) -> int:
    file = root / f"{name}.pid"
    return wait_for(lambda: int(file.read_text() or 0) if file.exists() else 0)


@pytest.mark.usefixtures("tended")
def test_no_log_server_listens(tmp_path: Path) -> None:
    wait_for((tmp_path / "ready").exists)
    scheduler = pid(tmp_path, "scheduler")
    wait_for(lambda: psutil.Process(scheduler).cmdline()[-2:] == ["scheduler", "--skip-serve-logs"])


@pytest.mark.usefixtures("tended")
def test_killed_scheduler_is_started_again_and_its_idle_workers_end(tmp_path: Path) -> None:
    scheduler, idle, server = (pid(tmp_path, name) for name in ("scheduler", "idle", "api-server"))
    os.kill(scheduler, signal.SIGKILL)
    wait_for(lambda: not alive(idle))
    again = wait_for(lambda: (new := pid(tmp_path, "scheduler")) != scheduler and new)
    assert alive(again)
    assert alive(server)


def test_stop_leaves_nothing_not_even_what_a_killed_one_left(tended: subprocess.Popen[str], tmp_path: Path) -> None:
    wait_for((tmp_path / "ready").exists)
    left = [pid(tmp_path, name) for name in ("scheduler", "api-server", "idle", "stubborn")]
    os.kill(left[0], signal.SIGKILL)
    tended.terminate()
    assert tended.wait(60) == 0, tended.stderr
    new = [pid(tmp_path, name) for name in ("scheduler", "idle", "stubborn")]
    assert [number for number in left + new if alive(number)] == []


def test_killed_starter_takes_its_components_along(tended: subprocess.Popen[str], tmp_path: Path) -> None:
    wait_for((tmp_path / "ready").exists)
    components = [pid(tmp_path, name) for name in ("scheduler", "api-server")]
    tended.kill()
    for component in components:
        wait_for(lambda component=component: not alive(component))
    for name in ("idle", "stubborn"):  # a worker's own tasks die with it through the operator; these are scripts
        os.kill(pid(tmp_path, name), signal.SIGKILL)


def test_component_that_does_not_stay_up_is_given_up(tended: subprocess.Popen[str], tmp_path: Path) -> None:
    (tmp_path / "fails").touch()
    os.kill(pid(tmp_path, "scheduler"), signal.SIGKILL)
    assert tended.wait(100) == 1
    assert tended.stderr is not None
    assert "scheduler ended 6 times in two minutes; see " in tended.stderr.read()


def test_mistyped_project_is_not_made(tmp_path: Path) -> None:
    project, home = tmp_path / "dmeo", tmp_path / "home"
    command = [sys.executable, str(INFRA / "up.py"), "--home", str(home), "--project", str(project)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    line = f"airflow: no project.toml in {project}; pass --project with a directory that has one\n"
    assert (done.returncode, done.stderr) == (1, line)
    assert sorted(tmp_path.rglob("*")) == [home, home / "up.lock"]
