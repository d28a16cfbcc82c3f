"""The rows of groups. Light: who only reads tables imports it."""

import pyarrow as pa

from sessionlake.warehouse import schemas
from sessionlake.warehouse.changelog import STATE, OneRowChangelog
from sessionlake.warehouse.row_table import VALUES, Column, Role, RowTable

KEY, CHANGED, COUNT, REVISION = "group_key", "changed_at", "event_count", "revision"
GROUPS = RowTable(
    OneRowChangelog("group", time=CHANGED, counts=("taken_back",)),
    (
        Column(KEY, pa.string(), "The key", Role.KEY, "key"),
        Column(CHANGED, schemas.TIME, "The clock of the batch that changed the row last", Role.CLOCK, "changed_us"),
        Column(COUNT, pa.int64(), "Events of the key; 0 in a delete", Role.COUNT, "event_count"),
        Column(REVISION, pa.int64(), "batch_id of the row's last change", Role.REVISION, "revision"),
        VALUES,
        Column(
            STATE, pa.binary(), "Packed aggregate states; what a restore needs beyond the values", Role.VALUE, "state"
        ),
    ),
    rows="groups",
)
"""Batches also count the accepted rows that were taken back."""
