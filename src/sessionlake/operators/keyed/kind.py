"""Keyed tables as everything above the engine sees them: their tables, and how their state is read back from these."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from sessionlake.config.load import Config
from sessionlake.engine.operator import Operator
from sessionlake.operators.keyed.expiry.ttl import hidden_us
from sessionlake.operators.keyed.operator import TableKeeper
from sessionlake.operators.keyed.section import TableSection
from sessionlake.operators.keyed.spec import (
    EVENT_TIME,
    Progress,
    stored_schema,
)
from sessionlake.operators.keyed.table import TABLE
from sessionlake.operators.keyed.ttl_section import ttl_section
from sessionlake.stream.described_kind import DescribedKind
from sessionlake.stream.kind import ALLOW_EXPIRY, State
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse.changelog import DELETED, WRITTEN
from sessionlake.warehouse.spark_columns import column
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.versions import all_versions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class KeyedTable(DescribedKind, of=TableKeeper):
    """See `Kind` for the methods."""

    restating: ClassVar[None] = None
    redeeming: ClassVar[None] = None
    closing_watermark: ClassVar[None] = None

    def operator(self, live: Mapping[str, Any] | None = None) -> TableKeeper:
        """Return the workers' half."""
        if live is None:
            return TableKeeper(self.spec)
        ttl = live.get("ttl")
        shards, allowed = self._config.pipeline.shards, bool(live.get(ALLOW_EXPIRY))
        made = None if ttl is None else ttl_section(ttl).build(self.spec.types_in_sql, shards, allowed=allowed)
        return TableKeeper(replace(self.spec.under(live), ttl=made))

    def checked(self, operator: Operator[Any], state: State, stats: Mapping[str, int]) -> Sequence[str]:
        """Refuse a batch that takes too many rows away."""
        ttl = cast("TableKeeper", operator).spec.ttl
        return () if ttl is None else ttl.checked(state, stats)

    def stored(self, tables: Tables, operator: Operator[Any], state: State) -> "DataFrame":
        """Return the rows, and the deletions that something can still meet."""
        spec = cast("TableKeeper", operator).spec
        time_us = F.unix_micros(EVENT_TIME)
        remembered = F.lit(False) if spec.by_offset else time_us >= Progress.of(state).horizon_us
        known = {
            "key": F.col(TABLE.key),
            "time_us": time_us,
            **{
                n: F.col(f"event_{n}") if spec.has_offsets else F.lit(0).cast("bigint") for n in ("offset", "partition")
            },
            "revision": F.col("revision"),
            **{f"{name}_us": F.coalesce(F.unix_micros(f"{name}_at"), F.lit(0)) for name in ("written", "inserted")},
            "id": F.col("event_id") if spec.has_ids else F.lit(""),
            "deleted": F.col(DELETED),
            **{f"column_{i}": column(name) for i, name in enumerate(spec.columns)},
        }
        columns = [known[name].alias(name) for name in stored_schema(spec).names]
        return all_versions(tables, columns, deleted=True, live=~F.col(DELETED) | remembered)

    @classmethod
    def unneeded(cls, config: Config, state: State) -> dict[str, str]:
        """Return the snapshot's deletions that nothing can meet any more, and its hidden rows."""
        horizon, hidden = Progress.of(state).horizon_us, hidden_us(state)
        over = [f"not {DELETED} and {WRITTEN} <= timestamp_micros({hidden})"] if hidden != NO_WATERMARK else []
        if cast("TableSection", config.section).by_offset:
            over.append(DELETED)
        elif horizon != NO_WATERMARK:
            over.append(f"{DELETED} and {EVENT_TIME} < timestamp_micros({horizon})")
        return {TABLE.snapshot: " or ".join(f"({some})" for some in over)} if over else {}
