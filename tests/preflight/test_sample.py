"""`check` tries the first rows of each source: which would be dead letters, and why; look-ups; nothing hangs."""

import gzip
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from sessionlake.config.load import load_config
from sessionlake.config.problems import InvalidConfigError
from sessionlake.preflight import sample, sources
from sessionlake.preflight.check import check, require_ready
from sessionlake.preflight.checks import problems_of_pipeline
from sessionlake.preflight.lookups import lookup_problems
from sessionlake.preflight.needs import OF_CHECK
from sessionlake.warehouse import lake as opened_module
from tests.cli.support import Project

DEAD = "would be dead letters"
ROW = {"user": "u", "time": 1_700_000_000, "v": 1, "page": {"url": "/p"}, "type": "click"}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    found = Project(tmp_path / "project")
    write(found, [ROW] * 3)
    return found


def write(project: Project, rows: list[Any], name: str = "0.json") -> None:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (project.root / "events" / name).write_text("".join(f"{line}\n" for line in lines))


def told(project: Project) -> str:
    return check(project.path).summary["sample"].replace(str(project.root), "")


def problem(project: Project) -> tuple[str | None, str]:
    (found,) = check(project.path).problems
    assert found.line is not None
    return found.key, found.message.replace(str(project.root), "")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "count_distinct(get_json_object(page, '$.url'))",
            "'page' is of type struct<url: string>, where string is needed; read a field, as page.url",
        ),
        (
            "first(page)",
            "a column of type struct<url: string> can't be aggregated; name a field or an element",
        ),
    ],
)
def test_an_object_that_is_read_as_a_whole_is_told(project: Project, text: str, told: str) -> None:
    project.edit('"sum(v)"', f'"{text}"')
    key, message = problem(project)
    assert key == "aggregates.total"
    assert message.startswith(told)


def test_a_field_of_an_object_is_read(project: Project) -> None:
    project.edit('"sum(v)"', '"count_distinct(page.url)"')
    assert not check(project.path).problems


def test_a_class_without_names_is_given_objects(project: Project) -> None:
    (project.root / "rules.py").write_text(
        "class Rows:\n    initializer = staticmethod(int)\n"
        "    def aggregator(self, key, value, aggregate):\n        return aggregate + 1\n"
        "    def merger(self, key, left, right):\n        return left + right\n"
    )
    project.edit('"sum(v)"', '"rules:Rows"')
    project.edit("shards = 2", 'shards = 2\ncode = "."')
    assert not check(project.path).problems


def test_a_class_that_raises_at_each_row_is_told(project: Project) -> None:
    (project.root / "rules.py").write_text(
        "class Raises:\n    columns = ('v',)\n    initializer = staticmethod(int)\n"
        "    def aggregator(self, key, value, aggregate):\n        return aggregate / 0\n"
        "    def merger(self, key, left, right):\n        return left + right\n"
    )
    project.edit('"sum(v)"', '"rules:Raises"')
    project.edit("shards = 2", 'shards = 2\ncode = "."')
    key, message = problem(project)
    assert key == "aggregates.total"
    assert "aggregate total raised ZeroDivisionError: division by zero (0.json:1); correct the class" in message


def test_a_column_without_times_is_told(project: Project) -> None:
    project.edit('time = "time"', 'time = "type"')
    key, message = problem(project)
    why = "unparsable time: 'click' (0.json:1); name a column of times, or write its time_unit"
    assert (key, message) == ("event.time", f"3 of the first 3 rows of '/events' {DEAD}: {why}")


def test_most_rows_are_a_warning_and_few_are_in_the_summary(project: Project) -> None:
    write(project, [{**ROW, "user": None}] * 2 + [ROW])
    found = check(project.path)
    assert found.ok
    assert [one.key for one in found.warnings] == ["event.key"]
    assert f"2 of the first 3 rows of '{project.root}/events' {DEAD}: null key (0.json:1)" in found.warnings[0].message
    write(project, [{**ROW, "user": None}, "no JSON", ROW, ROW, ROW])
    assert (
        told(project)
        == "of the first 5 rows of /events: 3 events, 2 dead letters (bad JSON: "[:49] + told(project)[49:]
    )
    assert not check(project.path).warnings


