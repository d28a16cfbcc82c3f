"""A real stream and a query server beside it: each answer is the tables as of the batch that it names."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from sessionlake.config.load import Config, parse_config
from sessionlake.jobs.compact import compact
from sessionlake.stream.run import run
from tests.operators.joins.join_support import join_config, messages, write
from tests.serve.server_support import ask, serving
from tests.support import make_config, write_rows

GAP, RETENTION, KEYS = 10, 60, ["a", "é", "\U0001f600", "zz"]
FREE = {"requests_per_second": 100_000}


def config_of(root: Path, **sections: Any) -> Config:
    """The config of another operator than sessions."""
    raw = make_config(root).model_dump(include={"pipeline", "source", "event"}, exclude_none=True)
    return parse_config({**raw, **sections}, root)


def rows_of(config: Config, table: str) -> list[dict[str, Any]]:
    """The rows of a table, times in microseconds, by deltalake alone."""
    found = DeltaTable(f"{config.pipeline.warehouse}/{table}").to_pyarrow_table().to_pylist()
    return [{name: micros(value) for name, value in row.items()} for row in found]


def micros(value: Any) -> Any:
    return int(value.timestamp()) * 1_000_000 + value.microsecond if hasattr(value, "timestamp") else value


def folded(changes: list[dict[str, Any]], name: str, batch_id: int) -> list[dict[str, Any]]:
    """What the rows of a changelog, which have starts, fold to as of a batch, by a loop over them."""
    live: dict[Any, dict[str, Any]] = {}
    for row in sorted(changes, key=lambda row: row["batch_id"]):
        if row["batch_id"] <= batch_id:
            identity = (row[f"{name}_key"], row[f"{name}_start"])
            live.pop(identity, None)
            if row["op"] == "upsert":
                live[identity] = row
    return [live[identity] for identity in sorted(live, key=lambda of: (of[0].encode(), of[1]))]


def same(answer: dict[str, Any], expected: list[dict[str, Any]], name: str) -> bool:
    """Compare an answer's columns, which must be there, with rows."""
    rows = answer[name]
    return rows == [{column: row[column] for column in rows[0]} for row in expected] if rows else not expected


def check_tables(config: Config, rows: list[dict[str, Any]], watermark: int) -> None:
    """Ask a server that lacks a shard; rows are those of the last batch."""
    of_key = [row for row in rows if row["session_key"] == "é"]
    with serving(config, **FREE) as url:
        assert list(ask(url, "/v1/status")[1]["shards"]["missing"]) == ["0"]
        found: list[dict[str, Any]] = []
        cursor = None
        while cursor is not None or not found:
            answer = ask(url, "/v1/sessions", times="us", key_from="", limit=3, cursor=cursor)[1]
            assert (answer["served_by"], answer["batch_id"]) == ("delta", 4)
            found += answer["sessions"]
            cursor = answer["cursor"]
        assert same({"sessions": found}, rows, "sessions")
        answer = ask(url, "/v1/sessions", times="us", key="é", cold="true", order="desc", limit=50)[1]
        assert same(answer, of_key[::-1], "sessions")
        inner = of_key[1]["session_start"]
        answer = ask(url, "/v1/sessions", times="us", key="é", cold="true", from_=inner, to=inner)[1]
        assert same(answer, [of_key[1]], "sessions")
        answer = ask(url, "/v1/sessions", times="us", prefix="z")[1]
        assert same(answer, [row for row in rows if row["session_key"] == "zz"], "sessions")
        asked = {"keys": [*KEYS[::-1], "nobody"], "times": "us", "limit": len(rows) - 1}
        answer = ask(url, "/v1/sessions:batch", body=asked)[1]
        assert (answer["served_by"], same(answer, rows[:-1], "sessions")) == ("delta", True)
        assert same(
            ask(url, "/v1/sessions:batch", body={**asked, "cursor": answer["cursor"]})[1], rows[-1:], "sessions"
        )
        start = of_key[0]["session_start"]
        one = ask(url, "/v1/session", times="us", key="é", start=start, include="open")[1]
        assert same({"rows": [one["session"]]}, of_key[:1], "rows")
        longest = sorted(
            (row for row in rows if row["session_end"] >= watermark - 20 - GAP),
            key=lambda row: (
                row["session_start"] - row["session_end"],
                row["session_start"],
                row["session_key"].encode(),
            ),
        )
        assert longest
        assert same(ask(url, "/v1/open", times="us")[1], longest, "sessions")


