"""Each error of the standalone API is one line: what, which value, what to do."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sessionlake import CountWindows, HoppingWindows, SessionWindows, TumblingWindows
from sessionlake.errors import ConfigError, NotKeptError, SessionlakeError, StoreError, StoreHeldError
from sessionlake.standalone import Emit, JoinWindow, WindowedAggregator
from sessionlake.standalone.checkpoint import opened_database, read_checkpoint

WINDOWS = TumblingWindows.of("1 minute").until("1 hour")


def aggregator(path: Path, definition: Any = WINDOWS, **options: Any) -> WindowedAggregator:
    return WindowedAggregator(path, definition, {"total": "sum(v)"}, **options)


def join(path: Path, **options: Any) -> JoinWindow:
    sides = {"left": {"name": "a", "size": "1 minute"}, "right": {"name": "b", "size": "1 minute"}}
    return JoinWindow(path, **{"on": ["id"], "retention": "1 hour", **sides, **options})


def line(call: Callable[[], object], kind: type[SessionlakeError] = ConfigError) -> str:
    with pytest.raises(kind) as raised:
        call()
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_directory_is_open_once_and_of_no_use_when_closed(tmp_path: Path) -> None:
    path = tmp_path / "w"
    with aggregator(path) as run:
        told = line(lambda: aggregator(path), StoreHeldError)
        assert told == f"directory: {str(path)!r} is open, here or in another process; close that one first"
        run.add_message({"time_us": 1, "v": 1})
    told = line(lambda: run.add_message({"time_us": 1, "v": 1}), StoreError)
    assert told == f"directory: {str(path)!r} is closed; open it again"
    run.close()
    aggregator(path).close()


def test_a_directory_is_of_one_definition(tmp_path: Path) -> None:
    path = tmp_path / "w"
    with aggregator(path) as run:
        run.add_message({"time_us": 1, "v": 1})
        run.flush()
    was = f"directory: {str(path)!r} was made with "
    assert line(lambda: aggregator(path, emit=Emit(early="batch"))).startswith(f"{was}emit = {{'early': None, ")
    assert line(lambda: WindowedAggregator(path, WINDOWS, {"n": "count()"})) == (
        f"{was}aggregates = {{'total': 'sum(v)'}}, not {{'n': 'count()'}}; open it with that, or choose another directory"
    )
    assert line(lambda: aggregator(path, WINDOWS.until("2 hours"))).startswith(f'{was}windows = "TumblingWindows(')
    assert line(lambda: join(path)).startswith(was)
    assert line(lambda: aggregator(path, schema={"v": "double"})) == (
        f"schema: 'v' is double, and was int64 in {str(path)!r}; open it with that, or choose another directory"
    )
    aggregator(path, schema={"v": "long"}).close()


def test_the_settings_in_a_joins_directory_are_those_of_earlier_versions(tmp_path: Path) -> None:
    windows = {"kind": "tumbling", "size": "1 minute", "offset": "3 s", "retention": "1 hour", "schema": {"v": "long"}}
    emit = Emit(early="off", full="close", late="5 s", tick_offset="2 s")
    sides = {"left": {"name": "a"}, "right": {"name": "b", "columns": ["v"]}}
    with JoinWindow(tmp_path / "j", on=["id"], emit=emit, **windows, **sides) as run:
        run.flush()
    saved = read_checkpoint(opened_database(tmp_path / "j"), tmp_path, lambda made: made).definition
    assert saved == {
        "layout": 2,
        "on": [["id", "id"]],
        "by": "time",
        "kind": "tumbling",
        "left.name": "a",
        "right.name": "b",
        "right.columns": ["v"],
        "size": 60_000_000,
        "advance": 0,
        "offset": 3_000_000,
        "gap": 0,
        "idle_us": 60_000_000,
        "grace_us": 3_540_000_000,
        "retention_us": 3_600_000_000,
        "retention_count": 0,
        "emit": {"early": "off", "full": "close", "late": 5_000_000, "tick_offset": 2_000_000},
    }


def test_a_directory_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    assert "holds 'letter.txt' and is no store" in line(lambda: aggregator(tmp_path), StoreError)


def test_a_type_that_nobody_tells(tmp_path: Path) -> None:
    with aggregator(tmp_path / "w") as run:
        told = line(lambda: run.add_message({"time_us": 1, "v": None}))
        assert told == (
            "schema: 'v' has no value in the first message that would show its type; write schema={'v': 'double'}, or another type"
        )
        assert line(lambda: run.add_message({"time_us": 1, "v": object()})).startswith("schema: 'v' has no value")
        run.add_message({"v": 1})
        run.add_message({"time_us": 1, "v": 1.5})
        assert [row["reason"] for row in run.dead()] == ["null time"]
        assert run.get_windows(0, 0)[0]["total"] == 1.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"emit": Emit(early="1 minut")}, "emit.early: '1 minut' is no policy; write 'off' or 'batch', or a period as in '10 seconds'"),
        ({"emit": Emit(late="0 seconds")}, "emit.late: '0 seconds' is no period; write 'batch' to send changes with each batch"),
        ({"emit": Emit(full="now")}, "emit.full: 'now' is not allowed; write 'end' or 'close'"),
        ({"emit": Emit(full="close", late="batch")}, "emit.late: 'batch' does not go with full = 'close', "),
        ({"beyond_retention": "emit"}, "beyond_retention: 'emit' is unknown; write dead_letter or drop"),
        ({"keep_messages": 5}, "keep_messages: 5 is of windows by count; by time write True, for the retention"),
        ({"time": None}, "time: None goes with windows by count; write the column of the event time"),
        ({"schema": {"v": "int"}}, "schema: v: 'int' is no type; write "),
        ({"definition": WINDOWS.until("1 second")}, "until: '1 second' is shorter than size and grace ask for; write '1 minute' or longer"),
        ({"definition": HoppingWindows.of("1 minute", "2 minutes")}, "advance: '2 minutes' must be longer than zero and at most the size"),
        ({"definition": HoppingWindows.of("1 day", "1 s 1 us").until("2 days")}, "advance: '1 second 1 microsecond' cuts windows of '1 day' into "),
        ({"definition": CountWindows.of(3), "keep_messages": True}, "keep_messages: True says not how many; by count write "),
        ({"definition": CountWindows.of(3), "emit": Emit(late="batch")}, "emit.late: is not used with by = 'count'; remove it"),
        ({"definition": SessionWindows.with_gap("1 s"), "emit": Emit(early="batch")}, "emit: is of windows; sessions by time are sent with every change, leave it out"),
    ],
)  # fmt: skip
def test_aggregators_that_cannot_be(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    assert line(lambda: aggregator(tmp_path / "w", **options)).startswith(message)
    aggregator(tmp_path / "w").close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "outer"}, "kind: 'outer' is not allowed; write 'sliding', 'tumbling', 'hopping' or 'session'"),
        ({"retention": None}, "retention: is missing; joins by time need one"),
        ({"grace": "59 minutes"}, "retention: '1 hour' is shorter than sizes and grace ask for; write '1 hour 1 minute' or more"),
        ({"retention_count": 5, "left": {"name": "a"}}, "retention_count: is needed only with sizes on both sides, or with windows; here any stored message may have partners, remove it"),
        ({"left": {"name": "a", "size": 3}}, "left.size: '3' is not a duration; write a number and a unit, as in '30 minutes'"),
        ({"left": {"name": "b", "size": "1 s"}}, "right.name: 'b' is the left side's name too; write another one"),
        ({"left": {"size": "1 s"}}, "left.name: is missing; add it to the config"),
        ({"left": {"name": "a", "column": ["v"]}}, "left: 'column' is unknown; write name, size, columns and time"),
        ({"left": {"name": "a"}, "right": {"name": "b"}}, "right.size: 'unbounded' stands on both sides; write a length on one of them"),
        ({"left": {"name": "a", "size": "unbounded"}, "right": {"name": "b", "size": "unbounded"}}, "right.size: 'unbounded' stands on both sides; write a length on one of them"),
        ({"kind": "tumbling"}, "size: is missing; tumbling joins need one"),
        ({"gap": "1 s"}, "gap: is of other joins than sliding ones; remove it"),
        ({"on": ["= id"]}, "on: '= id' names no fields; write 'id', or 'order_id = id'"),
        ({"on": ["= join.id"]}, "on: '= join.id' names no fields; write 'id', or 'order_id = id'"),
        ({"emit": Emit(full="end", early="off")}, "emit.full: 'end' is of tumbling and hopping joins, and this one is sliding, "),
        ({"emit": Emit(full="now", early="off")}, "emit.full: 'now' is not allowed; write 'end' or 'close'"),
        ({"emit": Emit(early="off")}, "emit.early: 'off' sends no pair before its window is full; write emit.full = 'end' or 'close', too"),
        ({"emit": Emit(late="off")}, "emit.late: 'off' is no policy; write 'batch', or a period as in '10 seconds'"),
    ],
)  # fmt: skip
def test_joins_that_cannot_be(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    assert line(lambda: join(tmp_path / "w", **options)).startswith(message)


def test_windows_that_keep_nothing() -> None:
    assert line(lambda: WINDOWS.keep(0)) == "keep: 0 is too few events; write 1 or more"
    assert WINDOWS.keep(1).retention_count == 1


def test_calls_that_cannot_be(tmp_path: Path) -> None:
    import pyarrow as pa

    with aggregator(tmp_path / "w") as run, join(tmp_path / "j") as pairs:
        told = line(lambda: run.get_messages(0, 1), NotKeptError)
        assert told == "get_messages: no messages are kept; open a new directory with keep_messages=True"
        assert line(lambda: run.get_messages(0, 1, join_keys=[1])) == (
            "join_keys: [1] are of a JoinWindow; leave them out, or give session_key"
        )
        table = pa.table({"time_us": [1, 2], "v": ["a", "b"]})
        assert line(lambda: run.add_messages(table, positions=[1])) == (
            "positions: 1 are given for 2 messages; give one for each"
        )
        run.add_messages(pa.table({"time_us": [1], "v": [1]}))
        assert line(lambda: run.add_messages(table)).startswith("add_messages: column 'v' is string, which is no int64")
        missing = line(lambda: run.add_messages(pa.table({"v": [1]})))
        assert missing == "add_messages: column 'time_us' is missing; add it to the table"
        told = line(lambda: run.add_message({"time_us": 1, "v": 1}, partition=-1))
        assert told == "partition: -1 is no number of a partition; write one from 0 to 4194303"
        assert line(lambda: run.add_messages(table, partitions=[0, 1 << 30])).startswith("partition: 1073741824 is no ")
        assert run.counts["input"] == 1
        assert line(lambda: pairs.add_message("middle", {})) == "side: 'middle' is unknown; write left or right"
        told = line(lambda: pairs.get_messages("left", 0, 1, join_keys=[1, 2]))
        assert told == "join_keys: [1, 2] are 2 values, and `on` has 1 fields; give them in its order"


def test_importing_it_needs_none_of_the_heavy_packages() -> None:
    heavy = ("pyspark", "pydantic", "delta", "deltalake", "duckdb", "click")
    program = f"import sys; from sessionlake.standalone import Emit, JoinWindow, WindowedAggregator; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_time_that_python_has_no_date_for_is_a_dead_letter(tmp_path: Path) -> None:
    far = 300_000_000_000_000_000
    times = pa.array([60_000_000, far], pa.timestamp("us", "UTC"))
    with aggregator(tmp_path / "w") as run:
        run.add_messages(pa.table({"time_us": times, "v": [1, 2]}))
        assert (run.counts["accepted"], run.counts["dead"]) == (1, 1)
        time = "11476-08-15 05:20:00.000000Z"
        assert run.dead() == [{"message": {"time_us": time, "v": 2}, "reason": f"unparsable time: '{time}'"}]