def test_the_first_thousand_rows_are_those_of_the_oldest_files(project: Project) -> None:
    write(project, [ROW] * 700)
    write(project, [{**ROW, "user": ""}] * 700, "1.json")
    os.utime(project.root / "events" / "1.json", (1, 1))
    found = check(project.path)
    assert "700 of the first 1,000 rows" in found.warnings[0].message
    assert found.summary["sample"].endswith("300 events, 700 dead letters (empty key (1.json:1))")


def test_filtered_rows_and_duplicates_are_counted(project: Project) -> None:
    project.edit("[session]", 'where = "v < 3"\nid = "v"\nunique_for = "2 hours"\n[session]')
    write(project, [{**ROW, "v": number % 4} for number in range(8)])
    assert told(project) == "of the first 8 rows of /events: 3 events, 2 filtered, 3 duplicates"
    assert check(project.path).summary["where"] == "v < 3; other rows are filtered, and counted"
    assert "within 2 hours" in check(project.path).summary["once"]


def test_rows_that_are_filtered_do_not_hide_that_the_others_are_dead_letters(project: Project) -> None:
    project.edit("[session]", 'where = "v < 3"\n[session]')
    write(project, [{**ROW, "v": number, "user": None} for number in range(50)])
    key, message = problem(project)
    assert (key, message.partition(":")[0]) == (
        "event.key",
        f"3 of the first 50 rows of '/events' (47 are filtered) {DEAD}",
    )


def test_no_row_that_passes_is_a_warning(project: Project) -> None:
    project.edit("[session]", 'where = "v > 3"\n[session]')
    (warning,) = check(project.path).warnings
    assert (warning.key, warning.message) == (
        "event.where",
        "none of the first 3 rows passes it; compare it with the rows",
    )


def test_run_does_not_try_rows(project: Project) -> None:
    project.edit('time = "time"', 'time = "type"')
    require_ready(load_config(project.path), project.path)


@pytest.mark.parametrize("form", ["json", "csv", "parquet"])
def test_every_format_also_compressed(project: Project, form: str) -> None:
    (project.root / "events" / "0.json").unlink()
    project.edit('format = "json"', f'format = "{form}"')
    at = project.root / "events" / {"json": "0.json.gz", "csv": "0.csv.gz", "parquet": "0.parquet"}[form]
    if form == "parquet":
        pq.write_table(pa.table({"user": ["u"] * 2500, "time": ["soon"] * 2500, "v": range(2500)}), at)
    else:
        rows = '{"user": "u", "time": "soon", "v": 1}\n' if form == "json" else "u,soon,1\n"
        with gzip.open(at, "wt") as file:
            file.write(("user,time,v\n" if form == "csv" else "") + rows * 2500)
    _, message = problem(project)
    line = 2 if form == "csv" else 1
    assert f"1,000 of the first 1,000 rows of '/events' {DEAD}: unparsable time: 'soon' ({at.name}:{line})" in message


def of_table(project: Project, kind: str, rows: pa.Table) -> None:
    configuration = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(project.root / "events" / "t", rows, mode="overwrite", configuration=configuration)
    project.edit('kind = "files"', f'kind = "{kind}"')
    project.edit('path = "events"', 'path = "events/t"')
    project.edit('format = "json"\n', "")


@pytest.mark.parametrize("kind", ["delta", "change_feed"])
def test_rows_of_a_table(project: Project, kind: str) -> None:
    times = pa.array([1_700_000_000, None, None], pa.int64())
    of_table(project, kind, pa.table({"user": ["u", "u", "v"], "time": times, "v": [1, 2, 3]}))
    if kind == "change_feed":
        project.edit("[session]\n", "[group]\n")
        for line in ('gap = "30 minutes"\n', 'grace = "10 minutes"\n', 'retention = "2 hours"\n'):
            project.edit(line, "")
    assert told(project) == "of the first 3 rows of /events/t: 1 event, 2 dead letters (null time)"


