"""The steps before the shuffle that every pipeline applies to its events, whatever its operator.

Computed columns and `where` (`stream/shape.py`), the contract, events too far in the future, events beyond retention, dead
letters, the archive (docs/rules.md, rules 1, 3 and 210).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.aggregates.base import Events
from sessionlake.aggregates.layouts import Layout
from sessionlake.columnar.arrays import Bools, Ints, combined, plain_text
from sessionlake.columnar.equality import IdOrder
from sessionlake.config.names import EVENT_INPUT, column_of
from sessionlake.engine.operator import Aside, Counted, Split
from sessionlake.errors import BadEventsError, SessionlakeError, SourceError, first_line
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.contract import Checked, check
from sessionlake.sources.decoding.rows import BATCH, Decoder, Rows
from sessionlake.sources.lookups.lookup import NO_LOOKUPS, Lookups
from sessionlake.stream.causes import counted_causes
from sessionlake.stream.shape import Shape
from sessionlake.warehouse.schemas import TIME

INPUT = ":input"
"""The column with the name of a row's input; left out in batches that read a single input, of events. No source has a column
that is called so, for its columns stand beside it."""
CORRECTION = ":correction"
"""The column with a row of the control input, as a struct."""
EVENTS, CORRECTIONS = EVENT_INPUT, "corrections"
"""The event input of pipelines with a single one, and the control input."""
DEAD_LETTER, DROP, EMIT = "dead_letter", "drop", "emit"
"""The choices for events beyond retention: write them as dead letters, drop them, or hand them to the operator."""
DEAD, ARCHIVED = "dead", "archived"
"""Kinds of rows that a map task writes: dead letters, and accepted events, as they are."""
COLUMNS = "columns"
"""The setting of classification with a batch's computed columns, by which its `where` is asked again. Commits have it in `rebuild`."""
RETRACTED = "retracted"
"""The reason of a dead letter for a row that the source takes back, and that the operator can't subtract."""
BEYOND = "beyond retention"
"""The reason of a dead letter whose time is before all that is retained."""
FUTURE = "too far in the future"
"""The reason of a dead letter whose time is further ahead of the batch's clock than `max_future_skew`."""
DEAD_SCHEMA = pa.schema(
    [
        ("reason", pa.string()),
        ("kind", pa.string()),
        ("key", pa.string()),
        ("event_time", TIME),
        ("raw", pa.string()),
        ("source", pa.string()),
    ]
)
_T = TypeVar("_T")
_PIECE_ROWS = 1024


@dataclass(frozen=True)
class EventSpec:
    """The workers' settings for an event input: how to decode it, and which of its events to refuse."""

    decoder: Decoder
    beyond_retention: str = DEAD_LETTER
    max_future_skew_us: int | None = None
    archive: bool | str = False
    """Events that are not refused go to the archive too; "all": and all rows, whole."""
    max_key_bytes: int | None = None
    """An event whose key is longer is refused."""
    shape: Shape = field(default_factory=Shape)
    """How rows of the source become events."""
    unique_us: int | None = None
    """How long an event is remembered, to find its duplicates (`stream/unique`); None if duplicates are not searched."""
    shows_duplicates: bool = True
    """Whether duplicates get a row in their table, besides their number."""
    layouts: tuple[Layout, ...] = ()
    """The layouts of the pipeline's states; empty if there was only one."""
    lookups: Lookups = NO_LOOKUPS
    """The tables from which rows are enriched once they are decoded."""
    takes_back: bool = False
    """Whether the operator can take rows back; if not, such rows of the source are dead letters."""
    compared_as: tuple[pa.DataType | None, ...] = ()
    """The types as which the columns of the key are compared with the other side's (`columnar.equality.instant`); empty for their own."""
    every_time: bool = False
    """Whether events of the future are taken, too (`SourceSection.has_every_time`). They do not move the watermark beyond `max_future_skew_us`."""

    @property
    def columns(self) -> EventColumns:
        """The columns of rows: decoded and looked-up ones."""
        return self.lookups.columns or self.decoder.columns

    def moved_to(self, newest_us: int, clock_us: int) -> int:
        """Return how far accepted events move the watermark; `newest_us` is the greatest of their times."""
        if not self.every_time or self.max_future_skew_us is None:
            return newest_us
        return min(newest_us, clock_us + self.max_future_skew_us)

    @property
    def id_order(self) -> IdOrder:
        """The order of ids, by which ties are decided."""
        return IdOrder.of([self.types[name] for name in self.columns.id_columns])

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The types of all event columns: the source's read columns, and the computed columns, which hide them."""
        columns = self.columns
        return {name: columns.types[name] for name in columns.needed} | self.shape.types

    def read_at(self, batch_id: int) -> frozenset[str]:
        """Return the columns among `inputs` that a batch's late and archived events have."""
        layout = next(
            (layout_before for layout_before in reversed(self.layouts) if layout_before.since <= batch_id), None
        )
        every = frozenset(self.columns.inputs)
        return every if layout is None else every & {*layout.columns}

    @property
    def stored_types(self) -> dict[str, pa.DataType]:
        """The types of the columns as late events and the archive have them: the source's that the operator reads."""
        columns = self.columns
        return {name: columns.types[name] for name in columns.inputs}


