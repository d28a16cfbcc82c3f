"""The sessionizer as the coordinator sees it: its operator, its tables, and how its state is read back from them."""

from dataclasses import replace
from functools import partial
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionlake import schemas
from sessionlake.columnar.arrays import combined
from sessionlake.columnar.identity import session_ids
from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator
from sessionlake.engine.outputs import CHANGES, Output
from sessionlake.engine.pipeline import Pipeline
from sessionlake.jobs.sessionizer.mapper import ARCHIVED, TOMBSTONES
from sessionlake.jobs.sessionizer.operator import Sessionizer, next_state, watermark_of
from sessionlake.jobs.sessionizer.setup import rebuild_settings, type_names
from sessionlake.jobs.sessionizer.spec import SessionizerSpec
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.stream.planned import fingerprint
from sessionlake.views import merged_sessions, sessions_meeting
from sessionlake.warehouse.tables import Tables


def make_pipeline(tables: Tables, config: Config, spec: SessionizerSpec, checkpoint_id: str) -> Pipeline:
    """Return what the coordinator must know to run the sessionizer."""
    return Pipeline(
        name=config.pipeline.name,
        checkpoint_id=checkpoint_id,
        operator=Sessionizer(spec),
        operator_with=lambda settings: Sessionizer(with_live_settings(spec, settings["live"])),
        shards=spec.shards,
        store_dir=config.store_dir,
        outputs=tuple(
            Output(kind, table, tables.path(table), schema, rows)
            for kind, table, schema, rows in (
                (ARCHIVED, schemas.EVENTS, schemas.events(spec.input_types), archived_rows),
                (TOMBSTONES, schemas.TOPIC_TOMBSTONES, schemas.TOPIC_TOMBSTONES_SCHEMA, same_rows),
                ("late", schemas.LATE_EVENTS, schemas.late_events(spec.input_types), late_rows),
                ("dead", schemas.DEAD_LETTERS, schemas.DEAD_LETTERS_SCHEMA, same_rows),
                (CHANGES, schemas.CHANGELOG, schemas.changelog(spec.value_types, {}), change_rows),
            )
        ),
        settings={
            "rebuild": rebuild_settings(config),
            "live": config.live_settings(),
            "types": type_names(dict(spec.columns.types)),
        },
        next_state=next_state,
        stored_state=lambda operator, state: engine_rows(sessions_meeting(tables, _horizon_us(operator, state))),
        asked_for=partial(_asked_for, tables),
        input_of=lambda batch_id: fingerprint(tables.read_text(f"{config.checkpoint}/offsets/{batch_id}")),
        # Retention decides how sessions are cut into segments and which of them are kept.
        store_layout=lambda operator: str(_windows(operator).kept_us),
    )


def _horizon_us(operator: Operator, state: dict[str, Any]) -> int:
    return _windows(operator).bounds(watermark_of(state)).horizon_us


def _asked_for(tables: Tables, operator: Operator, state: dict[str, Any], needs: DataFrame) -> DataFrame:
    """Return the cold sessions that shards need."""
    keys = F.broadcast(needs.select(F.col("key").alias("session_key")).distinct())
    live = merged_sessions(tables, narrowed=lambda rows: rows.join(keys, "session_key", "left_semi"))
    cold = live.where(F.unix_micros("session_end") < _horizon_us(operator, state))
    n = needs.alias("n")
    near = (F.unix_micros("session_end") >= F.col("n.from_us")) & (F.unix_micros("session_start") <= F.col("n.to_us"))
    return engine_rows(cold.join(n, (F.col("session_key") == F.col("n.key")) & near, "left_semi"))


def _windows(operator: Operator) -> SessionWindows:
    return cast("Sessionizer", operator).spec.windows


def engine_rows(sessions: DataFrame) -> DataFrame:
    """Return sessions as shards take them: key, start_us, end_us, event_count, revision, state."""
    return sessions.select(
        F.col("session_key").alias("key"),
        F.unix_micros("session_start").alias("start_us"),
        F.unix_micros("session_end").alias("end_us"),
        "event_count",
        "revision",
        "state",
    )


def with_live_settings(spec: SessionizerSpec, live: dict[str, Any]) -> SessionizerSpec:
    """Return the spec under other settings of classification (`Config.live_settings`)."""
    windows = replace(spec.windows, grace_us=live["grace_us"], retention_us=live["retention_us"])
    return replace(
        spec,
        windows=windows,
        beyond_retention=live["beyond_retention"],
        max_future_skew_us=live["max_future_skew_us"],
        archive=live.get("archive", False),
        max_key_bytes=live.get("max_key_bytes"),
    )


def change_rows(changes: pa.Table) -> pa.Table:
    """Return changes with their session_id."""
    ids = session_ids(combined(changes["session_key"]), changes["session_start"].cast(pa.int64()).to_numpy())
    return changes.append_column("session_id", pa.array(ids))


def archived_rows(events: pa.Table) -> pa.Table:
    """Return events as the archive has them."""
    names = ["session_key", "event_time", "event_id", "event"]
    return events.select(["key", "time_us", "event_id", "event"]).rename_columns(names)


def late_rows(late: pa.Table) -> pa.Table:
    """Return late events as their table has them."""
    names = ["session_key", "event_time", "event_id", "event", "raw", "source", "close_time"]
    return late.select(["key", "time_us", "event_id", "event", "raw", "source", "close_us"]).rename_columns(names)


def same_rows(rows: pa.Table) -> pa.Table:
    """Return rows that are as their table has them."""
    return rows
