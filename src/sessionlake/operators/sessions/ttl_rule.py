"""The driver's half of [ttl] for sessions: the section becomes the workers' form, over the columns of a pipeline's sessions."""

import pyarrow as pa

from sessionlake.operators.sessions.section import SessionTtlSection
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.ttl import SessionTtl
from sessionlake.operators.shared.cleanups.build import rule_of, schedule_of
from sessionlake.warehouse.schemas import OPEN_UNTIL, TIME


def session_ttl(
    spec: SessionizerSpec, section: SessionTtlSection | None, *, allowed: bool = False
) -> SessionTtl | None:
    """Return the workers' form of a section; None if there is none. ConfigError if SQL does not fit the sessions' columns.

    If it is `allowed`, cleanups may remove any share of the sessions.
    """
    if section is None:
        return None
    types: dict[str, pa.DataType] = {"session_key": pa.string(), "session_start": TIME, "session_end": TIME}
    types |= dict.fromkeys(spec.columns.key_titles, pa.string())
    types |= {"event_count": pa.int64(), **({OPEN_UNTIL: TIME} if spec.windows.keeps_until else {}), **spec.value_types}
    schedule = schedule_of(section, allowed=allowed)
    return SessionTtl(rule_of(section, types), schedule, section.max_duration_us, section.most)
