"""Sources as far as they can be looked at without Spark: samples of local files, and the log of a Delta table."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import pyarrow as pa
from deltalake.exceptions import DeltaError, TableNotFoundError

from sessionlake.column_names import roots_of
from sessionlake.config.load import Config
from sessionlake.config.operators import named
from sessionlake.config.secrets import reveal, reveal_all
from sessionlake.config.source import option_texts
from sessionlake.errors import SessionlakeError, SourceError, first_line
from sessionlake.sources.avro import read_avro_schema
from sessionlake.sources.base import Source
from sessionlake.sources.change_feed import ChangeFeedSource
from sessionlake.sources.columns import TIMESTAMP
from sessionlake.sources.decoding.files import PATH, FileDecoder, is_local
from sessionlake.sources.decoding.kafka_records import HEADER, RecordDecoder
from sessionlake.sources.decoding.nested import flattened, type_at
from sessionlake.sources.decoding.rows import Rows
from sessionlake.sources.decoding.tables import BLOCK, FILE, PART, TableDecoder
from sessionlake.sources.delta import DeltaSource, outside_error
from sessionlake.sources.exploded import exploded
from sessionlake.sources.files import FileSource, source_files
from sessionlake.sources.infer import InferredTypes, declared_and_inferred, infer_values, scanned, types_of
from sessionlake.sources.kafka import kinds_of_keys, topic_of
from sessionlake.sources.lookups.source import with_lookups
from sessionlake.sources.lookups.tables import tables_of
from sessionlake.sources.partitions import PARTITIONS, slots_of
from sessionlake.sources.record_columns import CHANGE_TYPE, meta_of
from sessionlake.sources.results import ResultsSource
from sessionlake.sources.topic_pattern import matching, with_topics
from sessionlake.sources.topic_records import TopicReader
from sessionlake.warehouse.arrow_files import delta_rows
from sessionlake.warehouse.changelog import SIGN
from sessionlake.warehouse.lake import opened
from sessionlake.warehouse.own_paths import outside_of_opened

# These sources are never asked for anything that needs a Spark session.
_NO_SPARK = cast("Any", None)
_PATIENCE_S, _NEWEST, _NEWEST_BYTES = 5.0, 1000, 32 << 20
_OF_KAFKA = "kafka."
_Answer = TypeVar("_Answer")


class UnseenError(Exception):
    """The source's columns are known to Spark only."""


class UnsampledError(Exception):
    """No rows of the source can be looked at; the text says why."""


class Sampled(Protocol):
    """A source whose first rows can be looked at without Spark; `Source` has its other methods."""

    def look(self) -> None:
        """Read what column types need, too; UnsampledError if this is impossible here."""

    def first_rows(self, decoder: Any, most: int | None) -> Iterator[Rows]:
        """Decode about `most` of the first rows, in small parts and in order; None for all. UnsampledError as above."""


class LocalFiles(FileSource):
    """A directory of files, whose samples are read once for all questions."""

    @cached_property
    def _files(self) -> list[str]:
        return source_files(self._config)

    @cached_property
    def _kinds(self) -> InferredTypes:
        return scanned(self._files, self._layout, None)

    def _found(self, needed: frozenset[str]) -> InferredTypes:
        """Return all columns; of JSON with all types, because a line is parsed as a whole."""
        return self._kinds if self._layout.format == "json" else scanned(self._files, self._layout, needed)

    @cached_property
    def _answers(self) -> dict[tuple[tuple[str, ...], frozenset[str]], dict[str, pa.DataType]]:
        return {}

    def types(self, needed: Sequence[str], identity: AbstractSet[str] = frozenset()) -> dict[str, pa.DataType]:
        """Return the types of columns; a warning about them comes once."""
        asked = tuple(needed), frozenset(identity)
        if asked not in self._answers:
            self._answers[asked] = super().types(needed, identity)
        return dict(self._answers[asked])

    def look(self) -> None:
        """Do nothing: types are learnt from files in any case."""

    def first_rows(self, decoder: FileDecoder, most: int | None) -> Iterator[Rows]:
        """Decode the files in the order in which a stream reads them, the oldest first."""
        if not is_local(self._path):
            raise UnsampledError("its files are not on this machine")
        files: list[str] = []
        with suppress(SourceError):  # none are there, and types are known without
            files = sorted(self._files, key=_modified)
        yield from decoded_files(replace(decoder, few=most is not None), files)


def decoded_files(decoder: FileDecoder, files: Sequence[str]) -> Iterator[Rows]:
    """Decode local files, one after the other, in parts."""
    for path in files:
        table = pa.table({PATH: [path]})
        yield from decoder.decode_in_order(table, {path: 0}, 0) if decoder.columns.ordered else decoder.decode(table)


