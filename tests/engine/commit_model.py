"""A model of the commit of a batch, and a search of all its states: `make model-commit`, which takes the larger bounds.

The model follows `engine/coordinator.py`, `warehouse/transactions.py`, `stream/run.py` and Spark's two logs of a checkpoint. It has the offsets
and the commits of the checkpoint; a side table and the changelog, each a Delta log whose commits name batch and attempt; the terms on
both; two drivers with what each remembers; stores at two places that follow in two phases; a restart with other settings; the fold of the
changelog and its trim; a changelog or a checkpoint put back from an older copy. Each step may be followed by any step of anybody, or
by a kill.

An event is late or accepted by the settings: that is how two attempts of different settings are seen.

In every state that can be reached: (once) the batches of the changelog follow each other without a gap, and each event that they read is in
the changelog or in the side table, once; (store) a store that a batch computes on has what the changelog has at that commit; (trim) no row is
trimmed that is not folded. A state in which a driver refuses to go on is right.

A mutant (`without`) lacks one step of the protocol. The search must find it broken.
"""

import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

NOBODY = -1
MOST = 12_000_000
"""States of one search: some 3 GB."""


class Commit(NamedTuple):
    """A batch's commit on a table."""

    batch: int
    attempt: int
    low: int
    high: int
    settings: int
    rows: frozenset[int]


class Driver(NamedTuple):
    """What a driver remembers. `Driver()` is one that does not run."""

    phase: str = "off"
    batch: int = -1
    low: int = 0
    high: int = 0
    memory: int = 0
    """Up to where the batches before have read."""
    settings: int = 0
    own: int = 0
    """The settings of the config at its start."""
    last: int = -1
    """The last batch that it knows committed."""
    last_input: int = -1
    expected: int = 0
    """The attempt at which the store must be."""
    side_batch: int = -1
    """The last batch that it knows committed on the side table."""
    seen_changes: int = 0
    """How many commits of the changelog it has looked at."""
    seen_sides: int = 0
    term: bool = False
    """Whether its term is on both tables."""
    clean: bool = False
    """Whether nobody has written to the side table since it looked at the changelog, to begin its term."""
    attempt: int = 0
    rows: frozenset[int] = frozenset()
    late: frozenset[int] = frozenset()
    pinned: int = -1
    """The settings of an interrupted batch, with which it must go on; -1 for none."""
    side_high: int = -1
    """Up to where that batch had read; -1 for none."""


class Store(NamedTuple):
    """The store of a shard at one place, and the writes that wait beside it: (attempt, attempt they build on, events)."""

    attempt: int = 0
    events: frozenset[int] = frozenset()
    pending: tuple[tuple[int, int, frozenset[int]], ...] = ()


class State(NamedTuple):
    """All that there is."""

    source: int = 0
    offsets: tuple[int, ...] = ()
    done: frozenset[int] = frozenset()
    side: tuple[Commit, ...] = ()
    changes: tuple[Commit, ...] = ()
    holders: tuple[int, int] = (NOBODY, NOBODY)
    """The drivers whose terms are the last ones on the changelog and on the side table."""
    fold: int = 0
    folding: int = -1
    trimmed: int = 0
    drivers: tuple[Driver, ...] = ()
    config: int = 0
    stores: tuple[Store, ...] = ()
    kills: int = 0
    flips: int = 0
    copies: int = 0
    folds: int = 0


CHANGES, SIDE = 0, 1
Steps = Iterator[tuple[str, State, Driver]]


