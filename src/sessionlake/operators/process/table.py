"""The rows that processors send, and the states of keys. Light: who only reads tables imports it."""

import pyarrow as pa

from sessionlake.warehouse.changelog import DELETED, KeyedChangelog, TimedChangelog
from sessionlake.warehouse.row_table import VALUES, Column, Role, RowTable
from sessionlake.warehouse.schemas import TIME

_TIMER = pa.struct([("name", pa.string()), ("at", TIME), ("clock", pa.bool_())])
_ENTRY = pa.struct([("store", pa.string()), ("name", pa.string()), ("value", pa.string())])


STATES = RowTable(
    KeyedChangelog("process_state", time="touched_at"),
    (
        Column("process_state_key", pa.string(), "The key", Role.KEY, "key"),
        Column(
            "touched_at",
            TIME,
            "Greatest time of a row or event-time timer that the state has seen",
            Role.VALUE,
            "touched_us",
        ),
        Column("position", pa.int64(), "Position of the last row that the state has seen", Role.VALUE, "position"),
        Column("ordinal", pa.int64(), "Rows sent since that one", Role.VALUE, "ordinal"),
        Column("entries", pa.list_(_ENTRY), "Entries of the stores; values are JSON", Role.VALUE, "entries"),
        Column("timers", pa.list_(_TIMER), "Pending timers", Role.VALUE, "timers"),
        Column("revision", pa.int64(), "batch_id of the state's last change", Role.REVISION),
    ),
    rows="the keys' states",
    output="process_state",
    stored_only=(Column(DELETED, pa.bool_(), "Whether the key has no state any more"),),
)
"""The states, from which stores are restored."""
OUTPUTS = RowTable(
    TimedChangelog(
        "output",
        (STATES.changelog,),
        time="output_time",
        numbers=("position", "ordinal"),
        counts=("timers", "timers_failed"),
    ),
    (
        Column("output_key", pa.string(), "The key", Role.KEY),
        Column("output_time", TIME, "Time of the source's row, or of the timer"),
        Column("position", pa.int64(), "Position of the source's row; of a timer that of the key's last row"),
        Column("ordinal", pa.int64(), "Number of the row among those sent since that one, from 1"),
        VALUES,
        Column("revision", pa.int64(), "batch_id of the batch that sent the row", Role.REVISION),
        Column("emitted_at", TIME, "The clock of that batch", Role.CLOCK),
    ),
    rows="output",
    hashed=("position", "ordinal"),
)
"""The rows that are sent."""
