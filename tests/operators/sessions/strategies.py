"""Streams for the property tests, and the two ways to run one: the sessionizer under test beside the reference model.

Rows are drafted with symbolic times and sessions ("one gap before the 2nd session", "the 1st session at a wrong
revision") and resolved when their batch is due, against the model's state then. So Hypothesis shrinks drafts, and
boundaries are hit often.

SESSIONLAKE_SUBJECT=tests.oracle.model:ReferenceModel runs the tests against a model class instead of the harness: to
test the tests.
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracle.model import COUNTS, ReferenceModel
from tests.support import examples

Row = dict[str, Any]

SLOW_FACTOR = 10
"""Examples of a slow property test to one of the same test in the default run. Each run draws new ones, so that runs add up;
by this factor all of them together take about six minutes of one core."""
SEGMENT_US = 60_000_000
LIMITS = ("constant", "gap_by", "max_length", "both", "before")
"""The configurations in which each machine runs (docs/rules.md, rules 160, 161 and 244)."""
BASIC = {"total": "sum(v)", "least": "min(v)", "most": "max(v)"}
ALL = {
    **BASIC,
    "n": "count()",
    "mean": "avg(v)",
    "earliest": "first(v)",
    "latest": "last(v)",
    "kinds": "count_distinct(v)",
    "middle": "median(v)",
    "upper": "quantile(v, 0.9)",
    "some": "any_value(v)",
    "usual": "mode(v)",
    "dearest": "max_by(id, v)",
    "cheapest": "min_by(id, v)",
}


def ci(number: int, **strategies: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a property test of the default run out of a check."""
    return lambda check: examples(number)(given(**strategies)(check))


