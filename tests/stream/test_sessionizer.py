"""The sessionizer through real Spark and real Delta, against SQL over the same events and against the harness."""

import gzip
import json
import os
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionlake import read_sessions
from sessionlake.aggregates import build_aggregates
from sessionlake.aggregates.codec import StateCodec
from sessionlake.config.load import Config
from sessionlake.errors import PipelineStateError
from sessionlake.observe.status import read_status
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.stream.run import run
from sessionlake.testing import SessionizerHarness
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.tables import Tables
from tests.support import make_config, write_rows

COMMITS = Path(__file__).parents[2] / "src" / "sessionlake" / "examples" / "commits"

SESSIONIZE = """
with e as (select author k, epoch_us(authored_at::timestamptz) t, * from events),
d as (select distinct k, t from e),
m as (select k, t, case when t - lag(t) over (partition by k order by t) <= 3600000000 then 0 else 1 end new from d),
n as (select k, t, sum(new) over (partition by k order by t range unbounded preceding) s from m)
select k, min(e.t) a, max(e.t) b, count(*) n, sum(added)::bigint added, count(distinct repo) repos,
       arg_min(top, (e.t, event_id)) first_top, quantile_disc(added, 0.5) middle
from e join n using (k, t) group by k, s order by k, a
"""


def sessions(spark: SparkSession, config: Config) -> pd.DataFrame:
    rows = read_sessions(spark, config).orderBy("session_key", "session_start").toPandas()
    for edge in ("start", "end"):
        rows[f"session_{edge}"] = rows[f"session_{edge}"].astype("datetime64[us]").astype("int64")
    return rows


def commit_events() -> pd.DataFrame:
    lines = []
    for file in sorted(COMMITS.glob("*.gz")):
        with gzip.open(file, "rt") as text:
            lines += [json.loads(line) for line in text]
    return pd.DataFrame(lines)


def sql_sessions(events: pd.DataFrame) -> pd.DataFrame:
    with duckdb.connect() as db:
        db.register("events", events)
        return db.execute(SESSIONIZE).df()


def commit_config(root: Path, **source: Any) -> Config:
    (root / "events").mkdir()
    for i, file in enumerate(sorted(COMMITS.glob("*.gz"))):
        shutil.copy(file, root / "events" / file.name)
        os.utime(root / "events" / file.name, (1_700_000_000 + i, 1_700_000_000 + i))
    return make_config(
        root,
        pipeline={"shards": 3},
        source=source,
        event={"key": "author", "time": "authored_at", "time_unit": None, "id": "event_id", "max_future_skew": "1 day"},
        session={"gap": "1 hour", "grace": "1 day", "retention": "30 days"},
        aggregates={
            "added": "sum(added)",
            "repos": "count_distinct(repo)",
            "first_top": "first(top)",
            "middle": "percentile(added, 0.5)",
        },
    )


