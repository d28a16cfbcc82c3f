"""The operators as the suites that all of them share see them: for each a pipeline, and an oracle of the rows that it must give.

A new operator is one class, in `LAKES`. The input of all is the files of `tests/engine/crash_support.py`, which hold late,
repeated, dead and malformed events; an operator's oracle is one of `tests/oracle`, which share no code with the package.
"""

from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import SparkSession

from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import (
    CONFIG,
    FIRST,
    SECOND,
    TABLES,
    Lake,
    Row,
    config_of,
)
from tests.joined_lakes import JoinLake, TableJoinLake
from tests.operator_lake import MINUTE_US, OperatorLake, Rows, keeping_replaced, us
from tests.operators.process import processors
from tests.oracle import counts, groups, process, tables, windows
from tests.oracle.model import ReferenceModel

FILES = range(FIRST[0], SECOND[-1] + 1)
PROCESSORS = Path(processors.__file__).parent


class SessionLake(OperatorLake):
    """Sessions, some of which are merged and removed by late events and by corrections of each kind."""

    template: ClassVar[str] = keeping_replaced(CONFIG)
    tables: ClassVar[tuple[str, ...]] = (*TABLES, schemas.REPLACED_ROWS)

    wanted: ClassVar[tuple[str, ...]] = ("accepted", "late", "dead", "upserts", "deletes")

    def correct(self, spark: SparkSession) -> None:
        Lake.correct(self, spark)

    def answer(self) -> Rows:
        model = ReferenceModel(10 * MINUTE_US, 15 * MINUTE_US, 40 * MINUTE_US, {"total": "sum(v)", "last": "last(tag)"})
        for batch in self.input():
            model.process([{"time_us": row["time"], **{n: row[n] for n in ("key", "v", "tag")}} for row in batch])
        names = ("key", "start_us", "end_us", "event_count", "total", "last", "revision")
        return sorted(tuple(row[name] for name in names) for row in model.all_sessions())

    def check(self) -> None:
        super().check()
        deleted = [row for row in self.rows(self.changelog) if row["op"] == "delete"]
        watermarks = {commit["batch_id"]: commit["state"]["watermark_us"] for commit in self.commits()}
        if self.totals().get("applied"):
            cold = 50 * MINUTE_US
            assert any(
                us(row["session_end"]) < watermarks[row["batch_id"] - 1] - cold for row in deleted if row["batch_id"]
            )

    def sent(self) -> Rows:
        rows = self.latest("session_key", "session_start")
        return sorted(
            (r["session_key"], us(r["session_start"]), us(r["session_end"]), *(r[n] for n in SESSION)) for r in rows
        )


SESSION = ("event_count", "total", "last", "revision")


def without_revisions(lake: OperatorLake, rows: Rows) -> Rows:
    """Return rows without their revisions, which sessions have as last value: corrections may be batches of their own."""
    return [row[:-1] for row in rows] if isinstance(lake, SessionLake) else rows


class WindowLake(OperatorLake):
    """Hopping windows: what is not full waits, and so does what changes later, until it closes."""

    wanted: ClassVar[tuple[str, ...]] = ("accepted", "late", "partly_late", "dead")
    template: ClassVar[str] = config_of("""\
[window]
kind = "hopping"
size = "20 minutes"
advance = "10 minutes"
grace = "15 minutes"
retention = "40 minutes"

[emit]
early = "off"
late = "close"
""")
    changelog: ClassVar[str] = "window_changelog"
    tables: ClassVar[tuple[str, ...]] = ("window_changelog", "slice_changelog", *TABLES[1:])

    def check(self) -> None:
        super().check()
        assert {row["trigger"] for row in self.rows(self.changelog)} == {"full", "late"}

    def answer(self) -> Rows:
        model = windows.WindowModel(
            "hopping",
            20 * MINUTE_US,
            advance=10 * MINUTE_US,
            grace=15 * MINUTE_US,
            retention=40 * MINUTE_US,
            late="close",
        )
        batches = (model.batch([(row["key"], row["time"], row["v"]) for row in batch], 0) for batch in self.input())
        return sorted(tuple(row) for result in batches for row in result.rows)

    def sent(self) -> Rows:
        names = ("event_count", "total", "trigger")
        return sorted(
            (row["window_key"], us(row["window_start"]), us(row["window_end"]), *(row[name] for name in names))
            for row in self.rows(self.changelog)
        )


