"""Kafka records to typed rows, and to the tombstones that Pattern 7 sends to the topic."""

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import combined
from sessionlake.errors import SourceError
from sessionlake.sources.columns import TIMESTAMP, EventColumns
from sessionlake.sources.decoding.decoded import WRONG_TYPE, Indices, in_halves, one_line, typed
from sessionlake.sources.decoding.json_lines import read_lines
from sessionlake.sources.decoding.lines import index_values
from sessionlake.sources.decoding.rows import Origin, Rows, no_text, raw_text
from sessionlake.sources.decoding.safe_cast import cast_each
from sessionlake.sources.decoding.whole import RECORD, SCHEMA, Whole, json_rows
from sessionlake.sources.partitions import PARTITIONS
from sessionlake.sources.record_columns import (
    CHANGE_META,
    EXPIRY,
    HEADERS,
    KEY,
    META,
    NO_VALUE,
    OFFSET,
    OP,
    PARTITION,
    SOURCE_TIME,
    TIME,
    TOMBSTONE_KIND,
    TOPIC,
    of_key,
)
from sessionlake.warehouse import schemas

TOMBSTONE_HEADERS = {
    name: f"sessionlake.{name}" for name in ("key", "start", "revision", "correction", "offset", "cause")
}
"""Headers of a tombstone: the key, the start (microseconds since the epoch), the revision, and optionally an id.

A tombstone with a cause says that a keyed table's row has expired. It names the row by its record's offset.
"""
NO_CHANGE, TRUNCATED = "no change event", "truncate: the rows of the table are gone there, and not here"
NULL_VALUE = "null value without the headers of a tombstone"
BODY = "body"
"""The column of records whose value is no row of JSON itself: the row, as JSON."""
EVENT, REASON, KEY_REASON, TOMBSTONE = "event_", "reason", "key_reason", "tombstone"
"""Prefixes and names of columns besides a record's own: those of the Avro value have a prefix, and are null if the value could
not be decoded; `reason` says why, `key_reason` why a key could not be. The headers in TOMBSTONE_HEADERS are a struct, if they are read."""
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
"""A header as records have it."""
_PLACES = ("timestamp", "partition", "offset")