@dataclass
class Judged:
    """Rows of a source, each judged by the rules that hold for every pipeline."""

    spec: EventSpec
    rows: Rows
    checked: Checked
    good: Ints
    """The rows that nothing is said against."""
    expired: Ints
    """The rows beyond retention, if these are neither refused nor dropped."""
    dropped: int
    filtered: int
    """The number of rows for which `where` is not true, and of records that are no rows: they are not among the others."""
    refused: list[tuple[Ints, pa.Array]] = field(default_factory=list)
    """Rows that are refused, with the reason of each; an operator may add to them before `asides` is asked."""

    def events(self, at: Ints) -> Events:
        """Return the rows at some places as events."""
        return checked_events(self.spec, self.rows.table, self.checked, at)

    def signs(self, at: Ints) -> Ints:
        """Return 1 for each added row at some places, -1 for each row taken back."""
        return np.ones(len(at), np.int64) if self.rows.sign is None else self.rows.sign[at]

    def computed(self, compute: Callable[[Ints], _T], at: Ints) -> tuple[_T, Ints]:
        """Compute over the rows at which no user's aggregate raises, and return them too; the others are refused."""
        return without_raising(compute, at, self.refused)

    def asides(self, kept: Callable[[], Events]) -> Split:
        """Yield the pieces that need no shard.

        These are the numbers, the refused rows in pieces of bounded size, and the `kept` rows for the archive.
        """
        dead = sum(len(at) for at, _ in self.refused)
        counts = {"input": self.rows.table.num_rows + self.filtered, "dead": dead}
        counts |= {"filtered": self.filtered} if self.filtered or self.spec.shape.where is not None else {}
        yield Counted(counts | ({"dropped": self.dropped} if self.spec.beyond_retention == DROP else {}))
        if dead:
            yield counted_causes([reasons for _, reasons in self.refused])
        for at, reasons in self.refused:
            for first in range(0, len(at), _PIECE_ROWS):
                piece = at[first : first + _PIECE_ROWS], reasons.slice(first, _PIECE_ROWS)
                yield Aside(DEAD, self.dead_letters(*piece))
        if self.spec.archive:
            yield Aside(ARCHIVED, event_table(self.spec, kept()))

    def dead_letters(self, at: Ints, reasons: pa.Array) -> pa.Table:
        """Return rows of the table of dead letters, without their marks, for the rows at some places."""
        columns = [
            reasons,
            pa.repeat("event", len(at)),
            plain_text(self.checked.key.take(pa.array(at))),
            pa.array(self.checked.time_us[at], mask=self.checked.no_time[at]).cast(TIME),
            self.rows.raw(at),
            self.rows.source(at),
        ]
        return pa.Table.from_arrays(columns, schema=DEAD_SCHEMA)


def judge(spec: EventSpec, rows: Rows, clock_us: int, expired_us: int) -> Judged:
    """Judge rows by `where`, the contract, the batch's clock, and the retention: an event strictly before `expired_us` is beyond it."""
    ignored = rows.ignored
    rows, filtered = spec.shape.filtered(rows)
    table = spec.shape.with_own(rows.table)
    checked = check(table, rows.error, spec.columns, spec.max_key_bytes, clock_us, spec.compared_as)
    good = np.ones(rows.table.num_rows, bool)
    refused: list[tuple[Ints, pa.Array]] = []
    if checked.reason is not None:
        good = pc.is_null(checked.reason).to_numpy(zero_copy_only=False)
        refused.append((np.flatnonzero(~good), checked.reason.filter(pa.array(~good))))
    if rows.sign is not None and not spec.takes_back:
        retracted = good & (rows.sign < 0)
        refused.append(_all(retracted, RETRACTED))
        good &= ~retracted
    # Rows with signs are results of another pipeline, which has judged their events by its clock.
    if spec.max_future_skew_us is not None and rows.sign is None and not spec.every_time:
        future = good & (checked.time_us > clock_us + spec.max_future_skew_us)
        refused.append(_all(future, FUTURE))
        good &= ~future
    expired = good & (checked.time_us < expired_us)
    good &= ~expired
    if spec.beyond_retention == DEAD_LETTER:
        refused.append(_all(expired, BEYOND))
    dropped = int(expired.sum()) if spec.beyond_retention == DROP else 0
    emitted = expired if spec.beyond_retention == EMIT else np.zeros(len(expired), bool)
    return Judged(
        spec, rows, checked, np.flatnonzero(good), np.flatnonzero(emitted), dropped, filtered + ignored, refused
    )


