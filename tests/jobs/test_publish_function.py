"""The function of [sink.python] gets each difference between two batches, at least once: put together they are the live view."""

import json
import re
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import sessionlake
from sessionlake.cli import main
from sessionlake.config.load import Config, load_config
from sessionlake.errors import ConfigError, FencedError, JobError, PipelineStateError
from sessionlake.jobs.compact import compact
from sessionlake.jobs.expire import expire
from sessionlake.jobs.forget import forget
from sessionlake.jobs.publish import Step, publish, sinks_of
from sessionlake.jobs.publish.function import DELETE, OP, Delivery, PythonFunction, position_of
from sessionlake.preflight.sinks import sink_problems
from sessionlake.stream.run import run
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.changelog import changelog_of
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import FIRST, SECOND, CrashError, crash_at, run_once
from tests.jobs.publish_support import trim, vacuum_changes, with_sink
from tests.operator_lake import OperatorLake
from tests.operators_table import LAKES
from tests.support import make_config, write_config, write_rows

UNSEEN = {"state", "final"}
"""Columns of a live view that the function does not get."""
CALLS: list[tuple[pa.Table, Delivery]] = []
FAILING: list[int] = []
"""The parts at which the function raises, each once."""


def on_rows(rows: pa.Table, delivery: Delivery) -> None:
    """Take rows, as a user's function does."""
    CALLS.append((rows, delivery))
    if delivery.part in FAILING:
        FAILING.remove(delivery.part)
        raise RuntimeError("no answer")


@pytest.fixture(autouse=True)
def calls() -> list[tuple[pa.Table, Delivery]]:
    CALLS.clear()
    FAILING.clear()
    return CALLS


def function(spark: SparkSession, config: Config) -> PythonFunction:
    return PythonFunction(Tables.of(spark, config), config)


def plain(value: Any) -> Any:
    if isinstance(value, (list, dict)):
        return json.dumps(value, default=str)
    return value.timestamp() if isinstance(value, datetime) else value


def put_together(config: Config) -> Counter[tuple[Any, ...]]:
    """Apply all calls one after the other to a plain dictionary, and check that it is the live view."""
    identity, rows = changelog_of(config).identity, dict[tuple[Any, ...], dict[str, Any]]()
    for table, delivery in CALLS:
        if delivery.after is None and delivery.part == 0:
            rows.clear()
        for row in table.to_pylist():
            op, key = row.pop(OP), tuple(map(plain, (row[name] for name in identity)))
            if op == DELETE:
                rows.pop(key, None)
            else:
                rows[key] = row
    live = sessionlake.read(config)
    if config.is_final("python"):
        last = find_last_batch(Lake.of(config))
        assert last is not None
        live = live.filter(config.section.final_sql(changelog_of(config).end, last.state))
    names = [name for name in live.columns if name not in UNSEEN]
    shown = ", ".join(f'"{name}"' for name in names)
    found = Counter(tuple(plain(row[name]) for name in names) for row in rows.values())
    assert found == Counter(tuple(map(plain, row)) for row in live.select(shown).fetchall())
    return found


def called(lake: OperatorLake, emit: str) -> Config:
    return with_sink(lake, f"[sink.python]\ncall = '{__name__}:on_rows'\nemit = '{emit}'\nmax_rows = 7", emit)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAKES)
