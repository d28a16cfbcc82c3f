# ruff: noqa: ARG002 (methods have the arguments of the interface)
"""Users' processors of the tests; values are small so that ties and boundaries are met."""

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.operators.process import Context, Keys, KeyValueStore, Processor, Timer, Timers

Rows = Iterator[dict[str, Any]]


class Funnel(Processor):
    """The steps a, b, c in this order, and how long each took."""

    def process(self, key: str, row: Any, timers: Timers, store: KeyValueStore) -> Rows:
        at = store.get("at", 0)
        if row["kind"] != "abc"[at]:
            return
        since = store.get("since", row["time_us"])
        yield {"text": row["kind"], "number": row["time_us"] - since}
        if at == 2:
            store.clear()
        else:
            store["at"], store["since"] = at + 1, row["time_us"]


class Sessions(Processor):
    """Sessions by a timer that is set again by each row; the gap is 5."""

    def open(self, context: Context) -> None:
        self.seen = context.key_value_store("seen")

    def process(self, key: str, row: Any, timers: Timers, store: KeyValueStore) -> Rows:
        self.seen["first"] = min(self.seen.get("first", row["time_us"]), row["time_us"])
        store["n"] = store.get("n", 0) + 1
        before = timers.get("gap")
        at = row["time_us"] + 5
        timers.set(at if before is None else max(before.at_us, at), "gap")
        yield from ()

    def on_timer(self, key: str, at_us: int, timers: Timers, store: KeyValueStore) -> Rows:
        yield {"text": timers.fired.name, "number": store["n"], "other": float(self.seen["first"])}
        store.clear()
        self.seen.clear()


class FirstAfterPause(Processor):
    """The first row after a pause of more than 7."""

    def process(self, key: str, row: Any, timers: Timers, store: KeyValueStore) -> Rows:
        last = store.get("last")
        if last is not None and row["time_us"] - last > 7:
            yield {"text": "back", "number": row["time_us"] - last}
        store["last"] = row["time_us"] if last is None else max(last, row["time_us"])


class RateLimiter(Processor):
    """Two rows in each stretch of 4: others are counted, and told of by a timer at the stretch's end."""

    def process(self, key: str, row: Any, timers: Timers, store: KeyValueStore) -> Rows:
        stretch = row["time_us"] // 4
        name = f"{stretch}"
        store[name] = store.get(name, 0) + 1
        timers.set(stretch * 4 + 3, name)
        if store[name] <= 2:
            yield {"text": "passed", "number": row["value"]}

    def on_timer(self, key: str, at_us: int, timers: Timers, store: KeyValueStore) -> Rows:
        n = store.pop(timers.fired.name)
        if n > 2:
            yield {"text": "refused", "number": n - 2}


class Chained(Processor):
    """Timers that set, cancel and replace others, two rows at a time, and a name that sorts before."""

    def process(self, key: str, row: Any, timers: Timers, store: KeyValueStore) -> Rows:
        kind = row["kind"]
        if kind == "a":
            timers.set(row["time_us"] + 2, "x")
            timers.set(row["time_us"] + 2, "b")
        elif kind == "b":
            timers.cancel("x")
            timers.set(row["time_us"] - 3, "past")
        else:
            store["c"] = [*store.get("c", []), row["value"]]
        return [{"text": kind, "number": 1}, {"text": kind, "number": len(list(timers))}]

    def on_timer(self, key: str, at_us: int, timers: Timers, store: KeyValueStore) -> Rows:
        fired: Timer = timers.fired
        yield {"text": fired.name, "number": at_us}
        if fired.name == "b":
            timers.cancel("x")
            timers.set(at_us + 3, "x")
        elif fired.name == "x" and store.get("rounds", 0) < 3:
            store["rounds"] = store.get("rounds", 0) + 1
            timers.set(at_us + 1, "x")
        elif fired.name == "past":
            del store["missing"]


