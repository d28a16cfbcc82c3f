"""Each event once, around any operator: repeated events are duplicates (docs/rules.md, rules 220 to 228).

A map task judges events and sends them whole to the shard of their key. The shard knows which identities it has taken. It takes
the duplicates out, and only then calls the operator's own `split_rows`, so no operator sees a duplicate.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints, combined, is_among
from sessionlake.engine.operator import (
    Aside,
    BatchContext,
    Counted,
    Inputs,
    Keyed,
    ShardResult,
    Split,
    StateStat,
    add_stats,
)
from sessionlake.sources.decoding.rows import Rows
from sessionlake.store.api import OpenSegments, Segments
from sessionlake.store.files import FileSegments
from sessionlake.store.ids import MINUTE_US, HiddenIds, Ids, is_of_ids, segment_writes
from sessionlake.store.segmented import WRITE_SCHEMA
from sessionlake.stream.control import OUTCOMES, micros, refused_corrections
from sessionlake.stream.ingest import DEAD, EventSpec, judge
from sessionlake.stream.positions import POSITIONS, accepted_rows, chunk_of, place_of
from sessionlake.stream.unique.events import (
    ID_HASH,
    OLD,
    Texts,
    arrived,
    counted,
    first_copies,
    hashes_of,
    letters,
    refused,
    sent,
    taken,
)
from sessionlake.stream.watermark import watermark_of
from sessionlake.stream.wrapped import Wrapped
from sessionlake.warehouse.schemas import APPLIED, EXPIRED, ID_FIELDS, SIDE, STALE

IDS, DUPLICATES = "event_ids", "duplicates"
"""Kinds of output rows: a batch's taken identities, and its duplicates."""
ID_TIME = "id_time_us"
"""With ID_HASH a column of a restore's rows: null in the operator's own rows."""
_UNIQUE = "unique:"
"""The beginning of the kind of an input's events on the way to their shard."""
_RESTATED = "restated once"
"""The kind of corrections with a single event each, on the way to their shard."""
DUPLICATE = "duplicate"
"""Reason of such a correction whose event was taken before."""
_RESTATED_SCHEMA = pa.schema([("key", pa.string()), ("time_us", pa.int64()), (ID_HASH, pa.int64())])


@dataclass
class UniqueStore:
    """An operator's store, and the identities in its database; see `ShardStore` for the methods."""

    store: Any
    hidden: HiddenIds
    ids: Ids

    def meta(self, name: str) -> bytes | None:
        """Return a named text."""
        found: bytes | None = self.store.meta(name)
        return found

    @property
    def is_empty(self) -> bool:
        """Whether it has no rows, and no identities."""
        return not self.hidden.database.segments

    def clear(self) -> None:
        """Remove all that is stored."""
        self.store.clear()

    def close(self) -> None:
        """Release the database."""
        self.store.close()


