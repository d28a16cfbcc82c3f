"""The operators of two inputs as the shared suites see them."""

import json
from typing import Any, ClassVar, Literal

import pyarrow as pa
from pyspark.sql import SparkSession

from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import CONFIG, TABLES, Row, files_of
from tests.operator_lake import FAR_S, MINUTE_US, OperatorLake, Rows
from tests.oracle import joins, table_joins


class JoinLake(OperatorLake):
    """A stream joined with itself: what is not older than the watermark waits for the end of the run."""

    template: ClassVar[str] = (
        CONFIG[: CONFIG.index("[source]")]
        + """\
[join]
on = ["key"]
grace = "15 minutes"
retention = "40 minutes"
idle = "1000 days"

[join.left]
name = "former"
size = "10 minutes"
columns = ["v"]
source = {{ kind = "files", path = "{events}", format = "json", max_files_per_batch = 1 }}
event = {{ time = "time", time_unit = "s" }}

[join.right]
name = "latter"
size = "5 minutes"
columns = ["tag"]
source = {{ kind = "files", path = "{events}", format = "json", max_files_per_batch = 1 }}
event = {{ time = "time", time_unit = "s" }}

[emit]
early = "1000 days"
late = "batch"
"""
    )
    outcomes: ClassVar[tuple[str, ...]] = ("applied",)
    changelog: ClassVar[str] = "join_changelog"
    tables: ClassVar[tuple[str, ...]] = ("join_changelog", schemas.JOIN_MESSAGES, *TABLES[1:])

    def content(self) -> dict[str, Any]:
        found = super().content()
        for _, _, state in found["counts"]:
            del state["seen_us"]
        return found

    def check(self) -> None:
        super().check()
        sent = [commit["counts"]["upserts"] for commit in self.commits()]
        assert any(sent[:-1]), "nothing was sent before the end of the run: no message was older than the watermark"
        assert sent[-1], "nothing waited for the end of the run"

    def answer(self) -> Rows:
        return self.pairs()[0]

    def pairs(self) -> tuple[Rows, dict[tuple[str, int], int]]:
        """Return the pairs by key and positions, and the time of each accepted message by side and position."""
        reach = joins.Reach("sliding", left=10 * MINUTE_US, right=5 * MINUTE_US)
        model = joins.JoinModel(
            reach, grace=15 * MINUTE_US, retention=40 * MINUTE_US, early=10**18, idle=10**18, late="batch"
        )
        times = dict[tuple[str, int], int]()
        for batch in self.input():
            given = [joins.Given(s, row["key"], row["time"]) for s in ("left", "right") for row in batch]
            times |= {(m.side, m.position): m.time for m in model.batch(given, 0).accepted}
        model.batch([], 0, flush=True)
        return sorted(model.sent), times

    def sent(self) -> Rows:
        return sorted(
            (row["join_key"], row["left_position"], row["right_position"]) for row in self.rows(self.changelog)
        )


