"""An event for each element of a list (docs/rules/shared.md, rule 463)."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.column_names import ELEMENT, is_within, parts_of
from sessionlake.columnar.arrays import Bools, Ints, combined, starts_of
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.decoded import MAX_ROWS, WRONG_TYPE, typed, wrong_column
from sessionlake.sources.decoding.element_texts import ElementTexts
from sessionlake.sources.decoding.json_lines import read_lines
from sessionlake.sources.decoding.lines import index_values
from sessionlake.sources.decoding.nested import nested_schema, type_at
from sessionlake.sources.decoding.rows import Decoder, Origin, Rows, is_cut, raw_text
from sessionlake.sources.decoding.safe_cast import nulls_of
from sessionlake.sources.decoding.tables import json_of_rows
from sessionlake.sources.decoding.whole import JSON, KIND, RAW, Whole
from sessionlake.sources.record_columns import CHANGE_META, FEED_COLUMNS, TOPIC

MOST_ELEMENTS = 100_000
"""A row with a longer list is a dead letter."""
_PIECES = 1 << 20
"""A row's list has at most MOST_ELEMENTS, so this bounds the pieces of rows of a decoder."""
_OF_RECORDS = {*CHANGE_META, *FEED_COLUMNS, TOPIC}
"""Columns that are in no text of a row."""


@dataclass(frozen=True)
class Exploding:
    """The list whose elements are events; pickled to the workers."""

    path: str
    outer: bool = False
    """Whether a row without elements is an event, too, whose element is null."""
    list_type: pa.DataType | None = None
    """The list's type if a source gives it as it is; None if only the fields in use are decoded."""

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The list's column, and the fields in each other."""
        return parts_of(self.path)

    def below(self, name: str) -> tuple[str, ...] | None:
        """Return the fields of an element that a name means, none for an element itself; None for another column.

        >>> Exploding("items").below("items.sku"), Exploding("items").below("items"), Exploding("items").below("user")
        (('sku',), (), None)
        """
        return parts_of(name)[len(self.parts) :] if is_within(name, self.path) else None

    def of_rows(self, columns: EventColumns, *, numbered: bool = False) -> EventColumns:
        """Return the columns of rows, which have the list, for columns of events. `numbered` rows may have ELEMENT."""
        own = [name for name in columns.needed if self.below(name) is None and name != ELEMENT]
        asked = (self.path if self.below(name) is not None else name for name in columns.asked if name != ELEMENT)
        types = {name: columns.types[name] for name in own}
        types[self.path] = self._list_type(columns)
        if numbered:
            types[ELEMENT] = pa.int64()
        return EventColumns(
            columns.lone_key if columns.lone_key in own else None,
            None,
            None,
            None,
            tuple(types),
            types,
            columns.ordered,
            asked=tuple(dict.fromkeys(asked)),
            canonical=tuple(name for name in columns.canonical if name in own),
            whole=columns.whole,
        )

    def _list_type(self, columns: EventColumns) -> pa.DataType:
        if self.list_type is not None:
            return self.list_type
        read = pa.schema([(name, columns.types[name]) for name in columns.needed if self.below(name) is not None])
        return pa.list_(type_at(nested_schema(read), self.path) or pa.null())

    def events(self, rows: Rows, columns: EventColumns) -> Iterator[tuple[Rows, Ints]]:
        """Yield events for rows, in order and in parts of bounded size, each part with the places of its events' rows."""
        lists, count = combined(rows.table[self.path]), rows.table.num_rows
        bad = np.zeros(count, bool) if rows.error is None else ~nulls_of(rows.error)
        texts = self._texts_of_bad(rows, bad)
        lengths = np.diff(lists.offsets.to_numpy()).astype(np.int64)
        lengths[nulls_of(lists) | bad] = 0
        lengths[[*texts]] = [len(found.elements) for found in texts.values()]
        too_long = lengths > MOST_ELEMENTS
        events = np.where(too_long, 1, lengths)
        events[(lengths == 0) & (bad | self.outer)] = 1
        first, number = 0, 0
        ends = np.cumsum(events)  # the events of all rows up to each
        while first < count:
            # As many rows as have no more events together than a part may have; one row at least.
            most = MAX_ROWS + (ends[first - 1] if first else 0)
            end = max(first + 1, int(np.searchsorted(ends, most, side="right")))
            part = _Part(self, columns, rows, first, end, lengths, events, too_long, lists, texts)
            yield part.rows(number), part.at
            first, number = end, number + 1

    def _texts_of_bad(self, rows: Rows, bad: Bools) -> dict[int, ElementTexts]:
        """Return the texts of rows with a wrong type: such a row's other elements may be events."""
        at = np.flatnonzero(bad)
        if rows.error is None or not len(at):
            return {}
        wrong = pc.starts_with(rows.error.take(pa.array(at)), WRONG_TYPE).to_numpy(zero_copy_only=False)
        found = {}
        for row in at[wrong].tolist():
            text = rows.raw(np.array([row]))[0].as_py()
            texts = None if text is None or is_cut(text) else ElementTexts.of(text, self.parts)
            if texts is not None and 0 < len(texts.elements) <= MOST_ELEMENTS:
                found[row] = texts
        return found


