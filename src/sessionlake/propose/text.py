"""The proposed config as TOML, each setting with the reason for its value."""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from sessionlake.columnar.column_types import type_name
from sessionlake.config.file import PROJECT_FILE, parse_toml
from sessionlake.errors import ConfigError
from sessionlake.propose.choose import Choice
from sessionlake.propose.measure import FEW, LATE_ENOUGH, MOST_AHEAD, Lateness, Measured, Seen
from sessionlake.propose.sample import Sample
from sessionlake.propose.windows import FULL_ENOUGH, MeasuredTable, MeasuredWindows


def config_text(
    sample: Sample,
    choice: Choice,
    measured: Measured | MeasuredWindows | MeasuredTable,
    *,
    name: str | None,
    directory: Path,
) -> str:
    """Return a config that loads from a file in `directory`: paths below it are written relative to it."""
    if isinstance(measured, MeasuredTable):
        computed, columns, skew = [_table(sample, measured)], measured.columns, "a minute"
    else:
        first = _session(sample, measured) if isinstance(measured, Measured) else _window(sample, measured)
        computed, skew = [first, _aggregates(choice)], "the grace"
        columns = [*choice.columns]
    blocks = (
        _head(sample, measured.seen),
        pipeline(name or sample.name, directory),
        source(sample, [choice.key, choice.time, choice.id, *columns], directory),
        _event(sample, choice, measured.seen, skew),
        *computed,
    )
    return joined(blocks)


def joined(blocks: Iterable[Iterable[str]]) -> str:
    r"""Return blocks of lines as one TOML, with an empty line between two blocks.

    A comment may hold texts of others, such as names of fields: characters that are not printed are blanks in it. ConfigError if a
    comment changes the content nevertheless, or if another line has a break.

    >>> joined([["# of a\n[sink.postgres]", "[event]"], ["key = 'a'"]])
    "# of a [sink.postgres]\n[event]\n\nkey = 'a'\n"
    """
    lines = [line for block in blocks for line in ("", *block)][1:]
    written = [_printable(line) if line.startswith("#") else line for line in lines]
    text = "".join(f"{line}\n" for line in written)
    meant = "".join(f"{line}\n" for line in written if not line.startswith("#"))
    if text.count("\n") != len(written) or "\r" in text or parse_toml(text, "init") != parse_toml(meant, "init"):
        raise ConfigError(
            "SAMPLE: a name in it would write settings into the config; rename columns that have line breaks"
        )
    return text


def _printable(line: str) -> str:
    """Return a line as a comment of TOML may have it."""
    return "".join(character if character == "\t" or character.isprintable() else " " for character in line)


def _head(sample: Sample, measured: Seen) -> Iterator[str]:
    part = "all of it" if sample.whole else "its beginning only: later rows may differ"
    yield f"# Proposed by `sessionlake init` from {measured.events:,} events ({part})."
    if measured.events:
        first, last = (
            f"{datetime.fromtimestamp(t / 1e6, UTC):%Y-%m-%d %H:%M:%S}" for t in (measured.first_us, measured.last_us)
        )
        yield f"# They are of {measured.keys:,} keys, from {first} to {last} UTC."
    if measured.refused:
        yield f"# {measured.refused:,} rows have no key, no time, or can't be read; they would become dead letters."
    yield "# Old data first: `sessionlake bootstrap` takes all that is there in one pass, in which nothing is late."


def pipeline(name: str, directory: Path) -> Iterator[str]:
    """Yield the lines of [pipeline]; in a project without the project's settings or their defaults."""
    yield "[pipeline]"
    yield f"name = {quoted(name)}"
    if (directory / PROJECT_FILE).is_file():
        yield f"# Its tables lie in a folder of its name in the warehouse of {PROJECT_FILE}. Shards and trigger are those of {PROJECT_FILE}, too,"
        yield "# or their defaults: `sessionlake show` prints all settings of this file with their places."
        return
    yield 'warehouse = "warehouse"            # a path, or the URI of an object store; relative to this file'
    yield "shards = 4                         # local stores that keys are spread over; one or two a core"
    yield 'trigger = "10 seconds"             # how often a batch is made'


