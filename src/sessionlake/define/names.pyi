# Made of the registries by `python -m tests.define.stub`.
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, Required, TypeAlias, TypedDict

from sessionlake.define.sections import Aggregate, Operator, Section, Source
from sessionlake.standalone.emit import Emit

Duration: TypeAlias = str | timedelta

__all__ = [
    "Airflow",
    "AnyValue",
    "ApproxCountDistinct",
    "Avg",
    "BitAnd",
    "BitOr",
    "BitXor",
    "BoolAnd",
    "BoolOr",
    "ChangeFeed",
    "Collect",
    "CollectSet",
    "Compact",
    "Corr",
    "Count",
    "CountDistinct",
    "CountIf",
    "CountedWindows",
    "CovarPop",
    "CovarSamp",
    "Delta",
    "Event",
    "Expire",
    "Files",
    "First",
    "FirstPosition",
    "Groups",
    "Histogram",
    "Joins",
    "Kafka",
    "KeyedTable",
    "Kurtosis",
    "Last",
    "LastPosition",
    "Left",
    "Lineage",
    "Lookup",
    "Max",
    "MaxBy",
    "Median",
    "Metrics",
    "Min",
    "MinBy",
    "Mode",
    "Percentile",
    "Processors",
    "Product",
    "Quality",
    "Quantile",
    "Quarantine",
    "RegrIntercept",
    "RegrSlope",
    "Results",
    "Right",
    "Serve",
    "Sessions",
    "Sink",
    "Skewness",
    "Stddev",
    "StddevPop",
    "StringAgg",
    "Sum",
    "TableJoins",
    "Ttl",
    "VarPop",
    "Variance",
    "Windows",
]

class Sessions(Operator):
    """The session windows.

    Its keys are those of [session]: beyond_retention, grace, gap, retention, retention_count, emit, gap_by, max_gap, max_length, max_length_offset, before.
    """

    def __init__(
        self,
        *,
        beyond_retention: Literal["dead_letter", "drop", "emit"] = ...,
        grace: Duration | None = ...,
        gap: Duration,
        retention: Duration | None = ...,
        retention_count: int | None = ...,
        emit: Literal["update", "final"] = ...,
        gap_by: str | None = ...,
        max_gap: Duration | None = ...,
        max_length: Duration | None = ...,
        max_length_offset: Duration = ...,
        before: list[Mapping[str, Any]] = ...,
    ) -> None: ...

class Windows(Operator):
    """The section [window], of which there are variants.

    Its keys are those of [window]: beyond_retention, grace, kind, size, retention, retention_count, offset, advance, exits.
    """

    def __init__(
        self,
        *,
        beyond_retention: Literal["dead_letter", "drop"] = ...,
        grace: Duration | None = ...,
        kind: Literal["tumbling", "hopping", "sliding"],
        size: Duration,
        retention: Duration,
        retention_count: int | None = ...,
        offset: Duration = ...,
        advance: Duration = ...,
        exits: bool = ...,
    ) -> None: ...

class CountedWindows(Operator):
    """The section [window], of which there are variants.

    Its keys are those of [window]: beyond_retention, kind, retention, retention_count, size, per, offset, advance, max_others.
    """

    def __init__(
        self,
        *,
        beyond_retention: Literal["dead_letter", "drop"] = ...,
        kind: Literal["tumbling", "hopping", "sliding", "session"],
        retention: Duration,
        retention_count: int,
        size: int = ...,
        per: Literal["key", "partition"] | None = ...,
        offset: int | None = ...,
        advance: int = ...,
        max_others: int = ...,
    ) -> None: ...

class KeyedTable(Operator):
    """A keyed table: the latest row of each key.

    Its keys are those of [table]: beyond_retention, columns, order, retention, delete_when.
    """

    def __init__(
        self,
        *,
        beyond_retention: Literal["dead_letter", "drop"] = ...,
        columns: list[str] | None = ...,
        order: Literal["time", "offset"] = ...,
        retention: Duration | None = ...,
        delete_when: str | None = ...,
    ) -> None: ...

class Groups(Operator):
    """Groups: one row a key, with the aggregates of all its events, however old they are.

    Its keys are those of [group]: beyond_retention.
    """

    def __init__(self, *, beyond_retention: str = ...) -> None: ...

