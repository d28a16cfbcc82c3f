"""`sessionlake init`: what it finds in samples of each kind, what it asks for, and that the config it writes runs."""

import gzip
import json
import os
import shutil
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from deltalake import write_deltalake
from pyspark.sql import SparkSession

import sessionlake
from sessionlake.cli import main
from sessionlake.config.file import parse_toml
from sessionlake.config.load import Config, parse_config
from sessionlake.config.project import load_project
from sessionlake.propose import measure, measure_windows, read_sample
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.files import decode

COMMITS = Path(sessionlake.__file__).parent / "examples" / "commits"
START = 1_750_000_000
ROWS = [
    {
        "user_id": f"u{n % 5}",
        "ts": START + 60 * n,
        "event_id": f"e{n}",
        "page": f"/p{n % 3}",
        "load_ms": 1.5 * n,
        "price": n % 7,
        "buy": n % 2 == 0,
    }
    for n in range(200)
]


def init(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["init", *map(str, arguments)])


def proposed(*arguments: object) -> Config:
    result = init(*arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return parse_config(parse_toml(result.stdout, "proposal"), Path.cwd())


def write_json(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


WRITERS: dict[str, Callable[[Path], Path]] = {}


def writer(write: Callable[[Path], Path]) -> Callable[[Path], Path]:
    WRITERS[write.__name__] = write
    return write


@writer
def json_file(root: Path) -> Path:
    write_json(root / "clicks.json.gz", ROWS)
    return root / "clicks.json.gz"


@writer
def json_directory(root: Path) -> Path:
    for n in range(4):
        write_json(root / "clicks" / f"{n}.jsonl", ROWS[50 * n : 50 * n + 50])
    return root / "clicks"


@writer
def csv_file(root: Path) -> Path:
    pa_csv.write_csv(pa.Table.from_pylist(ROWS), root / "clicks.csv")
    return root / "clicks.csv"


@writer
def parquet_file(root: Path) -> Path:
    pq.write_table(pa.Table.from_pylist(ROWS), root / "clicks.parquet")
    return root / "clicks.parquet"


@writer
def delta_table(root: Path) -> Path:
    write_deltalake(str(root / "clicks"), pa.Table.from_pylist(ROWS))
    return root / "clicks"


@pytest.mark.parametrize("kind", WRITERS)
def test_key_time_id_and_aggregates_are_found(kind: str, tmp_path: Path) -> None:
    config = proposed(WRITERS[kind](tmp_path))
    assert (config.event.key, config.event.time, config.event.time_unit, config.event.id) == (
        "user_id",
        "ts",
        "s",
        "event_id",
    )
    assert config.aggregates == {
        "page_distinct": "count_distinct(page)",
        "load_ms_p95": "percentile(load_ms, 0.95)",
        "price_sum": "sum(price)",
    }
    assert (config.pipeline.name, config.source.kind) == ("clicks", "delta" if kind == "delta_table" else "files")
    assert (config.section.gap, config.section.grace, config.warnings()) == ("5 minutes", "1 minute", [])
    typed = kind.startswith(("json", "csv"))
    assert config.source.types.get("load_ms") == ("double" if typed else None)


@pytest.mark.slow
def test_the_written_config_runs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del spark
    monkeypatch.chdir(tmp_path)
    json_directory(tmp_path)
    result = init("clicks", "-o", "lake/clicks.toml")
    assert result.stdout == "lake/clicks.toml: read it, then `sessionlake run lake/clicks.toml --once`\n"
    ran = CliRunner().invoke(main, ["run", "lake/clicks.toml", "--once"])
    assert (ran.exit_code, ran.stderr) == (0, "")
    counted = CliRunner().invoke(main, ["sql", "lake/clicks.toml", "select sum(event_count) n from sessions_live"])
    assert "200" in counted.stdout
    again = init("clicks", "-o", "lake/clicks.toml")
    assert (again.exit_code, again.stderr) == (
        2,
        "sessionlake: -o: 'lake/clicks.toml' is there already; pass another file, or remove it\n",
    )


def test_the_shipped_commits() -> None:
    unclear = init(COMMITS / "part-000.json.gz")
    assert (unclear.exit_code, unclear.stderr) == (
        2,
        "sessionlake: --time: which column is the time is not clear; pass --time with one of: authored_at, committed_at\n",
    )
    result = init(COMMITS, "--time", "authored_at", "--name", "sittings")
    assert result.exit_code == 0
    assert "from 62,726 events (all of it)" in result.stdout
    assert "of 886 keys" in result.stdout
    config = parse_config(parse_toml(result.stdout, "proposal"), Path.cwd())
    assert (config.pipeline.name, config.event.key, config.event.id) == ("sittings", "author", "event_id")
    assert set(config.aggregates) == {"repo_distinct", "top_distinct", "ext_distinct", "added_sum", "deleted_sum"}


def test_on_a_terminal_what_is_not_clear_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"from": f"a{n % 3}", "to": f"b{n % 3}", "sent_at": START + n, "seen_at": START + n} for n in range(50)]
    write_json(tmp_path / "in.json", rows)
    monkeypatch.setattr("sessionlake.cli.init._may_ask", lambda: True)
    result = CliRunner().invoke(main, ["init", str(tmp_path / "in.json")], input="seen_at\nnone\nto\n")
    assert result.exit_code == 0
    assert "which column is the time is not clear" in result.stderr
    config = parse_config(parse_toml(result.stdout, "proposal"), Path.cwd())
    assert (config.event.time, config.event.key) == ("seen_at", "to")


