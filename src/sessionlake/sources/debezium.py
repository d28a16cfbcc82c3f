"""The envelope in which Debezium sends changes of a database's rows (docs/rules.md, rule 320)."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from sessionlake.sources.decoding.kafka_records import BODY
from sessionlake.sources.record_columns import OP, SOURCE_TIME

_ENVELOPE = "op string, before string, after string, source string, payload string"
"""JSON within JSON stays a text. With a schema in each record, the envelope is the payload."""
_TIMES = "ts_ns bigint, ts_us bigint, ts_ms bigint"


def unwrapped(value: Column) -> list[Column]:
    """Return a record's row as JSON, in bytes, then the kind of its change, and when the database made it, in microseconds.

    The row is the one after the change, of a delete the one before it; null of records that are no changes of a row.
    """
    text = value.cast("string")
    outer = F.from_json(F.when(F.is_valid_utf8(text), text), _ENVELOPE)
    inner = F.from_json(outer["payload"], _ENVELOPE)
    is_payload = F.coalesce(F.startswith(F.ltrim(outer["payload"]), F.lit("{")), F.lit(False))
    field = {
        name: F.when(is_payload, inner[name]).otherwise(outer[name]) for name in ("op", "before", "after", "source")
    }
    op, times = field["op"], F.from_json(field["source"], _TIMES)
    # A delete without a row may still have its key in the record's.
    row = F.when(op.isin("c", "r", "u"), field["after"]).when(op == "d", F.coalesce(field["before"], F.lit("{}")))
    micros = F.try_multiply(times["ts_ms"], F.lit(1000))
    time = F.coalesce(times["ts_us"], F.call_function("div", times["ts_ns"], F.lit(1000)), micros)
    return [row.cast("binary").alias(BODY), op.alias(OP), time.cast("bigint").alias(SOURCE_TIME)]
