"""Processors that take Arrow tables of many keys: the call, and the retries of one that fails (rule 359)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Ints, combined, within_group
from sessionlake.operators.process.api import TIMER_BYTES, Keys, Timer
from sessionlake.operators.process.key_run import FailedRow, ShardRun
from sessionlake.operators.process.output import OutputColumns, outside_of_years
from sessionlake.operators.process.state import KeyState
from sessionlake.operators.process.user_class import failure
from sessionlake.user_code import NOT_THEIRS
from sessionlake.warehouse.schemas import TIME


@dataclass(frozen=True)
class KeyedRows:
    """The rows of a shard by key and then by arrival, with the states of their keys."""

    table: pa.Table
    """Columns key, time_us, and those of the source."""
    starts: Ints
    """Of each key its first row; one more, the number of rows, at the end."""
    position: Ints
    states: Sequence[KeyState]


class TableRun:
    """The rows of one shard's batch."""

    def __init__(self, shard: ShardRun, rows: KeyedRows) -> None:
        self._shard, self._rows = shard, rows

    def run(self) -> None:
        """Process all rows; their states are changed in place."""
        if self._rows.states:
            self._run(0, len(self._rows.states))

    def _run(self, first: int, end: int) -> None:
        """Process the rows of keys; if that fails, those of each half, and of one key each row by itself."""
        starts = self._rows.starts
        reason = self._called(first, end, int(starts[first]), int(starts[end]))
        if reason is None:
            return
        if end - first > 1:
            middle = (first + end) // 2
            self._run(first, middle)
            self._run(middle, end)
            return
        for row in range(int(starts[first]), int(starts[end])):
            if starts[end] - starts[first] > 1:
                reason = self._called(first, end, row, row + 1)
            if reason is not None:
                self._shard.failed_rows.append(FailedRow(row, reason))

    def _called(self, first: int, end: int, low: int, high: int) -> str | None:
        """Process some rows of some keys and keep the results; return the reason if that fails."""
        rows, shard = self._rows, self._shard
        states = rows.states[first:end]
        bounds: Ints = np.clip(rows.starts[first : end + 1], low, high)
        sizes = bounds[1:] - bounds[:-1]
        group = np.repeat(np.arange(end - first), sizes)
        table = rows.table.slice(low, high - low).append_column("group", pa.array(group))
        times = combined(rows.table["time_us"]).to_numpy()
        names = rows.table["key"].take(pa.array(np.clip(rows.starts[first:end], low, high - 1)))
        keys = Keys(combined(names), [state.entries.get("", {}) for state in states])
        try:
            sent = checked(shard.columns, shard.processor.process_table(table, keys), len(table))
            self._check_sizes(states, keys)
        except NOT_THEIRS:
            raise
        except BaseException as error:  # noqa: BLE001 (a user's code raises what it likes)
            return failure(shard.path, shard.processor, error, None)
        newest = np.maximum.reduceat(times[low:high], np.cumsum(sizes) - sizes).tolist()
        for state, time_us in zip(states, newest, strict=True):
            state.touched_us = time_us if state.is_empty else max(state.touched_us, time_us)
        _keep(states, keys)
        self._send(sent, low, states, np.cumsum(sizes) - 1)
        return None

    def _check_sizes(self, states: Sequence[KeyState], keys: Keys) -> None:
        limit = self._shard.limits.max_state_bytes
        for group, state in enumerate(states):
            entries = {**state.entries.get("", {}), **keys.changes(group)}
            others = state.entry_bytes - sum(len(n) + len(t) for n, t in state.entries.get("", {}).items())
            size = others + sum(len(name) + len(text) for name, text in entries.items() if text is not None)
            if size + TIMER_BYTES * len({*state.timers, *keys.timers_of(group)}) > limit:
                raise ValueError(f"the key's state is larger than max_state_bytes, {limit}")

    def _send(self, sent: pa.Table, low: int, states: Sequence[KeyState], last: Ints) -> None:
        """Name the rows that were sent; `last` has for each key its last row among those that were processed."""
        rows = self._rows
        at = sent["row"].to_numpy()
        counts = np.bincount(at, minlength=int(last[-1]) + 1)
        ordinal = within_group(counts) + 1
        for state, row in zip(states, last.tolist(), strict=True):
            state.position, state.ordinal = int(rows.position[low + row]), int(counts[row])
        index = pa.array(at + low)
        self._shard.tables.append(
            pa.table(
                {
                    "output_key": rows.table["key"].take(index),
                    "output_time": rows.table["time_us"].take(index).cast(TIME),
                    "position": rows.position[at + low],
                    "ordinal": ordinal,
                    **{name: sent[name] for name in self._shard.columns.arrow},
                }
            )
        )


def _keep(states: Sequence[KeyState], keys: Keys) -> None:
    for group, state in enumerate(states):
        entries = state.entries.setdefault("", {})
        for name, text in keys.changes(group).items():
            if text is None:
                entries.pop(name, None)
            else:
                entries[name] = text
        for name, at_us in keys.timers_of(group).items():
            state.timers[name] = Timer(at_us, name)


def checked(columns: OutputColumns, sent: pa.Table | None, rows: int) -> pa.Table:
    """Return the rows that a processor has sent with all columns of the output and `row`, ascending by `row`; TypeError if it is not that."""
    if sent is None:
        sent = pa.table({"row": pa.array([], pa.int64())})
    if not isinstance(sent, pa.Table) or "row" not in sent.column_names:
        raise TypeError(
            "process_table returns an Arrow table with a column `row`: the number of the row that each is of"
        )
    for name in sent.column_names:
        if name != "row" and name not in columns.arrow:
            raise TypeError(f"column {name!r} is not in [process.output]")
    row = combined(sent["row"]).cast(pa.int64())
    if row.null_count or (len(row) and not 0 <= pc.min(row).as_py() <= pc.max(row).as_py() < rows):
        raise TypeError(f"column 'row' has numbers from 0 to {rows - 1}")
    order = pa.array(np.argsort(row.to_numpy(), kind="stable"))
    arrays = {"row": row}
    for name, type_ in columns.arrow.items():
        values = sent[name] if name in sent.column_names else pa.nulls(len(row), type_)
        if values.type != type_ and not pa.types.is_null(values.type):
            raise TypeError(f"column {name!r} is {columns.types[name]}, and {values.type} is not")
        arrays[name] = values.cast(type_)
        if outside_of_years(combined(arrays[name])).any():
            raise TypeError(f"column {name!r} lies outside of the years 1 to 9999")
    return pa.table(arrays).take(order)