@pytest.mark.parametrize("kind", ["json", "parquet", "delta"])
def test_columns_that_are_of_no_use_do_no_harm(kind: str, tmp_path: Path) -> None:
    rows = [{**row, "nested": {"a": [n]}, "blob": f"{n}"} for n, row in enumerate(ROWS)]
    place = tmp_path / f"clicks.{kind}"
    if kind == "json":
        mixed = [{**row, "mixed": "x" if n % 2 else n} for n, row in enumerate(rows)]
        place.write_text("".join(json.dumps(row) + "\n" for row in mixed) + "no JSON\n")
    else:
        table = pa.Table.from_pylist(rows)
        table = table.set_column(table.column_names.index("blob"), "blob", table["blob"].cast(pa.binary()))
        pq.write_table(table, place) if kind == "parquet" else write_deltalake(str(place), table)
    result = init(place)
    assert "from 200 events (all of it)" in result.stdout
    assert ("# 1 rows have no key" in result.stdout) == (kind == "json")
    config = parse_config(parse_toml(result.stdout, "proposal"), Path.cwd())
    assert (config.event.key, config.event.time, config.event.id) == ("user_id", "ts", "event_id")


def test_a_delta_table_is_measured_by_its_commits(tmp_path: Path) -> None:
    for start in (0, 150, 100):
        rows = pa.Table.from_pylist(ROWS[start : start + 50])
        write_deltalake(str(tmp_path / "clicks"), rows, mode="append", partition_by=["user_id"])
    result = init(tmp_path / "clicks")
    # Of the third commit all 50 events are older than the second's, and of the 150 that is a third.
    assert "a batch for each commit, 33.33% of the events" in result.stdout


def test_a_sample_is_bounded(tmp_path: Path) -> None:
    rows = [{**row, "page": "x" * 1000} for row in ROWS * 10]
    for n in range(4):
        write_json(tmp_path / "clicks" / f"{n}.json", rows)
    result = init(tmp_path / "clicks", "--sample-mb", 1)
    assert "from 2,000 events (its beginning only: later rows may differ)" in result.stdout


