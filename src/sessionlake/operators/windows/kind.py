"""Windows by time: the driver's half."""

from functools import partial
from typing import TYPE_CHECKING

from sessionlake.operators.windows.operator import Windower
from sessionlake.operators.windows.restate import merged_late
from sessionlake.operators.windows.spec import Grid
from sessionlake.stream.capabilities import Merge, Redeeming, Restating
from sessionlake.stream.described_kind import DescribedKind
from sessionlake.warehouse import spark_functions as F
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.views import merged_rows

if TYPE_CHECKING:
    from pyspark.sql import Column


class Windows(DescribedKind, of=Windower):
    """See `Kind` for the methods."""

    @property
    def restating(self) -> Restating:
        """Return the merge of the events of a slice."""
        return Restating(self._slice_start_us, self._merge, partial(merged_late, self.spec, alone=True))

    @property
    def redeeming(self) -> Redeeming:
        """Return the reading of events."""
        return Redeeming(self.spec.aggregates, self.spec.events)

    def closing_watermark(self, tables: Tables) -> int | None:
        """Return the watermark at which the last window closes."""
        of = self.changelogs[0]
        latest = merged_rows(tables, of=of).agg(F.max(F.unix_micros(of.start))).head()
        if latest is None or latest[0] is None:
            return None
        # One more: sliding windows have one that begins right after an event.
        return int(latest[0]) + 1 + int(self.spec.windows.span_us + self.spec.grace_us)

    def _slice_start_us(self) -> "Column":
        windows, time = self.spec.windows, F.unix_micros("event_time")
        if not isinstance(windows, Grid):
            return time
        return time - F.pmod(time - F.lit(windows.offset_us), F.lit(windows.slice_us))

    def _merge(self, watermark_us: int) -> Merge:
        del watermark_us
        return Merge(self.spec.windows.slices_of, partial(merged_late, self.spec))
