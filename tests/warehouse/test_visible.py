"""How a pipeline's results differ between two of its batches, for every operator: the steps of any reader add up to what is there."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sessionlake.config.operators import named
from sessionlake.jobs.compact import compact
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import batches_after
from sessionlake.warehouse.changelog import SIGN
from sessionlake.warehouse.seen import Visible
from sessionlake.warehouse.tables import Tables
from sessionlake.warehouse.visible import View
from tests.engine.crash_support import FIRST, SECOND, Row, run_once
from tests.operator_forms import FORMS
from tests.operator_lake import MINUTE_US, OperatorLake, us
from tests.operators_table import LAKES
from tests.warehouse.replaced_support import replaced_by

pytestmark = pytest.mark.slow
UNSEEN = {"op", "batch_id", "commit_id", "at", "emitted_at", "written_at", "inserted_at"}
"""Columns of a changelog that are about the change, or that `Lake.rows` leaves out."""
CHANGING = ("session", "window", "table", "group", "outer join by batch", "table_join")
"""The pipelines whose rows change."""
STEPS = 3
Seen = Counter[tuple[Any, ...]]


@dataclass(frozen=True)
class Story:
    """A pipeline that ran, was compacted, corrected, and ran on."""

    name: str
    lake: OperatorLake
    tables: Tables
    changes: list[Row]
    """All that it has logged, also what compaction has trimmed since."""
    columns: list[str]
    """Those that changes and the snapshot have."""
    computed: list[str]
    """Columns that only the snapshot has, for example the date of a start."""

    @property
    def kept(self) -> list[str]:
        """The columns of kept rows."""
        return [name for name in self.columns if name not in self.tables.changelog.of_changes]

    def rows(self, batch_id: int, state: Mapping[str, Any], final: "Final | None") -> Seen:
        """Return the rows as of a batch, by the changes up to it."""
        newest: dict[tuple[Any, ...], Row] = {}
        for row in sorted(self.changes, key=lambda row: row["batch_id"]):
            if row["batch_id"] <= batch_id:
                newest[tuple(row[name] for name in self.tables.changelog.identity)] = row
        there = [row for row in newest.values() if row["op"] == "upsert" and (final is None or final(row, state))]
        return Counter(plain(row, self.columns) for row in there)


Final = Callable[[Row, Mapping[str, Any]], bool]
FINAL: dict[str, Final] = {
    "session": lambda row, state: us(row["session_end"]) + 25 * MINUTE_US < state["watermark_us"],
    "window": lambda row, state: us(row["window_end"]) + 15 * MINUTE_US <= state["watermark_us"],
    "count": lambda row, state: row["window_end"] <= state["positions"]["events"]["0"],
    # The lesser size: no message that comes later is older than that.
    "join": lambda row, state: us(row["join_time"]) + 15 * MINUTE_US < state["watermark_us"],
    "process": lambda _, __: True,
    # Both sizes and the grace.
    "outer join": lambda row, state: us(row["join_time"]) + 30 * MINUTE_US < state["watermark_us"],
}
FINAL["outer join by batch"] = FINAL["outer join"]
"""By pipeline, whether a row is final after a batch, by the settings of its form."""


def plain(row: Mapping[str, Any], columns: list[str]) -> tuple[Any, ...]:
    values = (row[name] for name in columns)
    return tuple(us(value) if isinstance(value, datetime) else repr(value) for value in values)


@pytest.fixture(scope="module", params=[*LAKES, "outer join", "outer join by batch"])
def story(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Story:
    root = tmp_path_factory.mktemp(request.param)
    lake = FORMS[request.param](root / "lake", root / "events")
    lake.write_files(FIRST)
    run_once(spark, lake)
    changes = lake.rows(lake.changelog)
    compact(spark, lake.config)
    lake.correct(spark)
    lake.write_files(SECOND)
    run_once(spark, lake)
    known = {row["batch_id"] for row in changes}
    changes += [row for row in lake.rows(lake.changelog) if row["batch_id"] not in known]
    compact(spark, lake.config)
    tables = Tables.of(spark, lake.config)
    there = {*tables[tables.changelog.snapshot].read().columns} - UNSEEN - {*tables.changelog.hidden}
    logged = there & {*changes[0]}
    return Story(request.param, lake, tables, changes, sorted(logged), sorted(there - logged))


@pytest.mark.parametrize("rows", ["changes", "final"])
def test_the_steps_of_any_reader_add_up(story: Story, rows: str) -> None:
    config = story.lake.config
    final = rows == "final"
    if final and not (config.section.facts.closes or config.section.facts.never_changes):
        pytest.skip("its rows never close")
    name = story.name
    view = View(story.tables, config.section, final=final)
    batches = list(batches_after(story.tables))
    assert len(batches) > STEPS
    rng = random.Random(name)
    seen, computed, before, taken_back = Seen(), Seen(), None, 0
    # A step of one batch is among them.
    read = {*rng.sample(range(len(batches) - 1), STEPS - 1), len(batches) - 2, len(batches) - 1}
    for batch in (batches[number] for number in sorted(read)):
        now = Visible.of(batch, config.section, before)
        assert Visible.read(now.text()) == now
        found = view.difference(before, now, story.columns + story.computed).toArrow().to_pylist()
        for row in found:
            seen[plain(row, story.columns)] += row[SIGN]
            computed[plain(row, story.computed)] += row[SIGN]
            taken_back += row[SIGN] < 0
        assert +seen == seen, "a row was taken back that was not there"
        wanted = story.rows(batch.batch_id, batch.state, FINAL[name] if final else None)
        assert {row: n for row, n in seen.items() if n} == wanted
        before = now
    assert seen
    whole = view.difference(None, now, story.computed).toArrow().to_pylist()
    assert +computed == Counter(plain(row, story.computed) for row in whole)
    if not final and name in CHANGING:
        assert taken_back, "no row has changed"
    again = view.difference(before, now, story.columns)
    assert not again.count()
    assert named(config.entry.changelog) == story.tables.changelog


def test_rows_are_kept_as_a_batch_found_them(story: Story) -> None:
    if not story.lake.config.section.facts.knows_replaced:
        pytest.skip("its shards do not know the rows that they replace")
    of = story.tables.changelog
    replaced = replaced_by(story.changes, of.identity)
    wanted = Counter((batch, *plain(row, story.kept)) for batch, row in replaced)
    kept = story.lake.rows(schemas.REPLACED_ROWS)
    assert Counter((row["batch_id"], *plain(row, story.kept)) for row in kept) == wanted
    assert len(wanted) > len({batch for batch, *_ in wanted}) > 1


@pytest.mark.parametrize("steps", [1, 2, 9])
def test_kept_rows_give_the_same_as_those_that_are_found(story: Story, steps: int) -> None:
    section = story.lake.config.section
    if not section.facts.knows_replaced:
        pytest.skip("its shards do not know the rows that they replace")
    view = View(story.tables, section, final=False)
    batches = [Visible.of(batch, section, None) for batch in batches_after(story.tables)]
    pairs = [*zip(batches, batches[steps:], strict=False)] or [(batches[0], batches[-1])]
    columns = story.kept + story.computed
    for before, now in pairs:
        found = [
            signed(rows, columns) for rows in (view.signed(before, now, columns), view.difference(before, now, columns))
        ]
        assert found[0] == found[1]
        assert view._replaced(before, now) is not None


def signed(rows: DataFrame, columns: list[str]) -> dict[tuple[Any, ...], int]:
    """Return each row with the sum of its signs, but for those that cancel."""
    seen: Seen = Counter()
    for row in rows.toArrow().to_pylist():
        seen[plain(row, columns)] += row[SIGN]
    return {row: number for row, number in seen.items() if number}