class CountLake(OperatorLake):
    """Hopping windows over the messages of the files: those of a key get full by messages of others."""

    wanted: ClassVar[tuple[str, ...]] = ("accepted", "dead", "upserts")
    template: ClassVar[str] = config_of("""\
[window]
kind = "hopping"
by = "count"
per = "partition"
size = 30
advance = 10
retention = "40 minutes"
retention_count = 90

[emit]
early = "off"
""")
    changelog: ClassVar[str] = "window_changelog"
    tables: ClassVar[tuple[str, ...]] = (
        *("window_changelog", "slice_changelog"),
        *(schemas.DEAD_LETTERS, schemas.CORRECTION_OUTCOMES),
    )

    def check(self) -> None:
        super().check()
        rows = self.rows(self.changelog)
        assert {row["trigger"] for row in rows} == {"full"}
        assert len({row["batch_id"] for row in rows}) > 2
        assert self.commits()[-1]["state"]["positions"] == {"events": {"0": self.totals()["accepted"]}}

    def answer(self) -> Rows:
        machine = counts.Machine("grid", 30, 10, 0, per_key=False, early="off", retention=40 * MINUTE_US)
        given = ([(row["key"], 0, row["time"], row["v"]) for row in batch] for batch in self.input())
        return sorted(tuple(row) for batch in given for row in machine.batch(batch, 0)[0])

    def sent(self) -> Rows:
        names = ("window_key", "window_start", "window_end", "event_count", "total", "trigger")
        return sorted(tuple(row[name] for name in names) for row in self.rows(self.changelog))


class TableLake(OperatorLake):
    """A table of the latest event of each key; events with a certain tag delete theirs."""

    wanted: ClassVar[tuple[str, ...]] = ("accepted", "dead", "changed", "superseded", "deletes")
    template: ClassVar[str] = keeping_replaced(
        CONFIG[: CONFIG.index("[session]")]
        + """\
[table]
retention = "40 minutes"
delete_when = "tag = 'e'"
"""
    )
    changelog: ClassVar[str] = "table_changelog"
    tables: ClassVar[tuple[str, ...]] = (
        *("table_changelog", schemas.REPLACED_ROWS),
        *(schemas.DEAD_LETTERS, schemas.CORRECTION_OUTCOMES),
    )

    def check(self) -> None:
        super().check()
        totals = self.totals()
        assert totals["accepted"] == totals["changed"] + totals["superseded"] + totals["unchanged"]
        reasons = {row["reason"] for row in self.rows(schemas.DEAD_LETTERS)}
        assert "beyond retention" in reasons, "no deletion was forgotten"

    def correct(self, spark: SparkSession) -> None:
        """Ask for rows to be deleted: some that are there, one that has changed meanwhile, and what is no correction."""
        last = {row["table_key"]: row for row in sorted(self.rows("table_changelog"), key=lambda r: r["batch_id"])}
        there = sorted((row for row in last.values() if row["op"] == "upsert"), key=lambda row: row["table_key"])
        rows = [("tombstone", row["table_key"], row["revision"]) for row in there[:4]]
        rows += [("tombstone", row["table_key"], row["revision"] + 7) for row in there[4:5]]
        rows += [("no such kind", there[5]["table_key"], 0)]
        table = pa.Table.from_pylist(revisions_named(rows), schema=schemas.CORRECTIONS_SCHEMA)
        Tables.of(spark, self.config)[schemas.CORRECTIONS].append_rows(table)

    def answer(self) -> Rows:
        model = tables.Table(40 * MINUTE_US)
        for batch in self.input():
            model.batch(
                [
                    {"key": r["key"], "time_us": r["time"], "v": r["v"], "s": r["tag"], "deleted": r["tag"] == "e"}
                    for r in batch
                ]
            )
        return sorted((key, row["event_time"], row["v"], row["s"]) for key, row in model.rows().items())

    def sent(self) -> Rows:
        rows = self.latest("table_key")
        return sorted((row["table_key"], us(row["event_time"]), row["v"], row["tag"]) for row in rows)


class GroupLake(OperatorLake):
    """Groups: events of any age change the row of their key."""

    wanted: ClassVar[tuple[str, ...]] = ("accepted", "dead", "upserts")
    template: ClassVar[str] = keeping_replaced(config_of("[group]\n\n"))
    changelog: ClassVar[str] = "group_changelog"
    tables: ClassVar[tuple[str, ...]] = (
        *("group_changelog", schemas.REPLACED_ROWS),
        *(schemas.DEAD_LETTERS, schemas.CORRECTION_OUTCOMES),
    )

    def correct(self, spark: SparkSession) -> None:
        """Ask for rows to be deleted: some that are there, one that has changed meanwhile, and what is no correction."""
        there = sorted(self.latest("group_key"), key=lambda row: row["group_key"])
        rows = [("tombstone", row["group_key"], row["revision"]) for row in there[:4]]
        rows += [("tombstone", row["group_key"], row["revision"] + 7) for row in there[4:5]]
        rows += [("no such kind", there[5]["group_key"], 0)]
        table = pa.Table.from_pylist(revisions_named(rows), schema=schemas.CORRECTIONS_SCHEMA)
        Tables.of(spark, self.config)[schemas.CORRECTIONS].append_rows(table)

    def answer(self) -> Rows:
        model = groups.Groups(_total_and_last)
        for batch in self.input():
            model.batch([(row["key"], (row["time"], row["v"], row["tag"]), 1) for row in batch])
        return model.rows()

    def sent(self) -> Rows:
        names = ("group_key", "event_count", "total", "last")
        return sorted(tuple(row[name] for name in names) for row in self.latest("group_key"))


