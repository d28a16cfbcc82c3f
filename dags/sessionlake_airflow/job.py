"""The operator that runs one pipeline of sessionlake with spark-submit and lives and dies with it.

Not SparkSubmitOperator: that one falls back to YARN where it can't read the connection, leaves its driver running when the
task's process is killed, and keeps no result. docs/airflow.md has what was seen.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator, Connection
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from sessionlake_airflow.configs import confined, require_config
from sessionlake_airflow.exit_codes import EXPLAINED, FENCED, FOUND, NOT_NEEDED, USER
from sessionlake_airflow.places import BACKUPS, WAREHOUSES, placed
from sessionlake_airflow.project import project_config
from sessionlake_airflow.submit import (
    driver_environment,
    drives_here,
    properties_text,
    python_of,
    spark_settings,
    submit_command,
    write_private,
)

Metrics = dict[str, Any]
_SECONDS_TO_STOP = 15
_PR_SET_PDEATHSIG = 1


class SparkJob(BaseOperator):
    """Run `sessionlake <command>` by pipelines/command.py; its last line, a JSON object of counts, becomes the task's XCom and goes into asset events.

    - `config` names the pipeline: its file, in the configs' directory.
    - `operands` names params that stand after the config.
    - `options` names params that become options of the same name. Empty ones are left out.
    - `files` names params with a list that no log and no process list may show: it goes, one value a line, into a file of this
      user alone, and the option is its path, --<name>-file. An empty one is left out.
    - `interval`: --from and --to are the run's data interval where the params are empty.
    - `names_run`: the DAG run's id becomes --run-id. It is the same for all tries: a retry goes on where the last one stopped.
    - `minutes` names the param after which the driver is stopped; that is success.
    - `skip_on`: a try that ends with one of these exit codes (`exit_codes`) is skipped. So is one that had nothing to do by the config
      (NOT_NEEDED), one that reports no batches, and a dry run, whose counts are in XCom all the same: no asset is updated.
    - A failure that another try would only repeat (USER; FENCED, for a run of a job) is final at the first one.
    - `judges`: exit code 8 after a report is the job's verdict, and fails without another try.
    """

    ui_color = "#d9ead3"

    def __init__(
        self,
        *,
        config: str,
        command: str,
        arguments: Sequence[str] = (),
        operands: Sequence[str] = (),
        options: Sequence[str] = (),
        files: Sequence[str] = (),
        interval: bool = False,
        names_run: bool = True,
        minutes: str | None = None,
        skip_on: Sequence[int] = (),
        judges: bool = False,
        conn_id: str = "spark_default",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.config, self.command, self.arguments, self.options = config, command, list(arguments), list(options)
        self.files, self.operands = list(files), list(operands)
        self.interval, self.names_run, self.minutes = interval, names_run, minutes
        self.skip_on, self.judges, self.conn_id = list(skip_on), judges, conn_id
        self._process: subprocess.Popen[str] | None = None
        self._time_is_up = False

    def execute(self, context: Mapping[str, Any]) -> Metrics | None:
        """Run the pipeline to its end; return the counts it printed."""
        connection = Connection.get(self.conn_id)
        tail: deque[str] = deque(maxlen=30)
        # A directory of this user alone, gone when the driver has ended.
        with tempfile.TemporaryDirectory(prefix="sessionlake-") as private:
            try:
                command = self._command(connection, context, Path(private))
            except ValueError as error:
                raise AirflowFailException(str(error)) from error
            _die_with_the_worker()
            metrics = self._run(command, python_of(connection), context, tail)
        code = self._process.returncode if self._process else None
        if code and not self._time_is_up:
            self._refuse(code, tail, metrics, context)
        if metrics and metrics.get("batches") == 0:
            raise AirflowSkipException("no input had arrived: sessions are as they were")
        if metrics and metrics.get("dry_run"):
            context["ti"].xcom_push("return_value", metrics)
            raise AirflowSkipException("dry run: nothing was written")
        for asset in self.outlets if metrics else ():
            context["outlet_events"][asset].extra = metrics
        return metrics

    def _command(self, connection: Connection, context: Mapping[str, Any], private: Path) -> list[str]:
        """Return spark-submit's command line; what may be secret lies in files of the directory `private`."""
        settings = spark_settings(connection)
        properties = write_private(private / "spark.properties", properties_text(settings))
        self.log.info("Spark's settings, by name: %s", ", ".join(sorted(settings)))
        arguments = self.command_arguments(context, private)
        if drives_here(connection):
            require_config(arguments[0])
        listed = [name for name in self.files if context["params"].get(name)]
        if listed and not drives_here(connection):
            raise ValueError(
                f"params: {listed[0]} can't be handed to a driver in deploy mode cluster; put them into a file there and give {listed[0]}_file"
            )
        return submit_command(connection, [self.command, *arguments], context["dag"].dag_id, properties)

    def config_path(self) -> str:
        """Return the path of the pipeline's config, or of the project; ValueError if it does not lie in the configs' directory."""
        return self.config if self.config == project_config() else confined(self.config)

    def command_arguments(self, context: Mapping[str, Any], private: Path) -> list[str]:
        """Return the command's arguments: config and options; values of `files` go into `private`.

        ValueError for a param that the DAG has not got, a config or place from elsewhere, or a list that no file can take.
        """
        _check_names(context)
        params = {**context["params"]}
        if self.interval and context.get("data_interval_start"):
            params["from"] = params.get("from") or context["data_interval_start"].isoformat()
            params["to"] = params.get("to") or context["data_interval_end"].isoformat()
        config = self.config_path()
        for name in (*self.operands, *self.options):
            if name in (BACKUPS, WAREHOUSES) and params.get(name):
                params[name] = placed(name, str(params[name]), config)
        words = [config, *self.arguments, *(str(params[name]) for name in self.operands)]
        for name in self.options:
            value, flag = params.get(name), f"--{name.replace('_', '-')}"
            if value is True or (value is False and name == "apply"):
                words.append(flag if value else "--no-apply")
            elif value not in (None, "", False):
                words += [flag, str(value)]
        for name in (name for name in self.files if params.get(name)):
            _check_list(name, params)
            lines = "".join(f"{value}\n" for value in params[name])
            words += [f"--{name.replace('_', '-')}-file", str(write_private(private / name, lines))]
        return [*words, "--run-id", context["run_id"]] if self.names_run else words

    def on_kill(self) -> None:
        """End spark-submit, and with it the driver: asked first, then forced."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        # Before all else: the log goes through the worker, which may be the one that died.
        process.terminate()
        try:
            process.wait(_SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
        self.log.info("stopped spark-submit, process %s", process.pid)

    def _run(self, command: list[str], python: str, context: Mapping[str, Any], tail: deque[str]) -> Metrics | None:
        """Run the command, its output into the task's log; return the last line that is a JSON object of a job."""
        self.log.info("running: %s", " ".join(command))
        ours = {"PYTHONUNBUFFERED": "1", "SESSIONLAKE_PYTHON": python, **_lineage_parent(context)}
        env = {**driver_environment(os.environ), **ours}
        env.setdefault("PYSPARK_PYTHON", python)
        metrics = None
        # Started by the main thread: the kernel watches the thread that started it.
        self._process = subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        alarm = self._stop_later(context)
        with self._process as process:
            try:
                for line in process.stdout or ():
                    text = line.rstrip()
                    self.log.info(text)
                    tail.append(text)
                    metrics = _metrics(text) or metrics
            except BaseException:
                # Leaving the block waits for the process: nobody would read what it prints, nor report what it does.
                self.on_kill()
                raise
        if alarm:
            alarm.cancel()
        return metrics

    def _stop_later(self, context: Mapping[str, Any]) -> threading.Timer | None:
        if not self.minutes:
            return None

        def stop() -> None:
            self._time_is_up = True
            self.on_kill()

        alarm = threading.Timer(context["params"][self.minutes] * 60, stop)
        alarm.daemon = True
        alarm.start()
        return alarm

    def _refuse(self, code: int, tail: Sequence[str], metrics: Metrics | None, context: Mapping[str, Any]) -> None:
        """Raise what the exit code means; an error that the command line explains is its one line."""
        if metrics:
            context["ti"].xcom_push("return_value", metrics)
        lines = [line for line in tail if line.startswith("sessionlake: ") and "warning:" not in line]
        reason = lines[-1] if lines and code in EXPLAINED else f"{self.command} ended with exit code {code}"
        if code == NOT_NEEDED or code in self.skip_on:
            raise AirflowSkipException(reason)
        if self.judges and code == FOUND and metrics:
            raise AirflowFailException(f"{self.command} says no: {metrics}")
        # A fenced stream may be started again; a run of a job that was overtaken stays so, under its id.
        if code == USER or (code == FENCED and self.names_run):
            raise AirflowFailException(reason)
        raise AirflowException(reason)


