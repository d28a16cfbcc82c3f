"""A data file that a task has written and a commit is to name."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DataFile:
    """A Parquet file under a table's folder that no commit names yet."""

    table: str
    path: str
    """Relative to the table's folder."""
    size: int
    stats: str
    """Delta's statistics as JSON: the number of rows, and bounds of the time columns."""