def _total_and_last(events: list[groups.Event]) -> tuple[Any, ...]:
    """Return the sum of v and the last tag; an event is (time, v, tag)."""
    return sum(v for _, v, _ in events), max((time, tag) for time, _, tag in events)[1]


def revisions_named(rows: list[tuple[str, str, int]]) -> list[Row]:
    """Return corrections of a kind, a key and a revision."""
    return [
        {
            "correction_id": f"c{i}",
            "kind": kind,
            "key": key,
            "revision": revision,
            "job": "test",
            "created_at": 0,
        }
        for i, (kind, key, revision) in enumerate(rows)
    ]


class ProcessLake(OperatorLake):
    """A class that sends rows for events and for timers, and fails at some of both."""

    wanted: ClassVar[tuple[str, ...]] = ("accepted", "dead", "upserts", "timers", "timers_failed")
    outcomes: ClassVar[tuple[str, ...]] = ("applied", "malformed")
    template: ClassVar[str] = (
        CONFIG[: CONFIG.index("[session]")].replace("[pipeline]", f'[pipeline]\ncode = "{PROCESSORS}"')
        + """\
[process]
class = "processors:Pauses"
columns = ["v", "tag"]
retention = "40 minutes"
grace = "5 minutes"

[process.output]
text = "string"
number = "long"
"""
    )
    changelog: ClassVar[str] = "output_changelog"
    tables: ClassVar[tuple[str, ...]] = (
        *("output_changelog", "process_state_changelog"),
        *(schemas.DEAD_LETTERS, schemas.CORRECTION_OUTCOMES),
    )

    def content(self) -> dict[str, Any]:
        found = super().content()
        for _, _, state in found["counts"]:
            del state["clock_timers_us"]
        return found

    def check(self) -> None:
        super().check()
        letters = self.rows(schemas.DEAD_LETTERS)
        assert {"event", "timer"} <= {row["kind"] for row in letters}
        assert any("ValueError: an odd e at processors.py:" in row["reason"] for row in letters)
        removed = [row for row in self.rows("process_state_changelog") if row["op"] == "delete"]
        assert removed, "no state was removed"

    def correct(self, spark: SparkSession) -> None:
        """Ask for the state of a key to be deleted, for a row to be deleted, and for what is no correction."""
        row = max(self.rows("output_changelog"), key=lambda row: (row["position"], row["ordinal"]))
        time = {"start_time": row["output_time"], "ordinal": row["position"], "other_ordinal": row["ordinal"]}
        named = [
            {"kind": "reset", "key": min(r["process_state_key"] for r in self.states())},
            {"kind": "tombstone", "key": row["output_key"], **time},
            {"kind": "no such kind", "key": row["output_key"]},
        ]
        rows = [{"correction_id": f"c{i}", "job": "test", "created_at": 0, **one} for i, one in enumerate(named)]
        table = pa.Table.from_pylist(rows, schema=schemas.CORRECTIONS_SCHEMA)
        Tables.of(spark, self.config)[schemas.CORRECTIONS].append_rows(table)

    def states(self) -> list[Row]:
        """Return the states that there are."""
        changes = sorted(self.rows("process_state_changelog"), key=lambda row: row["batch_id"])
        newest = {row["process_state_key"]: row for row in changes}
        return [row for row in newest.values() if row["op"] == "upsert"]

    def answer(self) -> Rows:
        model = process.Machine(processors.Pauses, {"text": str, "number": int}, 40 * MINUTE_US, 5 * MINUTE_US)
        for batch in self.input():
            model.batch([{"time_us": row["time"], **{n: row[n] for n in ("key", "v", "tag")}} for row in batch])
        return sorted((key, *place, *values.values()) for key, _, *place, values in model.sent)

    def sent(self) -> Rows:
        names = ("output_key", "position", "ordinal", "text", "number")
        return sorted(tuple(row[name] for name in names) for row in self.latest("output_key", "position", "ordinal"))


LAKES: dict[str, type[OperatorLake]] = {
    "session": SessionLake,
    "window": WindowLake,
    "count": CountLake,
    "table": TableLake,
    "group": GroupLake,
    "join": JoinLake,
    "table_join": TableJoinLake,
    "process": ProcessLake,
}
"""By the names of `config/operators.py`."""
