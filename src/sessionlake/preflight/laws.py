"""`check`: whether users' classes of [aggregates] can be merged as a pipeline merges them (`aggregates/laws.py`)."""

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from sessionlake.aggregates.folded import Merging
from sessionlake.aggregates.laws import broken_law
from sessionlake.config.load import Config
from sessionlake.config.problems import Problem
from sessionlake.errors import SessionlakeError
from sessionlake.preflight.sources import UnseenError
from sessionlake.sources.base import Source
from sessionlake.stream.ingest import EVENTS
from sessionlake.stream.kinds import kind_of

KEYS = ""
"""The column of the events' keys: no column of a source has this name."""
_ROWS = 12
_VALUES: tuple[tuple[Callable[[pa.DataType], bool], tuple[Any, ...]], ...] = (
    (pa.types.is_string, ("a", "b", "ab", "1")),
    (pa.types.is_boolean, (True, False)),
    (pa.types.is_integer, (0, 1, 2, 7)),
    (pa.types.is_floating, (0.0, 0.5, 2.0, 7.25)),
    (pa.types.is_decimal, (Decimal(0), Decimal(1), Decimal(7))),
    (pa.types.is_timestamp, tuple(datetime(2026, 1, 31, hour, tzinfo=UTC) for hour in (0, 9, 10))),
    (pa.types.is_date, (date(2026, 1, 31), date(2026, 2, 1))),
    (pa.types.is_binary, (b"a", b"b")),
)
"""Made-up values of rows, by type, with nulls among them."""


def law_problems(config: Config, sources: Mapping[str, Source], events: pa.Table | None = None) -> list[Problem]:
    """Return a problem for each class of a pipeline that breaks a law of merges, with a counterexample, all in one line.

    `events` are sample events with the columns that aggregates read, and their keys as the column KEYS. A class that they are too few
    for is tried on rows that are made up, of the columns' types. A class whose rows can't be had is left out.
    """
    if not any(":" in text for text in config.aggregates.values()):
        return []
    with suppress(UnseenError, SessionlakeError):
        kind = kind_of(config).make(config, sources, None)
        made_up = _made_up(kind.inputs[EVENTS].types)
        classes = (aggregate for aggregate in kind.aggregates if isinstance(aggregate, Merging))
        return [problem for aggregate in classes if (problem := _broken(aggregate, events, made_up)) is not None]
    return []


def _broken(aggregate: Merging, events: pa.Table | None, made_up: pa.Table | None) -> Problem | None:
    for rows, key, of in ((events, KEYS, "sample rows"), (made_up, None, "made-up rows")):
        if rows is None or rows.num_rows < 2 or not {*aggregate.inputs} <= {*rows.column_names}:
            continue
        told = broken_law(aggregate, rows, key=key)
        return (
            None
            if told is None
            else Problem(f"aggregates.{aggregate.name}", f"{aggregate.path}, tried on {of}: {told}")
        )
    return None


def _made_up(types: Mapping[str, pa.DataType]) -> pa.Table | None:
    """Return rows with values of the types, and nulls; columns of other types are left out. None if no column is left."""
    draw = random.Random(7)  # noqa: S311 (the same rows each time)
    columns = {}
    for name, type_ in types.items():
        values = next((some for is_such, some in _VALUES if is_such(type_)), ())
        if values:
            columns[name] = pa.array([draw.choice((None, *values)) for _ in range(_ROWS)], type_)
    return pa.table(columns) if columns else None
