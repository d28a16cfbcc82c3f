"""The config's sections that say what is read from and written to outside the warehouse."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

from pydantic import Field

from sessionlake.config.secrets import has_reference, with_absolute_files
from sessionlake.config.sections import Section
from sessionlake.errors import ConfigError

ColumnType = Literal["long", "double", "string", "boolean", "timestamp", "date"]
Format = Literal["json", "csv", "parquet"]
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_OURS = {
    "subscribe": "source.topic",
    "subscribepattern": "source.topic",
    "assign": "source.topic",
    "topic": "sink.kafka.topic",
    "kafka.bootstrap.servers": "bootstrap_servers",
    "maxoffsetspertrigger": "source.max_offsets_per_batch",
    "includeheaders": "nothing: headers are always read",
}
_SECRETS_OF = (("source",), ("join", "left", "source"), ("join", "right", "source"), ("sink", "kafka"))
"""The sections with secrets, in `bootstrap_servers` and `options`."""
_KAFKA_ONLY = ("bootstrap_servers", "topic", "avro_schema", "confluent_header", "tombstones", "options")


class SourceSection(Section):
    """What is read."""

    AT: ClassVar[str] = "source"
    """Where in the config it stands."""

    kind: Literal["files", "delta", "kafka"]
    path: str = ""
    format: Literal["json", "csv", "parquet", "avro"] | None = None
    max_files_per_batch: int | None = Field(default=None, ge=1)
    """Files a micro-batch reads at the most; 16 where none is given, and no bytes are for a source of files."""
    max_bytes_per_batch: int | None = Field(default=None, ge=1)
    """Bytes of files a micro-batch reads at the most, one file at least; for a source of files in place of their number."""
    max_line_bytes: int = Field(default=16_777_216, ge=1, le=1 << 30)
    """A longer line of JSON or record of CSV is a dead letter, and is read past."""
    types: dict[str, ColumnType] = Field(default={})
    """Column types of text files, where inference from the files at first start is not enough."""
    bootstrap_servers: str | None = None
    topic: str | None = None
    avro_schema: str | None = None
    """File of the schema that Avro values are written with."""
    confluent_header: bool = False
    """Whether Avro values begin with the five bytes of Confluent's wire format, which are then left out."""
    max_offsets_per_batch: int = Field(default=1_000_000, ge=1)
    tombstones: bool = False
    """Whether records without a value, with the headers that name a session, remove it: then whoever may write to the topic may."""
    options: dict[str, str | int | bool] = Field(default={})
    """Passed on to Spark's Kafka connector. `${env:NAME}` and `${file:PATH}` in a text stand for a secret's value."""

    @property
    def files_per_batch(self) -> int | None:
        """Files a micro-batch reads at the most; None where bytes alone bound it."""
        if self.max_files_per_batch is None and self.kind == "files" and self.max_bytes_per_batch is not None:
            return None
        return self.max_files_per_batch or 16

    @property
    def bytes_per_batch(self) -> int | None:
        """Bytes a micro-batch reads at the most; None where files or records alone bound it."""
        if self.max_bytes_per_batch is None and self.kind == "delta":
            return 1 << 30
        return self.max_bytes_per_batch

    @property
    def file_format(self) -> Format | None:
        """The format of files; None where the source has rows or records."""
        return self.format if self.kind == "files" and self.format != "avro" else None


class KafkaSink(Section):
    """A topic that `sessionlake publish` writes sessions or windows to."""

    bootstrap_servers: str
    topic: str
    emit: Literal["changes", "final"] | None = None
    """What is published: every change, or rows once they are final; as `session.emit` says, else changes, where none is given."""
    max_lag: int | None = Field(default=None, ge=1)
    """Batches that `publish` may be behind: of more, a running stream takes none until it has caught up."""
    options: dict[str, str | int | bool] = Field(default={})


class SinkSection(Section):
    """Where sessions or windows go besides the warehouse."""

    kafka: KafkaSink | None = None


