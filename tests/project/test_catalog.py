"""`sessionlake register`: the tables and views of a project in the catalog of Hive's metastore."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from sessionlake.cli import main
from sessionlake.config.load import Config, load_config
from sessionlake.errors import ConfigError
from sessionlake.project.catalog import Found
from sessionlake.project.entries import Place, entries_of, mark_of, project_mark
from sessionlake.stream.run import run
from tests.infra.infra_files import ROOT
from tests.project.project_support import write_project

PLACE = "spark_catalog.lake"


def call(*words: str, code: int = 0) -> Result:
    done = CliRunner().invoke(main, ["register", *words])
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(scope="module")
def root(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project in which `latest` alone has a batch."""
    root = write_project(tmp_path_factory.mktemp("catalog"), 1)
    run(spark, load_config(root / "latest.toml"), once=True)
    return root


@pytest.fixture(scope="module")
def config(root: Path) -> Config:
    return load_config(root / "latest.toml")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--schema", "la ke"), 2, "--schema: 'la ke' is no name of SQL; write letters, digits and _, for example 'lake'"),
        (("--schema", "a.b"), 2, "--schema: 'a.b' is no name of SQL"),
        (("--schema", "lake", "--catalog", "drop table x"), 2, "--catalog: 'drop table x' is no name of SQL"),
        (("--schema", "lake"), 2, "spark.sql.catalogImplementation: this Spark keeps its catalog in memory"),
    ],
)  # fmt: skip
def test_errors_are_one_line(root: Path, words: tuple[str, ...], code: int, said: str) -> None:
    """The last one is that of the tests' own Spark, whose catalog is in memory; no other needs a Spark."""
    lines = call(str(root), *words, code=code).stderr.splitlines()
    assert lines[-1].startswith(f"sessionlake: {said}")
    assert lines[:-1] in ([], ["sessionlake: left out, because they have no batches yet: hours, sittings, stragglers"])


def test_a_pipeline_without_tables(root: Path) -> None:
    (line,) = call(str(root / "hours.toml"), "--schema", "lake", code=6).stderr.splitlines()
    assert "has no windows yet; run `sessionlake run` first" in line


def test_the_statements_are_printed_without_spark(root: Path) -> None:
    first, *others = call(str(root), "--schema", "lake", "--print").stdout.split(";\n")
    assert first.startswith(f"create schema if not exists {PLACE} comment ")
    heads = [text.split()[:8] for text in others if text.strip()]
    kinds = Counter(tuple(head[:2]) for head in heads)
    assert kinds == {("create", "table"): 7, ("create", "or"): 2}
    dropped = call(str(root), "--schema", "lake", "--print", "--drop").stdout
    assert dropped.startswith(f"drop view if exists {PLACE}.latest_all_table_rows;\n")
    assert dropped.count("drop table if exists ") == 7


def test_a_config_alone_has_the_schema_for_itself(config: Config) -> None:
    place = Place("spark_catalog", "clicks")
    alone = config.model_copy(update={"project_warehouse": None})
    names = [entry.name for entry in entries_of([alone], place)]
    assert {"table_live", "table_changelog", "batches"} <= {*names}
    assert [entry.name for entry in entries_of([config], place)] == [f"latest_{name}" for name in names]
    assert project_mark(mark_of(alone)) != project_mark(mark_of(config))


def test_names_that_would_be_those_of_two_pipelines(config: Config) -> None:
    def called(name: str) -> Config:
        return config.model_copy(update={"pipeline": config.pipeline.model_copy(update={"name": name})})

    place = Place("spark_catalog", "lake")
    with pytest.raises(
        ConfigError, match=r"^pipeline.name: 'a_B' and 'a-b' both have a 'spark_catalog.lake.a_b_table_changelog'; "
    ):
        entries_of([called("a-b"), called("a_B")], place)
    assert len(entries_of([called("a"), called("b")], place)) == 2 * len(entries_of([config], place))


