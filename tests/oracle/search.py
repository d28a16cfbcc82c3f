"""Search random streams, in the model alone, for what breaks the invariants of docs/rules.md when a rule is read in a weaker way.

Run as `python -m tests.oracle.search [seconds per variant]`; each variant prints how many streams it broke, and the
smallest.
"""

# ruff: noqa: ARG002, T201 - a variant may ignore what the rule looks at; a script prints its findings

from __future__ import annotations

import copy
import itertools
import random
import sys
import time
from collections.abc import Callable

from tests.oracle.model import Atom, Outcome, ReferenceModel, Row, Session, atom_of, components, distance

AGGREGATES = {"total": "sum(v)", "least": "min(v)", "most": "max(v)"}


class Nothing(ReferenceModel):
    """Cold sessions stay absent for replacements too."""

    def is_visible(self, session: Session, put: list[Atom]) -> bool:
        return session.end >= self.horizon

    def _is_live(self, key: str, start: int, revision: int, removed: set[tuple[str, int]]) -> bool:
        session = self.table.get((key, start))
        return super()._is_live(key, start, revision, removed) and session.end >= self.horizon


class NamedOnly(ReferenceModel):
    """Only the cold sessions that the correction names are handed in."""

    def is_visible(self, session: Session, put: list[Atom]) -> bool:
        return session.end >= self.horizon


class Overlapping(ReferenceModel):
    """Cold sessions that overlap a put, the gap left out."""

    def is_visible(self, session: Session, put: list[Atom]) -> bool:
        return session.end >= self.horizon or any(a.key == session.key and distance(a, session) == 0 for a in put)


class PutBelowHorizon(ReferenceModel):
    """Cold sessions within gap of a put, looked for only when the put STARTS below the horizon."""

    def is_visible(self, session: Session, put: list[Atom]) -> bool:
        return session.end >= self.horizon or any(
            a.key == session.key and a.start < self.horizon and distance(a, session) <= self.gap for a in put
        )


class RemovedHull(ReferenceModel):
    """Cold sessions are looked for only in replacements that name one below the horizon (start < horizon)."""

    def _replaced(self, rows: list[Row], out: Outcome) -> tuple[set[tuple[str, int]], list[Atom]]:
        removed, put = super()._replaced(rows, out)
        self.reaching = {name[0] for name in removed if name[1] < self.horizon}
        return removed, put

    def is_visible(self, session: Session, put: list[Atom]) -> bool:
        return session.end >= self.horizon or (
            session.key in self.reaching and any(a.key == session.key and distance(a, session) <= self.gap for a in put)
        )


class WithinGap(ReferenceModel):
    """Cold sessions within gap of a put, one hop; start - gap < horizon is the only trigger."""

    def is_visible(self, session: Session, put: list[Atom]) -> bool:
        return session.end >= self.horizon or any(
            a.key == session.key and a.start - self.gap < self.horizon and distance(a, session) <= self.gap for a in put
        )


class FirstHopOfHull(ReferenceModel):
    """Cold sessions within gap of [least start, largest end] over the named and put intervals of the key."""

    def _replaced(self, rows: list[Row], out: Outcome) -> tuple[set[tuple[str, int]], list[Atom]]:
        removed, put = super()._replaced(rows, out)
        self.hulls = {}
        for name in removed:
            session = self.table[name]
            self.hulls.setdefault(session.key, []).extend((session.start, session.end))
        for atom in put:
            self.hulls.setdefault(atom.key, []).extend((atom.start, atom.end))
        return removed, put

    def is_visible(self, session: Session, put: list[Atom]) -> bool:
        hull = self.hulls.get(session.key)
        return session.end >= self.horizon or (
            hull is not None and session.start <= max(hull) + self.gap and session.end >= min(hull) - self.gap
        )


class PutsCountAsExpired(ReferenceModel):
    """Puts below retention merge with warm and cold, removed sessions are looked up only in the warm store."""

    def _is_live(self, key: str, start: int, revision: int, removed: set[tuple[str, int]]) -> bool:
        session = self.table.get((key, start))
        return super()._is_live(key, start, revision, removed) and session.end >= self.horizon


