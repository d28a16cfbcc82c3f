"""The driver's half of [ttl]: a section made what workers know, over sessions with the columns that a pipeline's have."""

import pyarrow as pa

from sessionlake.config.ttl import SessionTtlSection
from sessionlake.operators.cleanups.made import rule_of, schedule_of
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.ttl import SessionTtl
from sessionlake.warehouse.schemas import OPEN_UNTIL, TIME


def session_ttl(
    spec: SessionizerSpec, section: SessionTtlSection | None, *, allowed: bool = False
) -> SessionTtl | None:
    """Return what workers know of a section; None where there is none. ConfigError where SQL does not fit the sessions' columns.

    Nothing holds back what it removes where that is `allowed`.
    """
    if section is None:
        return None
    types: dict[str, pa.DataType] = {"session_key": pa.string(), "session_start": TIME, "session_end": TIME}
    types |= {"event_count": pa.int64(), **({OPEN_UNTIL: TIME} if spec.windows.keeps_until else {}), **spec.value_types}
    schedule = schedule_of(section, allowed=allowed)
    return SessionTtl(rule_of(section, types), schedule, section.max_duration_us, section.most)
