"""`gap_by` on the driver: SQL of a config made an expression over events (docs/rules.md, rule 160)."""

from collections.abc import Mapping

import pyarrow as pa

from sessionlake.columnar.expressions import TIME, Expression
from sessionlake.columnar.spark_sql import Parsed, parse
from sessionlake.columnar.spark_sql.names import EVENT_TIME, KEY
from sessionlake.errors import ConfigError

_SETTING = "session.gap_by"


def parsed_gap(sql: str) -> Parsed:
    """Parse the SQL; ConfigError in one line."""
    return parse(_SETTING, sql)


def source_columns(parsed: Parsed) -> tuple[str, ...]:
    """Return the columns of the source that an expression over events reads."""
    return tuple(name for name in parsed.columns if name not in (KEY, EVENT_TIME))


def typed_gap(parsed: Parsed, types: Mapping[str, pa.DataType]) -> Expression:
    """Return the expression over events with columns of these types; ConfigError where it is no interval, or asks for the clock."""
    found = parsed.typed({**types, KEY: pa.string(), EVENT_TIME: TIME}, "interval")
    if found.uses_clock:
        raise ConfigError(
            f"{_SETTING}: {parsed.text!r} asks for the present, which an event's gap can't; use event_time"
        )
    return found
