"""`gap_by` on the driver: the SQL of a config as an expression over events (docs/rules.md, rule 160)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from sessionlake.columnar.column_types import TIME
from sessionlake.columnar.expressions import EVENT_TIME, KEY, Expression
from sessionlake.errors import ConfigError

if TYPE_CHECKING:
    from sessionlake.columnar.spark_sql import Parsed

_SETTING = "session.gap_by"


def parsed_gap(sql: str | None) -> "Parsed | None":
    """Parse the SQL, if there is any; ConfigError in one line."""
    if sql is None:
        return None
    from sessionlake.columnar.spark_sql import parse  # noqa: PLC0415 (configs without SQL are read without it)

    return parse(_SETTING, sql)


def source_columns(parsed: "Parsed | None") -> tuple[str, ...]:
    """Return the columns of the source that an expression over events reads."""
    return () if parsed is None else tuple(name for name in parsed.columns if name not in (KEY, EVENT_TIME))


def typed_gap(parsed: "Parsed | None", types: Mapping[str, pa.DataType]) -> Expression | None:
    """Return the expression over events whose columns have the given types; ConfigError if it is no interval, or reads the clock."""
    if parsed is None:
        return None
    found = parsed.typed({**types, KEY: pa.string(), EVENT_TIME: TIME}, "interval")
    if found.uses_clock:
        raise ConfigError(
            f"{_SETTING}: {parsed.text!r} asks for the present, which an event's gap can't; use event_time"
        )
    return found
