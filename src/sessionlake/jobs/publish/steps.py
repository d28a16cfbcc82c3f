"""The steps of the tables that sinks keep."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A step of a table."""

    batch_id: int
    """The batch whose rows it has now."""
    rows: int | None
    """How many rows are new or changed; None if all were loaded."""
    deleted: int = 0
    """How many rows are gone."""
