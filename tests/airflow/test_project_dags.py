"""A project's DAGs, as Airflow parses them: what each pipeline can be asked for, its times, chains, a broken file, many files."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sessionlake.config.project import load_project
from sessionlake.config.shipped import shipped_directory
from tests.airflow.operators_table import FILE, text
from tests.airflow.support import ask_airflow

ALL = {
    "run",
    "backfill",
    "backup",
    "compact",
    "expire",
    "forget",
    "quality",
    "rebuild",
    "redeem",
    "reprocess_late",
    "restore",
}
BEHIND = """\
[source]
kind = "delta"
path = "warehouse/commits/late_events"
[event]
key = "key"
time = "event_time"
[session]
gap = "1 hour"
"""

BY_PATH = """\
[source]
kind = "results"
of = "./weeks.toml"
rows = "final"
[group]
"""
"""A pipeline behind another one that it names by the path of its file."""
LOOKING_UP = """\
[source]
kind = "files"
path = "events"
format = "json"
[event]
key = "key"
time = "event_time"
[[lookup]]
name = "folder"
table = "folders"
on = "key = folder"
columns = ["author"]
[session]
gap = "1 hour"
"""
FURTHER = {"bypath": BY_PATH, "lookingup": LOOKING_UP}


def described(home: Path, *, odd: bool = False, **files: str) -> dict[str, Any]:
    """Return what Airflow sees of the shipped pipelines and some files; `odd`: a pipe, a device and a link to nothing, too."""
    configs = home / "configs"
    configs.mkdir(parents=True)
    for file in shipped_directory("pipelines").glob("*.toml"):
        (configs / file.name).write_text(file.read_text())
    for name, content in files.items():
        (configs / f"{name}.toml").write_text(content)
    if odd:
        os.mkfifo(configs / "pipe.toml")
        (configs / "zero.toml").symlink_to("/dev/zero")
        (configs / "gone.toml").symlink_to("nowhere")
    found: dict[str, Any] = ask_airflow(home, {"describe": True})["describe"]
    return found


def jobs_of(found: dict[str, Any], pipeline: str) -> set[str]:
    return {dag.partition(".")[2] for dag in found["dags"] if dag.startswith(f"{pipeline}.")}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    behind = f"{BEHIND}[airflow.schedules]\ncompact = '5 4 * * *'\nexpire = 'off'\n"
    around = BEHIND.replace("warehouse/commits", "elsewhere") + "[pipeline]\nwarehouse = 'warehouse'\n"
    return described(
        tmp_path_factory.mktemp("airflow"),
        behind=behind,
        odd=True,
        broken="[session\n",
        deep="x = " + "[" * 5000,
        nothing="[source]\n",
        around=around,
        **FURTHER,
    )


def test_what_dags_know_of_operators_is_what_the_registries_say() -> None:
    assert FILE.read_text() == text(), "run: python -m tests.airflow.operators_table"
    assert json.loads(text())


@pytest.mark.parametrize(
    ("pipeline", "jobs"),
    [
        ("commits", ALL),
        ("weeks", ALL),
        ("followups", ALL - {"backfill", "redeem"}),
        ("folders", ALL - {"backfill", "redeem", "reprocess_late"}),
        ("pauses", ALL - {"backfill", "redeem", "reprocess_late"}),
        ("days", ALL - {"backfill", "redeem", "reprocess_late"} | {"publish"}),
        ("behind", ALL),
        ("broken", set()),
        ("nothing", set()),
        ("project", {"forget"}),
    ],
)
def test_a_pipeline_has_dags_of_the_jobs_that_it_can_be_asked_for(
    found: dict[str, Any], pipeline: str, jobs: set[str]
) -> None:
    assert jobs_of(found, pipeline) == jobs


def test_a_pipeline_behind_another_one_runs_when_that_one_has_changed(found: dict[str, Any]) -> None:
    """And not if another one has, in whose warehouse that one's lies."""
    assert "around.run" in found["dags"]
    assert found["dags"]["behind.run"]["waits_for"] == ["commits.sessions"]
    assert found["dags"]["commits.run"]["cron"] == "*/10 * * * *"


def test_the_graph_is_that_of_the_package(found: dict[str, Any], tmp_path: Path) -> None:
    for file in shipped_directory("pipelines").glob("*.toml"):
        (tmp_path / file.name).write_text(file.read_text())
    for name, content in {"behind": BEHIND, **FURTHER}.items():
        (tmp_path / f"{name}.toml").write_text(content)
    project = load_project(tmp_path)
    assert [project.graph.upstream(name) for name in FURTHER] == [["weeks"], ["folders"]]
    waits = {name: found["dags"][f"{name}.run"]["waits_for"] for name in project.members}
    assert {name: [asset.partition(".")[0] for asset in assets] for name, assets in waits.items()} == {
        name: project.graph.upstream(name) for name in project.members
    }


