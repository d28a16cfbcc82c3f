"""The first rows of each source, tried by the pipeline's own operator in this process: how many would be dead letters, and why."""

import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.config.load import Config
from sessionlake.config.problems import Problem, problems_of
from sessionlake.engine.operator import Operator
from sessionlake.errors import SessionlakeError, first_line
from sessionlake.local.shards import LocalShards
from sessionlake.local.stream import LocalBatch, LocalStream
from sessionlake.preflight.checks import last_known_batch
from sessionlake.preflight.laws import KEYS, law_problems
from sessionlake.preflight.lookups import held_lookups
from sessionlake.preflight.sources import Sampled, UnsampledError, UnseenError
from sessionlake.sources.base import Source
from sessionlake.sources.decoding.decoded import NO_ROW, WRONG_TYPE, shorten
from sessionlake.sources.decoding.rows import Rows
from sessionlake.stream.causes import causes_of, ordered
from sessionlake.stream.ingest import DEAD, EVENTS, FUTURE, EventSpec, judge
from sessionlake.stream.kind import Kind
from sessionlake.stream.kinds import kind_of
from sessionlake.stream.named_columns import aggregate_reads, users_of
from sessionlake.stream.pinned import Pinned
from sessionlake.stream.pipeline import operator_of
from sessionlake.stream.unique.events import taken
from sessionlake.stream.watermark import NO_WATERMARK
from sessionlake.warehouse.schemas import SIDE, count_of

ROWS = 1000
SECONDS = 10.0
"""A source whose rows are not there by then is not looked at."""
_MOST_BYTES, _SHOWN = 32 << 20, 160


@dataclass
class Tried:
    """The outcome of the first rows of a pipeline's sources."""

    problems: list[Problem] = field(default_factory=list)
    """Inputs without a row that would be an event, and errors that would end a run."""
    warnings: list[Problem] = field(default_factory=list)
    """Inputs with more dead letters than events, or without a row that passes `where`."""
    told: dict[str, str] = field(default_factory=dict)
    """A line for each input: its rows' outcome, or why none was examined."""


@dataclass(frozen=True)
class _Input:
    """The outcome of an input's rows."""

    side: Config
    rows: int
    dead: int
    filtered: int
    duplicates: int
    causes: Mapping[str, int]
    example: tuple[str, str]
    """The reason of a row with the commonest cause, and its place."""

    @property
    def events(self) -> int:
        """The rows that are events."""
        return self.rows - self.dead - self.filtered - self.duplicates


def try_rows(config: Config, sources: Mapping[str, Source]) -> Tried:
    """Try the first rows of each of `sources_without_spark` by the decoder, the contract and the operator of a run, in stores that are thrown away.

    Neither tables nor sinks are touched, and no watermark of earlier batches counts. It ends after ten seconds, whatever a
    source does. What users' classes print goes to standard error.
    """
    tried: list[Tried] = []
    thread = threading.Thread(
        target=lambda: tried.append(_tried(config, sources)), name="sessionlake-sample", daemon=True
    )
    # Not in the thread, which may go on when the command ends.
    with redirect_stdout(sys.stderr):
        thread.start()
        thread.join(SECONDS)
    return tried[0] if tried else Tried(told={"sample": f"none: the source gave no rows within {SECONDS:.0f} seconds"})


def _tried(config: Config, sources: Mapping[str, Source]) -> Tried:
    tried, events = Tried(), None
    try:
        events = _try(config, sources, tried)
    except SessionlakeError as error:
        tried.problems += problems_of(error)
    except UnsampledError as error:
        tried.told["sample"] = f"none: {error}"
    except UnseenError:
        tried.told["sample"] = "none: only Spark can read the source"
    except Exception as error:  # noqa: BLE001 (a look at rows must not end a check)
        tried.told["sample"] = f"none: {type(error).__name__}: {first_line(error)}"
    with suppress(Exception):  # as above
        tried.warnings += law_problems(config, sources, events)
    return tried


