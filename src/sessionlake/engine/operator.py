"""The interface between the engine and a stateful operator, for example sessions, which is a function on one shard.

The engine does not know the operator's computation.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import pyarrow as pa

from sessionlake.aggregates import beyond
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.rows import Rows
from sessionlake.store.api import OpenSegments, ShardStore

Inputs = Mapping[str, pa.Table]
"""A shard's rows by kind; a kind without rows is absent."""
LOOKUP, TICK = "cold", "tick"
"""Kinds of the rows that the engine supplies: rows that shards asked for; for operators with
`ticks` a row from each map task, with its numbers (`Counted`) as columns."""
_STATE_STATS = "state_stats"


class StateStat(str):
    """The name of a number that is no count of the batch: the next state is computed from it (`Operator.next_state`), or a line of the run has it.

    The sum of tasks' numbers, or with `greatest` the greatest of them. It equals its text.
    """

    __slots__ = ("greatest",)
    greatest: bool

    def __new__(cls, name: str, *, greatest: bool = False) -> Self:
        """Return the name."""
        stat = super().__new__(cls, name)
        stat.greatest = greatest
        return stat

    def of(self, part: object) -> "StateStat":
        """Return the name of the same number for a part, such as an input."""
        return StateStat(f"{self}:{part}", greatest=self.greatest)

    def parts(self, stats: Mapping[str, int]) -> Iterator[tuple[str, int]]:
        """Yield the numbers of parts among a batch's numbers, each with its part's text."""
        for name, value in stats.items():
            stat, colon, part = name.partition(":")
            if colon and stat == self:
                yield part, value


@dataclass(frozen=True)
class BatchContext:
    """A batch's inputs besides its rows and the stores. Equal inputs give a batch an equal result."""

    batch_id: int
    commit_id: str
    state: Mapping[str, Any]
    """The operator's own small state after the previous batch; JSON values."""
    clock_us: int = 0
    """When the batch began, as the stream's offset log has it: the same on a rerun."""
    last_us: int | None = None
    """Time of the last commit, by its driver's clock; None before the first."""
    files: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """For each event input, the batch's source files by name, each with its rank in the source's order. It is empty if the
    pipeline's kind does not ask for it. Operators that number messages use it (`stream/positions.py`)."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """The versions of further inputs that the batch reads, by name; for a lookup its file's name."""
    task: int = 0
    """In map tasks: the number of the task."""
    part: int = 0
    """In map tasks: the number of the rows' Arrow batch in the task, from 0 on."""
    keeps_replaced: bool = False
    """Whether `ShardResult.replaced` is asked for."""
    cursor: Mapping[str, Any] = field(default_factory=dict)
    """The last `ShardResult.cursor` of the shard, in JSON values; empty before the first, and in map tasks."""
    handed_in: bool = False
    """Rows that shards asked for (`ShardResult.needs`) are among the inputs."""


@dataclass(frozen=True)
class Keyed:
    """Rows on the way to their keys' shards."""

    kind: str
    keys: pa.Array
    """The key of each row: text, plain or as a dictionary."""
    rows: pa.Table


@dataclass(frozen=True)
class Aside:
    """Output rows without a shard: the task that made them writes them."""

    kind: str
    """The kind of a pipeline's output."""
    rows: pa.Table


@dataclass(frozen=True)
class Everywhere:
    """Rows for every shard; few, since each shard gets all of them."""

    kind: str
    rows: pa.Table


@dataclass(frozen=True)
class Counted:
    """Numbers that count for the batch, as `ShardResult.stats` does."""

    stats: Mapping[str, int]


Piece = Keyed | Aside | Everywhere | Counted
Split = Iterator[Piece]


@dataclass(frozen=True)
class ShardResult:
    """An operator's result for a shard's rows."""

    changes: pa.Table
    writes: pa.Table | None
    """The store's writes, applied once the batch is committed; None leaves the store as it is."""
    side: Mapping[str, pa.Table] = field(default_factory=dict)
    stats: Mapping[str, int] = field(default_factory=dict)
    """Numbers that the driver sums over shards: the batch's counts, and numbers of its next state (`StateStat`)."""
    cursor: Mapping[str, Any] | None = None
    """A few JSON values for the shard's next task; None leaves those that there are. They are part of the batch's commit,
    and forgotten if the shards are cut again."""
    needs: pa.Table | None = None
    """Rows that the shard needs before it can compute the batch. If there are any, the other results are ignored."""
    replaced: pa.Table | None = None
    """The rows that `changes` replace or delete, as they were sent, in the form of changes. An operator whose section
    `knows_replaced` gives them if the context asks for them."""