def without_raising(compute: Callable[[Ints], _T], at: Ints, refused: list[tuple[Ints, pa.Array]]) -> tuple[_T, Ints]:
    """Compute over the rows at which no user's aggregate raises, and return them too; the others are added to `refused`."""
    while True:
        try:
            return compute(at), at
        except BadEventsError as error:
            if not error.reasons:
                raise
            bad = np.fromiter(error.reasons, np.int64)
            refused.append((at[bad], pa.array(error.reasons.values(), pa.string())))
            at = np.delete(at, bad)


def by_input(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Part a batch's rows by the input that they come from; all are of EVENTS if no column says so.

    Those of CORRECTIONS are as their table has them, those of one of several event inputs as their source has them.
    """
    if INPUT not in table.column_names:
        yield EVENTS, table
        return
    for name in table[INPUT].unique().to_pylist():
        if name is None:
            raise ValueError("a row names no input")
        rows = table.filter(pc.equal(table[INPUT], name))
        if name == CORRECTIONS:
            yield name, pa.Table.from_struct_array(combined(rows[CORRECTION]))
        elif name == EVENTS:
            yield name, rows.drop_columns([INPUT, CORRECTION])
        else:
            own = [column for column in rows.column_names if column.startswith(column_of(name, ""))]
            yield name, rows.select(own).rename_columns([column.removeprefix(column_of(name, "")) for column in own])


def naming_rows(split: Callable[[Rows], Split], rows: Rows) -> Split:
    """Split rows; if this fails, which only our own error can cause, the error names their place."""
    try:
        yield from split(rows)
    except (SessionlakeError, MemoryError):
        raise
    except Exception as error:
        place = rows.source(np.zeros(1, np.int64))[0].as_py() if rows.table.num_rows else "an empty part"
        raise SourceError(
            f"source: the {rows.table.num_rows} rows from {place} on can't be processed ({type(error).__name__}: "
            f"{first_line(error)}); move a file that holds them away and start once with `sessionlake run --replan`"
        ) from error


def event_table(spec: EventSpec, events: Events) -> pa.Table:
    """Return events with the columns key, time_us, event_id, and `event`, a struct of the source's columns that are read."""
    n, source = len(events.keys), events.columns if events.source is None else events.source
    columns = {
        "key": plain_text(events.keys),
        "time_us": events.time_us,
        "event_id": pa.nulls(n, pa.string()) if events.event_id is None else events.event_id,
        "event": event_struct(spec, [source[name] for name in spec.columns.inputs], n),
    }
    return pa.table(columns)


def events_of(spec: EventSpec, table: pa.Table) -> Events:
    """Return the events of a table with the columns of `event_table`, and `batch_id` if batches have stored them."""
    names = spec.columns
    event = combined(table["event"])
    columns = {name: pc.struct_field(event, name).cast(names.types[name]) for name in names.inputs}
    event_id = None if names.id is None else combined(table["event_id"])
    batch = combined(table[BATCH]).to_numpy() if BATCH in table.column_names else None
    return spec.shape.events(
        Events(combined(table["key"]), combined(table["time_us"]).to_numpy(), columns, event_id, batch=batch)
    )


def event_struct(spec: EventSpec, inputs: list[pa.Array], rows: int) -> pa.Array:
    """Return the source's read columns as a struct column; a struct needs at least one field."""
    if not inputs:
        return pa.StructArray.from_arrays([pa.nulls(rows, pa.bool_())], names=["none"])
    return pa.StructArray.from_arrays(inputs, names=list(spec.columns.inputs))


def checked_events(spec: EventSpec, table: pa.Table, checked: Checked, at: Ints) -> Events:
    """Return the rows at some places of a table, as it came from the source, as events."""
    columns = {name: combined(table[name]) for name in spec.columns.inputs}
    if len(at) == table.num_rows:
        return spec.shape.events(Events(checked.key, checked.time_us, columns, checked.event_id))
    index = pa.array(at)
    return spec.shape.events(
        Events(
            checked.key.take(index),
            checked.time_us[at],
            {name: column.take(index) for name, column in columns.items()},
            None if checked.event_id is None else checked.event_id.take(index),
        )
    )


def with_live_settings(spec: EventSpec, live: Mapping[str, Any]) -> EventSpec:
    """Return the spec under other settings of classification (`Config.live_settings`), with the computed columns of COLUMNS if they have it."""
    return replace(
        spec,
        beyond_retention=live["beyond_retention"],
        max_future_skew_us=live["max_future_skew_us"],
        archive=live.get("archive", False),
        max_key_bytes=live.get("max_key_bytes"),
        shape=spec.shape.under(live.get("where"), live.get(COLUMNS), spec.columns),
        unique_us=live.get("unique_for_us"),
        lookups=spec.lookups.under(live.get("missing", {})),
    )


def _all(mask: Bools, reason: str) -> tuple[Ints, pa.Array]:
    at = np.flatnonzero(mask)
    return at, pa.array([reason] * len(at), pa.string())
