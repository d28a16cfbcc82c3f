"""A query's config as TOML, with the query, the same columns of the live view, and each setting's reason in comments."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from sessionlake.config.durations import parse_duration, spoken_duration
from sessionlake.operators.joins.spec import SLIDING, least_retention
from sessionlake.propose.measure import LATE_ENOUGH, MOST_AHEAD, Seen
from sessionlake.propose.query.inputs import Input
from sessionlake.propose.query.joined import Pairs
from sessionlake.propose.query.latest import Latest
from sessionlake.propose.query.live import select_over
from sessionlake.propose.query.measured import Patience, groups_patience, join_grace, measured_input, table_patience
from sessionlake.propose.query.notes import Made, better, differs
from sessionlake.propose.query.results import Groups
from sessionlake.propose.query.spans import Gap
from sessionlake.propose.query.words import Query
from sessionlake.propose.text import grace, joined, pipeline, quoted, source

_LEAST_KEPT = parse_duration("1 day")
_KEPT_FOR_EVER = "30 days"


def query_toml(query: Query, made: Made, *, name: str, directory: Path, output: str) -> str:
    """Return a config that loads from a file in `directory`; `output` is the file's name in comments."""
    if isinstance(made, Pairs):
        seen = [measured_input(read)[1] for read in made.inputs]
        blocks = [*_join(made, directory, seen)]
    else:
        patience = groups_patience(made) if isinstance(made, Groups) else table_patience(made.input)
        seen = [patience.seen]
        blocks = [_source(made.input, directory, "source"), _event(made.input, patience.seen, "event")]
        blocks += [_computed(made.input, "event")] if made.input.fields.computed else []
        blocks += _operator(made, patience)
    whole = [_head(query, made, seen, output), pipeline(name, directory), *blocks]
    return joined(whole)


def _head(query: Query, made: Made, seen: Iterable[Seen], output: str) -> Iterator[str]:
    yield f"# Made by `sessionlake init --sql` of this query ({query.file}):"
    yield from (f"#   {line}".rstrip() for line in query.text.strip().splitlines())
    yield "#"
    yield f'# The query\'s columns, under its names, of the live view (`sessionlake sql {output} "..."`):'
    yield from (f"#   {line}" for line in select_over(made.view, made.shown, made.conditions))
    yield "#"
    yield "# What gets better:"
    yield from (f"# - {line}" for line in better(made))
    yield "# What differs:"
    yield from (f"# - {line}" for line in differs(made))
    yield "#"
    for one, read in zip(seen, made.inputs, strict=True):
        yield from _sampled(one, read)
    yield "# Old data first: `sessionlake bootstrap` takes all that is there in one pass, in which nothing is late."


def _sampled(seen: Seen, read: Input) -> Iterator[str]:
    chosen = "that WHERE lets pass " if read.where else ""
    part = "" if read.sample.whole else ", of its beginning only"
    yield f"# The sample {quoted(read.sample.name)} has {seen.events:,} events {chosen}({read.sample.rows:,} rows{part})."
    if seen.events:
        first, last = (
            f"{datetime.fromtimestamp(t / 1e6, UTC):%Y-%m-%d %H:%M:%S}" for t in (seen.first_us, seen.last_us)
        )
        keys = f"of {seen.keys:,} keys, " if read.key else ""
        yield f"# They are {keys}from {first} to {last} UTC."
    if seen.refused:
        yield f"# {seen.refused:,} rows have no key or no time; they would become dead letters."


def _source(read: Input, directory: Path, at: str) -> Iterator[str]:
    used = [name for name in read.sample.types if name in read.fields.read]
    yield from source(read.sample, used, directory, at=at, types=read.fields.types)


def _event(read: Input, seen: Seen, at: str) -> Iterator[str]:
    yield f"[{at}]"
    if read.key and at == "event":
        yield f"key = {_one_or_more(read.key)}"
    yield f"time = {quoted(read.time)}"
    if read.time_unit is not None:
        yield f"time_unit = {quoted(read.time_unit)}                   # of the numbers, since 1970"
    if read.id:
        yield f"id = {_one_or_more(read.id)}"
    if read.unique_for is not None:
        yield f"unique_for = {quoted(read.unique_for):<22}# another event of the same key, id and time is a duplicate, and changes nothing"
    if read.where is not None:
        yield f"where = {quoted(read.where)}"
    if seen.ahead:
        yield f"# {seen.ahead:,} events of the sample are further ahead of the clock than this. They become dead letters."
        yield f"max_future_skew = {quoted(MOST_AHEAD)}"


def _computed(read: Input, at: str) -> Iterator[str]:
    yield f"[{at}.columns]"
    for name, text in read.fields.computed.items():
        yield f"{name} = {quoted(text)}"


def _operator(made: Groups | Latest, patience: Patience) -> list[Iterator[str]]:
    if isinstance(made, Latest):
        return [_table(made, patience)]
    first = _session(made, made.span, patience) if isinstance(made.span, Gap) else _window(made, patience)
    return [first, *([_aggregates(made.aggregates)] if made.aggregates else [])]


def _session(made: Groups, span: Gap, patience: Patience) -> Iterator[str]:
    yield "[session]"
    yield f"gap = {quoted(spoken_duration(span.gap_us)):<29}# events exactly this far apart join; in Spark they don't"
    if span.by is not None:
        yield f"gap_by = {quoted(span.by)}"
        yield f"max_gap = {quoted(spoken_duration(span.longest_us)):<25}# the longest of gap_by"
    yield ""
    yield "# grace: how long after its end + gap a session still takes events in, in Spark the delay of the watermark. Late ones"
    yield "# are kept in `late_events`."
    yield from _grace(made.input, patience, "gap")
    yield ""
    yield f"retention = {quoted(patience.retention):<23}# how long a session stays in the stores; at least gap + grace"
    yield 'beyond_retention = "dead_letter"   # for older events: dead_letter | drop | emit'
    yield 'emit = "update"                    # the live view has open sessions, too, as in update mode; "final": closed ones only, as in append mode'


