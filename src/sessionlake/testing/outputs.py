"""The outputs of test harnesses for windows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sessionlake.local.rows import Row
from sessionlake.local.stream import LocalBatch
from sessionlake.stream.ingest import DEAD
from sessionlake.stream.outputs import LATE
from sessionlake.testing.local import placed
from sessionlake.warehouse.schemas import PARTLY


@dataclass(frozen=True)
class WindowOutput:
    """The outputs of one micro-batch of windows; see `WindowHarness`."""

    changes: list[dict[str, Any]]
    """The rows of window_changelog without states and the marks of the batch; times in microseconds."""
    late: list[dict[str, Any]]
    """The input rows whose windows were all closed; none by count."""
    partly_late: list[dict[str, Any]]
    """The input rows that had closed windows and open ones; they are in the open ones."""
    dead: list[dict[str, Any]]
    """The input rows that were refused, with a reason."""
    counts: dict[str, int]


def window_output(batch: LocalBatch, rows: Sequence[Row] = ()) -> WindowOutput:
    """Return the output of a batch over these rows."""
    late = placed(batch.asides(LATE))
    return WindowOutput(
        [dict(row) for row in batch.changes],
        [dict(rows[at]) for at, row in late if not row[PARTLY]],
        [dict(rows[at]) for at, row in late if row[PARTLY]],
        [{**rows[at], "reason": row["reason"]} for at, row in placed(batch.asides(DEAD))],
        batch.stats,
    )
