"""Pipelines with many late events, and what their sessions must be, told by DuckDB."""

import json
import random
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sessionlake import read_sessions
from sessionlake.config.load import Config
from sessionlake.jobs.apply import apply_corrections
from sessionlake.jobs.late.reprocess import reprocess_late
from sessionlake.jobs.late.status import LateStatus, read_late_status
from sessionlake.jobs.run import JobReport
from sessionlake.observe.status import open_tables, read_status
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.tables import Tables
from tests.oracle.sql import SqlOracle
from tests.support import make_config, write_rows

Row = dict[str, Any]
GAP, GRACE, RETENTION = 4, 10, 120
KEYS = ["a", "b", "ü", "d", "e", "f"]
SESSION = {"gap": f"{GAP} us", "grace": f"{GRACE} us", "retention": f"{RETENTION} us"}
AGGREGATES = {
    "total": "sum(v)",
    "least": "min(v)",
    "earliest": "first(v)",
    "latest": "last(v)",
    "kinds": "count_distinct(v)",
}
NAMES = ["session_key", "start_us", "end_us", "event_count", *AGGREGATES]


@dataclass(frozen=True)
class Late:
    """A pipeline in a directory of its own; the input may be another's."""

    spark: SparkSession
    root: Path
    config: Config

    @property
    def tables(self) -> Tables:
        return Tables(self.spark, self.config.pipeline.warehouse, CHANGELOG)

    def copy(self, root: Path) -> "Late":
        """Return a copy that goes on from here by itself."""
        shutil.copytree(self.root, root, copy_function=shutil.copy2)
        pipeline = {"warehouse": str(root / "warehouse"), "store": str(root / "store")}
        moved = self.config.model_copy(update={"pipeline": self.config.pipeline.model_copy(update=pipeline)})
        return Late(self.spark, root, moved)

    def rows(self, table: str) -> list[Row]:
        return [row.asDict(recursive=True) for row in self.tables[table].read().collect()]

    def versions(self) -> dict[str, int]:
        names = (schemas.CORRECTIONS, schemas.DEAD_LETTERS, schemas.LATE_EVENTS, schemas.JOB_RUNS, schemas.CHANGELOG)
        return {name: self.tables[name].latest_version() for name in names}

    def reprocess(self, **arguments: Any) -> JobReport:
        return reprocess_late(self.spark, self.config, **arguments)

    def apply(self) -> None:
        assert apply_corrections(self.spark, self.config)

    def late_status(self) -> LateStatus:
        """Return the late events' status, checked, without all else that `status` reads."""
        lake, database = open_tables(self.config)
        with closing(database):
            last_id = last_batch(lake).batch_id
            late = read_late_status(lake, database, last_id, with_ids=self.config.event.id is not None)
        assert late.reconciles
        assert late.events == late.reprocessed + late.expired + late.waiting
        return late

    def status(self) -> LateStatus:
        """Return the late events' status out of the pipeline's, checked."""
        status = read_status(self.config)
        late = status.late
        assert status.reconciles
        assert late.events == status.counts["late"] == late.reprocessed + late.expired + late.waiting
        return late

    def written(self) -> tuple[list[Any], list[Any]]:
        """Return what jobs have written, without what differs from run to run."""
        parts = [
            (r["key"], r["start_time"], r["end_time"], r["event_count"], bytes(r["state"]))
            for r in self.rows(schemas.CORRECTIONS)
        ]
        dead = [r["raw"] for r in self.rows(schemas.DEAD_LETTERS) if r["batch_id"] is None]
        return sorted(parts), sorted(dead)

    def sessions(self) -> list[Row]:
        times = "unix_micros(session_start) start_us", "unix_micros(session_end) end_us"
        names = [*(times[0] if n == "start_us" else times[1] if n == "end_us" else n for n in NAMES)]
        live = read_sessions(self.spark, self.config).selectExpr(*names).collect()
        return sorted((row.asDict() for row in live), key=lambda r: (r["session_key"], r["start_us"]))

    def watermark(self) -> int:
        last = self.tables[schemas.CHANGELOG].last_commit()
        assert last is not None
        return int(last.metadata["state"]["watermark_us"])


def events(seed: int, files: int = 4, rows: int = 40) -> list[list[Row]]:
    """Return files of events, a third of them far behind the others, and some of those in two files."""
    rng = random.Random(seed)
    found: list[list[Row]] = []
    for number in range(files):
        base = 1_000 + number * 25
        times = [base + rng.randrange(40) for _ in range(rows)]
        times += [base + rng.randrange(-90, -10) for _ in range(rows // 2)] if number else []
        found.append(
            [
                {"key": rng.choice(KEYS), "time_us": time, "v": rng.randrange(20), "id": f"{number}-{i}"}
                for i, time in enumerate(times)
            ]
        )
        if number > 1:
            found[-1] += rng.sample(found[-2][rows : rows + rows // 2], 6)
    for number, file in enumerate(found):
        for i, event in enumerate(file):
            file[i] = {**event, "n": number * 1000 + i}
    return found


def pipeline(spark: SparkSession, root: Path, files: list[list[Row]], **event: Any) -> Late:
    """Run a pipeline over files of events, one a batch."""
    root.mkdir(parents=True, exist_ok=True)
    config = make_config(root, event=event, session=SESSION, aggregates=AGGREGATES)
    for number, rows in enumerate(files):
        write_rows(root, f"{number}.json", rows)
    run(spark, config, once=True)
    return Late(spark, root, config)


def late_numbers(late: Late) -> set[int]:
    return {json.loads(row["raw"])["n"] for row in late.rows(schemas.LATE_EVENTS)}


def dead_numbers(late: Late, *, of_jobs: bool) -> set[int]:
    rows = (row for row in late.rows(schemas.DEAD_LETTERS) if (row["batch_id"] is None) == of_jobs)
    return {json.loads(row["raw"])["n"] for row in rows}


def sessionized(counted: list[Row], *, with_ids: bool = False) -> list[Row]:
    """Return the sessions of events as DuckDB finds them; ids break ties of time where the config names them."""
    rows = [{**e, "v": float(e["v"]), "id": e["id"] if with_ids else ""} for e in counted]
    found = SqlOracle().sessionize_events(rows, GAP)
    return [{"session_key": row["key"], **{name: row[name] for name in NAMES[1:]}} for row in found]