def _try(config: Config, sources: Mapping[str, Source], tried: Tried) -> pa.Table | None:
    """Try the rows, and return the events among them, without the sides of a join."""
    for source in sources.values():
        cast("Sampled", source).look()
    kind = kind_of(config).make(config, held_lookups(sources), Pinned.of(last_known_batch(config)))
    _require_looked_up(kind)
    given: list[tuple[str, Rows]] = []
    for name, spec in kind.inputs.items():
        first = [*_first(cast("Sampled", sources[name]).first_rows(spec.decoder, ROWS))]
        given += [(name, rows) for rows in first]
        if not first:
            tried.told[_told_as(config, name)] = "none: the source has no rows yet"
    if not given:
        return None
    batch = _run(kind, given)
    for name in dict.fromkeys(name for name, _ in given):
        _tell(config, name, _outcome(config, name, given, batch), tried)
    return _events(kind.inputs[EVENTS], [rows for _, rows in given]) if EVENTS in kind.inputs else None


def _events(spec: EventSpec, given: list[Rows]) -> pa.Table:
    found = []
    for rows in given:
        looked_up, _ = spec.lookups.added(rows, {})
        judged = judge(spec, looked_up, time.time_ns() // 1000, NO_WATERMARK)
        events = judged.events(judged.good)
        found.append(pa.table({**events.columns, KEYS: events.keys}))
    return pa.concat_tables(found)


def _require_looked_up(kind: Kind) -> None:
    """Raise UnsampledError if a looked-up column of an unread table decides whether a row is an event."""
    for spec in kind.inputs.values():
        columns = spec.columns
        decisive = {columns.key, *columns.further_keys, *columns.id_columns, *columns.asked, *columns.also}
        for lookup in spec.lookups.each:
            if lookup.held is None and decisive & {*lookup.columns}:
                raise UnsampledError(
                    f"the table of lookup {lookup.name!r} is not read here, and decides which rows are events"
                )


def _first(parts: Iterator[Rows]) -> Iterator[Rows]:
    """Yield the first ROWS rows of parts, fewer if they have many bytes; the parts are not asked for more."""
    left, size = ROWS, 0
    for rows in parts:
        count = rows.table.num_rows
        if count:
            yield rows if count <= left else taken(rows, np.arange(left))
        left, size = left - count, size + rows.table.nbytes
        if left <= 0 or size > _MOST_BYTES:
            return


def _run(kind: Kind, given: list[tuple[str, Rows]]) -> LocalBatch:
    operator = operator_of(kind, ())
    root = Path(tempfile.mkdtemp(prefix="sessionlake-"))

    def opened(of: Operator[Any], shard: int) -> Any:
        return of.open_store(root / str(shard))

    stream: LocalStream[Any] = LocalStream(LocalShards(1, opened))
    try:
        return stream.run(operator, time.time_ns() // 1000, given)
    finally:
        stream.close()
        shutil.rmtree(root, ignore_errors=True)


def _outcome(config: Config, name: str, given: list[tuple[str, Rows]], batch: LocalBatch) -> _Input:
    several = len(config.inputs) > 1
    letters = pa.concat_tables(
        [_of_input(table, name) for table in batch.tables(DEAD) if not several or SIDE in table.column_names]
        or [pa.table({"reason": pa.array([], pa.string()), "source": pa.array([], pa.string())})]
    )
    causes = ordered(Counter(causes_of(letters["reason"].combine_chunks()).to_pylist()))
    example = ("", "")
    if causes:
        at = pc.index(causes_of(letters["reason"].combine_chunks()), next(iter(causes))).as_py()
        example = (letters["reason"][at].as_py(), letters["source"][at].as_py() or "")

    def count(of: str) -> int:
        return batch.stats.get(count_of(of, name) if several else of, 0)

    rows = sum(part.table.num_rows + part.ignored for input_, part in given if input_ == name)
    side = config.inputs[name]
    return _Input(side, rows, letters.num_rows, count("filtered"), count("duplicate"), causes, example)


def _of_input(table: pa.Table, name: str) -> pa.Table:
    rows = table.filter(pc.equal(table["kind"], "event"))
    if SIDE in table.column_names:
        rows = rows.filter(pc.equal(rows[SIDE], name))
    return rows.select(["reason", "source"])


def _tell(config: Config, name: str, found: _Input, tried: Tried) -> None:
    tried.told[_told_as(config, name)] = _summary(found)
    if found.dead:
        cause = next(iter(found.causes))
        key, remedy = _remedy(found.side, cause, found.example[0])
        most = f", {found.causes[cause]:,} of them" if len(found.causes) > 1 else ""
        reason = f"{_of(found)} would be dead letters{most}: {_example(found)}; {remedy}"
        if not found.events:
            tried.problems.append(Problem(key, reason))
        elif found.dead > found.events:
            tried.warnings.append(Problem(key, reason))
    elif found.filtered == found.rows:
        event = found.side.event
        at = f"{found.side.event_at}.{'where' if event.where is not None else 'explode'}"
        tried.warnings.append(Problem(at, f"none of the first {found.rows:,} rows passes it; compare it with the rows"))


def _of(found: _Input) -> str:
    filtered = f" ({found.filtered:,} are filtered)" if found.filtered else ""
    return f"{found.dead:,} of the first {_many(found.rows, 'row')} of {found.side.source.place!r}{filtered}"


def _summary(found: _Input) -> str:
    parts = [_many(found.events, "event")]
    parts += [f"{found.filtered:,} filtered"] if found.filtered else []
    parts += [_many(found.duplicates, "duplicate")] if found.duplicates else []
    parts += [f"{_many(found.dead, 'dead letter')} ({_example(found)})"] if found.dead else []
    return f"of the first {_many(found.rows, 'row')} of {found.side.source.place}: {', '.join(parts)}"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _example(found: _Input) -> str:
    """Return a row's reason and place: the path below the source's, so that a table has none."""
    reason, place = found.example
    source = found.side.source
    below = "" if place == source.place else place.removeprefix(source.path).lstrip("/")
    return f"{shorten(reason, _SHOWN)}{f' ({below})' if below else ''}"


def _told_as(config: Config, name: str) -> str:
    return f"sample {name}" if len(config.inputs) > 1 else "sample"


def _remedy(side: Config, cause: str, reason: str) -> tuple[str, str]:
    """Return the config's key nearest to a dead letter's cause, and the remedy."""
    event, source = side.event_at, side.source
    if cause.startswith(WRONG_TYPE):
        return _of_wrong_type(side, cause.removeprefix(WRONG_TYPE).rsplit(" is not a ", 1)[0], reason)
    if cause.startswith(NO_ROW):
        return f"{side.lookup_at}.{cause.removeprefix(NO_ROW)}.on", "compare its columns with the table's"
    if cause.startswith("aggregate "):
        return f"aggregates.{cause.split()[1]}", "correct the class"
    if cause.startswith("class "):
        return side.operator, "correct the class"
    remedies = {
        "unparsable time": (f"{event}.time", "name a column of times, or write its time_unit"),
        "null time": (f"{event}.time", "name a column that has a time in each row"),
        "null key": (f"{event}.key", "name a column that has a value in each row"),
        "empty key": (f"{event}.key", "name a column that has a text in each row"),
        "key too long": (f"{event}.max_key_bytes", "raise it, or name another key"),
        "line too long": (f"{source.AT}.max_line_bytes", "raise it, or write shorter lines"),
        FUTURE: (f"{event}.max_future_skew", "raise it, or correct the time or its time_unit"),
    }
    return remedies.get(cause, (source.place_at, "correct the rows, or the format"))


def _of_wrong_type(side: Config, column: str, reason: str) -> tuple[str, str]:
    """Return the reason of a value with a wrong type."""
    named = next((key for key, _ in users_of(side, column)), None)
    classes = (name for name, text in side.aggregates.items() if aggregate_reads(side, name, text, column))
    if named is None and (reads_all := next(classes, None)) is not None:
        return f"aggregates.{reads_all}", "a class without `columns` reads all columns, so name those that it reads"
    key, source = named or side.source.place_at, side.source
    if reason.removeprefix(f"{WRONG_TYPE}{column} = ")[:1] in ("{", "["):
        return key, "a config reads whole columns of plain values, so write what it needs as a column of its own"
    return key, f"name another column{'' if source.entry.is_table else f', or correct its type in [{source.AT}.types]'}"
