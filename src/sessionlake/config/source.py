"""The config's sections about inputs and outputs outside of the warehouse."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field

from sessionlake.config.fields import ColumnName, Duration, Section
from sessionlake.config.layouts import OF_CSV, OF_JSON, OF_TEXT, Layout
from sessionlake.config.names import IMPORT_PATH
from sessionlake.config.operators import named
from sessionlake.config.presets import PRESETS
from sessionlake.config.secrets import has_reference, with_absolute_files
from sessionlake.config.sources import SOURCES, ColumnType, Kind, SourceEntry
from sessionlake.errors import ConfigError
from sessionlake.sql_types import parse_type

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SECRET_TEXTS = ("bootstrap_servers", "schema_registry")
"""Keys of sections of Kafka whose texts may refer to secrets, besides the options."""
_OURS = {
    "subscribe": "source.topic",
    "subscribepattern": "source.topic_pattern",
    "assign": "source.topic",
    "topic": "sink.kafka.topic",
    "kafka.bootstrap.servers": "bootstrap_servers",
    "maxoffsetspertrigger": "source.max_offsets_per_batch",
    "includeheaders": "_headers where a column may stand",
}


TOPIC, TABLE, DATABASE, FUNCTION = "kafka", "delta", "postgres", "python"
"""The sinks by their names in the config: a topic, a table, a table of a database, and a function."""


class SourceSection(Section):
    """The input of a pipeline."""

    AT: ClassVar[str] = "source"
    """The section's place in the config."""

    kind: Kind
    path: str = ""
    format: Literal["json", "csv", "parquet", "text", "avro", "protobuf"] | None = None
    delimiter: str | None = None
    """The character between two fields of CSV; a comma if none is given."""
    quote: str | None = None
    """The character around a field of CSV that may have delimiters and line breaks, a double quote if none is given; "" if there is none."""
    escape: str | None = None
    """The character of CSV after which each other one stands for itself."""
    header: bool | None = None
    """Whether the first record of a CSV file has the names of its columns. It has them unless this is false."""
    names: list[str] | None = Field(default=None, min_length=1)
    """The names of columns of CSV without a header; without them c1, c2, ..."""
    comment: str | None = None
    """The begin of lines of CSV or text that are no rows."""
    records: str | None = None
    """The path of the list in a JSON document whose elements are the rows, as "Records", or "." if the document is the list."""
    pattern: str | None = None
    """The regular expression of lines of text, RE2: each named group is a column of text. It may match anywhere in a line."""
    preset: Literal["nginx", "apache", "cloudfront", "alb"] | None = None
    """The log whose pattern is meant, in place of one of your own."""
    max_files_per_batch: int | None = Field(default=None, ge=1)
    """Files a micro-batch reads at the most; 16 if none is given, and no bytes are for a source of files."""
    max_bytes_per_batch: int | None = Field(default=None, ge=1)
    """Bytes of files a micro-batch reads at the most, one file at least; for a source of files in place of their number."""
    max_line_bytes: int = Field(default=16_777_216, ge=1, le=1 << 30)
    """A longer line of JSON or record of CSV is a dead letter, and is read past."""
    types: dict[ColumnName, ColumnType] = Field(default={})
    """Column types of text files, if inference from the files at first start is not enough."""
    bootstrap_servers: str | None = None
    topic: str | None = None
    topics: list[str] | None = Field(default=None, min_length=1)
    """Several topics, whose records are read as if they were one's, in place of `topic`."""
    topic_pattern: str | None = None
    """A regular expression in place of `topics`: each topic whose whole name matches is read. New topics are looked for at each start."""
    avro_schema: str | None = None
    """File of the schema that Avro values are written with."""
    schema_registry: str | None = None
    """URL of the registry that has the schemas of values of Avro or Protobuf. `${env:NAME}` and `${file:PATH}` in it stand for a secret's value."""
    schema_subject: str | None = None
    """The registry's subject of the schemas of all topics; by default that of each topic is the topic's name and `-value`."""
    key_format: Literal["json", "avro", "protobuf"] | None = None
    """The form of records' keys whose fields are read, as `_key.id`; those of Avro and Protobuf by the registry's schemas."""
    confluent_header: bool = False
    """Whether values begin with the five bytes of Confluent's wire format, which are then left out."""
    max_offsets_per_batch: int = Field(default=1_000_000, ge=1)
    tombstones: bool = False
    """Whether a record without a value removes the session that its headers name. Then everyone who may write to the topic may remove sessions."""
    shallow_clones: bool = False
    """Whether a Delta table may have files outside of its directory. Then everyone who may write the table may have any file read that the driver may read."""
    options: dict[str, str | int | bool] = Field(default={})
    """Passed on to Spark's Kafka connector. `${env:NAME}` and `${file:PATH}` in a text stand for a secret's value."""
    envelope: Literal["debezium"] | None = None
    """The form of records that each hold a change of a database's row: the row as it was, and as it is."""
    of: str | None = None
    """The pipeline whose results are read: its name in the project, or the path of its config."""
    rows: Literal["final", "changes"] | None = None
    """The results that are read: those that events can't change any more, or all, and their changes."""

    @property
    def takes_back(self) -> bool:
        """Whether rows change after they were read: then they are taken back, and read as they are now."""
        return self.entry.has_changes or self.rows == "changes"

    @property
    def has_every_time(self) -> bool:
        """Whether a row is taken whatever its time is: rows are changes of a table, and one that is refused would be missing for ever."""
        return self.takes_back or self.envelope is not None

    @property
    def has_offsets(self) -> bool:
        """Whether each row has a partition and an offset: that of its record, or the number of the change that it is of."""
        return self.entry.has_offsets or self.takes_back

    @property
    def entry(self) -> SourceEntry:
        """The parts of its kind of source, and the capabilities of that kind."""
        return SOURCES[self.kind]

    @property
    def topic_names(self) -> list[str]:
        """The topics that are read; their pattern if nobody has looked which topics match."""
        return self.topics if self.topics is not None else [self.topic_pattern or self.topic or ""]

    @property
    def is_binary(self) -> bool:
        """Whether values are bytes of a format with schemas, and no text."""
        return self.format in ("avro", "protobuf")

    @property
    def has_topics(self) -> bool:
        """Whether it may read several topics, so that each row knows its topic."""
        return self.topics is not None or self.topic_pattern is not None

    def matching(self, names: Iterable[str]) -> list[str]:
        """Return the sorted topics of a cluster that are read, Kafka's own never among those of a pattern."""
        if self.topic_pattern is None:
            return sorted({*names} & {*self.topic_names})
        pattern = re.compile(self.topic_pattern, re.ASCII)
        return sorted(name for name in names if pattern.fullmatch(name) and not name.startswith("__"))

    @property
    def place(self) -> str:
        """The topic, the topics or their pattern, the pipeline, or the path."""
        topics = self.topic_pattern or (self.topics and ", ".join(self.topics))
        return topics or getattr(self, self.entry.place) or ""

    @property
    def place_at(self) -> str:
        """The place of the input's path or topic in the config."""
        key = (
            "topic_pattern"
            if self.topic_pattern is not None
            else "topics"
            if self.topics is not None
            else self.entry.place
        )
        return f"{self.AT}.{key}"

    @property
    def files_per_batch(self) -> int | None:
        """Files a micro-batch reads at the most; None if bytes alone bound it."""
        if self.max_files_per_batch is None and self.entry.opens_files and self.max_bytes_per_batch is not None:
            return None
        return self.max_files_per_batch or 16

    @property
    def bytes_per_batch(self) -> int | None:
        """Bytes a micro-batch reads at the most; None if files or records alone bound it."""
        return self.entry.bytes_per_batch if self.max_bytes_per_batch is None else self.max_bytes_per_batch

    @property
    def layout(self) -> Layout | None:
        """The layout of files; None if the source has rows or records."""
        form = self.format
        if not self.entry.opens_files or form is None or form == "avro" or form == "protobuf":  # noqa: PLR1714 (mypy)
            return None
        preset = None if self.preset is None else PRESETS[self.preset]
        settings: dict[str, Any] = (
            {} if preset is None else {"pattern": preset.pattern, "comment": preset.comment or ""}
        )
        for key in dict.fromkeys((*OF_CSV, *OF_TEXT, *OF_JSON)):
            value = getattr(self, key)
            if value is not None and key != "preset":
                settings[key] = tuple(value) if key == "names" else value
        return Layout(form, **settings)


