"""Dead letters that are read again: what now keeps the contract joins its session once, whatever is killed or repeated."""

import time
from collections import Counter
from dataclasses import replace
from hashlib import md5, sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionlake import read_sessions
from sessionlake.aggregates import build_aggregates
from sessionlake.config.load import Config
from sessionlake.errors import JobError, OvertakenError
from sessionlake.jobs.apply import apply_corrections
from sessionlake.jobs.redeem.job import _check_readable, redeem
from sessionlake.jobs.redeem.rows import judge_letters
from sessionlake.observe.status import read_status
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.rows import MAX_RAW_BYTES, raw_text
from sessionlake.sources.decoding.tables import TableDecoder
from sessionlake.sources.record_columns import KEY
from sessionlake.stream.capabilities import Redeeming
from sessionlake.stream.ingest import EventSpec
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import CrashError, crash_at
from tests.support import make_config, write_rows

HOUR = 3_600_000_000
FUTURE = "too far in the future"
ANY = [FUTURE, "beyond retention", "bad JSON", "wrong type"]


def spec_of(total: str = "sum(v)") -> Redeeming:
    types = {"k": pa.string(), "t": pa.int64(), "v": pa.int64()}
    columns = EventColumns("k", "t", "us", None, ("v",), types)
    aggregates = build_aggregates({"total": total}, types, with_id=False)
    return Redeeming(aggregates, EventSpec(TableDecoder(columns, None)))


def test_each_text_is_judged_as_the_row_it_was() -> None:
    texts = {
        '{"k": "a",\n "t": 100, "v": 1}': "redeemed",
        '{"k": "b", "t": 10, "v": 2}': "beyond_retention",
        '{"k": "c", "t": 999, "v": 3}': "refused",
        '{"k": null, "t": 100, "v": 4}': "refused",
        "{broken": "refused",
        " \n": "unreadable",
        raw_text(b'{"k": "' + b"x" * MAX_RAW_BYTES + b'", "t": 100}'): "unreadable",
        '{"k": "d", "t": 101, "v": 5}': "redeemed",
    }
    letters = pa.RecordBatch.from_pydict(
        {"letter": [str(i) for i in range(len(texts) + 1)], "batch_id": [7] * (len(texts) + 1), "raw": [*texts, None]}
    )
    judged = {row["letter"]: row for row in judge_letters(spec_of(), letters, 50, 500, {}).to_pylist()}
    assert [judged[str(i)]["outcome"] for i in range(len(texts) + 1)] == [*texts.values(), "unreadable"]
    taken = [judged["0"], judged["7"]]
    assert [(row["key"], row["event"]) for row in taken] == [("a", {"v": 1}), ("d", {"v": 5})]


def test_a_letter_at_which_a_users_class_raises_is_refused_alone() -> None:
    texts = [
        f'{{"k": "{key}", "t": {time}, "v": {value}}}'
        for key, time, value in (("a", 100, 1), ("b", 100, 0), ("c", 10, 0), ("d", 100, 5), ("e", 100, 0))
    ]
    letters = pa.RecordBatch.from_pydict({"letter": ["0", "1", "2", "3", "4"], "batch_id": [7] * 5, "raw": texts})
    judged = judge_letters(spec_of("tests.stream.raising:Raising"), letters, 50, 500, {}).to_pylist()
    outcomes = {row["letter"]: row["outcome"] for row in judged}
    assert outcomes == {"0": "redeemed", "1": "refused", "2": "beyond_retention", "3": "redeemed", "4": "refused"}


@pytest.fixture
def config(spark: SparkSession, tmp_path: Path) -> Config:
    """One session of now, and dead letters: two of one session in an hour, twice the same text, an old one, a broken one."""
    now = time.time_ns() // 1000
    ahead = [{"key": "a", "time_us": now + HOUR + i, "v": 10 + i} for i in range(2)]
    rows: list[Any] = [{"key": "a", "time_us": now, "v": 1}, *ahead, ahead[1], "{broken"]
    config = make_config(tmp_path, event={"max_future_skew": "1 minute"})
    write_rows(tmp_path, "0.json", rows)
    write_rows(tmp_path, "1.json", [{"key": "a", "time_us": now - HOUR, "v": 5}])
    run(spark, config, once=True)
    return make_config(tmp_path, event={"max_future_skew": "2 hours"})


