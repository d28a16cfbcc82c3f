"""Random histories of a chain: its tables and its sink equal a query of the results in front, whatever ran, died, was lost or was cut anew before."""

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionlake.config.load import Config, load_config
from sessionlake.errors import AwaitedError, NoBatchesError
from sessionlake.jobs.compact import compact
from sessionlake.jobs.expire import expire
from sessionlake.jobs.forget import forget
from sessionlake.jobs.publish.table import SinkTable
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import DRIVER_POINTS, CrashError, crash_at
from tests.jobs.publish_support import assert_in_delta
from tests.project.chain_support import (
    AS_DAYS,
    CLICKS,
    HOURS,
    Rows,
    copy_of,
    days_of,
    days_sql,
    finals,
    in_windows,
    query,
    results_of,
    step,
    values_of,
    write,
)


@dataclass(frozen=True)
class Front:
    """The pipeline in front, and the columns of its rows that the others read."""

    operator: str
    """The sections that follow those of its source and its events."""
    live: str
    identity: tuple[str, ...]
    time: str
    big: str
    """A condition, by which its rows are grouped."""
    value: str

    @property
    def text(self) -> str:
        """The config."""
        return CLICKS[: CLICKS.index("[session]")] + self.operator

    @property
    def columns(self) -> tuple[str, str, str, str]:
        """The columns that groups are made of."""
        return self.time, self.big, self.value, self.value

    def grouped(self, root: Path) -> tuple[Rows, Rows]:
        """Return the groups, and what they are of."""
        given = days_sql(self.live, *self.columns)
        return query(config_of(root, "days"), AS_DAYS), query(config_of(root, "clicks"), given)

    def followed(self, root: Path) -> tuple[Rows, Rows]:
        """Return the table, and what it is of."""
        key, *start = self.identity
        shown = ", ".join([key, *(f"epoch_us(cast({name} as timestamptz))" for name in start), self.value])
        found, given = (f"select {shown} from {view} order by all" for view in ("table_live", self.live))
        return query(config_of(root, "latest"), found), query(config_of(root, "clicks"), given)


AGGREGATES = """
[aggregates]
revenue = "sum(price)"
"""
FRONTS = {
    "sessions": Front(
        f"{CLICKS[CLICKS.index('[session]') : CLICKS.index('[aggregates]')]}{AGGREGATES}",
        "sessions_live",
        ("session_key", "session_start"),
        "session_end",
        "event_count > 2",
        "revenue",
    ),
    "windows": Front(
        f"""[window]
kind = "tumbling"
size = "40 minutes"
grace = "1 hour"
retention = "4 hours"
{AGGREGATES}
[emit]
early = "batch"
""",
        "windows_live",
        ("window_key", "window_start"),
        "window_start",
        "event_count > 2",
        "revenue",
    ),
    "table": Front(
        """[table]
retention = "4 hours"
delete_when = "price > 11"
columns = ["price"]
""",
        "table_live",
        ("table_key",),
        "event_time",
        "price > 6",
        "price",
    ),
}
SIZES = f"""\
{results_of("days")}[event]
key = "big"

[group]

[aggregates]
hours = "count()"
sessions = "sum(sessions)"
revenue = "sum(revenue)"

[sink.delta]
path = "out"
"""
COPIED = """
[sink.delta]
path = "copied"
"""
STEPS = 40
READERS = ("days", "sizes", "joined", "latest", "hours")
SENDING = ("sizes", "latest")
"""The pipelines that have a sink."""


def config_of(root: Path, name: str) -> Config:
    return load_config(root / f"{name}.toml")


@contextmanager
def may_die() -> Iterator[None]:
    """Go on after a crash of ours, and if there are no batches yet."""
    try:
        yield
    except (AwaitedError, NoBatchesError):
        pass
    except Exception as error:  # Spark's own may be around the one that is raised
        if "CrashError" not in str(error) and not isinstance(error, CrashError):
            raise


