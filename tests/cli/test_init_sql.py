"""`sessionlake init --sql`: the command, its arguments, and the places of errors that the config's own checks find."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from sessionlake.cli import main
from sessionlake.config.load import load_config
from tests.propose.query_support import events, table_of, write_sample

QUERY = """\
-- watermark happened_at 1 day
select tenant, user_id, session_window(happened_at, '150 seconds') as s, count(*) as visits, sum(price) as revenue
from events where type = 'buy' group by tenant, user_id, s
"""


def init(*arguments: object, given: str | None = None) -> Result:
    return CliRunner().invoke(main, ["init", *map(str, arguments)], input=given)


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    return write_sample(tmp_path / "events", events(0))


def test_a_file_and_standard_input_give_the_same_config(sample: Path, tmp_path: Path) -> None:
    (tmp_path / "query.sql").write_text(QUERY, encoding="utf-8-sig")  # as some editors on Windows do
    of_file, of_input = init(sample, "--sql", tmp_path / "query.sql"), init(sample, "--sql", "-", given=QUERY)
    assert (of_file.exit_code, of_file.stderr, of_input.exit_code, of_input.stderr) == (0, "", 0, "")
    same = of_file.stdout.replace(str(tmp_path / "query.sql"), "standard input")
    assert same == of_input.stdout
    assert '(`sessionlake sql CONFIG "..."`):' in of_input.stdout


def test_the_written_config_has_its_name_and_passes_check(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = init(sample, "--sql", "-", "-o", "lake/buys.toml", given=QUERY)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "lake/buys.toml: read it, then `sessionlake run lake/buys.toml --once`\n"
    config = load_config("lake/buys.toml")
    assert (config.pipeline.name, config.section.grace_us) == ("buys", 86_400_000_000)
    checked = CliRunner().invoke(main, ["check", "lake/buys.toml"])
    assert (checked.exit_code, checked.stderr) == (0, "")
    assert "`sessionlake sql lake/buys.toml" in Path("lake/buys.toml").read_text()
    named = init(sample, "--sql", "-", "--name", "purchases", given=QUERY)
    assert 'name = "purchases"' in named.stdout


def test_in_a_project_it_has_the_projects_warehouse_and_passes_its_check(
    sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "project.toml").write_text("[pipeline]\nshards = 2\n")
    result = init(sample, "--sql", "-", "-o", "lake/buys.toml", given=QUERY)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(
        "lake/buys.toml: a pipeline of the project lake, with its tables in lake/warehouse/buys; "
    )
    config = load_config("lake/buys.toml")
    assert (config.pipeline.warehouse, config.pipeline.shards) == (str(tmp_path / "lake" / "warehouse" / "buys"), 2)
    checked = CliRunner().invoke(main, ["check", "lake"])
    assert (checked.exit_code, checked.stderr) == (0, "")
    again = init(sample, "--sql", "-", "-o", "lake/more.toml", "--name", "buys", given=QUERY)
    said = "sessionlake: pipeline.name: 'buys' is the name of lake/buys.toml, too; each pipeline of a project has its own, write another one\n"
    assert (again.exit_code, again.stderr) == (2, said)


WRONG = {
    "aggregates.s: sum(type) needs numbers, but type is string; pick a numeric column": (
        "select\n sum(type) as s from e group by window(happened_at, '1 hour')"
    ),
    "window.advance: '2 hours' must be longer than zero and at most the size, '1 hour'; between windows that are further apart events would belong to none": (
        "select count(*) n from e group by\n  window(happened_at, '1 hour', '2 hours')"
    ),
    "limit: 'limit 1' can't be part of a pipeline: a pipeline keeps all rows; leave it out here, and write it in SQL over the live view (`sessionlake sql`)": (
        "select count(*) n from e group by window(happened_at, '1 hour')\nlimit 1"
    ),
    "event.unique_for: '1 minute' is shorter than events wait for others, '3 hours'; write that or longer": (
        "-- watermark happened_at 2 hours\n-- unique event_id 1 minute\nselect count(*) n from e group by window(happened_at, '1 hour')"
    ),
}


@pytest.mark.parametrize("line", WRONG)
def test_an_error_is_one_line_with_its_place_in_the_query(line: str, sample: Path) -> None:
    """Each of these stands in the second line of its query."""
    result = init(sample, "--sql", "-", given=WRONG[line])
    assert (result.exit_code, result.stderr) == (2, f"sessionlake: standard input:2: {line}\n")


def test_options_that_the_query_answers_are_refused(sample: Path) -> None:
    for option in (("--key", "tenant"), ("--time", "happened_at"), ("--window", "tumbling"), ("--table",)):
        result = init(sample, "--sql", "-", *option, given=QUERY)
        told = f"sessionlake: {option[0]}: can't be used with --sql, because the query says it; leave it out\n"
        assert (result.exit_code, result.stderr) == (2, told)


def test_files_and_samples_that_are_not_there(sample: Path, tmp_path: Path) -> None:
    missing = init(sample, "--sql", tmp_path / "none.sql")
    told = f"sessionlake: --sql: '{tmp_path}/none.sql' can't be read (No such file or directory); pass the path of a query, or - for standard input\n"
    assert (missing.exit_code, missing.stderr) == (2, told)
    (tmp_path / "latin.sql").write_bytes("select 'é'".encode("latin-1"))
    assert init(sample, "--sql", tmp_path / "latin.sql").stderr.startswith("sessionlake: --sql: '")
    assert "is no UTF-8" in init(sample, "--sql", tmp_path / "latin.sql").stderr
    two = init(sample, sample)
    assert two.stderr == f"sessionlake: SAMPLE: '{sample}' is a second one; pass one, or a join by --sql\n"
    assert "is not there" in init(tmp_path / "none", "--sql", "-", given=QUERY).stderr


def test_a_sample_of_parquet_has_its_own_types(tmp_path: Path) -> None:
    pq.write_table(table_of(events(0)), tmp_path / "events.parquet")
    result = init(tmp_path / "events.parquet", "--sql", "-", given=QUERY)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "[source.types]" not in result.stdout


E2E = {
    "sessions": QUERY.replace("count(*)", "session_window(happened_at, '150 seconds').start as first, count(*)"),
    "windows": "with seen as (select *, price * quantity as amount from events where type is not null)\n"
    "select user_id, window.start, window.end as upto, count(*) filter (where buys) as buys, sum(amount) / count(*) as mean\n"
    "from seen e group by user_id, window(happened_at, '30 minutes', '10 minutes') having max(price) > 5 -- watermark happened_at 1 day",
    "latest": "select tenant, user_id, type, price * quantity as worth from (\n"
    "  select *, row_number() over (partition by tenant, user_id order by happened_at desc, event_id desc) as n from events\n"
    ") where n = 1 and type is not null -- watermark happened_at 1 day",
    "pairs": "select v.tenant, v.event_id as seen, b.event_id as bought, b.happened_at\n"
    "from events v join events b on v.tenant = b.tenant and v.user_id = b.user_id\n"
    "  and b.happened_at > v.happened_at - interval 1 minute and b.happened_at < v.happened_at + interval 20 minutes\n"
    "where v.type = 'view' and b.type = 'buy' -- watermark v.happened_at 1 day",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", E2E)
def test_the_select_over_the_live_view_gives_the_querys_rows(
    kind: str, spark: SparkSession, sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The config is written, run once, and asked by `sessionlake sql` with the SELECT in its comment."""
    monkeypatch.chdir(tmp_path)
    spark.createDataFrame(table_of(events(0))).createOrReplaceTempView("events")
    expected = spark.sql(E2E[kind])
    samples = [sample] * (2 if kind == "pairs" else 1)
    written = init(*samples, "--sql", "-", "-o", "made.toml", given=E2E[kind])
    assert (written.exit_code, written.stderr) == (0, "")
    ran = CliRunner().invoke(main, ["run", "made.toml", "--once"])
    assert (ran.exit_code, ran.stderr) == (0, "")
    lines = Path("made.toml").read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("# The query's columns"))
    select = " ".join(line.removeprefix("#   ") for line in lines[at + 1 : at + 3])
    answer = CliRunner().invoke(main, ["sql", "made.toml", select, "--format", "json"])
    assert (answer.exit_code, answer.stderr) == (0, "")
    found = json.loads(answer.stdout)
    assert list(found[0]) == expected.columns
    theirs = [row.asDict(recursive=True) for row in expected.collect()]
    assert sorted(map(repr, map(_plain, found))) == sorted(map(repr, map(_plain, theirs)))


def _plain(value: Any) -> Any:
    """Return a value of JSON or of Spark, a row or a struct, with times in one form."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, str) and value.startswith("202"):
        return dt.datetime.fromisoformat(value).replace(tzinfo=None)
    return value
