"""A pipeline that looks its events up in the table of another one of its project."""

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionlake.config.problems import InvalidConfigError
from sessionlake.config.project import load_project
from sessionlake.jobs.compact import compact
from sessionlake.preflight.project import check_project
from sessionlake.serve.queries import query_tables
from sessionlake.stream.run import run
from tests.engine.crash_support import crash_at

CUSTOMERS = """\
[source]
kind = "files"
path = "customers"
format = "json"

[event]
key = "id"
time = "at"
time_unit = "s"

[table]
columns = ["plan"]
delete_when = "plan = 'gone'"
"""
VISITS = """\
[source]
kind = "files"
path = "visits"
format = "json"

[event]
key = "who"
time = "at"
time_unit = "s"

[[lookup]]
name = "customers"
table = "customers"
on = "who = id"
columns = ["plan"]

[session]
gap = "1 minute"
grace = "1 hour"

[aggregates]
plans = "collect_set(customers_plan, 9)"
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in {"project": "", "customers": CUSTOMERS, "a_visits": VISITS}.items():
        (tmp_path / f"{name}.toml").write_text(text)
    write(tmp_path, "customers", {"id": "ann", "at": 1, "plan": "free"}, {"id": "bob", "at": 1, "plan": "free"})
    write(tmp_path, "visits", {"who": "ann", "at": 1}, {"who": "eve", "at": 1})
    return tmp_path


def write(root: Path, name: str, *rows: dict[str, object]) -> None:
    (root / name).mkdir(exist_ok=True)
    number = len(list((root / name).iterdir()))
    (root / name / f"{number}.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_the_table_comes_first_in_the_graph_and_need_not_be_there_yet(root: Path) -> None:
    project = load_project(root)
    assert [edge.fields() for edge in project.graph.edges] == [
        {"from": "customers", "reads": "table_live", "to": "a_visits"}
    ]
    assert list(project.members) == ["customers", "a_visits"]
    assert check_project(root).problems == ()
    summary = check_project(root).checked["a_visits"].summary
    assert summary["looks up"] == (
        "plan of the row of customers that is there with id = who of the event; null without one"
    )


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            'table = "customers"',
            'table = "clients"',
            "lookup.customers.table: there is no pipeline 'clients' beside this",
        ),
        (
            'table = "customers"',
            'table = "a_visits"',
            "lookup.customers.table: 'a_visits' has no [table] or [group], and so not one ",
        ),
        (
            'on = "who = id"',
            'on = "who = id"\npath = "x"',
            "lookup.customers.path: write table, the name of a pipeline, or",
        ),
    ],
)
def test_what_can_not_be_looked_up(root: Path, old: str, new: str, told: str) -> None:
    file = root / "a_visits.toml"
    file.write_text(VISITS.replace(old, new))
    with pytest.raises(InvalidConfigError) as error:
        load_project(root)
    (problem,) = error.value.problems
    assert str(problem).startswith(f"{file}:{problem.line}: {told}")
    assert problem.line is not None


@pytest.mark.slow
def test_each_batch_finds_the_rows_of_the_tables_last_one(spark: SparkSession, root: Path) -> None:
    configs = load_project(root).configs

    def rows() -> list[object]:
        for config in configs.values():
            run(spark, config, once=True)
        return query_tables(configs["a_visits"], "select session_key, plans from sessions_live order by 1", 9)[1]

    assert rows() == [("ann", ["free"]), ("eve", [])]
    compact(spark, configs["customers"])
    write(root, "customers", {"id": "ann", "at": 2, "plan": "pro"}, {"id": "bob", "at": 2, "plan": "gone"})
    write(root, "visits", {"who": "ann", "at": 2}, {"who": "bob", "at": 2})
    assert rows() == [("ann", ["free", "pro"]), ("bob", []), ("eve", [])]


@pytest.mark.slow
def test_groups_of_another_pipeline_are_looked_up(spark: SparkSession, root: Path) -> None:
    groups = '[group]\n[aggregates]\nn = "count()"\nplan = "max(plan)"\n'
    (root / "customers.toml").write_text(CUSTOMERS[: CUSTOMERS.index("[table]")] + groups)
    visits = VISITS.replace('["plan"]', '["plan", "n"]') + 'n = "max(customers_n)"\n'
    (root / "a_visits.toml").write_text(visits)
    configs = load_project(root).configs

    def rows() -> list[object]:
        for config in configs.values():
            run(spark, config, once=True)
        return query_tables(configs["a_visits"], "select session_key, plans, n from sessions_live order by 1", 9)[1]

    assert rows() == [("ann", ["free"], 1), ("eve", [], None)]
    compact(spark, configs["customers"])
    write(root, "customers", {"id": "ann", "at": 7, "plan": "pro"}, {"id": "ann", "at": 8, "plan": "free"})
    write(root, "visits", {"who": "ann", "at": 2}, {"who": "bob", "at": 2})
    assert rows() == [("ann", ["free", "pro"], 3), ("bob", ["free"], 1), ("eve", [], None)]


@pytest.mark.slow
def test_a_batch_of_before_finds_the_rows_of_before_though_they_were_folded(
    spark: SparkSession, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = load_project(root).configs
    write(root, "visits", {"who": None, "at": 1})
    run(spark, configs["customers"], once=True)
    with crash_at(monkeypatch, "before_changelog"), pytest.raises(Exception, match="CrashError"):
        run(spark, configs["a_visits"], once=True)
    write(root, "customers", {"id": "ann", "at": 2, "plan": "pro"})
    run(spark, configs["customers"], once=True)
    compact(spark, configs["customers"])
    shutil.rmtree(root / "warehouse" / "a_visits" / "_lookups")
    run(spark, configs["a_visits"], once=True)
    query = "select session_key, plans from sessions_live order by 1"
    assert query_tables(configs["a_visits"], query, 9)[1] == [("ann", ["free"]), ("eve", [])]