class SegmentColdPhysical(ReferenceModel):
    """Cold sessions that are still in the store are merged with, whatever the batch."""

    def is_visible(self, session: Session, put: list[Atom]) -> bool:
        return session.end >= self.horizon - 3 or any(a.key == session.key for a in put)


class RestateByEnd(ReferenceModel):
    """A restated partial is expired by its END."""

    def _restated(self, rows: list[Row], out: Outcome) -> list[Atom]:
        good = []
        for row in rows:
            if row["end_us"] < self.oldest:
                out.counts["expired"] += 1
                out.dead.append(row)
            else:
                out.counts["applied"] += 1
                good.append(atom_of(row, row["start_us"], row["end_us"], None, row["end_us"] + self.gap))
        return good


class EventPartialsOfStoredLate(ReferenceModel):
    """Horizon without the extra gap (Kafka)."""

    @property
    def horizon(self) -> float:
        return super().horizon + self.gap


VARIANTS: dict[str, type[ReferenceModel]] = {
    "the rules (whole key handed in when it has an applied put)": ReferenceModel,
    "cold within gap of a put; trigger put.start - gap < horizon": WithinGap,
    "cold within gap of the hull of named and put": FirstHopOfHull,
    "cold named are stale, cold around a put handed in": PutsCountAsExpired,
    "cold absent for replacements too": Nothing,
    "only the named cold sessions": NamedOnly,
    "cold overlapping a put (no gap)": Overlapping,
    "cold within gap; trigger put.start < horizon": PutBelowHorizon,
    "cold within gap; trigger a NAMED session starts below the horizon": RemovedHull,
    "cold but physically there is merged": SegmentColdPhysical,
    "restated partial expires by END": RestateByEnd,
    "horizon = W - retention (Kafka)": EventPartialsOfStoredLate,
}


def random_config(rng: random.Random) -> Row:
    gap, grace = rng.randint(1, 4), rng.randint(0, 4)
    return {
        "gap": gap,
        "grace": grace,
        "retention": gap + grace + rng.choice([0, 0, 1, 5]),
        "policy": rng.choice(["dead_letter", "drop", "emit"]),
    }


def random_rows(rng: random.Random, model: ReferenceModel, keys: str) -> list[Row]:
    """Draw a batch around the places where the rules change: W, close, retention, horizon, edges of the sessions."""
    table = sorted(model.table.values(), key=lambda s: s.name)
    mark = model.watermark or 0

    def moment() -> int:
        spots = [rng.randint(0, 50), mark + rng.randint(0, 12), mark - rng.randint(0, 20)]
        if table:
            session = rng.choice(table)
            spots += [session.start - model.gap + rng.randint(-1, 1), session.end + model.gap + rng.randint(-1, 1)]
        return rng.choice(spots)

    def partial() -> Row:
        start = moment()
        return {
            "start_us": start,
            "end_us": start + rng.choice([0, 0, 1, model.gap, rng.randint(0, 20)]),
            "event_count": rng.randint(1, 3),
            "v": rng.randint(0, 3),
        }

    rows: list[Row] = []
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice(["event", "event", "event", "restate", "replace", "replace", "tombstone"])
        key = rng.choice(keys)
        mine = [s for s in table if s.key == key]
        if kind == "event":
            rows.append({"key": key, "time_us": moment(), "v": rng.randint(0, 3)})
        elif kind == "restate":
            rows.append({"kind": kind, "key": key, **partial()})
        elif kind == "tombstone" and mine:
            session = rng.choice(mine)
            rows.append(
                {
                    "kind": kind,
                    "key": key,
                    "start_us": session.start,
                    "end_us": session.end,
                    "revision": session.revision + rng.choice([0, 0, 0, 1]),
                }
            )
        elif kind == "replace":
            named = rng.sample(mine, rng.randint(0, min(2, len(mine))))
            rows.append(
                {
                    "kind": kind,
                    "key": key,
                    "remove": [(s.start, s.revision + rng.choice([0, 0, 0, 0, 0, 1])) for s in named],
                    "put": [partial() for _ in range(rng.randint(0, 2))],
                }
            )
    return rows


