"""An Airflow that `make airflow`'s script starts for a test: its REST API as the UI uses it, its processes, its tables."""

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import psutil

from sessionlake.config.project import load_project
from tests.airflow.support import wait_for

INFRA = Path(__file__).parents[2] / "infra" / "airflow"
sys.path.insert(0, str(INFRA))

from api import Api  # noqa: E402 (a folder of scripts, not a package)
from settings import Place, free_port  # noqa: E402
from up import make_demo  # noqa: E402

Json = dict[str, Any]
ENDED = ("success", "failed")
PIPELINE = "commits"


@dataclass
class LiveAirflow:
    """A running Airflow and the project that its DAGs work on; most methods are about its pipeline `commits`."""

    place: Place
    process: subprocess.Popen[str]
    log: Path
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.api = Api(self.place)
        self.pid = psutil.Process(self.process.pid)

    @property
    def root(self) -> Path:
        """The project's folder."""
        return self.place.project

    @property
    def warehouse(self) -> Path:
        """The pipeline's tables."""
        return self.root / "warehouse" / PIPELINE

    def age(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self.started

    def wait_until_ready(self) -> None:
        wait_for(lambda: "password:" in self.log.read_text() or self.process.poll() is not None, 400)
        assert self.process.poll() is None, self.log.read_text()

    def call(self, method: str, path: str, body: Json | None = None) -> Json:
        return self.api.call(method, path, body)

    def trigger(self, dag: str, run: str, **conf: Any) -> str:
        body = {"logical_date": None, "dag_run_id": run, "conf": conf}
        self.call("POST", f"/dags/{dag}/dagRuns", body)
        return run

    def pause(self, dag: str, *, paused: bool) -> None:
        self.call("PATCH", f"/dags/{dag}", {"is_paused": paused})

    def runs(self, dag: str) -> list[Json]:
        found: list[Json] = self.call("GET", f"/dags/{dag}/dagRuns?limit=100")["dag_runs"]
        return found

    def state(self, dag: str, run: str) -> str:
        return str(self.call("GET", f"/dags/{dag}/dagRuns/{run}")["state"])

    def task(self, dag: str, run: str) -> Json:
        return self.call("GET", f"/dags/{dag}/dagRuns/{run}/taskInstances")["task_instances"][0]  # type: ignore[no-any-return]

    def wait_for_run(self, dag: str, run: str, seconds: float = 600) -> str:
        return str(wait_for(lambda: (state := self.state(dag, run)) in ENDED and state, seconds))

    def result(self, dag: str, run: str) -> Json:
        """Return what the run's task left in XCom."""
        task = self.task(dag, run)["task_id"]
        path = f"/dags/{dag}/dagRuns/{run}/taskInstances/{task}/xcomEntries/return_value"
        value = self.call("GET", path)["value"]
        return json.loads(value) if isinstance(value, str) else value

    def log_of(self, dag: str, run: str) -> str:
        folder = self.place.home / "logs" / f"dag_id={dag}" / f"run_id={run}"
        return "\n".join(file.read_text() for file in sorted(folder.rglob("*.log")))

    def processes(self) -> list[psutil.Process]:
        return self.pid.children(recursive=True)

    def drivers(self) -> list[psutil.Process]:
        """Return the JVMs that run a stream, wherever they hang now."""
        found = []
        for process in psutil.process_iter():
            try:
                # What a JVM starts has its command line for a moment, and the name of the thread that started it.
                words = process.cmdline() if process.name() == "java" else []
            except psutil.Error:
                continue
            at = next((n for n, word in enumerate(words) if word.endswith("pipelines/command.py")), len(words))
            if words[at + 1 : at + 2] == ["run"] and str(self.root / f"{PIPELINE}.toml") in words:
                found.append(process)
        return found

    def commits(self) -> list[Json]:
        """Return the metadata of the changelog's batches, straight from Delta's log."""
        log = self.warehouse / "session_changelog" / "_delta_log"
        lines = [line for file in sorted(log.glob("*.json")) for line in file.read_text().splitlines()]
        infos = [json.loads(line).get("commitInfo", {}) for line in lines]
        found = [json.loads(info["userMetadata"])["sessionlake"] for info in infos if "userMetadata" in info]
        return [metadata for metadata in found if not metadata.get("copied")]

    def query(self, table: str, sql: str) -> Any:
        """Return the one value of a query over `t`, a table of the pipeline."""
        return ask_table(self.warehouse / table, sql)

    def stop(self) -> list[psutil.Process]:
        """Send what ctrl-C sends; return the processes that are still there."""
        before = [*self.processes(), *self.drivers()]
        self.process.terminate()
        self.process.wait(60)
        return [process for process in before if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def ask_table(table: Path, sql: str) -> Any:
    """Return the one value of a query over `t`, the live files of a Delta table."""
    live: dict[str, None] = {}
    for file in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        live.update(dict.fromkeys(action["add"]["path"] for action in actions if "add" in action))
        for action in actions:
            live.pop(action.get("remove", {}).get("path"), None)
    files = [str(table / path) for path in live]
    with duckdb.connect() as db:
        db.execute("create view t as select * from read_parquet(" + repr(files) + ", union_by_name = true)")
        return db.execute(sql).fetchall()[0][0]


@contextmanager
def live_airflow(folder: Path, made: Callable[[Path], None] | None = None) -> Iterator[LiveAirflow]:
    """Start Airflow on the project that `made` makes in a directory below `folder`; by default it makes the demo's itself."""
    project = folder / "demo"
    if made is not None:
        made(project)
    port = free_port(18080)
    log = folder / "up.log"
    command = [sys.executable, str(INFRA / "up.py"), "--home", str(folder / "home"), "--port", str(port)]
    with log.open("w") as output:
        process = subprocess.Popen([*command, "--project", str(project)], stdout=output, stderr=output, text=True)
    airflow = LiveAirflow(Place(folder / "home", port, project), process, log)
    try:
        airflow.wait_until_ready()
        yield airflow
    finally:
        if process.poll() is None:
            airflow.stop()
        process.wait(60)


def with_a_stream(root: Path, held: int) -> None:
    """Make five pipelines of the demo, the last files of events put aside for `release`.

    `commits` runs as a long task, with a retention in which all of its late events are. The others are two by the clock, and those behind it.
    """
    make_demo(root)
    for name in ("bursts", "followups", "pauses", "recent"):
        (root / f"{name}.toml").unlink()
    config = root / f"{PIPELINE}.toml"
    text = re.sub(r"^retention = .*", 'retention = "7300 days"', config.read_text(), flags=re.MULTILINE)
    config.write_text(f"{text}\n[airflow]\nrun = 'stream'\n")
    _by_hand(root, "compact", "expire", "quality", "reprocess_late")
    (root / "held").mkdir()
    for file in sorted((root / "events").glob("*.json.gz"))[-held:]:
        shutil.move(file, root / "held" / file.name)


def all_pipelines(root: Path, files: int) -> None:
    """Make the demo's project on its first files; a pipeline that reads no other one runs at once, and not again soon."""
    make_demo(root)
    graph = load_project(root).graph
    for name in (name for name in graph.names if not graph.upstream(name)):
        config = root / f"{name}.toml"
        config.write_text(f"{config.read_text()}\n[airflow.schedules]\nrun = '@hourly'\n")
    _by_hand(root, "backfill", "compact", "expire", "quality", "reprocess_late")
    for folder in ("events", "commits", "changes"):
        for file in sorted((root / folder).iterdir())[files:]:
            file.unlink()


def _by_hand(root: Path, *jobs: str) -> None:
    """Let no job run but by a trigger: all pipelines' jobs share one slot, for which a test would wait."""
    config = root / "project.toml"
    config.write_text("\n".join((config.read_text(), "[airflow.schedules]", *(f"{job} = 'off'" for job in jobs), "")))


def release(airflow: LiveAirflow) -> None:
    """Let the next file arrive."""
    file = min((airflow.root / "held").iterdir())
    file.rename(airflow.root / "events" / file.name)
