"""Run by the tests in a process of its own, as Airflow would: load the DAGs, run the operator, print JSON.

Airflow's import takes seconds and sets up logging, which the tests' own process is to be spared.
"""

import contextlib
import io
import json
import logging
import os
import sys
import threading
import time
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from structlog.testing import capture_logs

DAGS = Path(__file__).resolve().parents[2] / "dags"
_FORBIDDEN = (
    "socket.connect",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.mkdir",
    "os.remove",
    "sqlite3.connect",
)
_seen: list[str] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _FORBIDDEN or (event == "open" and str(arguments[1] or "r")[0] in "wax"):
        _seen.append(f"{event} {arguments!r}"[:200])


def _forget_ours() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "sessionlake_airflow"]:
        del sys.modules[name]


def describe() -> dict[str, Any]:
    """Return what the DAGs declare, what parsing each did and took (CPU milliseconds, without Airflow's own import)."""
    from airflow.dag_processing.dagbag import DagBag
    from airflow.sdk import DAG

    with contextlib.redirect_stdout(io.StringIO()):
        DagBag(dag_folder=os.devnull)  # all that Airflow imports for itself is there now
    before = set(sys.modules)
    sys.addaudithook(_watch)
    files, dags, errors = {}, {}, {}
    for file in sorted(DAGS.glob("*.py")):
        _forget_ours()
        _seen.clear()
        started = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            bag = DagBag(dag_folder=str(file))
        ms = round(1000 * (time.process_time() - started), 1)
        files[file.stem] = {"ms": ms, "work": list(_seen), "dags": sorted(bag.dags)}
        errors |= bag.import_errors
        dags |= {dag_id: _dag(dag) for dag_id, dag in bag.dags.items() if isinstance(dag, DAG)}
    heavy = {"pyspark", "sessionlake", "pandas", "delta"}
    imported = sorted({name.partition(".")[0] for name in set(sys.modules) - before} & heavy)
    return {"files": files, "dags": dags, "errors": errors, "imported": imported}


def _dag(dag: Any) -> dict[str, Any]:
    return {
        "doc": dag.doc_md,
        "description": dag.description,
        "tags": sorted(dag.tags),
        "schedule": type(dag.timetable).__name__,
        "cron": getattr(dag.timetable, "expression", getattr(dag.timetable, "_expression", None)),
        "waits_for": sorted(asset.name for asset in _assets(dag.timetable)),
        "catchup": dag.catchup,
        "max_active_runs": dag.max_active_runs,
        "dagrun_timeout": dag.dagrun_timeout.total_seconds() if dag.dagrun_timeout else None,
        "paused": bool(dag.is_paused_upon_creation),
        "params": {name: _param(dag.params.get_param(name)) for name in dag.params},
        "tasks": {task.task_id: _task(task) for task in dag.tasks},
    }


def _assets(timetable: Any) -> list[Any]:
    """Return the assets that a timetable waits for."""
    waiting, found = [getattr(timetable, "asset_condition", None)], []
    while waiting:
        one = waiting.pop()
        parts = getattr(one, "objects", None)
        if parts is not None:
            waiting += parts
        elif one is not None:
            found.append(one)
    return found


def _param(param: Any) -> dict[str, Any]:
    return {**param.schema, "default": param.value if param.has_value else None, "help": param.description}


def _task(task: Any) -> dict[str, Any]:
    return {
        "owner": task.owner,
        "retries": task.retries,
        "retry_delay": task.retry_delay.total_seconds(),
        "timeout": task.execution_timeout.total_seconds() if task.execution_timeout else None,
        "pool": task.pool,
        "on_failure": [callback.__name__ for callback in task.on_failure_callback],
        "command": task.command,
        "options": task.options,
        "files": task.files,
        "operands": task.operands,
        "inlets": [asset.name for asset in task.inlets],
        "outlets": [asset.name for asset in task.outlets],
    }


def validate(cases: list[dict[str, Any]]) -> list[str]:
    """Return, for each case of a DAG and what its form was filled with, "" or why it is refused."""
    from airflow.sdk.exceptions import ParamValidationError

    found = []
    for case in cases:
        params = _load(case["dag"]).params
        try:
            for name, value in case["conf"].items():
                params[name] = value
            params.validate()
        except ParamValidationError as error:
            found.append(str(error).splitlines()[0])
        else:
            found.append("")
    return found


