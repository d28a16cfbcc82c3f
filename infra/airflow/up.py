"""`make airflow`: all of Airflow on this machine, in .airflow, with the demo's project; ctrl-C ends all of it."""

import argparse
import fcntl
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from api import Api
from components import ComponentError, Components
from settings import PROJECT, Place, free_port

_DEMO = PROJECT / "demo"
_EVERYWHERE = "project.forget"
"""The one DAG that each project has, whatever its pipelines are."""
_PATIENCE = 240.0
_STEP = 0.3


def main() -> None:
    arguments = _arguments()
    home = arguments.home.resolve()
    home.mkdir(parents=True, exist_ok=True)
    lock = (home / "up.lock").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        sys.exit(f"airflow: one runs here already: {lock.read().strip()}; its ctrl-C ends it")
    place = Place(home, free_port(arguments.port), arguments.project.resolve())
    lock.truncate(0)
    lock.write(place.url)
    lock.flush()
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    try:
        _run(place, time.monotonic())
    except KeyboardInterrupt:
        _say("stopped")
    except ComponentError as error:
        sys.exit(f"airflow: {error}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=PROJECT / ".airflow", help="AIRFLOW_HOME")
    parser.add_argument("--port", type=int, default=8080, help="the next free one is taken")
    parser.add_argument(
        "--project",
        type=Path,
        default=_DEMO,
        help="the directory of the pipelines; one named demo that is not there is made from the demo's events",
    )
    return parser.parse_args()


def _run(place: Place, started: float) -> None:
    """Start everything, then tend it until interrupted."""
    if not (place.project / "project.toml").exists():
        if place.project.name != _DEMO.name:
            sys.exit(f"airflow: no project.toml in {place.project}; pass --project with a directory that has one")
        _say(f"making the demo's project in {place.project}")
        make_demo(place.project)
    logs = place.home / "components"
    logs.mkdir(exist_ok=True)
    env = place.environment()
    password = place.password
    _say(f"database and processes in {place.home}; half a minute, the first time a whole one")
    with (logs / "migrate.log").open("ab") as log:
        done = subprocess.run(["airflow", "db", "migrate"], env=env, stdout=log, stderr=log, check=False)
    if done.returncode:
        sys.exit(f"airflow: db migrate failed; see {logs / 'migrate.log'}")
    components, api = Components(env, logs), Api(place)
    try:
        components.start("api-server", "dag-processor")
        _wait(components, _answers(api), "the API server")
        api.set_up()
        components.start("scheduler", "triggerer")
        _wait(components, lambda: _EVERYWHERE in _listed(api) and _scheduler_beats(api), "scheduler and DAGs")
        _welcome(place, password, time.monotonic() - started)
        while True:
            components.tend()
            time.sleep(_STEP)
    finally:
        # A second ctrl-C must not leave half of it running.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        _say("stopping: tasks first, then Airflow")
        components.stop()


def make_demo(folder: Path) -> None:
    """Make the demo's project in a folder; exits where that can't be."""
    # In a process of its own: it imports Spark and draws, which this one need not carry.
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); from pathlib import Path; from sessionlake.cli.shared import console; from sessionlake.examples.demo import prepare; prepare(Path(sys.argv[1]), console)"
    done = subprocess.run([sys.executable, "-c", code, str(folder)], check=False)
    if done.returncode:
        sys.exit(f"airflow: the demo's project could not be made in {folder}; see above")


def _wait(components: Components, ready: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        components.tend()
        with suppress(OSError, KeyError, ValueError):
            if ready():
                return
        if time.monotonic() > deadline:
            raise ComponentError(f"{what} not ready after {_PATIENCE:.0f} s; see the logs in components/")
        time.sleep(_STEP)


def _answers(api: Api) -> Callable[[], bool]:
    return lambda: api.call("GET", "/monitor/health")["metadatabase"]["status"] == "healthy"


def _listed(api: Api) -> set[str]:
    return {dag["dag_id"] for dag in api.call("GET", "/dags?limit=100&dag_id_pattern=project")["dags"]}


def _scheduler_beats(api: Api) -> bool:
    return bool(api.call("GET", "/monitor/health")["scheduler"]["status"] == "healthy")


def _welcome(place: Place, password: str, seconds: float) -> None:
    _say(f"ready after {seconds:.0f} s")
    sys.stdout.write(
        f"\n  {place.url}   login: admin   password: {password}\n\n"
        "  Each pipeline has DAGs named after it: commits.run has started on the demo's events, commits.backfill runs at night.\n"
        "  Try commits.reprocess_late: Trigger, look at the form, Trigger. Where Spark runs: Admin, Connections, spark_default.\n"
        f"  Logs of Airflow itself: {place.home / 'components'}. ctrl-C stops everything.\n\n"
    )
    sys.stdout.flush()


def _say(text: str) -> None:
    sys.stdout.write(f"airflow: {text}\n")
    sys.stdout.flush()


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