def late(event: int, settings: int) -> bool:
    """Say whether an event is late under settings."""
    return (event // 2 + settings) % 2 == 1


class Model:
    """The protocol under bounds: how many events, batches, drivers, kills, changes of the config, copies put back, folds, places of stores.

    With `overwrite` two drivers can both write the offsets of a batch. `without` names the steps that a mutant lacks.
    """

    def __init__(
        self,
        *,
        events: int = 3,
        batches: int = 3,
        drivers: int = 2,
        kills: int = 1,
        flips: int = 1,
        copies: int = 0,
        folds: int = 0,
        stores: int = 1,
        config: int = 0,
        overwrite: bool = False,
        without: str = "",
    ) -> None:
        self.events, self.batches, self.kills, self.flips = events, batches, kills, flips
        self.copies, self.folds, self.overwrite, self.without = copies, folds, overwrite, set(without.split())
        self.first = State(config=config, drivers=(Driver(),) * drivers, stores=(Store(),) * stores)

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        """Yield what may come next: a name, and the state after it."""
        if s.source < self.events:
            yield "event", s._replace(source=s.source + 1)
        if s.flips < self.flips:
            yield "config", s._replace(config=1 - s.config, flips=s.flips + 1)
        yield from self._jobs(s)
        if s.copies < self.copies and all(d.phase in ("off", "refused") for d in s.drivers):
            yield from self._put_back(s)
        for at, d in enumerate(s.drivers):
            for what, new, driver in self._driver(s, d, at):
                yield f"{what} {at}", _with_driver(new, at, driver)
            if d.phase not in ("off", "refused") and s.kills < self.kills:
                yield f"kill {at}", _with_driver(s._replace(kills=s.kills + 1), at, Driver())

    def _jobs(self, s: State) -> Iterator[tuple[str, State]]:
        if s.folds >= self.folds:
            return
        if s.folding < 0 and len(s.changes) > s.fold:
            yield "fold reads", s._replace(folding=len(s.changes))
        if s.folding >= 0:
            # The fold point is a version of an application: the second of two folds is refused.
            yield "fold commits", s._replace(fold=max(s.fold, s.folding), folding=-1, folds=s.folds + 1)
        if s.fold > s.trimmed:
            yield "trim", s._replace(trimmed=len(s.changes) if "trim" in self.without else s.fold)

    def _put_back(self, s: State) -> Iterator[tuple[str, State]]:
        if s.changes:
            older, count = s.changes[:-1], len(s.changes) - 1
            folded = {"fold": min(s.fold, count), "trimmed": min(s.trimmed, count)}
            yield "changelog put back", s._replace(changes=older, copies=s.copies + 1, **folded)
        if s.offsets:
            done = s.done - {len(s.offsets) - 1}
            yield "checkpoint put back", s._replace(offsets=s.offsets[:-1], done=done, copies=s.copies + 1)

    def _driver(self, s: State, d: Driver, at: int) -> Steps:
        match d.phase:
            case "off":
                yield self._started(s, d)
            case "idle":
                yield from self._planning(s, d)
            case "planning":
                yield from self._planned(s, d)
            case "planned":
                yield from self._checked(s, d)
            case "ready" | "begins" | "looked":
                yield from self._term(s, d, at)
            case "computes":
                yield from self._computed(s, d)
            case "computed":
                yield self._checked_again(s, d)
            case "sides" | "sided":
                yield from self._commit(s, d, at)
            case "committed":
                yield self._finished(s, d)

    def _checked_again(self, s: State, d: Driver) -> tuple[str, State, Driver]:
        if s.offsets[d.batch] != d.high and "offsets" not in self.without:
            return "is fenced by offsets", s, Driver()
        # Between this and the commits anything may happen.
        has_rows = d.late and d.side_batch < d.batch
        return "compares offsets", s, d._replace(phase="sides" if has_rows else "sided")

    def _finished(self, s: State, d: Driver) -> tuple[str, State, Driver]:
        mine = bool(d.attempt and s.changes and d.attempt == s.changes[-1].attempt)
        after = d._replace(
            phase="idle",
            memory=d.high,
            last=d.batch,
            last_input=d.high,
            expected=d.attempt if mine else d.expected,
            attempt=0,
            rows=frozenset(),
            late=frozenset(),
            pinned=-1,
            side_high=-1,
            seen_changes=len(s.changes) if mine else d.seen_changes,
            seen_sides=len(s.side) if mine else d.seen_sides,
        )
        return "writes the checkpoint's commit", s._replace(done=s.done | {d.batch}), after

    def _started(self, s: State, d: Driver) -> tuple[str, State, Driver]:
        last, side = s.changes[-1] if s.changes else None, s.side[-1] if s.side else None
        known, latest = last.batch if last else -1, len(s.offsets) - 1
        if last and known <= latest and s.offsets[known] != last.high and "compared" not in self.without:
            return "refuses to start", s, d._replace(phase="refused")
        pinned = side.settings if side and side.batch > known and "settings" not in self.without else -1
        started = Driver(
            own=s.config,
            last=known,
            last_input=last.high if last else -1,
            expected=last.attempt if last else 0,
            side_batch=side.batch if side else -1,
            seen_changes=len(s.changes),
            seen_sides=len(s.side),
            pinned=pinned,
            side_high=side.high if side and side.batch > known else -1,
        )
        if latest >= 0 and latest not in s.done:
            low = s.offsets[latest - 1] if latest else 0
            again = started._replace(phase="planned", batch=latest, low=low, high=s.offsets[latest], memory=low)
            return "starts, runs again", s, again
        memory = s.offsets[latest] if latest >= 0 else 0
        return "starts", s, started._replace(phase="idle", batch=latest, memory=memory)

    def _planning(self, s: State, d: Driver) -> Steps:
        batch = d.batch + 1
        if s.source <= d.memory or batch >= self.batches:
            return
        if batch < len(s.offsets):
            yield "finds another's plan", s, Driver()  # Spark ends with an error
        else:
            yield "plans", s, d._replace(phase="planning", batch=batch, low=d.memory, high=s.source)

    def _planned(self, s: State, d: Driver) -> Steps:
        before, after = s.offsets[: d.batch], s.offsets[d.batch + 1 :]
        if d.batch < len(s.offsets) and not self.overwrite:
            yield "finds another's plan", s, Driver()
        else:
            yield "writes offsets", s._replace(offsets=(*before, d.high, *after)), d._replace(phase="planned")

    def _checked(self, s: State, d: Driver) -> Steps:
        if d.batch >= len(s.offsets):
            yield "has no plan", s, Driver()
            return
        if s.offsets[d.batch] != d.high and "offsets" not in self.without:
            yield "is fenced by offsets", s, Driver()
            return
        other = d.batch == d.last and d.last_input != d.high and "input" not in self.without
        if d.batch not in (d.last, d.last + 1) or other:
            yield "refuses", s, d._replace(phase="refused")
        elif d.batch > d.last and d.side_high not in (-1, d.high) and "interrupted" not in self.without:
            yield "refuses another input of an interrupted batch", s, d._replace(phase="refused")
        elif d.batch == d.last:
            yield "skips", s, d._replace(phase="committed")
        else:
            has_term = d.term or not self.without.isdisjoint({"term", "fence"})
            yield "goes on", s, d._replace(phase="computes" if has_term else "ready")

    def _term(self, s: State, d: Driver, at: int) -> Steps:
        """Begin the term on the changelog, then on the side table."""
        ignores = "since" in self.without
        if d.phase == "ready":
            if len(s.changes) > d.seen_changes and not ignores:
                yield "finds another's batch", s, Driver()
                return
            yield (
                "begins its term on the changelog",
                s._replace(holders=(at, s.holders[SIDE])),
                d._replace(phase="begins"),
            )
        elif d.phase == "begins":
            # The transaction on the side table begins, then the driver looks at the changelog.
            if len(s.side) > d.seen_sides and not ignores:
                yield "finds another's side rows", s, Driver()
            elif s.holders[CHANGES] != at and "order" not in self.without:
                yield "finds another's term", s, Driver()
            else:
                yield "looks at the changelog", s, d._replace(phase="looked", clean=True)
        elif not d.clean and "conflict" not in self.without:
            yield "begins again on the side table", s, d._replace(phase="begins")
        else:
            new = _written(s._replace(holders=(s.holders[CHANGES], at)), at)
            yield "begins its term on the side table", new, d._replace(phase="computes", term=True)

    def _computed(self, s: State, d: Driver) -> Steps:
        settings = d.pinned if d.pinned >= 0 else d.own
        events = frozenset(range(d.low, d.high))
        rows = frozenset(event for event in events if not late(event, settings))
        attempt = _unused(s)
        computed = {"settings": settings, "attempt": attempt, "rows": rows, "late": events - rows}
        for place in range(len(s.stores)):
            new = self._with_store(s, d, place, attempt, rows)
            yield f"computes at {place}", new, d._replace(phase="computed", **computed)

    def _with_store(self, s: State, d: Driver, place: int, attempt: int, rows: frozenset[int]) -> State:
        """Bring the store to the expected attempt as a shard's task does, and leave the writes beside it."""
        at, content, pending = s.stores[place]
        wanted = _accepted_until(s.changes, d.expected)
        if at != d.expected:
            waiting = next((p for p in pending if p[0] == d.expected and p[1] == at), None)
            content = wanted if waiting is None else content | waiting[2]  # restored from the tables, or followed
            if "restore" in self.without and waiting is None:
                content = s.stores[place].events
            at = d.expected
        store = Store(at, content, ((attempt, at, rows),))
        if content != wanted and any(commit.attempt == d.expected for commit in s.changes):
            store = Store(-1, content)
        return s._replace(stores=(*s.stores[:place], store, *s.stores[place + 1 :]))

    def _commit(self, s: State, d: Driver, at: int) -> Steps:
        """Commit a table's rows. Delta puts a version if it is absent, and looks for conflicts: so it is one step."""
        is_side = d.phase == "sides"
        table, log, seen = (SIDE, s.side, d.seen_sides) if is_side else (CHANGES, s.changes, d.seen_changes)
        what = ("changelog", "side table")[table]
        if self.without.isdisjoint({"term", "fence"}) and s.holders[table] != at:
            yield f"is fenced by a term at the {what}", s, Driver()
        elif any(c.batch >= d.batch for c in log[seen:]) and "fence" not in self.without:
            yield f"is fenced by a batch at the {what}", s, Driver()
        else:
            rows = d.late if is_side else d.rows
            made = (*log, Commit(d.batch, d.attempt, d.low, d.high, d.settings, rows))
            if is_side:
                yield (
                    "commits side rows",
                    _written(s._replace(side=made), at),
                    d._replace(phase="sided", side_batch=d.batch),
                )
            else:
                yield "commits the changelog", s._replace(changes=made), d._replace(phase="committed")

    def wrong(self, s: State) -> str | None:
        """Return what is wrong with a state; None if nothing is."""
        if any(store.attempt == -1 for store in s.stores):
            return "a store differs from the changelog at its commit"
        if s.trimmed > s.fold:
            return f"trimmed up to {s.trimmed}, folded up to {s.fold}"
        lows = [0, *(commit.high for commit in s.changes)]
        found = (_wrong_batch(s, number, low) for number, low in zip(range(len(s.changes)), lows, strict=False))
        return next(filter(None, found), None)


def _wrong_batch(s: State, number: int, low: int) -> str | None:
    """Return what is wrong with a batch of the changelog, before which events up to `low` were read."""
    commit = s.changes[number]
    if commit.batch != number:
        return f"batch {commit.batch} at place {number} of the changelog"
    if commit.low != low:
        lost = "lost" if commit.low > low else "counted twice"
        return f"batch {number} reads from {commit.low}, the one before ended at {low}: events are {lost}"
    sides = [side.rows for side in s.side if side.batch == number]
    if len(sides) > 1:
        return f"two side commits of batch {number}"
    told = sides[0] if sides else frozenset()
    if told & commit.rows or (told | commit.rows) != frozenset(range(commit.low, commit.high)):
        return f"batch {number} of events {commit.low} to {commit.high}: changelog {sorted(commit.rows)}, side table {sorted(told)}"
    return None


def _with_driver(s: State, at: int, driver: Driver) -> State:
    """Return the state with another driver; one that runs no more holds no table."""
    if driver.phase in ("off", "refused"):
        s = s._replace(holders=tuple(NOBODY if holder == at else holder for holder in s.holders))
    return s._replace(drivers=(*s.drivers[:at], driver, *s.drivers[at + 1 :]))


def _written(s: State, by: int) -> State:
    """Return the state after a write to the side table, which a transaction of another driver that has begun conflicts with."""
    return s._replace(drivers=tuple(d if at == by else d._replace(clean=False) for at, d in enumerate(s.drivers)))


def _unused(s: State) -> int:
    """Return a number for an attempt: the least that nobody remembers, so that there are not more states than needed."""
    used = {commit.attempt for log in (s.side, s.changes) for commit in log}
    used |= {number for d in s.drivers for number in (d.attempt, d.expected)}
    used |= {number for store in s.stores for number in (store.attempt, *(p for of in store.pending for p in of[:2]))}
    return next(number for number in range(1, len(used) + 2) if number not in used)


def _accepted_until(changes: tuple[Commit, ...], attempt: int) -> frozenset[int]:
    found: frozenset[int] = frozenset()
    for commit in changes:
        found |= commit.rows
        if commit.attempt == attempt:
            return found
    return found if attempt else frozenset()


class Found(NamedTuple):
    """What a search has found."""

    states: int
    whole: bool
    """Whether these are all states that can be reached."""
    wrong: str | None
    path: list[str]
    """The shortest way to what is wrong."""
    refusals: int
    """States in which a driver has refused to go on."""


def search(model: Model, seconds: float = 1e9) -> Found:
    """Look at all states, those of fewest steps first, until one is wrong, the time is over, or there are MOST.

    A state is known by its hash of 64 bits, as millions of them would not fit into memory.
    """
    first = hash(model.first)
    came, queue, refusals = {first: first}, deque([model.first]), 0
    until = time.monotonic() + seconds
    while queue:
        state = queue.popleft()
        refusals += any(driver.phase == "refused" for driver in state.drivers)
        wrong = model.wrong(state)
        if wrong is not None:
            return Found(len(came), True, wrong, _path(model, came, hash(state)), refusals)
        if len(came) >= MOST or (not len(queue) % 100 and time.monotonic() > until):
            return Found(len(came), False, None, [], refusals)
        for _, new in model.steps(state):
            number = hash(new)
            if number not in came:
                came[number] = hash(state)
                queue.append(new)
    return Found(len(came), True, None, [], refusals)


def _path(model: Model, came: dict[int, int], number: int) -> list[str]:
    """Return the names of the steps to a state."""
    numbers = [number]
    while came[numbers[-1]] != numbers[-1]:
        numbers.append(came[numbers[-1]])
    state, names = model.first, []
    for wanted in numbers[-2::-1]:
        name, state = next((name, new) for name, new in model.steps(state) if hash(new) == wanted)
        names.append(name)
    return names


CASES: dict[str, dict[str, Any]] = {
    "one driver, stores at two places": {"drivers": 1, "kills": 2, "stores": 2},
    "one driver, folds and trims": {"drivers": 1, "kills": 2, "flips": 0, "folds": 2},
    "one driver, an older copy put back": {"drivers": 1, "kills": 1, "copies": 1},
    "two drivers": {},
    "two drivers, offsets can be overwritten": {"overwrite": True},
}
"""What holds, by the bounds in which all states are searched."""
ONE_BATCH: dict[str, Any] = {"events": 2, "batches": 1}
SMALL: dict[str, dict[str, Any]] = {
    **{name: {"events": 3, "batches": 2, **CASES[name]} for name in list(CASES)[:3]},
    "two drivers": {"events": 2, "batches": 1, "config": 1, "kills": 0},
    "two drivers, offsets can be overwritten": {
        "events": 2,
        "batches": 1,
        "config": 1,
        "flips": 0,
        "kills": 0,
        "overwrite": True,
    },
}
"""The same for `make test`: a second or two each."""
MUTANTS: dict[str, dict[str, Any]] = {
    "term": ONE_BATCH,
    "fence": {**ONE_BATCH, "flips": 0},
    "since": ONE_BATCH,
    "order": ONE_BATCH,
    "conflict": ONE_BATCH,
    "settings": {**ONE_BATCH, "drivers": 1, "config": 1},
    "interrupted": {**ONE_BATCH, "flips": 0, "config": 1, "overwrite": True},
    "compared": {"events": 2, "batches": 2, "overwrite": True, "flips": 0},
    "input": {"drivers": 1, "flips": 0, "copies": 1},
    "restore": {"drivers": 1, "kills": 2, "flips": 0, "stores": 2},
    "trim": {"drivers": 1, "kills": 0, "flips": 0, "folds": 2},
}
"""What does not hold: the step that is left out, and the bounds in which that is found."""


def main() -> None:
    """Search within larger and larger bounds until the time is over; exit code 1 if anything is wrong."""
    until, grown = time.monotonic() + float(sys.argv[1]), 0
    while time.monotonic() < until:
        for name, bounds in CASES.items():
            larger = {
                "events": 2 + (grown + 1) // 2,
                "batches": 1 + (grown + 1) // 2,
                "kills": bounds.get("kills", 1) + grown // 2,
            }
            began = time.monotonic()
            found = search(Model(**{**bounds, **larger}), until - began)
            holds = "holds" if found.whole else "holds in those that were looked at"
            sys.stdout.write(
                f"{name}, {larger['events']} events, {larger['batches']} batches, {larger['kills']} kills: {found.states:,} states, "
                f"{time.monotonic() - began:.0f} s: {found.wrong or holds}\n"
            )
            sys.stdout.flush()
            if found.wrong:
                sys.exit(f"after {len(found.path)} steps: {'; '.join(found.path)}")
        grown += 1


if __name__ == "__main__":
    main()
