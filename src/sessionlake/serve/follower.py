"""The last committed batch, followed next to the stream: its view of the stores, the batches' counts, and the tables as of it."""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any

import duckdb
import pyarrow as pa

from sessionlake.config.load import Config
from sessionlake.errors import NoBatchesError, first_line
from sessionlake.serve.database import batches_sql
from sessionlake.serve.decoder import RowDecoder, has_decoder
from sessionlake.serve.replica import Replica, View
from sessionlake.serve.tables import TablesAtBatch, open_tables_at_batch
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import batches_after, last_batch
from sessionlake.warehouse.lake import Lake
from sessionlake.warehouse.scan import TableScan

KEPT = 2000
_PAUSE_S = 0.1
_LOOK_S = 0.02
_TABLES_S = 10.0
"""Seconds for which tables are read at the same versions: `forget` makes new versions without a batch."""
_AGAIN_S = 2.0
"""Seconds after which incomplete stores are looked at again."""


@dataclass(frozen=True)
class Now:
    """One batch, and the stores as of it; immutable."""

    commit: BatchCommit
    view: View | None
    """None if the rows are read from the tables only."""
    totals: Mapping[str, int]
    """The counts of all batches up to this one."""


class Follower:
    """Follows a pipeline in a separate thread, from `start` to `stop`."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lake = Lake.of(config)
        self._replica = Replica(config) if has_decoder(config, RowDecoder) else None
        self._now: Now | None = None
        self._version, self._looked = -1, 0.0
        self._tables: TablesAtBatch | None = None
        self._opened = 0.0
        self._opening = Lock()
        self._stopped = Event()
        self._thread = Thread(target=self._follow, name="following", daemon=True)
        self.failure: str | None = "no look yet"
        """The error of the last look, as one line."""
        self.history: deque[Mapping[str, Any]] = deque(maxlen=KEPT)
        """The counts of the last batches, oldest first: rows of the table `batches`, times in microseconds."""
        self._totals: dict[str, int] = {}

    @property
    def now(self) -> Now:
        """The last batch that was seen; NoBatchesError before the first one."""
        now = self._now
        if now is None:
            raise NoBatchesError(
                f"pipeline: {self._config.pipeline.name!r} can't be answered for yet ({self.failure}); ask again in a moment"
            )
        return now

    @property
    def reached(self) -> int:
        """The last batch that was seen, -1 before the first one."""
        return -1 if self._now is None else self._now.commit.batch_id

    async def comes_to(self, batch_id: int, seconds: float) -> bool:
        """Wait for at most `seconds` until a batch or a later one was seen; say whether it was."""
        due = monotonic() + seconds
        while self.reached < batch_id:
            if monotonic() >= due:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    def tables(self) -> TablesAtBatch:
        """Return the tables as of the last batch that was seen, or a later one; erased rows may stay in them for some seconds."""
        with self._opening:
            behind = self._tables is None or self._tables.commit.batch_id < self.now.commit.batch_id
            if self._tables is None or behind or monotonic() - self._opened > _TABLES_S:
                self._tables, self._opened = open_tables_at_batch(self._config), monotonic()
            return self._tables

    def start(self) -> None:
        """Look once, then start the thread."""
        self.look()
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> None:
        """Follow the log once; if that fails, the previous state stays."""
        try:
            self._look()
        except Exception as error:  # noqa: BLE001 (after any error the previous state is still served)
            self.failure = first_line(error)
        else:
            self.failure = None

    def _follow(self) -> None:
        while not self._stopped.wait(_PAUSE_S):
            self.look()

    def _look(self) -> None:
        version = self._lake[self._lake.changelog.changes].latest_version()
        whole = self._now is not None and (self._now.view is None or not self._now.view.missing)
        if version == self._version and (whole or monotonic() - self._looked < _AGAIN_S):
            return
        view = None if self._replica is None else self._replica.refresh()
        commit = last_batch(self._lake) if view is None else view.commit
        self._count(commit)
        self._now, self._version, self._looked = Now(commit, view, dict(self._totals)), version, monotonic()

    def _count(self, commit: BatchCommit) -> None:
        seen = self.history[-1]["changelog_version"] if self.history else None
        if seen is None:
            seen = self._read_saved()
        for batch in batches_after(self._lake, seen):
            if batch.batch_id <= commit.batch_id:
                self._add(batch.row(self._lake.changelog.counts))

    def _read_saved(self) -> int:
        """Read the table `batches`; return the last version of the changelog that it covers."""
        lake = Lake.of(self._config)
        if not lake[schemas.BATCHES].exists():
            return -1
        with duckdb.connect() as database:
            database.execute("set timezone = 'UTC'")
            table = lake[schemas.BATCHES].open()
            database.register("written_batches", TableScan(table))
            database.execute(
                f"create view {schemas.BATCHES} as {batches_sql('written_batches', table.schema().to_arrow().names)}"
            )
            names = (*schemas.COUNTS, *lake.changelog.counts)
            sums = ", ".join(f"coalesce(sum({name}), 0)::bigint as {name}" for name in names)
            total = database.sql(f"select {sums} from batches").to_arrow_table().to_pylist()[0]
            rows = database.sql(f"select * from batches order by batch_id desc limit {KEPT}").to_arrow_table()
        micros = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in rows.columns]
        self.history.extend(reversed(pa.table(micros, names=rows.column_names).to_pylist()))
        self._totals = total
        return self.history[-1]["changelog_version"] if self.history else -1

    def _add(self, row: Mapping[str, Any]) -> None:
        self.history.append(row)
        for name in (*schemas.COUNTS, *self._lake.changelog.counts):
            self._totals[name] = self._totals.get(name, 0) + row[name]