def in_sizes(root: Path) -> tuple[Rows, Rows]:
    """Return the groups of groups, and what they are of."""
    sums = "count(*), sum(sessions), sum(revenue)"
    found = query(config_of(root, "sizes"), "select group_key, hours, sessions, revenue from groups_live order by 1")
    return found, query(config_of(root, "days"), f"select big, {sums} from groups_live group by 1 order by 1")


def joined_of(front: Front) -> str:
    """Return the config of a join of the rows in front and the groups of `days`: a chain whose two sides are read as of other batches."""
    side = (
        '[table_join.{}]\nname = "{}"\ncolumns = ["{}"]\nsource = {{ kind = "results", of = "{}", rows = "changes" }}\n'
    )
    given = side.format("left", "rows", front.value, "clicks") + "\n[table_join.left.event.columns]\n"
    given += f'hour = "date_trunc(\'hour\', {front.time})"\nbig = "{front.big}"\n\n'
    return f"""\
[table_join]
on = ["hour", "big"]
type = "full"

{given}{side.format("right", "days", "sessions", "days")}
[table_join.right.event]
"""


def joined(root: Path, front: Front) -> tuple[Rows, Rows]:
    """Return the join, and what it is of; each row of the groups is of one hour and condition."""
    hour = f"strftime({front.time} at time zone 'UTC', '%Y-%m-%d %H:00:00.000000Z')"
    rows = query(
        config_of(root, "clicks"), f"select {hour}, cast({front.big} as varchar), {front.value} from {front.live}"
    )
    days = query(config_of(root, "days"), "select hour, big, sessions from groups_live")
    sessions = {(hour, big): count for hour, big, count in days}
    wanted = [(value, sessions.get((hour, big))) for hour, big, value in rows]
    of_rows = {(hour, big) for hour, big, _ in rows}
    wanted += [(None, count) for name, count in sessions.items() if name not in of_rows]
    found = query(config_of(root, "joined"), f"select rows_{front.value}, days_sessions from joined_rows_live")
    return sorted(found, key=repr), sorted(wanted, key=repr)


