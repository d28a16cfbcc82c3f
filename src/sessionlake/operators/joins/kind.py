"""Joins as everything above the engine sees them: their tables, and how their state is read back from these."""

from collections.abc import Mapping
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import pyarrow as pa

from sessionlake.columnar.arrays import Ints
from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator
from sessionlake.engine.outputs import Output
from sessionlake.operators.joins.axis import axis_of, grid_of
from sessionlake.operators.joins.operator import Joiner
from sessionlake.operators.joins.restate import RESTATED_SCHEMA, restated_messages
from sessionlake.operators.joins.rules import JoinProgress
from sessionlake.operators.joins.section import JoinSection
from sessionlake.operators.joins.spec import (
    MESSAGES,
    NUMBER_BITS,
    POSITION,
    SIDE,
    TIME_AXIS,
    JoinSpec,
    message_schema,
)
from sessionlake.operators.shared.sides.columns import column_names
from sessionlake.operators.shared.sides.names import SIDES
from sessionlake.operators.shared.windowing.policies import CLOSE
from sessionlake.stream.capabilities import Merge, Restating
from sessionlake.stream.described_kind import DescribedKind
from sessionlake.stream.kind import ClosingWatermark, State, TableSpec
from sessionlake.stream.outputs import same_rows
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.warehouse import schemas
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse.batches import last_batch_id
from sessionlake.warehouse.dialects import DAY_US
from sessionlake.warehouse.row_table import RowTable
from sessionlake.warehouse.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_NUMBER = (1 << NUMBER_BITS) - 1


class Joins(DescribedKind, of=Joiner):
    """See `Kind` for the methods."""

    redeeming: ClassVar[None] = None

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the messages that pairs are made of, and the tables of pairs."""
        schema = message_schema(self.spec, marks=True)
        statistics = {"dataSkippingStatsColumns": f"time,{POSITION},batch_id"}
        return (
            TableSpec(schemas.JOIN_MESSAGES, schema, "Every message: the state", statistics),
            *super().tables(),
        )

    def outputs(self, tables: Tables) -> tuple[Output, ...]:
        """Return the messages, and the changelog."""
        name, schema = schemas.JOIN_MESSAGES, message_schema(self.spec, marks=True)
        return (
            Output(MESSAGES, name, tables[name].uri, schema, same_rows, key=self.changelog.key, guarded=True),
            *super().outputs(tables),
        )

    def changes_schema(self, table: RowTable) -> pa.Schema:
        """Return the schema of a changelog: in tables of joins the time is the last column."""
        schema, (time,) = super().changes_schema(table), table.computed
        return schema.remove(schema.get_field_index(time.name)).append(time.field)

    def stored(self, tables: Tables, operator: Operator[Any], state: State) -> "DataFrame":
        """Return the messages that may still be joined, of committed batches."""
        spec = cast("Joiner", operator).spec
        until = last_batch_id(tables, self.changelog)
        messages = tables[schemas.JOIN_MESSAGES].read().where(F.col("batch_id") <= until)
        time_us = F.unix_micros("time")
        place = time_us if spec.by_time else F.col(POSITION).bitwiseAND(_NUMBER)
        at = JoinProgress.of(state)

        def from_on(places: Mapping[str, int]) -> "Column":
            return reduce(or_, ((F.col(SIDE) == name) & (place >= places[name]) for name in SIDES))

        since = F.when(F.col("is_late"), at.waiting_since(1)).otherwise(at.waiting_since(0))
        read = messages.where(from_on({name: at.restored_from(spec, name) for name in SIDES}))
        return read.select(
            F.col(self.changelog.key).alias("key"),
            SIDE,
            time_us.alias("time_us"),
            POSITION,
            "revision",
            "is_late",
            (F.col("revision") > since).alias("waits"),
            from_on({name: at.horizon(name) for name in SIDES}).alias("kept"),
            F.lit(at.at.close_us).alias("close_us"),
            F.lit(at.full_us).cast("bigint").alias("full_us"),
            *column_names(spec.both),
        )

    @classmethod
    def unneeded(cls, config: Config, state: State) -> dict[str, str]:
        """Return the messages below all that a restore reads; by time whole dates of them, so that files go unread."""
        section = cast("JoinSection", config.section)
        at, by_time = JoinProgress.of(state), section.by == TIME_AXIS
        conditions = []
        for name in SIDES:
            place = at.horizon(name)
            if section.outer and place != NO_WATERMARK:
                place -= section.retention_us  # no partner lies further away
            if by_time and place != NO_WATERMARK:
                conditions.append(f"({SIDE} = '{name}' and time < timestamp_micros({place - place % DAY_US}))")
            elif place > 0:
                conditions.append(f"({SIDE} = '{name}' and ({POSITION} & {_NUMBER}) < {place})")
        return {schemas.JOIN_MESSAGES: " or ".join(conditions)} if conditions else {}

    @property
    def closing_watermark(self) -> ClosingWatermark | None:
        """Return, if messages wait for event time, the watermark at which no partner of any can come, or its window is full."""
        return self._closed_at if self.spec.lists_open or self.spec.until_full else None

    def _closed_at(self, tables: Tables) -> int | None:
        until = last_batch_id(tables, self.changelog)
        messages = tables[schemas.JOIN_MESSAGES].read().where(F.col("batch_id") <= until)
        latest = messages.agg(F.max(F.unix_micros("time"))).head()
        if latest is None or latest[0] is None:
            return None
        spec, x = self.spec, np.array([latest[0]])
        axis, graced = axis_of(spec), spec.grace_us
        found = [int(axis.closed_after(side, x, axis.end_alone(side, x))[0]) + graced + 1 for side in spec.outer]
        if spec.until_full:
            found.append(int(grid_of(spec).first_end(x)[0]) + (graced if spec.emit.full == CLOSE else 0))
        return max(found)

    @property
    def restating(self) -> Restating:
        """Return that each message is taken in again for itself, with the position that it has."""
        return Restating(_event_time_us, partial(_merge, self.spec))


def _event_time_us() -> "Column":
    return F.unix_micros("event_time")


def _merge(spec: JoinSpec, watermark_us: int) -> Merge:
    del watermark_us
    return Merge(_alone, partial(restated_messages, spec), RESTATED_SCHEMA)


def _alone(time_us: Ints) -> Ints:
    return time_us