@dataclass(frozen=True, slots=True)
class Topic:
    """The settings that decoding needs for a topic."""

    name: str
    """The topic; of several all of them, for people."""
    avro: bool
    changes: bool = False
    """Whether records hold changes of rows, whose envelope is opened already (`sources/kafka.py`)."""
    has_fields_of_keys: bool = False
    """Whether keys are objects of JSON, as which Spark gives keys of Avro."""
    protobuf: bool = False
    """Whether values are messages of Protobuf, of which Spark gives JSON."""
    slots: Mapping[str, int] | None = None
    """The topics' slots, if several may be read: partitions then have the numbers of `sources/partitions.py`."""

    @property
    def meta(self) -> Mapping[str, pa.DataType]:
        """A record's columns besides its value's."""
        columns = CHANGE_META if self.changes else META
        return columns if self.slots is None else {**columns, TOPIC: pa.string()}

    def of_keys(self, names: Iterable[str]) -> dict[str, str]:
        """Return the columns that are fields of keys, each with its name within the key."""
        return {name: inner for name in names if self.has_fields_of_keys and (inner := of_key(name)) is not None}

    def places(self, partitions: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return each partition number's topic, and its partition in this topic."""
        if self.slots is None:
            return pa.repeat(self.name, len(partitions)), partitions
        numbers = partitions.to_numpy()
        slots = pa.array([*self.slots.values()], pa.int64())
        at = pc.index_in(pa.array(numbers // PARTITIONS, pa.int64()), value_set=slots)
        names = pa.array([*self.slots], pa.string()).take(at)
        return names, pa.array(numbers % PARTITIONS)


@dataclass(frozen=True)
class RecordDecoder:
    """Decode a topic's records; see `Decoder` for the methods."""

    columns: EventColumns
    topic: Topic

    def part(self, table: pa.Table) -> tuple[pa.Table, pa.Table | None]:
        """Part events from tombstones."""
        records, tombstones = split_tombstones(table, self.topic)
        return records, tombstones if tombstones.num_rows else None

    def decode(self, table: pa.Table) -> Iterator[Rows]:
        """Yield the records' rows."""
        if self.topic.changes:
            table, ignored = without_ignored(table)
            if ignored:
                yield Rows(self.columns.schema.empty_table(), None, no_text, no_text, ignored=ignored)
        for decoded in decode_records(table, self.topic, self.columns):
            yield Rows(decoded.table, decoded.error, decoded.raw, decoded.position, whole=decoded.whole)

    def decode_in_order(self, table: pa.Table, files: Mapping[str, int], part: int) -> Iterator[Rows]:
        """Yield the records' rows by partition of the topic, ordered by offset."""
        del files, part
        for number in pc.unique(table["partition"]).to_pylist():
            records = table.filter(pc.equal(table["partition"], number)).sort_by("offset")
            for decoded in decode_records(records, self.topic, self.columns):
                first = decoded.origin.table["offset"][0].as_py()
                origin = Origin(number, (first, 0, 0))
                yield Rows(decoded.table, decoded.error, decoded.raw, decoded.position, origin, whole=decoded.whole)

    def decode_again(self, table: pa.Table) -> Iterator[tuple[int, Rows]]:
        """Raise SourceError: records may be gone from a topic, so that it is never read again."""
        del table
        raise SourceError(f"source.topic: {self.topic.name!r} can't be read again")


@dataclass(frozen=True, slots=True)
class _Records:
    """Records as an origin of rows."""

    table: pa.Table
    topic: Topic

    def raw(self, indices: Indices) -> pa.Array:
        """Give values as text, cut if it is long: JSON as it was written, with replacement characters; Avro as base64."""
        values = self.table["value"].take(pa.array(indices)).to_pylist()
        return pa.array([None if value is None else self._text(value) for value in values], pa.string())

    def position(self, indices: Indices) -> pa.Array:
        """Give `<topic>/<partition>/<offset>@<timestamp>`."""
        return positions(self.table.take(pa.array(indices)), self.topic)

    def whole(self, indices: Indices) -> pa.Table:
        """Give the records whole: values of JSON, which must be UTF-8, with key, time and place."""
        some = self.table.take(pa.array(indices)).combine_chunks()
        fields = {"key": _text(combined(some["key"])), **{name: combined(some[name]) for name in _PLACES}}
        record = pa.StructArray.from_arrays(list(fields.values()), names=list(fields))
        return json_rows(combined(some["value"]), record.cast(SCHEMA.field(RECORD).type))

    def _text(self, value: bytes) -> str:
        return raw_text(base64.b64encode(value) if self.topic.avro or self.topic.protobuf else value)


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """Records' typed rows, null if missing or wrong; `error` is null for good rows."""

    table: pa.Table
    error: pa.Array
    origin: _Records
    whole: Whole | None = None

    def raw(self, indices: Indices) -> pa.Array:
        """Give these records' values as text."""
        return self.origin.raw(indices)

    def position(self, indices: Indices) -> pa.Array:
        """Return the positions of these records."""
        return self.origin.position(indices)


def positions(records: pa.Table, topic: Topic) -> pa.Array:
    """Give `<topic>/<partition>/<offset>@<timestamp>` of each record, the time in UTC to the millisecond."""
    milliseconds = records["timestamp"].combine_chunks().cast(pa.timestamp("ms", "UTC"), safe=False)
    time = pc.binary_join_element_wise(pc.strftime(milliseconds, "%Y-%m-%dT%H:%M:%S"), "Z", "")
    name, partition = topic.places(combined(records["partition"]))
    place = [number.cast(pa.string()) for number in (partition, combined(records["offset"]))]
    return pc.binary_join_element_wise(pc.binary_join_element_wise(name, *place, "/"), time, "@")


def split_tombstones(records: pa.Table, topic: Topic) -> tuple[pa.Table, pa.Table]:
    """Part records into events and tombstones, the latter as rows of the table corrections.

    A tombstone's header that can't be parsed is null, which makes it a malformed correction. An expiry has the offset of its
    row's record, and its own partition, which is also the row's.
    """
    sent = records[TOMBSTONE].is_valid() if TOMBSTONE in records.column_names else None
    if sent is None or not pc.any(sent).as_py():
        return records, schemas.CORRECTIONS_SCHEMA.empty_table()
    rows = records.filter(sent)
    header = {name: _text(pc.struct_field(rows[TOMBSTONE].combine_chunks(), name)) for name in TOMBSTONE_HEADERS}
    place = positions(rows, topic)
    named = pc.binary_join_element_wise(header["correction"], place, "@")
    expired = header["cause"].is_valid()
    numbers = {name: cast_each(header[name], pa.int64()) for name in ("revision", "offset")}
    columns = {
        # A tombstone sent twice is two corrections; the second is stale.
        "correction_id": pc.coalesce(named, place),
        "kind": pc.if_else(expired, EXPIRY, TOMBSTONE_KIND),
        "key": header["key"],
        "start_time": _micros(header["start"]),
        "revision": pc.if_else(expired, None, numbers["revision"]),
        "source_partition": pc.if_else(expired, rows["partition"].combine_chunks().cast(pa.int64()), None),
        "source_offset": pc.if_else(expired, numbers["offset"], None),
    }
    wanted = schemas.CORRECTIONS_SCHEMA
    nothing = {f.name: pa.nulls(rows.num_rows, f.type) for f in wanted if f.name not in columns}
    arrays = [(columns | nothing)[f.name].cast(f.type) for f in wanted]
    return records.filter(pc.invert(sent)), pa.Table.from_arrays(arrays, schema=wanted)


def without_ignored(records: pa.Table) -> tuple[pa.Table, int]:
    """Return the records, except records without meaning for a row, and the number of the latter.

    A record without a value follows each delete, for a compacted topic. Databases also send messages of their own.
    """
    said = pc.and_kleene(records["value"].is_valid(), pc.fill_null(pc.not_equal(records[OP], "m"), fill_value=True))
    kept = records.filter(said)
    return kept, records.num_rows - kept.num_rows


def decode_records(records: pa.Table, topic: Topic, columns: EventColumns) -> Iterator[DecodedRecords]:
    """Decode records: first records with a value, then records without one, which are all errors."""
    rows = records[_body(records)]
    for has_value in (True, False):
        if has_value and not rows.null_count:
            part = records.combine_chunks()
        else:
            valid = rows.is_valid()
            part = records.filter(valid if has_value else pc.invert(valid)).combine_chunks()
        if not part.num_rows:
            continue
        yield from _decode_some(part, topic, columns, has_value=has_value)


def _decode_some(part: pa.Table, topic: Topic, columns: EventColumns, *, has_value: bool) -> Iterator[DecodedRecords]:
    keyed = topic.of_keys(columns.needed)
    payload = pa.schema([field for field in columns.schema if field.name not in topic.meta and field.name not in keyed])

    def decode(first: int, last: int) -> DecodedRecords:
        some = part.slice(first, last - first)
        if not has_value:
            read, errors = _no_columns(some.num_rows), _without_row(some, topic, columns)
        elif not len(payload):
            read, errors = _no_columns(some.num_rows), {}
        elif topic.avro and not topic.changes:
            read, errors = _read_avro(some)
        else:
            read, errors = read_lines(index_values(some[_body(some)].combine_chunks()), payload)
        if keyed:
            read, errors = _with_key(read, errors, some, keyed, columns)
        table, error = typed(_with_meta(read, some, topic, columns), columns, errors)
        records = _Records(some, topic)
        return DecodedRecords(table, error, records, records.whole if columns.whole else None)

    def failed(row: int, error: Exception) -> DecodedRecords:
        nulls = pa.table([pa.nulls(1, field.type) for field in columns.schema], schema=columns.schema)
        reason = pa.array([f"bad record: {one_line(error)}"])
        return DecodedRecords(nulls, reason, _Records(part.slice(row, 1), topic))

    return in_halves(decode, failed, 0, part.num_rows)


def _without_row(records: pa.Table, topic: Topic, columns: EventColumns) -> dict[int, str]:
    """Return the reasons of records without a row."""
    if topic.changes:
        changed = {at: TRUNCATED if op == "t" else NO_CHANGE for at, op in enumerate(records[OP].to_pylist())}
        return changed | _reasons(records)
    nulls = {} if NO_VALUE in columns.needed else dict.fromkeys(range(records.num_rows), NULL_VALUE)
    return nulls | _reasons(records)


def _body(records: pa.Table) -> str:
    """Return the column with the rows."""
    return BODY if BODY in records.column_names else "value"


def _no_columns(rows: int) -> pa.Table:
    return pa.table({"": pa.nulls(rows)})


def _read_avro(records: pa.Table) -> tuple[pa.Table, dict[int, str]]:
    """Return the columns decoded by Spark, and the reasons of values that it could not decode."""
    names = [name for name in records.column_names if name.startswith(EVENT)]
    events = records.select(names).rename_columns([name.removeprefix(EVENT) for name in names])
    return events, _reasons(records)


def _reasons(records: pa.Table, column: str = REASON) -> dict[int, str]:
    """Return the reasons of records whose values, or keys, were not decoded, if there is a column of them."""
    if column not in records.column_names or records[column].null_count == len(records):
        return {}
    return {at: reason for at, reason in enumerate(records[column].to_pylist()) if reason is not None}


def _with_key(
    read: pa.Table, errors: Mapping[int, str], records: pa.Table, keyed: Mapping[str, str], columns: EventColumns
) -> tuple[pa.Table, dict[int, str]]:
    """Return the columns with those of keys, null if there is no key, and the reasons of keys that can't be read."""
    payload = pa.schema([(inner, columns.types[name]) for name, inner in keyed.items()])
    found, wrong = read_lines(index_values(pc.fill_null(combined(records["key"]), b"{}")), payload)
    for name, inner in keyed.items():
        if inner in found.column_names:
            read = read.append_column(name, found[inner])
    of_json = {at: f"bad key: {told.removeprefix('bad JSON: ')}" for at, told in wrong.items()}
    of_types = {
        at: told.replace(WRONG_TYPE, f"{WRONG_TYPE}{KEY}.", 1)
        for at, told in wrong.items()
        if told.startswith(WRONG_TYPE)
    }
    return read, {**of_json, **of_types, **_reasons(records, KEY_REASON), **errors}


def _with_meta(read: pa.Table, records: pa.Table, topic: Topic, columns: EventColumns) -> pa.Table:
    names = {KEY: "key", TIME: "timestamp", PARTITION: "partition", OFFSET: "offset", OP: OP, SOURCE_TIME: SOURCE_TIME}
    for name in columns.needed:
        if name in topic.meta:
            if name in read.column_names:
                read = read.drop_columns([name])
            if name == TOPIC:
                found = topic.places(combined(records["partition"]))[0]
            elif name == HEADERS:
                found = header_maps(combined(records["headers"]))
            elif name != NO_VALUE:
                found = records[names[name]]
            else:
                found = pc.equal(records[OP], "d") if topic.changes else records["value"].is_null()
            read = read.append_column(name, found.cast(TIMESTAMP) if name == SOURCE_TIME else found)
    return read


def header_maps(headers: pa.Array) -> pa.Array:
    """Return each record's headers by name (rule 468), from lists of a name and bytes; without headers an empty map.

    >>> header_maps(pa.array([[("a", b"1"), ("a", b"2")], None], pa.list_(HEADER))).to_pylist()
    [[('a', '2')], []]
    """
    rows, pairs = pc.list_parent_indices(headers).to_numpy(), headers.flatten()
    names, numbers = pc.struct_field(pairs, "key"), pc.struct_field(pairs, "key").dictionary_encode().indices.to_numpy()
    # Seen from the end, a name's first place is its last header.
    _, from_end = np.unique((rows * (len(pairs) + 1) + numbers)[::-1], return_index=True)
    last = np.sort(len(pairs) - 1 - from_end)
    counts = np.bincount(rows[last], minlength=len(headers))
    # Each record's pairs begin where the pairs of the records before it end.
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    values = cast_each(pc.struct_field(pairs, "value"), pa.string())
    return pa.MapArray.from_arrays(offsets, names.take(last), values.take(last))


def _text(values: pa.Array) -> pa.Array:
    return cast_each(values, pa.string())


def _micros(texts: pa.Array) -> pa.Array:
    return cast_each(texts, pa.int64()).cast(TIMESTAMP)