Kafka = TypeVar("Kafka", SourceSection, KafkaSink)


def with_absolute_secrets(section: Kafka, directory: Path) -> Kafka:
    """Return the section with each `${file:PATH}` absolute; relative ones are relative to `directory`."""

    def absolute(value: object) -> object:
        return with_absolute_files(value, directory) if isinstance(value, str) else value

    options = {name: absolute(value) for name, value in section.options.items()}
    return section.model_copy(update={"options": options, "bootstrap_servers": absolute(section.bootstrap_servers)})


def check_references(value: object, *where: str) -> None:
    """Raise a ConfigError for a reference to a secret where none is looked up: it would be taken as it is written."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            check_references(inner, *where, name)
    elif isinstance(value, str) and has_reference(value):
        if where[-1:] == ("bootstrap_servers",) and where[:-1] in _SECRETS_OF:
            return
        if where[-2:-1] == ("options",) and where[:-2] in _SECRETS_OF:
            return
        raise ConfigError(
            f"{'.'.join(where)}: {value!r} refers to a secret; that goes in bootstrap_servers and [source.options] or [sink.kafka.options] only"
        )


def check_source(source: SourceSection) -> None:
    """Raise a ConfigError for keys that are missing, or that another kind of source has."""
    if source.kind == "kafka":
        _check_kafka(source)
        return
    if source.kind == "files" and source.max_files_per_batch and source.max_bytes_per_batch:
        raise ConfigError(
            f"{source.AT}.max_bytes_per_batch: goes without max_files_per_batch, since Spark bounds a batch of files by one of them; "
            "remove one"
        )
    named = next((name for name in _KAFKA_ONLY if getattr(source, name)), None)
    if named is not None:
        raise ConfigError(f"{source.AT}.{named}: goes with kind 'kafka' only; remove it")
    if not source.path:
        raise ConfigError(f"{source.AT}.path: is missing; add it to the config")
    if source.kind == "files" and source.file_format is None:
        what = "is missing" if source.format is None else f"{source.format!r} goes with kind 'kafka' only"
        raise ConfigError(f"{source.AT}.format: {what}; write 'json', 'csv' or 'parquet'")
    if source.kind == "delta" and source.format is not None:
        raise ConfigError(f"{source.AT}.format: {source.format!r} goes with kind 'files' only; remove it")


def _check_kafka(source: SourceSection) -> None:
    if source.max_bytes_per_batch is not None:
        raise ConfigError(
            f"{source.AT}.max_bytes_per_batch: Spark bounds a batch of a topic by its records; write max_offsets_per_batch, "
            "the bytes divided by those of your largest usual record"
        )
    if source.path:
        raise ConfigError(
            f"{source.AT}.path: {source.path!r} goes with kind 'files' or 'delta'; write {source.AT}.topic"
        )
    if not source.bootstrap_servers:
        raise ConfigError(f"{source.AT}.bootstrap_servers: is missing; write for example 'localhost:9092'")
    check_topic_name(f"{source.AT}.topic", source.topic or "")
    if source.format not in ("json", "avro"):
        what = "is missing" if source.format is None else f"{source.format!r} is no format of records"
        raise ConfigError(f"{source.AT}.format: {what}; write 'json' or 'avro'")
    if source.confluent_header and source.format != "avro":
        raise ConfigError(f"{source.AT}.confluent_header: goes with format 'avro' only; remove it")
    if (source.format == "avro") != (source.avro_schema is not None):
        what = "is missing; name the file of" if source.format == "avro" else "goes with format 'avro' only; remove"
        raise ConfigError(f"{source.AT}.avro_schema: {what} the schema that the values are written with")
    check_options(f"{source.AT}.options", source.options)


def check_sink(sink: KafkaSink) -> None:
    """Raise a ConfigError for a topic or options that can't be."""
    check_topic_name("sink.kafka.topic", sink.topic)
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