def test_a_table_whose_every_row_is_refused(project: Project) -> None:
    of_table(project, "delta", pa.table({"user": ["u"] * 1500, "time": ["x"] * 1500, "v": range(1500)}))
    key, message = problem(project)
    assert key == "event.time"
    assert f"1,000 of the first 1,000 rows of '/events/t' {DEAD}: unparsable time: 'x'" in message


def test_rows_of_many_bytes_are_fewer(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "_MOST_BYTES", 1000)
    rows = {"user": ["u" * 100] * 50, "time": [1_700_000_000] * 50, "v": range(50)}
    of_table(project, "delta", pa.table(rows))
    assert told(project) == "of the first 16 rows of /events/t: 16 events"


def test_a_warning_about_types_comes_once(project: Project, caplog: pytest.LogCaptureFixture) -> None:
    write(project, ['{"user": 0.12345678901234567890, "time": 1700000000, "v": 1}'] * 2)
    assert told(project) == "of the first 2 rows of /events: 2 events"
    assert len([record for record in caplog.records if "is read as text" in record.getMessage()]) == 1


def test_a_source_without_rows(project: Project) -> None:
    write(project, [])
    key, message = problem(project)
    assert (key, message) == (
        "source.path",
        "the json files in '/events' have no rows to learn the columns from; add one that has, or declare [source.types]",
    )
    project.edit("[event]", '[source.types]\nuser = "string"\ntime = "long"\nv = "long"\n[event]')
    assert told(project) == "none: the source has no rows yet"


def test_bytes_and_long_lines(project: Project) -> None:
    project.edit('format = "json"', 'format = "json"\nmax_line_bytes = 100000')
    write(project, [{**ROW, "x": "x" * 20_000_000}, ROW])
    assert "1 event, 1 dead letter (line too long: 20000" in told(project)
    (project.root / "events" / "0.json").write_bytes(bytes(range(256)) * 1000)
    assert "no readable json file" in problem(project)[1]


def test_files_elsewhere_are_not_looked_at(project: Project) -> None:
    project.edit('path = "events"', 'path = "s3://bucket/events"')
    project.edit("[event]", '[source.types]\nuser = "string"\ntime = "long"\nv = "long"\n[event]')
    assert told(project) == "none: its files are not on this machine"


def test_a_class_that_hangs_does_not_hang_a_check(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "SECONDS", 0.3)
    monkeypatch.setattr(sample, "_try", lambda *_: time.sleep(3))
    began = time.monotonic()
    assert told(project) == "none: the source gave no rows within 0 seconds"
    assert time.monotonic() - began < 2.5


def test_what_a_class_prints_is_not_in_the_json(project: Project) -> None:
    (project.root / "loud.py").write_text(
        "class Loud:\n    columns = ('v',)\n    initializer = staticmethod(int)\n"
        "    def aggregator(self, key, value, aggregate):\n        print('loud')\n        return aggregate + 1\n"
        "    def merger(self, key, left, right):\n        return left + right\n"
    )
    project.edit('"sum(v)"', '"loud:Loud"')
    project.edit("shards = 2", 'shards = 2\ncode = "."')
    result = project.call("check", "--format", "json")
    assert json.loads(result.stdout)["summary"]["sample"].endswith("3 events")


LOOKUP = '[[lookup]]\nname = "users"\npath = "users"\non = "user = id"\ncolumns = ["plan"]\n'


def with_lookup(project: Project, more: str = "") -> None:
    project.path.write_text(f"{project.path.read_text()}{LOOKUP}{more}")


def users(project: Project, *ids: str) -> None:
    write_deltalake(project.root / "users", pa.table({"id": list(ids), "plan": ["pro"] * len(ids)}), mode="overwrite")


def test_a_table_to_look_up_that_is_missing_is_one_line(project: Project) -> None:
    with_lookup(project)
    assert problem(project) == (
        "lookup.users.path",
        "'/users' is no readable Delta table; create it or correct the path",
    )
    with pytest.raises(InvalidConfigError, match=r"lookup\.users\.path: '.*/users' is no readable Delta table"):
        require_ready(load_config(project.path), project.path)


