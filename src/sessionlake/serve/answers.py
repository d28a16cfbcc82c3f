"""Questions answered as JSON, each from one batch: from the stores of this host, else from the tables (docs/rules.md, rule 194)."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
from pydantic_core import to_json

from sessionlake.columnar.keys import shard_of_key
from sessionlake.config.load import Config
from sessionlake.serve.cursors import Position, read_cursor, write_cursor
from sessionlake.serve.dead_letters import NUMBERS, DeadLetters
from sessionlake.serve.decoder import OpenRowDecoder, has_decoder
from sessionlake.serve.encoded import Times, encoded, envelope, joined, row_json, time_value, within
from sessionlake.serve.follower import Follower, Now
from sessionlake.serve.keys import key_texts, with_key_columns
from sessionlake.serve.pages import ALL_OF_KEY, PageReader
from sessionlake.serve.parts import OpenPart, Part, longest, position_of, together
from sessionlake.serve.questions import Question
from sessionlake.serve.refusals import RefusedError
from sessionlake.serve.replica import NotLocalError, View
from sessionlake.serve.result_rows import ResultRow
from sessionlake.serve.tables import TablesAtBatch
from sessionlake.sources.equal_types import asked_key, asked_prefix
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.changelog import changelog_of

STORE, DELTA = "store", "delta"
_NO_VIEW = "is read from the tables"


class Answers:
    """Answers of one pipeline, for any number of threads."""

    def __init__(self, config: Config, follower: Follower) -> None:
        self._config, self._follower = config, follower
        self._of = changelog_of(config)
        self._rows = config.entry.rows
        self.numbered = not self._of.has_times
        """Whether rows lie at numbers of messages, and not at times."""
        self.keeps_open = has_decoder(config, OpenRowDecoder)
        """Whether rows stay open, and live views may leave some out."""
        self._open: tuple[tuple[str, frozenset[int] | None, int, Times], OpenPart] | None = None
        self._open_in_tables: tuple[tuple[TablesAtBatch, int, Times], bytes] | None = None
        """The last answer about the longest open sessions, from the stores and from the tables: every viewer of the page asks for it after each batch."""
        self._heads: dict[tuple[str, bool, Times, bool | None], bytes] = {}

    def of_store(self, asked: Question, *, times: Times, at_once: bool = False) -> bytes | None:
        """Return a page from the stores of this host, with the cursor of the next one; None if a shard that it needs is not here.

        LargeKeyError if it is to be read `at_once`, and a named key has too many bytes for that.
        """
        now = self._follower.now
        if now.view is None:
            return None
        try:
            page = self._reader(now.view, asked).read(at_once=at_once)
        except NotLocalError:
            return None
        found = page.found
        rows = self._json(now.view, found, times)

        def position(at: int) -> Position:
            return (found[at].key,) if self._of.one_per_key else (found[at].key, found[at].start_us)

        return self._page(
            self._rows.list,
            asked.text,
            rows,
            position,
            page.rest,
            self._head(now.commit, now.view, times),
            left=page.left,
        )

    def lacks(self, asked: Question, now: Now) -> dict[int, str | None]:
        """Return the shards that a question needs and that are not here, each with the host that ran it last, None if that is not known."""
        view, shards = now.view, len(now.commit.shards)
        if view is None:
            return {}
        needed = (
            range(shards)
            if asked.named is None
            else sorted({shard_of_key(key.encode(), shards) for key in asked.named})
        )
        return {shard: now.commit.places.host_of(shard) for shard in needed if view.why_missing(shard) is not None}

    def part(self, asked: Question, view: View, *, times: Times) -> Part | None:
        """Return a page from the shards of a view; None if one of them is missing here."""
        try:
            page = self._reader(view, asked).read()
        except NotLocalError:
            return None
        found, rest = page.found, page.rest
        rows = self._json(view, found, times)
        fit = within(rows, self._config.serve.max_bytes)
        places = [(of.key, of.start_us) for of in found[:fit]]
        reached: tuple[str, int] | None = None
        if fit < len(rows) or (page.left and rest is None):
            reached = places[-1]
        elif rest is not None:
            reached = str(rest[0]), int(rest[1])
        texts = [row.decode() for row in rows[:fit]]
        return Part([(*place, text) for place, text in zip(places, texts, strict=True)], reached)

    def of_parts(self, asked: Question, now: Now, parts: Sequence[Part], *, times: Times) -> bytes:
        """Merge pages of all shards, each as of the batch of `now`, into one page."""
        whole = together(parts)
        rows = [text.encode() for _, _, text in whole.rows[: asked.limit]]
        left = whole.reached is not None or len(whole.rows) > asked.limit
        # Further than any part has read.
        rest = None if whole.reached is None or len(whole.rows) > asked.limit else whole.reached

        def position(at: int) -> Position:
            return position_of(whole.rows[at][:2], keyed=self._of.one_per_key)

        ended = (
            None if rest is None else (rest if rest[1] == ALL_OF_KEY else position_of(rest, keyed=self._of.one_per_key))
        )
        return self._page(
            self._rows.list, asked.text, rows, position, ended, self._head(now.commit, now.view, times), left=left
        )

    def of_tables(self, asked: Question, *, times: Times) -> bytes:
        """Return a page from the tables, with the cursor of the next one."""
        tables = self._follower.tables()
        rows = tables.find(replace(asked, limit=asked.limit + 1))
        left = rows.num_rows > asked.limit
        rows = rows[: asked.limit]

        def position(at: int) -> Position:
            return tables.position(rows[at : at + 1].to_pylist()[0])

        return self._page(
            self._rows.list,
            asked.text,
            encoded(rows, times),
            position,
            None,
            self._head(tables.commit, tables, times),
            left=left,
        )

    def one_of_store(
        self, asked: Question, start_us: int | None, *, times: Times, at_once: bool = False
    ) -> bytes | None:
        """Return the session of a key that starts at a time, or the row of a key; None if the tables are to be asked.

        LargeKeyError as in `of_store`.
        """
        now = self._follower.now
        if now.view is None:
            return None
        one = asked if start_us is None else replace(asked, to_us=start_us, limit=1, descending=True)
        try:
            found = self._reader(now.view, one).read(at_once=at_once).found
        except NotLocalError:
            return None
        found = [of for of in found if start_us is None or of.start_us == start_us]
        oldest = now.view.complete_from_us
        if not found and start_us is not None and oldest is not None and start_us < oldest:
            return None  # it may have left the store
        return self._one(self._json(now.view, found, times), now.commit, now.view, times)

    def one_of_tables(self, asked: Question, start_us: int | None, *, times: Times) -> bytes:
        """Return the session of a key that starts at a time, or the row of a key, from the tables."""
        tables = self._follower.tables()
        rows = tables.find(replace(asked, from_us=start_us, to_us=start_us))
        if start_us is not None:
            rows = rows.filter(pc.equal(rows[self._of.start].cast(pa.int64()), start_us))
        return self._one(encoded(rows[:1], times), tables.commit, tables, times)

    def _one(self, rows: Sequence[bytes], commit: BatchCommit, source: View | TablesAtBatch, times: Times) -> bytes:
        """Return the one row as an answer; RefusedError (404) if there is none."""
        name = self._rows.one
        if not rows:
            raise RefusedError(
                404, f"{name}: there is none as of batch {commit.batch_id}; look at the key and the start"
            )
        return envelope(self._head(commit, source, times), name, rows[0])

    def open_of_store(self, limit: int, *, times: Times) -> bytes | None:
        """Return the longest sessions that events can still lengthen, the longest first; None if a shard is not here."""
        now = self._follower.now
        part = None if now.view is None else self.open_part(limit, now.view, times=times)
        return None if part is None else self.open_of_parts(limit, now, [part], times=times)

    def open_part(self, limit: int, view: View, *, times: Times) -> OpenPart | None:
        """Return the longest open sessions in the shards of a view; None if one of them is missing here."""
        asked = (view.commit.commit_id, view.covered, limit, times)
        try:
            view.segments()  # raises if a store is to be erased: rows read from it must not be sent
            if self._open is not None and self._open[0] == asked:
                return self._open[1]
            rows, complete = view.longest_open(limit, self._config.serve.max_scan)
        except NotLocalError:
            return None
        texts = [row.decode() for row in self._json(view, rows, times)]
        places = [(row.end_us - row.start_us, row.start_us, row.key) for row in rows]
        part = OpenPart([(*place, text) for place, text in zip(places, texts, strict=True)], complete)
        self._open = asked, part
        return part

    def open_of_parts(self, limit: int, now: Now, parts: Sequence[OpenPart], *, times: Times) -> bytes:
        """Return the longest of all parts, each as of the batch of `now`."""
        whole = longest(parts, limit)
        rows = [text.encode() for *_, text in whole.rows]
        return envelope(self._head(now.commit, now.view, times, complete=whole.complete), self._rows.list, joined(rows))

    def open_of_tables(self, limit: int, *, times: Times) -> bytes:
        """Return the longest sessions that events can still lengthen, from the tables."""
        tables = self._follower.tables()
        asked = (tables, limit, times)
        if self._open_in_tables is not None and self._open_in_tables[0] == asked:
            return self._open_in_tables[1]
        rows = encoded(tables.longest_open(limit), times)
        answer = envelope(self._head(tables.commit, tables, times, complete=True), self._rows.list, joined(rows))
        self._open_in_tables = asked, answer
        return answer

    def dead_letters(self, reason: str | None, cursor: str | None, limit: int, *, times: Times) -> bytes:
        """Return a page of dead letters, those of the newest batch first, with the cursor of the next one."""
        letters, question = self._letters(), repr((schemas.DEAD_LETTERS, reason))
        after = None if cursor is None else read_cursor(question, cursor, NUMBERS)
        rows = letters.rows(reason, after, limit + 1)
        page = rows[:limit]

        def position(at: int) -> Position:
            return letters.position(page[at : at + 1].to_pylist()[0])

        texts = encoded(letters.shown(page), times)
        head = self._head(self._follower.now.commit, None, times)
        return self._page(schemas.DEAD_LETTERS, question, texts, position, None, head, left=rows.num_rows > limit)

    def dead_letter_reasons(self, limit: int, *, times: Times) -> bytes:
        """Return how many dead letters each reason has, the most frequent reason first."""
        rows = self._letters().reasons(limit + 1)
        head = self._head(self._follower.now.commit, None, times, complete=rows.num_rows <= limit)
        return envelope(head, "reasons", joined(encoded(rows[:limit], times)))

    def _letters(self) -> DeadLetters:
        return DeadLetters(self._config, self._follower.now.commit.batch_id)

    def status(self, *, times: Times) -> dict[str, Any]:
        """Return the state of the pipeline and of this server."""
        now = self._follower.now
        commit, view = now.commit, now.view
        watermark = commit.watermark_us
        clock_us = time.time_ns() // 1000
        age_us, quiet_after_us = max(clock_us - commit.committed_us, 0), self._quiet_after_us()
        missing = dict.fromkeys(range(len(commit.shards)), _NO_VIEW) if view is None else view.lacking
        return {
            "pipeline": self._config.pipeline.name,
            "operator": self._config.operator,
            "list": self._rows.list,
            "columns": {"key": self._of.key, "start": self._of.start, "end": self._of.end, "id": self._of.id},
            "key_columns": self._config.key_columns,
            "numbered": self.numbered,
            "keeps_open": self.keeps_open,
            "ranges": self._config.serve.ranges,
            "max_rows": self._config.serve.max_rows,
            "batch_id": commit.batch_id,
            "committed_at": time_value(commit.committed_us, times),
            "age_us": age_us,
            "quiet_after_us": quiet_after_us,
            "stale": age_us > quiet_after_us,
            "watermark": time_value(watermark, times),
            "lag_us": None if watermark is None else clock_us - watermark,
            "complete_from": time_value(None if view is None else view.complete_from_us, times),
            "shards": {
                "all": len(commit.shards),
                "missing": {str(shard): why for shard, why in missing.items()},
                "from": "tables" if view is None else "next batch" if view.follows else "stores",
            },
            "counts": dict(now.totals),
            "outcomes": schemas.OUTCOMES,
            "failure": self._follower.failure,
        }

    def _quiet_after_us(self) -> int:
        """Return the time without a batch after which the stream counts as quiet; at least that of three batches."""
        history = self._follower.history
        took = history[-1]["committed_at"] - history[-1]["started_at"] if history else 0
        return max(self._config.pipeline.quiet_after_us, 3 * took)

    @property
    def pipeline(self) -> str:
        """A text that identifies this pipeline, even among pipelines with the same name."""
        return f"{quote(self._config.pipeline.name)}/{self._follower.now.commit.checkpoint_id}"

    def metadata(self, key: str) -> dict[str, Any]:
        """Return the place of a key's rows as of the last batch."""
        now = self._follower.now
        commit, view = now.commit, now.view
        shard = shard_of_key(key.encode(), len(commit.shards))
        missing = _NO_VIEW if view is None else view.why_missing(shard)
        return {
            "batch_id": commit.batch_id,
            "key": key,
            "shard": shard,
            "host": commit.places.host_of(shard),
            "local": missing is None,
            "missing": missing,
        }

    def batches(self, after: int, before: int | None, limit: int, *, times: Times) -> bytes:
        """Return the counts of the last batches after one and before another one, oldest first."""
        now = self._follower.now
        end = now.commit.batch_id + 1 if before is None else min(before, now.commit.batch_id + 1)
        rows = [dict(row) for row in tuple(self._follower.history) if after < row["batch_id"] < end]
        for row in rows[-limit:]:
            row.update({name: time_value(row[name], times) for name in ("started_at", "committed_at", "watermark")})
        return envelope(
            self._head(now.commit, now.view, times), "batches", joined([to_json(row) for row in rows[-limit:]])
        )

    def asked_after(self, asked: Question, cursor: str | None) -> Question:
        """Return a question that goes on after a cursor."""
        return asked if cursor is None else replace(asked, after=read_cursor(asked.text, cursor))

    def key_texts(self, keys: Sequence[str | Mapping[str, str]]) -> tuple[str, ...]:
        """Return keys that are named by their text, or by their columns, as texts."""
        return tuple(map(self.key_text, key_texts(keys, self._config.key_columns)))

    def key_text(self, key: str) -> str:
        """Return the text of a key as rows have it: numbers may be written in many ways."""
        return asked_key(self._config, self._follower.now.commit, key)

    def prefix_text(self, prefix: str) -> str:
        """Return the beginning of keys as rows have it, likewise."""
        return asked_prefix(self._config, self._follower.now.commit, prefix)

    def _json(self, view: View, found: Sequence[ResultRow], times: Times) -> list[bytes]:
        rows = view.decoder.json_values(found, times)
        return [row_json(with_key_columns(row, self._of.key, self._of.key_columns)) for row in rows]

    def _reader(self, view: View, asked: Question) -> PageReader:
        return PageReader(view, asked, self._config.serve.max_scan, keyed=self._of.one_per_key)

    def _head(
        self, commit: BatchCommit, source: View | TablesAtBatch | None, times: Times, *, complete: bool | None = None
    ) -> bytes:
        """Return the head of every answer, as JSON: its batch, the time from which it is complete, and the source of its rows."""
        known = commit.commit_id, isinstance(source, View), times, complete
        head = self._heads.get(known)
        if head is None:
            fields: dict[str, Any] = {
                "batch_id": commit.batch_id,
                "watermark": time_value(commit.watermark_us, times),
                "complete_from": time_value(source.complete_from_us if isinstance(source, View) else None, times),
                "served_by": STORE if isinstance(source, View) else DELTA,
            }
            head = to_json(fields if complete is None else {**fields, "complete": complete})
            # All answers of a batch have the same few.
            self._heads = {**{of: text for of, text in self._heads.items() if of[0] == commit.commit_id}, known: head}
        return head

    def _page(
        self,
        name: str,
        question: str,
        rows: Sequence[bytes],
        position: Callable[[int], Position],
        rest: Position | None,
        head: bytes,
        *,
        left: bool,
    ) -> bytes:
        """Return rows as an answer to a question; `position` returns a row's position, and `rest` is the position at which reading ended, if that is after the last row."""
        fit = within(rows, self._config.serve.max_bytes)
        after: Position | None = None
        if fit < len(rows) or left:
            after = position(fit - 1) if fit and (fit < len(rows) or rest is None) else rest
        cursor = None if after is None else write_cursor(question, after)
        return envelope(head, name, joined(rows[:fit]), cursor)
