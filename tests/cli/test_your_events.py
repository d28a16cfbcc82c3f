"""docs/your-events.md on samples of each public format: `init`, `check`, and results that DuckDB also computes from the same files."""

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from sessionlake.cli import main
from sessionlake.config.load import Config, load_config
from sessionlake.preflight import trial
from sessionlake.propose import read_sample
from tests.cli.public_events import CLOUDFRONT, SAMPLES, SNOWPLOW
from tests.infra.infra_files import ROOT

PAGE = (ROOT / "docs" / "your-events.md").read_text()
BLOCK = re.compile(r"^```(console|toml)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SESSIONS = """
with events as ({rows}), marked as (
    select *, moment - lag(moment) over (partition by key order by moment) > interval 30 minutes as cut from events where key is not null
), numbered as (
    select *, sum(coalesce(cut, false)::int) over (partition by key order by moment) as number from marked
)
select key as session_key, min(moment) as session_start, max(moment) as session_end, count(*) as event_count, {values}
from numbered group by key, number order by 1, 2
"""


@dataclass(frozen=True)
class Oracle:
    """The events of a format by DuckDB: columns key, moment and others; the page's aggregates over them; and the rows without a key."""

    rows: str
    values: dict[str, str]
    dead: int = 0
    filtered: int = 0
    rows_read: int = 45


def json_lines(path: str, columns: str, where: str = "true") -> str:
    return f"select {columns} from read_ndjson_objects('{path}/*') where {where}"


def document(path: str, records: str, columns: str, where: str = "true") -> str:
    rows = f"select unnest(json->'$.{records}[*]') as json from read_json_objects('{path}/*')"
    return f"select {columns} from ({rows}) where {where}"


def delimited(path: str, names: list[str], columns: str, skip: int = 0) -> str:
    return (
        f"select {columns} from read_csv('{path}/*', delim='\t', quote='', escape='', header=false, all_varchar=true, "
        f"skip={skip}, auto_detect=false, columns={dict.fromkeys(names, 'varchar')})"
    )


def param(name: str, kind: str) -> str:
    found = f"list_filter(from_json(json->'$.event_params', '[\"json\"]'), lambda p: p->>'$.key' = '{name}')"
    return f"{found}[1]->>'$.value.{kind}'"


SECONDS, ISO = "make_timestamp((json->>'$.{}')::bigint * 1000000)", "(json->>'$.{}')::timestamp"
ORACLES = {
    "ga4": Oracle(
        json_lines(
            "ga4",
            "json->>'$.user_pseudo_id' as key, make_timestamp((json->>'$.event_timestamp')::bigint) as moment, "
            f"{param('page_location', 'string_value')} as page, ({param('engagement_time_msec', 'int_value')})::bigint as ms, "
            "(json->>'$.event_value_in_usd')::double as usd",
        ),
        {
            "landing_page": "arg_min(page, moment)",
            "pages": "count(distinct page)",
            "engaged_ms": "sum(ms)",
            "revenue": "sum(usd)",
        },
        dead=1,
    ),
    "items": Oracle(
        "select item->>'$.item_id' as key, make_timestamp(us) as moment, item->>'$.item_name' as name, "
        "(item->>'$.quantity')::bigint as quantity, (item->>'$.price')::double as price "
        "from (select (json->>'$.event_timestamp')::bigint as us, unnest(json->'$.items[*]') as item from read_ndjson_objects('ga4/*'))",
        {"item": "arg_max(name, moment)", "sold": "sum(quantity)", "turnover": "sum(price * quantity)"},
        filtered=30,
        rows_read=60,
    ),
    "segment": Oracle(
        json_lines(
            "segment",
            f"coalesce(json->>'$.userId', json->>'$.anonymousId') as key, {ISO.format('timestamp')} as moment, json->>'$.event' as event, "
            "json->>'$.context.page.path' as path, (json->>'$.properties.revenue')::double as revenue, "
            "json_array_length(json->'$.properties.products') as products",
            "json->>'$.type' <> 'identify'",
        ),
        {
            "landing_page": "arg_min(path, moment)",
            "orders": "count(*) filter (where event = 'Order Completed')",
            "revenue": "sum(revenue)",
            "products": "sum(products)",
        },
        filtered=5,
    ),
    "github": Oracle(
        json_lines(
            "github",
            f"json->>'$.actor.login' as key, {ISO.format('created_at')} as moment, json->>'$.type' as type, json->>'$.repo.name' as repo, "
            "json_array_length(json->'$.payload.commits') as commits, "
            "case when json->>'$.type' = 'PushEvent' then (json->>'$.payload.distinct_size')::bigint end as fresh",
            "not suffix(json->>'$.actor.login', '[bot]')",
        ),
        {
            "pushes": "count(*) filter (where type = 'PushEvent')",
            "commits": "sum(commits)",
            "new_commits": "sum(fresh)",
            "repos": "count(distinct repo)",
            "last_repo": "arg_max(repo, moment)",
        },
        filtered=9,
    ),
    "cloudtrail": Oracle(
        document(
            "cloudtrail",
            "Records",
            f"json->>'$.userIdentity.principalId' as key, {ISO.format('eventTime')} as moment, json->>'$.errorCode' as code, "
            "json->>'$.eventName' as name, json->>'$.requestParameters.bucketName' as bucket, "
            "(json->>'$.additionalEventData.bytesTransferredOut')::bigint as bytes",
            "json->>'$.userIdentity.type' <> 'AWSService'",
        ),
        {
            "denied": "count(*) filter (where code = 'AccessDenied')",
            "calls": "count(distinct name)",
            "buckets": "coalesce(list(distinct bucket) filter (where bucket is not null), [])",
            "bytes_out": "sum(bytes)",
        },
        filtered=4,
    ),
    "snowplow": Oracle(
        delimited(
            "snowplow",
            SNOWPLOW,
            "domain_userid as key, derived_tstamp::timestamp as moment, page_url, se_value::double as value, "
            "contexts::json->>'$.data[0].data.id' as view",
        ),
        {"landing_page": "arg_min(page_url, moment)", "page_views": "count(distinct view)", "value": "sum(value)"},
    ),
    "snowplow_json": Oracle(
        json_lines(
            "snowplow_json",
            f"json->>'$.domain_userid' as key, {ISO.format('derived_tstamp')} as moment, json->>'$.page_url' as page_url, "
            "(json->>'$.se_value')::double as value, "
            "json->>'$.contexts_com_snowplowanalytics_snowplow_web_page_1[0].id' as view",
        ),
        {"landing_page": "arg_min(page_url, moment)", "page_views": "count(distinct view)", "value": "sum(value)"},
    ),
    "nginx": Oracle(
        "select split_part(line, ' ', 1) as key, "
        "strptime(split_part(split_part(line, '[', 2), ']', 1), '%d/%b/%Y:%H:%M:%S +0000') as moment, "
        """nullif(split_part(split_part(line, '"', 2), ' ', 2), '') as uri, """
        """split_part(split_part(line, '"', 3), ' ', 2)::int as status, split_part(split_part(line, '"', 3), ' ', 3)::bigint as size """
        "from (select unnest(string_split(rtrim(content, chr(10)), chr(10))) as line from read_text('nginx/*'))",
        {
            "landing_page": "arg_min(uri, moment)",
            "errors": "count(*) filter (where status >= 400)",
            "bytes_sent": "sum(size)",
        },
    ),
    "cloudfront": Oracle(
        delimited(
            "cloudfront",
            CLOUDFRONT,
            '"c-ip" as key, ("date" || \' \' || "time")::timestamp as moment, "cs-uri-stem" as uri, "x-edge-result-type" as type, '
            '"sc-bytes"::bigint as size',
            skip=2,
        ),
        {"pages": "count(distinct uri)", "errors": "count(*) filter (where type = 'Error')", "bytes_sent": "sum(size)"},
    ),
    "stripe": Oracle(
        document(
            "stripe",
            "data",
            "case when json->>'$.data.object.object' = 'customer' then json->>'$.data.object.id' else json->>'$.data.object.customer' end as key, "
            f"{SECONDS.format('created')} as moment, json->>'$.type' as type, (json->>'$.data.object.amount_paid')::bigint as paid, "
            "json->>'$.data.object.currency' as currency",
        ),
        {
            "paid": "sum(paid) filter (where type = 'invoice.paid')",
            "types": "list(distinct type)",
            "last_currency": "arg_max(currency, moment)",
        },
    ),
    "wikimedia": Oracle(
        json_lines(
            "wikimedia",
            f"json->>'$.user' as key, {SECONDS.format('timestamp')} as moment, json->>'$.type' as type, json->>'$.title' as title, "
            "(json->>'$.length.new')::bigint - coalesce((json->>'$.length.old')::bigint, 0) as bytes",
            "json->>'$.bot' = 'false'",
        ),
        {"edits": "count(*) filter (where type = 'edit')", "bytes": "sum(bytes)", "pages": "count(distinct title)"},
        filtered=9,
    ),
}
PROPOSED = {
    "ga4": ("user_pseudo_id", "event_timestamp", "us", None, {"format": "json"}),
    "items": ("user_pseudo_id", "event_timestamp", "us", None, {"format": "json"}),
    "segment": ("anonymousId", "timestamp", None, "messageId", {"format": "json"}),
    "github": ("actor.id", "created_at", None, "id", {"format": "json"}),
    "cloudtrail": ("userIdentity.principalId", "eventTime", None, "eventID", {"format": "json", "records": "Records"}),
    "snowplow": ("c16", "c125", None, None, {"format": "csv", "delimiter": "\t", "quote": "", "header": False}),
    "snowplow_json": ("domain_userid", "derived_tstamp", None, "event_id", {"format": "json"}),
    "nginx": ("remote_addr", "time_local", None, None, {"format": "text", "preset": "nginx"}),
    "cloudfront": ("c_ip", "time", None, "x_edge_request_id", {"format": "text", "preset": "cloudfront"}),
    "stripe": ("data.object.customer", "created", "s", "id", {"format": "json", "records": "data"}),
    "wikimedia": ("user", "timestamp", "s", "meta.id", {"format": "json"}),
}
"""By format the key, time, unit, id and layout that `init` proposes with the page's options."""


def blocks() -> Iterator[tuple[str, list[str], str]]:
    """Yield for each format of the page its name, the words of its command, and its config."""
    command: list[str] = []
    for kind, text in BLOCK.findall(PAGE):
        if kind == "console":
            command = shlex.split(text.splitlines()[0], comments=True)
        else:
            yield command[-1].removesuffix(".toml"), command[1:], text


FORMATS = {name: (command, text) for name, command, text in blocks()}


def run(*words: str) -> str:
    result = CliRunner().invoke(main, ["--quiet", *words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 0, (words, result.output)
    return result.stdout


def configured(text: str, name: str) -> str:
    return f'[pipeline]\nname = "{name}"\nwarehouse = "warehouse"\nshards = 1\n{text}'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a directory with all samples, each in a folder of its format."""
    for name, made in SAMPLES.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(made())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def expected(oracle: Oracle) -> list[dict[str, Any]]:
    values = ", ".join(f"{function} as {name}" for name, function in oracle.values.items())
    with duckdb.connect() as database:
        rows = database.sql(SESSIONS.format(rows=oracle.rows, values=values)).to_arrow_table().to_pylist()
    return [comparable(row) for row in rows]


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with sets in order and times without a zone."""
    plain = {name: sorted(value) if isinstance(value, list) else value for name, value in row.items()}
    return {name: value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value for name, value in plain.items()}


def tried(config: Config, monkeypatch: pytest.MonkeyPatch) -> trial.Trial:
    monkeypatch.setattr(trial, "LATEST", 1000)
    *_, outcome = trial.try_all(config, None if config.source.kind != "files" else files_of(config))
    return outcome


def files_of(config: Config) -> list[str]:
    return [str(path) for path in sorted(Path(config.source.path).iterdir())]


def test_the_page_has_each_format() -> None:
    assert [*FORMATS] == [*ORACLES] == [*PROPOSED]
    assert {name for name in FORMATS if name != "items"} == {name.partition("/")[0] for name in SAMPLES}


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.usefixtures("place")
def test_init_proposes_and_check_accepts(name: str) -> None:
    command, _ = FORMATS[name]
    run(*command)
    config = load_config(command[-1])
    key, time, unit, id_, layout = PROPOSED[name]
    event = config.event
    assert (event.key, event.time, event.time_unit, event.id) == (key, time, unit, id_)
    assert {of: getattr(config.source, of) for of in layout} == layout
    assert config.section.gap == "30 minutes"
    assert "nothing is wrong" in run("check", command[-1])
    out = run("try", *command[1:-2])
    assert "15 sessions" in out, out


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.usefixtures("place")
def test_the_results_of_the_pages_config_are_those_of_duckdb(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("events.toml").write_text(configured(FORMATS[name][1], name))
    assert "nothing is wrong" in run("check", "events.toml")
    oracle, outcome = ORACLES[name], tried(load_config("events.toml"), monkeypatch)
    counts = {
        "accepted": oracle.rows_read - oracle.dead - oracle.filtered,
        "dead": oracle.dead,
        "filtered": oracle.filtered,
    }
    assert outcome.counts == {of: rows for of, rows in counts.items() if rows or of in ("accepted", "dead")}
    found = [comparable(row) for row in outcome.latest.to_pylist()]
    assert sorted(found, key=lambda row: (row["session_key"], row["session_start"])) == expected(oracle)


@pytest.mark.usefixtures("place")
def test_the_first_commands_of_the_page_run(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("own").mkdir()
    monkeypatch.chdir("own")
    shutil.copy("../wikimedia/recentchange.jsonl", "events.json")
    commands = [shlex.split(line, comments=True)[1:] for line in BLOCK.findall(PAGE)[0][1].splitlines()]
    assert [command[0] for command in commands] == ["try", "init", "check"]
    for command in commands:
        run(*command)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "ga4" else pytest.mark.slow) for name in ORACLES]
)
@pytest.mark.usefixtures("place")
def test_spark_gives_the_same_from_init_to_sql(name: str, spark: SparkSession) -> None:
    del spark
    command, text = FORMATS[name]
    run(*command)
    Path(command[-1]).write_text(configured(text, name))
    run("run", command[-1], "--once")
    columns = ", ".join(["session_key", "session_start", "session_end", "event_count", *ORACLES[name].values])
    rows = run("sql", command[-1], f"select {columns} from sessions_live order by 1, 2", "--format", "json")
    assert [comparable(with_times(row)) for row in json.loads(rows)] == expected(ORACLES[name])


def with_times(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of printed JSON with its times as such."""
    times = ("session_start", "session_end")
    return row | {name: datetime.fromisoformat(row[name]) for name in times}


@pytest.mark.slow
@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.usefixtures("place")
def test_init_proposes_nothing_that_check_refuses(name: str) -> None:
    """With each column as the key, and as the time: either one line, or a config that `check` accepts."""
    key, time, *_ = PROPOSED[name]
    place = FORMATS[name][0][1]
    columns = [*read_sample(place, 1 << 20).types]
    options = [("--key", column, "--time", time) for column in columns]
    options += [("--key", key, "--time", column) for column in columns]
    options += [("--key", key, "--time", time, *more) for more in (["--table"], ["--window", "hopping"])]
    accepted = 0
    for words in options:
        Path("proposed.toml").unlink(missing_ok=True)
        result = CliRunner().invoke(main, ["--quiet", "init", place, "-o", "proposed.toml", *words])
        if result.exit_code:
            assert (result.exit_code, len(result.output.splitlines()), Path("proposed.toml").exists()) == (2, 1, False)
            assert result.output.startswith(("sessionlake: --key: ", "sessionlake: --time: ")), result.output
        else:
            run("check", "proposed.toml")
            accepted += 1
    assert accepted >= 5
