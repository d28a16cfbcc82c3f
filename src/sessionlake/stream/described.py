"""An operator as data: one table of rows and rules over it, from which the workers' half derives; without Spark.

`described_kind` has the driver's half. Rows have any age, and nothing waits for a time.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import pyarrow as pa

from sessionlake.config.load import Config
from sessionlake.engine.operator import BatchContext, Split
from sessionlake.sources.decoding.rows import TypedSource
from sessionlake.stream import ingest
from sessionlake.stream.control import CorrectionKind, Limits, latest_advance_us, split_corrections
from sessionlake.stream.event_operator import OneInputOperator
from sessionlake.stream.ingest import EventSpec
from sessionlake.stream.pinned import Pinned
from sessionlake.stream.watermark import NO_WATERMARK, advanced, watermark_of
from sessionlake.warehouse.row_table import RowTable


@dataclass(frozen=True)
class DescribedSpec:
    """The settings that workers need."""

    events: EventSpec

    def fields(self, texts: Mapping[str, str]) -> list[pa.Field]:
        """Return the pipeline's own columns of rows; `texts` describe them by name."""
        del texts
        return []

    def under(self, live: Mapping[str, Any]) -> Self:
        """Return the spec under other settings of classification (`Config.live_settings`)."""
        return replace(self, events=ingest.with_live_settings(self.events, live))


@dataclass(frozen=True)
class Described(OneInputOperator):
    """See `engine.operator.Operator` for the methods that are not here."""

    TABLE: ClassVar[RowTable]
    """The rows, which are also all that a store is restored from."""
    CORRECTIONS: ClassVar[Mapping[str, CorrectionKind]]
    """The corrections that it knows, by kind."""
    LAYOUT: ClassVar[str] = "1"
    """The version of the records in stores."""
    spec: Any
    ticks: bool = False

    @classmethod
    @abstractmethod
    def of(cls, config: Config, sources: Mapping[str, TypedSource], pinned: Pinned | None) -> Self:
        """Make it of a config and its sources; `pinned` is what its batches have fixed, None before the first one."""

    def split_corrections(self, context: BatchContext, table: pa.Table) -> Split:
        """Split corrections of rows of any age."""
        skew = self.spec.events.max_future_skew_us
        latest = latest_advance_us(skew, context.clock_us, watermark_of(context.state), 1)
        return split_corrections(self.CORRECTIONS, Limits(NO_WATERMARK, latest, context.clock_us), table)

    def next_state(self, state: Mapping[str, Any], stats: Mapping[str, int]) -> dict[str, Any]:
        """Return the watermark, which says how far events have come, and closes nothing."""
        return advanced(state, stats)

    def expired_us(self, state: Mapping[str, Any]) -> int:
        """Return that no event is too old."""
        del state
        return NO_WATERMARK