@pytest.mark.parametrize(
    ("rows", "arguments", "line"),
    [
        (
            [{"a": "x", "b": "y"}],
            (),
            "--time: which column is the time is not clear; pass --time with one of: any of a, b",
        ),
        (
            ROWS,
            ("--key", "usr"),
            "--key: no column 'usr'; pass one of user_id, ts, event_id, page, load_ms, price, buy",
        ),
        (ROWS, ("--time", "page"), "--time: 'page' holds no times; pass --time with one of: ts"),
        (
            [{"from": f"a{n % 3}", "to": f"b{n % 3}", "time": START + n} for n in range(50)],
            (),
            "--key: which column is the key is not clear; pass --key with one of: from, to",
        ),
    ],
)
def test_what_is_not_clear_is_one_line(
    rows: list[dict[str, Any]], arguments: tuple[str, ...], line: str, tmp_path: Path
) -> None:
    write_json(tmp_path / "in.json", rows)
    result = init(tmp_path / "in.json", *arguments)
    assert (result.exit_code, result.stderr) == (2, f"sessionlake: {line}\n")


def test_places_without_events(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no events")
    shutil.copy(tmp_path / "text", tmp_path / "text.json")
    (tmp_path / "blank.json").touch()
    for place, said in (
        ("none", "is not there"),
        ("empty", "holds no files"),
        ("text", "the format of"),
        ("text.json", "no readable json file"),
        ("blank.json", "holds no rows"),
    ):
        result = init(tmp_path / place)
        assert result.exit_code == 2, result.stderr
        assert said in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert "is not on this machine" in init("s3://bucket/events").stderr


def test_odd_names_of_columns_and_files(tmp_path: Path) -> None:
    rows = [{'k "ey\\\U0001f600': f"k{n % 3}", "when?": f"2026-01-01T00:00:{n:02}Z", "v v": n} for n in range(50)]
    write_json(tmp_path / "7 odd 'names'" / "0.json", rows)
    config = proposed(tmp_path / "7 odd 'names'", "--key", 'k "ey\\\U0001f600', "--time", "when?")
    assert (config.event.key, config.event.time, config.event.time_unit) == ('k "ey\\\U0001f600', "when?", None)
    assert config.source.path == str(tmp_path / "7 odd 'names'")
    assert config.aggregates == {}


@pytest.mark.parametrize("kind", ["tumbling", "hopping", "sliding"])
def test_windows_are_proposed_with_ten_events_each_on_average(tmp_path: Path, kind: str) -> None:
    write_json(tmp_path / "events" / "a.json", ROWS)
    config = proposed(tmp_path / "events", "--window", kind)
    # 200 events of five keys, one a minute: an hour has twelve of each.
    assert config.operator == "window"
    section = config.section.model_dump()
    assert (section["kind"], section["size"]) == (kind, "1 hour")
    assert section.get("advance") == ("5 minutes" if kind == "hopping" else None)
    assert (section["grace"], section["retention"]) == ("1 minute", "30 days")


def test_a_sample_without_events_is_one_line(tmp_path: Path) -> None:
    """`check` would refuse the config."""
    write_json(tmp_path / "events" / "a.json", [{**row, "user_id": None, "note": ""} for row in ROWS])
    for key in ("user_id", "note"):
        for more in ([], ["--window", "tumbling"], ["--table"]):
            result = init(tmp_path / "events", "--key", key, "--time", "ts", *more)
            assert (result.exit_code, result.stderr) == (
                2,
                f"sessionlake: --key: {key!r} has no value in any row of the sample; pass another column\n",
            )


def test_windows_of_no_events_are_the_usual_ones(tmp_path: Path) -> None:
    write_json(tmp_path / "events" / "a.json", [{**row, "user_id": None} for row in ROWS])
    sample = read_sample(str(tmp_path / "events"), 1 << 20)
    columns = EventColumns("user_id", "ts", "s", None, (), sample.types)
    assert measure_windows(sample, columns, "tumbling").size == "1 hour"


def test_a_key_that_is_a_list_or_has_fields_is_one_line(tmp_path: Path) -> None:
    write_json(tmp_path / "in.json", [{**row, "tags": ["a"], "geo": {"city": "x", "at": {"lat": 1}}} for row in ROWS])
    for key, said in {
        "tags": "'tags' is a list; pass a column of plain values, or compute one in [event.columns], for example from tags[0]",
        "geo": "'geo' has fields; pass one of geo.city, geo.at.lat",
    }.items():
        result = init(tmp_path / "in.json", "--key", key)
        assert (result.exit_code, result.stderr) == (2, f"sessionlake: --key: {said}\n")


def test_a_key_of_a_lists_elements_is_told_of_explode(tmp_path: Path) -> None:
    write_json(tmp_path / "in.json", [{**row, "items": [{"sku": "a"}]} for row in ROWS])
    told = init(tmp_path / "in.json", "--key", "items.sku").stderr
    assert "'items.sku' is of the elements of 'items'" in told
    assert "write event.explode = 'items' and event.key = 'items.sku' into the config" in told
    assert (
        '# event.explode = "items" makes an event of each element'
        in init(tmp_path / "in.json", "--key", "user_id").stdout
    )


def test_aggregates_say_something(tmp_path: Path) -> None:
    """Codes are counted, and not added; constants, and ids of the rows, are left out; numbers in texts are numbers."""
    rows = [
        {
            **row,
            "status": 200 + n % 2,
            "httpPort": 443 + n % 2,
            "zone": "eu",
            "request_id": f"r{n}",
            "bytes": str(n),
            "zip": f"0{n % 9}",
            "support": n,
            "geo": {"cost": n},
        }
        for n, row in enumerate(ROWS)
    ]
    write_json(tmp_path / "in.json", rows)
    assert proposed(tmp_path / "in.json", "--key", "user_id").aggregates == {
        "load_ms_p95": "percentile(load_ms, 0.95)",
        "price_sum": "sum(price)",
        "bytes_sum": "sum(cast(bytes as bigint))",
        "support_sum": "sum(support)",
        "geo_cost_sum": "sum(geo.cost)",
        "page_distinct": "count_distinct(page)",
        "status_distinct": "count_distinct(status)",
        "httpPort_distinct": "count_distinct(httpPort)",
    }


def test_many_candidates_are_cut(tmp_path: Path) -> None:
    write_json(tmp_path / "in.json", [{"ts": START + n, **{f"c{k}": n % 3 for k in range(50)}} for n in range(99)])
    said = init(tmp_path / "in.json").stderr
    assert said.endswith("c18, c19 and 30 more\n")


@pytest.mark.parametrize("kind", ["json_directory", "delta_table"])
def test_a_table_has_the_columns_that_are_not_of_the_event(kind: str, tmp_path: Path) -> None:
    config = proposed(WRITERS[kind](tmp_path), "--table")
    section = config.section.model_dump()
    assert (config.operator, config.event.key, config.event.id) == ("table", "user_id", "event_id")
    assert section["columns"] == ["page", "load_ms", "price", "buy"]
    assert (section["order"], section["retention"], config.aggregates) == ("time", "1 minute", {})
    typed = set(config.source.types)
    assert typed == (set(ROWS[0]) if kind == "json_directory" else set())


def test_a_tables_retention_holds_nearly_all_late_updates_and_its_own_names_are_left_out(tmp_path: Path) -> None:
    """Every tenth update comes half an hour late, in a later file."""
    late = [row for n, row in enumerate(ROWS) if n % 10 == 0]
    write_json(tmp_path / "in" / "0.json", [{**row, "Deleted": 1, "op": "x"} for row in ROWS if row not in late])
    write_json(tmp_path / "in" / "1.json", [{**row, "ts": ROWS[-1]["ts"] - 1800} for row in late])
    for n in range(2):
        os.utime(tmp_path / "in" / f"{n}.json", (n, n))
    result = init(tmp_path / "in", "--table")
    assert "would remain 5." in result.stdout
    assert '# Left out: "Deleted", "op", called' in result.stdout
    assert "#   10 minutes    10.000%\n#   1 hour         0.000%" in result.stdout
    config = parse_config(parse_toml(result.stdout, "proposal"), Path.cwd())
    section = config.section.model_dump()
    assert (section["retention"], section["columns"]) == ("1 hour", ["page", "load_ms", "price", "buy"])


def test_a_table_in_windows_is_refused_in_one_line(tmp_path: Path) -> None:
    result = init(json_file(tmp_path), "--table", "--window", "tumbling")
    said = "sessionlake: --table: can't be used with --window tumbling; pass one of them\n"
    assert (result.exit_code, result.stderr) == (2, said)


def test_events_more_than_an_hour_ahead_of_the_clock_make_no_others_late(tmp_path: Path) -> None:
    now = int(time.time())
    past = [{**row, "ts": now - 60 * (len(ROWS) - n)} for n, row in enumerate(ROWS)]
    # One is within the hour, and measured.
    future = [{**ROWS[0], "ts": now + 5 * 365 * 86_400}, {**ROWS[1], "ts": now + 3_000}, {**ROWS[1], "ts": now + 4_000}]

    def write(first: list[dict[str, Any]]) -> None:
        for n in range(4):
            write_json(tmp_path / "in" / f"{n}.jsonl", [*past[50 * n : 50 * n + 50], *(first if n == 0 else [])])

    write(future)
    result = init(tmp_path / "in")
    config = parse_config(parse_toml(result.stdout, "proposal"), tmp_path)
    assert "# Proposed by `sessionlake init` from 201 events" in result.stdout
    assert "# 2 events of the sample are further ahead of the clock than this." in result.stdout
    assert config.event.max_future_skew == "1 hour"
    write([future[1]])
    without = init(tmp_path / "in").stdout
    assert "# max_future_skew" in without
    assert grace_lines(result.stdout) == grace_lines(without) != []


def grace_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("grace") or line.endswith("%")]


