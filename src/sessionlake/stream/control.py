"""The control input: which corrections are refused, and the outcomes of the others.

An operator names the kinds of corrections that it knows, for example `restate`. Every pipeline knows `advance`, `tick` and `flush`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints, combined
from sessionlake.engine.operator import Aside, Counted, Keyed, Split, StateStat
from sessionlake.sources.decoding.casting import parse_times
from sessionlake.sources.decoding.rows import raw_text
from sessionlake.sources.decoding.safe_cast import nulls_of
from sessionlake.stream.ingest import DEAD, DEAD_SCHEMA, FUTURE
from sessionlake.warehouse.row_table import in_micros
from sessionlake.warehouse.schemas import APPLIED, CORRECTION_OUTCOMES_SCHEMA, EXPIRED, MALFORMED

ADVANCE, TICK, FLUSH = "advance", "tick", "flush"
"""Every pipeline's kinds: move the watermark; only make a batch (`stream/clock.py`); make a batch in which results that
wait for a period of the clock are sent."""
MAX_ADVANCE = StateStat("max_advance", greatest=True)
"""The number by which an `advance` moves the watermark."""
MAX_FLUSH = StateStat("max_flush", greatest=True)
"""The number that is there if a batch has a `flush`."""
OUTCOMES = "outcomes"
"""Kind of the rows with the outcome of each correction. `outcome` is null if only the correction's shard knows it."""
OUTCOME_SCHEMA = pa.schema([f for f in CORRECTION_OUTCOMES_SCHEMA if f.name not in ("batch_id", "commit_id")])


@dataclass(frozen=True)
class CorrectionKind:
    """A kind of correction, as an operator knows it."""

    malformed: Callable[[pa.Table], Bools]
    """Returns which rows lack a column that the kind needs. It gets rows of all kinds."""
    split: Callable[[pa.Table], Split]
    """Yields the pieces for well-formed rows of this kind."""
    expires: bool = False
    """Whether a correction that starts beyond retention is refused."""
    at_once: bool = False
    """Whether it takes effect independent of the stored rows; else its shard decides its outcome."""
    unfit: Callable[[pa.Table], Bools] | None = None
    """Returns which well-formed rows the operator can't apply. It gets rows of all kinds."""
    unfit_reason: str = ""


@dataclass(frozen=True)
class Limits:
    """The times that corrections are held against; microseconds."""

    expired_us: int
    """Results that start strictly before this time are beyond retention."""
    latest_advance_us: int | None
    """An advance may not lie after it; None for no limit."""
    clock_us: int = 0
    """The batch's clock, for the record."""


def latest_advance_us(max_future_skew_us: int | None, clock_us: int, close_us: int, to_close_us: int) -> int | None:
    """Return the furthest watermark that an advance may ask for, in microseconds. It closes all results that can be open.

    That is `to_close_us` after the clock and its allowed skew, or after the watermark if that is later. `to_close_us` is at
    least the time from a result's end to its close.
    """
    # An advance beyond it would make all later events dead letters for good.
    if max_future_skew_us is None:
        return None
    return max(clock_us + max_future_skew_us, close_us + to_close_us - 1) + to_close_us


def split_corrections(kinds: Mapping[str, CorrectionKind], limits: Limits, table: pa.Table) -> Split:
    """Yield pieces for corrections (rows of their table): their kinds' pieces, outcomes, dead letters, and numbers.

    The outcome of a correction that is refused, or that takes effect at once, is known here. For the others a row without an
    outcome goes to the shard, which fills it in.
    """
    table = table.combine_chunks()
    kind = pc.fill_null(combined(table["kind"]), "")
    of_kind = {name: _equal(kind, name) for name in (*kinds, ADVANCE, TICK, FLUSH)}
    start = micros(table["start_time"])
    malformed = ~np.logical_or.reduce(list(of_kind.values())) | is_null(table, "correction_id")
    expired = np.zeros(table.num_rows, bool)
    for name, known in kinds.items():
        malformed |= of_kind[name] & known.malformed(table)
        if known.expires:
            expired |= of_kind[name] & (start < limits.expired_us)
    malformed |= of_kind[ADVANCE] & no_time(table["start_time"])
    ahead = np.zeros(table.num_rows, bool)
    if limits.latest_advance_us is not None:
        ahead = of_kind[ADVANCE] & (start > limits.latest_advance_us)
    ahead &= ~malformed
    expired &= ~malformed
    refused = [(malformed, MALFORMED, "malformed correction"), (ahead, MALFORMED, FUTURE), (expired, EXPIRED, EXPIRED)]
    refused += _unfit(kinds, of_kind, ~malformed & ~expired, table)
    unfit = np.logical_or.reduce([np.zeros(table.num_rows, bool), *(mask for mask, _, _ in refused[3:])])
    at_once = (
        of_kind[ADVANCE]
        | of_kind[TICK]
        | of_kind[FLUSH]
        | np.logical_or.reduce(
            [np.zeros(table.num_rows, bool), *(of_kind[name] for name, known in kinds.items() if known.at_once)]
        )
    )
    yield from _outcomes(table, refused, at_once, limits.clock_us)
    for mask, _, reason in refused:
        if mask.any():
            yield Aside(DEAD, _dead(table.filter(pa.array(mask)), reason))
    good = ~malformed & ~ahead & ~expired & ~unfit
    for name, known in kinds.items():
        rows = table.filter(pa.array(good & of_kind[name]))
        if rows.num_rows:
            yield from known.split(rows)
    counts = {
        "corrections": table.num_rows,
        "malformed": int((malformed | ahead | unfit).sum()),
        "expired": int(expired.sum()),
    }
    advances = good & of_kind[ADVANCE]
    counts["applied"] = int((good & (of_kind[ADVANCE] | of_kind[TICK] | of_kind[FLUSH])).sum())
    if advances.any():
        counts |= {MAX_ADVANCE: int(start[advances].max())}
    if (good & of_kind[FLUSH]).any():
        counts |= {MAX_FLUSH: 1}
    yield Counted(counts)