def slow(number: int, **strategies: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make the same test with SLOW_FACTOR times the examples, marked slow."""

    def decorate(check: Callable[..., None]) -> Callable[..., None]:
        test = examples(number * SLOW_FACTOR)(given(**strategies)(check))
        return pytest.mark.slow(test)

    return decorate


# --- configurations ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Config:
    gap: int = 10
    grace: int = 0
    retention: int = 100
    policy: str = "dead_letter"
    shards: int = 1
    aggregates: dict[str, str] = field(default_factory=lambda: dict(BASIC))
    unit: int = 1
    base: int = 0
    max_gap: int | None = None
    max_length: int | None = None
    offset: int = 0
    before: tuple[tuple[int, int, int | None, int], ...] = ()
    """The end, the gap, the length of cells and their offset of earlier times."""

    @property
    def widest(self) -> int:
        return max([self.gap if self.max_gap is None else self.max_gap, *(gap for _, gap, _, _ in self.before)])

    def limits(self) -> dict[str, Any]:
        gaps = {} if self.max_gap is None else {"max_gap": self.max_gap, "gap_column": "g"}
        gaps |= {"before": self.before} if self.before else {}
        return gaps | ({} if self.max_length is None else {"max_length": self.max_length, "offset": self.offset})

    def model(self, model_class: type[ReferenceModel] = ReferenceModel, **kwargs: Any) -> ReferenceModel:
        settings_ = self.aggregates, self.policy
        return model_class(self.gap, self.grace, self.retention, *settings_, event_id="id", **kwargs, **self.limits())


def microseconds(amount: int) -> str:
    return f"{amount} microsecond" if amount == 1 else f"{amount} microseconds"


class ModelSubject:
    """A model class dressed as the harness."""

    def __init__(self, config: Config, path: str, max_future_skew: int | None, clock: Callable[[], int] | None) -> None:
        module, name = path.split(":")
        model_class = getattr(importlib.import_module(module), name)
        self.model = config.model(model_class, max_future_skew=max_future_skew, clock=clock)

    def process(self, rows: list[Row]) -> Any:
        return self.model.process(rows)

    @property
    def watermark_us(self) -> int | None:
        return self.model.watermark

    def sessions(self) -> list[Row]:
        return self.model.sessions()

    def close(self) -> None:
        pass


def subject(
    config: Config,
    *,
    max_future_skew: int | None = None,
    clock: Callable[[], int] | None = None,
    value_type: str = "double",
    ttl: dict[str, Any] | None = None,
) -> Any:
    """Open what is under test; the caller closes it."""
    if path := os.environ.get("SESSIONLAKE_SUBJECT"):
        return ModelSubject(config, path, max_future_skew, clock)
    from sessionlake import SessionWindows
    from sessionlake.operators.sessions.windows import Earlier
    from sessionlake.testing import SessionizerHarness

    kwargs: dict[str, Any] = {}
    if max_future_skew is not None:
        kwargs["max_future_skew"] = microseconds(max_future_skew)
    if clock is not None:
        kwargs["clock"] = clock
    windows = (
        SessionWindows.with_gap(microseconds(config.gap))
        .grace(microseconds(config.grace))
        .until(microseconds(config.retention))
    )
    if config.max_length is not None:
        windows = windows.max_length(microseconds(config.max_length), microseconds(config.offset))
    windows = replace(windows, before=tuple(Earlier(*limits) for limits in config.before))
    if config.max_gap is not None:
        windows = windows.by("g * interval 1 microsecond", microseconds(config.max_gap))
    return SessionizerHarness(
        windows,
        dict(config.aggregates),
        shards=config.shards,
        beyond_retention=config.policy,
        event_id="id",
        schema={"v": value_type, "id": "string", "g": "long"},
        ttl=ttl,
        **kwargs,
    )


def in_each(examples: int, check: Callable[..., None], strategies: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Return property tests of the configurations with limits: of each one of the default run, and a slow one."""
    tests = {}
    for limits in LIMITS[1:]:
        tests[limits] = ci(examples, **strategies(limits))(check)
        tests[f"{limits}_slow"] = slow(examples, **strategies(limits))(check)
    return tests


@contextmanager
def opened(config: Config, **kwargs: Any) -> Iterator[Any]:
    harness = subject(config, **kwargs)
    try:
        yield harness
    finally:
        harness.close()


@st.composite
def configs(
    draw: st.DrawFn,
    aggregates: dict[str, str] | None = None,
    shards: tuple[int, ...] = (1, 1, 2),
    limits: str = "constant",
) -> Config:
    """Draw gap, grace and retention of a few units; retention is often gap (max_gap) + grace exactly.

    With a unit of one segment the sessions of a stream spread over many segments of the store, with 1 us over one.
    """
    unit = draw(st.sampled_from([1, SEGMENT_US]))
    gap = draw(st.integers(1, 4))
    grace = draw(st.integers(0, 4))
    widest = gap + draw(st.integers(0, 4)) if limits in ("gap_by", "both") else gap
    retention = widest + grace + draw(st.sampled_from([0, 0, 1, 5]))
    cell = widest + draw(st.integers(0, 6)) if limits in ("max_length", "both") else None
    base = draw(st.sampled_from([0, 10**15]))
    before = draw(_earlier(base, unit)) if limits == "before" else ()
    if before and draw(st.booleans()):
        cell = gap + draw(st.integers(0, 6))
    return Config(
        gap=gap * unit,
        grace=grace * unit,
        retention=retention * unit,
        policy=draw(st.sampled_from(["dead_letter", "drop", "emit"])),
        shards=draw(st.sampled_from(shards)),
        aggregates=aggregates or BASIC,
        unit=unit,
        base=base,
        max_gap=None if widest == gap and limits not in ("gap_by", "both") else widest * unit,
        max_length=None if cell is None else cell * unit,
        offset=0 if cell is None else draw(st.integers(0, cell - 1)) * unit,
        before=before,
    )


@st.composite
def _earlier(draw: st.DrawFn, base: int, unit: int) -> tuple[tuple[int, int, int | None, int], ...]:
    """Draw the gaps and cells of up to two earlier times, whose ends lie among the events."""
    found = []
    for end in sorted(draw(st.sets(st.integers(1, 20), min_size=1, max_size=2))):
        gap = draw(st.integers(1, 6))
        cell = draw(st.none() | st.integers(gap, gap + 6))
        offset = 0 if cell is None else draw(st.integers(0, cell - 1)) * unit
        found.append((base + end * unit, gap * unit, None if cell is None else cell * unit, offset))
    return tuple(found)


# --- drafts of rows ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """A time by what it is near to. The anchors are exact; nudge is in us, so it is gap + 1 us and the like."""

    anchor: str
    number: int
    nudge: int

    def resolve(self, config: Config, model: ReferenceModel) -> int:
        watermark = config.base if model.watermark is None else model.watermark
        sessions = [model.table[name] for name in sorted(model.table)]
        session = sessions[self.number % len(sessions)] if sessions else None
        edge = session or _Edge(config.base, config.base)
        at = {
            "anywhere": config.base + self.number * config.unit,
            "ahead": watermark + self.number * config.unit,
            "close": watermark - config.grace - config.gap,
            "retention": watermark - config.retention,
            "horizon": watermark - config.retention - config.gap,
            "behind": watermark - self.number * config.unit,
            "before": edge.start - (config.gap if self.number % 2 else config.widest),
            "start": edge.start,
            "end": edge.end,
            "after": edge.end + config.gap if session is None else session.until,
            "cut": _cut(config, watermark - self.number * config.unit),
        }[self.anchor]
        return at + self.nudge


def _cut(config: Config, time: int) -> int:
    """Return the first cut after a time; the time where there are no cuts."""
    if config.before and time < config.before[-1][0]:
        return next(end for end, *_ in config.before if time < end)
    if config.max_length is None:
        return time
    return ((time - config.offset) // config.max_length + 1) * config.max_length + config.offset


@dataclass(frozen=True)
class _Edge:
    start: int
    end: int


@dataclass(frozen=True)
class Event:
    key: str
    moment: Moment
    value: float | None
    share: int | None = None
    """The event's own gap by what it is of the widest, in quarters; null for the config's gap, where it has one at all."""


@dataclass(frozen=True)
class Partial:
    moment: Moment
    length: int
    event_count: int
    value: float | None


@dataclass(frozen=True)
class Restate:
    key: str
    partial: Partial


@dataclass(frozen=True)
class Replace:
    key: str
    picks: tuple[tuple[int, int], ...]
    puts: tuple[Partial, ...]


@dataclass(frozen=True)
class Tombstone:
    key: str
    pick: tuple[int, int]


Draft = Event | Restate | Replace | Tombstone

MOMENTS = st.builds(
    Moment,
    anchor=st.sampled_from(
        [
            "anywhere",
            "ahead",
            "ahead",
            "close",
            "retention",
            "horizon",
            "behind",
            "before",
            "start",
            "end",
            "after",
            "cut",
        ]
    ),
    number=st.integers(0, 14),
    nudge=st.sampled_from([0, 0, 0, -1, 1]),
)
VALUES = st.sampled_from([0.0, 1.0, 2.0, 3.0, 1.0, 2.0, None])
PARTIALS = st.builds(
    Partial, moment=MOMENTS, length=st.sampled_from([0, 0, 1, 2, 5, 12]), event_count=st.integers(1, 3), value=VALUES
)
# A session is picked by number among its key's; the second figure is added to its revision, so 0 names it rightly.
PICKS = st.tuples(st.integers(0, 5), st.sampled_from([0, 0, 0, 0, 0, -1, 1]))


def events(keys: str = "ab", values: st.SearchStrategy[float | None] = VALUES) -> st.SearchStrategy[Event]:
    shares = st.sampled_from([None, 0, 1, 2, 4, 4, 5])
    return st.builds(Event, key=st.sampled_from(keys), moment=MOMENTS, value=values, share=shares)


def corrections(keys: str = "ab") -> st.SearchStrategy[Draft]:
    key = st.sampled_from(keys)
    puts = st.lists(PARTIALS, max_size=2).map(tuple)
    picks = st.lists(PICKS, max_size=2, unique_by=lambda pick: pick[0]).map(tuple)
    return st.one_of(
        st.builds(Restate, key=key, partial=PARTIALS),
        st.builds(Replace, key=key, picks=picks, puts=puts),
        st.builds(Replace, key=key, picks=st.tuples(PICKS), puts=puts),
        st.builds(Tombstone, key=key, pick=PICKS),
    )


def rows(keys: str = "ab") -> st.SearchStrategy[Draft]:
    return st.one_of(events(keys), events(keys), corrections(keys))


def batches(row: st.SearchStrategy[Draft], most: int = 7) -> st.SearchStrategy[list[list[Draft]]]:
    return st.lists(st.lists(row, max_size=5), min_size=1, max_size=most)


class Resolver:
    """Turn drafts into rows; ids are unique over the stream, so a row can be followed."""

    def __init__(self, config: Config, *, allow_conflicts: bool = True) -> None:
        self.config, self.allow_conflicts = config, allow_conflicts
        self.next_id = 0

    def batch(self, drafts: list[Draft], model: ReferenceModel) -> list[Row]:
        # A replace that names nothing and puts nothing may well be malformed: no rule says.
        drafts = [draft for draft in drafts if not (isinstance(draft, Replace) and not draft.picks and not draft.puts)]
        resolved = [self._row(draft, model) for draft in drafts]
        return resolved if self.allow_conflicts else self._without_conflicts(resolved)

    def _row(self, draft: Draft, model: ReferenceModel) -> Row:
        if isinstance(draft, Event):
            self.next_id += 1
            time = draft.moment.resolve(self.config, model)
            # The ids do not ascend with arrival, so that ties are not broken by arrival by accident.
            row = {"key": draft.key, "time_us": time, "v": draft.value, "id": f"e{self.next_id * 37 % 101:03}"}
            own = None if draft.share is None else draft.share * self.config.widest // 4
            return row if self.config.max_gap is None else {**row, "g": own}
        if isinstance(draft, Restate):
            return {"kind": "restate", "key": draft.key, **self._partial(draft.partial, model)}
        if isinstance(draft, Tombstone):
            start, end, revision = self._pick(draft.key, draft.pick, model)
            return {"kind": "tombstone", "key": draft.key, "start_us": start, "end_us": end, "revision": revision}
        named = {}
        for pick in draft.picks:
            start, _, revision = self._pick(draft.key, pick, model)
            named.setdefault(start, revision)
        puts = [self._partial(partial, model) for partial in draft.puts]
        return {"kind": "replace", "key": draft.key, "remove": list(named.items()), "put": puts}

    def _partial(self, partial: Partial, model: ReferenceModel) -> Row:
        start = partial.moment.resolve(self.config, model)
        end = start + partial.length * self.config.unit
        return {"start_us": start, "end_us": end, "event_count": partial.event_count, "v": partial.value}

    def _pick(self, key: str, pick: tuple[int, int], model: ReferenceModel) -> tuple[int, int, int]:
        mine = [model.table[name] for name in sorted(model.table) if name[0] == key]
        if not mine:
            return self.config.base, self.config.base, 0
        session = mine[pick[0] % len(mine)]
        return session.start, session.end, max(session.revision + pick[1], 0)

    @staticmethod
    def _without_conflicts(resolved: list[Row]) -> list[Row]:
        kept, seen = [], set()
        for row in resolved:
            names = {(row["key"], start) for start, _ in names_of(row)}
            if not names & seen:
                kept.append(row)
                seen |= names
        return kept


def names_of(row: Row) -> list[tuple[int, int]]:
    """Return the (start, revision) pairs a replacement names; none for other rows."""
    if row.get("kind") == "tombstone":
        return [(row["start_us"], row["revision"])]
    return [tuple(pair) for pair in row.get("remove", ())] if row.get("kind") == "replace" else []


# --- comparing --------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Make numbers comparable: NaN is a missing value, floats equal within tolerance."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return round(float(value), 9) if isinstance(value, int | float) else value


def canonical_session(row: Row, aggregates: dict[str, str], *, revision: bool = True) -> tuple[Any, ...]:
    identity = (row["key"], int(row["start_us"]), int(row["end_us"]), int(row["event_count"]))
    values = tuple(plain(row[name]) for name in aggregates)
    return (*identity, int(row["revision"]) if revision else 0, *values)


def canonical_change(row: Row, aggregates: dict[str, str]) -> tuple[Any, ...]:
    # What a delete says beside its identity is not part of any rule.
    if row["op"] == "delete":
        return "delete", row["key"], int(row["start_us"]), int(row["revision"])
    return row["op"], *canonical_session(row, aggregates)


def canonical_row(row: Row) -> tuple[Any, ...]:
    """Return what identifies an event or a correction that came back."""
    kind = row.get("kind") or "event"
    if kind == "event":
        return "event", row["key"], row["time_us"], plain(row.get("v")), row.get("id")
    if kind == "restate":
        return kind, row["key"], *canonical_partial(row)
    puts = sorted((canonical_partial(partial) for partial in row.get("put") or ()), key=repr)
    return kind, row["key"], tuple(sorted(names_of(row))), tuple(puts)


def canonical_partial(row: Row) -> tuple[Any, ...]:
    return row["start_us"], row["end_us"], row.get("event_count", 1), plain(row.get("v"))


def canonical(rows: list[Row], convert: Callable[..., tuple[Any, ...]], *args: Any) -> list[tuple[Any, ...]]:
    return sorted((convert(row, *args) for row in rows), key=repr)


def canonical_outcome(out: Any, aggregates: dict[str, str]) -> Row:
    return {
        "changes": canonical(out.changes, canonical_change, aggregates),
        "late": canonical(out.late, canonical_row),
        "dead": canonical(out.dead, canonical_row),
        "stale": canonical(out.stale, canonical_row),
        "counts": {name: out.counts[name] for name in COUNTS},
    }


def fold(table: dict[tuple[str, int], Row], changes: list[Row]) -> None:
    """Apply a batch of changes to a table by (key, start), in place; emits are not part of it."""
    for change in changes:
        name = change["key"], change["start_us"]
        if change["op"] == "upsert":
            table[name] = change
        elif change["op"] == "delete":
            del table[name]


def live(table: dict[tuple[str, int], Row], horizon: float, config: Config | None = None) -> list[Row]:
    """Return the rows that end at or after the horizon: less the gap, that are open so long where sessions are limited."""
    return [table[name] for name in sorted(table) if _open_less_gap(table[name], config) >= horizon]


def _open_less_gap(row: Row, config: Config | None) -> int:
    if config is None or (config.max_gap is None and config.max_length is None):
        return row["end_us"]
    if "open_until_us" in row:
        return row["open_until_us"] - config.gap
    return min(row["end_us"], _cut(config, row["end_us"]) - 1 - config.gap)


class Pair:
    """The sessionizer under test and the model, in step."""

    def __init__(self, config: Config, *, allow_conflicts: bool = True) -> None:
        self.config = config
        self.harness, self.model = subject(config), config.model()
        self.resolver = Resolver(config, allow_conflicts=allow_conflicts)

    def step(self, drafts: list[Draft]) -> tuple[list[Row], Any]:
        """Process one batch on both and compare all that is shown; return the rows and what the harness answered."""
        resolved = self.resolver.batch(drafts, self.model)
        expected = self.model.process(resolved)
        actual = self.harness.process(resolved)
        aggregates = self.config.aggregates
        assert canonical_outcome(actual, aggregates) == canonical_outcome(expected, aggregates), resolved
        assert self.harness.watermark_us == self.model.watermark
        self.check_sessions()
        return resolved, actual

    def check_sessions(self) -> None:
        aggregates = self.config.aggregates
        actual = [canonical_session(row, aggregates) for row in self.harness.sessions()]
        assert actual == [canonical_session(row, aggregates) for row in self.model.sessions()]
        if self.config.max_gap is not None:
            sides = self.harness.sessions(), self.model.sessions()
            ours, theirs = ([row["open_until_us"] for row in side] for side in sides)
            assert ours == theirs

    def close(self) -> None:
        self.harness.close()


def resolved_stream(config: Config, drafted: list[list[Draft]], *, allow_conflicts: bool = False) -> list[list[Row]]:
    """Resolve a whole stream by running the model over it."""
    model, resolver = config.model(), Resolver(config, allow_conflicts=allow_conflicts)
    stream = []
    for drafts in drafted:
        stream.append(resolver.batch(drafts, model))
        model.process(stream[-1])
    return stream


def run(config: Config, stream: list[list[Row]]) -> tuple[list[Row], list[tuple[Any, ...]]]:
    """Return the canonical outcome of each batch and the canonical final table, cold sessions included."""
    table: dict[tuple[str, int], Row] = {}
    outcomes = []
    with opened(config) as harness:
        for rows_of_batch in stream:
            out = harness.process(rows_of_batch)
            fold(table, out.changes)
            outcomes.append({**canonical_outcome(out, config.aggregates), "watermark": harness.watermark_us})
    return outcomes, [canonical_session(row, config.aggregates, revision=False) for row in live(table, -math.inf)]


def with_shards(config: Config, shards: int) -> Config:
    return replace(config, shards=shards)