def sessions(spark: SparkSession, config: Config) -> list[tuple[int, int]]:
    rows = read_sessions(spark, config).select("session_start", "event_count", "total").collect()
    return [(row["event_count"], row["total"]) for row in sorted(rows)]


@pytest.mark.slow
def test_letters_are_redeemed_once_though_a_run_is_killed(
    spark: SparkSession, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = Counter(
        row["reason"]
        for row in Tables(spark, config.pipeline.warehouse, CHANGELOG)[schemas.DEAD_LETTERS].read().collect()
    )
    assert (dead[FUTURE], dead["beyond retention"], dead.total()) == (3, 1, 5)
    with crash_at(monkeypatch, "redeem_before_corrections"), pytest.raises(CrashError):
        redeem(spark, config, reasons=[FUTURE], run_id="killed")
    report = redeem(spark, config, reasons=ANY, run_id="one")
    assert report.counts == {
        "dead_letters": 5,
        "redeemed": 3,
        "duplicates": 0,
        "beyond_retention": 1,
        "refused": 1,
        "unreadable": 0,
        "filtered": 0,
    }
    assert redeem(spark, config, reasons=[FUTURE], run_id="two").counts["dead_letters"] == 0
    assert apply_corrections(spark, config)
    assert sessions(spark, config) == [(1, 1), (3, 32)]
    assert read_status(config).reconciles


@pytest.mark.slow
def test_letters_that_an_earlier_release_has_redeemed_are_known(spark: SparkSession, config: Config) -> None:
    """It called a letter by an MD5, of which whoever sends events can make two texts."""
    assert redeem(spark, config, reasons=[FUTURE], run_id="one").counts["dead_letters"] == 3
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    texts = [
        "\0".join([str(row["batch_id"]), row["reason"], row["source"] or "", row["raw"]])
        for row in tables[schemas.DEAD_LETTERS].read().where(f"reason = '{FUTURE}'").collect()
    ]
    numbered = [(text, texts[:at].count(text) + 1) for at, text in enumerate(texts)]
    marks = tables[schemas.REDEEMED]
    names = {row["letter"] for row in marks.read().collect()}
    assert names == {f"{sha256(text.encode()).hexdigest()[:32]}-{number}" for text, number in numbered}
    once = {f"{md5(text.encode(), usedforsecurity=False).hexdigest()}-{number}" for text, number in numbered}
    for was, name in zip(sorted(names), sorted(once), strict=True):
        spark.sql(f"update {marks.sql_name()} set letter = '{name}' where letter = '{was}'")
    assert redeem(spark, config, reasons=[FUTURE], run_id="two").counts["dead_letters"] == 0


@pytest.mark.slow
def test_a_dry_run_counts_and_an_overtaken_run_ends(
    spark: SparkSession, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    dry = [redeem(spark, config, reasons=ANY, to_us=to, dry_run=True).counts["redeemed"] for to in (1, None)]
    assert dry == [0, 3]
    with crash_at(monkeypatch, "redeem_before_corrections"), pytest.raises(CrashError):
        redeem(spark, config, reasons=[FUTURE], run_id="killed")
    assert redeem(spark, config, reasons=ANY, run_id="one").counts["redeemed"] == 3
    with pytest.raises(OvertakenError, match="'killed' of redeem was overtaken"):
        redeem(spark, config, reasons=[FUTURE], run_id="killed")


def test_what_a_letter_does_not_hold_is_told(tmp_path: Path) -> None:
    config, plain = make_config(tmp_path), spec_of()
    columns = EventColumns(KEY, "t", "us", None, (), {KEY: pa.string(), "t": pa.int64()})
    by_record = replace(plain, events=EventSpec(TableDecoder(columns, None)))
    topic = {"kind": "kafka", "topic": "t", "format": "json"}
    cases: list[tuple[dict[str, Any], Redeeming, str]] = [
        ({"format": "csv"}, plain, "a dead letter of 'csv' lacks the header"),
        ({**topic, "format": "avro"}, plain, "a dead letter of 't' is Avro"),
        (topic, by_record, "a dead letter of 't' lacks the record's own columns"),
    ]
    for source, spec, told in cases:
        changed = config.model_copy(update={"source": config.source.model_copy(update=source)})
        with pytest.raises(JobError, match=told):
            _check_readable(changed, spec.columns)
    _check_readable(config, plain.columns)