@dataclass(frozen=True)
class Unique(Wrapped):
    """An operator that gets each event once; see `engine.operator.Operator` for the methods.

    `inputs` are the event inputs by name. Without `unique_us` an input's events are not compared.
    """

    inputs: Mapping[str, EventSpec]
    secret: str = ""
    """See `id_hashes`."""

    @property
    def remembered_us(self) -> int:
        """How long an identity of any input is remembered."""
        return max(spec.unique_us or 0 for spec in self.inputs.values())

    def laid_out(self, own: str) -> str:
        """Return them with how long identities are remembered: their segments follow from it."""
        return f"{own}/unique {self.remembered_us}"

    def split_rows(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Send events that may be duplicates to their shard, whole; the operator settles the other rows here.

        The operator splits the sent events, too. Of that come the times that shards need before they compute, the events that it
        refuses, which are settled here, and the texts that it needs in the shard.
        """
        spec = self.inputs[name]
        if spec.unique_us is None:
            yield from self.operator.split_rows(context, name, number, rows)
            return
        judged = judge(spec, rows, context.clock_us, self.expired_us(context.state))
        passed = np.flatnonzero(spec.shape.kept(rows.table, rows.error)) if judged.filtered else None
        settled = np.ones(rows.table.num_rows, bool)
        good = judged.good
        for at, reason in refused(spec, judged, watermark_of(context.state)):
            yield from letters(judged, at, reason, name, one_of_several=len(self.inputs) > 1)
            settled[at if passed is None else passed[at]] = False
            good = good[~is_among(good, at)]
        newest, asked, is_bad = self._tried(context, name, number, taken(judged.rows, good))
        yield Counted(newest)
        good, asked = good[~is_bad], asked[~is_bad]
        settled[good if passed is None else passed[good]] = False
        if settled.any() or rows.ignored:
            yield from self.operator.split_rows(context, name, number, taken(rows, np.flatnonzero(settled)))
        chunk = chunk_of(context, number) if self.columns(name).ordered else None
        if chunk is not None:
            yield from accepted_rows(name, rows, rows.table.num_rows if len(good) else 0, chunk)
        hashes = hashes_of(judged.checked, good, [*self.inputs].index(name), self.secret)
        table = sent(judged, good, hashes, asked, chunk)
        yield Keyed(_UNIQUE + name, judged.checked.key.take(pa.array(good)), table)

    def _tried(
        self, context: BatchContext, name: str, number: int, rows: Rows
    ) -> tuple[Mapping[str, int], Bools, Bools]:
        """Return the greatest times among events, and which events the operator asks texts of, and which it refuses."""
        newest: dict[str, int] = {}
        noted, is_bad = Texts(np.zeros(rows.table.num_rows, bool)), np.zeros(rows.table.num_rows, bool)
        tried = replace(rows, raw=noted.numbers, source=noted.numbers)
        for piece in self.operator.split_rows(context, name, number, tried):
            if isinstance(piece, Counted):
                greatest: dict[str, int] = {
                    n: v for n, v in piece.stats.items() if isinstance(n, StateStat) and n.greatest
                }
                add_stats(newest, greatest)
            elif isinstance(piece, Aside) and piece.kind == DEAD:
                is_bad[combined(piece.rows["raw"]).cast(pa.int64()).to_numpy()] = True
        return newest, noted.asked, is_bad

    def split_corrections(self, context: BatchContext, table: pa.Table) -> Split:
        """Send corrections that name an identity to their shard, whole; the operator splits the others."""
        table = table.combine_chunks()
        if ID_HASH not in table.column_names:
            yield from self.operator.split_corrections(context, table)
            return
        named = np.logical_and.reduce(
            [
                pc.is_valid(combined(table[name])).to_numpy(zero_copy_only=False)
                for name in ("key", *(field.name for field in ID_FIELDS))
            ]
        )
        yield from self.operator.split_corrections(context, table.filter(pa.array(~named)))
        if named.any():
            rows = table.filter(pa.array(named))
            yield Keyed(_RESTATED, combined(rows["key"]), rows)

    def open_store(self, path: Path, opened: OpenSegments = FileSegments) -> UniqueStore:
        """Open a shard's store, in whose database the identities are, too."""
        made: list[HiddenIds] = []

        def hiding(at: Path) -> Segments:
            made.append(HiddenIds(opened(at)))
            return made[-1]

        store = self.operator.open_store(path, hiding)
        minutes = -(-max(self.remembered_us // 2, 1) // MINUTE_US)
        return UniqueStore(store, made[-1], Ids(made[-1].database, minutes * MINUTE_US))

    def apply(self, inputs: Inputs, store: UniqueStore, context: BatchContext) -> ShardResult:
        """Take duplicates out of the shard's events, and compute it over the others."""
        events = {kind.removeprefix(_UNIQUE): rows for kind, rows in inputs.items() if kind.startswith(_UNIQUE)}
        restated = inputs.get(_RESTATED)
        given = {n: rows for n, rows in inputs.items() if n != _RESTATED and not n.startswith(_UNIQUE)}
        if not events and restated is None:
            return self.operator.apply(given, store.store, context)
        found = _Found(self, events, store.ids)
        if restated is not None:
            found.restate(restated, context)
        found.compare()
        for name, rows in found.fresh.items():
            ordered = self.columns(name).ordered
            for chunk, part in arrived(rows, self.inputs[name].columns.needed or ("",), ordered=ordered):
                task, of_task, number = place_of(chunk)
                found.add(self.operator.split_rows(replace(context, task=task, part=of_task), name, number, part))
        result = self.operator.apply(found.inputs(given), store.store, context)
        return result if result.needs is not None else found.result(result, store.ids)

    def commit(self, store: UniqueStore, writes: pa.Table, meta: dict[str, bytes], context: BatchContext) -> None:
        """Apply the operator's writes and the identities' together; unneeded identities go."""
        of_ids = is_of_ids(writes)
        if of_ids.any():
            store.hidden.also = segment_writes(writes.filter(pa.array(of_ids)))
            writes = writes.filter(pa.array(~of_ids))
        self.operator.commit(store.store, writes, meta, context)
        if store.hidden.also:
            store.hidden.write({}, {})
        store.ids.drop_before(watermark_of(context.state) - self.remembered_us)

    def restored(self, rows: pa.Table, store: UniqueStore, part: int) -> Iterator[pa.Table]:
        """Yield the writes of a restore's identities, then the operator's."""
        if ID_HASH not in rows.column_names:
            yield from self.operator.restored(rows, store.store, part)
            return
        of_ids = combined(rows[ID_HASH]).is_valid()
        ids = rows.select([ID_TIME, ID_HASH]).filter(of_ids)
        if len(ids):
            _, writes = store.ids.known(*(combined(ids[name]).to_numpy() for name in (ID_TIME, ID_HASH)))
            yield writes
        own = rows.drop_columns([ID_TIME, ID_HASH]).filter(pc.invert(of_ids))
        yield from self.operator.restored(own, store.store, part)


@dataclass
class _Found:
    """A shard's events of a batch, parted into fresh events and duplicates, and the operator's result for the fresh events."""

    unique: Unique
    events: Mapping[str, pa.Table]
    ids: Ids
    fresh: dict[str, pa.Table] = field(default_factory=dict)
    writes: pa.Table = field(default_factory=WRITE_SCHEMA.empty_table)
    keyed: dict[str, list[pa.Table]] = field(default_factory=dict)
    side: dict[str, list[pa.Table]] = field(default_factory=dict)
    stats: dict[str, int] = field(default_factory=dict)
    restated: pa.Table = field(default_factory=_RESTATED_SCHEMA.empty_table)
    """The identities that corrections have brought in."""

    def restate(self, rows: pa.Table, context: BatchContext) -> None:
        """Take the corrections with a single event each whose event nobody has taken.

        Operators of several inputs have no such corrections, so the identities are the first input's.
        """
        rows = rows.sort_by("correction_id")
        time_us, hashes = micros(rows[ID_FIELDS[0].name]), combined(rows[ID_HASH]).to_numpy()
        unique_us = next(iter(self.unique.inputs.values())).unique_us or 0
        old = time_us < watermark_of(context.state) - unique_us
        fresh = np.zeros(len(rows), bool)
        fresh[np.unique(_pairs(time_us, hashes), return_index=True)[1]] = True
        fresh &= ~old
        fresh[fresh] = ~self.ids.known(time_us[fresh], hashes[fresh])[0]
        for mask, outcome, reason in ((old, EXPIRED, OLD), (~old & ~fresh, STALE, DUPLICATE)):
            if mask.any():
                self.add(refused_corrections(rows.filter(pa.array(mask)), outcome, reason, context.clock_us))
        rows = rows.filter(pa.array(fresh))
        pieces = [*self.unique.operator.split_corrections(context, rows)]
        self.add(iter(pieces))
        told = [piece.rows for piece in pieces if isinstance(piece, Aside) and piece.kind == OUTCOMES]
        applied = [
            combined(outcomes.filter(pc.equal(outcomes["outcome"], APPLIED))["correction_id"]) for outcomes in told
        ]
        taken = rows.filter(pc.is_in(rows["correction_id"], pa.chunked_array(applied, pa.string())))
        columns = [taken["key"], pa.array(micros(taken[ID_FIELDS[0].name])), taken[ID_HASH]]
        self.restated = pa.Table.from_arrays([combined(column) for column in columns], schema=_RESTATED_SCHEMA)

    def compare(self) -> None:
        """Part the events into fresh ones and duplicates."""
        chosen = {name: first_copies(table) for name, table in self.events.items()}
        once = {name: _some(table, chosen[name]) for name, table in self.events.items()}
        restated = {name: self._are_restated(table) for name, table in once.items()}
        rest = {name: _some(table, ~restated[name]) for name, table in once.items()}
        known, self.writes = self.ids.known(*self._identities(rest))
        first = len(self.restated)
        for name, table in rest.items():
            is_known = known[first : first + len(table)]
            first += len(table)
            self.fresh[name] = _some(table, ~is_known)
            if len(self.fresh[name]) < len(self.events[name]):
                again = [_some(self.events[name], ~chosen[name]), _some(once[name], restated[name])]
                self._count(name, pa.concat_tables([*again, _some(table, is_known)]))

    def _are_restated(self, events: pa.Table) -> Bools:
        if not len(self.restated):
            return np.zeros(len(events), bool)
        of_events, restated = (_pairs(*_identities([table])) for table in (events, self.restated))
        return np.isin(of_events, restated)

    def _identities(self, events: Mapping[str, pa.Table]) -> tuple[Ints, Ints]:
        """Return identities that corrections have brought in, then the events'."""
        return _identities([self.restated, *events.values()])

    def _count(self, name: str, duplicates: pa.Table) -> None:
        numbers, several = {"input": len(duplicates), "duplicate": len(duplicates)}, len(self.unique.inputs) > 1
        add_stats(self.stats, counted(numbers, name, one_of_several=several).stats)
        if self.unique.inputs[name].shows_duplicates:
            self.side.setdefault(DUPLICATES, []).append(self._rows(name, duplicates))

    def _rows(self, name: str, table: pa.Table) -> pa.Table:
        """Return events as the tables of identities and of duplicates have them."""
        rows = table.select(["key", "time_us", ID_HASH])
        return rows if len(self.unique.inputs) == 1 else rows.append_column(SIDE, pa.repeat(name, len(rows)))

    def add(self, split: Split) -> None:
        """Take the operator's result for fresh events. The map tasks reported the numbers of their order."""
        for piece in split:
            if isinstance(piece, Counted):
                own = {n: v for n, v in piece.stats.items() if not n.startswith(f"{POSITIONS}:")}
                add_stats(self.stats, own)
            elif isinstance(piece, Aside):
                self.side.setdefault(piece.kind, []).append(piece.rows)
            elif isinstance(piece, Keyed) and piece.rows.num_rows:
                self.keyed.setdefault(piece.kind, []).append(piece.rows)

    def inputs(self, given: Inputs) -> Inputs:
        """Return the operator's inputs, with the shard's inputs besides events."""
        kinds = dict.fromkeys((*given, *self.keyed))
        parts = {kind: [*([given[kind]] if kind in given else []), *self.keyed.get(kind, [])] for kind in kinds}
        return {kind: pa.concat_tables(tables, promote_options="default") for kind, tables in parts.items()}

    def result(self, result: ShardResult, ids: Ids) -> ShardResult:
        """Return the operator's result with the taken identities, except for events that it refused."""
        side = {kind: [*self.side.get(kind, []), rows] for kind, rows in result.side.items()}
        side |= {kind: rows for kind, rows in self.side.items() if kind not in side}
        fresh, writes = self.fresh, self.writes
        if DEAD in side:
            dead = pc.unique(pa.chunked_array([combined(rows["source"]) for rows in side[DEAD]], pa.string()))
            dead = dead.drop_null()
            fresh = {name: rows.filter(pc.invert(pc.is_in(rows["source"], dead))) for name, rows in fresh.items()}
            _, writes = ids.known(*self._identities(fresh))
        side[IDS] = [self._rows(name, rows) for name, rows in fresh.items() if len(rows)]
        side[IDS] += [self.restated] if len(self.restated) else []
        stats = dict(self.stats)
        add_stats(stats, result.stats)
        own = WRITE_SCHEMA.empty_table() if result.writes is None else result.writes
        return replace(
            result,
            writes=pa.concat_tables([own, writes]) if result.writes is not None or len(writes) else None,
            side={kind: pa.concat_tables(rows, promote_options="default") for kind, rows in side.items() if rows},
            stats=stats,
        )


def _some(table: pa.Table, chosen: Bools) -> pa.Table:
    return table if chosen.all() else table.filter(pa.array(chosen))


def _identities(tables: Iterable[pa.Table]) -> tuple[Ints, Ints]:
    some = [*tables]
    time_us, hashes = (
        np.concatenate([combined(table[name]).to_numpy() for table in some]) for name in ("time_us", ID_HASH)
    )
    return time_us, hashes


def _pairs(time_us: Ints, hashes: Ints) -> npt.NDArray[np.void]:
    """Return times and hashes as one column, whose values are equal if both are."""
    return np.ascontiguousarray(np.stack([time_us, hashes], axis=1)).view("V16").ravel()
