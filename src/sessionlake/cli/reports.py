"""A job's report, in a few lines for people: how tables shrank, and other counts."""

from collections.abc import Mapping

from rich.filesize import decimal

_WORDS = {
    "rows_read": "rows read from snapshot and changelog",
    "emitted_before": "with a tombstone from before",
    "left_for_next_run": "left for the next run",
}
"""Counts whose names are no words."""
_BEFORE, _AFTER = "_files_before", "_files_after"


def report_lines(counts: Mapping[str, int]) -> list[str]:
    """Return a line for each table whose size was measured, and one line of the other counts; counts of 0 are left out."""
    measured = [name.removesuffix(_BEFORE) for name in counts if name.endswith(_BEFORE)]
    sizes = {
        f"{table}_{what}_{when}" for table in measured for what in ("files", "bytes") for when in ("before", "after")
    }
    rest = {name: value for name, value in counts.items() if name not in sizes}
    report = [_counted(name, value) for name, value in rest.items() if value]
    if not report and rest and not measured:
        report = [_counted(*next(iter(rest.items())))]
    return [*([", ".join(report)] if report else []), *(f"{table}: {_size(table, counts)}" for table in measured)]


def _counted(name: str, value: int) -> str:
    return f"{value:,} {_WORDS.get(name) or name.replace('_', ' ')}"


def _size(table: str, counts: Mapping[str, int]) -> str:
    files, size = counts[table + _BEFORE], decimal(counts[f"{table}_bytes_before"])
    before = f"{files:,} {'file' if files == 1 else 'files'}"
    if table + _AFTER not in counts:
        return f"{before}, {size}"
    files_after, size_after = counts[table + _AFTER], decimal(counts[f"{table}_bytes_after"])
    if (files, size) == (files_after, size_after):
        return f"{before}, {size}, as before"
    return f"{before} became {files_after:,}, {size} became {size_after}"
