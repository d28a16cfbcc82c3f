"""The sample as the pipeline would see it, and its events' lateness."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from sessionlake.config.durations import parse_duration, spoken_duration
from sessionlake.config.sections import EventSection
from sessionlake.operators.windows.spec import Grid as GridOf
from sessionlake.propose.measure import USUAL_GRACE, Batch, Lateness, Seen, late_share, lateness, look, retention_for
from sessionlake.propose.query.inputs import Input
from sessionlake.propose.query.results import Groups
from sessionlake.propose.query.spans import Gap
from sessionlake.propose.sample import Sample
from sessionlake.propose.windows import late_share as windows_late_share
from sessionlake.propose.windows import refused_share
from sessionlake.sources.columns import TIMESTAMP, EventColumns
from sessionlake.sources.decoding.casting import parse_times
from sessionlake.stream.shape import Shaping

Share = Callable[[str, str], float]
"""The share of late events, given a grace and a retention."""


@dataclass(frozen=True)
class Patience:
    """The measures of an input, and how long the pipeline waits for late events."""

    seen: Seen
    lateness: Lateness
    given: bool
    """Whether the query gives a grace: the share of late events is this grace's alone."""

    @property
    def retention(self) -> str:
        """The proposed retention."""
        return self.lateness.retention


def measured_input(read: Input) -> tuple[list[Batch], Seen]:
    """Return the events of an input's sample by batch, as the config makes them, and the facts about them."""
    sample = shaped(read)
    keys: list[str | None] = [*read.key] or [None]
    key, *further = keys
    columns = EventColumns(
        key, read.time, read.time_unit, None, (), sample.types, further_keys=tuple(filter(None, further))
    )
    return look(sample, columns)


def shaped(read: Input) -> Sample:
    """Return an input's sample with computed key and time, without rows that WHERE leaves out."""
    fields = read.fields
    section = EventSection(where=read.where, columns=fields.computed)
    types = {name: fields.types[name] for name in read.sample.types}
    own = [*read.key, read.time]
    shape = Shaping.of(fields.at, section, own, ()).shape(types)
    tables = []
    for table in read.sample.batches:
        known = _with_times(table, types)
        tables.append(shape.with_own(known.filter(pa.array(shape.kept(known, None)))))
    return replace(read.sample, types={**types, **shape.types}, batches=tables)


def patience_of(read: Input, length: str, seen: Seen, share: Share) -> Patience:
    """Return the grace: the query's watermark, otherwise the shortest with few late events in the sample.

    `length` is the time by which the retention must exceed the grace.
    """
    if not seen.events and read.watermark is None:
        found = Lateness({}, USUAL_GRACE, retention_for(length, USUAL_GRACE))
        return _with_ids(read, Patience(seen, found, given=False))
    if read.watermark is None:
        return _with_ids(read, Patience(seen, lateness(length, share), given=False))
    grace = spoken_duration(parse_duration(read.watermark))
    retention = retention_for(length, grace)
    late = {grace: share(grace, retention)} if seen.events else {}
    return _with_ids(read, Patience(seen, Lateness(late, grace, retention), given=True))


def groups_patience(groups: Groups) -> Patience:
    """Return the measures of sessions or windows."""
    batches, seen = measured_input(groups.input)
    span = groups.span
    if isinstance(span, Gap):
        gap = spoken_duration(max(span.gap_us, span.longest_us))
        return patience_of(groups.input, gap, seen, partial(late_share, batches, gap))
    size = spoken_duration(span.size_us)
    grid = GridOf(span.size_us, span.advance_us or span.size_us, span.offset_us)
    return patience_of(groups.input, size, seen, partial(windows_late_share, batches, grid))


def table_patience(read: Input) -> Patience:
    """Return a table's measures: the grace is the retention of deletions."""
    batches, seen = measured_input(read)
    return patience_of(read, "1 day", seen, lambda retention, _: refused_share(batches, retention))


def join_grace(inputs: Sequence[Input]) -> str:
    """Return a join's grace: the longest watermark, none without a watermark, as in Spark."""
    graces = [parse_duration(one.watermark) for one in inputs if one.watermark is not None]
    return spoken_duration(max(graces, default=0))


def _with_ids(read: Input, found: Patience) -> Patience:
    """Return the measures with a retention that is at least as long as ids are remembered."""
    if read.unique_for is None or parse_duration(read.unique_for) <= parse_duration(found.retention):
        return found
    return replace(found, lateness=replace(found.lateness, retention=spoken_duration(parse_duration(read.unique_for))))


def _with_times(table: pa.Table, types: dict[str, pa.DataType]) -> pa.Table:
    """Return a table with times in place of texts that the config reads as times."""
    for number, name in enumerate(table.column_names):
        if types[name] == TIMESTAMP and table[name].type == pa.string():
            micros, bad = parse_times(table[name], None)
            table = table.set_column(number, name, pa.array(micros, mask=bad).cast(TIMESTAMP))
    return table