class Raising(Processor):
    """Counts rows; raises at some, after it has changed state, timers and output; its timers raise, too."""

    def process(self, key: str, row: Any, timers: Timers, store: KeyValueStore) -> Rows:
        store["n"] = store.get("n", 0) + 1
        timers.set(row["time_us"] + 3, row["kind"])
        yield {"text": "counted", "number": store["n"]}
        if row["value"] == 0:
            raise ValueError("a zero")
        if row["value"] == 1:
            yield {"text": 1}
        if row["value"] == 2:
            yield {"unknown": 1}
        if row["value"] == 3:
            store["large"] = "x" * 3000

    def on_timer(self, key: str, at_us: int, timers: Timers, store: KeyValueStore) -> Rows:
        store["n"] = store["n"] + 10
        yield {"text": "timer", "number": store["n"]}
        if timers.fired.name == "b":
            timers.set(at_us, "again")


class Clocked(Processor):
    """A reminder by the clock, 10 after the batch's, that replaces the one before it."""

    def process(self, key: str, row: Any, timers: Timers, store: KeyValueStore) -> Rows:
        timers.set_clock(timers.clock_us + 10, row["kind"])
        if row["value"] == 4:
            timers.set(row["time_us"] + 5, "event")
        return []

    def on_timer(self, key: str, at_us: int, timers: Timers, store: KeyValueStore) -> Rows:
        yield {"text": timers.fired.name, "number": at_us, "flag": timers.fired.clock}
        if timers.fired.name == "a" and store.get("again", 0) < 2:
            store["again"] = store.get("again", 0) + 1
            timers.set_clock(at_us + 3, "a")
            timers.set(0, "old")


class Order(Processor):
    """The rows' times as they come."""

    def process(self, key: str, row: Any, timers: Timers, store: KeyValueStore) -> Rows:
        yield {"text": "", "number": row["time_us"]}


class Counting(Processor):
    """How many rows the state has seen."""

    def process(self, key: str, row: Any, timers: Timers, store: KeyValueStore) -> Rows:
        store["n"] = store.get("n", 0) + 1
        yield {"text": "", "number": store["n"]}


class Alarm(Processor):
    """A row of kind a sets a timer `value` minutes later; one of kind b is sent."""

    def process(self, key: str, row: Any, timers: Timers, store: KeyValueStore) -> Rows:
        if row["kind"] == "a":
            timers.set(row["time_us"] + row["value"] * 60_000_000)
        elif row["kind"] == "b":
            yield {"text": "row", "number": 0}

    def on_timer(self, key: str, at_us: int, timers: Timers, store: KeyValueStore) -> Rows:
        yield {"text": "timer", "number": at_us}


class DayAndGap(Alarm):
    """Two timers at one time: the first cancels the second."""

    def process(self, key: str, row: Any, timers: Timers, store: KeyValueStore) -> Rows:
        timers.set(row["time_us"] + 600_000_000, "gap")
        timers.set(row["time_us"] + 600_000_000, "day")
        return iter(())

    def on_timer(self, key: str, at_us: int, timers: Timers, store: KeyValueStore) -> Rows:
        timers.cancel("gap")
        yield {"text": timers.fired.name, "number": at_us}


class EachMinute(Processor):
    """A timer that sets itself again for each minute."""

    def process(self, key: str, row: Any, timers: Timers, store: KeyValueStore) -> Rows:
        if row["kind"] == "a":
            timers.set(row["time_us"] + 60_000_000)
        return iter(())

    def on_timer(self, key: str, at_us: int, timers: Timers, store: KeyValueStore) -> Rows:
        timers.set(at_us + 60_000_000)
        yield {"text": "", "number": at_us}


class Two(Processor):
    """Two rows for each row, and one for a timer 5 later."""

    def process(self, key: str, row: Any, timers: Timers, store: KeyValueStore) -> Rows:
        timers.set(row["time_us"] + 5)
        return iter([{"text": "first"}, {"text": "second"}])

    def on_timer(self, key: str, at_us: int, timers: Timers, store: KeyValueStore) -> Rows:
        yield {"text": "timer"}


