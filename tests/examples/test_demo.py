"""The demo's pipeline, as it is made before anything runs."""

import shlex
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from rich.console import Console

from sessionlake.cli import main
from sessionlake.config.load import Config, load_config
from sessionlake.config.project import load_project
from sessionlake.config.shipped import shipped_directory
from sessionlake.examples import shown
from sessionlake.examples.demo import CONFIG_NAME, _airflow, _next, prepare
from sessionlake.serve.queries import answer_sql
from sessionlake.stream.run import run


def test_the_demo_has_its_events_and_a_config_that_holds(tmp_path: Path) -> None:
    prepare(tmp_path / "demo", Console(quiet=True))
    config = load_config(tmp_path / "demo" / CONFIG_NAME)
    assert len(list(Path(config.source.path).glob("*.json.gz"))) == 24
    assert config.operator == "session"


def test_some_late_events_are_restated_and_some_expire_at_the_end(tmp_path: Path) -> None:
    """Each file is a batch: what is late by the watermark that the ones before it left, and what is within retention at the last."""
    prepare(tmp_path / "demo", Console(quiet=True))
    config = load_config(tmp_path / "demo" / CONFIG_NAME)
    grace, retention = (config.section.grace_us, config.section.retention_us)
    late, end = duckdb.execute(
        """
        with events as (select filename, epoch_us(authored_at::timestamptz) t
                        from read_json_auto(? || '/*.json.gz', filename = true) where author is not null and authored_at is not null),
        files as (select filename, max(max(t)) over (order by filename rows between unbounded preceding and 1 preceding) w
                  from events group by filename)
        select list(t) filter (where t < w - ? and t >= w - ?), max(t) from events join files using (filename)
        """,
        [config.source.path, grace, retention],
    ).fetchall()[0]
    restated = sum(t >= end - retention for t in late)
    assert restated > 300
    assert len(late) - restated > 300


def test_the_demos_windows_have_configs_that_hold(tmp_path: Path) -> None:
    prepare(tmp_path / "demo", Console(quiet=True))
    configs = [load_config(tmp_path / "demo" / f"{name}.toml") for name in shown.PIPELINES]
    assert [(config.operator, config.event.key) for config in configs] == [("window", "repo"), ("window", "author")]


def test_the_demo_is_a_project_of_all_operators_but_windows_by_count(tmp_path: Path) -> None:
    prepare(tmp_path / "demo", Console(quiet=True))
    configs = load_project(tmp_path / "demo").configs
    assert {config.operator for config in configs.values()} == {
        "session",
        "window",
        "join",
        "table",
        "group",
        "process",
    }
    assert {
        Path(config.pipeline.warehouse).relative_to(tmp_path / "demo" / "warehouse").name for config in configs.values()
    } == {*configs}


@pytest.mark.slow
def test_the_demos_pairs_are_those_of_duckdb(spark: SparkSession, tmp_path: Path) -> None:
    prepare(tmp_path / "demo", Console(quiet=True))
    config = load_config(tmp_path / "demo" / f"{shown.FOLLOWUPS}.toml")
    run(spark, config, once=True)
    pairs, apart = _only_row(
        config,
        """
        with l as (select * from join_messages where side = 'left'), r as (select * from join_messages where side = 'right'),
        wanted as (select l.first_commit a, r.next_commit b from l join r using (join_key)
                   where l."time" between r."time" - interval 1 hour and r."time"),
        sent as (select first_commit a, next_commit b from joins_live)
        select (select count(*) from sent), (select count(*) from (from sent except all from wanted union all (from wanted except all from sent)))
        """,
    )
    assert pairs > 10_000
    assert apart == 0


@pytest.mark.slow
def test_the_demos_recent_folders_are_those_of_duckdb(spark: SparkSession, tmp_path: Path) -> None:
    """Of those within a year of the watermark that the last batch began with each is there; older ones are gone, but for what came last."""
    prepare(tmp_path / "demo", Console(quiet=True))
    config = load_config(tmp_path / "demo" / f"{shown.RECENT}.toml")
    run(spark, config, once=True)
    expired, apart = _only_row(
        config,
        f"""
        with latest as (select repo || '/' || trim(regexp_extract(top, '[^>]*$'), ' {{}}') k, max(authored_at::timestamptz) t
                        from read_json_auto('{tmp_path}/demo/events/*.json.gz') where authored_at is not null group by 1),
        began as (select max(watermark) w from batches where batch_id < (select max(batch_id) from batches)),
        wanted as (select k, t from latest where t > (select w from began) - interval 365 days),
        kept as (select table_key k, event_time t from table_live where event_time > (select w from began) - interval 365 days)
        select (select count(*) from latest) - (select count(*) from table_live),
               (select count(*) from (from kept except all from wanted union all (from wanted except all from kept)))
        """,
    )
    assert expired > 10
    assert apart == 0


@pytest.mark.slow
def test_the_demos_folders_are_those_of_duckdb(spark: SparkSession, tmp_path: Path) -> None:
    prepare(tmp_path / "demo", Console(quiet=True))
    config = load_config(tmp_path / "demo" / f"{shown.FOLDERS}.toml")
    run(spark, config, once=True)
    folders, apart = _only_row(
        config,
        f"""
        with wanted as (select repo || '/' || trim(regexp_extract(top, '[^>]*$'), ' {{}}') k, max_by(author, (authored_at, event_id)) a, max(authored_at::timestamptz) t
                        from read_json_auto('{tmp_path}/demo/events/*.json.gz')
                        where author is not null and authored_at is not null group by 1),
        kept as (select table_key k, author a, event_time t from table_live)
        select (select count(*) from kept), (select count(*) from (from kept except all from wanted union all (from wanted except all from kept)))
        """,
    )
    assert folders > 80
    assert apart == 0


def _only_row(config: Config, query: str) -> tuple[Any, ...]:
    with answer_sql(config, query, allow_files=True) as answer:
        ((*row,),) = answer.rows
    return (*row,)


def test_the_query_becomes_one_more_pipeline_by_the_command_that_the_demo_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path / "demo", Console(quiet=True))
    monkeypatch.chdir(tmp_path)
    told = StringIO()
    _next(tmp_path / "demo", "sessionlake", Console(file=told))
    (line,) = (line for line in told.getvalue().splitlines() if "--sql" in line)
    done = CliRunner().invoke(main, shlex.split(line, comments=True)[1:])
    assert (done.exit_code, done.stderr) == (0, "")
    project = load_project("demo")
    assert len(project.members) == 10
    config = project.configs["languages"]
    assert config.pipeline.warehouse == str(tmp_path / "demo" / "warehouse" / "languages")
    assert (config.operator, config.event.key, config.pipeline.shards) == ("window", "ext", 2)
    assert config.event.unique_for == "90 days"


def test_the_demo_names_the_way_into_airflow_that_there_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    checkout = shipped_directory("dags").parent
    monkeypatch.chdir(checkout)
    assert _airflow(checkout / "demo", "sessionlake").startswith("make airflow     #")
    monkeypatch.chdir(checkout / "docs")
    assert _airflow(checkout / "demo", "sessionlake").startswith("make -C .. airflow     #")
    program, script, option, project = shlex.split(_airflow(tmp_path, "sessionlake"), comments=True)
    assert Path(program).samefile(sys.executable)
    assert (Path(script).resolve(), option, Path(project).resolve()) == (
        checkout / "infra" / "airflow" / "up.py",
        "--project",
        tmp_path,
    )
