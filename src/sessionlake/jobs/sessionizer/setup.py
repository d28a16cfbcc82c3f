"""From a config to a runnable pipeline: column types, tables, checkpoint, and whether they belong together."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from sessionlake import schemas
from sessionlake.aggregates import AggregateSpec, build_aggregates
from sessionlake.aggregates.custom import Custom
from sessionlake.config.load import Config
from sessionlake.config.paths import make_private
from sessionlake.config.source import Format
from sessionlake.errors import ConfigError, PipelineStateError, SourceError
from sessionlake.jobs.sessionizer.files import refusal
from sessionlake.jobs.sessionizer.spec import SessionizerSpec
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.sessions.partials import STATE_LAYOUT
from sessionlake.sources.columns import EventColumns, normal_type
from sessionlake.sources.decoding.kafka_records import META, Topic
from sessionlake.sources.infer import all_columns, infer_types
from sessionlake.sources.kafka import record_columns, record_types
from sessionlake.warehouse.tables import Tables

CHECKPOINT_INTERVAL = "100"
STATS_COLUMNS = "session_start,session_end,batch_id"


def build_spec(spark: SparkSession, config: Config, pinned: dict[str, str] | None) -> SessionizerSpec:
    """Return what workers need; column types are pinned by the first commit, or else read off the source."""
    specs = [AggregateSpec.parse(name, text) for name, text in config.aggregates.items()]
    classes = [Custom(s.name, s.path, config.pipeline.code) for s in specs if s.path is not None]
    names = [column for s in specs for column in s.inputs] + [column for c in classes for column in c.inputs]
    if any(not c.inputs for c in classes):
        names += [name for name in source_columns(spark, config) if name not in names]
    event = config.event
    inputs = tuple(dict.fromkeys(names))
    needed = list(dict.fromkeys([event.key, event.time, *([event.id] if event.id else []), *inputs]))
    types = {name: _arrow(text) for name, text in pinned.items()} if pinned else source_types(spark, config, needed)
    missing = [name for name in needed if name not in types]
    if missing:
        raise PipelineStateError(
            f"aggregates: column {missing[0]!r} is new to this pipeline; to add it, start a new warehouse"
        )
    columns = EventColumns(event.key, event.time, event.time_unit, event.id, inputs, types)
    return SessionizerSpec(
        windows=SessionWindows(config.gap_us, config.grace_us, config.retention_us),
        aggregates=build_aggregates(
            config.aggregates, types, with_id=event.id is not None, directory=config.pipeline.code
        ),
        columns=columns,
        shards=config.pipeline.shards,
        beyond_retention=config.session.beyond_retention,
        max_future_skew_us=config.max_future_skew_us,
        max_key_bytes=config.event.max_key_bytes,
        max_line_bytes=config.source.max_line_bytes,
        archive=config.pipeline.archive,
        format=config.source.file_format,
        place=config.source.path,
        topic=Topic(config.source.topic, config.source.format == "avro") if config.source.topic else None,
    )


def source_types(spark: SparkSession, config: Config, needed: list[str]) -> dict[str, pa.DataType]:
    """Return the types of the needed columns as the source has them now; SourceError where one is missing."""
    if config.source.kind == "delta":
        schema = _delta_schema(spark, config)
        missing = [name for name in needed if name not in schema.names]
        if missing:
            raise SourceError(
                f"source.path: {config.source.path!r} has no column {missing[0]!r}; pick one of {', '.join(schema.names)}"
            )
        return {name: normal_type(schema.field(name).type) for name in needed}
    declared = {name: schemas.COLUMN_TYPES[text] for name, text in config.source.types.items()}
    if config.source.kind == "kafka":
        declared |= META
    to_infer = [name for name in needed if name not in declared]
    try:
        found = _inferred(spark, config, to_infer) if to_infer else {}
    except SourceError as error:
        where = "" if "source." in str(error) else f"source.path: {config.source.path!r}: "
        raise SourceError(f"{where}{error}") from error
    return {**dict.fromkeys(needed, pa.string()), **found, **{n: t for n, t in declared.items() if n in needed}}


def _inferred(spark: SparkSession, config: Config, names: list[str]) -> dict[str, pa.DataType]:
    if config.source.kind == "kafka":
        return record_types(spark, config.source, names)
    return infer_types(source_files(config), _format(config), names)


def source_columns(spark: SparkSession, config: Config) -> list[str]:
    """Return all columns of the source."""
    if config.source.kind == "delta":
        return _delta_schema(spark, config).names
    if config.source.kind == "kafka":
        return record_columns(spark, config.source)
    return all_columns(source_files(config), _format(config))


def _format(config: Config) -> Format:
    if config.source.file_format is None:
        raise ConfigError("source.format: is missing; write 'json', 'csv' or 'parquet'")
    return config.source.file_format


def source_files(config: Config) -> list[str]:
    """Return the files that the source directory holds now, hidden ones left out; SourceError where there are none."""
    path, format_ = config.source.path, config.source.format
    root = Path(path.removeprefix("file:"))
    if "://" in path:
        raise SourceError(
            f"source.path: columns of {path!r} can't be inferred from here; declare each in [source.types]"
        )
    if not root.is_dir():
        raise SourceError(f"source.path: {path!r} is no directory; create it or correct the path")
    if not os.access(root, os.R_OK | os.X_OK):
        raise SourceError(f"source.path: {path!r} can't be read; give this user the right to")
    files = sorted(
        str(f)
        for f in root.rglob("*")
        if f.is_file()
        and refusal(str(f), path) is None
        and not any(p.startswith((".", "_")) for p in f.relative_to(root).parts)
    )
    if not files:
        raise SourceError(
            f"source.path: {path!r} holds no {format_} files to learn the columns from; add one or declare [source.types]"
        )
    return files


def _delta_schema(spark: SparkSession, config: Config) -> pa.Schema:
    try:
        return to_arrow_schema(spark.read.format("delta").load(config.source.path).schema)
    except AnalysisException as error:
        raise SourceError(
            f"source.path: {config.source.path!r} is no readable Delta table; create it or correct the path"
        ) from error


def type_names(types: dict[str, pa.DataType]) -> dict[str, str]:
    """Return types as text, for a commit's metadata."""
    return {name: str(type_) for name, type_ in types.items()}