@dataclass(frozen=True)
class _Part:
    """Some consecutive rows, and their events."""

    exploding: Exploding
    columns: EventColumns
    given: Rows
    first: int
    end: int
    lengths: Ints
    """Each row's elements."""
    events: Ints
    """Each row's events: its elements, or one for a row that is refused as a whole, or that has none and is an event."""
    too_long: Bools
    lists: pa.Array
    texts: Mapping[int, ElementTexts]
    """The texts of rows with a wrong type, by row."""

    @cached_property
    def at(self) -> Ints:
        """The row of each event."""
        return np.repeat(np.arange(self.first, self.end), self.events[self.first : self.end])

    @cached_property
    def element(self) -> Ints:
        """The number of each event's element in its row."""
        counts = self.events[self.first : self.end]
        return np.arange(len(self.at)) - np.repeat(starts_of(counts), counts)

    @cached_property
    def has_element(self) -> Bools:
        """Whether an event is an element: not of rows that are refused as a whole, or have none."""
        return (self.lengths[self.at] > 0) & ~self.too_long[self.at]

    @cached_property
    def _again(self) -> Ints:
        """The events whose rows are read again from their texts."""
        rows = [row for row in self.texts if self.first <= row < self.end]
        return np.flatnonzero(np.isin(self.at, rows)) if rows else np.empty(0, np.int64)

    def rows(self, number: int) -> Rows:
        """Return the events, as the part of this number of its rows."""
        given, origin = self.given, self.given.origin
        table, error = self._table()
        without = int((self.events[self.first : self.end] == 0).sum())
        return Rows(
            table,
            None if error is None or error.null_count == len(error) else error,
            self._raw,
            self._source,
            None
            if origin is None
            else Origin(origin.partition, (*origin.order[:2], origin.order[2] * _PIECES + number)),
            whole=None if given.whole is None else self._whole,
            sign=None if given.sign is None else given.sign[self.at],
            ignored=without + (given.ignored if number == 0 else 0),
        )

    def _table(self) -> tuple[pa.Table, pa.Array | None]:
        """Return the events' columns, and why some are refused."""
        table, index = self.given.table, pa.array(self.at)
        offsets = self.lists.offsets.to_numpy()
        readable = self.has_element.copy()
        readable[self._again] = False
        elements = self.lists.values.take(pa.array(offsets[self.at] + self.element, mask=~readable))
        read: dict[str, Any] = {}
        for name in self.columns.needed:
            below = self.exploding.below(name)
            if name == ELEMENT:
                read[name] = pa.array(self._numbers(), mask=~self.has_element)
            elif below is None:
                read[name] = table[name].take(index)
            else:
                read[name] = pc.struct_field(elements, below) if below else elements
        error = self._errors(index)
        if any(read[name].type != self.columns.types[name] for name in read if name != self.columns.lone_key):
            known = {} if error is None else _by_row(error)
            events, error = typed(pa.table(read), self.columns, known)
        else:
            events = pa.table(read)
        return self._with_again(events, error) if len(self._again) else (events, error)

    def _numbers(self) -> Ints:
        """Return the elements' numbers; texts of single elements know theirs."""
        table = self.given.table
        if ELEMENT not in table.column_names:
            return self.element
        return self.element + combined(pc.fill_null(table[ELEMENT], 0)).to_numpy()[self.at]

    def _errors(self, index: pa.Array) -> pa.Array | None:
        error = None if self.given.error is None else self._of_field(self.given.error).take(index)
        if not self.too_long[self.first : self.end].any():
            return error
        path = self.exploding.path
        long = [
            f"too many elements: {path} has {n:,}, and {MOST_ELEMENTS:,} at most are read"
            for n in self.lengths[self.at]
        ]
        told = pa.array(long, pa.string(), mask=~self.too_long[self.at])
        return told if error is None else pc.coalesce(error, told)

    def _of_field(self, error: pa.Array) -> pa.Array:
        """Return the reasons; a value that is no list is wrong for the field that is read, by which `where` knows it (rule 213)."""
        path, columns = self.exploding.path, self.columns
        field = next(name for name in (*columns.asked, *columns.needed, path) if self.exploding.below(name) is not None)
        wrong = pc.fill_null(pc.starts_with(error, wrong_column(path)), fill_value=False)
        if field == path or not pc.any(wrong).as_py():
            return error
        value = pc.replace_substring_regex(error, f"(?s)^{re.escape(WRONG_TYPE)}(.*) is not a .*", r"\1")
        return pc.if_else(
            wrong, pc.binary_join_element_wise(f"{wrong_column(field)}none, because ", value, " is no list", ""), error
        )

    def _with_again(self, events: pa.Table, error: pa.Array | None) -> tuple[pa.Table, pa.Array]:
        """Return the events with those of rows with a wrong type, each of which has its own reason, or none."""
        again, reasons = self._read_again()
        places = np.arange(len(events))
        places[self._again] = len(events) + np.arange(len(again))
        every = pa.concat_tables(
            [_without_dictionaries(events), again.select(events.column_names).cast(_plain(events))]
        )
        told = pa.nulls(len(events), pa.string()) if error is None else combined(error)
        return every.take(pa.array(places)), pa.concat_arrays([told, reasons]).take(pa.array(places))

    def _read_again(self) -> tuple[pa.Table, pa.Array]:
        """Read the rows of wrong types from their texts, the elements as objects: then each has its own reason."""
        rows = np.unique(self.at[self._again])
        names = [name for name in self.columns.needed if name not in _OF_RECORDS and name != ELEMENT]
        own = [name for name in names if self.exploding.below(name) is None]
        head = "".join(f"{{{json.dumps(part)}:" for part in self.exploding.parts)
        tail = "}" * len(self.exploding.parts)
        elements = [
            f"{head}{texts.element(number)}{tail}"
            for texts in map(self.texts.__getitem__, rows.tolist())
            for number in range(len(texts.elements))
        ]
        read, errors = _lines([self.texts[row].without_elements() for row in rows.tolist()], self.columns, own)
        # The rows ascend, and have the row of each of these events.
        of_row = np.searchsorted(rows, self.at[self._again])
        found = {name: read[name].take(pa.array(of_row)) for name in own if name in read.column_names}
        told = {event: errors[row] for event, row in enumerate(of_row.tolist()) if row in errors}
        read, errors = _lines(elements, self.columns, [name for name in names if name not in own])
        found |= {name: read[name] for name in read.column_names if name in names}
        index = pa.array(self.at[self._again])
        found |= {name: self.given.table[name].take(index) for name in self.columns.needed if name in _OF_RECORDS}
        if ELEMENT in self.columns.needed:
            found[ELEMENT] = pa.array(self._numbers()[self._again])
        return typed(pa.table(found) if found else pa.table({"": pa.nulls(len(elements))}), self.columns, told | errors)

    def _raw(self, at: Ints) -> pa.Array:
        texts = self._element_texts(at, lambda rows: self.given.raw(rows).to_pylist())
        return pa.array([None if text is None else raw_text(text.encode()) for text in texts], pa.string())

    def _source(self, at: Ints) -> pa.Array:
        """Return the rows' places with the elements' numbers, as `events.json:7[2]`."""
        places, numbers = self.given.source(self.at[at]).to_pylist(), self._numbers()[at].tolist()
        each = zip(places, numbers, self.has_element[at].tolist(), strict=True)
        return pa.array([f"{place}[{number}]" if place and has else place for place, number, has in each], pa.string())

    def _whole(self, at: Ints) -> pa.Table:
        whole = cast("Whole", self.given.whole)
        texts = self._element_texts(at, lambda rows: whole(rows)[RAW].to_pylist())
        found = whole(self.at[at])
        columns = {
            **{name: found[name] for name in found.column_names},
            KIND: pa.repeat(JSON, len(at)),
            RAW: pa.array(texts, pa.string()),
        }
        return pa.table(columns, schema=found.schema)

    def _element_texts(self, at: Ints, texts_of: Callable[[Ints], list[str | None]]) -> Iterator[str | None]:
        """Yield the rows' texts, each with one element only, or if that is impossible the columns that were read with it."""
        rows, of_row = np.unique(self.at[at], return_inverse=True)
        texts = texts_of(rows)
        known: tuple[int, ElementTexts | None] = -1, None
        for event, row in zip(at.tolist(), of_row.tolist(), strict=True):
            text = texts[row]
            if text is None or not self.has_element[event]:
                yield text
                continue
            if known[0] != row:
                known = row, None if is_cut(text) else ElementTexts.of(text, self.exploding.parts)
            of, number = known[1], int(self.element[event])
            has = of is not None and number < len(of.elements)
            yield of.with_element(number) if of is not None and has else self._columns_as_text(event)

    def _columns_as_text(self, event: int) -> str:
        """Return the columns that were read of an event as JSON, for a row whose text is cut or can't be parted."""
        row = self.given.table.slice(int(self.at[event]), 1)
        begin = int(self.lists.offsets[int(self.at[event])].as_py()) + int(self.element[event])
        one = pa.ListArray.from_arrays([0, 1], self.lists.values.slice(begin, 1))
        others = {name: row[name] for name in row.column_names if name not in (self.exploding.path, ELEMENT)}
        number = pa.array([int(self._numbers()[event])])
        return next(json_of_rows(pa.table({**others, self.exploding.path: one, ELEMENT: number}))).decode()


