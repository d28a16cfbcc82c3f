"""The operator: what it submits where, what it makes of the end, and that nothing outlives it."""

import json
import os
import re
import shlex
import signal
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click import Context

from sessionlake.cli import main
from sessionlake.errors import ExitCode
from tests.airflow.support import CONFIGS, DESCRIBE, airflow_process, alive, ask_airflow, wait_for

REPORT = '{"job": "x", "run_id": "r", "dry_run": false, "corrections": 3}'
DRY = REPORT.replace("false", "true")
SAYS = f"echo 'for people'; echo '{REPORT}'; "
SAYS_PARENT = """echo '{"job": "x", "parent": "'$OPENLINEAGE_PARENT_ID'"}'"""
KEYS = ["a b", "--proof", "\u00e9\u2028 "]
NO_BATCHES = "sessionlake: pipeline.warehouse: '/w' has no batches yet; run `sessionlake run` first"
BUSY = "sessionlake: pipeline.store: '/s' is locked by process 7; a pipeline has one driver, stop that one first"
FENCED = "sessionlake: table '/w/session_changelog': another driver committed batch 2; keep only one running"
SILENT = "sessionlake: source.bootstrap_servers: 'b:9' does not answer (refused); start the broker or correct host:port"
OVERTAKEN = "sessionlake: redeem: run r was overtaken by run s; start a new run"
HELD = "sessionlake: store: '/s/0' is open in another process; stop that one"
NO_RULE = "sessionlake: expire: no rule says what expires; write one"
WRONG_USE = "sessionlake: what, which, what to do"
DAGS = sorted(file.stem for file in DESCRIBE.parents[2].glob("dags/*.py") if file.stem != "broken_pipelines")
FINAL = ["quality_checks", "sessionize_stream"]
DAY = ["2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"]


def refusing(line: str, code: ExitCode) -> dict[str, str]:
    return {"STUB": f"echo {shlex.quote(line)}; exit {code}"}


def connection(host: str, port: int | None = None, **extra: Any) -> dict[str, str]:
    return {
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": host, "port": port, "extra": extra})
    }