def violation(config: Row, batches: list[list[Row]], variant: type[ReferenceModel]) -> str | None:
    """Run a stream; say which invariant broke. The ledger goes by intervals, not by the model's sessions."""
    model = variant(config["gap"], config["grace"], config["retention"], AGGREGATES, config["policy"])
    ledger: list[Atom] = []
    folded: dict[tuple[str, int], Row] = {}
    for number, rows in enumerate(batches):
        before, oldest = dict(model.table), model.oldest
        out = model.process(rows)
        new, gone = accounted(rows, out, before, oldest)
        ledger = [a for a in ledger if not any(s.key == a.key and s.start <= a.start <= s.end for s in gone)] + new
        broken = misfolded(folded, out, model) or touching(model) or miscounted(out) or unlike_batch(ledger, model)
        if broken:
            return f"batch {number}: {broken}"
    return None


def accounted(
    rows: list[Row], out: Outcome, before: dict[tuple[str, int], Session], oldest: float
) -> tuple[list[Atom], list[Session]]:
    """Return the atoms a batch added and the sessions it removed, by what it refused."""
    rejected = out.late + out.dead
    new: list[Atom] = []
    gone: list[Session] = []
    for row in rows:
        kind = row.get("kind", "event")
        if kind in ("replace", "tombstone"):
            if any(row is other for other in out.stale):
                continue
            named = [(row["start_us"], 0)] if kind == "tombstone" else row["remove"]
            gone += [before[row["key"], start] for start, _ in named]
            new += [atom_of({**p, "key": row["key"]}, p["start_us"], p["end_us"]) for p in row.get("put", [])]
        elif any(_same(row, other) for other in rejected):
            continue
        elif kind == "restate":
            new.append(atom_of(row, row["start_us"], row["end_us"]))
        elif row["time_us"] >= oldest:
            new.append(atom_of(row, row["time_us"], row["time_us"]))
    return new, gone


def misfolded(folded: dict[tuple[str, int], Row], out: Outcome, model: ReferenceModel) -> str | None:
    for change in out.changes:
        name = change["key"], change["start_us"]
        if change["op"] == "upsert":
            folded[name] = {k: v for k, v in change.items() if k != "op"}
        elif change["op"] == "delete" and folded.pop(name, None) is None:
            return f"delete of an unknown session {change}"
    return None if [folded[n] for n in sorted(folded)] == model.all_sessions() else "the folded changes differ"


def touching(model: ReferenceModel) -> str | None:
    sessions = sorted(model.table.values(), key=lambda s: s.name)
    for one, other in itertools.pairwise(sessions):
        if one.key == other.key and distance(one, other) <= model.gap:
            return f"within gap: [{one.start},{one.end}] [{other.start},{other.end}]"
    return None


def miscounted(out: Outcome) -> str | None:
    parts = sum(out.counts[name] for name in ("accepted", "late", "dead", "dropped", "emitted"))
    return None if out.counts["input"] == parts else f"counts {out.counts}"


def unlike_batch(ledger: list[Atom], model: ReferenceModel) -> str | None:
    expected: list[tuple[object, ...]] = []
    for key in sorted({a.key for a in ledger}):
        groups = components([a for a in ledger if a.key == key], model.gap)
        expected.extend(summary(key, group) for group in groups)
    table = sorted(summary(s.key, s.atoms) for s in model.table.values())
    return None if sorted(expected) == table else f"table {table} expected {sorted(expected)}"


def summary(key: str, atoms: list[Atom] | tuple[Atom, ...]) -> tuple[object, ...]:
    values = sorted(a.column("v") for a in atoms)
    return key, min(a.start for a in atoms), max(a.end for a in atoms), sum(a.event_count for a in atoms), tuple(values)


def _same(row: Row, other: Row) -> bool:
    return row == {k: v for k, v in other.items() if k != "reason"} and not row.keys() & {"remove"}