class Joins(Operator):
    """Pairs of messages of two streams.

    Its keys are those of [join]: beyond_retention, grace, left, right, on, type, by, kind, size, advance, offset, gap, retention, retention_count, idle.
    """

    def __init__(
        self,
        *,
        beyond_retention: Literal["dead_letter", "drop"] = ...,
        grace: Duration | None = ...,
        left: Left,
        right: Right,
        on: list[str],
        type: Literal["inner", "left", "right", "full"] = ...,
        by: Literal["time", "count"] = ...,
        kind: Literal["sliding", "tumbling", "hopping", "session"] = ...,
        size: Duration | int | None = ...,
        advance: Duration | int | None = ...,
        offset: Duration | int | None = ...,
        gap: Duration | int | None = ...,
        retention: Duration | None = ...,
        retention_count: int | None = ...,
        idle: Duration = ...,
    ) -> None: ...

class TableJoins(Operator):
    """Pairs of rows of two inputs with equal fields, which follow both inputs.

    Its keys are those of [table_join]: beyond_retention, left, right, on, type.
    """

    def __init__(
        self,
        *,
        beyond_retention: str = ...,
        left: Left,
        right: Right,
        on: list[str],
        type: Literal["inner", "left", "right", "full"] = ...,
    ) -> None: ...

class Processors(Operator):
    """A user's class on the rows of each key, with state and timers.

    Its keys are those of [process]: beyond_retention, processor, columns, retention, grace, max_state_bytes, output.
    """

    def __init__(
        self,
        *,
        beyond_retention: Literal["dead_letter", "drop"] = ...,
        processor: str | type,
        columns: list[str] | None = ...,
        retention: Duration,
        grace: Duration = ...,
        max_state_bytes: int = ...,
        output: Mapping[str, Literal["long", "double", "string", "boolean", "timestamp", "date"]],
    ) -> None: ...

class Files(Source):
    """The input of a pipeline.

    Its keys are those of [source]: path, format, delimiter, quote, escape, header, names, comment, records, pattern, preset, max_files_per_batch, max_bytes_per_batch, max_line_bytes, types, max_offsets_per_batch, shallow_clones.
    """

    def __init__(
        self,
        path: str = ...,
        *,
        format: Literal["json", "csv", "parquet", "text", "avro", "protobuf"] | None = ...,
        delimiter: str | None = ...,
        quote: str | None = ...,
        escape: str | None = ...,
        header: bool | None = ...,
        names: list[str] | None = ...,
        comment: str | None = ...,
        records: str | None = ...,
        pattern: str | None = ...,
        preset: Literal["nginx", "apache", "cloudfront", "alb"] | None = ...,
        max_files_per_batch: int | None = ...,
        max_bytes_per_batch: int | None = ...,
        max_line_bytes: int = ...,
        types: Mapping[str, str] = ...,
        max_offsets_per_batch: int = ...,
        shallow_clones: bool = ...,
    ) -> None: ...

class Delta(Source):
    """The input of a pipeline.

    Its keys are those of [source]: path, format, max_files_per_batch, max_bytes_per_batch, max_line_bytes, types, max_offsets_per_batch, shallow_clones.
    """

    def __init__(
        self,
        path: str = ...,
        *,
        format: Literal["json", "csv", "parquet", "text", "avro", "protobuf"] | None = ...,
        max_files_per_batch: int | None = ...,
        max_bytes_per_batch: int | None = ...,
        max_line_bytes: int = ...,
        types: Mapping[str, str] = ...,
        max_offsets_per_batch: int = ...,
        shallow_clones: bool = ...,
    ) -> None: ...

class ChangeFeed(Source):
    """The input of a pipeline.

    Its keys are those of [source]: path, format, max_files_per_batch, max_bytes_per_batch, max_line_bytes, types, max_offsets_per_batch, shallow_clones.
    """

    def __init__(
        self,
        path: str = ...,
        *,
        format: Literal["json", "csv", "parquet", "text", "avro", "protobuf"] | None = ...,
        max_files_per_batch: int | None = ...,
        max_bytes_per_batch: int | None = ...,
        max_line_bytes: int = ...,
        types: Mapping[str, str] = ...,
        max_offsets_per_batch: int = ...,
        shallow_clones: bool = ...,
    ) -> None: ...