def refused_corrections(table: pa.Table, outcome: str, reason: str, clock_us: int) -> Split:
    """Yield outcomes, dead letters and numbers of corrections (rows of their table) refused for the same reason."""
    every, none = np.ones(table.num_rows, bool), np.zeros(table.num_rows, bool)
    yield from _outcomes(table, [(every, outcome, reason)], none, clock_us)
    yield Aside(DEAD, _dead(table, reason))
    yield Counted({"corrections": table.num_rows, outcome: table.num_rows})


def _unfit(
    kinds: Mapping[str, CorrectionKind], of_kind: Mapping[str, Bools], among: Bools, table: pa.Table
) -> list[tuple[Bools, str, str]]:
    """Return the operator's reasons to refuse a correction, each with the mask of the rows that it refuses."""
    return [
        (among & of_kind[name] & known.unfit(table), MALFORMED, known.unfit_reason)
        for name, known in kinds.items()
        if known.unfit is not None
    ]


def _outcomes(table: pa.Table, refused: Sequence[tuple[Bools, str, str]], at_once: Bools, clock_us: int) -> Split:
    """Yield a row with the outcome of each correction. If only its shard knows the outcome, the row goes to this shard."""
    masks, outcomes, reasons = (list(column) for column in zip(*refused, strict=True))
    told = {
        "outcome": np.select([*masks, at_once], [*outcomes, APPLIED], ""),
        "reason": np.select(masks, reasons, ""),
    }
    columns = {name: pa.array(texts, pa.string(), mask=texts == "") for name, texts in told.items()}
    columns["at"] = pa.array(np.full(table.num_rows, clock_us))
    columns |= {name: combined(table[name]) for name in OUTCOME_SCHEMA.names if name not in columns}
    rows = pa.Table.from_arrays([columns[f.name].cast(f.type) for f in OUTCOME_SCHEMA], schema=OUTCOME_SCHEMA)
    known = pa.array(told["outcome"] != "")
    yield Aside(OUTCOMES, rows.filter(known))
    asked = rows.filter(pc.invert(known))
    yield Keyed(OUTCOMES, combined(asked["key"]), asked)


def is_null(table: pa.Table, *names: str) -> Bools:
    """Say which rows lack a column."""
    masks = [pc.is_null(combined(table[name])).to_numpy(zero_copy_only=False) for name in names]
    return np.logical_or.reduce(masks)


def is_keyless(table: pa.Table) -> Bools:
    """Say which rows have no key, or an empty one."""
    return _equal(pc.fill_null(combined(table["key"]), ""), "")


def no_time(times: pa.ChunkedArray | pa.Array) -> Bools:
    """Say which times are null or out of the years 1 to 9999, which is all that Python has dates for."""
    return parse_times(times, None)[1]


def is_incomplete(lists: pa.Array, optional: Collection[str] = ()) -> Bools:
    """Say which lists have an item without a required part, or outside of all times."""
    items = pc.list_flatten(lists)
    out = np.zeros(len(lists), bool)
    for field in (field for field in items.type if field.name not in optional):
        values = pc.struct_field(items, field.name)
        lacking = no_time(values) if pa.types.is_timestamp(field.type) else nulls_of(values)
        out[pc.list_parent_indices(lists).to_numpy()[lacking]] = True
    return out


def micros(times: pa.ChunkedArray | pa.Array) -> Ints:
    """Return times as microseconds; 0 for null."""
    return pc.fill_null(combined(times).cast(pa.int64()), 0).to_numpy(zero_copy_only=False)


def _equal(values: pa.Array, value: str) -> Bools:
    return pc.equal(values, value).to_numpy(zero_copy_only=False)


def _dead(table: pa.Table, reason: str) -> pa.Table:
    # Times as numbers: Python can't hold all of them.
    plain = table.cast(pa.schema([(field.name, in_micros(field.type)) for field in table.schema]))
    texts = (str({k: v for k, v in row.items() if v is not None}) for row in plain.to_pylist())
    raw = pa.array([raw_text(text.encode()) for text in texts])
    start, no_start = parse_times(table["start_time"], None)
    arrays = [
        pa.repeat(reason, table.num_rows),
        table["kind"],
        table["key"],
        pa.array(start, mask=no_start),
        raw,
        table["correction_id"],
    ]
    return pa.Table.from_arrays(
        [combined(a).cast(f.type) for a, f in zip(arrays, DEAD_SCHEMA, strict=True)], schema=DEAD_SCHEMA
    )