def _lines(texts: Sequence[str], columns: EventColumns, names: Sequence[str]) -> tuple[pa.Table, dict[int, str]]:
    if not names:
        return pa.table({"": pa.nulls(len(texts))}), {}
    schema = pa.schema([(name, columns.types[name]) for name in names])
    return read_lines(index_values(pa.array([text.encode() for text in texts], pa.binary())), schema)


def _by_row(error: pa.Array) -> dict[int, str]:
    return {row: error[row].as_py() for row in np.flatnonzero(~nulls_of(error)).tolist()}


def _plain(table: pa.Table) -> pa.Schema:
    return pa.schema([(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in table.schema])


def _without_dictionaries(table: pa.Table) -> pa.Table:
    return table.cast(_plain(table))


@dataclass(frozen=True)
class ExplodingDecoder:
    """Decode rows, and make an event for each element of a list; see `Decoder` for the methods."""

    columns: EventColumns
    source: Any
    """The decoder of rows, of any columns."""
    exploding: Exploding
    numbered: bool = False
    """Whether the rows are texts of single elements, which have their numbers."""

    @property
    def of_rows(self) -> Any:
        """The decoder of rows, for the columns that they need."""
        return replace(self.source, columns=self.exploding.of_rows(self.columns, numbered=self.numbered))

    def over(self, source: Decoder) -> "ExplodingDecoder":
        """Return the decoder over texts of single elements, which another decoder reads."""
        return replace(self, source=source, numbered=True, exploding=replace(self.exploding, list_type=None))

    def part(self, table: pa.Table) -> tuple[pa.Table, pa.Table | None]:
        """Return the decoded events, and the source's corrections."""
        parted: tuple[pa.Table, pa.Table | None] = self.of_rows.part(table)
        return parted

    def decode(self, table: pa.Table) -> Iterator[Rows]:
        """Yield the events of the rows."""
        yield from self.events(self.of_rows.decode(table))

    def decode_in_order(self, table: pa.Table, files: Mapping[str, int], part: int) -> Iterator[Rows]:
        """Yield the events of the rows, in the rows' order and then in the lists'."""
        yield from self.events(self.of_rows.decode_in_order(table, files, part))

    def decode_again(self, table: pa.Table) -> Iterator[tuple[int, Rows]]:
        """Yield the events of each batch's rows."""
        for batch_id, rows in self.of_rows.decode_again(table):
            yield from ((batch_id, events) for events in self.events([rows]))

    def events(self, given: Any) -> Iterator[Rows]:
        """Yield the events of decoded rows."""
        for rows in given:
            if not rows.table.num_rows:
                yield replace(rows, table=self.columns.schema.empty_table())
                continue
            yield from (events for events, _ in self.exploding.events(rows, self.columns))
