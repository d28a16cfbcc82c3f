"""Questions answered as JSON, each from one batch: from the stores of this host, else from the tables (docs/rules.md, rule 194)."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic_core import to_json

from sessionlake.config.load import Config
from sessionlake.serve.cursors import Position, read_cursor, write_cursor
from sessionlake.serve.encoded import Times, encoded, envelope, joined, moment, within
from sessionlake.serve.following import Following
from sessionlake.serve.questions import Question
from sessionlake.serve.refused import RefusedError
from sessionlake.serve.replica import NotLocalError, View
from sessionlake.serve.tables import Moment
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.changelog import changelog_of

STORE, DELTA = "store", "delta"
LISTS = {"session": "sessions", "table": "rows", "window": "windows", "join": "joins"}
"""What an answer's rows are called, by operator, and the path that they are asked for at."""
_ALL_OF_KEY = (1 << 63) - 1


class Answers:
    """Answers of one pipeline, for any number of threads."""

    def __init__(self, config: Config, following: Following) -> None:
        self._config, self._following = config, following
        self._of = changelog_of(config)
        self._name = LISTS[config.operator]
        self._open: tuple[tuple[str, int, Times], bytes] | None = None
        """The last answer to `longest_open`: all who look at the page ask for it with each batch."""

    def of_store(self, asked: Question, *, times: Times) -> bytes | None:
        """Return a page from the stores of this host, with the cursor of the next one; None where a shard that it needs is not here."""
        now = self._following.now
        if now.view is None:
            return None
        try:
            rows, rest, left = self._from_store(now.view, asked)
        except NotLocalError:
            return None
        return self._page(asked, rows, rest, now.commit, now.view, times, left=left)

    def of_tables(self, asked: Question, *, times: Times) -> bytes:
        """Return a page from the tables, with the cursor of the next one."""
        tables = self._following.tables()
        rows = tables.find(replace(asked, limit=asked.limit + 1))
        left = rows.num_rows > asked.limit
        return self._page(asked, rows[: asked.limit], None, tables.commit, tables, times, left=left)

    def one_of_store(self, asked: Question, start_us: int | None, *, times: Times) -> bytes | None:
        """Return the session of a key that starts at a time, or the row of a key; None where the tables are to be asked."""
        now = self._following.now
        if now.view is None:
            return None
        try:
            rows = _starting(now.view.find([asked.key or ""], asked.include), self._of.start, start_us)
        except NotLocalError:
            return None
        oldest = now.view.complete_from_us
        if not rows.num_rows and start_us is not None and oldest is not None and start_us < oldest:
            return None  # it may have left the store
        return self._one(rows, now.commit, now.view, start_us, times)

    def one_of_tables(self, asked: Question, start_us: int | None, *, times: Times) -> bytes:
        """Return the session of a key that starts at a time, or the row of a key, from the tables."""
        tables = self._following.tables()
        rows = _starting(tables.find(replace(asked, from_us=start_us, to_us=start_us)), self._of.start, start_us)
        return self._one(rows, tables.commit, tables, start_us, times)

    def _one(
        self, rows: pa.Table, commit: BatchCommit, source: View | Moment, start_us: int | None, times: Times
    ) -> bytes:
        """Return the one row as an answer; RefusedError (404) where there is none."""
        name = "row" if start_us is None else self._config.operator
        if not rows.num_rows:
            raise RefusedError(
                404, f"{name}: there is none as of batch {commit.batch_id}; look at the key and the start"
            )
        return envelope(self._head(commit, source, times), name, encoded(rows[:1], times)[0])

    def longest_open(self, limit: int, *, times: Times) -> bytes:
        """Return the longest sessions that events can still lengthen; the longest first."""
        if self._config.operator != "session":
            raise RefusedError(
                422,
                f"open: is of sessions, and this pipeline computes {self._config.operator}s; ask for its {self._name}",
            )
        now = self._following.now
        known = (now.commit.commit_id, limit, times)
        if self._open is not None and self._open[0] == known:
            return self._open[1]
        source: View | Moment | None = now.view
        rows, whole = None, True
        if now.view is not None:
            try:
                rows, whole = now.view.longest_open(limit, self._config.serve.max_scan)
            except NotLocalError:
                source = None
        commit = now.commit
        if rows is None or source is None:
            source = self._following.tables()
            rows, commit = source.longest_open(limit), source.commit
        fields = {**self._head(commit, source, times), "complete": whole}
        answer = envelope(fields, self._name, joined(encoded(rows, times)))
        self._open = known, answer
        return answer

    def status(self, *, times: Times) -> dict[str, Any]:
        """Return how the pipeline and this server do."""
        now = self._following.now
        commit, view = now.commit, now.view
        watermark = commit.watermark_us
        clock_us = time.time_ns() // 1000
        missing = (
            dict.fromkeys(range(len(commit.shards)), "is read from the tables") if view is None else dict(view.missing)
        )
        return {
            "pipeline": self._config.pipeline.name,
            "operator": self._config.operator,
            "list": self._name,
            "columns": {"key": self._of.key, "start": self._of.start, "end": self._of.end},
            "numbered": self._of.numbered,
            "batch_id": commit.batch_id,
            "committed_at": moment(commit.committed_us, times),
            "age_us": max(clock_us - commit.committed_us, 0),
            "watermark": moment(watermark, times),
            "lag_us": None if watermark is None else clock_us - watermark,
            "complete_from": moment(None if view is None else view.complete_from_us, times),
            "shards": {"all": len(commit.shards), "missing": {str(shard): why for shard, why in missing.items()}},
            "counts": dict(now.totals),
            "failure": self._following.failure,
        }

    def batches(self, after: int, limit: int, *, times: Times) -> bytes:
        """Return what the last batches counted, those after one, oldest first."""
        now = self._following.now
        rows = [dict(row) for row in tuple(self._following.history) if after < row["batch_id"] <= now.commit.batch_id]
        for row in rows[-limit:]:
            row.update({name: moment(row[name], times) for name in ("started_at", "committed_at", "watermark")})
        return envelope(
            self._head(now.commit, now.view, times), "batches", joined([to_json(row) for row in rows[-limit:]])
        )

    def asked_after(self, asked: Question, cursor: str | None) -> Question:
        """Return a question that goes on after a cursor."""
        return asked if cursor is None else replace(asked, after=read_cursor(asked.text, cursor))

    def _head(self, commit: BatchCommit, source: View | Moment | None, times: Times) -> dict[str, Any]:
        """Return what every answer says: of which batch it is, from where on it is complete, and where its rows are from."""
        return {
            "batch_id": commit.batch_id,
            "watermark": moment(commit.watermark_us, times),
            "complete_from": moment(source.complete_from_us if isinstance(source, View) else None, times),
            "served_by": STORE if isinstance(source, View) else DELTA,
        }

    def _page(
        self,
        asked: Question,
        rows: pa.Table,
        rest: Position | None,
        commit: BatchCommit,
        source: View | Moment,
        times: Times,
        *,
        left: bool,
    ) -> bytes:
        """Return rows as an answer; `rest` is where looking ended, where that is behind the last row."""
        parts = encoded(rows, times)
        fit = within(parts, self._config.serve.max_bytes)
        after: Position | None = None
        if fit < len(parts) or left:
            after = self._position(rows[fit - 1 : fit], source) if fit and (fit < len(parts) or rest is None) else rest
        cursor = None if after is None else write_cursor(asked.text, after)
        return envelope(self._head(commit, source, times), self._name, joined(parts[:fit]), cursor)

    def _position(self, row: pa.Table, source: View | Moment) -> Position:
        values = row.to_pylist()[0]
        if isinstance(source, Moment):
            return source.position(values)
        if self._of.keyed:
            return (values[self._of.key],)
        return values[self._of.key], int(row[self._of.start].cast(pa.int64())[0].as_py())

    def _from_store(self, view: View, asked: Question) -> tuple[pa.Table, Position | None, bool]:
        """Return the first rows, where looking ended, and whether there may be more."""
        found: list[pa.Table] = []
        rows = 0
        for page, ended in self._chunks(view, asked):
            kept = self._kept(page, asked)
            found.append(kept)
            rows += kept.num_rows
            if rows > asked.limit:
                return pa.concat_tables(found)[: asked.limit], None, True
            if ended is not None:
                return pa.concat_tables(found), ended, True
        return pa.concat_tables(found), None, False

    def _chunks(self, view: View, asked: Question) -> Iterator[tuple[pa.Table, Position | None]]:
        """Yield rows that may be among those asked for, the last of them with where looking ended before the end of the range."""
        if asked.key is not None:
            yield view.find([asked.key], asked.include), None
            return
        low, after, looked, most = asked.low, None, 0, self._config.serve.max_scan
        if asked.after is not None:
            key, *rest = asked.after
            if self._of.keyed or rest == [_ALL_OF_KEY]:
                after = str(key)
            else:
                # That key again: not all of its rows may have been sent.
                low = max(low or "", str(key), key=str.encode)
        while True:
            page = view.scan(
                low, asked.high, asked.limit + 1, after=after, prefix=asked.prefix, most=most - looked, include=asked.include
            )  # fmt: skip
            looked, after = looked + page.looked, page.last_key
            ended = after is not None and looked >= most
            yield page.rows, (after, _ALL_OF_KEY) if ended and after is not None else None
            if after is None or ended:
                return

    def _kept(self, rows: pa.Table, asked: Question) -> pa.Table:
        """Return the rows within the times that are asked for, and after the position."""
        of = self._of
        if not of.keyed:
            start, end = rows[of.start].cast(pa.int64()), rows[of.end].cast(pa.int64())
            if asked.from_us is not None:
                rows = rows.filter(pc.greater_equal(end, asked.from_us))
                start = rows[of.start].cast(pa.int64())
            if asked.to_us is not None:
                rows = rows.filter(pc.less_equal(start, asked.to_us))
        if asked.after is not None:
            rows = self._beyond(rows, asked.after, descending=asked.descending)
        if asked.descending:
            rows = rows.take(pa.array(range(rows.num_rows - 1, -1, -1), pa.int64()))
        return rows

    def _beyond(self, rows: pa.Table, after: Position, *, descending: bool) -> pa.Table:
        key, *rest = after
        same = pc.equal(rows[self._of.key], key)
        if self._of.keyed or not rest:
            return rows.filter(pc.invert(same))
        start = rows[self._of.start].cast(pa.int64())
        sent = (pc.greater_equal if descending else pc.less_equal)(start, rest[0])
        return rows.filter(pc.invert(pc.and_(same, sent)))


def _starting(rows: pa.Table, column: str, start_us: int | None) -> pa.Table:
    return rows if start_us is None else rows.filter(pc.equal(rows[column].cast(pa.int64()), start_us))
