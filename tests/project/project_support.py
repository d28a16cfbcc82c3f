"""A project of four pipelines on files of events; the last one reads the late events of the first."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from click.testing import CliRunner, Result

from sessionlake.cli import main

SESSIONLAKE = str(Path(sys.executable).with_name("sessionlake"))
_BEGAN = int(time.time()) - 3600
PROJECT = """\
[pipeline]
warehouse = "lake"
shards = 1
trigger = "1 second"
[connections.events]
kind = "files"
path = "events"
format = "json"
max_files_per_batch = 1
"""
SOURCE = """\
[source]
connection = "events"
[event]
key = "user"
time = "at"
"""
PIPELINES = {
    "sittings": f'{SOURCE}[session]\ngap = "10 minutes"\ngrace = "0 seconds"\nretention = "1 day"\n[aggregates]\ntotal = "sum(v)"\n',
    "hours": f'{SOURCE}[window]\nkind = "tumbling"\nsize = "1 hour"\ngrace = "1 hour"\nretention = "1 day"\n[emit]\nearly = "batch"\nlate = "batch"\n[aggregates]\ntotal = "sum(v)"\n',
    "latest": f'{SOURCE}[table]\ncolumns = ["v"]\n',
    # Late events of the sessions, in sessions of their own: a pipeline behind another one.
    "stragglers": '[source]\nkind = "delta"\npath = "lake/sittings/late_events"\n[event]\nkey = "key"\ntime = "event_time"\n[session]\ngap = "1 hour"\n',
}


def write_project(root: Path, files: int = 0, project: str = PROJECT, pipelines: Mapping[str, str] = PIPELINES) -> Path:
    """Write a project and some files of events, and return its directory, which need not be there yet."""
    (root / "events").mkdir(parents=True)
    (root / "project.toml").write_text(project)
    for name, text in pipelines.items():
        (root / f"{name}.toml").write_text(text)
    for number in range(files):
        write_file(root, number)
    return root


def write_file(root: Path, number: int) -> None:
    """Write a file of events: hour by hour, one of each file three hours late."""
    rows = [
        {"user": f"u{i % 5}", "at": f"2026-01-01T{number + 5 - 3 * (i == 9):02}:{i:02}:00Z", "v": i} for i in range(10)
    ]
    file = root / f"{number}.json"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    moment = _BEGAN + number * 60  # the source reads in this order
    os.utime(file, (moment, moment))
    file.rename(root / "events" / file.name)


def call(*words: str, code: int = 0) -> Result:
    done = CliRunner().invoke(main, words)
    assert done.exit_code == code, done.output
    return done


def run(root: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [SESSIONLAKE, "--quiet", "run", str(root), *words], capture_output=True, text=True, timeout=250, check=False
    )