def test_a_sample_of_the_future_alone_is_one_line(tmp_path: Path) -> None:
    write_json(tmp_path / "in.json", [{**row, "ts": int(time.time()) + 10**6 + n} for n, row in enumerate(ROWS)])
    result = init(tmp_path / "in.json")
    assert (result.exit_code, result.stderr) == (
        2,
        "sessionlake: --time: 'ts' is more than an hour ahead of the clock in each row of the sample; pass another column, or correct this machine's clock\n",
    )
    sample = read_sample(str(tmp_path / "in.json"), 1 << 20)
    measured = measure(sample, EventColumns("user_id", "ts", "s", None, (), sample.types))
    assert (measured.gap, measured.lateness.grace, measured.seen.ahead) == ("30 minutes", "1 day", 200)


def test_of_two_usual_names_of_keys_the_one_called_an_id_is_taken(tmp_path: Path) -> None:
    write_json(tmp_path / "in.json", [{**row, "device": f"d{n % 3}"} for n, row in enumerate(ROWS)])
    assert proposed(tmp_path / "in.json").event.key == "user_id"
    write_json(tmp_path / "two.json", [{**row, "device_id": f"d{n % 3}"} for n, row in enumerate(ROWS)])
    assert "pass --key with one of: user_id, device_id\n" in init(tmp_path / "two.json").stderr


