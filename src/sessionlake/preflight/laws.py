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
from sessionlake.operators.registry import kind_of
from sessionlake.preflight.sources import UnseenError, sources_without_spark
from sessionlake.stream.ingest import EVENTS

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
"""Values of rows that are made up, by their types; each has nulls beside them."""


def law_problems(config: Config, rows: pa.Table | None = None, key: str | None = None) -> list[Problem]:
    """Return a problem for each class of a pipeline that breaks a law of merges, with a counterexample in one line.

    `rows` are sample rows with the columns of events in the pipeline's types, the computed ones too, and `key` is the column of their key. Without rows
    some are made up, of the columns' types. A class whose rows can't be had is left out.
    """
    if not any(":" in text for text in config.aggregates.values()):
        return []
    with suppress(UnseenError, SessionlakeError):
        kind = kind_of(config).make(config, sources_without_spark(config), None)
        classes = [aggregate for aggregate in kind.aggregates if isinstance(aggregate, Merging)]
        given = _made_up(kind.inputs[EVENTS].types) if rows is None and classes else rows
        return [problem for aggregate in classes if (problem := _broken(aggregate, given, key, made_up=rows is None))]
    return []


def _broken(aggregate: Merging, rows: pa.Table | None, key: str | None, *, made_up: bool) -> Problem | None:
    if rows is None or not {*aggregate.inputs} <= {*rows.column_names}:
        return None
    found = broken_law(aggregate, rows, key=key)
    if found is None:
        return None
    of = "made-up rows" if made_up else "sample rows"
    return Problem(f"aggregates.{aggregate.name}", f"{aggregate.path}, tried on {of}: {found.told}")


def _made_up(types: Mapping[str, pa.DataType]) -> pa.Table | None:
    """Return rows with values of the types, and nulls; columns of other types are left out. None if no column is left."""
    draw = random.Random(7)  # noqa: S311 (the same rows each time)
    columns = {}
    for name, type_ in types.items():
        values = next((some for is_such, some in _VALUES if is_such(type_)), ())
        if values:
            columns[name] = pa.array([draw.choice((None, *values)) for _ in range(_ROWS)], type_)
    return pa.table(columns) if columns else None
