"""Comments of a config: improvements over Spark, and differences."""

import re
from collections.abc import Iterator

from sessionlake.config.durations import spoken_duration
from sessionlake.propose.query.joined import Pairs
from sessionlake.propose.query.latest import Latest
from sessionlake.propose.query.results import EVERYTHING, Groups
from sessionlake.propose.query.spans import Gap

Made = Groups | Latest | Pairs
_OF_FUNCTIONS = {
    r"\b(first|last|any_value)\s*\(": "first, last and any_value are the earliest (latest) value by time that is not null; in Spark they follow the order of rows.",
    r"\bpercentile\s*\(": "percentile is within 1 % of the exact value; Spark's approx_percentile has a precision of its own.",
    r"\bcount_distinct\s*\(|\bcount\s*\(\s*distinct\b": "Distinct values are counted exactly up to 4,096, and beyond within about 2 % (docs/aggregates.md).",
    r"\bapprox_count_distinct\s*\(": "approx_count_distinct is exact up to 1,024 values; in Spark it need not be.",
    r"\bmode\s*\(": "Of equally frequent values mode is the least; in Spark it is any.",
}
"""Notes by the aggregates' texts that they are about."""


def better(made: Made) -> Iterator[str]:
    """Yield what gets better, a line each."""
    if isinstance(made, Groups):
        yield "Late events are kept: Spark drops them. `late_events` has them, and `sessionlake reprocess-late` brings them in."
        yield f"`{made.view}` has each result once, as it is now, whatever was killed; Spark's update mode leaves the merge to the sink."
    elif isinstance(made, Latest):
        yield "A row changes with each batch that brings a newer one. Spark's streams have no row_number() by key; in batches it reads all events."
    else:
        yield "Late messages are kept: Spark drops them. `late_events` has them, and `sessionlake reprocess-late` brings them in."
        yield "A pair is sent once, with the batch that brings its second message, whatever was killed."
    yield "State is on disk, and comes back from Delta; keys can be erased (`forget`), and events recomputed (`backfill`, `rebuild`)."


def differs(made: Made) -> Iterator[str]:
    """Yield what differs, a line each."""
    if isinstance(made, Groups):
        yield from _of_groups(made)
    elif isinstance(made, Latest):
        yield "Of two updates of one time the one with the greater id holds, without an id that with the greater values; in Spark it is any."
        if made.delete_when is not None:
            yield "A key whose latest row does not pass the outer WHERE is deleted: it comes back with a newer row that passes."
        if made.left_out:
            yield f"No plain type, and so left out: {', '.join(made.left_out)}."
    else:
        if made.type == "inner":
            yield "A message without a partner makes no row, as in Spark's inner join; messages are kept for `retention`."
        else:
            yield "A message without a partner makes a row once none can come any more. If one side is silent, that is after `idle`; Spark waits for it."
        if made.conditions:
            yield f"`{made.view}` also has pairs between equal times and the query's range, which the SELECT above leaves out."
    what = "of `on`" if isinstance(made, Pairs) else "of the key"
    groups = " Spark has a group of null keys."
    if isinstance(made, Pairs):
        groups = "" if made.type == "inner" else f" Spark's {made.type} join has it as a row without a partner."
    if isinstance(made, Pairs) or any(one.key and one.key != [EVERYTHING] for one in made.inputs):
        yield f"A row without one of the columns {what}, or without a time, is in no result, but in `dead_letters`.{groups}"
    if any(one.unique_for for one in made.inputs):
        yield "A duplicate has the same key, id and time as an earlier event; for dropDuplicatesWithinWatermark the id is enough."
    yield "A value at which Spark would fail, as a text that is no number, is null (docs/expressions.md)."


def _of_groups(made: Groups) -> Iterator[str]:
    if isinstance(made.span, Gap):
        gap = "a gap" if made.span.by is not None else spoken_duration(made.span.gap_us)
        yield f"Two events exactly {gap} apart are of one session here, and of two in Spark, whose gap is exclusive."
    texts = " ".join(made.aggregates.values())
    yield from (note for pattern, note in _OF_FUNCTIONS.items() if re.search(pattern, texts, re.IGNORECASE))
    if made.conditions:
        yield f"`{made.view}` also has the groups that HAVING leaves out; the SELECT above leaves them out."
    if made.input.key == [EVERYTHING]:
        yield "The query has no key. A session needs one: all events have the same, so that one shard does the work."