def test_an_id_of_which_few_come_again_is_one_and_they_are_told(tmp_path: Path) -> None:
    write_json(tmp_path / "in.json", [*ROWS, *ROWS[:2]])
    result = init(tmp_path / "in.json")
    assert parse_config(parse_toml(result.stdout, "proposal"), tmp_path).event.id == "event_id"
    assert "# 0.99% of the rows have an id that came before." in result.stdout
    assert "no two rows" not in result.stdout
    write_json(tmp_path / "many.json", [*ROWS, *ROWS[:20]])
    assert proposed(tmp_path / "many.json").event.id is None


@pytest.mark.parametrize("ending", ["json", "csv"])
def test_text_that_is_numbers_but_for_a_few_is_told_and_not_counted(ending: str, tmp_path: Path) -> None:
    rows = [{**row, "load_ms": "n/a" if n == 7 else 1.5 * n} for n, row in enumerate(ROWS)]
    path = tmp_path / f"in.{ending}"
    if ending == "json":
        write_json(path, rows)
    else:
        texts = [{**row, "load_ms": str(row["load_ms"])} for row in rows]
        pa_csv.write_csv(pa.Table.from_pylist(texts), path)
    text = init(path).stdout
    config = parse_config(parse_toml(text, "proposal"), tmp_path)
    assert '# load_ms is text: 0.50% of its values are no numbers, for example "n/a".' in text
    assert '# load_ms_p95 = "percentile(load_ms, 0.95)"' in text
    assert set(config.aggregates) == {"page_distinct", "price_sum"}
    # What the comment says of such a type is so.
    types = {"user_id": pa.string(), "ts": pa.int64(), "load_ms": pa.float64()}
    kinds = EventColumns("user_id", "ts", "s", None, ("load_ms",), types)
    (decoded,) = decode(str(path), str(path), config.source.format, kinds)
    assert [n for n, error in enumerate(decoded.error.to_pylist()) if error] == [7]