class Kafka(Source):
    """The input of a pipeline.

    Its keys are those of [source]: path, format, max_files_per_batch, max_bytes_per_batch, max_line_bytes, types, bootstrap_servers, topic, topics, topic_pattern, avro_schema, schema_registry, schema_subject, key_format, confluent_header, max_offsets_per_batch, tombstones, shallow_clones, options, envelope.
    """

    def __init__(
        self,
        topic: str | None = ...,
        *,
        path: str = ...,
        format: Literal["json", "csv", "parquet", "text", "avro", "protobuf"] | None = ...,
        max_files_per_batch: int | None = ...,
        max_bytes_per_batch: int | None = ...,
        max_line_bytes: int = ...,
        types: Mapping[str, str] = ...,
        bootstrap_servers: str | None = ...,
        topics: list[str] | None = ...,
        topic_pattern: str | None = ...,
        avro_schema: str | None = ...,
        schema_registry: str | None = ...,
        schema_subject: str | None = ...,
        key_format: Literal["json", "avro", "protobuf"] | None = ...,
        confluent_header: bool = ...,
        max_offsets_per_batch: int = ...,
        tombstones: bool = ...,
        shallow_clones: bool = ...,
        options: Mapping[str, str | int | bool] = ...,
        envelope: Literal["debezium"] | None = ...,
    ) -> None: ...

class Results(Source):
    """The input of a pipeline.

    Its keys are those of [source]: of, rows.
    """

    def __init__(self, of: str | None = ..., *, rows: Literal["final", "changes"] | None = ...) -> None: ...

class Left(Section):
    """The sections [join.left] and [table_join.left], of which there are variants.

    Its keys are those of [join.left] and [table_join.left]: name, columns, source, event, lookup, size.
    """

    def __init__(
        self,
        *,
        name: str,
        columns: list[str] = ...,
        source: Source,
        event: Event,
        lookup: list[Lookup] = ...,
        size: Duration | int | None = ...,
    ) -> None: ...

class Right(Section):
    """The sections [join.right] and [table_join.right], of which there are variants.

    Its keys are those of [join.right] and [table_join.right]: name, columns, source, event, lookup, size.
    """

    def __init__(
        self,
        *,
        name: str,
        columns: list[str] = ...,
        source: Source,
        event: Event,
        lookup: list[Lookup] = ...,
        size: Duration | int | None = ...,
    ) -> None: ...

class Event(Section):
    """Which columns make an event.

    Its keys are those of [event]: key, time, time_unit, time_format, id, max_future_skew, max_key_bytes, where, explode, explode_outer, columns, unique_for, duplicates.
    """

    def __init__(
        self,
        *,
        key: str | list[str] | None = ...,
        time: str | None = ...,
        time_unit: Literal["s", "ms", "us", "ns"] | None = ...,
        time_format: str | None = ...,
        id: str | list[str] | None = ...,
        max_future_skew: Duration | None = ...,
        max_key_bytes: int = ...,
        where: str | None = ...,
        explode: str | None = ...,
        explode_outer: str | None = ...,
        columns: Mapping[str, str] = ...,
        unique_for: Duration | None = ...,
        duplicates: Literal["rows", "number"] = ...,
    ) -> None: ...

class Lookup(Section):
    """A table that gives each event more columns: those of the row with the event's key in it.

    Its keys are those of [lookup]: name, table, path, shallow_clones, format, types, on, columns, as_of, valid_from, valid_to, missing, refresh, max_rows.
    """

    def __init__(
        self,
        *,
        name: str,
        table: str | None = ...,
        path: str | None = ...,
        shallow_clones: bool = ...,
        format: Literal["json", "csv", "parquet"] | None = ...,
        types: Mapping[str, str] = ...,
        on: str | list[str],
        columns: list[str],
        as_of: Literal["latest", "event_time"] = ...,
        valid_from: str | None = ...,
        valid_to: str | None = ...,
        missing: Literal["null", "dead_letter"] = ...,
        refresh: Duration = ...,
        max_rows: int = ...,
    ) -> None: ...

class Compact(Section):
    """Settings of the compaction of snapshot and changelog.

    Its keys are those of [compact]: safety, file_mb, archive, dead_letters, runs, vacuum.
    """

    def __init__(
        self,
        *,
        safety: Duration = ...,
        file_mb: int = ...,
        archive: Duration | None = ...,
        dead_letters: Duration = ...,
        runs: Duration = ...,
        vacuum: Duration = ...,
    ) -> None: ...