class TableJoinLake(OperatorLake):
    """Events joined with every second one of them, all of them for ever: no event is late, and the others have no partner."""

    wanted: ClassVar[tuple[str, ...]] = ("accepted", "dead", "filtered", "upserts", "deletes")
    outcomes: ClassVar[tuple[str, ...]] = ("applied", "malformed")
    template: ClassVar[str] = (
        CONFIG[: CONFIG.index("[source]")]
        + """\
[table_join]
on = ["key"]
type = "full"

[table_join.left]
name = "former"
columns = ["v"]
source = {{ kind = "files", path = "{events}", format = "json", max_files_per_batch = 1 }}
event = {{ time = "time", time_unit = "s", where = "v % 2 = 0" }}

[table_join.right]
name = "latter"
columns = ["tag"]
source = {{ kind = "files", path = "{events}", format = "json", max_files_per_batch = 1 }}
event = {{ time = "time", time_unit = "s" }}
"""
    )
    changelog: ClassVar[str] = "joined_row_changelog"
    tables: ClassVar[tuple[str, ...]] = (
        *("joined_row_changelog", "side_row_changelog"),
        *(schemas.DEAD_LETTERS, schemas.CORRECTION_OUTCOMES),
    )

    def correct(self, spark: SparkSession) -> None:
        """Ask for a result to be deleted that is there no longer, and for what is no correction."""
        gone = next(row for row in self.rows(self.changelog) if row["op"] == "delete")
        places = {"ordinal": gone["left_position"], "other_ordinal": gone["right_position"]}
        named = {"kind": "tombstone", "key": gone["joined_row_key"], "job": "test", "created_at": 0, "start_time": 0}
        rows = [{**named, "correction_id": "c0", **places}, {**named, "correction_id": "c1"}]
        table = pa.Table.from_pylist(rows, schema=schemas.CORRECTIONS_SCHEMA)
        Tables.of(spark, self.config)[schemas.CORRECTIONS].append_rows(table)

    def input(self) -> list[list[Row]]:
        """Return the events of each file as ever, and those without a key."""
        lines = (file.read_text().splitlines() for file in files_of(self.events))
        parsed = ([json.loads(line) for line in some if line != "{broken"] for some in lines)
        return [[{**row, "key": row["key"] or "[null]"} for row in rows if row["time"] < FAR_S] for rows in parsed]

    def answer(self) -> Rows:
        model = table_joins.TableJoin(1, ("left", "right"))
        for batch in self.input():
            left = [("left", (row["key"], row["key"], row["v"]), 1) for row in batch if not row["v"] % 2]
            model.batch([*left, *(("right", (row["key"], row["key"], row["tag"]), 1) for row in batch)])
        found = ((left or right, left, right) for left, right in model.results().elements())
        return sorted(((of[0], left and left[1], right and right[1]) for of, left, right in found), key=repr)

    def sent(self) -> Rows:
        rows = self.latest("joined_row_key", "left_position", "right_position")
        return sorted(((row["joined_row_key"], row["former_v"], row["latter_tag"]) for row in rows), key=repr)


class OuterJoinLake(JoinLake):
    """Events joined with every second one of them: the others have no partner, nor do some of the first or the last."""

    unmatched: ClassVar[Literal["close", "batch"]] = "close"
    wanted: ClassVar[tuple[str, ...]] = ("accepted", "late", "dead", "filtered")
    template: ClassVar[str] = (
        JoinLake.template.replace("[join]\n", '[join]\ntype = "full"\n')
        .replace('early = "1000 days"', 'early = "batch"\nunmatched = "close"')
        .replace('time_unit = "s" }}', 'time_unit = "s", where = "v % 2 = 0" }}', 1)
    )

    def check(self) -> None:
        OperatorLake.check(self)
        rows = self.rows(self.changelog)
        assert {"left_time", "right_time"} == {n for n in ("left_time", "right_time") for row in rows if row[n] is None}
        assert any(row["left_time"] and row["right_time"] for row in rows)
        assert self.sent() == self.answer()

    def answer(self) -> Rows:
        reach = joins.Reach("sliding", left=10 * MINUTE_US, right=5 * MINUTE_US)
        times = {"grace": 15 * MINUTE_US, "retention": 40 * MINUTE_US, "idle": 10**18}
        model = joins.JoinModel(reach, **times, outer=("left", "right"), unmatched=self.unmatched)
        for batch in self.input():
            given = {"left": [row for row in batch if row["v"] % 2 == 0], "right": batch}
            model.batch([joins.Given(side, row["key"], row["time"]) for side, rows in given.items() for row in rows], 0)
        return sorted([*model.sent, *model.alone.values()])

    def sent(self) -> Rows:
        names = ("join_key", "left_position", "right_position")
        return sorted(tuple(row[name] for name in names) for row in self.latest(*names))


class OuterJoinByBatchLake(OuterJoinLake):
    """The same, with rows that are deleted if a partner comes."""

    unmatched: ClassVar[Literal["close", "batch"]] = "batch"
    wanted: ClassVar[tuple[str, ...]] = (*OuterJoinLake.wanted, "deletes")
    template: ClassVar[str] = OuterJoinLake.template.replace('unmatched = "close"', 'unmatched = "batch"')