def _lineage_parent(context: Mapping[str, Any]) -> dict[str, str]:
    """Return what lets the driver's OpenLineage events name this task's run as their parent; nothing without a provider that sends."""
    try:
        from airflow.providers.openlineage.conf import is_disabled  # noqa: PLC0415 (may not be installed)
        from airflow.providers.openlineage.plugins.macros import lineage_parent_id  # noqa: PLC0415
    except ImportError:
        return {}
    return {} if is_disabled() else {"OPENLINEAGE_PARENT_ID": lineage_parent_id(context["ti"])}


def _check_names(context: Mapping[str, Any]) -> None:
    """Raise ValueError for a param that the DAG has not got: Airflow's API takes any."""
    known = set(context["dag"].params)
    unknown = [name for name in context["params"] if name not in known]
    if unknown:
        raise ValueError(f"params: {unknown[0]!r} is unknown; this DAG has {', '.join(sorted(known))}")


def _check_list(name: str, params: Mapping[str, Any]) -> None:
    """Raise ValueError where a list can't be handed over by a file, an item a line."""
    if params.get(f"{name}_file"):
        raise ValueError(f"params: {name} and {name}_file are both given; give one of them")
    if any("\n" in item for item in params[name]):
        raise ValueError(f"params: {name} has an item with a line break; write one a line")


def _metrics(line: str) -> Metrics | None:
    if not line.startswith('{"job"'):
        return None
    try:
        found = json.loads(line)
    except json.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def _die_with_the_worker() -> None:
    """Let the kernel send SIGTERM to this task when its worker dies, so that on_kill stops the driver at once."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