class Quality(Section):
    """The expectations of the quality job, in addition to the rules that always hold.

    Its keys are those of [quality]: expectations, max_age, rates_over, max_null_key_rate, max_late_rate, max_dead_rate, max_duplicate_rate, max_quarantine_rate, aggregates.
    """

    def __init__(
        self,
        *,
        expectations: str | None = ...,
        max_age: Duration = ...,
        rates_over: Duration = ...,
        max_null_key_rate: float = ...,
        max_late_rate: float = ...,
        max_dead_rate: float = ...,
        max_duplicate_rate: float = ...,
        max_quarantine_rate: float = ...,
        aggregates: Mapping[str, Mapping[str, Any]] = ...,
    ) -> None: ...

class Expire(Section):
    """The rows that the job `expire` removes, and its rate.

    Its keys are those of [expire]: ttl, where, tables, max_tombstones_per_second, max_per_run, max_share.
    """

    def __init__(
        self,
        *,
        ttl: Duration | None = ...,
        where: str | None = ...,
        tables: Mapping[str, str] = ...,
        max_tombstones_per_second: int = ...,
        max_per_run: int | None = ...,
        max_share: float = ...,
    ) -> None: ...

class Sink(Section):
    """The targets of sessions or windows besides the warehouse.

    Its keys are those of [sink]: kafka, delta, postgres, python.
    """

    def __init__(
        self,
        *,
        kafka: Mapping[str, Any] | None = ...,
        delta: Mapping[str, Any] | None = ...,
        postgres: Mapping[str, Any] | None = ...,
        python: Mapping[str, Any] | None = ...,
    ) -> None: ...

class Metrics(Section):
    """The places for Prometheus' metrics; without a port and a textfile there are none.

    Its keys are those of [metrics]: port, host, textfile.
    """

    def __init__(self, *, port: int | None = ..., host: str = ..., textfile: str | None = ...) -> None: ...

class Lineage(Section):
    """The target of OpenLineage events; none without a transport.

    Its keys are those of [lineage]: transport, url, endpoint, api_key_variable, path, namespace, every, listener.
    """

    def __init__(
        self,
        *,
        transport: Literal["http", "file", "client"] | None = ...,
        url: str | None = ...,
        endpoint: str = ...,
        api_key_variable: str | None = ...,
        path: str | None = ...,
        namespace: str = ...,
        every: Duration = ...,
        listener: bool = ...,
    ) -> None: ...

class Serve(Section):
    """The query server of `sessionlake serve`.

    Its keys are those of [serve]: host, port, token_variable, metrics_token_variable, tokens, tls_certificate, tls_key, insecure_http, peers, peers_authority, ranges, requests_per_second, max_rows, max_bytes, max_scan, tables_timeout.
    """

    def __init__(
        self,
        *,
        host: str = ...,
        port: int = ...,
        token_variable: str = ...,
        metrics_token_variable: str = ...,
        tokens: bool = ...,
        tls_certificate: str | None = ...,
        tls_key: str | None = ...,
        insecure_http: bool = ...,
        peers: str | None = ...,
        peers_authority: str | None = ...,
        ranges: bool = ...,
        requests_per_second: int = ...,
        max_rows: int = ...,
        max_bytes: int = ...,
        max_scan: int = ...,
        tables_timeout: Duration = ...,
    ) -> None: ...

class Airflow(Section):
    """What the DAGs of the pipeline do; they read it themselves, without this package (`dags/sessionlake_airflow`).

    Its keys are those of [airflow]: run, pool, maintenance_pool, schedules.
    """

    def __init__(
        self,
        *,
        run: Literal["micro", "stream", "off"] = ...,
        pool: str = ...,
        maintenance_pool: str = ...,
        schedules: Mapping[str, str] = ...,
    ) -> None: ...

class Quarantine(Section):
    """Which sessions are kept apart; above any of the thresholds.

    Its keys are those of [quarantine]: max_events, max_rate, max_length.
    """

    def __init__(
        self, *, max_events: int | None = ..., max_rate: str | None = ..., max_length: Duration | None = ...
    ) -> None: ...