def counts_of(stats: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers that are a batch's counts."""
    return {name: value for name, value in stats.items() if not isinstance(name, StateStat)}


def add_stats(total: dict[str, int], stats: Mapping[str, int]) -> None:
    """Add one task's numbers to others'."""
    for name, value in stats.items():
        is_greatest = isinstance(name, StateStat) and name.greatest
        total[name] = max(total.get(name, value), value) if is_greatest else total.get(name, 0) + value


def reported(stats: Mapping[str, int]) -> dict[str, Any]:
    """Return a task's numbers as JSON values, to be read with `stats_of`."""
    known = {name: name.greatest for name in stats if isinstance(name, StateStat)}
    return {"stats": dict(stats), _STATE_STATS: known}


def stats_of(report: Mapping[str, Any]) -> dict[str, int]:
    """Return a report's numbers, named as in the task."""
    known = report[_STATE_STATS]
    return {StateStat(n, greatest=known[n]) if n in known else n: value for n, value in report["stats"].items()}


Store = TypeVar("Store", bound=ShardStore)


def applied(operator: "Operator[Store]", inputs: Inputs, store: Store, context: BatchContext) -> ShardResult:
    """Return an operator's result for a shard, with the counts of values beyond their type."""
    with beyond.counted() as found:
        result = operator.apply(inputs, store, context)
    return replace(result, stats={**result.stats, **found}) if found else result


class Operator(Protocol[Store]):
    """A stateful operator on shards; instances are pickled to the workers."""

    @property
    def ticks(self) -> bool:
        """Whether every shard runs in every batch, also without rows, and receives a row from each map task (kind TICK)."""

    def columns(self, name: str) -> EventColumns:
        """Return an event input's read columns."""

    def split(self, rows: pa.Table, context: BatchContext) -> Split:
        """Turn source rows into rows with keys, rows of outputs, and numbers; runs before the shuffle.

        It decodes the rows, and yields the pieces of `scheduled`, `split_rows`, `split_corrections` and `split_sent`.
        """

    def scheduled(self, context: BatchContext) -> Split:
        """Yield the pieces that a map task sends even if it has no rows, for example if a cleanup is due."""

    def split_read(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Turn decoded rows of an event input into pieces; `number` is their place among the `Rows` of the task's table.

        It looks up what the rows lack, and yields the pieces of `split_rows`.
        """

    def split_rows(self, context: BatchContext, name: str, number: int, rows: Rows) -> Split:
        """Turn rows of an event input, with all look-ups, into pieces; arguments as in `split_read`."""

    def split_corrections(self, context: BatchContext, table: pa.Table) -> Split:
        """Turn rows of the table of corrections into pieces."""

    def split_sent(self, context: BatchContext, table: pa.Table) -> Split:
        """Turn corrections that the source sent among its events, as rows of the corrections table, into pieces."""

    def open_store(self, path: Path, opened: OpenSegments = ...) -> Store:
        """Open a shard's store, by default in its own database."""

    def apply(self, inputs: Inputs, store: Store, context: BatchContext) -> ShardResult:
        """Compute a shard, as a function of its arguments, without a change to the store."""

    def commit(self, store: Store, writes: pa.Table, meta: dict[str, bytes], context: BatchContext) -> None:
        """Apply writes and metadata to the store, atomically."""

    def restored(self, rows: pa.Table, store: Store, part: int) -> Iterator[pa.Table]:
        """Yield the writes that load a part of stored state into a store that has the parts with smaller numbers: tables of other keys each.

        A part has all rows of its keys. `restored_list(part)` numbers the lists that it makes.
        """

    def next_state(self, state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
        """Return the state after a batch with these numbers; JSON values."""

    def expired_us(self, state: Mapping[str, Any]) -> int:
        """Return the time strictly before which rows are beyond retention, in microseconds."""