def source(
    sample: Sample,
    used: Iterable[str | None],
    directory: Path,
    *,
    at: str = "source",
    types: Mapping[str, pa.DataType] | None = None,
) -> Iterator[str]:
    """Yield a source section's lines, with the types of used columns: the sample's, or others."""
    yield f"[{at}]"
    for key, value in sample.source.items():
        path = Path(str(value))
        below = key == "path" and path.is_relative_to(directory) and path != directory
        yield f"{key} = {toml_value(str(path.relative_to(directory)) if below else value)}"
    if sample.source["kind"] == "files":
        yield "max_files_per_batch = 16           # all files below `path`, by time of modification; they must appear whole"
    if sample.source.get("format") in ("json", "csv", "text"):
        yield ""
        yield f"[{at}.types]{' ' * max(1, 27 - len(at))}# of the columns in use, as the sample has them"
        for column in dict.fromkeys(column for column in used if column):
            yield f"{quoted(column)} = {quoted(type_name((types or sample.types)[column]))}"


def _event(sample: Sample, choice: Choice, measured: Seen, skew: str) -> Iterator[str]:
    yield "[event]"
    yield f"key = {quoted(choice.key)}"
    yield f"time = {quoted(choice.time)}"
    if sample.preset is not None and choice.time_format:
        yield f"# time_format = {quoted(choice.time_format)} follows from the preset."
    if choice.time_unit:
        yield f"time_unit = {quoted(choice.time_unit):<12}           # of the numbers, since 1970; judged by their size"
    if choice.id and choice.repeated:
        yield f"# {choice.repeated:.2%} of the rows have an id that came before. They are counted again, unless event.unique_for is set (docs/unique.md)."
    if choice.id:
        alone = "" if choice.repeated else "no two rows of the sample have the same; "
        yield f"id = {quoted(choice.id):<18}            # {alone}breaks ties of time"
    if measured.ahead:
        yield f"# {measured.ahead:,} events of the sample are further ahead of the clock than this. They become dead letters."
        yield f"max_future_skew = {quoted(MOST_AHEAD)}"
    else:
        yield f"# How far ahead of the clock an event may be: {skew}, unless set. Those beyond are dead letters."
        yield f"# max_future_skew = {quoted(MOST_AHEAD)}"


def gap_reason(measured: Measured) -> str:
    """Return why this gap is proposed."""
    seen = measured.seen
    if sum(measured.sessions.values()) and seen.events - seen.keys >= FEW:
        return "the fewest distances between events of a key are near it. A longer gap would join hardly more"
    return "the usual one, since the sample has too few events of one key"


def size_reason(measured: MeasuredWindows) -> str:
    """Return why this size is proposed."""
    if measured.windows and measured.seen.events >= FULL_ENOUGH * measured.windows[measured.size]:
        return f"the least with {FULL_ENOUGH} events in a window, on average"
    return f"the usual one, since no size has {FULL_ENOUGH} events in a window, on average"


def _session(sample: Sample, measured: Measured) -> Iterator[str]:
    seen = measured.seen
    yield "# Windows in place of sessions: `sessionlake init --window tumbling`, hopping or sliding; the latest row of each key: --table."
    yield "[session]"
    yield "# gap: the time without an event that ends a key's session. Of the sample's events would become"
    for text, sessions in measured.sessions.items():
        yield f"#   {text:<12} {sessions:>12,} sessions, {seen.events / sessions:,.1f} events each"
    yield f"# Proposed: {gap_reason(measured)}."
    yield f"gap = {quoted(measured.gap)}"
    yield ""
    yield "# grace: how long after its end + gap a session still takes events in. Late ones are kept in `late_events`, and"
    yield from grace(sample, seen, measured.lateness, "gap")
    yield ""
    retention = measured.lateness.retention
    yield f"retention = {quoted(retention):<18}     # how long a session stays in the stores; at least gap + grace"
    yield 'beyond_retention = "dead_letter"   # for older events: dead_letter | drop | emit'
    yield 'emit = "update"                    # a row with each batch that changes a session; "final": one when it is closed'


def _window(sample: Sample, measured: MeasuredWindows) -> Iterator[str]:
    seen = measured.seen
    yield "[window]"
    yield f"kind = {quoted(measured.kind):<28}# tumbling | hopping | sliding (docs/windows.md says when to choose which)"
    yield "# size: of the sample's events would become, side by side,"
    for text, windows in measured.windows.items():
        yield f"#   {text:<12} {windows:>12,} windows, {seen.events / windows:,.1f} events each"
    yield f"# Proposed: {size_reason(measured)}."
    yield f"size = {quoted(measured.size)}"
    if measured.kind == "hopping":
        yield f"advance = {quoted(measured.advance):<25}# from one window's start to the next one's"
    yield ""
    yield "# grace: how long after its end a window still takes events in. Late ones are kept in `late_events`, and"
    yield from grace(sample, seen, measured.lateness, "size")
    yield ""
    yield f"retention = {quoted(measured.lateness.retention):<23}# how old events may be; at least size and grace"
    yield 'beyond_retention = "dead_letter"   # for older events: dead_letter | drop'
    yield ""
    yield "[emit]"
    yield 'early = "off"                      # changes of windows that are not full: off | batch | a period, as in "1 minute"'
    yield 'full = "end"                       # a window is sent as the watermark passes its end; "close": when its grace is over'
    yield 'late = "10 seconds"                # changes of full windows: batch | a period | close'


