"""Rows as their live view shows them, of the bytes that stores keep."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import numpy as np
import pyarrow as pa

from sessionlake.aggregates import build_aggregates
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import values_of
from sessionlake.aggregates.scalars import from_state, state_type
from sessionlake.columnar.arrays import Ints
from sessionlake.columnar.identity import record_ids
from sessionlake.columnar.records import Records
from sessionlake.config.load import Config
from sessionlake.errors import ConfigError
from sessionlake.operators.keyed.section import TableSection
from sessionlake.operators.sessions.kernel import until_of
from sessionlake.operators.sessions.quarantine import above
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.sources.columns import type_named
from sessionlake.sources.record_columns import META
from sessionlake.store.layout import unpack
from sessionlake.store.rows import has_rows, stored_of
from sessionlake.stream.watermark import NO_WATERMARK, watermark_of
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.changelog import HIDDEN_WRITTEN, SESSIONS, TABLE
from sessionlake.warehouse.schemas import OPEN_UNTIL, TIME


@dataclass(frozen=True)
class Packed:
    """What the shards have of some keys: values[i] is one of the value bytes of keys[owner[i]]."""

    keys: Sequence[bytes]
    owner: Sequence[int]
    values: Sequence[bytes]


OPEN, QUARANTINED = "open", "quarantined"
ALL = frozenset((OPEN, QUARANTINED))
"""What a live view may leave out: with emit = "final" sessions that are open, and those in quarantine."""


class Decoder(Protocol):
    """What differs from one operator's stores to another's, as of one batch."""

    complete_from_us: int | None
    """Rows that ended before it may lie in the tables only; None where stores have all."""

    def has(self, segment: int) -> bool:
        """Say whether rows lie in a segment."""

    def rows(self, packed: Packed, include: Collection[str] = ALL) -> pa.Table:
        """Return rows by key, then by time; keys come ascending. `include` names what is shown that live views leave out, of ALL."""


def decoder_of(config: Config, commit: BatchCommit) -> Decoder:
    """Return that of a pipeline as of a batch; ConfigError for what is neither sessions nor a keyed table."""
    types = {name: type_named(text) for name, text in commit.settings.types.items()}
    if config.operator == "session":
        return SessionDecoder(config, commit, types)
    if config.operator == "table":
        return TableDecoder(config, types, commit.state.get(HIDDEN_WRITTEN))
    raise ConfigError(
        f"{config.operator}: stores of sessions and of tables can be read, not of {config.operator}s; use `sessionlake sql`"
    )


class SessionDecoder:
    """Sessions: all that an event or a correction can still meet without a look into the tables (docs/rules.md, rule 7)."""

    def __init__(self, config: Config, commit: BatchCommit, types: dict[str, pa.DataType]) -> None:
        live = commit.settings.live
        self._windows = replace(SessionWindows.of(config), grace_us=live["grace_us"], retention_us=live["retention_us"])
        self._aggregates = build_aggregates(
            config.aggregates, types, with_id=config.event.id is not None, directory=config.pipeline.code
        )
        watermark = watermark_of(commit.state)
        bounds = self._windows.bounds(watermark)
        self._expired_us, self._open_us = bounds.expired_us, bounds.open_us
        self._quarantine = None if config.quarantine is None else config.quarantine.thresholds
        self._shows_open = config.section.shown == "all"
        self.complete_from_us = None if watermark == NO_WATERMARK else self._expired_us

    def has(self, segment: int) -> bool:
        """Say yes."""
        del segment
        return True

    def rows(self, packed: Packed, include: Collection[str] = ALL) -> pa.Table:
        """Return sessions by key and start."""
        found, code = self._unpacked(packed)
        until = until_of(self._windows, found)
        # What is colder may have been replaced in the tables since, and may have gone from the store or not.
        shown = until >= self._expired_us
        if not self._shows_open and OPEN not in include:
            shown &= until < self._open_us
        if self._quarantine is not None and QUARANTINED not in include:
            shown &= ~above(self._quarantine, found)
        kept = np.flatnonzero(shown)
        kept = kept[np.lexsort((found.start[kept], code[kept]))]
        return self._table(packed, found.take(kept), code[kept])

    def longest_open(self, packed: Packed, limit: int) -> tuple[pa.Table, bool]:
        """Return the sessions that events can still lengthen, the longest of them first, and whether there was any at all.

        Those in quarantine are left out. Of two that are equally long the one that began first comes first.
        """
        found, code = self._unpacked(packed)
        is_open = until_of(self._windows, found) >= self._open_us
        any_open = bool(is_open.any())
        if self._quarantine is not None:
            is_open &= ~above(self._quarantine, found)
        kept = np.flatnonzero(is_open)
        kept = kept[np.lexsort((code[kept], found.start[kept], (found.start - found.end)[kept]))][:limit]
        return self._table(packed, found.take(kept), code[kept]), any_open

    def _unpacked(self, packed: Packed) -> tuple[Records, Ints]:
        """Return the records, and of each the place of its key."""
        found = unpack(pa.array(packed.values, pa.binary()), with_until=self._windows.keeps_until)
        return found, np.asarray(packed.owner, np.int64)[found.codes]

    def _table(self, packed: Packed, found: Records, code: Ints) -> pa.Table:
        keys = _text(packed.keys).take(pa.array(code))
        states = StateCodec(self._aggregates).decode(found.state)
        columns = {
            SESSIONS.key: keys,
            SESSIONS.start: pa.array(found.start).cast(TIME),
            SESSIONS.end: pa.array(found.end).cast(TIME),
            **({} if found.until is None else {OPEN_UNTIL: pa.array(found.until).cast(TIME)}),
            SESSIONS.id: pa.array(record_ids(keys, found.start)),
            "event_count": pa.array(found.count),
            "revision": pa.array(found.revision),
            **dict(zip(config_names(self._aggregates), values_of(self._aggregates, states), strict=True)),
        }
        return pa.table(columns)


class TableDecoder:
    """The rows of a keyed table; markers of deletions are no rows, nor is what was written at `hidden_us` or before it."""

    complete_from_us: int | None = None

    def __init__(self, config: Config, types: dict[str, pa.DataType], hidden_us: int | None = None) -> None:
        self._hidden_us = hidden_us
        own = (config.event.key, config.event.time, config.event.id, *META)
        section = cast(TableSection, config.section)
        names = section.columns or [name for name in types if name not in own]
        self._types = {name: types[name] for name in names}
        self._offsets = config.source.kind == "kafka"
        self._ids = config.event.id is not None and not self._offsets

    def has(self, segment: int) -> bool:
        """Say whether it is a segment of rows."""
        return has_rows(segment)

    def rows(self, packed: Packed, include: Collection[str] = ALL) -> pa.Table:
        """Return rows by key."""
        del include
        owner = np.asarray(packed.owner, np.int64)
        # A key has one row, in any of the segments.
        order = np.argsort(owner)
        stored = stored_of(owner[order], [packed.values[at] for at in order.tolist()])
        if self._hidden_us is not None:
            stored = stored.where(stored["written"] > self._hidden_us)
        every = np.arange(len(stored))
        codec = StateCodec((), [state_type(type_, name) for name, type_ in self._types.items()])
        columns = zip(codec.decode(stored.packed(every)), self._types.values(), strict=True)
        places = {f"event_{name}": pa.array(stored[name]) for name in ("partition", "offset")} if self._offsets else {}
        return pa.table(
            {
                TABLE.key: _text(packed.keys).take(pa.array(stored.codes)),
                "event_time": pa.array(stored["time"]).cast(TIME),
                **dict(zip(self._types, (from_state(column, type_) for column, type_ in columns), strict=True)),
                "revision": pa.array(stored["revision"]),
                **places,
                **({"event_id": stored.ids(every)} if self._ids else {}),
            }
        )


def config_names(aggregates: Sequence[Any]) -> list[str]:
    """Return the aggregates' names."""
    return [aggregate.name for aggregate in aggregates]


def _text(keys: Sequence[bytes]) -> pa.Array:
    return pa.array(keys, pa.binary()).cast(pa.string())