def test_schedules_are_those_of_the_config(found: dict[str, Any]) -> None:
    assert found["dags"]["behind.compact"]["cron"] == "5 4 * * *"
    assert found["dags"]["behind.expire"]["schedule"] == "NullTimetable"
    assert found["dags"]["commits.compact"]["cron"] == "0 */6 * * *"


def test_broken_files_are_one_import_error_that_names_them(found: dict[str, Any]) -> None:
    (error,) = found["errors"].values()
    assert "broken.toml: is no valid TOML" in error
    assert "nothing.toml: has no operator's section" in error
    for file in ("deep", "pipe", "zero", "gone"):
        assert f"{file}.toml: is no valid TOML" in error


WRONG_TIMES = {
    "minute": (
        "[airflow.schedules]\ncompact = '99 * * * *'\n",
        "airflow.schedules.compact: '99 * * * *' is no schedule (",
    ),
    "number": ("[airflow.schedules]\nbackfill = 5\n", "airflow.schedules.backfill: 5 is no schedule ("),
    "pool": ("[airflow]\npool = 5\n", "airflow.pool: 5 is no name of a pool"),
    "mode": ("[airflow]\nrun = 'hourly'\n", "airflow.run: 'hourly' is not 'micro', 'stream' or 'off'"),
}


@pytest.mark.slow
def test_times_that_are_none_keep_no_other_pipeline_from_its_dags(tmp_path: Path) -> None:
    found = described(tmp_path, **{name: f"{BEHIND}{text}" for name, (text, _) in WRONG_TIMES.items()}, behind=BEHIND)
    (error,) = found["errors"].values()
    for name, (_, said) in WRONG_TIMES.items():
        assert f"{name}.toml: {said}" in error
        assert jobs_of(found, name) == set()
    assert jobs_of(found, "commits") == jobs_of(found, "behind") == ALL


@pytest.mark.slow
def test_a_connection_to_another_ones_table_is_an_edge_and_off_is_no_schedule(tmp_path: Path) -> None:
    text = BEHIND.replace('kind = "delta"\npath = "warehouse/commits/late_events"', 'connection = "late"')
    sink = "[sink.kafka]\nbootstrap_servers = 'b:9'\ntopic = 't'\n"
    project = (shipped_directory("pipelines") / "project.toml").read_text().replace('"warehouse"', '"s3://lake/"')
    project += '[connections.late]\nkind = "delta"\npath = "s3a://lake/commits/late_events"\n'
    table = "[sink.delta]\npath = 'out'\n"
    off = f"{text}{table}[airflow]\npool = 'heavy'\n[airflow.schedules]\npublish = 'off'\nquality = 'off'\n"
    # Any sink is published to.
    database = "[sink.postgres]\nurl = 'postgresql://db/lake'\ntable = 'visits'\n"
    own = BEHIND.replace("warehouse/commits", "s3://lake/own")  # check refuses it; it must not start itself for ever
    project = f"{project}[airflow]\nmaintenance_pool = 'nights'\n"
    found = described(tmp_path, project=project, behind=text + sink, quiet=off, own=own + database)["dags"]
    assert (found["own.run"]["waits_for"], found["own.run"]["cron"]) == ([], "*/10 * * * *")
    assert found["behind.run"]["waits_for"] == found["quiet.run"]["waits_for"] == ["commits.sessions"]
    assert found["behind.publish"]["waits_for"] == found["behind.quality"]["waits_for"] == ["behind.sessions"]
    assert found["own.publish"]["waits_for"] == ["own.sessions"]
    assert pools_of(found, "quiet") == {"heavy": {"run"}, "nights": ALL - {"run"} | {"publish"}}
    assert pools_of(found, "own") == {"sessionize": {"run"}, "nights": ALL - {"run"} | {"publish"}}
    assert {found[f"quiet.{job}"]["schedule"] for job in ("publish", "quality")} == {"NullTimetable"}


def pools_of(dags: dict[str, Any], name: str) -> dict[str, set[str]]:
    """Return a pipeline's jobs by the pools of their tasks."""
    found: dict[str, set[str]] = {}
    for dag_id, dag in dags.items():
        of, _, job = dag_id.partition(".")
        for task in dag["tasks"].values() if of == name else ():
            found.setdefault(task["pool"], set()).add(job)
    return found


def test_a_project_of_fifty_pipelines_has_all_its_dags(tmp_path: Path) -> None:
    found = described(tmp_path, **{f"more{number}": BEHIND for number in range(42)})
    assert found["errors"] == {}
    assert {jobs for number in range(42) for jobs in [len(jobs_of(found, f"more{number}"))]} == {len(ALL)}