class KafkaSink(Section):
    """A topic that `sessionlake publish` writes sessions or windows to."""

    bootstrap_servers: str
    topic: str
    emit: Literal["changes", "final"] | None = None
    """The published rows: every change, or rows once they are final. Without a setting as `session.emit`, otherwise changes."""
    max_lag: int | None = Field(default=None, ge=1)
    """Batches that `publish` may be behind: of more, a running stream takes none until it has caught up."""
    transactions: bool = False
    """Whether each step is a transaction of Kafka, so that readers of committed records see it once."""
    errors: str | None = None
    """A topic that gets late events and dead letters."""
    options: dict[str, str | int | bool] = Field(default={})


class DeltaSink(Section):
    """A plain table that `sessionlake publish` keeps equal to the results, for other engines to read."""

    path: str
    emit: Literal["changes", "final"] | None = None
    """The rows of the table: all, or those that events can't change any more. Without a setting as `session.emit`, otherwise all."""
    every: Duration = "1 minute"
    """While `publish` runs on, the table is brought up to date at most this often."""
    history: bool = False
    """Whether the table has each version of a row, with the time in which it held, and not only the last one."""
    change_feed: bool = False
    """Whether the table has Delta's change data feed."""
    deletion_vectors: bool = False
    """Whether a step marks rows as deleted, and does not write their files again. Some readers know no deletion vectors."""


