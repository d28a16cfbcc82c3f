"""What all harnesses have: an operator's shards in a directory of their own, and the columns of plain rows."""

import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Generic, Self

import pyarrow as pa

from sessionlake.aggregates import Aggregate
from sessionlake.config.durations import parse_duration
from sessionlake.engine.operator import Store
from sessionlake.sources.columns import EventColumns
from sessionlake.standalone.columns import aggregated, declared_types, type_of
from sessionlake.standalone.rows import Row
from sessionlake.standalone.shards import KEY, TIME_US, LocalShards

__all__ = ["Harness", "aggregated_columns", "declared_types"]


def skew_of(max_future_skew: str | None) -> int | None:
    """Return how far ahead of a batch's clock rows may be, microseconds; None for any, as where no clock is given."""
    return None if max_future_skew is None else parse_duration(max_future_skew, "max_future_skew")


class Harness(Generic[Store]):
    """What every harness has: shards that are closed at the end of a `with`."""

    def __init__(self, shards: int) -> None:
        root = Path(tempfile.mkdtemp(prefix="sessionlake-"))
        # A harness that refuses its arguments is closed by nobody.
        self._remove = weakref.finalize(self, shutil.rmtree, root, ignore_errors=True)
        self._shards = LocalShards[Store](shards, lambda operator, shard: operator.open_store(root / str(shard)))

    def close(self) -> None:
        """Release the stores and their directory."""
        self._shards.close()
        self._remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def aggregated_columns(
    texts: Mapping[str, str],
    declared: Mapping[str, pa.DataType],
    rows: Sequence[Row],
    *,
    keyed: bool = True,
    event_id: str | None = None,
    more: Sequence[str] = (),
) -> tuple[tuple[Aggregate, ...], EventColumns]:
    """Return aggregates and the columns of events that they read, and `more`, typed as declared, or as the rows' first values are."""
    named = {name for row in rows for name in row} - {KEY, TIME_US, "kind", event_id}
    types = {name: type_of(name, rows) for name in named} | dict(declared) | {KEY: pa.string(), TIME_US: pa.int64()}
    key = KEY if keyed else None
    return aggregated(texts, types, key=key, time=TIME_US, event_id=event_id, columns=more, others=sorted(named))
