"""Random streams of sessions that are sent by policy, played beside the model of docs/rules.md, rules 260 to 265."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sessionlake import SessionWindows
from sessionlake.local.shards import LocalShards
from sessionlake.operators.sessions.windows import Earlier
from sessionlake.operators.shared.windowing.emit_section import EmitSection
from sessionlake.testing.harness import Output, SessionizerHarness
from tests.operators.process.memory_segments import MemorySegments
from tests.oracle.session_emission import EmissionModel, Event, Outcome, Part, Replace, Row

S = 1_000_000
EARLY, LATE = ("off", "batch", 3, 20), ("batch", "close", 3, 20)
Policies = tuple[str | int, str, str | int]
ALL: list[Policies] = [
    (early, full, late)
    for early in EARLY
    for full in ("end", "close")
    for late in LATE
    if (early, late) != ("batch", "batch") and not (full == "close" and "batch" in (early, late))
]
END = 100_000


@dataclass(frozen=True)
class Batch:
    """A batch: what comes in, and what happens before it."""

    events: Sequence[Event]
    clock: int
    restated: Sequence[Part] = ()
    advance: int | None = None
    flush: bool = False
    lost: bool = False
    policies: Policies | None = None
    corrects: int = 0
    """How many of the stored sessions are replaced or removed."""


class InMemory(SessionizerHarness):
    """The harness, its stores in memory: RocksDB would take most of the time."""

    def __init__(self, windows: SessionWindows, aggregates: Mapping[str, str], **more: Any) -> None:
        super().__init__(windows, aggregates, **more)
        self._shards = LocalShards(
            more["shards"], lambda operator, shard: operator.open_store(Path(str(shard)), MemorySegments)
        )


@dataclass(frozen=True)
class Stream:
    """Windows, policies and batches."""

    gap: int
    grace: int
    retention: int
    own_gaps: bool
    max_length: int | None
    policies: Policies
    batches: Sequence[Batch]
    shards: int
    before: tuple[int, int] | None = None

    def model(self, weaker: str = "") -> EmissionModel:
        """Return the model."""
        early, full, late = self.policies
        return EmissionModel(
            self.gap,
            self.grace,
            self.retention,
            early,
            full,
            late,
            self.own_gaps,
            self.max_length,
            self.before,
            weaker,
        )

    def harness(self) -> SessionizerHarness:
        """Return the harness."""
        windows = SessionWindows(
            self.gap * S,
            self.grace * S,
            self.retention * S,
            max_gap_us=3 * self.gap * S if self.own_gaps else None,
            gap_by="gap * interval 1 second" if self.own_gaps else None,
            max_length_us=None if self.max_length is None else self.max_length * S,
            before=() if self.before is None else (Earlier(self.before[0] * S, self.before[1] * S),),
        )
        return InMemory(
            windows,
            {"total": "sum(value)"},
            shards=self.shards,
            schema={"value": "long", "gap": "long"},
            emit=section(self.policies),
        )


def section(policies: Policies) -> EmitSection:
    """Return the section [emit]."""
    early, full, late = (f"{one} seconds" if isinstance(one, int) else one for one in policies)
    return EmitSection(early=early, full=full, late=late)  # type: ignore[arg-type]


def stream(seed: int, *, corrections: bool = True, changes: bool = True) -> Stream:
    """Return a random stream."""
    random_ = random.Random(seed)
    gap, grace = random_.choice([5, 10]), random_.choice([0, 5, 15, 40])
    own_gaps, max_length = random_.choice([(False, None), (False, None), (True, None), (False, 30)])
    before = None
    if not own_gaps and max_length is None and random_.random() < 0.4:
        before = (random_.randint(990, 1080), random_.choice([3, 7, 12]))
    widest = 3 * gap if own_gaps else gap
    retention = widest + grace + random_.choice([0, 20, 100])
    policies = random_.choice(ALL)
    now, clock, batches = 1000, 0, []
    for _ in range(random_.randint(3, 12)):
        now += random_.choice([0, 1, 3, 10, 25])
        clock += random_.choice([0, 1, 2, 5, 30])
        spread = random_.choice([3, 15, 40])
        events = [
            Event(
                random_.choice("abc"),
                now - random_.randint(0, spread),
                random_.randint(1, 9),
                random_.randint(1, widest),
            )
            for _ in range(random_.choice([0, 1, 2, 4, 6]))
        ]
        restated = []
        if corrections and random_.random() < 0.2:
            restated = [_part(random_, now, max_length, before)]
        batches.append(
            Batch(
                events,
                clock,
                restated,
                now + random_.randint(0, 20) if random_.random() < 0.05 else None,
                flush=random_.random() < 0.05,
                lost=random_.random() < 0.15,
                policies=random_.choice(ALL) if changes and random_.random() < 0.1 else None,
                corrects=random_.randint(1, 2) if corrections and random_.random() < 0.25 else 0,
            )
        )
    return Stream(gap, grace, retention, own_gaps, max_length, policies, batches, random_.randint(1, 3), before)


def _part(random_: random.Random, now: int, max_length: int | None, before: tuple[int, int] | None) -> Part:
    start = now - random_.randint(0, 60)
    last = start + random_.choice([0, 0, 3, 8])
    if max_length is not None:
        last = min(last, (start // max_length + 1) * max_length - 1)
    if before is not None and start < before[0]:
        last = min(last, before[0] - 1)
    return Part(random_.choice("abc"), start, last, random_.randint(1, 9))


def played(
    given: Stream,
    weaker: str = "",
    looks: Callable[[SessionizerHarness, EmissionModel], None] | None = None,
) -> Iterator[tuple[Output, Outcome]]:
    """Yield the outputs of each batch beside those of the model, and let `looks` look at both; at the end all is closed."""
    model, seed = given.model(weaker), random.Random(len(given.batches))
    last = Batch((), given.batches[-1].clock, advance=END)
    with given.harness() as run:
        for batch in (*given.batches, last):
            if batch.lost:
                run.lose_stores()
            if batch.policies is not None:
                model.change(*batch.policies)
                run.change_emit(section(batch.policies))
            replaced = _replaced(seed, model, batch)
            output = run.process(_rows(batch, replaced), clock_us=batch.clock * S)
            told = model.batch(
                batch.events,
                batch.clock,
                restated=batch.restated,
                replaced=replaced,
                advance=batch.advance,
                flush=batch.flush,
            )
            if looks is not None:
                looks(run, model)
            yield output, told
        assert [(row["key"], row["start_us"] // S) for row in run.sent()] == sorted(
            (s.key, start) for s in model.sessions for start in s.shown
        )


def _replaced(random_: random.Random, model: EmissionModel, batch: Batch) -> list[Replace]:
    found = []
    for s in random_.sample(model.sessions, min(batch.corrects, len(model.sessions))):
        put: tuple[Part, ...] = ()
        kind = random_.random()
        if kind < 0.5:
            shift = random_.choice([0, 0, 1]) if s.start < s.last else 0
            put = (Part(s.key, s.start + shift, s.last, s.total + 1),)
        found.append(Replace(s.key, s.start, s.revision - (random_.random() < 0.2), put))
    return found


def _rows(batch: Batch, replaced: Sequence[Replace]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = [
        {"key": e.key, "time_us": e.time * S, "value": e.value, "gap": e.gap} for e in batch.events
    ]
    rows += [
        {"kind": "replace", "key": r.key, "remove": [(r.start * S, r.revision)], "put": _puts(r)} for r in replaced
    ]
    rows += [{"kind": "restate", **_partial(p)} for p in batch.restated]
    if batch.advance is not None:
        rows.append({"kind": "advance", "time_us": batch.advance * S})
    if batch.flush:
        rows.append({"kind": "flush"})
    return rows


def _puts(replaced: Replace) -> list[dict[str, object]]:
    return [_partial(part) for part in replaced.put]


def _partial(part: Part) -> dict[str, object]:
    return {"key": part.key, "start_us": part.start * S, "end_us": part.last * S, "value": part.value}


def rows(output: Output) -> list[Row]:
    """Return the rows of a batch as the model has them."""
    found = []
    for row in output.changes:
        key, start = row["key"], row["start_us"] // S
        if row["op"] == "delete":
            found.append(Row("delete", key, start))
        else:
            last = row["end_us"] // S
            found.append(Row("upsert", key, start, last, row["event_count"], row["total"], row["trigger"]))
    return sorted(found)


def differences(seed: int, weaker: str = "", **of: bool) -> str | None:
    """Play a stream; return what differs first, None if nothing does."""
    for number, (output, told) in enumerate(played(stream(seed, **of), weaker)):
        late = sorted((row["key"], row["time_us"] // S, row["value"]) for row in output.late)
        dead = sorted((row["key"], row["time_us"] // S, row["value"]) for row in output.dead if "kind" not in row)
        if rows(output) != told.rows:
            return f"seed {seed}, batch {number}: sent {rows(output)}, and the model {told.rows}"
        if late != sorted(event[:3] for event in told.late) or dead != sorted(event[:3] for event in told.dead):
            return f"seed {seed}, batch {number}: late or dead differ: {late} {dead}, {told}"
    return None