def run(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Execute the task of a DAG for each case; return what came of it: state, XCom, message, log."""
    return [_run(case) for case in cases]


def _run(case: dict[str, Any]) -> dict[str, Any]:
    from airflow.sdk.definitions.param import process_params

    environment = dict(os.environ)
    for name, value in case.get("env", {}).items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    dag = _load(case["dag"])
    task = dag.tasks[0]
    seen = Path(os.environ["STUB_FILES"])
    argv = seen / "argv"
    for old in [argv, *seen.glob("given.*")]:
        old.unlink(missing_ok=True)
    pushed: dict[str, Any] = {}
    events = {asset: SimpleNamespace(extra={}) for asset in task.outlets}
    context = {
        "dag": dag,
        "params": process_params(dag, task, case.get("conf"), suppress_exception=False),
        "run_id": case.get("run_id", "manual__1"),
        "ti": _task_instance(task, pushed),
        "outlet_events": events,
    }
    for name, text in zip(("data_interval_start", "data_interval_end"), case.get("interval", ()), strict=False):
        context[name] = datetime.fromisoformat(text)
    try:
        with capture_logs() as log:
            result, state, message = type(task).execute.__wrapped__(task, context), "success", ""
    except Exception as error:  # noqa: BLE001 (the kind is what is asked)
        result, state, message = None, type(error).__name__, str(error)
    finally:
        os.environ.clear()
        os.environ.update(environment)
    extras = [event.extra for event in events.values()]
    words = argv.read_text().splitlines() if argv.exists() else []
    files = {file.name.removeprefix("given."): file.read_text() for file in seen.glob("given.*")}
    found = {
        "files": files,
        "modes": (seen / "modes").read_text().split() if files else [],
        "environment": dict(entry.split("=", 1) for entry in (seen / "environment").read_text().split("\0") if entry)
        if words
        else {},
        "params": sorted(dag.params),
        "state": state,
        "message": message,
        "xcom": result,
        "pushed": pushed,
        "events": extras,
    }
    return {**found, "argv": words, "log": [entry["event"] for entry in log]}


def _task_instance(task: Any, pushed: dict[str, Any]) -> SimpleNamespace:
    from airflow.providers.openlineage import conf

    # The provider keeps what it read of the configuration, which differs from case to case here.
    for setting in vars(conf).values():
        if hasattr(setting, "cache_clear"):
            setting.cache_clear()
    run = SimpleNamespace(logical_date=datetime.fromisoformat("2026-01-01T00:00:00+00:00"))
    return SimpleNamespace(
        xcom_push=pushed.__setitem__,
        dag_id=task.dag_id,
        task_id=task.task_id,
        try_number=1,
        map_index=-1,
        get_template_context=lambda: {"dag_run": run},
    )


def alert() -> dict[str, Any]:
    """Return what the alert for a task that failed for good posts, and where; what it logs where it can't."""
    from sessionlake_airflow.defaults import alert as send

    posted: list[dict[str, Any]] = []

    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append({"path": self.path, **json.loads(body)})
            self.send_response(200)
            self.end_headers()

    ti = SimpleNamespace(dag_id="compact_tables", task_id="t", run_id="r", try_number=3, log_url="http://log")
    context = {"ti": ti, "exception": ValueError("what, 'jane@example.org' `k` is, what to do\nof 'x'")}
    with HTTPServer(("127.0.0.1", 0), Webhook) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        os.environ["SESSIONLAKE_ALERT_URL"] = f"http://127.0.0.1:{server.server_port}/hook"
        send(context)
        thread.join()
    log = io.StringIO()
    logger = logging.getLogger("sessionlake_airflow.defaults")
    logger.addHandler(logging.StreamHandler(log))
    for url in (os.environ["SESSIONLAKE_ALERT_URL"], "127.0.0.1/hook", "http://127.0.0.1/my hook"):
        os.environ["SESSIONLAKE_ALERT_URL"] = url
        send(context)
    return {**posted[0], "refused": [line for line in log.getvalue().splitlines() if "posted" in line]}


def _load(file: str) -> Any:
    """Return the first DAG of a file."""
    from airflow.dag_processing.dagbag import DagBag

    _forget_ours()
    with contextlib.redirect_stdout(io.StringIO()):
        dags = DagBag(dag_folder=str(DAGS / f"{file}.py")).dags
    return dags[min(dags)]


if __name__ == "__main__":
    sys.path.insert(0, str(DAGS))
    wanted = json.load(sys.stdin)
    out = {}
    if "describe" in wanted:
        out["describe"] = describe()
    out["validate"] = validate(wanted.get("validate", []))
    out["run"] = run(wanted.get("run", []))
    out["alert"] = alert()
    Path(sys.argv[1]).write_text(json.dumps(out))
