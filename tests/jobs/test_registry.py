"""The registry of jobs tells the truth: of functions, tables, counts, and in docs/commands.md."""

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from sessionlake.cli.registry import COMMANDS
from sessionlake.config.load import Config, parse_config
from sessionlake.config.operators import CAPABILITIES, OPERATORS
from sessionlake.errors import NotNeededError
from sessionlake.jobs.compact.job import METHODS
from sessionlake.jobs.registry import (
    BY_NAME,
    CHANGES,
    EVENTS_AGAIN,
    JOBS,
    RULE_TABLES,
    SINK,
    SNAPSHOT,
    SOURCE,
    STATE_CHANGES,
    STATE_SNAPSHOT,
    Job,
    Kind,
)
from sessionlake.jobs.run import require_known
from sessionlake.quality.run import _FAILS_ON
from sessionlake.stream.kinds import kind_named
from sessionlake.warehouse import schemas
from tests.jobs import jobs_table
from tests.jobs.window_support import hopping_config
from tests.operators.counts.count_support import count_config
from tests.operators.joins.join_support import join_config
from tests.operators.keyed.table_support import table_config
from tests.support import make_config, write_config

RUN = {"run_id", "dry_run", "on_step"}


def function_of(job: Job) -> Any:
    module, _, name = job.function.partition(":")
    return getattr(import_module(module), name)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_the_function_takes_what_the_command_gives(job: Job) -> None:
    parameters = inspect.signature(function_of(job)).parameters
    assert next(iter(parameters)) == "spark"
    place, _ = COMMANDS[job.command]
    if not place:
        assert list(parameters)[:2] == ["spark", "config"]
        given = {option.target for option in job.options} | RUN
        taken = {name for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
        assert given <= taken
        assert {name for name in taken if parameters[name].default is inspect.Parameter.empty} <= given
    if job.applies_itself:
        assert "apply" in parameters


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_tables_are_tables(job: Job) -> None:
    special = {CHANGES, SNAPSHOT, STATE_CHANGES, STATE_SNAPSHOT, SOURCE, EVENTS_AGAIN, RULE_TABLES, SINK}
    assert {*job.reads, *job.writes} - special <= {*schemas.SHARED}
    if job.corrections is not None:
        assert job.writes[schemas.CORRECTIONS] == (job.corrections,)


def test_names_are_used_once() -> None:
    assert len(BY_NAME) == len(JOBS)
    for job in JOBS:
        names = [option.name for option in job.options]
        assert len(set(names)) == len(names)
        for option in job.options:
            assert bool(option.choices) == (option.kind is Kind.CHOICE)
            assert option.default is None or not option.choices or option.default in option.choices


@pytest.mark.parametrize(
    ("job", "name", "choices"), [("compact", "method", METHODS), ("quality", "fail_on", tuple(_FAILS_ON))]
)
def test_choices_are_the_functions(job: str, name: str, choices: tuple[str, ...]) -> None:
    (option,) = (option for option in BY_NAME[job].options if option.name == name)
    assert option.choices == choices


def test_the_documented_table_is_the_registrys() -> None:
    assert jobs_table.documented() == jobs_table.with_marks(jobs_table.table()), "run python -m tests.jobs.jobs_table"


def refusal(config: Config, job: Job) -> str | None:
    try:
        require_known(config, job.name)
    except NotNeededError as error:
        return str(error)
    return None


def test_what_a_job_is_not_for_is_refused_in_one_line(tmp_path: Path) -> None:
    by_count = count_config(tmp_path, emit={"early": "batch"})
    configs = (make_config(tmp_path), hopping_config(tmp_path), by_count, join_config(tmp_path), table_config(tmp_path))
    said = [[refusal(config, job) for job in JOBS] for config in configs]
    for config, lines in zip(configs, said, strict=True):
        assert all(line is None or re.fullmatch(rf"[a-z-]+: a \[{config.operator}\] .+", line) for line in lines)
    assert [[line.partition(":")[0] for line in lines if line] for lines in said] == [
        [],
        [],
        ["reprocess-late", "redeem", "backfill"],
        ["redeem", "backfill"],
        ["reprocess-late", "redeem", "backfill"],
    ]


def test_results_are_backfilled_from_an_archive_alone(tmp_path: Path) -> None:
    write_config(tmp_path).rename(tmp_path / "front.toml")
    source = {"kind": "results", "of": "front.toml", "rows": "final"}

    def behind(**pipeline: Any) -> Config:
        content = {"pipeline": {"name": "back", "warehouse": "back", **pipeline}, "source": source}
        return parse_config({**content, "session": {"gap": "1 day"}}, tmp_path)

    (line,) = [line for job in JOBS if (line := refusal(behind(), job))]
    assert line.startswith(
        "backfill: the results of 'test' can't be read again as they were; use `sessionlake rebuild`, "
    )
    assert [refusal(behind(archive=True), job) for job in JOBS] == [None] * len(JOBS)


@pytest.mark.parametrize("name", OPERATORS)
def test_what_an_operator_lacks_is_what_is_none(name: str) -> None:
    entry = OPERATORS[name]
    kind = kind_named(entry)
    members = {"restating": kind.restating, "redeeming": kind.redeeming, "recompute": entry.recompute}
    assert {capability for capability in CAPABILITIES if members[capability] is None} == set(entry.lacks)


def test_jobs_need_capabilities_that_there_are() -> None:
    assert {job.needs for job in JOBS} - {""} == set(CAPABILITIES)