class PostgresSink(Section):
    """A table of a PostgreSQL database that `sessionlake publish` keeps equal to the results."""

    url: str
    """For example postgresql://user@host/database; `${env:NAME}` and `${file:PATH}` in it stand for a secret's value."""
    table: str
    """Its name, which may have a schema: public.sessions. It is made if it is not there."""
    emit: Literal["changes", "final"] | None = None
    """The rows of the table: all, or those that events can't change any more. Without a setting as `session.emit`, otherwise all."""
    every: Duration = "1 second"
    """While `publish` runs on, the table is brought up to date at most this often."""


class PythonSink(Section):
    """A function of the user's that `sessionlake publish` calls with the rows that have changed."""

    call: str
    """Import path module:function, installed or in pipeline.code: `function(rows, delivery)`."""
    emit: Literal["changes", "final"] | None = None
    """The rows that it gets: all, or those that events can't change any more. Without a setting as `session.emit`, otherwise all."""
    first: Literal["all", "none"] = "all"
    """Whether the first step brings all rows that there are, or none of them."""
    every: Duration = "1 second"
    """While `publish` runs on, it is called at most this often."""
    max_rows: int = Field(default=100_000, ge=1)
    """The rows of a call at most: more come in several calls of one step."""


class SinkSection(Section):
    """The targets of sessions or windows besides the warehouse."""

    kafka: KafkaSink | None = None
    delta: DeltaSink | None = None
    postgres: PostgresSink | None = None
    python: PythonSink | None = None

    @property
    def targets(self) -> dict[str, KafkaSink | DeltaSink | PostgresSink | PythonSink]:
        """The targets that there are, by their names in the config."""
        named = {TOPIC: self.kafka, TABLE: self.delta, DATABASE: self.postgres, FUNCTION: self.python}
        return {name: sink for name, sink in named.items() if sink is not None}


Kafka = TypeVar("Kafka", SourceSection, KafkaSink)


def with_absolute_secrets(section: Kafka, directory: Path) -> Kafka:
    """Return the section with each `${file:PATH}` absolute; relative ones are relative to `directory`."""

    def absolute(value: object) -> object:
        return with_absolute_files(value, directory) if isinstance(value, str) else value

    options = {name: absolute(value) for name, value in section.options.items()}
    texts = {name: absolute(getattr(section, name)) for name in _SECRET_TEXTS if hasattr(section, name)}
    return section.model_copy(update={"options": options, **texts})


