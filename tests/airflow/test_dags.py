"""What every DAG must have, seen as Airflow parses them; what their forms accept."""

from pathlib import Path
from typing import Any

import pytest

from sessionlake.jobs.registry import JOBS, Job, Kind
from tests.airflow.support import ask_airflow

DAGS = Path(__file__).parents[2] / "dags"
NAMES = sorted(file.stem for file in DAGS.glob("*.py") if file.stem != "broken_pipelines")
IDS = {
    "back_up": "clicks.backup",
    "backfill_sessions": "clicks.backfill",
    "compact_tables": "clicks.compact",
    "expire_sessions": "clicks.expire",
    "forget_everywhere": "project.forget",
    "forget_key": "clicks.forget",
    "publish_results": "feed.publish",
    "quality_checks": "clicks.quality",
    "rebuild_tables": "clicks.rebuild",
    "redeem_dead_letters": "clicks.redeem",
    "reprocess_late": "clicks.reprocess_late",
    "restore_backup": "clicks.restore",
    "sessionize_micro": "clicks.run",
    "sessionize_stream": "feed.run",
}
"""By file, the DAG that is looked at."""
KINDS = {Kind.WHOLE: "integer", Kind.SHARE: "number", Kind.FLAG: "boolean"}
BOUNDS: dict[Kind, dict[str, Any]] = {
    Kind.WHOLE: {"minimum": 1},
    Kind.SHARE: {"maximum": 1},
    Kind.TIME: {"format": "date-time"},
}
FORMS = [
    ("reprocess_late", {}, ""),
    ("reprocess_late", {"from": "2026-01-31T00:00:00Z", "to": None, "apply": False, "dry_run": True}, ""),
    ("reprocess_late", {"apply": "maybe"}, "'maybe' is not of type 'boolean'"),
    ("reprocess_late", {"from": 20260131}, "20260131 is not of type 'null', 'string'"),
    ("reprocess_late", {"from": "2026-01-31"}, ""),
    ("reprocess_late", {"from": "2026-01-31T00:00:00.000+01:00"}, ""),
    ("reprocess_late", {"from": "2026-01-31 23:59"}, ""),
    ("reprocess_late", {"from": "2026-13-01"}, "'2026-13-01' does not match"),
    ("reprocess_late", {"to": "yesterday"}, "'yesterday' does not match"),
    ("expire_sessions", {"ttl": "90 days", "where": "event_count > 3", "max_per_run": 10}, ""),
    ("redeem_dead_letters", {"reason": ""}, "'' should be non-empty"),
    ("expire_sessions", {"max_share": 1.5}, "1.5 is greater than the maximum of 1"),
    ("expire_sessions", {"max_per_run": 0}, "0 is less than the minimum of 1"),
    ("compact_tables", {"method": "quick"}, "'quick' is not one of"),
    ("quality_checks", {"fail_on": "info"}, "'info' is not one of"),
    ("sessionize_stream", {"minutes": 0}, "0 is less than or equal to the minimum of 0"),
    ("sessionize_stream", {"minutes": 1441}, "1441 is greater than the maximum"),
    ("forget_key", {"keys_file": 7}, "7 is not of type"),
    ("forget_key", {"keys": ["a", ""]}, "'' should be non-empty"),
    ("forget_key", {"keys": ["a", "-b"]}, ""),
]


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    cases = [{"dag": dag, "conf": conf} for dag, conf, _ in FORMS]
    return ask_airflow(tmp_path_factory.mktemp("airflow"), {"describe": True, "validate": cases})


