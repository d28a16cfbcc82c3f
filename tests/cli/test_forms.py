"""Every command that prints a table prints the same data as a list of JSON, and nothing else with it."""

import ast
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import sessionlake
from sessionlake.cli import main
from sessionlake.cli.registry import COMMANDS, LOOKUPS
from sessionlake.errors import ExitCode
from sessionlake.jobs.registry import JOBS
from tests.cli.support import CONFIG, Project

ROOT = Path(sessionlake.__file__).parent
TABLES = {"print_rows", "print_objects", "laid_out", "rich.table"}
"""Names by which a module prints a table."""
PARTS = {f"sessionlake.cli.{name}" for name in ("layout", "progress", "rows", "shared", "each", "jobs")}
"""Modules that commands share, which print for others, or the line of progress."""
NO_TABLE = {
    "demo": "a show for people: each of its tables is one of `sql` or `status`",
    "try": "a show for people: a look before there is a pipeline, whose rows `sql` gives to programs",
    "fast-start": "imports the function by which `sql` registers tables, and prints a path",
}
OBJECTS = {"check": "one object, with which editors and CI work: there is no table"}
CALLS: dict[str, list[str]] = {
    "status": [],
    "sql": ["select * from sessions_live"],
    "sessions": ["--key", "u"],
    "plan": [],
    "show": [],
}
"""The words after the config of a pipeline of sessions, by command."""
NOT_OURS = set(LOOKUPS) - {"sessions"}
"""Commands that look up rows of other operators."""


def command(name: str) -> click.Command:
    found = main.get_command(click.Context(main), name)
    assert found is not None
    return found


def forms(name: str) -> list[str]:
    """Return the forms that a command prints in, the default one first; none without --format of what it prints."""
    asked = [p for p in command(name).params if isinstance(p.type, click.Choice) and p.name == "form"]
    return [form for param in asked for form in param.type.choices]  # type: ignore[attr-defined]


@cache
def tree(module: str) -> ast.Module:
    return ast.parse((ROOT.parent / f"{module.replace('.', '/')}.py").read_text())


def used(module: str) -> Iterator[str]:
    """Yield the modules of commands that a module imports, and the names by which it prints tables."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom):
            yield from ({str(node.module), *(alias.name for alias in node.names)} & TABLES)
            names = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
            ours = (name for name in names if name.startswith(("sessionlake.cli.", "sessionlake.examples.")))
            yield from (name for name in ours if (ROOT.parent / f"{name.replace('.', '/')}.py").exists())


def prints_tables(module: str) -> bool:
    """Say whether a module, or one that only it and its like import, prints a table."""
    seen, ahead = set[str](), [module]
    while ahead:
        found = {*used(ahead.pop())} - PARTS - seen
        seen |= found
        ahead += found - TABLES
    return bool(seen & TABLES)


def place(name: str) -> str:
    """Return the module of a command of its own; empty for one that is made of a registry's entry."""
    module = COMMANDS[name][0].partition(":")[0]
    return module if "." in module or not module else f"sessionlake.cli.{module}"


def test_a_command_that_prints_a_table_has_json() -> None:
    tables = {name for name in COMMANDS if place(name) and prints_tables(place(name))} | {*LOOKUPS}
    assert {name for name in tables if "json" not in forms(name)} == {*NO_TABLE}
    assert tables >= {"status", "sql", "plan", "demo"}
    assert {job.command for job in JOBS if job.recorded and "json" not in forms(job.command)} == set()


def test_a_table_is_seen() -> None:
    assert prints_tables("sessionlake.cli.status")
    assert not prints_tables("sessionlake.cli.views")


@pytest.fixture
def pipeline(ran: Project) -> Project:
    ran.path.write_text(CONFIG)
    return ran


def call(*words: str) -> Any:
    return CliRunner().invoke(main, words)


@pytest.mark.parametrize("name", [n for n in COMMANDS if "json" in forms(n) and n not in {job.command for job in JOBS}])
def test_json_is_a_list_and_nothing_else(name: str, pipeline: Project) -> None:
    """Those of jobs are below."""
    if name in NOT_OURS:
        done = call(name, str(pipeline.path), "--key", "u", "--format", "json")
        assert (done.exit_code, done.stdout) == (2, "")
        return
    root = pipeline.path.parent
    (root / "project.toml").touch()
    try:
        words = [str(root)] if name == "graph" else [str(pipeline.path), *CALLS.get(name, [])]
        asked, short = (
            call(name, *words, "--format", "json"),
            call(name, *words, "--json"),
        )
    finally:
        (root / "project.toml").unlink()
    assert (asked.exit_code, asked.stderr) == (0, "")
    found = json.loads(asked.stdout)
    if name in OBJECTS:
        assert isinstance(found, dict)
        return
    assert found
    assert {type(one) for one in found} == {dict}
    assert [one.keys() for one in json.loads(short.stdout)] == [one.keys() for one in found]


def test_the_object_of_a_pipeline(pipeline: Project) -> None:
    (one,) = json.loads(call("status", str(pipeline.path), "--json").stdout)
    (pipeline.path.parent / "project.toml").touch()
    (of_project,) = json.loads(call("status", str(pipeline.path.parent), "--json").stdout)
    (pipeline.path.parent / "project.toml").unlink()
    assert one.keys() == of_project.keys() >= {"name", "state", "lag_seconds", "reconciles"}
    assert (one["name"], one["state"], one["reconciles"]) == ("clicks", "stopped", True)


def test_a_jobs_report_is_a_list(pipeline: Project) -> None:
    done = pipeline.call("compact", "--dry-run", "--format", "json")
    (report,) = json.loads(done.stdout)
    assert (report["name"], report["job"], report["dry_run"]) == ("clicks", "compact", True)
    assert "compact" in done.stderr
    lines = pipeline.call("compact", "--dry-run").stdout.splitlines()
    assert json.loads(lines[-1]).keys() == report.keys() - {"name", "notes"}


def test_jobs_of_a_project_are_one_list(pipeline: Project) -> None:
    root = pipeline.path.parent
    (root / "project.toml").touch()
    new = CONFIG.replace('name = "clicks"', 'name = "new"').replace('"warehouse"', '"other"')
    (root / "new.toml").write_text(new)
    try:
        done = call("reprocess-late", str(root), "--dry-run", "--json")
        (root / "clicks.toml").rename(root / "clicks.aside")
        alone = call("reprocess-late", str(root), "--dry-run", "--json")
    finally:
        (root / "clicks.aside").rename(root / "clicks.toml")
        (root / "project.toml").unlink()
        (root / "new.toml").unlink()
    assert done.exit_code == 0, done.stderr
    found = {one["name"]: one for one in json.loads(done.stdout)}
    assert found["new"] == {"name": "new", "job": "reprocess_late", "ended": "no_batches"}
    assert (found["clicks"]["ended"], found["clicks"]["dry_run"]) == ("done", True)
    assert (alone.exit_code, json.loads(alone.stdout)) == (ExitCode.NO_BATCHES, [found["new"]])
