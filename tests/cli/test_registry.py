"""The help and the errors of a config are there at once: nothing heavy is imported for them."""

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from sessionlake.cli import main
from sessionlake.cli.registry import COMMANDS, GROUPS, LOOKUPS
from sessionlake.jobs.registry import JOBS, Job, Kind
from tests.cli.support import CONFIG

HEAVY = {
    "pyspark",
    "py4j",
    "pandas",
    "numpy",
    "pyarrow",
    "duckdb",
    "deltalake",
    "rocksdict",
    "prometheus_client",
    "matplotlib",
}
CALLS = """
import json, sys
from sessionlake.cli import main
found = {}
for call in json.loads(sys.argv[1]):
    try:
        main(call)
    except SystemExit as end:
        found[" ".join(call)] = [end.code, sorted(set(sys.modules) & set(json.loads(sys.argv[2])))]
print(json.dumps(found))
"""
MORE = {
    "sql": ["select 1"],
    "redeem": ["--reason", "bad JSON"],
    "backup": ["copy"],
    "restore": ["copy"],
    "backfill": ["--from", "2026-01-01", "--to", "2026-01-02"],
    "rebuild": ["--warehouse", "new"],
    "forget": ["key"],
    "metrics": ["--once"],
    **{command: ["--key", "key"] for command in LOOKUPS},
    "views": ["--dialect", "spark"],
    "register": ["--schema", "lake"],
}
WITHOUT_CONFIG = {"demo", "init", "try"}
LOOKS_FURTHER = "check"
"""Looks at the aggregates and the SQL of a config, too, whatever else is wrong."""


def outcomes(*calls: list[str]) -> dict[str, list[object]]:
    """Make the calls one after the other in one new process; return exit codes, and what heavy had been imported by then."""
    command = [sys.executable, "-c", CALLS, json.dumps(calls), json.dumps(sorted(HEAVY))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_help_imports_nothing_heavy() -> None:
    calls = [["--help"], *([name, "--help"] for name in COMMANDS)]
    assert outcomes(*calls) == {" ".join(call): [0, []] for call in calls}


def test_the_list_of_commands_needs_no_pydantic() -> None:
    code = "import sys, sessionlake.cli.registry; print('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_faulty_config_imports_nothing_heavy(tmp_path: Path) -> None:
    file = tmp_path / "clicks.toml"
    file.write_text(CONFIG.replace("30 minutes", "soon"))
    calls = [
        [name, str(file), *MORE.get(name, [])] for name in COMMANDS if name not in {*WITHOUT_CONFIG, LOOKS_FURTHER}
    ]
    assert outcomes(*calls) == {" ".join(call): [2, []] for call in calls}


def test_the_help_has_each_command_once_in_a_section() -> None:
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)
    lines = CliRunner().invoke(main, ["--help"]).output.splitlines()
    assert [line for line in lines if line.endswith(":")] == ["Options:", *(f"{title}:" for title in GROUPS)]
    starts = {line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "}
    assert starts >= set(COMMANDS)
    assert lines[2] == "  Stateful streams for the lakehouse: sessions, windows, joins, tables, groups"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("statsu", "No such command 'statsu' (did you mean 'status'?)"),
        ("runn", "No such command 'runn' (did you mean 'run'?)"),
        ("reprocess_late", "No such command 'reprocess_late' (did you mean 'reprocess-late'?)"),
        ("xyzzy", "No such command 'xyzzy'; `sessionlake --help` lists all commands"),
    ],
)
def test_a_mistyped_command_names_the_nearest(word: str, said: str) -> None:
    done = CliRunner().invoke(main, [word, "clicks.toml"])
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (2, f"Error: {said}")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_registry_tells_what_the_command_does(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert (command.help or "").startswith(COMMANDS[name][1].rstrip("."))


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_jobs_command_has_the_options_of_its_entry(job: Job) -> None:
    command = main.get_command(click.Context(main), job.command)
    assert command is not None
    found = {flag for param in command.params for flag in (*param.opts, *param.secondary_opts) if flag[:2] == "--"}
    run = {"--run-id", "--dry-run", "--format", "--json"} if job.recorded else set()
    assert found == {option.flag for option in job.options} | run | (
        {"--apply", "--no-apply"} if job.has_apply else set()
    )
    for option in job.options:
        (param,) = (p for p in command.params if option.flag in p.opts)
        assert (param.required, param.default) == (
            option.required,
            False if option.kind is Kind.FLAG else option.default,
        )