def _window(made: Groups, patience: Patience) -> Iterator[str]:
    span = made.span
    assert not isinstance(span, Gap)  # noqa: S101 (the caller knows)
    yield "[window]"
    yield f"kind = {quoted('tumbling' if span.advance_us is None else 'hopping')}"
    yield f"size = {quoted(spoken_duration(span.size_us))}"
    if span.advance_us is not None:
        yield f"advance = {quoted(spoken_duration(span.advance_us)):<25}# from one window's start to the next one's: Spark's slide"
    if span.offset_us:
        yield f"offset = {quoted(spoken_duration(span.offset_us)):<26}# the grid begins at the epoch + this: Spark's start time"
    yield ""
    yield "# grace: how long after its end a window still takes events in, in Spark the delay of the watermark. Late ones are kept in"
    yield "# `late_events`."
    yield from _grace(made.input, patience, "size")
    yield ""
    yield f"retention = {quoted(patience.retention):<23}# how old events may be; at least size and grace"
    yield 'beyond_retention = "dead_letter"   # for older events: dead_letter | drop'
    yield ""
    yield "[emit]                             # each change with its batch, as in update mode; append mode: off, close, close"
    yield 'early = "batch"'
    yield 'full = "end"'
    yield 'late = "batch"'


def _grace(read: Input, patience: Patience, given: str) -> Iterator[str]:
    if not patience.given:
        yield "# The query has no `-- watermark` comment, so that it is proposed from the sample."
        yield from grace(read.sample, patience.seen, patience.lateness, given)
        return
    for text, share in patience.lateness.late.items():
        yield f"# Of the sample, read in its order, {read.sample.cut}, would be late {share:.3%}."
        if share > LATE_ENOUGH:
            yield f"# That is more than {LATE_ENOUGH:.1%}: `sessionlake init` without the comment proposes a longer one than {text}, if it helps."
    yield f"grace = {quoted(patience.lateness.grace):<27}# the query's watermark"


def _aggregates(texts: Mapping[str, str]) -> Iterator[str]:
    yield "[aggregates]"
    for name, text in texts.items():
        yield f"{name} = {quoted(text)}"


def _table(made: Latest, patience: Patience) -> Iterator[str]:
    yield "[table]"
    yield f"columns = {_names(made.columns)}" if made.columns else "# columns: those of [event] alone."
    yield 'order = "time"                     # the update with the greatest time holds'
    if made.delete_when is not None:
        yield f"delete_when = {quoted(made.delete_when)}"
    yield ""
    yield "# retention: how long deletions are remembered. If there are any, no update may be later than that."
    if patience.given:
        yield f"retention = {quoted(patience.lateness.grace):<23}# the query's watermark"
    else:
        yield f"retention = {quoted(patience.lateness.grace):<23}# proposed from the order of the sample, without `-- watermark` in the query"
    yield 'beyond_retention = "dead_letter"   # for older updates: dead_letter | drop'


def _join(made: Pairs, directory: Path, seen: list[Seen]) -> Iterator[Iterator[str]]:
    yield _pairs(made)
    for at, side, one in zip(("left", "right"), made.sides, seen, strict=True):
        yield _side(at, side.name, side.size_us, side.columns)
        yield _source(side.input, directory, f"join.{at}.source")
        yield _event(side.input, one, f"join.{at}.event")
        if side.input.fields.computed:
            yield _computed(side.input, f"join.{at}.event")


def _pairs(made: Pairs) -> Iterator[str]:
    waits = join_grace(made.inputs)
    needed = least_retention(SLIDING, (made.left.size_us, made.right.size_us), 0, 0, 0) + parse_duration(waits)
    least = max([needed, _LEAST_KEPT, *(parse_duration(one.unique_for) for one in made.inputs if one.unique_for)])
    for_ever = any(side.size_us is None for side in made.sides)
    kept = max(least, parse_duration(_KEPT_FOR_EVER)) if for_ever else least
    yield "[join]"
    yield f"on = {_names(made.on) if made.on else '[]':<30}# equal columns"
    yield 'kind = "sliding"'
    if made.type != "inner":
        yield f"type = {quoted(made.type):<28}# a message without a partner makes a row once none can come any more"
        yield 'idle = "10 minutes"                # a side that is silent for longer counts as one that brings no partner'
    yield f"grace = {quoted(waits):<27}# how long after its last possible partner a message may come: the longest watermark of the query"
    yield f"retention = {quoted(spoken_duration(kept)):<23}# how long messages are kept; at least both sizes and the grace"
    yield 'beyond_retention = "dead_letter"   # dead_letter | drop'


def _side(at: str, name: str, size_us: int | None, columns: list[str]) -> Iterator[str]:
    yield f"[join.{at}]"
    yield f"name = {quoted(name):<28}# the prefix of its columns in the live view"
    size = "unbounded" if size_us is None else spoken_duration(size_us)
    yield f"size = {quoted(size):<28}# how long its messages wait for a later one of the other side"
    yield f"columns = {_names(columns) if columns else '[]'}"


def _names(names: Iterable[str]) -> str:
    return f"[{', '.join(map(quoted, names))}]"


def _one_or_more(names: Sequence[str]) -> str:
    return quoted(names[0]) if len(names) == 1 else _names(names)