class NotOne:
    """No processor."""


class CountingTables(Processor):
    """`Counting` over Arrow tables, which raises at the value 0; a timer a minute after a key's last row."""

    vectorised = True

    def process_table(self, rows: pa.Table, keys: Keys) -> pa.Table:
        if pc.any(pc.equal(rows["value"], 0)).as_py():
            raise ValueError("a zero")
        group = rows["group"].to_numpy()
        seen = pc.fill_null(keys.get("n", pa.int64()), 0).to_numpy()
        first = np.searchsorted(group, np.arange(len(keys)))
        number = seen[group] + np.arange(len(group)) - first[group] + 1
        keys.put("n", pa.array(seen + np.bincount(group, minlength=len(keys))))
        keys.set_timers(pa.array(rows["time_us"].to_numpy()[np.append(first[1:], len(group)) - 1] + 5), "late")
        return pa.table({"row": np.arange(len(group)), "number": number, "text": [""] * len(group)})

    def on_timer(self, key: str, at_us: int, timers: Timers, store: KeyValueStore) -> Rows:
        yield {"text": timers.fired.name, "number": store["n"]}


class Pauses(Processor):
    """The rows of a key up to a pause of ten minutes: a row for each tag `a`, one for the pause, and an error at each tag `e`."""

    def open(self, context: Context) -> None:
        self.tags = context.key_value_store("tags")

    def process(self, key: str, row: Any, timers: Timers, store: KeyValueStore) -> Rows:
        store["total"] = store.get("total", 0) + row["v"]
        self.tags[row["tag"]] = self.tags.get(row["tag"], 0) + 1
        timers.set(row["time_us"] + 600_000_000, "pause")
        if row["tag"] == "e" and row["v"] % 2:
            raise ValueError("an odd e")
        if row["tag"] == "a":
            yield {"text": "a", "number": store["total"]}

    def on_timer(self, key: str, at_us: int, timers: Timers, store: KeyValueStore) -> Rows:
        if self.tags.get("d", 0) > 1:
            raise ValueError("two d")
        yield {"text": "pause", "number": store["total"]}
        store.clear()
        self.tags.clear()


class Own(BaseException):
    """An error of a library that is no Exception."""


class UnsaidError(Exception):
    """An error that raises when its text is asked for."""

    def __str__(self) -> str:
        raise ValueError("no text")


ENDINGS = (SystemExit, GeneratorExit, asyncio.CancelledError, Own, UnsaidError)


class Ending(Processor):
    """Raises ENDINGS at the values 0 to 4, and where the generator ends at 5; its timers raise the first."""

    def process(self, key: str, row: Any, timers: Timers, store: KeyValueStore) -> Rows:
        store["n"] = store.get("n", 0) + 1
        timers.set(row["time_us"] + 3, "t")
        if row["value"] < 5:
            raise ENDINGS[row["value"]]
        try:
            yield {"text": 1} if row["value"] == 5 else {"text": "counted", "number": store["n"]}
        finally:
            if row["value"] == 5:
                sys.exit(5)

    def on_timer(self, key: str, at_us: int, timers: Timers, store: KeyValueStore) -> Rows:
        sys.exit(1)


class EndingTables(Processor):
    """Raises ENDINGS over Arrow tables, at the values 0 to 4."""

    vectorised = True

    def process_table(self, rows: pa.Table, keys: Keys) -> pa.Table:
        for value in rows["value"].to_pylist():
            if value < 5:
                raise ENDINGS[value]
        return pa.table({"row": pa.array(range(len(rows)), pa.int64())})


class EndingAtOnce(Processor):
    """Ends its process when it is opened."""

    def open(self, context: Context) -> None:
        sys.exit(4)
