"""Sources as far as they can be looked at without Spark: samples of local files, and the log of a Delta table."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, cast

import pyarrow as pa
from deltalake.exceptions import DeltaError, TableNotFoundError

from sessionlake.config.load import Config
from sessionlake.config.operators import named
from sessionlake.config.secrets import reveal, reveal_all
from sessionlake.config.source import option_texts
from sessionlake.errors import SourceError
from sessionlake.sources.avro import read_avro_schema
from sessionlake.sources.base import Source
from sessionlake.sources.change_feed import ChangeFeedSource
from sessionlake.sources.decoding.kafka_records import RecordDecoder
from sessionlake.sources.delta import DeltaSource, outside_error
from sessionlake.sources.files import FileSource
from sessionlake.sources.infer import declared_and_inferred
from sessionlake.sources.kafka import topic_of
from sessionlake.sources.lookups.source import with_lookups
from sessionlake.sources.lookups.tables import tables_of
from sessionlake.sources.record_columns import meta_of
from sessionlake.sources.results import ResultsSource
from sessionlake.warehouse.opened import opened
from sessionlake.warehouse.own_paths import outside_of_opened

# These sources are never asked for anything that needs a Spark session.
_NO_SPARK = cast("Any", None)


class UnseenError(Exception):
    """The source's columns are known to Spark only."""


class LoggedTable(DeltaSource):
    """A Delta table whose log is read by deltalake."""

    def _schema(self) -> pa.Schema:
        source = self._config.source
        try:
            table = opened(source.path)
            fields = pa.schema(table.schema().to_arrow())
            # The results of another pipeline are trusted like the warehouse.
            trusted = source.shallow_clones or isinstance(self, ResultsSource)
            found = None if trusted else outside_of_opened(table)
        except TableNotFoundError as error:
            raise SourceError(
                f"{source.AT}.path: {source.path!r} is no readable Delta table; create it or correct the path"
            ) from error
        except (DeltaError, OSError, ValueError) as error:
            raise UnseenError from error
        if found is not None:
            raise outside_error(self._config, found)
        return pa.schema([(field.name, _plain(field.type)) for field in fields])


class LoggedResults(ResultsSource, LoggedTable):
    """The results of another pipeline, whose log alone is read, by deltalake."""


class LoggedFeed(ChangeFeedSource, LoggedTable):
    """The change data feed of a Delta table, whose log alone is read, by deltalake."""

    def _properties(self) -> Mapping[str, str]:
        return {k: v or "" for k, v in opened(self._config.source.path).metadata().configuration.items()}


class DeclaredTopic:
    """A topic with the columns that the config declares; see `Source` for the methods."""

    def __init__(self, config: Config) -> None:
        self._source = config.source

    def check(self) -> None:
        """Refuse secrets that are not there, and a schema that can't be read."""
        at = self._source.AT
        reveal(f"{at}.bootstrap_servers", self._source.bootstrap_servers or "")
        reveal_all(f"{at}.options", option_texts(self._source.options))
        reveal(f"{at}.schema_registry", self._source.schema_registry or "")
        if self._source.avro_schema is not None:
            read_avro_schema(self._source)

    def columns(self) -> list[str]:
        """Raise UnseenError, because the columns are not known."""
        raise UnseenError

    def types(self, needed: Sequence[str], identity: AbstractSet[str] = frozenset()) -> dict[str, pa.DataType]:
        """Return the types that the config declares of columns."""
        del identity
        return declared_and_inferred(self._source, needed, self._unknown, meta_of(self._source))

    def decoder(self, columns: Any) -> RecordDecoder:
        """Return the decoder of the records."""
        return RecordDecoder(columns, topic_of(self._source))

    def _unknown(self, names: Sequence[str]) -> Mapping[str, pa.DataType]:
        del names
        raise UnseenError


def sources_without_spark(config: Config) -> dict[str, Source]:
    """Return a pipeline's sources by the names of its event inputs."""
    return {name: with_lookups(_opened(side), side, tables_of(side, _opened)) for name, side in config.inputs.items()}


def _opened(config: Config) -> Source:
    source: Source = named(config.source.entry.without_spark)(config)
    return source


def local_files(config: Config) -> FileSource:
    """Return a source of files that reads samples of them."""
    return FileSource(_NO_SPARK, config)


def logged_table(config: Config) -> LoggedTable:
    """Return a Delta table that reads its log only."""
    return LoggedTable(_NO_SPARK, config)


def logged_feed(config: Config) -> LoggedFeed:
    """Return the change data feed of a Delta table that reads its log only."""
    return LoggedFeed(_NO_SPARK, config)


def logged_results(config: Config) -> LoggedResults:
    """Return the results of another pipeline, whose log alone is read."""
    return LoggedResults(_NO_SPARK, config)


def _plain(type_: pa.DataType) -> pa.DataType:
    """Return the type as Spark gives it: texts and bytes in one form each."""
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return pa.binary()
    return type_