def _arrow(text: str) -> pa.DataType:
    if text.startswith("decimal128"):
        precision, scale = text[11:-1].split(",")
        return pa.decimal128(int(precision), int(scale))
    by_text = {str(t): t for t in (*schemas.COLUMN_TYPES.values(), pa.binary(), pa.timestamp("us"))}
    return by_text[text]


def create_tables(tables: Tables, config: Config, spec: SessionizerSpec) -> None:
    """Create the pipeline's tables where they are not there."""
    specs = dict(config.aggregates)
    try:
        if "://" not in config.pipeline.warehouse:
            make_private(Path(config.pipeline.warehouse.removeprefix("file:")))
        tables.create(schemas.CORRECTIONS, schemas.CORRECTIONS_SCHEMA, "Control input: restate, replace, tombstone")
        tables.create(schemas.LATE_EVENTS, schemas.late_events(spec.input_types), "Events past grace, within retention")
        if config.pipeline.archive:
            archive = schemas.events(spec.input_types)
            tables.create(schemas.EVENTS, archive, "Archive: events accepted or late")
            if tables.read(schemas.EVENTS).columns != archive.names:
                raise ConfigError(
                    f"pipeline.archive: {tables.path(schemas.EVENTS)!r} is a table of another kind; move it, or archive nothing"
                )
            tables.create(
                schemas.TOPIC_TOMBSTONES, schemas.TOPIC_TOMBSTONES_SCHEMA, "Archive: tombstones read from the topic"
            )
        tables.create(
            schemas.DEAD_LETTERS,
            schemas.DEAD_LETTERS_SCHEMA,
            "Rows refused: malformed, beyond retention, too far in the future",
        )
        tables.create(
            schemas.SESSIONS,
            schemas.sessions(spec.value_types, specs),
            "Snapshot of sessions, as far as compacted",
        )
        tables.create(schemas.BATCHES, schemas.BATCHES_SCHEMA, "What each micro-batch did; counts reconcile")
        tables.create(
            schemas.CHANGELOG,
            schemas.changelog(spec.value_types, specs),
            "Every change of every session: the truth",
            checkpointInterval=CHECKPOINT_INTERVAL,
            dataSkippingStatsColumns=STATS_COLUMNS,
        )
    except Exception as error:
        signs = (
            "DELTA_CANNOT_CREATE_LOG_PATH",
            "Permission denied",
            "Not a directory",
            "File exists",
            "Mkdirs failed",
            "Could not create local directory",
        )
        if any(sign in str(error) for sign in signs):
            raise ConfigError(
                f"pipeline.warehouse: {config.pipeline.warehouse!r} can't be written; give this user the right to or choose another path"
            ) from error
        raise


def rebuild_settings(config: Config) -> dict[str, Any]:
    """Return all that a pipeline's tables are bound to: settings, and the layout of states."""
    return {**config.rebuild_settings(), "state layout": STATE_LAYOUT}


def check_settings(config: Config, last: dict[str, Any] | None) -> None:
    """Refuse a config whose rebuild settings are not those the tables were made with."""
    if last is None:
        return
    if last["pipeline"] != config.pipeline.name:
        raise PipelineStateError(
            f"pipeline.name: warehouse {config.pipeline.warehouse!r} belongs to pipeline {last['pipeline']!r}, not {config.pipeline.name!r}; "
            "use one warehouse a pipeline"
        )
    before, now = last["settings"]["rebuild"], json.loads(json.dumps(rebuild_settings(config)))
    for name in now:
        if before.get(name) != now[name]:
            raise PipelineStateError(
                f"{name}: changed from {before.get(name)!r} to {now[name]!r} on existing sessions; "
                "restore the old value, or build the tables anew: `sessionlake rebuild CONFIG --warehouse NEW`, then switch readers"
            )