class Ttl(Section):
    """The section [ttl], of which there are variants.

    Its keys are those of [ttl]: pattern, max_share, clock, every, max_per_cleanup, ttl, expires_at, where, max_duration, topic_tombstones, max_tombstones_per_second, since, key_format, max_entries, changelog_retention.
    """

    def __init__(
        self,
        *,
        pattern: Literal["scan", "time_boxed", "index", "time_ordered_keys", "lru", "segments"],
        max_share: float = ...,
        clock: Literal["wall", "stream"] = ...,
        every: Duration = ...,
        max_per_cleanup: int = ...,
        ttl: Duration | None = ...,
        expires_at: str | None = ...,
        where: str | None = ...,
        max_duration: Duration = ...,
        topic_tombstones: bool = ...,
        max_tombstones_per_second: int = ...,
        since: Literal["event", "write", "insert"] | None = ...,
        key_format: Literal["uuid7", "ulid"] = ...,
        max_entries: int = ...,
        changelog_retention: Duration | None = ...,
    ) -> None: ...

class Count(Aggregate):
    def __init__(self, column: str = ..., /, *, where: str | None = ...) -> None: ...

class CountIf(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class Sum(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class Min(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class Max(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class Avg(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class Product(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class First(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class Last(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class AnyValue(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class MinBy(Aggregate):
    def __init__(self, column: str, other: str, /, *, where: str | None = ...) -> None: ...

class MaxBy(Aggregate):
    def __init__(self, column: str, other: str, /, *, where: str | None = ...) -> None: ...

class Mode(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class BoolAnd(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class BoolOr(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class BitAnd(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class BitOr(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class BitXor(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class Variance(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class VarPop(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class Stddev(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class StddevPop(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class Skewness(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class Kurtosis(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class Corr(Aggregate):
    def __init__(self, column: str, other: str, /, *, where: str | None = ...) -> None: ...

class CovarSamp(Aggregate):
    def __init__(self, column: str, other: str, /, *, where: str | None = ...) -> None: ...

class CovarPop(Aggregate):
    def __init__(self, column: str, other: str, /, *, where: str | None = ...) -> None: ...

class RegrSlope(Aggregate):
    def __init__(self, column: str, other: str, /, *, where: str | None = ...) -> None: ...

class RegrIntercept(Aggregate):
    def __init__(self, column: str, other: str, /, *, where: str | None = ...) -> None: ...

class CountDistinct(Aggregate):
    def __init__(self, column: str, number: int = ..., /, *, where: str | None = ...) -> None: ...

class ApproxCountDistinct(Aggregate):
    def __init__(self, column: str, number: float = ..., /, *, where: str | None = ...) -> None: ...

class Percentile(Aggregate):
    def __init__(self, column: str, number: float, /, *, where: str | None = ...) -> None: ...

class Quantile(Aggregate):
    def __init__(self, column: str, number: float, /, *, where: str | None = ...) -> None: ...

class Median(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class Histogram(Aggregate):
    def __init__(self, column: str, /, *, where: str | None = ...) -> None: ...

class Collect(Aggregate):
    def __init__(self, column: str, number: int, /, *, where: str | None = ...) -> None: ...

class CollectSet(Aggregate):
    def __init__(self, column: str, number: int, /, *, where: str | None = ...) -> None: ...

class StringAgg(Aggregate):
    def __init__(self, column: str, text: str, number: int, /, *, where: str | None = ...) -> None: ...

class FirstPosition(Aggregate):
    def __init__(self) -> None: ...

class LastPosition(Aggregate):
    def __init__(self) -> None: ...

class Given(TypedDict, total=False):
    warehouse: Required[str]
    shards: int
    trigger: Duration
    store: str
    store_engine: Literal["files", "rocksdb"]
    code: str | None
    archive: Literal["all"] | bool
    keep_replaced: bool
    batch_timeout: Duration | None
    max_lag: int | None
    weight: int
    source: Source | Mapping[str, Any]
    aggregates: Mapping[str, Aggregate | str | type]
    emit: Emit | Mapping[str, Any] | None
    event: Event | Mapping[str, Any] | None
    lookup: Sequence[Lookup | Mapping[str, Any]] | None
    compact: Compact | Mapping[str, Any] | None
    quality: Quality | Mapping[str, Any] | None
    expire: Expire | Mapping[str, Any] | None
    sink: Sink | Mapping[str, Any] | None
    metrics: Metrics | Mapping[str, Any] | None
    lineage: Lineage | Mapping[str, Any] | None
    serve: Serve | Mapping[str, Any] | None
    airflow: Airflow | Mapping[str, Any] | None
    quarantine: Quarantine | Mapping[str, Any] | None
    ttl: Ttl | Mapping[str, Any] | None