def check_references(value: object, *where: str) -> None:
    """Raise a ConfigError for a reference to a secret if none is looked up: it would be taken as it is written."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            check_references(inner, *where, name)
    elif isinstance(value, str) and has_reference(value):
        section = where[:-1] if where[-1] in _SECRET_TEXTS else where[:-2] if "options" in where[-2:-1] else ()
        if section[-1:] == ("source",) or section == ("sink", "kafka") or where == ("sink", "postgres", "url"):
            return
        raise ConfigError(
            f"{'.'.join(where)}: {value!r} refers to a secret; that goes in bootstrap_servers, schema_registry, in [source.options] or [sink.kafka.options], and in sink.postgres.url only"
        )


def check_source(source: SourceSection) -> None:
    """Raise a ConfigError for keys that are missing, or that another kind of source has."""
    for kind, entry in SOURCES.items():
        foreign = next((name for name in entry.keys if _is_set(source, name)), None) if kind != source.kind else None
        if foreign is not None:
            raise ConfigError(f"{source.AT}.{foreign}: goes with kind {kind!r} only; remove it")
    if source.shallow_clones and (source.entry.is_pipeline or not source.entry.is_table):
        raise ConfigError(f"{source.AT}.shallow_clones: goes with kinds 'delta' and 'change_feed' only; remove it")
    if source.entry.has_own_keys_only:
        given = (name for name in type(source).model_fields if name in source.model_fields_set)
        if (name := next((name for name in given if name not in ("kind", *source.entry.keys)), None)) is not None:
            raise ConfigError(f"{source.AT}.{name}: does not go with kind {source.kind!r}; remove it")
    composed = next((item for item in source.types.items() if parse_type(item[1]).parts), None)
    if composed is not None and source.format not in ("json", "parquet"):
        name, text = composed
        raise ConfigError(
            f"{source.AT}.types.{name}: {text!r} goes with format 'json' or 'parquet' only; write a plain type"
        )
    named(source.entry.check)(source)


def _is_set(source: SourceSection, name: str) -> bool:
    return bool(getattr(source, name) != SourceSection.model_fields[name].default)


def require_path(source: SourceSection) -> None:
    """Raise a ConfigError if a source that lies at a path has none."""
    if not source.path:
        raise ConfigError(f"{source.AT}.path: is missing; add it to the config")


_TABLE_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}(\.[a-z_][a-z0-9_]{0,62})?")


def check_database(sink: PostgresSink) -> None:
    """Raise a ConfigError for a URL or a table that can't be."""
    if not has_reference(sink.url) and not sink.url.startswith(("postgresql://", "postgres://")):
        raise ConfigError(
            "sink.postgres.url: must begin with postgresql://; write for example postgresql://user@host/database"
        )
    if not _TABLE_NAME.fullmatch(sink.table):
        raise ConfigError(
            f"sink.postgres.table: {sink.table!r} is no name of a table; write lower-case letters, digits and _, and a schema before a point if it has one"
        )


def check_function(sink: PythonSink) -> None:
    """Raise a ConfigError for a path of no function."""
    if not IMPORT_PATH.fullmatch(sink.call):
        raise ConfigError(
            f"sink.python.call: {sink.call!r} is no import path; write 'package.module:function', for example 'shop.alerts:on_rows'"
        )


def check_sink(sink: KafkaSink) -> None:
    """Raise a ConfigError for a topic or options that can't be."""
    check_topic_name("sink.kafka.topic", sink.topic)
    if sink.errors is not None:
        check_topic_name("sink.kafka.errors", sink.errors)
        if sink.errors == sink.topic:
            raise ConfigError(f"sink.kafka.errors: {sink.errors!r} is the topic of the results; write another one")
    check_options("sink.kafka.options", sink.options)


def check_topic_name(where: str, topic: str) -> None:
    """Raise a ConfigError unless Kafka takes this name."""
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise ConfigError(f"{where}: {topic!r} is no topic; write one name of letters, digits, '.', '_' and '-'")


def check_options(where: str, options: dict[str, str | int | bool]) -> None:
    """Raise a ConfigError for options that have a setting of their own."""
    for name in options:
        ours = _OURS.get(name.lower())
        if ours is not None:
            if where.endswith("source.options"):
                ours = ours.replace("source.", where.removesuffix("options"))
            raise ConfigError(f"{where}.{name}: is set by another key; write {ours}, and remove this one")


def option_texts(options: dict[str, str | int | bool]) -> dict[str, str]:
    """Return options as Spark takes them."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
