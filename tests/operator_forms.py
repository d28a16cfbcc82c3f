"""Further forms of the operators for the suites that all of them share: each event once, sent by policy, with aggregates that come later, with look-ups."""

import math
import random
from typing import ClassVar

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from sessionlake.warehouse import schemas
from tests.engine.crash_support import SECOND, TABLES, Row, config_of, events, write_events
from tests.joined_lakes import JoinLake, OuterJoinByBatchLake, OuterJoinLake
from tests.operator_lake import MINUTE_US, OperatorLake, Rows, us
from tests.operators_table import LAKES, GroupLake, ProcessLake, SessionLake, WindowLake
from tests.oracle import session_emission
from tests.oracle.model import ReferenceModel
from tests.oracle.unique import UniqueModel


class PolicyLake(OperatorLake):
    """Sessions that are sent when they are full, and what changes later when they close."""

    wanted: ClassVar[tuple[str, ...]] = ("accepted", "late", "dead", "upserts", "deletes")
    template: ClassVar[str] = config_of("""\
[session]
gap = "10 minutes"
grace = "{grace}"
retention = "{retention}"

[emit]
early = "off"
late = "close"
""")
    tables: ClassVar[tuple[str, ...]] = (TABLES[0], "stored_session_changelog", *TABLES[1:])

    def check(self) -> None:
        super().check()
        rows = self.rows(self.changelog)
        assert {row["trigger"] for row in rows if row["op"] == "upsert"} == {"full", "late"}

    def answer(self) -> Rows:
        minutes = (minutes * MINUTE_US for minutes in (10, 15, 40))
        model = session_emission.EmissionModel(*minutes, late="close")
        given = ([session_emission.Event(row["key"], row["time"], row["v"]) for row in batch] for batch in self.input())
        return sorted(tuple(row) for batch in given for row in model.batch(batch, 0).rows)

    def sent(self) -> Rows:
        found = []
        for row in self.rows(self.changelog):
            start, end = us(row["session_start"]), us(row["session_end"])
            more = (end, row["event_count"], row["total"], row["trigger"]) if row["op"] == "upsert" else (0, 0, 0, "")
            found.append((row["op"], row["session_key"], start, *more))
        return sorted(found)


class UniqueLake(OperatorLake):
    """A pipeline whose senders repeat events: in a file, and in the next one. The oracle gets each once."""

    unique_for: ClassVar[int] = 30 * MINUTE_US
    retention: ClassVar[float] = 40 * MINUTE_US
    in_order: ClassVar[bool] = False
    """Whether the first copy counts, and not the one with the least columns."""

    def write_files(self, files: range) -> None:
        for number in files:
            lines, before = events(number), events(number - 1) if number else []
            again = [*lines[:6], *before[:12]]
            random.Random(number).shuffle(again)
            write_events(self.events / f"{number}.json", number, [*lines, *again])

    def input(self) -> list[list[Row]]:
        model = UniqueModel(self.unique_for, self.retention, in_order=self.in_order)
        watermark, found = -math.inf, list[list[Row]]()
        for batch in super().input():
            passed, _ = model.batch([{**row, "time_us": row["time"], "id": row["tag"]} for row in batch], watermark)
            found.append([batch[place] for place in passed])
            watermark = max([watermark, *(row["time"] for row in found[-1])])
        return found


def unique_template(template: str) -> str:
    return template.replace('time_unit = "s"', 'time_unit = "s"\nid = "tag"\nunique_for = "30 minutes"')


UNIQUE_TABLES = (schemas.EVENT_IDS, schemas.DUPLICATES)


class UniqueSessionLake(UniqueLake, SessionLake):
    """Sessions of senders that repeat events."""

    wanted: ClassVar[tuple[str, ...]] = (*SessionLake.wanted, "duplicate")
    template: ClassVar[str] = unique_template(SessionLake.template)
    tables: ClassVar[tuple[str, ...]] = (*SessionLake.tables, *UNIQUE_TABLES)


class UniqueWindowLake(UniqueLake, WindowLake):
    """Windows of senders that repeat events."""

    wanted: ClassVar[tuple[str, ...]] = (*WindowLake.wanted, "duplicate")
    template: ClassVar[str] = unique_template(WindowLake.template).replace('"30 minutes"', '"40 minutes"')
    tables: ClassVar[tuple[str, ...]] = (*WindowLake.tables, *UNIQUE_TABLES)
    unique_for: ClassVar[int] = 40 * MINUTE_US


class UniqueGroupLake(UniqueLake, GroupLake):
    """Groups of senders that repeat events; a group takes events of any age, so an old one is refused only for its identity."""

    wanted: ClassVar[tuple[str, ...]] = (*GroupLake.wanted, "duplicate")
    template: ClassVar[str] = unique_template(GroupLake.template)
    tables: ClassVar[tuple[str, ...]] = (*GroupLake.tables, *UNIQUE_TABLES)
    retention: ClassVar[float] = math.inf


class UniqueProcessLake(UniqueLake, ProcessLake):
    """A class that gets the events of senders that repeat them; its rows are told without their positions, because duplicates have some, too."""

    wanted: ClassVar[tuple[str, ...]] = (*ProcessLake.wanted, "duplicate")
    template: ClassVar[str] = unique_template(ProcessLake.template)
    tables: ClassVar[tuple[str, ...]] = (*ProcessLake.tables, *UNIQUE_TABLES)
    in_order: ClassVar[bool] = True

    def answer(self) -> Rows:
        return sorted((key, *rest) for key, _, *rest in super().answer())

    def sent(self) -> Rows:
        return sorted((key, *rest) for key, _, *rest in super().sent())