def assert_equals_sql(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    names = {"session_key": "k", "session_start": "a", "session_end": "b", "event_count": "n", "added": "added"}
    names |= {"repos": "repos", "first_top": "first_top"}
    left = found.rename(columns=names)[list(names.values())].reset_index(drop=True)
    pd.testing.assert_frame_equal(left, expected[list(names.values())], check_dtype=False)
    both = found["middle"].notna().to_numpy()
    assert (both == expected["middle"].notna().to_numpy()).all()
    middle = expected["middle"][both].to_numpy()
    # DuckDB takes the discrete quantile by another rank rule; both lie between the two middle values.
    single = (expected["n"] == 1).to_numpy()[both]
    assert (abs(found["middle"].to_numpy()[both][single] - middle[single]) <= 0.01 * abs(middle[single]) + 1e-9).all()


@pytest.mark.slow
def test_real_events_in_24_batches_equal_sql_over_the_accepted_ones(spark: SparkSession, tmp_path: Path) -> None:
    config = commit_config(tmp_path, max_files_per_batch=1)
    summary = run(spark, config, once=True)
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    late = tables[schemas.LATE_EVENTS].read().toPandas()
    dead = tables[schemas.DEAD_LETTERS].read().toPandas()
    assert summary.batches == 24
    assert summary.counts["input"] == 62_726
    assert summary.counts["late"] == len(late) > 0
    assert summary.counts["dead"] == len(dead) > 0
    assert set(dead["reason"]) == {"beyond retention"}
    events = commit_events()
    refused = set(late["event_id"]) | {json.loads(raw)["event_id"] for raw in dead["raw"]}
    assert_equals_sql(sessions(spark, config), sql_sessions(events[~events["event_id"].isin(refused)]))
    status = read_status(config)
    assert status.reconciles
    assert status.counts["input"] == 62_726

    again = run(spark, config, once=True)
    assert again.batches == 0


@pytest.mark.slow
def test_bootstrap_of_unordered_history_accepts_every_event_and_hands_over(spark: SparkSession, tmp_path: Path) -> None:
    config = commit_config(tmp_path)
    for i, file in enumerate(sorted((tmp_path / "events").iterdir(), reverse=True)):
        os.utime(file, (1_700_000_000 + i, 1_700_000_000 + i))
    summary = run(spark, config, bootstrap=True)
    assert (summary.batches, summary.counts["accepted"], summary.warnings) == (1, 62_726, [])
    expected = sql_sessions(commit_events())
    assert_equals_sql(sessions(spark, config), expected)
    with pytest.raises(PipelineStateError, match="bootstrap: pipeline 'test' has committed batches already"):
        run(spark, config, bootstrap=True)

    newest = pd.Timestamp(summary.watermark_us, unit="us", tz="UTC")
    after = {
        "author": "someone new",
        "authored_at": str(newest + pd.Timedelta("1 minute")),
        "event_id": "n",
        "added": 1,
    }
    write_rows(tmp_path, "zz.json", [after])
    assert run(spark, config, once=True).counts["accepted"] == 1
    assert len(sessions(spark, config)) == len(expected) + 1


def stream_rows() -> list[list[dict[str, Any]]]:
    """Batches of events around the boundaries of gap 10, grace 20, retention 60, with bad rows and repeated keys."""
    batches: list[list[dict[str, Any]]] = []
    for b in range(5):
        base = 1000 + 37 * b
        rows = [{"key": f"k{i % 3}", "time_us": base + (i * 13) % 29 - (i % 4) * 17, "v": i} for i in range(14)]
        rows += [
            {"key": "k0", "time_us": base - 60, "v": 1},
            {"key": "", "time_us": base, "v": 1},
            {"key": "k1", "v": 2},
        ]
        batches.append([*rows, {"key": "k2", "time_us": base - 200, "v": 5}, {"key": "k1", "time_us": base, "v": "x"}])
    return batches


def corrections_for(h: SessionizerHarness, batch: int, past: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Corrections on what the harness holds: right and wrong revisions, puts, restated partials, one cold session."""
    live = h.sessions()
    rows: list[dict[str, Any]] = []
    if batch == 2:
        gone, moved = live[0], live[-1]
        rows.append(
            {"kind": "tombstone", "key": gone["key"], "start_us": gone["start_us"], "revision": gone["revision"]}
        )
        rows.append({"kind": "tombstone", "key": moved["key"], "start_us": moved["start_us"], "revision": 99})
        put = {"start_us": moved["start_us"] - 3, "end_us": moved["end_us"] + 2, "event_count": 4, "v": 40}
        remove = [(moved["start_us"], moved["revision"])]
        rows.append({"kind": "replace", "key": moved["key"], "remove": remove, "put": [put]})
    if batch == 3:
        at = (h.watermark_us or 0) - 45
        rows.append({"kind": "restate", "key": "k1", "start_us": at, "end_us": at + 1, "event_count": 2, "v": 7})
        rows.append({"kind": "restate", "key": "k1", "start_us": at - 100, "end_us": at - 99, "event_count": 2, "v": 7})
    if batch == 4:
        horizon = (h.watermark_us or 0) - 70
        cold = next(c for c in past if c["op"] == "upsert" and c["end_us"] < horizon)
        rows.append(
            {"kind": "tombstone", "key": cold["key"], "start_us": cold["start_us"], "revision": cold["revision"]}
        )
    return rows


def as_corrections(rows: list[dict[str, Any]]) -> pa.Table:
    (total,) = build_aggregates({"total": "sum(v)"}, {"v": pa.int64()})

    def packed(v: int) -> bytes:
        states = total.from_value(pa.array([v]), np.zeros(1, np.int64))
        assert states is not None
        return StateCodec((total,)).encode(states, 1)[0].as_py()

    out = []
    for i, row in enumerate(rows):
        one = {
            "correction_id": f"{i:03d}",
            "kind": row["kind"],
            "key": row["key"],
            "revision": row.get("revision"),
        }
        one |= {
            "start_time": row.get("start_us"),
            "end_time": row.get("end_us"),
            "event_count": row.get("event_count"),
        }
        one["state"] = packed(row["v"]) if row["kind"] == "restate" else None
        if row["kind"] == "replace":
            one["remove"] = [{"start_time": s, "revision": r} for s, r in row["remove"]]
            one["put"] = [
                {
                    "start_time": p["start_us"],
                    "end_time": p["end_us"],
                    "event_count": p["event_count"],
                    "state": packed(p["v"]),
                }
                for p in row["put"]
            ]
        out.append(one)
    return pa.Table.from_pylist(out, schema=schemas.CORRECTIONS_SCHEMA)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["dead_letter", "emit"])
def test_spark_engine_equals_harness_batch_by_batch(spark: SparkSession, tmp_path: Path, policy: str) -> None:
    config = make_config(tmp_path, session={"beyond_retention": policy}, source={"types": {"v": "long"}})
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    windows = SessionWindows.with_gap("10 us").grace("20 us").until("60 us")
    past: list[dict[str, Any]] = []
    changes, counts = [], []
    with SessionizerHarness(windows, {"total": "sum(v)"}, shards=1, beyond_retention=policy, schema={"v": "long"}) as h:
        for batch, rows in enumerate(stream_rows()):
            corrections = corrections_for(h, batch, past)
            write_rows(tmp_path, f"{batch}.json", rows)
            if corrections:
                tables[schemas.CORRECTIONS].append_rows(as_corrections(corrections))
            out = h.process([*rows, *corrections])
            past += out.changes
            changes.append(sorted(map(_change, out.changes)))
            counts.append(out.counts)
            if batch == 0:
                continue  # the first two have no corrections, and so run at once
            committed: list[BatchCommit] = []
            run(spark, config, once=True, on_commit=committed.append)
            assert [c.batch_id for c in committed] == ([0, 1] if batch == 1 else [batch])
            found = [{name: c.counts.get(name, 0) for name in schemas.COUNTS} for c in committed]
            assert found == [counts[c.batch_id] for c in committed]
            assert committed[-1].watermark_us == h.watermark_us
        assert changes_by_batch(tables) == dict(enumerate(changes))
        assert any(c["op"] == "delete" and c["revision"] == 4 for c in past)
        assert h.process([]).changes == []
    assert read_status(config).reconciles


def changes_by_batch(tables: Tables) -> dict[int, list[tuple[Any, ...]]]:
    picked = (
        tables[schemas.CHANGELOG]
        .read()
        .selectExpr(
            "batch_id",
            "op",
            "session_key key",
            "unix_micros(session_start) start_us",
            "unix_micros(session_end) end_us",
            "event_count",
            "revision",
            "total",
        )
    )
    found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in picked.collect():
        found[row.batch_id].append(_change(row.asDict()))
    return {batch: sorted(rows) for batch, rows in found.items()}


def _change(row: dict[str, Any]) -> tuple[Any, ...]:
    names = ("op", "key", "start_us", "end_us", "event_count", "revision")
    return (*(row[name] for name in names), -1 if row["total"] is None else row["total"])


@pytest.mark.slow
def test_emit_final_shows_closed_sessions_only_and_drain_closes_the_rest(spark: SparkSession, tmp_path: Path) -> None:
    config = make_config(tmp_path, session={"emit": "final"})
    write_rows(tmp_path, "a.json", [{"key": "a", "time_us": 100, "v": 1}, {"key": "a", "time_us": 200, "v": 2}])
    run(spark, config, once=True)
    assert sessions(spark, config)["session_start"].tolist() == [100]
    assert Tables(spark, config.pipeline.warehouse, CHANGELOG)[schemas.CHANGELOG].read().count() == 2
    run(spark, config, once=True, drain=True)
    assert sessions(spark, config)["session_start"].tolist() == [100, 200]
    assert run(spark, config, once=True, drain=True).batches == 0


ROWS = [{"key": "a", "time": "2026-01-01T00:00:00Z", "v": 1.5}, {"key": "a", "time": "2026-01-01 00:30:00", "v": 2.0}]
ROWS += [{"key": "b", "time": "2026-01-01T05:30:00+05:30", "v": None}, {"key": None, "time": "2026-01-01", "v": 1.0}]
ROWS += [{"key": "b", "time": None, "v": 1.0}]


LAYOUTS: dict[str, dict[str, Any]] = {
    "delimited": {"format": "csv", "delimiter": ";", "header": False, "names": ["key", "time", "v"], "comment": "#"},
    "text": {"pattern": r"^(?P<key>\w+)? at (?P<time>[^,]+)?, (?P<v>[\d.]+)?$", "types": {"v": "double"}},
    "document": {"format": "json", "records": "data.items"},
}


def in_layout(kind: str) -> str:
    if kind == "document":
        return json.dumps({"data": {"items": ROWS}}, indent=2)
    if kind == "text":
        return "".join(f"{row['key'] or ''} at {row['time'] or ''}, {row['v'] or ''}\n" for row in ROWS)
    return "# of a shop\n" + pd.DataFrame(ROWS).to_csv(None, index=False, header=False, sep=";")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["json", "parquet", "delta", "csv", *LAYOUTS])
def test_every_source_gives_the_same_sessions(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    frame = pd.DataFrame(ROWS)
    source: dict[str, Any] = {"kind": "files", "format": kind, **LAYOUTS.get(kind, {})}
    if kind == "delta":
        source = {"kind": "delta", "format": None}
        rows = [tuple(row.values()) for row in ROWS]
        spark.createDataFrame(rows, "key string, time string, v double").write.format("delta").save(
            str(tmp_path / "events")
        )
    config = make_config(
        tmp_path,
        source=source,
        event={"time": "time", "time_unit": None},
        session={"gap": "30 minutes", "grace": "0 s", "retention": "1 day"},
        aggregates={"total": "sum(v)", "n": "count(v)"},
    )
    if kind == "json":
        write_rows(tmp_path, "a.json", [{k: v for k, v in row.items() if v is not None} for row in ROWS])
    elif kind == "csv":
        frame.to_csv(tmp_path / "events" / "a.csv", index=False)
    elif kind in LAYOUTS:
        (tmp_path / "events" / "a.txt").write_text(in_layout(kind))
    elif kind == "parquet":
        frame.to_parquet(tmp_path / "events" / "a.parquet")
    summary = run(spark, config, once=True)
    assert (summary.counts["accepted"], summary.counts["dead"]) == (3, 2)
    found = sessions(spark, config)
    midnight = pd.Timestamp("2026-01-01").value // 1000
    half = 1800 * 10**6
    assert found[["session_key", "session_start", "session_end", "event_count", "n"]].to_numpy().tolist() == [
        ["a", midnight, midnight + half, 2, 2],
        ["b", midnight, midnight, 1, 0],
    ]
    assert found["total"].tolist()[0] == 3.5
    assert found["total"].isna().tolist() == [False, True]
    dead = Tables(spark, config.pipeline.warehouse, CHANGELOG)[schemas.DEAD_LETTERS].read().orderBy("reason").collect()
    assert [row.reason for row in dead] == ["null key", "null time"]
    assert [row.event_time is None for row in dead] == [False, True]
    assert "2026-01-01" in dead[0].raw
