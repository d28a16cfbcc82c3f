"""Values of Avro and Protobuf: their columns, and the expressions to decode them (`jars/AvroValues.scala`, `jars/ProtobufValues.scala`).

Their schema is one of a file, or those of a registry: then a value begins with the id of the schema that it was written with
(Confluent's wire format), and tasks ask the registry for it, once for each id.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sessionlake.config.secrets import keep_hidden, reveal
from sessionlake.config.source import SourceSection
from sessionlake.errors import SourceError, UnreachableError, first_line
from sessionlake.warehouse import spark_names
from sessionlake.warehouse.tables import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import StructField, StructType

_SIGN = re.compile(r"SCHEMA_REGISTRY: (\S+) (\S.*)")
"""A registry's errors: its URLs, and the reason."""
_REFUSED = ("HTTP 401", "HTTP 403")
_UNFIT, _WRONG = "version ", re.compile(r"HTTP (3|40)\d|is no URL|Unrecognized")
_NEXT_URL = re.compile(r",\s*(?=https?://)")


class AvroValues:
    """The values of a source whose format is Avro."""

    def __init__(self, spark: "SparkSession", source: SourceSection) -> None:
        self._spark, self._source = spark, source

    def columns(self, names: Sequence[str] = ()) -> "StructType":
        """Return the columns of the file's schema, or of the topics' newest schemas, and the older schemas' columns among `names`.

        SourceError if the file has no schema of a record, if the registry does not answer, or if it does not know the subject.
        """
        if self._source.avro_schema is not None:
            return self._of_file(self._source.avro_schema)
        fields: dict[str, StructField] = {}
        for subject in self._subjects():
            for field in self._of_subject(subject, names).fields:
                fields.setdefault(field.name, field)
        return spark_names.StructType(list(fields.values()))

    def decoded(self, value: "Column", columns: pa.Schema) -> "Column":
        """Return the struct of `value`, a struct of these columns, and `error`, the reason why a value could not be decoded."""
        kinds, reader = spark_schema(columns), ""
        if self._source.avro_schema is not None:
            reader = read_avro_schema(self._source)
            if self._source.schema_registry is None:
                # The workers cast them, as they do for columns of files.
                there = self._of_file(self._source.avro_schema)
                kinds = spark_names.StructType([there[name] for name in columns.names])
        return self._column(value, kinds.json(), reader)

    def as_json(self, value: "Column") -> "Column":
        """Return the struct of `value`, the whole value as the text of JSON, and `error`."""
        return self._column(value, "", "")

    def _column(self, value: "Column", columns: str, reader: str) -> "Column":
        return spark_names.Column(self._jvm.AvroValue.column(value._jc, self._schemas(), columns, reader))

    def _schemas(self) -> Any:
        if self._source.schema_registry is None:
            return self._jvm.OneSchema(read_avro_schema(self._source), self._source.confluent_header)
        return self._jvm.Registry(*_revealed(self._source))

    def _of_file(self, path: str) -> "StructType":
        at = f"{self._source.AT}.avro_schema"
        try:
            kind_of_values = json.loads(self._jvm.AvroValue.kind(read_avro_schema(self._source)))
        except SourceError:
            raise
        except Exception as error:
            raise SourceError(f"{at}: {path!r} is no Avro schema ({first_line(error)}); correct the file") from error
        if not isinstance(kind_of_values, dict) or kind_of_values["type"] != "struct":
            raise SourceError(f"{at}: {path!r} is of another type than a record; it must be one")
        return spark_names.StructType.fromJson(kind_of_values)

    def _of_subject(self, subject: str, names: Sequence[str]) -> "StructType":
        try:
            schema_columns = self._schemas().columns(subject, list(names))
        except Exception as error:
            raise explained(str(error), self._source) or error from error
        if schema_columns is None:
            raise SourceError(
                f"{self._source.AT}.schema_registry: has no subject {subject!r}; write {self._source.AT}.schema_subject, "
                "the subject of the values' schemas"
            )
        return spark_names.StructType.fromJson(json.loads(schema_columns))

    def _subjects(self) -> list[str]:
        if self._source.schema_subject is not None:
            return [self._source.schema_subject]
        return [f"{topic}-value" for topic in self._source.topic_names]

    @property
    def _jvm(self) -> Any:
        jvm: Any = self._spark._jvm
        return jvm.org.apache.spark.sql.avro


class ProtobufValues(AvroValues):
    """The values of a source whose format is Protobuf."""

    def as_json(self, value: "Column") -> "Column":
        """Return the struct of `value`, the message as the text of JSON, and `error`."""
        return spark_names.Column(self._jvm.ProtobufValue.column(value._jc, self._schemas()))

    def _schemas(self) -> Any:
        return self._jvm.ProtobufRegistry(*_revealed(self._source))


def values_of(spark: "SparkSession", source: SourceSection, form: str | None) -> AvroValues:
    """Return the values, or the keys, of a form."""
    return (ProtobufValues if form == "protobuf" else AvroValues)(spark, source)


def read_avro_schema(source: SourceSection) -> str:
    """Return the text of the file with a topic's Avro schema; SourceError if it can't be read."""
    try:
        return Path(source.avro_schema or "").read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(
            f"{source.AT}.avro_schema: {source.avro_schema!r} can't be read ({error}); name a file with an Avro schema"
        ) from error


def _revealed(source: SourceSection) -> tuple[str, str, str]:
    found = parted(reveal(f"{source.AT}.schema_registry", source.schema_registry or ""))
    keep_hidden(found[2])
    return found


def parted(urls: str) -> tuple[str, str, str]:
    """Return URLs, with commas between them, without user and password; and these as they are written, or empty texts.

    >>> parted("https://loader:p/w+d@registry.internal:8081")
    ('https://registry.internal:8081', 'loader', 'p/w+d')
    """
    login, places = "", list[str]()
    for url in _NEXT_URL.split(urls):
        scheme, _, rest = url.strip().partition("://")
        told, _, place = rest.rpartition("@")
        login = login or told
        places.append(f"{scheme}://{place}")
    user, _, password = login.partition(":")
    return ",".join(places), user, password


def explained(told: str, source: SourceSection) -> SourceError | None:
    """Return the error that a failed query's messages mean if the source's registry is the cause; else None."""
    found = _SIGN.search(told)
    if found is None or source.schema_registry is None or _revealed(source)[0] != found[1]:
        return None
    at, reason = f"{source.AT}.schema_registry", found[2]
    if reason.startswith(_REFUSED):
        return SourceError(
            f"{at}: refuses this user ({reason}); correct user and password, for example https://user:password@host"
        )
    if reason.startswith(_UNFIT):
        return SourceError(
            f"{at}: {reason}; write {source.AT}.schema_subject, a subject whose schemas are records of Avro, or messages of Protobuf"
        )
    if _WRONG.match(reason):
        return SourceError(f"{at}: does not answer as a schema registry ({reason}); correct the URL")
    return UnreachableError(
        f"{at}: does not answer ({reason}); nothing is lost, start again once it does, or correct the URL"
    )
