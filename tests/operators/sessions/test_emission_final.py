"""The column `final` of sessions that are sent by policy, as DuckDB computes it, against a flag a session (docs/rules.md, rule 267)."""

from typing import Any

import duckdb
import pyarrow as pa
import pytest

from sessionlake.operators.sessions.changelog import SESSIONS, STORED
from sessionlake.operators.sessions.section import SessionSection
from sessionlake.testing.harness import SessionizerHarness
from sessionlake.warehouse.changelog import shown_sql
from sessionlake.warehouse.dialects import DUCKDB
from tests.operators.sessions.emission_streams import S, Stream, played, section, stream
from tests.oracle.session_emission import EmissionModel, Event

Key = tuple[str, int]


class Tables:
    """The state's tables in DuckDB: the sessions as of some batch, which are folded, and the changes since another one, not later."""

    def __init__(self, given: Stream, folds: int) -> None:
        early_full_late = section(given.policies)
        self.section = SessionSection(
            gap=f"{given.gap} s", grace=f"{given.grace} s", retention=f"{given.retention} s", emit=early_full_late
        )
        self.folds, self.batch = folds, -1
        self.now: dict[Key, int] = {}
        self.folded: dict[Key, int] = {}
        self.changes: list[tuple[str, str, int, int]] = []
        self.finals = self.wrong_by_time_alone = 0

    def look(self, run: SessionizerHarness, model: EmissionModel) -> None:
        """Take the changes of a batch, and compare which shown rows are final."""
        self.batch += 1
        before, self.now = self.now, {(r["key"], r["start_us"]): r["revision"] for r in run._tables.live.values()}
        self.changes += [("delete", *key, self.batch) for key in before.keys() - self.now.keys()]
        self.changes += [("upsert", *key, self.batch) for key, at in self.now.items() if before.get(key) != at]
        if self.batch % self.folds == 0:
            # The fold is behind: the changes are trimmed at the next one.
            self.changes = [row for row in self.changes if row[3] > self.batch - self.folds]
            self.folded = dict(self.now)
        found = self.found(run, model)
        told = {(s.key, s.start) for s in model.sessions if not s.unsent and s.end <= model.closed}
        assert {key for key, (_, final) in found.items() if final} == told
        self.finals += len(told)
        self.wrong_by_time_alone += sum(closed and not final for closed, final in found.values())

    def found(self, run: SessionizerHarness, model: EmissionModel) -> dict[Key, tuple[bool, bool]]:
        """Return by shown row whether its time is closed, and whether it is final."""
        database = duckdb.connect()
        database.execute("set timezone = 'UTC'; create temp macro unix_micros(moment) as epoch_us(moment)")
        rows = run._tables.sent.values()
        shown = [(r["key"], r["start_us"], r["end_us"], r["revision"]) for r in rows]
        changes = [(*row, row[3]) for row in self.changes]
        for name, columns, values in (
            ("shown", ("session_key", "session_start", "session_end", "revision"), shown),
            (STORED.snapshot, (STORED.key, STORED.start, "revision"), [(*k, v) for k, v in self.folded.items()]),
            (STORED.changes, ("op", STORED.key, STORED.start, "batch_id", "revision"), changes),
        ):
            given = pa.table(
                {c: pa.array([v[i] for v in values], _TYPES.get(c, pa.int64())) for i, c in enumerate(columns)}
            )
            database.register(f"given_{name}", given)
            database.execute(f"create table {name} as select * from given_{name}")
        closed = self.section.final_sql(
            "session_end", {"watermark_us": None if model.batches == 0 else model.watermark * S}
        )
        marked = shown_sql(f"select *, {closed} as closed from shown", None, closed, SESSIONS.held_sql(DUCKDB, str))
        text = f"select session_key, epoch_us(session_start), closed, final from ({marked})"
        return {(key, start // S): (bool(a), bool(b)) for key, start, a, b in database.sql(text).fetchall()}


_TIME = pa.timestamp("us", "UTC")
_TYPES: dict[str, Any] = {"session_key": pa.string(), STORED.key: pa.string(), "op": pa.string()} | dict.fromkeys(
    ("session_start", "session_end", STORED.start), _TIME
)


@pytest.mark.parametrize("folds", [1, 3])
def test_a_row_is_final_if_its_session_is_closed_and_has_not_changed_since(folds: int) -> None:
    finals = 0
    for seed in range(20):
        given = stream(seed, changes=False)
        if given.own_gaps or given.max_length is not None or given.before is not None:
            continue
        tables = Tables(given, folds)
        for _ in played(given, looks=tables.look):
            pass
        finals += tables.finals
    assert finals > 0


def test_a_session_that_has_grown_since_it_was_full_is_not_final() -> None:
    """Rule 267's example, in seconds: the times of the row alone would call it closed, while it goes on."""
    given = Stream(10, 5, 60, own_gaps=False, max_length=None, policies=("off", "end", 10), batches=(), shards=1)
    tables, model = Tables(given, folds=100), given.model()
    with given.harness() as run:
        for key, time in (("a", 1000), ("a", 1005), ("b", 1016), ("a", 1015), ("b", 1021)):
            run.process([{"key": key, "time_us": time * S, "value": 1, "gap": 0}], clock_us=0)
            model.batch([Event(key, time, 1)], 0)
            tables.look(run, model)
        assert tables.wrong_by_time_alone == 1
        run.process([{"kind": "advance", "time_us": 1100 * S}], clock_us=0)
        model.batch((), 0, advance=1100)
        tables.look(run, model)
        assert tables.finals == 2