def test_a_pipeline_is_called_as_the_file_that_is_written(tmp_path: Path) -> None:
    assert init(json_directory(tmp_path), "-o", tmp_path / "shop.toml").exit_code == 0
    assert 'name = "shop"' in (tmp_path / "shop.toml").read_text()


def test_in_a_project_a_pipeline_has_the_projects_warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    json_directory(tmp_path)
    Path("lake").mkdir()
    Path("lake/project.toml").write_text('[pipeline]\nwarehouse = "../tables"\nshards = 2\n')
    for name, arguments in {"shop": [], "latest": ["--table"], "hours": ["--window", "hopping"]}.items():
        done = init("clicks", "-o", f"lake/{name}.toml", *arguments)
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout == (
            f"lake/{name}.toml: a pipeline of the project lake, with its tables in tables/{name}; "
            f"read it, then `sessionlake run lake/{name}.toml --once`\n"
        )
    configs = load_project("lake").configs
    assert {name: one.pipeline.warehouse for name, one in configs.items()} == {
        name: f"{tmp_path}/tables/{name}" for name in ("shop", "latest", "hours")
    }
    assert {one.pipeline.shards for one in configs.values()} == {2}
    assert {one.source.path for one in configs.values()} == {f"{tmp_path}/clicks"}
    monkeypatch.chdir("lake")
    printed = init("../clicks", "--name", "more")
    assert (printed.exit_code, "warehouse = " in printed.stdout, 'name = "more"' in printed.stdout) == (0, False, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--name", "Taken"], "pipeline.name: 'Taken' is the name of taken.toml, too; each pipeline of a project has its own, write another one"),
        (["--name", "outer"], "inner.toml:6: pipeline.warehouse: 'lake/outer/inner' is in the warehouse of new.toml, 'lake/outer'; use a folder outside of it"),
        (["--name", "9x"], "pipeline.name: '9x' must be letters, digits, _ and -; write for example 'clicks'"),
        (["--table"], "project.toml:5: quality.max_late: is unknown (did you mean 'max_age'?); remove it or correct its name"),
    ],
)  # fmt: skip
def test_what_the_project_would_refuse_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    json_directory(tmp_path)
    Path("project.toml").write_text('[pipeline]\nwarehouse = "lake"\n')
    assert init("clicks", "-o", "taken.toml").exit_code == 0
    inner = Path("taken.toml").read_text().replace("[pipeline]\n", '[pipeline]\nwarehouse = "lake/outer/inner"\n')
    Path("inner.toml").write_text(inner.replace('"taken"', '"inner"'))
    if "quality" in said:
        Path("project.toml").write_text('[pipeline]\nwarehouse = "lake"\n\n[quality]\nmax_late = 1\n')
    result = init("clicks", "-o", "new.toml", *arguments)
    assert (result.exit_code, result.stderr.replace(f"{tmp_path}/", "")) == (2, f"sessionlake: {said}\n")
    assert not Path("new.toml").exists()