class UniqueJoinLake(UniqueLake, JoinLake):
    """A join both of whose sides have senders that repeat events; results are told by their times, because duplicates have positions, too."""

    wanted: ClassVar[tuple[str, ...]] = (*JoinLake.wanted, "duplicate")
    template: ClassVar[str] = JoinLake.template.replace(
        'time_unit = "s" }}', 'time_unit = "s", id = "tag", unique_for = "40 minutes" }}'
    )
    tables: ClassVar[tuple[str, ...]] = (*JoinLake.tables, *UNIQUE_TABLES)
    unique_for: ClassVar[int] = 40 * MINUTE_US
    in_order: ClassVar[bool] = True

    def answer(self) -> Rows:
        pairs, times = self.pairs()
        return sorted((key, times["left", left], times["right", right]) for key, left, right in pairs)

    def sent(self) -> Rows:
        rows = self.rows(self.changelog)
        return sorted((row["join_key"], us(row["left_time"]), us(row["right_time"])) for row in rows)


class GrowingLake(OperatorLake):
    """A pipeline that gets two more aggregates between the halves of its input: one of a column that it did not read."""

    def correct(self, spark: SparkSession) -> None:
        super().correct(spark)
        self.configure(added=ADDED)


ADDED = 'most = "max(v)"\nodd = "count_if(time % 2 = 1)"'


def growing_template(template: str) -> str:
    return template.replace("[aggregates]", "[aggregates]\n{added}")


class GrowingSessionLake(GrowingLake, SessionLake):
    """Sessions that get more aggregates."""

    template: ClassVar[str] = growing_template(SessionLake.template)


class GrowingWindowLake(GrowingLake, WindowLake):
    """Windows that get more aggregates."""

    template: ClassVar[str] = growing_template(WindowLake.template)
    outcomes: ClassVar[tuple[str, ...]] = ("applied",)


class LookedUpSessionLake(SessionLake):
    """Sessions that sum up a column of another table, which gets a new version between the halves of the input."""

    template: ClassVar[str] = (
        SessionLake.template
        + """\
weight = "sum(people_weight)"

[[lookup]]
name = "people"
path = "people"
on = "tag = id"
columns = ["weight"]
missing = "dead_letter"
"""
    )
    weights: ClassVar[tuple[dict[str, int], ...]] = (
        {"a": 1, "b": 20, "c": 300, "d": 4000},
        {"a": 5, "b": 60, "c": 700, "d": 8000, "e": 90_000},
    )
    """By version; an event of e is refused before there is a row for it."""

    def write_files(self, files: range) -> None:
        super().write_files(files)
        if not self.versions:
            self.add_version()

    def add_version(self) -> None:
        """Write the next version of the table."""
        rows = [{"id": id_, "weight": weight} for id_, weight in self.weights[self.versions].items()]
        write_deltalake(self.root / "people", pa.Table.from_pylist(rows), mode="overwrite")

    @property
    def versions(self) -> int:
        """The number of versions that are there."""
        return len(list((self.root / "people" / "_delta_log").glob("*.json")))

    def correct(self, spark: SparkSession) -> None:
        super().correct(spark)
        self.add_version()

    def input(self) -> list[list[Row]]:
        found = []
        for number, batch in enumerate(super().input()):
            weights = self.weights[int(number in SECOND and self.versions > 1)]
            found.append([{**row, "weight": weights[row["tag"]]} for row in batch if row["tag"] in weights])
        return found

    def answer(self) -> Rows:
        texts = {"total": "sum(v)", "last": "last(tag)", "weight": "sum(weight)"}
        model = ReferenceModel(10 * MINUTE_US, 15 * MINUTE_US, 40 * MINUTE_US, texts)
        for batch in self.input():
            model.process(
                [{"time_us": row["time"], **{n: row[n] for n in ("key", "v", "tag", "weight")}} for row in batch]
            )
        names = ("key", "start_us", "end_us", "event_count", "total", "last", "weight", "revision")
        return sorted(tuple(row[name] for name in names) for row in model.all_sessions())

    def sent(self) -> Rows:
        names = ("event_count", "total", "last", "weight", "revision")
        return sorted(
            (row["session_key"], us(row["session_start"]), us(row["session_end"]), *(row[name] for name in names))
            for row in self.latest("session_key", "session_start")
        )


def on_rocksdb(form: type[OperatorLake]) -> type[OperatorLake]:
    """Return a form whose stores are RocksDB's."""
    template = form.template.replace("[pipeline]", '[pipeline]\nstore_engine = "rocksdb"', 1)
    return type(f"Rocks{form.__name__}", (form,), {"template": template})


FORMS: dict[str, type[OperatorLake]] = {**LAKES, "session by policy": PolicyLake, "unique session": UniqueSessionLake}
FORMS |= {"unique window": UniqueWindowLake, "unique group": UniqueGroupLake, "unique join": UniqueJoinLake}
FORMS |= {"unique process": UniqueProcessLake, "growing session": GrowingSessionLake}
FORMS |= {"growing window": GrowingWindowLake, "looked-up session": LookedUpSessionLake}
FORMS |= {"outer join": OuterJoinLake, "outer join by batch": OuterJoinByBatchLake}
ON_ROCKSDB = {f"{name} on rocksdb": on_rocksdb(form) for name, form in LAKES.items()}
"""Each operator with stores of RocksDB."""
FORMS |= ON_ROCKSDB
"""`LAKES`, and operators in further forms, by a name of the form."""