class LoggedTable(DeltaSource):
    """A Delta table whose log is read by deltalake."""

    def _schema(self) -> pa.Schema:
        source = self._config.source
        try:
            table = opened(source.path, impatient=True)
            fields = pa.schema(table.schema().to_arrow())
            # The results of another pipeline are trusted like the warehouse.
            trusted = source.shallow_clones or isinstance(self, ResultsSource)
            outside = None if trusted else outside_of_opened(table, source.path)
        except TableNotFoundError as error:
            raise SourceError(
                f"{source.AT}.path: {source.path!r} is no readable Delta table; create it or correct the path"
            ) from error
        except (DeltaError, OSError, ValueError) as error:
            raise UnseenError from error
        if outside is not None:
            raise outside_error(self._config, outside)
        return pa.schema([(field.name, _plain(field.type)) for field in fields])

    def look(self) -> None:
        """Do nothing: the log has the types."""

    def first_rows(self, decoder: TableDecoder, most: int | None) -> Iterator[Rows]:
        """Decode rows of the newest version."""
        columns, schema = decoder.columns, self._schema()
        there = [name for name in columns.needed if type_at(schema, name) is not None]
        try:
            for batch in delta_rows(
                opened(self._config.source.path, impatient=True), [*roots_of(there)] or None, self._condition, most
            ):
                rows = pa.table(batch)
                own = flattened(rows, there)
                read = {**self._meta_of(rows.num_rows), **{name: own[name] for name in there}}
                table = {name: read[name].cast(columns.types[name], safe=False) for name in columns.needed}
                yield from self._decoded(decoder, table, rows.num_rows)
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise UnsampledError(f"its rows can't be read here ({first_line(error)})") from error

    _condition: str | None = None
    """SQL of the counted rows."""

    def _meta_of(self, rows: int) -> dict[str, pa.Array]:
        """Return the columns of rows besides the table's, as if one version had added the rows."""
        return {
            name: pa.repeat(pa.scalar("insert" if name == CHANGE_TYPE else 0, type_), rows)
            for name, type_ in self._meta.items()
        }

    def _decoded(self, decoder: TableDecoder, read: Mapping[str, pa.ChunkedArray], rows: int) -> Iterator[Rows]:
        """Decode rows as a stream has them."""
        if not decoder.columns.ordered:
            return decoder.decode(pa.table(read))
        table = pa.table({**read, FILE: pa.repeat("", rows), BLOCK: pa.repeat(0, rows)})
        return decoder.decode_in_order(table, {"": 0}, 0)


class SignedTable(LoggedTable):
    """A Delta table whose rows have signs."""

    def _decoded(self, decoder: TableDecoder, read: Mapping[str, pa.ChunkedArray], rows: int) -> Iterator[Rows]:
        """Decode rows that are added."""
        signed = {**read, SIGN: pa.repeat(1, rows)}
        if not decoder.columns.ordered:
            return decoder.decode(pa.table(signed))
        return decoder.decode_in_order(pa.table({**signed, PART: pa.repeat(0, rows)}), {}, 0)


class LoggedResults(ResultsSource, SignedTable):
    """The results of another pipeline, by deltalake."""

    _condition = "op = 'upsert'"


class LoggedFeed(ChangeFeedSource, SignedTable):
    """The change data feed of a Delta table, by deltalake."""

    def _properties(self) -> Mapping[str, str]:
        return {
            k: v or "" for k, v in opened(self._config.source.path, impatient=True).metadata().configuration.items()
        }