def test_a_column_that_a_table_to_look_up_lacks_is_one_line(project: Project) -> None:
    users(project, "u")
    with_lookup(project)
    project.edit('["plan"]', '["plann"]')
    key, message = problem(project)
    assert key == "lookup.users.columns"
    assert message == "'plann' is no column of '/users' (did you mean 'plan'?); write one of id, plan"


def test_tables_of_which_batches_have_a_version_stop_a_check_only(project: Project) -> None:
    with_lookup(project)
    config = load_config(project.path)
    opened = sources.sources_without_spark(config)
    assert [one.key for one in lookup_problems(opened)] == ["lookup.users.path"]
    assert lookup_problems(opened, known={"users"}) == []
    assert [one.key for one in problems_of_pipeline(config, OF_CHECK)] == ["lookup.users.path"]


def test_rows_are_looked_up(project: Project) -> None:
    users(project, "u")
    with_lookup(project, 'missing = "dead_letter"\n')
    write(project, [ROW, {**ROW, "user": "eve"}, ROW])
    assert told(project) == "of the first 3 rows of /events: 2 events, 1 dead letter (no row in users (0.json:2))"
    users(project, "eve", "eve")
    assert problem(project) == (
        "lookup.users.path",
        "'/users' has 1 row with the key of another row; correct the table",
    )


def test_a_large_table_is_not_read_and_decides_nothing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessionlake.preflight.lookups._MOST_ROWS", 0)
    users(project, "x")
    with_lookup(project, 'missing = "dead_letter"\n')
    assert told(project) == "of the first 3 rows of /events: 3 events"
    project.edit("[session]", "where = \"users_plan = 'pro'\"\n[session]")
    assert told(project).startswith("none: the table of lookup 'users' is not read here")


TOPIC = 'kind = "kafka"\ntopic = "clicks"\nbootstrap_servers = "127.0.0.1:1"\n'


def of_topic(project: Project) -> None:
    project.edit('kind = "files"\npath = "events"\n', TOPIC)


def test_a_broker_that_does_not_answer_is_told_in_time(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_PATIENCE_S", 0.5)
    of_topic(project)
    began = time.monotonic()
    assert told(project).startswith("none: '127.0.0.1:1' does not answer (")
    assert time.monotonic() - began < 5


def test_a_topic_without_a_client_is_not_looked_at(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessionlake.extras.find_spec", lambda _: None)
    of_topic(project)
    assert "pip install 'sessionlake[kafka]'" in told(project)


def test_all_errors_that_do_not_depend_on_one_another_are_told_at_once(project: Project) -> None:
    project.edit("shards = 2", "shards = 0")
    project.edit("[session]", 'where = "lenght(v) > 3"\n[session]')
    project.edit('"sum(v)"', '"summ(v)"')
    found = check(project.path).problems
    assert [one.key for one in found] == ["pipeline.shards", "event.where", "aggregates.total"]
    assert [one.line for one in found] == [
        project.path.read_text().splitlines().index(line) + 1
        for line in ("shards = 0", 'where = "lenght(v) > 3"', 'total = "summ(v)"')
    ]
    assert "(did you mean 'sum'?)" in found[2].message


def test_a_sink_has_a_line(project: Project) -> None:
    project.path.write_text(f"{project.path.read_text()}[sink.delta]\npath = 'out'\n")
    found = check(project.path).summary
    assert found["publishes"] == f"`sessionlake publish` keeps them in the table {project.root}/out"
    assert "publish" not in found["writes"]


def test_a_table_is_read_without_a_change(project: Project) -> None:
    users(project, "u")
    with_lookup(project)
    before = DeltaTable(project.root / "users").version()
    check(project.path)
    assert DeltaTable(project.root / "users").version() == before
    assert not (project.root / "warehouse").exists()


def test_a_store_that_says_nothing_is_left_to_spark(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(opened_module._IMPATIENT, "timeout", "1s")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "x")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        project.edit(
            'kind = "files"\npath = "events"\nformat = "json"\n', 'kind = "delta"\npath = "s3://bucket/events"\n'
        )
        began = time.monotonic()
        assert told(project) == "none: only Spark can read the source"
    assert time.monotonic() - began < 20
