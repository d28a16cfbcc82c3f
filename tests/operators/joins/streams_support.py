"""Random joins and streams of two sides, for the harness and for the double loop."""

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from sessionlake.testing.joins import JoinHarness, JoinOutput
from tests.oracle.joins import Given, JoinModel, Reach

UNIT = 20_000_000
"""Microseconds of a unit of time: segments of stores are a minute at least."""
KEPT = 10**6
"""More messages than any stream has."""


@dataclass(frozen=True)
class Case:
    """A join, as the harness and as the oracles take it. Lengths are in units of time, or in messages."""

    reach: Reach
    by_time: bool
    grace: int
    retention: int
    idle: int
    early: str | int
    late: str | int
    unbounded: str | None
    """A side that is as wide as retention allows."""
    most: int | None = None
    """How many messages are kept by time; None for all."""
    least: int = 0
    """How far back of the watermark a message may have partners."""

    def harness(self, shards: int, full: str | None = None) -> JoinHarness:
        reach, unit = self.reach, UNIT if self.by_time else 1
        less = 0 if self.by_time else 1
        sizes: dict[str, int | None] = dict.fromkeys(("left", "right"))
        if reach.kind == "sliding":
            sizes = {"left": reach.left * unit + less, "right": reach.right * unit + less}
            if self.unbounded is not None:
                sizes[self.unbounded] = None
        widths = {n: getattr(reach, n) * unit for n in ("size", "advance", "offset", "gap")}
        return JoinHarness(
            on=["id = k"],
            left={"name": "a", "size": sizes["left"], "columns": ["v"]},
            right={"name": "b", "size": sizes["right"], "columns": ["w"]},
            by="time" if self.by_time else "count",
            kind=reach.kind,
            **widths,
            grace=f"{self.grace * UNIT} us",
            retention=f"{self.retention * UNIT if self.by_time else 0} us",
            retention_count=(self.most or 0) if self.by_time else self.retention,
            idle=f"{self.idle} us",
            early=self.early if isinstance(self.early, str) else f"{self.early} us",
            late=self.late if isinstance(self.late, str) else f"{self.late} us",
            full=full,
            shards=shards,
            schema={"v": "long", "w": "string", "id": "string", "k": "string"},
        )

    def model(self) -> JoinModel:
        early, late = ("batch" if isinstance(p, str) else p for p in (self.early, self.late))
        return JoinModel(
            self.reach, self.by_time, self.grace, self.retention, self.idle, early, late, self.most, self.least
        )


SMALL = st.integers(0, 6)
POLICIES = st.sampled_from(["batch", 3, 7])


@st.composite
def reaches(draw: st.DrawFn) -> Reach:
    kind = draw(st.sampled_from(["sliding", "sliding", "tumbling", "hopping", "session"]))
    if kind == "sliding":
        return Reach(kind, left=draw(SMALL), right=draw(SMALL))
    if kind == "session":
        return Reach(kind, gap=draw(st.integers(0, 4)))
    size = draw(st.integers(1, 8))
    advance = draw(st.integers(1, size)) if kind == "hopping" else size
    return Reach(kind, size=size, advance=advance, offset=draw(st.integers(-2, 9)))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    reach, by_time, grace = draw(reaches()), draw(st.booleans()), draw(SMALL)
    windows = reach.size + (reach.size - 1) // reach.advance * reach.advance
    least = {"sliding": reach.left + reach.right, "session": 2 * reach.gap}.get(reach.kind, windows) + grace
    retention = least + draw(st.sampled_from([0, 1, 5, 50])) if by_time else KEPT
    grace_on_axis = grace if by_time else 0
    unbounded = draw(st.sampled_from([None, None, "left", "right"])) if reach.kind == "sliding" else None
    fields = dict(reach.__dict__)
    if unbounded is not None:
        other = reach.right if unbounded == "left" else reach.left
        free = retention - grace_on_axis - other
        fields[unbounded] = free if by_time else free - 2
    fields["span"] = retention - grace_on_axis - reach.gap
    idle = draw(st.sampled_from([5, 10**9]))
    bounded = by_time and unbounded is None and reach.kind != "session"
    # Cells are as long as that then, whatever a 64th of the retention is.
    most = draw(st.sampled_from([None, 1, 2, 5])) if bounded and least else None
    return Case(
        Reach(**fields), by_time, grace, retention, idle, draw(POLICIES), draw(POLICIES), unbounded, most, least
    )


KEYS = st.sampled_from(["a", "a", "b", "é", None])
MESSAGES = st.lists(
    st.builds(Given, st.sampled_from(["left", "right"]), KEYS, st.integers(0, 40), st.sampled_from([0, 0, 0, 2])),
    max_size=7,
)
BATCHES = st.lists(st.tuples(MESSAGES, st.integers(0, 6), st.booleans()), min_size=1, max_size=6)
"""Messages; how much later by the clock than the batch before; whether all disks are lost after the batch."""


def row(one: Given, number: int) -> dict[str, Any]:
    fields = {"id": one.key, "v": number} if one.side == "left" else {"k": one.key, "w": f"w{number}"}
    return {**fields, "time_us": one.time * UNIT, "partition": one.partition}


def played(join: JoinHarness, batch: list[Given], clock: int) -> JoinOutput:
    # The model numbers messages as they come; partitions of a side are apart, so that their order says nothing.
    left, right = ([row(one, i) for i, one in enumerate(batch) if one.side == side] for side in ("left", "right"))
    return join.process(left, right, clock)


MINUTE = 60_000_000


def at(text: str) -> int:
    """Return 12:02, 12:02+ (a microsecond later) or 12:02- (one earlier), or 9:01:01, in microseconds."""
    more = {"+": 1, "-": -1}.get(text[-1], 0)
    hours, minutes, seconds = [*map(int, text.rstrip("+-").split(":")), 0][:3]
    return (hours * 60 + minutes) * MINUTE + seconds * 1_000_000 + more


def message(time: str) -> dict[str, Any]:
    return {"id": 1, "time_us": at(time)}


Row = tuple[str, int, int]
TYPES = {"left": ("left",), "right": ("right",), "full": ("left", "right")}
FAR = 10**6
"""A time after all others, in units."""


def told(output: JoinOutput) -> dict[str, set[Row]]:
    """Return the pairs, the rows without a partner, and the rows that are deleted."""
    found: dict[str, list[Row]] = {"pairs": [], "alone": [], "taken_back": []}
    for row in output.pairs:
        name = "taken_back" if row["op"] == "delete" else "pairs" if row["left_time"] is not None else "alone"
        if row["op"] == "upsert" and row["right_time"] is None:
            name = "alone"
        found[name].append((row["join_key"], row["left_position"], row["right_position"]))
    assert all(len(rows) == len(set(rows)) for rows in found.values())
    return {name: set(rows) for name, rows in found.items()}


def there(run: JoinHarness) -> set[Row]:
    return {(row["join_key"], row["left_position"], row["right_position"]) for row in run.joins()}
