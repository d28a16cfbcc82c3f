"""Folders of sockets: those of killed drivers go, those of living ones and of others stay. No Spark."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sessionlake.engine import failpoints
from sessionlake.engine.sockets import remove_abandoned

DRIVER = "import sys; from sessionlake.engine.sockets import socket_folder; print(socket_folder(), flush=True); sys.stdin.read()"


def test_folder_of_a_killed_driver_goes_and_of_a_living_one_stays(tmp_path: Path) -> None:
    drivers = [
        subprocess.Popen(
            [sys.executable, "-c", DRIVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        for _ in range(2)
    ]
    folders = [Path(driver.stdout.readline().strip()) for driver in drivers if driver.stdout]
    long_ago = time.time() - 3600
    for folder in folders:
        os.utime(folder, (long_ago, long_ago))
    (tmp_path / "sessionlake-sockets-mine").mkdir()
    drivers[0].kill()
    drivers[0].communicate()
    assert [folder.exists() for folder in folders] == [True, True]
    remove_abandoned(tmp_path)
    assert [folder.exists() for folder in folders] == [False, True]
    drivers[1].communicate()  # an orderly end
    assert [folder.name for folder in tmp_path.iterdir()] == ["sessionlake-sockets-mine"]


def test_a_kill_point_in_the_environment_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SESSIONLAKE_KILL_AT", raising=False)
    assert failpoints.warning() is None
    monkeypatch.setenv("SESSIONLAKE_KILL_AT", "computed:2")
    assert (failpoints.warning() or "").startswith("warning: SESSIONLAKE_KILL_AT=computed:2 is set")