def _table(sample: Sample, measured: MeasuredTable) -> Iterator[str]:
    seen = measured.seen
    yield f"# The latest row of each key (docs/keyed.md): of the sample's {seen.events:,} updates would remain {seen.keys:,}."
    yield "[table]"
    if measured.columns:
        yield "columns = [                        # of a row; a column that an update lacks is null"
        yield from (f"    {quoted(name)}," for name in measured.columns)
        yield "]"
    else:
        yield "# columns: those of [event] alone."
    if measured.left_out:
        yield f"# Left out: {', '.join(map(quoted, measured.left_out))}, called as a table's own columns or as others are, or of no plain type."
    yield 'order = "time"                     # the update with the greatest time holds; "offset": the last one of a topic'
    yield "# delete_when = \"status = 'gone'\"   # SQL over an update, true of those that delete their key"
    yield ""
    yield "# retention: how long deletions are remembered. If there are any, no update may be later than that. In the sample,"
    yield f"# read in its order, {sample.cut}, {seen.backward:.2%} come after a newer one of an earlier batch. Older would be than"
    for text, share in measured.lateness.late.items():
        yield f"#   {text:<12} {share:>8.3%}"
    yield from _proposed(measured.lateness, "remembers more deletions")
    yield f"retention = {quoted(measured.lateness.grace)}"
    yield 'beyond_retention = "dead_letter"   # for older updates: dead_letter | drop'


def grace(sample: Sample, seen: Seen, measured: Lateness, given: str) -> Iterator[str]:
    """Yield a grace's lines, with the share of late events under each examined grace."""
    yield f"# `reprocess-late` brings them in. Of the sample, read in its order, {sample.cut}, {seen.backward:.2%} of the events"
    yield f"# come after a newer one of an earlier batch. With the {given} above would be late, or beyond retention:"
    for text, share in measured.late.items():
        yield f"#   {text:<12} {share:>8.3%}"
    yield from _proposed(measured, "keeps more open")
    yield f"grace = {quoted(measured.grace)}"


def _proposed(measured: Lateness, cost: str) -> Iterator[str]:
    least = measured.late.get(measured.grace, 0.0)
    yield (
        f"# Proposed: the shortest that leaves at most {LATE_ENOUGH:.1%}."
        if least <= LATE_ENOUGH
        else f"# Proposed: a day, since none leaves at most {LATE_ENOUGH:.1%}. A longer one {cost}."
    )


def _aggregates(choice: Choice) -> Iterator[str]:
    yield "# Of the events of each. Also: count, min, max, avg, first, last, collect, your own classes (docs/aggregates.md)."
    yield "[aggregates]"
    for name, function in choice.aggregates.items():
        yield f"{name} = {quoted(function)}"
    for name, function in choice.others.items():
        yield f"# {name} = {quoted(function)}"
    if choice.left_out:
        yield f"# Left out, because they are lists: {', '.join(choice.left_out)}. An expression reads one, for example size({choice.left_out[0]}) (docs/expressions.md);"
        yield f"# event.explode = {quoted(choice.left_out[0])} makes an event of each element (docs/sources.md)."
    for column, nearly in choice.nearly_numbers.items():
        name, function = nearly.aggregate
        yield f"# {column} is text: {nearly.others:.2%} of its values are no numbers, for example {quoted(nearly.example[:40])}."
        yield f'# With {column} = "double" in [source.types], rows whose value is no number (in JSON: quoted text) become dead'
        yield "# letters, and this can be computed:"
        yield f"# {name} = {quoted(function)}"


def toml_value(value: str | bool | list[str]) -> str:  # noqa: FBT001
    """Return a text, a boolean or a list of texts as TOML has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return quoted(value) if isinstance(value, str) else f"[{', '.join(map(quoted, value))}]"


def quoted(text: str) -> str:
    """Return a TOML string: JSON's, except for DEL and for characters beyond 16 bits, which JSON writes as two escapes."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