@pytest.mark.slow
def test_each_answer_is_of_its_batch(spark: SparkSession, tmp_path: Path) -> None:
    specs = {"total": "sum(v)", "names": "collect(name, 2)", "first": "first(name)", "mean": "avg(v)"}
    config = make_config(tmp_path, aggregates=specs, session={"gap": f"{GAP} us", "grace": "20 us", "retention": f"{RETENTION} us"})  # fmt: skip
    for n in range(5):
        rows = [{"key": key, "time_us": 30 * n + 7 * at + m, "v": n + at, "name": f"n{m}"} for at, key in enumerate(KEYS[n % 2 :]) for m in range(3)]  # fmt: skip
        write_rows(tmp_path, f"{n}.json", rows)
    stopped = Event()

    def asking(url: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        found: list[tuple[dict[str, Any], dict[str, Any]]] = []
        ended = False
        while not ended:
            ended = stopped.is_set()  # once more then: of the last batch
            for asked in (*({"key": key} for key in KEYS), {"key_from": ""}, {"key": "a", "cold": "true"}):
                status, answer, _ = ask(url, "/v1/sessions", times="us", **asked)
                assert status in (200, 503), answer
                found += [(asked, answer)] if status == 200 else []
            stopped.wait(0.05)  # the stream is to get on, too
        return found

    with serving(config, **FREE) as url, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(asking, url)
        try:
            run(spark, config, once=True)
            last = ask(url, "/v1/sessions", key="a", min_batch_id=4, wait_ms=5000)
            assert (last[0], last[1]["batch_id"], last[1]["served_by"]) == (200, 4, "store")
        finally:
            stopped.set()
        answers = asked.result()
        watermarks = {row["batch_id"]: row["watermark"] for row in ask(url, "/v1/batches", times="us")[1]["batches"]}
        assert list(watermarks) == list(range(5))
        changes = rows_of(config, "session_changelog")
        states = {batch_id: folded(changes, "session", batch_id) for batch_id in watermarks}
        seen = set()
        for question, answer in answers:
            rows = states[answer["batch_id"]]
            if answer["served_by"] == "store":
                oldest = watermarks[answer["batch_id"]] - RETENTION
                rows = [row for row in rows if row["session_end"] + GAP >= oldest]
            asked_for = [row for row in rows if question.get("key") in (None, row["session_key"])]
            assert same(answer, asked_for, "sessions"), (question, answer)
            seen.add((answer["served_by"], answer["batch_id"]))
        assert {("store", 4), ("delta", 4)} <= seen
    # All of it again from the tables: one shard is gone; then folded into the snapshot, too.
    shutil.rmtree(Path(config.driver_store_dir, "0"))
    check_tables(config, states[4], watermarks[4])
    compact(spark, config)
    check_tables(config, states[4], watermarks[4])


def test_windows_and_rows_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    window = {"kind": "tumbling", "size": "10 us", "grace": "5 us", "retention": "1 hour"}
    for folder in ("w", "t"):
        (tmp_path / folder).mkdir()
    windows = config_of(tmp_path / "w", window=window, aggregates={"total": "sum(v)"})
    for n in range(2):
        write_rows(tmp_path / "w", f"{n}.json", [{"key": k, "time_us": 12 * n + 5 * m, "v": m} for k in KEYS for m in range(3)])  # fmt: skip
    run(spark, windows, once=True)
    with serving(windows, **FREE) as url:
        rows = folded(rows_of(windows, "window_changelog"), "window", 1)
        for key in KEYS:
            answer = ask(url, "/v1/windows", times="us", key=key)[1]
            assert (answer["served_by"], answer["batch_id"]) == ("delta", 1)
            assert len(answer["windows"]) > 1
            for row in answer["windows"]:
                row.pop("final")
            assert same(answer, [row for row in rows if row["window_key"] == key], "windows")
        assert ask(url, "/v1/open")[0] == 404
    table = config_of(tmp_path / "t", table={"columns": ["v"], "retention": "1 day"})
    write_rows(tmp_path / "t", "0.json", [{"key": key, "time_us": n, "v": n} for n, key in enumerate(KEYS)])
    run(spark, table, once=True)
    with serving(table, **FREE) as url:
        for shown in ("store", "delta"):
            answer = ask(url, "/v1/rows", times="us", key_from="", limit=3, cold=str(shown == "delta").lower())[1]
            assert [(row["table_key"], row["event_time"], row["v"]) for row in answer["rows"]] == [
                (key, KEYS.index(key), KEYS.index(key)) for key in sorted(KEYS, key=str.encode)[:3]
            ]
            assert (answer["served_by"], answer["batch_id"]) == (shown, 0)
            rest = ask(url, "/v1/rows", key_from="", cursor=answer["cursor"], cold=str(shown == "delta").lower())[1]
            assert [row["table_key"] for row in rest["rows"]] == sorted(KEYS, key=str.encode)[3:]
            both = ask(url, "/v1/rows:batch", body={"keys": ["zz", "a", "no"], "cold": shown == "delta"})[1]
            assert ([row["table_key"] for row in both["rows"]], both["served_by"]) == (["a", "zz"], shown)
        assert ask(url, "/v1/row", key="é")[1]["row"]["v"] == 1
        assert ask(url, "/v1/row", key="e")[0] == 404


@pytest.mark.slow
def test_pairs_of_a_join_page_by_page(spark: SparkSession, tmp_path: Path) -> None:
    config = join_config(tmp_path)
    for side, rows in messages(0).items():
        write(tmp_path, side, 0, rows)
    run(spark, config, once=True)
    named = ("join_time", "left_position", "right_position")
    pairs = [row for row in rows_of(config, "join_changelog") if row["op"] == "upsert"]
    pairs.sort(key=lambda row: (row["join_key"].encode(), *(row[name] for name in named)))
    assert len({row["join_key"] for row in pairs}) > 1
    with serving(config, **FREE) as url:
        found: list[dict[str, Any]] = []
        cursor = None
        while cursor is not None or not found:
            answer = ask(url, "/v1/joins", times="us", key_from="", limit=7, cursor=cursor)[1]
            found += answer["joins"]
            cursor = answer["cursor"]
        assert same({"joins": found}, pairs, "joins")
