"""What the engine runs: one stateful operator, a function on one shard. The engine knows nothing of what it computes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from sessionlake.store.api import ShardStore

Inputs = Mapping[str, pa.Table]
"""Rows of one shard by kind; a kind without rows is absent."""
RESTORE, LOOKUP, TICK = "restore", "cold", "tick"
"""Kinds of the rows that the engine hands in: a shard's stored state; rows that shards asked for; for operators with
`ticks` one row of each map task, which has its numbers (`Counted`) as columns."""

STATE = "state_"
"""How numbers are called that are the next state's alone (`Pipeline.next_state`): they are added up, and no counts of the batch."""
_GREATEST = "max_"


@dataclass(frozen=True)
class BatchContext:
    """What a batch is a function of, besides its rows and the stores."""

    batch_id: int
    commit_id: str
    state: Mapping[str, Any]
    """The operator's own small state after the previous batch; JSON values."""
    clock_us: int = 0
    """When the batch began, as the stream's offset log has it: the same on a rerun."""
    last_us: int | None = None
    """When the last commit was made, by the clock of its driver; None before the first."""
    files: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By event input the batch's source files by name, and the rank of each in the order in which the source has them; empty
    where the pipeline's kind does not ask for them. Operators that number messages go by it (`stream/positions.py`)."""
    task: int = 0
    """In map tasks: the number of the task."""
    part: int = 0
    """In map tasks: the number of the rows' Arrow batch among those of the task, from 0 on."""
    cursor: Mapping[str, Any] = field(default_factory=dict)
    """What the shard's last task returned as `ShardResult.cursor`, JSON values; empty before, and in map tasks."""
    handed_in: bool = False
    """Rows that shards asked for (`ShardResult.needs`) are among the inputs."""


@dataclass(frozen=True)
class Keyed:
    """Rows that travel to the shards of their keys."""

    kind: str
    keys: pa.Array
    """The key of each row: text, plain or as a dictionary."""
    rows: pa.Table


@dataclass(frozen=True)
class Aside:
    """Rows of an output that need no shard: the task that made them writes them."""

    kind: str
    """Of one of the pipeline's outputs."""
    rows: pa.Table


@dataclass(frozen=True)
class Everywhere:
    """Rows that go to every shard; few, since each shard gets all of them."""

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
    """What an operator makes of one shard's rows."""

    changes: pa.Table
    writes: pa.Table | None
    """The store's writes, applied once the batch is committed; None leaves the store as it is."""
    side: Mapping[str, pa.Table] = field(default_factory=dict)
    stats: Mapping[str, int] = field(default_factory=dict)
    """Numbers that the driver adds up over shards; names starting with `max_` are maximised instead. They are the batch's
    counts, but for these and those starting with `state_`."""
    cursor: Mapping[str, Any] | None = None
    """A few JSON values for the shard's next task; None leaves those that there are. They are part of the batch's commit,
    and forgotten where the shards are cut anew."""
    needs: pa.Table | None = None
    """Rows to be handed in before the batch can be computed; the rest of the result is then ignored."""


def counts_of(stats: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers that are counts of a batch."""
    return {name: value for name, value in stats.items() if not name.startswith((_GREATEST, STATE))}


def add_stats(total: dict[str, int], stats: Mapping[str, int]) -> None:
    """Add one task's numbers to those of others."""
    for name, value in stats.items():
        total[name] = max(total.get(name, value), value) if name.startswith(_GREATEST) else total.get(name, 0) + value


Store = TypeVar("Store", bound=ShardStore)


class Operator(Protocol[Store]):
    """A stateful operator on shards; instances are pickled to the workers."""

    @property
    def ticks(self) -> bool:
        """Whether every shard is to run in every batch, also without rows, and be told of each map task (kind TICK)."""

    def split(self, rows: pa.Table, context: BatchContext) -> Split:
        """Turn source rows into rows with keys, rows of outputs, and numbers; runs before the shuffle."""

    def open_store(self, path: Path) -> Store:
        """Open the store of a shard."""

    def apply(self, inputs: Inputs, store: Store, context: BatchContext) -> ShardResult:
        """Compute a shard; must not change the store and must be a function of its arguments."""

    def commit(self, store: Store, writes: pa.Table, meta: dict[str, bytes], context: BatchContext) -> None:
        """Apply writes and metadata to the store, atomically."""

    def restored(self, inputs: Inputs, store: Store) -> Iterator[pa.Table]:
        """Yield the writes that load handed-in state (inputs of kind RESTORE) into an empty store: one table, or several of other keys each."""