PLACES = {
    "local": (connection("local[2]"), ["--master", "local[2]", "--deploy-mode", "client"]),
    "standalone": (connection("spark://master", 7077), ["--master", "spark://master:7077"]),
    "uri": ({"AIRFLOW_CONN_SPARK_DEFAULT": "spark://master:7077"}, ["--master", "spark://master:7077"]),
    "yarn": (connection("yarn", queue="etl"), ["--master", "yarn", "--queue", "etl"]),
    "kubernetes": (
        connection(
            "k8s://https://10.0.0.1",
            6443,
            namespace="spark",
            home="local:///opt/sessionlake",
            **{"deploy-mode": "cluster", "conf": {"spark.kubernetes.container.image": "sessionlake:1"}},
        ),
        [
            *("--master", "k8s://https://10.0.0.1:6443", "--deploy-mode", "cluster"),
            *("local:///opt/sessionlake/pipelines/command.py", "reprocess-late"),
        ],
    ),
}
WRONG = {
    "scheme": (connection("spark://local[2]"), "'spark://local[2]' is no Spark master"),
    "port": ({"AIRFLOW_CONN_SPARK_DEFAULT": "spark://local%5B2%5D:1"}, "'spark://local[2]:1' is no Spark master"),
    "no host": (connection(""), "connection spark_default: '' is no Spark master; set its host to local[*]"),
    "typo": (connection("lokal[*]"), "'lokal[*]' is no Spark master"),
}
CLICKS = "clicks.toml"
SPAN = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z", "apply": False, "dry_run": True}
SECRET = "wJalr\\XUtn FEMI=K7:MDENG#\n!x"  # noqa: S105
SECRETS = {
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql://airflow:hunter2@db/airflow",
    "AIRFLOW__CORE__FERNET_KEY": "fernet",
    "AIRFLOW__API_AUTH__JWT_SECRET": "jwt",
    "AIRFLOW_CONN_OTHER": "x://u:p@h",
    "AIRFLOW_VAR_TOKEN": "t",
    "_AIRFLOW__SET": "1",
    "PGPASSWORD": "hunter2",
    "SESSIONLAKE_ALERT_URL": "http://hooks/secret",
}
FILLED: dict[str, dict[str, Any]] = {
    "sessionize_micro": {},
    "sessionize_stream": {"minutes": 60},
    "reprocess_late": SPAN,
    "backfill_sessions": SPAN,
    "expire_sessions": {
        "ttl": "9 days",
        "where": "a > 1",
        "max_per_run": 10,
        "max_share": 0.5,
        "apply": False,
        "dry_run": True,
    },
    "forget_key": {"keys_file": "/k", "keys": [], "wait": "1 minute", "apply": False, "dry_run": True},
    "forget_everywhere": {"keys_file": "/k", "keys": [], "wait": "1 minute", "apply": False, "dry_run": True},
    "compact_tables": {"method": "merge", "dry_run": True},
    "back_up": {"directory": "monday"},
    "restore_backup": {"directory": "monday"},
    "rebuild_tables": {
        "warehouse": "new",
        "switch": True,
        "from_topic": False,
        "from_archive": True,
        "from_what_is_there": True,
    },
    "publish_results": {},
    "quality_checks": {"fail_on": "warn", "dry_run": True},
    "redeem_dead_letters": {"reason": "bad JSON", **SPAN},
}
"""Each DAG's form with a value in every field."""
CASES: dict[str, dict[str, Any]] = {
    "options": {
        "dag": "reprocess_late",
        "conf": {"from": "2026-01-01T00:00:00Z", "apply": False},
        "env": {"STUB": SAYS},
    },
    "dry run": {"dag": "quality_checks", "conf": {"dry_run": True}, "env": {"STUB": f"echo '{DRY}'"}},
    "interval": {
        "dag": "backfill_sessions",
        "run_id": "backfill__2026-01-02",
        "interval": DAY,
        "env": {"STUB": SAYS},
    },
    "interval by hand": {
        "dag": "backfill_sessions",
        "conf": {"from": "2020-01-01", "to": "2021-01-01"},
        "interval": DAY,
        "env": {"STUB": SAYS},
    },
    "keys": {"dag": "forget_key", "conf": {"keys": KEYS}, "env": {"STUB": SAYS}},
    "keys twice": {"dag": "forget_key", "conf": {"keys": KEYS, "keys_file": "/k"}, "env": {"STUB": SAYS}},
    "two keys in one": {"dag": "forget_key", "conf": {"keys": ["a\nb"]}, "env": {"STUB": SAYS}},
    "keys far away": {
        "dag": "forget_key",
        "conf": {"keys": KEYS},
        "env": {"STUB": SAYS, **connection("yarn", **{"deploy-mode": "cluster"})},
    },
    "micro": {"dag": "sessionize_micro", "env": {"STUB": "true"}},
    "idle micro": {"dag": "sessionize_micro", "env": {"STUB": """echo '{"job": "run", "batches": 0}'"""}},
    "user's error after a warning": {
        "dag": "reprocess_late",
        "env": {"STUB": f"echo 'sessionlake: warning: w' >&2; echo '{WRONG_USE}' >&2; exit 2"},
    },
    **{f"user's error in {dag}": {"dag": dag, "env": refusing(WRONG_USE, ExitCode.USER)} for dag in FINAL},
    **{
        f"not needed: {dag}": {"dag": dag, "conf": FILLED[dag], "env": refusing(NO_RULE, ExitCode.NOT_NEEDED)}
        for dag in DAGS
    },
    "unknown param": {"dag": "compact_tables", "conf": {"typo": 1}, "env": {"STUB": SAYS}},
    "config that is not there": {
        "dag": "compact_tables",
        "env": {"STUB": SAYS, "SESSIONLAKE_CONFIGS": None, "SESSIONLAKE_CONFIG": str(CONFIGS / "nope.toml")},
    },
    "config that only the driver sees": {
        "dag": "compact_tables",
        "env": {
            "STUB": SAYS,
            "SESSIONLAKE_CONFIGS": None,
            "SESSIONLAKE_CONFIG": "/on/the/driver/nope.toml",
            **connection("yarn", **{"deploy-mode": "cluster"}),
        },
    },
    "overtaken job": {"dag": "redeem_dead_letters", "env": refusing(OVERTAKEN, ExitCode.FENCED)},
    "busy stream": {"dag": "sessionize_stream", "env": refusing(BUSY, ExitCode.BUSY)},
    "busy micro": {"dag": "sessionize_micro", "env": refusing(BUSY, ExitCode.BUSY)},
    "no batches": {
        "dag": "backfill_sessions",
        "interval": DAY,
        "env": refusing(NO_BATCHES, ExitCode.NO_BATCHES),
    },
    "no batches to expire": {"dag": "expire_sessions", "env": refusing(NO_BATCHES, ExitCode.NO_BATCHES)},
    "no batches to reprocess": {"dag": "reprocess_late", "env": refusing(NO_BATCHES, ExitCode.NO_BATCHES)},
    "fenced micro": {"dag": "sessionize_micro", "env": refusing(FENCED, ExitCode.FENCED)},
    "silent broker": {"dag": "sessionize_stream", "env": refusing(SILENT, ExitCode.TRY_AGAIN)},
    "held store": {"dag": "sessionize_micro", "env": refusing(HELD, ExitCode.TRY_AGAIN)},
    "failure": {
        "dag": "reprocess_late",
        "env": {"STUB": "echo 'sessionlake: a disk is full (No space left); nothing is lost' >&2; exit 1"},
    },
    "crash": {"dag": "quality_checks", "env": {"STUB": "echo Traceback; exit 1"}},
    "verdict": {"dag": "quality_checks", "env": {"STUB": SAYS + "exit 8"}},
    "stretch": {"dag": "sessionize_stream", "conf": {"minutes": 0.005}, "env": {"STUB": "exec sleep 100"}},
    "lineage": {
        "dag": "compact_tables",
        "env": {"STUB": SAYS_PARENT, "AIRFLOW__OPENLINEAGE__TRANSPORT": '{"type": "console"}'},
    },
    "no lineage": {"dag": "compact_tables", "env": {"STUB": SAYS_PARENT}},
    "secrets": {
        "dag": "compact_tables",
        "env": {
            "STUB": SAYS,
            **SECRETS,
            "KAFKA_USER": "u",
            **connection(
                "local[2]",
                conf={"spark.hadoop.fs.s3a.secret.key": SECRET, "spark.odd key": " b", "spark.ui.enabled": False},
            ),
        },
    },
    "no connection": {"dag": "compact_tables", "env": {"AIRFLOW_CONN_SPARK_DEFAULT": None}},
    "no uri": {"dag": "compact_tables", "env": {"AIRFLOW_CONN_SPARK_DEFAULT": "spark://local[2]"}},
    **{f"filled {dag}": {"dag": dag, "conf": conf, "env": {"STUB": SAYS}} for dag, conf in FILLED.items()},
    **{f"at {name}": {"dag": "reprocess_late", "env": {"STUB": SAYS, **env}} for name, (env, _) in PLACES.items()},
    **{f"wrong {name}": {"dag": "reprocess_late", "env": {"STUB": SAYS, **env}} for name, (env, _) in WRONG.items()},
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    answers = ask_airflow(tmp_path_factory.mktemp("airflow"), {"run": list(CASES.values())})["run"]
    by_name = dict(zip(CASES, answers, strict=True))
    return by_name.__getitem__


Ran = Callable[[str], dict[str, Any]]


def application(argv: list[str]) -> list[str]:
    """Return what follows the command's name, of the config's path the file's name."""
    config, *words = argv[next(i for i, word in enumerate(argv) if word.endswith("/pipelines/command.py")) + 2 :]
    return [Path(config).name, *words]


def test_params_become_options(ran: Ran) -> None:
    words = [CLICKS, "--from", "2026-01-01T00:00:00Z", "--no-apply", "--run-id", "manual__1"]
    assert application(ran("options")["argv"]) == words


@pytest.mark.parametrize("dag", DAGS)
def test_command_line_takes_what_a_form_can_say(ran: Ran, dag: str) -> None:
    found = ran(f"filled {dag}")
    assert found["params"] == sorted(FILLED[dag])
    words = application(found["argv"])
    name = found["argv"][-len(words) - 1]
    command = main.get_command(Context(main), name)
    assert command
    command.make_context(name, words)


def test_report_is_xcom_event_and_log(ran: Ran) -> None:
    found = ran("options")
    assert found["state"] == "success"
    assert found["xcom"] == json.loads(REPORT)
    assert found["events"] == [json.loads(REPORT)]
    assert "for people" in found["log"]


def test_data_interval_where_nothing_is_given(ran: Ran) -> None:
    days = ["--from", "2026-01-01T00:00:00+00:00", "--to", "2026-01-02T00:00:00+00:00"]
    assert application(ran("interval")["argv"]) == [CLICKS, *days, "--apply", "--run-id", "backfill__2026-01-02"]
    by_hand = application(ran("interval by hand")["argv"])
    assert by_hand[1:5] == ["--from", "2020-01-01", "--to", "2021-01-01"]


def test_keys_reach_the_driver_by_a_file_that_is_gone_afterwards(ran: Ran) -> None:
    found = ran("keys")
    assert found["files"]["keys-file"] == "".join(f"{key}\n" for key in KEYS)
    assert found["modes"] == ["600", "700"]
    words = application(found["argv"])
    assert not Path(words[words.index("--keys-file") + 1]).exists()
    assert not [line for line in (*words, *found["log"]) for key in KEYS[::2] if key in line]


@pytest.mark.parametrize(
    ("case", "why"),
    [("keys twice", "are both given"), ("two keys in one", "a line break"), ("keys far away", "give keys_file")],
)
def test_keys_that_no_file_can_take_fail_at_once(ran: Ran, case: str, why: str) -> None:
    found = ran(case)
    assert (found["state"], found["argv"]) == ("AirflowFailException", [])
    assert why in found["message"]


def test_settings_of_the_connection_are_in_a_file_of_this_user_alone(ran: Ran) -> None:
    found = ran("secrets")
    settings = java_properties(found["files"]["properties-file"])
    assert settings["spark.hadoop.fs.s3a.secret.key"] == SECRET
    assert (settings["spark.odd key"], settings["spark.ui.enabled"]) == (" b", "false")
    assert found["modes"] == ["600", "700"]
    place = Path(found["argv"][found["argv"].index("--properties-file") + 1])
    assert not place.parent.exists()
    assert "--load-spark-defaults" in found["argv"]


def test_secrets_are_neither_in_the_command_line_nor_in_the_log(ran: Ran) -> None:
    found = ran("secrets")
    shown = "\n".join([*found["argv"], *found["log"]])
    assert "wJalr" not in shown
    assert "--conf" not in found["argv"]
    assert "spark.hadoop.fs.s3a.secret.key" in shown  # its name helps who looks for a setting


def test_driver_knows_nothing_of_airflows_own(ran: Ran) -> None:
    environment = ran("secrets")["environment"]
    assert sorted(name for name in environment if "AIRFLOW_" in name or name in SECRETS) == []
    assert environment["KAFKA_USER"] == "u"


def java_properties(text: str) -> dict[str, str]:
    """Read a file of Java's properties by its rules: a backslash before a sign makes it one of the text."""
    plain = {"n": "\n", "r": "\r", "t": "\t"}

    def unescaped(part: str) -> str:
        return re.sub(r"\\(.)", lambda sign: plain.get(sign[1], sign[1]), part)

    pairs = (re.fullmatch(r"((?:\\.|[^\\=])*)=(.*)", line) for line in text.splitlines())
    return {unescaped(pair[1]): unescaped(pair[2]) for pair in pairs if pair}


def test_a_stream_has_no_run_id(ran: Ran) -> None:
    assert application(ran("micro")["argv"]) == [CLICKS, "--once"]


@pytest.mark.parametrize("case", ["after a warning", *(f"in {dag}" for dag in FINAL)])
def test_users_error_is_one_line_and_not_tried_again(ran: Ran, case: str) -> None:
    found = ran(f"user's error {case}")
    assert (found["state"], found["message"]) == ("AirflowFailException", WRONG_USE)


def test_overtaken_run_of_a_job_is_not_tried_again(ran: Ran) -> None:
    assert (ran("overtaken job")["state"], ran("overtaken job")["message"]) == ("AirflowFailException", OVERTAKEN)


def test_param_that_the_dag_has_not_got_fails_before_spark(ran: Ran) -> None:
    found = ran("unknown param")
    assert (found["state"], found["argv"]) == ("AirflowFailException", [])
    assert found["message"] == "params: 'typo' is unknown; this DAG has dry_run, method"


def test_config_that_is_not_there_fails_before_spark_unless_the_driver_is_elsewhere(ran: Ran) -> None:
    found = ran("config that is not there")
    assert (found["state"], found["argv"]) == ("AirflowFailException", [])
    assert found["message"] == (
        f"config: {str(CONFIGS / 'nope.toml')!r} is not there; name one of those (clicks.toml), or set SESSIONLAKE_CONFIG and SESSIONLAKE_CONFIGS"
    )
    assert ran("config that only the driver sees")["state"] == "success"


def test_failure_that_is_explained_is_that_line(ran: Ran) -> None:
    found = ran("failure")
    line = "sessionlake: a disk is full (No space left); nothing is lost"
    assert (found["state"], found["message"]) == ("AirflowException", line)


def test_a_second_stream_waits_or_is_skipped(ran: Ran) -> None:
    assert (ran("busy stream")["state"], ran("busy stream")["message"]) == ("AirflowException", BUSY)
    assert (ran("busy micro")["state"], ran("busy micro")["message"]) == ("AirflowSkipException", BUSY)


def test_a_stream_without_input_updates_nothing(ran: Ran) -> None:
    assert ran("idle micro")["state"] == "AirflowSkipException"
    assert ran("idle micro")["events"] == [{}]


def test_dry_run_reports_and_updates_nothing(ran: Ran) -> None:
    found = ran("dry run")
    assert "--dry-run" in found["argv"]
    assert (found["state"], found["message"]) == ("AirflowSkipException", "dry run: nothing was written")
    assert (found["pushed"], found["events"]) == ({"return_value": json.loads(DRY)}, [{}])


@pytest.mark.parametrize("case", ["no batches", *(f"not needed: {dag}" for dag in DAGS)])
def test_what_was_not_needed_is_skipped(ran: Ran, case: str) -> None:
    assert ran(case)["state"] == "AirflowSkipException"
    assert not any(ran(case)["events"])


@pytest.mark.parametrize(
    ("case", "line"),
    [
        ("no batches to expire", NO_BATCHES),
        ("no batches to reprocess", NO_BATCHES),
        ("fenced micro", FENCED),
        ("held store", HELD),
        ("silent broker", SILENT),
    ],
)
def test_what_may_need_somebody_is_not_skipped(ran: Ran, case: str, line: str) -> None:
    assert (ran(case)["state"], ran(case)["message"]) == ("AirflowException", line)


def test_verdict_is_final_and_a_crash_is_not(ran: Ran) -> None:
    assert (ran("crash")["state"], ran("crash")["message"]) == ("AirflowException", "quality ended with exit code 1")
    assert ran("verdict")["state"] == "AirflowFailException"
    assert ran("verdict")["pushed"] == {"return_value": json.loads(REPORT)}


def test_a_stretch_of_the_stream_ends_well(ran: Ran) -> None:
    assert (ran("stretch")["state"], ran("stretch")["message"]) == ("success", "")


def test_the_task_is_the_parent_of_the_drivers_lineage(ran: Ran) -> None:
    namespace, job, run_id = ran("lineage")["xcom"]["parent"].split("/")
    assert (namespace, job) == ("default", "clicks.compact.compact_tables")
    assert str(uuid.UUID(run_id)) == run_id
    assert ran("no lineage")["xcom"]["parent"] == ""


@pytest.mark.parametrize("name", PLACES)
def test_connection_decides_where_spark_runs(ran: Ran, name: str) -> None:
    found = ran(f"at {name}")
    assert found["state"] == "success", found
    words, at = found["argv"], -1
    for word in PLACES[name][1]:  # all there, in this order
        at = words.index(word, at + 1)
    settings = java_properties(found["files"]["properties-file"])
    if name == "kubernetes":
        assert settings.items() >= {
            ("spark.kubernetes.namespace", "spark"),
            ("spark.kubernetes.container.image", "sessionlake:1"),
        }


@pytest.mark.parametrize("name", WRONG)
def test_wrong_connection_fails_at_once(ran: Ran, name: str) -> None:
    found = ran(f"wrong {name}")
    assert found["state"] == "AirflowFailException"
    assert WRONG[name][1] in found["message"]
    assert found["argv"] == []


def test_missing_connection_is_no_yarn(ran: Ran) -> None:
    assert ran("no connection")["state"] == "AirflowNotFoundException"
    assert ran("no connection")["argv"] == []
    assert ran("no uri")["state"] == "AirflowNotFoundException"
    assert ran("no uri")["argv"] == []


def test_driver_dies_with_a_killed_task(tmp_path: Path) -> None:
    case = {"dag": "sessionize_stream", "env": {"STUB": "exec sleep 100"}}
    process, _ = airflow_process(tmp_path, {"run": [case]})
    try:
        driver = wait_for(lambda: read_pid(tmp_path / "pid"))
        assert alive(driver)
        os.kill(process.pid, signal.SIGKILL)
        wait_for(lambda: not alive(driver))
    finally:
        process.kill()
        process.wait()


def read_pid(file: Path) -> int:
    return int(file.read_text() or 0) if file.exists() else 0