def test_differences_put_together_are_the_live_view(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for emit in ("changes", "final"):
        CALLS.clear()
        lake = LAKES[name](tmp_path / emit / "lake", tmp_path / emit / "events")
        if emit == "final" and not lake.config.section.facts.closes:
            continue
        config, sent = called(lake, emit), 0
        for number, files in enumerate((FIRST, SECOND)):
            lake.write_files(files)
            run_once(spark, lake)
            for point in ("function_read", "function_called"):
                with crash_at(monkeypatch, point), pytest.raises(CrashError):
                    function(spark, config).step()
                found = position_of(Tables.of(spark, config), config)
                assert (0 if found is None else found.step) == number
            assert function(spark, config).step() is not None
            assert function(spark, config).step() is None
            sent += len(put_together(config))
            assert all(0 < rows.num_rows <= 7 for rows, _ in CALLS)
            if number == 0:
                compact(spark, lake.config)
                lake.correct(spark)
        assert sent


def small(root: Path, **sections: Any) -> Config:
    root.mkdir(exist_ok=True)
    session = {"gap": "10 seconds", "grace": "1 minute", "retention": "1 hour"}
    sink = {"python": {"call": f"{__name__}:on_rows", **sections.pop("python", {})}}
    return make_config(root, **{"session": session, "sink": sink, **sections})


def ran(spark: SparkSession, config: Config, name: str, *rows: tuple[str, int]) -> None:
    """Run a batch of events."""
    events = [{"key": key, "time_us": second * 1_000_000, "v": 1} for key, second in rows]
    write_rows(Path(config.directory), name, events)
    run(spark, config, once=True)


def test_steps_bring_the_rows_that_changed_and_a_failed_one_comes_again(spark: SparkSession, tmp_path: Path) -> None:
    config = small(tmp_path, python={"max_rows": 2})
    ran(spark, config, "a", ("ann", 100), ("bob", 100), ("bob", 115), ("cid", 1))
    steps: list[tuple[str, Step]] = []
    publish(spark, config, once=True, on_step=lambda name, step: steps.append((name, step)))
    assert steps == [("python", Step(0, None))]
    assert [(rows.num_rows, delivery) for rows, delivery in CALLS] == [
        (2, Delivery("test", 0, None, 0)),
        (2, Delivery("test", 0, None, 1)),
    ]
    assert sum(put_together(config).values()) == 4

    # Bob's two sessions become one, and Ann's grows.
    ran(spark, config, "b", ("ann", 105), ("bob", 108))
    CALLS.clear()
    FAILING.append(1)
    with pytest.raises(
        JobError,
        match=r"^sink.python: \S+:on_rows raised RuntimeError at test_publish_function.py:\d+, at batch 1; correct it and start again: the step's rows come again$",
    ):
        publish(spark, config, once=True)
    first = sum(rows.num_rows for rows, _ in CALLS)
    publish(spark, config, once=True)
    assert [delivery.after for _, delivery in CALLS] == [0] * len(CALLS)
    again = [row for rows, _ in CALLS for row in rows.to_pylist()][first:]
    assert sorted((row[OP], row["session_key"]) for row in again) == [
        ("delete", "bob"),
        ("upsert", "ann"),
        ("upsert", "bob"),
    ]
    CALLS.clear()
    publish(spark, config, once=True)
    assert CALLS == []
    publish(spark, config, once=True, resync=True)
    assert {delivery.after for _, delivery in CALLS} == {None}
    assert sum(put_together(config).values()) == 3


@pytest.mark.slow
def test_a_function_that_wants_changes_alone_begins_with_the_next_batch(spark: SparkSession, tmp_path: Path) -> None:
    config = small(tmp_path, python={"first": "none"})
    ran(spark, config, "a", ("ann", 100), ("bob", 100))
    publish(spark, config, once=True)
    assert CALLS == []
    ran(spark, config, "b", ("ann", 105))
    publish(spark, config, once=True)
    assert [(rows["session_key"].to_pylist(), delivery.after) for rows, delivery in CALLS] == [(["ann"], 0)]
    # What is left of a pipeline that was built anew is no step to go on from.
    other = small(tmp_path / "other")
    ran(spark, other, "a", ("ann", 100))
    folder = Path(f"{config.checkpoint}-publish/python")
    (file,) = (path for path in folder.iterdir() if path.name.isdigit())
    moved = Path(f"{other.checkpoint}-publish/python", "1")
    moved.parent.mkdir(parents=True)
    moved.write_text(file.read_text())
    with pytest.raises(PipelineStateError, match=r"has the rows of another 'test', which was rebuilt .* --resync`$"):
        publish(spark, other, once=True)


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True])
def test_a_step_that_was_begun_is_made_to_its_end_before_later_batches(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    config = small(tmp_path)
    ran(spark, config, "a", ("ann", 100), ("bob", 100))
    publish(spark, config, once=True)
    ran(spark, config, "b", ("bob", 115))
    if fails:
        FAILING.append(0)
        with pytest.raises(JobError, match="raised RuntimeError"):
            publish(spark, config, once=True)
    else:
        with crash_at(monkeypatch, "function_called"), pytest.raises(CrashError):
            function(spark, config).step()
    # Bob's second session is in no difference of the batches 0 and 2: it came and went between.
    ran(spark, config, "c", ("bob", 108))
    assert publish(spark, config, once=True).steps == 1
    assert [(delivery.after, delivery.batch_id) for _, delivery in CALLS] == [(None, 0), (0, 1), (0, 1), (1, 2)]
    assert sum(put_together(config).values()) == 2
    assert {path.name for path in Path(f"{config.checkpoint}-publish/python").iterdir() if path.suffix != ".crc"} == {
        "3"
    }


@pytest.mark.slow
def test_of_two_followers_neither_takes_the_position_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(tmp_path, python={"first": "none"})
    ran(spark, config, "a", ("ann", 100))
    publish(spark, config, once=True)
    ran(spark, config, "b", ("bob", 115))
    with crash_at(monkeypatch, "function_called", action=lambda: function(spark, config).step() and None):
        function(spark, config).step()  # both make the same step
    ran(spark, config, "c", ("cid", 300))

    def go_on() -> None:
        function(spark, config).step()
        ran(spark, config, "d", ("dan", 400))
        function(spark, config).step()

    with (
        crash_at(monkeypatch, "function_called", action=go_on),
        pytest.raises(FencedError, match="another process serves"),
    ):
        function(spark, config).step()
    assert position_of(Tables.of(spark, config), config).seen.batch_id == 3  # type: ignore[union-attr]
    CALLS.clear()
    ran(spark, config, "e", ("eve", 500))
    publish(spark, config, once=True)
    assert [row["session_key"] for rows, _ in CALLS for row in rows.to_pylist()] == ["eve"]


@pytest.mark.slow
def test_a_log_that_does_not_reach_back_brings_all_rows(spark: SparkSession, tmp_path: Path) -> None:
    config = small(tmp_path)
    ran(spark, config, "a", ("ann", 100), ("bob", 100))
    publish(spark, config, once=True)
    for number in range(3):
        ran(spark, config, f"b{number}", ("bob", 200 + 100 * number))
    tables = Tables.of(spark, config)
    changelog = tables[tables.changelog.changes]
    changelog.checkpoint()
    for file in Path(changelog.uri, "_delta_log").iterdir():  # as Delta cleans its log up
        number = file.name.lstrip(".").partition(".")[0]
        if number.isdigit() and int(number) <= changelog.latest_version() - 2:
            file.unlink()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    publish(spark, config, once=True)
    assert CALLS[-1][1].after is None
    assert sum(put_together(config).values()) == 5


@pytest.mark.slow
def test_no_rows_at_all_are_one_call_that_says_so(spark: SparkSession, tmp_path: Path) -> None:
    config = small(tmp_path)
    ran(spark, config, "a", ("ann", 100))
    publish(spark, config, once=True)
    expire(spark, config, where="true")
    run(spark, config, once=True)
    CALLS.clear()
    publish(spark, config, once=True, resync=True)
    ((rows, delivery),) = CALLS
    assert (rows.num_rows, delivery.after) == (0, None)
    assert {"op", "session_key", "total"} <= {*rows.column_names}


@pytest.mark.slow
def test_a_function_can_neither_end_publish_quietly_nor_tell_a_key(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(tmp_path)
    ran(spark, config, "a", ("ann", 100))
    for error in (SystemExit(0), KeyError("ann")):

        def raises(*_: Any, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr(sys.modules[__name__], "on_rows", raises)
        with pytest.raises(
            JobError, match=rf"raised {type(error).__name__} at test_publish_function.py:\d+, at"
        ) as found:
            publish(spark, config, once=True)
        assert "ann" not in str(found.value)


@pytest.mark.slow
def test_after_changes_that_are_gone_all_rows_come_again(spark: SparkSession, tmp_path: Path) -> None:
    config = small(tmp_path, compact={"safety": "0 seconds"})
    ran(spark, config, "a", ("ann", 0))
    publish(spark, config, once=True)
    ran(spark, config, "b", ("ann", 5), ("bob", 0))
    trim(spark, config)
    ran(spark, config, "c", ("cid", 6))
    vacuum_changes(config)
    CALLS.clear()
    assert publish(spark, config, once=True).steps == 1
    assert {delivery.after for _, delivery in CALLS} == {None}
    assert sum(put_together(config).values()) == 3


@pytest.mark.slow
def test_forget_waits_until_the_function_has_the_deletes(spark: SparkSession, tmp_path: Path) -> None:
    config = small(tmp_path)
    ran(spark, config, "a", ("ann", 100), ("bob", 100))
    publish(spark, config, once=True)
    with pytest.raises(JobError, match="publish"):
        forget(spark, config, ["ann"])
    CALLS.clear()
    publish(spark, config, once=True)
    assert [(row[OP], row["session_key"]) for rows, _ in CALLS for row in rows.to_pylist()] == [("delete", "ann")]
    forget(spark, config, ["ann"])


def test_a_function_with_other_parameters_is_told(tmp_path: Path) -> None:
    def on_batch(rows: pa.Table) -> None:
        del rows

    to: Any = PythonFunction(cast("Any", None), small(tmp_path))
    vars(to)["function"] = on_batch
    with pytest.raises(
        JobError, match=r"raised TypeError: .*takes 1 positional argument but 2 were given, at batch 7;"
    ):
        to._call(pa.table({}), Delivery("p", 7, None, 0))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("on_rows", "sink.python.call: 'on_rows' is no import path; write 'package.module:function', for example"),
        ("alerts:on_rows()", "sink.python.call: 'alerts:on_rows()' is no import path"),
    ],
)
def test_a_path_of_no_function_is_told_by_the_config(tmp_path: Path, call: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        small(tmp_path, python={"call": call})
    assert str(error.value).startswith(told)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (None, r"can't be loaded \(ModuleNotFoundError: No module named 'no_alerts'\)"),
        ("x = 1\n", r"can't be loaded \(AttributeError: module 'no_alerts' has no attribute 'on_rows'\)"),
        ("on_rows = 3\n", r"can't be called; name a function, `def on_rows\(rows, delivery\):`$"),
        ("x = 1\n1 / 0\n", r"can't be loaded \(ZeroDivisionError: division by zero at no_alerts.py:2\)"),
    ],
)
def test_check_says_that_a_function_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str | None, told: str
) -> None:
    monkeypatch.delitem(sys.modules, "no_alerts", raising=False)
    monkeypatch.setattr("sys.path", [*sys.path])
    if code is not None:
        (tmp_path / "no_alerts.py").write_text(code)
    config = small(tmp_path, python={"call": "no_alerts:on_rows"}, pipeline={"code": str(tmp_path)})
    (problem,) = sink_problems(config)
    assert problem.key == "sink.python.call"
    assert re.search(f"'no_alerts:on_rows' {told}", problem.message), problem.message


@pytest.mark.slow
def test_the_command_names_the_sink(spark: SparkSession, tmp_path: Path) -> None:
    config = small(tmp_path)
    ran(spark, config, "a", ("ann", 100))
    session = {"gap": "10 seconds", "grace": "1 minute", "retention": "1 hour"}
    file = write_config(tmp_path, session=session, sink={"python": {"call": f"{__name__}:on_rows"}})
    assert sinks_of(load_config(file)) == ["python"]
    done = CliRunner().invoke(main, ["publish", str(file), "--once", "--only", "python"])
    assert (done.exit_code, done.stdout) == (0, "python at batch 0  all rows sent\n1 steps\n"), done.output