def test_a_pipeline_is_not_written_in_the_place_of_a_projects_defaults(tmp_path: Path) -> None:
    result = init(json_file(tmp_path), "-o", tmp_path / "project.toml")
    said = "would have the defaults of a project, not a pipeline; pass another file\n"
    assert (result.exit_code, result.stderr) == (2, f"sessionlake: -o: '{tmp_path}/project.toml' {said}")
    assert not (tmp_path / "project.toml").exists()


def test_ids_of_19_digits_are_the_key_and_keep_every_digit(tmp_path: Path) -> None:
    ids = [1588987262754234368, 1588987262754234369, 1588987262754234400]
    lines = [f"{ids[n % 3]},2026-11-29 06:00:{n:02d} UTC,{n}" for n in range(30)]
    (tmp_path / "messages.csv").write_text("\n".join(["author_id,sent_at,chars", *lines]) + "\n")
    result = init(tmp_path / "messages.csv")
    assert "They are of 3 keys," in result.stdout
    config = proposed(tmp_path / "messages.csv")
    assert (config.event.key, config.event.time, config.source.types["author_id"]) == ("author_id", "sent_at", "long")


def test_a_key_that_is_named_is_text_if_doubles_would_merge_its_values(tmp_path: Path) -> None:
    lines = [f"{('1.1', '1.10')[n % 2]},{START + n},{n}.5" for n in range(30)]
    (tmp_path / "builds.csv").write_text("\n".join(["version,ts,seconds", *lines]) + "\n")
    result = init(tmp_path / "builds.csv", "--key", "version")
    assert "They are of 2 keys," in result.stdout
    assert parse_toml(result.stdout, "proposal")["source"]["types"] == {
        "version": "string", "ts": "long", "seconds": "double"
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_decimals_without_a_fraction_are_whole_numbers_and_check_takes_the_config(kind: str, tmp_path: Path) -> None:
    number, place = pa.decimal128(38, 0), tmp_path / "orders"
    rows = pa.table(
        {
            "USER_ID": pa.array([Decimal(n % 4 + 1) for n in range(60)], number),
            "EVENT_TS": pa.array([(START + 40 * n) * 1000 for n in range(60)], pa.timestamp("ms")),
            "LOADED_AT": pa.array([Decimal((START + 40 * n) * 1000) for n in range(60)], number),
            "QTY": pa.array([Decimal(n) for n in range(60)], number),
            "ORDER_ID": pa.array([Decimal(10**30 + n) for n in range(60)], number),
            "PAGE": ["/a" if n % 2 else "/b" for n in range(60)],
        }
    )
    if kind == "delta":
        write_deltalake(place, rows)
    else:
        place.mkdir()
        pq.write_table(rows, place / "data_0.parquet")
    for more in ((), ("--time", "LOADED_AT"), ("--table",)):
        file = tmp_path / f"orders{len(more)}.toml"
        assert init(place, "--time", "EVENT_TS", "-o", file, *more).exit_code == 0
        made = parse_toml(file.read_text(), "proposal")
        assert made["event"]["key"] == "USER_ID"
        assert made["event"]["id"] == "ORDER_ID"
        if "table" not in made:
            assert made["aggregates"]["QTY_sum"] == "sum(cast(QTY as double))"
        if "LOADED_AT" in more:
            assert made["event"]["time_unit"] == "ms"
        assert sessionlake.check(file).problems == ()


def test_epochs_in_texts_are_times_of_a_unit(tmp_path: Path) -> None:
    rows = [{"user_id": f"u{n % 3}", "event_timestamp": f"{(START + 60 * n) * 10**6}", "n": f"{n}"} for n in range(30)]
    write_json(tmp_path / "ga4.json", rows)
    made = parse_toml(init(tmp_path / "ga4.json").stdout, "proposal")
    assert (made["event"]["time"], made["event"]["time_unit"]) == ("event_timestamp", "us")
    assert made["source"]["types"]["event_timestamp"] == "string"
    assert "from 2025-06-15 15:06:40" in init(tmp_path / "ga4.json").stdout
    result = init(tmp_path / "ga4.json", "--time", "n")
    assert result.stderr == "sessionlake: --time: 'n' holds no times; pass --time with one of: event_timestamp\n"