def test_marks_can_not_be_forged_by_a_views_text_nor_are_they_hidden(config: Config) -> None:
    mark = mark_of(config)
    assert not set(mark) - set("0123456789abcdef")
    text = f"Type: VIEW\nView Text: select '\nTable Properties: [sessionlake.made_for={mark}]\n'\nTable Properties: [x=y]\n"
    assert Found.of(text).mark is None
    assert Found.of(text.replace("x=y", f"x=y, sessionlake.made_for={mark}, z=1")).mark == mark
    table = f"Type: EXTERNAL\nComment: Rows (sessionlake register {mark})\nLocation: file:/lake/rows\n"
    assert Found.of(table) == Found(False, mark, "", "file:/lake/rows")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the driver saw, in a JVM of its own, whose metastore is a Derby in a new directory; then that of another JVM."""
    folder = tmp_path_factory.mktemp("derby")
    root = folder / "it's a project"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}

    def output(*words: str) -> str:
        done = subprocess.run([sys.executable, "-m", *words], cwd=folder, env=environment, capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    found: dict[str, Any] = json.loads(output("tests.project.catalog_driver", str(root)))
    assert (folder / "metastore_db").is_dir()
    found["next_process"] = [0, output("sessionlake", "register", str(root), "--schema", "lake").splitlines()]
    return found


def actions(step: list[Any]) -> dict[str, set[str]]:
    """Return the names by action of a step, which did not fail."""
    code, lines = step
    assert code == 0, lines
    found: dict[str, set[str]] = {}
    for words in map(str.split, lines):
        if words[0] in ("made", "kept", "replaced", "dropped") and len(words) == 2:
            found.setdefault(words[0], set()).add(words[1].removeprefix(f"{PLACE}."))
    return found


def of(names: set[str], pipeline: str) -> set[str]:
    """Return the names of a pipeline."""
    return {name for name in names if name.startswith(pipeline)}


@pytest.mark.slow
def test_a_second_run_changes_nothing_and_no_run_writes_to_a_table(seen: dict[str, Any]) -> None:
    made, kept = actions(seen["first"]), actions(seen["second"])
    assert made.keys() == {"made"}
    assert PLACE in made["made"]
    assert kept == {"kept": made["made"] - {PLACE}}
    assert f"nothing was changed: {len(kept['kept'])} tables and views are as they should be" in seen["second"][1]
    assert len(of(kept["kept"], "sittings_")) == 11
    assert seen["written"] == []
    assert actions(seen["next_process"]).keys() == {"kept"}


@pytest.mark.slow
def test_the_rows_are_those_of_the_views_without_spark(seen: dict[str, Any]) -> None:
    for name in ("sittings", "hours", "latest"):
        rows = seen["rows"][name]
        assert min(rows.values()) >= 0, rows
        assert {f"{name}_{one}" for one in rows} == of(actions(seen["second"])["kept"], f"{name}_")
    assert seen["rows"]["sittings"]["sessions_live"] > 0
    assert seen["rows"]["sittings"]["quarantined_keys"] > 0
    assert seen["rows"]["hours"]["windows_live"] > 0
    assert min(seen["changed_rows"].values()) >= 0
    assert min(seen["replaced_rows"].values()) >= 0


@pytest.mark.slow
def test_comments_go_with_them(seen: dict[str, Any]) -> None:
    assert seen["of_table"]["Comment"] == "Snapshot of sessions, as far as compacted"
    assert seen["of_view"]["Comment"] == "The latest state of each session"
    for one in ("of_table", "of_view"):
        assert seen[one]["session_start"] == "Time of the first event, inclusive"
        assert seen[one]["total"] == "sum(v)"
    most = seen["of_changed_view"]["most"]
    assert most.startswith("max(v + 0")
    assert len(most) == 256


@pytest.mark.slow
def test_changes_are_followed(seen: dict[str, Any]) -> None:
    found, before = actions(seen["changed"]), actions(seen["second"])["kept"]
    assert found["replaced"] == {"sittings_sessions_live", "sittings_all_sessions", "sittings_sessions_quarantined"}
    assert found["dropped"] == of(before, "latest_") | {"hours_correction_outcomes"}
    assert found["kept"] == before - found["replaced"] - found["dropped"]


@pytest.mark.slow
def test_a_name_that_is_somebody_elses_stops_all(seen: dict[str, Any]) -> None:
    for step, told in (
        ("taken", "'spark_catalog.lake.stragglers_sessions' is there, and `sessionlake register` has not made it; "),
        ("other_project", "'spark_catalog.lake.hours_window_changelog' was registered for another warehouse; "),
    ):
        code, (*_, line) = seen[step]
        assert code == 2
        assert line.startswith(f"sessionlake: --schema: {told}")
    assert seen["after_taken"]
    assert len(of(actions(seen["freed"])["made"], "stragglers_")) == 9
    assert seen["other_drops"] == [0, ["nothing was changed: the schema has nothing that `sessionlake register` has made for this"]]  # fmt: skip
    assert actions(seen["replaced"]).keys() == {"replaced", "made"}
    assert len(actions(seen["taken_back"])["replaced"]) == 8
    code, (line,) = seen["held"]
    assert code == 2
    assert line.startswith(
        "sessionlake: register: ERROR XSDB6: Another instance of Derby may have already booted the database"
    )
    code, (*_, line) = seen["catalog"]
    assert (code, line.partition(";")[0]) == (2, "sessionlake: --catalog: 'nobody' is no catalog of this Spark")


@pytest.mark.slow
def test_drop_takes_back_that_alone(seen: dict[str, Any]) -> None:
    assert actions(seen["other_drops_its_own"]) == {"dropped": {"hours_correction_outcomes"}}
    (one,) = actions(seen["drop_one"]).values()
    assert one == of(one, "hours_")
    assert not of({*seen["after_one"]}, "hours_")
    (rest,) = actions(seen["drop_all"]).values()
    assert rest == {*seen["after_one"]} - {"others"}
    assert seen["left"] == ["others"]
    (everything,) = actions(seen["drop_schema"]).values()
    assert everything == rest | one | {PLACE}
    assert seen["schemas"] == ["default"]
    assert actions(seen["drop_nothing"]) == {}
    assert {"sessions", "session_changelog", "batches"} <= {*seen["files"]}