@pytest.fixture(scope="module")
def dags(answer: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = answer["describe"]["dags"]
    return {name: found[IDS[name]] for name in NAMES}


def test_each_file_makes_a_dag_for_each_pipeline(answer: dict[str, Any]) -> None:
    assert answer["describe"]["errors"] == {}
    both = {f"{name}.{IDS[file].partition('.')[2]}" for file in NAMES for name in ("clicks", "feed")}
    assert {*answer["describe"]["dags"]} == (both | {"project.forget"}) - {"clicks.publish"}
    assert {*IDS} == {*NAMES}


def test_files_are_thin() -> None:
    assert {name: count for name in NAMES if (count := len((DAGS / f"{name}.py").read_text().splitlines())) >= 60} == {}


def test_parsing_is_quick_and_does_no_work(answer: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """CPU time, so that a busy machine changes nothing; Airflow's own import is done before."""
    files = answer["describe"]["files"]
    with capsys.disabled():
        print("\nparse time of DAG files, ms:", ", ".join(f"{name} {file['ms']}" for name, file in files.items()))  # noqa: T201
    assert {name: file["work"] for name, file in files.items() if file["work"]} == {}
    assert {name: file["ms"] for name, file in files.items() if file["ms"] >= 100} == {}
    assert answer["describe"]["imported"] == []


@pytest.mark.parametrize("name", NAMES)
def test_policy(dags: dict[str, Any], name: str) -> None:
    dag = dags[name]
    assert dag["description"]
    assert dag["doc"].lstrip().startswith("### ")
    assert "red" in dag["doc"] or "fails" in dag["doc"], "what to do when it fails"
    pipeline, _, job = IDS[name].partition(".")
    assert {"sessionlake", f"job:{job}"} <= {*dag["tags"]}
    assert f"pipeline:{pipeline}" in dag["tags"] or pipeline == "project"
    assert (dag["catchup"], dag["max_active_runs"]) == (False, 1)
    assert dag["dagrun_timeout"] is not None
    for param in dag["params"].values():
        assert param["help"]
        assert param["title"]
        assert param["type"]
    for task in dag["tasks"].values():
        assert task["owner"] == "sessionlake"
        assert task["retries"] >= 2
        assert task["retry_delay"] >= 30
        assert task["timeout"] is not None
        assert task["timeout"] < dag["dagrun_timeout"]
        assert task["pool"] in {"sessionize", "maintenance"}
        assert task["on_failure"] == ["alert"]


@pytest.mark.parametrize("job", [job for job in JOBS if job.dag], ids=lambda job: job.name)
def test_the_form_offers_what_the_registry_says(dags: dict[str, Any], job: Job) -> None:
    dag = dags[job.dag or ""]
    (task,) = dag["tasks"].values()
    assert task["command"] == job.command
    offered = [option for option in job.options if option.in_dag]
    names = {option.name for option in offered}
    names |= {name for name, there in (("dry_run", job.recorded), ("apply", job.has_apply)) if there}
    assert set(task["options"]) == names
    assert set(dag["params"]) == {*names, *task["files"], *task["operands"]}
    assert len(task["operands"]) == len(job.operands) - 1
    for name in task["files"]:
        assert f"{name}_file" in names
    for option in offered:
        param = dag["params"][option.name]
        kind = KINDS.get(option.kind, "string")
        wanted: dict[str, Any] = {"type": kind if option.kind is Kind.FLAG else ["null", kind]}
        if option.default is not None or (option.required and option.kind is not Kind.TIME):
            wanted = {"type": "string"}  # never empty; a time is the run's data interval where it is
        wanted |= {"enum": [*option.choices]} if option.choices else {}
        wanted |= {"default": option.default} if option.default is not None else {}
        wanted |= BOUNDS.get(option.kind, {})
        assert {name: param.get(name) for name in wanted} == wanted, option.name


def test_each_dag_runs_a_job_or_the_stream(dags: dict[str, Any]) -> None:
    commands = {name: next(iter(dag["tasks"].values()))["command"] for name, dag in dags.items()}
    jobs = {job.dag: job.command for job in JOBS if job.dag}
    streams = {"sessionize_micro": "run", "sessionize_stream": "run"}
    assert commands == {**jobs, **streams, "forget_everywhere": "forget"}


def test_none_waits_for_somebody_to_switch_it_on(dags: dict[str, Any]) -> None:
    assert [name for name in NAMES if dags[name]["paused"]] == []


def test_quality_stands_between_results_and_what_depends_on_them(dags: dict[str, Any]) -> None:
    tasks = {name: next(iter(dag["tasks"].values())) for name, dag in dags.items()}
    assert dags["quality_checks"]["waits_for"] == ["clicks.sessions"]
    assert {name for name, task in tasks.items() if task["outlets"] == ["clicks.sessions"]} == {
        "sessionize_micro",
        "reprocess_late",
        "expire_sessions",
        "backfill_sessions",
        "forget_key",
        "redeem_dead_letters",
        "restore_backup",
    }
    assert tasks["sessionize_stream"]["outlets"] == ["feed.sessions"]
    assert tasks["forget_everywhere"]["outlets"] == ["clicks.sessions", "feed.sessions"]
    assert tasks["quality_checks"]["inlets"] == ["clicks.sessions"]
    assert tasks["quality_checks"]["outlets"] == ["clicks.checked"]


@pytest.mark.parametrize(("number", "dag", "conf", "refused"), [(n, *form) for n, form in enumerate(FORMS)])
def test_form(answer: dict[str, Any], number: int, dag: str, conf: dict[str, Any], refused: str) -> None:
    found = answer["validate"][number]
    assert refused in found if refused else found == "", (dag, conf)


def test_alert_says_what_failed_and_where_its_log_is(answer: dict[str, Any]) -> None:
    text = "compact_tables.t failed in run r, try 3: what, '...' '...' is, what to do\nhttp://log"
    refused = answer["alert"].pop("refused")
    assert answer["alert"] == {"path": "/hook", "text": text}
    assert [line.rpartition(": ")[2] for line in refused[1:]] == ["ValueError", "InvalidURL"]
    assert "Connection refused" in refused[0]
    assert "hook" not in "".join(refused)