class DeclaredTopic:
    """A topic with the config's declared columns and, once examined, its newest records; see `Source` for the methods."""

    def __init__(self, config: Config) -> None:
        self._source = config.source
        self._records: pa.Table | None = None
        self._matched = False

    def check(self) -> None:
        """Refuse missing secrets, and an unreadable schema."""
        at = self._source.AT
        reveal(f"{at}.bootstrap_servers", self._source.bootstrap_servers or "")
        reveal_all(f"{at}.options", option_texts(self._source.options))
        reveal(f"{at}.schema_registry", self._source.schema_registry or "")
        if self._source.avro_schema is not None:
            read_avro_schema(self._source)
        with suppress(UnsampledError):  # Spark asks again
            self._match()

    def columns(self) -> list[str]:
        """Return the columns of the newest records; UnseenError if it was not looked at."""
        return list(dict.fromkeys((*self._kinds(), *self._source.types)))

    def types(self, needed: Sequence[str], identity: AbstractSet[str] = frozenset()) -> dict[str, pa.DataType]:
        """Return the config's declared column types."""
        del identity
        return declared_and_inferred(self._source, needed, self._unknown, meta_of(self._source))

    def decoder(self, columns: Any) -> RecordDecoder:
        """Return the decoder of the records."""
        return RecordDecoder(columns, topic_of(self._source))

    def look(self) -> None:
        """Read the newest records, within five seconds."""
        source = self._source
        if source.format != "json" or source.envelope is not None or source.key_format not in (None, "json"):
            raise UnsampledError("Avro, Protobuf and envelopes are read by Spark alone")
        self._match()
        self._records = self._newest()

    def first_rows(self, decoder: RecordDecoder, most: int | None) -> Iterator[Rows]:
        """Decode the newest records."""
        if self._records is None or not self._records.num_rows:
            return
        records = self._records.slice(0, most)
        yield from decoder.decode_in_order(records, {}, 0) if decoder.columns.ordered else decoder.decode(records)

    def _match(self) -> None:
        """Look once which topics match; SourceError if none does."""
        if self._source.topic_pattern is None or self._matched:
            return
        topics = matching(self._source, self._asked(TopicReader.topics))
        self._source, self._matched = with_topics(self._source, (), topics), True

    def _asked(self, question: Callable[[TopicReader], _Answer]) -> _Answer:
        """Return a reader's answer; UnsampledError if there is none."""
        source = self._source
        servers = reveal(f"{source.AT}.bootstrap_servers", source.bootstrap_servers or "")
        given = reveal_all(f"{source.AT}.options", option_texts(source.options))
        options = {name.removeprefix(_OF_KAFKA): text for name, text in given.items() if name.startswith(_OF_KAFKA)}
        try:
            return question(TopicReader(source.place_at, servers, _PATIENCE_S, options))
        except SessionlakeError as error:
            raise UnsampledError(str(error).removeprefix(f"{source.place_at}: ")) from error

    def _newest(self) -> pa.Table:
        source, slots = self._source, slots_of(self._source)
        records = self._asked(lambda reader: reader.newest(source.topic_names, _NEWEST, _NEWEST_BYTES))
        values = [_without_header(record.value) if source.confluent_header else record.value for record in records]
        times = pa.array([record.time_ms * 1000 for record in records], pa.int64()).cast(TIMESTAMP)
        columns = {
            "value": pa.array(values, pa.binary()),
            "key": pa.array([record.key for record in records], pa.binary()),
            "partition": pa.array([slots.get(r.topic, 0) * PARTITIONS + r.partition for r in records], pa.int32()),
            "offset": pa.array([record.offset for record in records], pa.int64()),
            "timestamp": times,
            "headers": pa.array([record.headers for record in records], pa.list_(HEADER)),
        }
        return pa.table(columns)

    def _kinds(self, column: str = "value") -> InferredTypes:
        if self._records is None:
            raise UnseenError
        if not self._records.num_rows:
            raise UnsampledError("the topic has no records yet")
        return infer_values(self._records[column].drop_null().to_pylist())

    def _unknown(self, names: Sequence[str]) -> Mapping[str, pa.DataType]:
        """Return the types that columns have in the newest records; UnseenError if it was not looked at."""
        keyed = topic_of(self._source).of_keys(names)
        kinds = types_of(self._kinds() | kinds_of_keys(self._kinds("key") if keyed else {}, keyed))
        if (missing := next((name for name in names if name not in kinds), None)) is not None:
            raise UnsampledError(
                f"column {missing!r} is in none of the newest records; declare it in [{self._source.AT}.types]"
            )
        return {name: kind for name in names if (kind := kinds[name]) is not None}


def sources_without_spark(config: Config) -> dict[str, Source]:
    """Return a pipeline's sources by event input."""
    return {
        name: with_lookups(exploded(_opened(side), side), side, tables_of(side, _opened))
        for name, side in config.inputs.items()
    }


def _opened(config: Config) -> Source:
    source: Source = named(config.source.entry.without_spark)(config)
    return source


def local_files(config: Config) -> LocalFiles:
    """Return a source of files for samples."""
    return LocalFiles(_NO_SPARK, config)


def logged_table(config: Config) -> LoggedTable:
    """Return a Delta table, with access to the log only."""
    return LoggedTable(_NO_SPARK, config)


def logged_feed(config: Config) -> LoggedFeed:
    """Return a Delta table's change data feed, with access to the log only."""
    return LoggedFeed(_NO_SPARK, config)


def logged_results(config: Config) -> LoggedResults:
    """Return the results of another pipeline, whose log alone is read."""
    return LoggedResults(_NO_SPARK, config)


def _modified(path: str) -> tuple[int, str]:
    with suppress(OSError):
        return Path(path).stat().st_mtime_ns, path
    return 0, path


def _without_header(value: bytes) -> bytes:
    """Return a value without the five bytes that Confluent's serializers put before JSON."""
    return value[5:] if value[:1] == b"\0" else value


def _plain(type_: pa.DataType) -> pa.DataType:
    """Return the type as Spark gives it: texts and bytes in one form each."""
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return pa.binary()
    return type_