def shrink(batches: list[list[Row]], breaks: Callable[[list[list[Row]]], bool]) -> list[list[Row]]:
    """Leave out rows and batches, greedily, while the stream still breaks."""
    changed = True
    while changed:
        changed = False
        for b in reversed(range(len(batches))):
            for r in reversed(range(len(batches[b]))):
                smaller = copy.deepcopy(batches)
                del smaller[b][r]
                if breaks(smaller):
                    batches, changed = smaller, True
                    continue
                for part in ("put", "remove"):
                    for p in reversed(range(len(batches[b][r].get(part, [])))):
                        smaller = copy.deepcopy(batches)
                        del smaller[b][r][part][p]
                        if breaks(smaller):
                            batches, changed = smaller, True
    return batches


def search(
    variant: type[ReferenceModel], seconds: float, seed: int
) -> tuple[int, int, tuple[Row, list[list[Row]]] | None]:
    rng = random.Random(seed)
    deadline = time.monotonic() + seconds
    streams = broken = 0
    smallest = None
    while time.monotonic() < deadline:
        config = random_config(rng)
        model = variant(config["gap"], config["grace"], config["retention"], AGGREGATES, config["policy"])
        keys = rng.choice(["a", "a", "ab"])
        batches = []
        for _ in range(rng.randint(2, 7)):
            batches.append(random_rows(rng, model, keys))
            model.process(batches[-1])
        streams += 1
        if violation(config, batches, variant):
            broken += 1
            if broken <= 40:
                small = shrink(batches, lambda b, c=config: violation(c, b, variant) is not None)
                if smallest is None or len(str(small)) < len(str(smallest[1])):
                    smallest = config, small
    return streams, broken, smallest


def outputs(config: Row, batches: list[list[Row]], variant: type[ReferenceModel]) -> list[object]:
    """Return all that a stream shows, without regard to the order of the lists."""
    model = variant(config["gap"], config["grace"], config["retention"], AGGREGATES, config["policy"])
    shown = []
    for rows in batches:
        out = model.process(rows)
        lists = [sorted(map(repr, part)) for part in (out.changes, out.late, out.dead, out.stale)]
        shown.append((lists, out.counts, model.watermark, model.all_sessions()))
    return shown


def conflicting(rows: list[Row]) -> bool:
    """Say whether two corrections of a batch name one session."""
    named = [(row["key"], start) for row in rows if row.get("kind") == "replace" for start, _ in row["remove"]]
    named += [(row["key"], row["start_us"]) for row in rows if row.get("kind") == "tombstone"]
    return len(named) > len(set(named))


def compare(seconds: float, seed: int) -> None:
    """Print how often order inside a batch, or handing in less than the whole key, changes what is shown."""
    rng = random.Random(seed)
    deadline = time.monotonic() + seconds
    streams = dict.fromkeys(["conflict-free", "conflicting"], 0)
    differ = dict.fromkeys(["conflict-free", "conflicting", "WithinGap", "FirstHopOfHull"], 0)
    while time.monotonic() < deadline:
        config = random_config(rng)
        model = ReferenceModel(config["gap"], config["grace"], config["retention"], AGGREGATES, config["policy"])
        batches = []
        for _ in range(rng.randint(2, 7)):
            batches.append(random_rows(rng, model, "a"))
            model.process(batches[-1])
        kind = "conflicting" if any(map(conflicting, batches)) else "conflict-free"
        streams[kind] += 1
        expected = outputs(config, batches, ReferenceModel)
        shuffled = [rng.sample(rows, len(rows)) for rows in batches]
        differ[kind] += outputs(config, shuffled, ReferenceModel) != expected
        for variant in (WithinGap, FirstHopOfHull):
            differ[variant.__name__] += outputs(config, batches, variant) != expected
    print(f"\n## streams {streams}; shown differently when shuffled or handed in less: {differ}")


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10
    compare(seconds, seed=11)
    for title, variant in VARIANTS.items():
        streams, broken, smallest = search(variant, seconds, seed=7)
        print(f"\n## {title}: {broken} of {streams} streams broken")
        if smallest:
            config, batches = smallest
            print("  ", config)
            for number, rows in enumerate(batches):
                for row in rows:
                    print(f"   batch {number}: {row}")
            print("   ->", violation(config, batches, variant))


if __name__ == "__main__":
    main()