class Chain:
    """Six pipelines in a line and side by side, and what has happened to them."""

    def __init__(self, spark: SparkSession, root: Path, front: str, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.spark, self.root, self.patch, self.front = spark, root, patch, FRONTS[front]
        self.random = random.Random(seed)
        self.files, self.shards = 0, dict.fromkeys(("clicks", *READERS), 2)
        self.keeps, self.may_keep = False, front != "windows"
        self.forgets = seed % 2 == 1
        self.expires = self.forgets and self.may_keep
        self.has_finals = front == "sessions" and not self.forgets
        """Final rows that are taken away before a reader comes are not defined by the results alone."""
        self.seen: dict[Any, Any] = {}
        self.final: Rows = []
        self.history: list[str] = []
        self.readers = [name for name in READERS if name != "hours" or self.has_finals]
        (root / "events").mkdir()
        (root / "project.toml").touch()
        self.configure()
        write(root, 0)
        self.ran("clicks", None)

    def configure(self) -> None:
        behind = {"days": days_of(*self.front.columns), "latest": copy_of(self.front.value) + COPIED}
        behind["joined"] = joined_of(self.front)
        for name, text in {"clicks": self.front.text, **behind, "sizes": SIZES, "hours": HOURS}.items():
            keeps = "keep_replaced = true\n" if self.keeps and name == "clicks" else ""
            head = f"[pipeline]\nshards = {self.shards[name]}\n{keeps}\n"
            (self.root / f"{name}.toml").write_text(head + text)

    def ran(self, name: str, dies: str | None) -> None:
        """Run a pipeline, up to a point; one whose results it reads may have none yet."""
        with crash_at(self.patch, dies or "none", self.random.choice((1, 1, 2))), may_die():
            step(self.spark, self.root, name)
        if name == "clicks" and self.has_finals:
            self.final = finals(self.spark, self.root, self.seen)

    def happens(self) -> None:
        """Let something happen."""
        kinds = [self.writes, *[self.reads_events] * 2, *[self.reads] * 2, *[self.dies] * 2, self.publishes]
        kinds += [self.loses, self.is_cut_anew, self.compacts, self.keeps_or_not]
        kinds += [*[self.takes_away] * self.expires, *[self.erases] * self.forgets]
        name, kind = self.random.choice(("clicks", *self.readers)), self.random.choice(kinds)
        self.history.append(f"{name} {kind.__name__}")
        kind(name)

    def writes(self, _: str) -> None:
        self.files += self.random.choice((1, 1, 1, 3))
        write(self.root, self.files)

    def reads_events(self, _: str) -> None:
        self.ran("clicks", None)

    def reads(self, name: str) -> None:
        self.ran(name, None)

    def dies(self, name: str) -> None:
        self.ran(name, self.random.choice(DRIVER_POINTS))

    def publishes(self, _: str) -> None:
        with crash_at(self.patch, self.random.choice(("none", "sink_read", "sunk"))), may_die():
            self.sent(self.random.choice(SENDING))

    def sent(self, name: str) -> Config:
        """Let a sink come to the end of what is there, and return its pipeline's config."""
        config = config_of(self.root, name)
        SinkTable(Tables.of(self.spark, config), config).step()
        return config

    def loses(self, name: str) -> None:
        shutil.rmtree(config_of(self.root, name).store_dir, ignore_errors=True)

    def is_cut_anew(self, name: str) -> None:
        self.shards[name] = self.random.randrange(1, 4)
        self.configure()

    def compacts(self, name: str) -> None:
        with may_die():
            compact(self.spark, config_of(self.root, name))

    def keeps_or_not(self, _: str) -> None:
        self.keeps = self.may_keep and not self.keeps
        self.configure()

    def takes_away(self, _: str) -> None:
        gone = f"{self.front.identity[0]} = 'u{self.random.randrange(5)}'"
        expire(self.spark, config_of(self.root, "clicks"), where=gone, max_share=1.0)

    def erases(self, _: str) -> None:
        """Forget a user; events that are read later may have the user again."""
        key = f"u{self.random.randrange(5)}"
        with crash_at(self.patch, self.random.choice(("none", "none", "forget_kept_out"))), may_die():
            told = forget(self.spark, config_of(self.root, "clicks"), [key], wait="1 second")
            assert (told.failed, told.counts["found"]) == (False, 0), self.history
            assert all(key not in str(row) for row in query(config_of(self.root, "latest"), "select * from table_live"))

    def check(self) -> None:
        """Let all come to the end of what is there, and compare."""
        step(self.spark, self.root, "clicks")
        if self.has_finals:
            self.final = finals(self.spark, self.root, self.seen)
        step(self.spark, self.root, *self.readers)
        for compared in (self.front.grouped, self.front.followed, partial(joined, front=self.front), in_sizes):
            found, wanted = compared(self.root)
            assert found == wanted, self.history
        if self.has_finals:
            assert in_windows(self.root) == self.final, self.history
        for name in SENDING:
            assert_in_delta(self.sent(name))
        assert found or self.forgets, self.history

    def erases_everywhere(self) -> None:
        """Forget a user in all pipelines, those in front first: no file of any of them, or of a sink, has the user."""
        key = f"u{self.random.randrange(5)}"
        for name in ("clicks", *self.readers):
            if name in SENDING:
                self.sent(name)
            told = forget(self.spark, config_of(self.root, name), [key], wait="1 minute")
            assert (told.failed, told.counts["found"]) == (False, 0), (name, self.history)
        files = [file for file in self.root.rglob("*.parquet") if "/_delta_log/" not in str(file)]
        assert len(files) > 20
        assert [file for file in files if key in values_of(file)] == [], self.history


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("front", FRONTS)
def test_a_chain_equals_a_query_of_the_results_in_front(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, front: str, seed: int
) -> None:
    chain = Chain(spark, tmp_path, front, seed, monkeypatch)
    for number in range(STEPS):
        chain.happens()
        if number % (STEPS // 2) == STEPS // 2 - 1:
            chain.check()
    if chain.forgets:
        chain.erases_everywhere()
        chain.check()
