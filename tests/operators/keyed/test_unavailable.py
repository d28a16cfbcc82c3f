"""Debezium's placeholders of values that an update leaves as they were."""

import base64
import datetime as dt
from typing import Any

import pytest

from sessionlake.testing import Harness

TEXT = "__debezium_unavailable_value"
CONFIG: dict[str, Any] = {
    "source": {
        "kind": "kafka", "bootstrap_servers": "x:9", "topic": "pg.public.items", "format": "json", "envelope": "debezium"
    },
    "event": {"key": "id", "time": "_source_time"},
    "table": {"order": "offset", "columns": ["tags", "notes"]},
}  # fmt: skip
ROW = {"id": "7", "tags": '{"a":"1"}', "notes": "long"}


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        (TEXT, ROW["tags"]),
        (base64.b64encode(TEXT.encode()).decode(), ROW["tags"]),
        (f'{{"{TEXT}":"{TEXT}"}}', ROW["tags"]),
        (f'{{"{TEXT}":"1"}}', f'{{"{TEXT}":"1"}}'),
        (None, None),
    ],
)
def test_a_placeholder_stands_for_the_stored_value(sent: str | None, stored: str | None) -> None:
    with Harness(CONFIG, schema=dict.fromkeys(ROW, "string")) as harness:
        for number, row in enumerate((ROW, {**ROW, "notes": "short", "tags": sent})):
            time = dt.datetime(2026, 11, 29, 6, 0, number, tzinfo=dt.UTC)
            record = {"_op": "u", "_source_time": time, "offset": number, "partition": 0}
            (change,) = harness.process([{**row, **record}], clock_us=1_796_000_000_000_000).changes
    assert (change["tags"], change["notes"]) == (stored, "short")
