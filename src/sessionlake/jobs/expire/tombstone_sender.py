"""Tombstones to the topic of the events for rows that cleanups removed, sent by the stream's driver after its commits.

Kafka has no compare-and-set: if a key gets an update between the look at its row and the tombstone, readers of the
topic lose the update. Therefore a tombstone waits until the stream has read all records that the topic had when the
tombstone became due. It is not sent if the key has a row again (docs/rules.md, rule 180).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.engine import failpoints
from sessionlake.jobs.expire.job import Pace
from sessionlake.jobs.expire.topic import send_tombstones, source_cluster, topic_tombstones
from sessionlake.operators.shared.cleanups.brake import JUMPED
from sessionlake.operators.shared.cleanups.names import LRU, TTL
from sessionlake.stream.kind import ALLOW_EXPIRY
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.changelog import CAUSE
from sessionlake.warehouse.tables import Table, Tables
from sessionlake.warehouse.views import changes, latest_changes

APP = "sessionlake.topic"
"""Delta's txnAppId of the sender's progress in the changelog. Its txnVersion is the first batch whose tombstones may be missing in the topic."""
_RECORD_EVERY = 1000
"""Batches without a tombstone after which progress is recorded: a start then has fewer batches to look through."""


def tombstone_rate(config: Config) -> int | None:
    """Return how many tombstones a second the config lets the stream send to its topic; None if it asks for none."""
    return config.section.facts.tombstones_per_second


def first_unsent_batch(tables: Tables, config: Config) -> int | None:
    """Return the first batch whose tombstones may still have to be sent; None if there is none."""
    if tombstone_rate(config) is None:
        return None
    name = tables.changelog.changes
    changes_ = tables[name]
    return min(
        (batch.batch_id for batch in _since(changes_, name, changes_.app_version(APP) or 0) if removed_by(batch)),
        default=None,
    )


def _since(changes_: Table, name: str, first: int) -> Iterator[BatchCommit]:
    """Yield the committed batches from `first` on, newest first, until a batch that was made when nobody asked for tombstones."""
    for commit in changes_.batch_commits():
        batch = BatchCommit.of(commit, name)
        if batch.batch_id < first or not _wants_tombstones(batch):
            return
        yield batch


def removed_by(batch: BatchCommit) -> int:
    """Return an upper bound on a batch's tombstones in the topic: the rows that the batch's cleanups removed."""
    gone = sum(batch.counts.get(f"deleted_by_{cause}", 0) for cause in (TTL, LRU))
    return gone if _wants_tombstones(batch) and not _follows_jump(batch) else 0


@dataclass
class _Round:
    """The tombstones of all batches up to a batch, sent in parts."""

    until: int
    ends: Mapping[int, int]
    """The end of each partition of the topic when the round began."""
    parts: int
    sent: int = 0


class TombstoneSender:
    """Sends the tombstones of one run of a stream; if the config asks for none it does nothing.

    At least once: how far the topic is is written down after all tombstones of a round are there.
    """

    def __init__(self, spark: SparkSession, config: Config, pace: Pace | None = None) -> None:
        """Find the tombstones that earlier runs have not sent. Raises SourceError if there are any and the topic can't be reached."""
        self._spark, self._config, self._per_second = spark, config, tombstone_rate(config)
        self._tombstones = topic_tombstones(config)
        self._tables, self._pace = Tables.of(spark, config), pace or Pace()
        self._changes = self._tables[self._tables.changelog.changes]
        self._unsent: dict[int, int] = {}
        self._withheld: list[tuple[int, int]] = []
        """Batches whose tombstones are withheld, as ranges, since a day has many batches."""
        self._recorded, self._last = 0, -1
        self._round: _Round | None = None
        if self._per_second is not None and self._changes.exists():
            self._recorded = self._changes.app_version(APP) or 0
            last = find_last_batch(self._tables)
            self._last = -1 if last is None else last.batch_id
            for batch in _since(self._changes, self._tables.changelog.changes, self._recorded):
                self.committed(batch)
            # The round begins now: if the run ends while a producer is busy, only its own tombstones are left to the
            # next run.
            self._round = self._begun() if self._unsent else None

    def committed(self, batch: BatchCommit) -> None:
        """Note a batch that was committed."""
        self._last = max(self._last, batch.batch_id)
        if removed := removed_by(batch):
            self._unsent[batch.batch_id] = removed
        if _follows_jump(batch):
            self._withheld = joined(self._withheld, batch.batch_id)

    def wake(self) -> None:
        """Send a part of the tombstones that are due, if any; called now and then between batches."""
        if self._per_second is None:
            return
        if self._round is None and self._unsent:
            self._round = self._begun()
        if self._round is None:
            if self._last + 1 - self._recorded >= _RECORD_EVERY:
                self._record(self._last + 1)
        elif self._pace.left_s == 0 and self._has_read(self._round):
            self._send(self._round)

    def finish(self) -> None:
        """Send all due tombstones after the stream has ended. Tombstones that need more of the topic read are left to the next run."""
        while self._unsent:
            self._round = self._round or self._begun()
            if not self._has_read(self._round):
                return
            self._send(self._round)
        self.wake()

    def _begun(self) -> _Round:
        rows, topic = sum(list(self._unsent.values())), self._config.source.topic or ""
        most = max(1, int((self._per_second or 1) * self._pace.interval_s))
        until = max(list(self._unsent))
        return _Round(until, source_cluster(self._config).end_offsets(self._spark, topic), -(-rows // most))

    def _has_read(self, round_: _Round) -> bool:
        """Say whether the last batch was of all that the topic had when the round began."""
        text = self._tables.read_text(f"{self._config.checkpoint}/offsets/{self._last}")
        lines = (text or "").splitlines()[2:]
        read = json.loads(lines[0]).get(self._config.source.topic, {}) if lines and lines[0] != "-" else {}
        return all(int(read.get(str(partition), 0)) >= end for partition, end in round_.ends.items())

    def _send(self, round_: _Round) -> None:
        """Send a part of a round; after the last part, record the topic's progress."""
        self._pace.wait()
        rows = self._gone(round_.until)
        if round_.parts > 1:
            part = F.pmod(F.xxhash64(self._tables.changelog.key), F.lit(round_.parts))
            rows = rows.where(part == round_.sent)
        if self._tombstones is not None:
            send_tombstones(self._config, self._tombstones, rows)
        round_.sent += 1
        if round_.sent < round_.parts:
            return
        failpoints.hit("topic_sent")
        self._record(round_.until + 1)
        self._forget(round_.until + 1)
        self._round = None

    def _gone(self, until: int) -> DataFrame:
        """Return the changes that removed rows, in batches up to a batch, for keys without a later change."""
        untold = changes(self._changes.read(), after=min(list(self._unsent)) - 1)
        latest = latest_changes(untold, self._tables.changelog)
        gone = latest.where((F.col("op") == "delete") & F.col(CAUSE).isin(TTL, LRU) & (F.col("batch_id") <= until))
        for first, last in self._withheld:
            gone = gone.where(~F.col("batch_id").between(first, last))
        return gone

    def _forget(self, first: int) -> None:
        """Forget batches before a batch; in place, since the stream notes others meanwhile."""
        for batch_id in [n for n in list(self._unsent) if n < first]:
            del self._unsent[batch_id]

    def _record(self, first: int) -> None:
        self._changes.set_app_versions({APP: lambda version: first if first > version else None})
        self._recorded = first


def joined(ranges: list[tuple[int, int]], number: int) -> list[tuple[int, int]]:
    """Return ranges, ends inclusive, with a number added; neighbours are joined.

    >>> joined([(1, 2), (5, 6)], 3)
    [(5, 6), (1, 3)]
    """
    near = [r for r in ranges if r[0] - 1 <= number <= r[1] + 1]
    low, high = min([number, *(r[0] for r in near)]), max([number, *(r[1] for r in near)])
    return [*(r for r in ranges if r not in near), (low, high)]


def _wants_tombstones(batch: BatchCommit) -> bool:
    """Say whether a batch was made under a config that asks for tombstones in the topic."""
    return bool((batch.settings.live.get("ttl") or {}).get("topic_tombstones"))


def _follows_jump(batch: BatchCommit) -> bool:
    """Say whether a batch came within a day of a jump of the clock that nobody has vouched for."""
    return JUMPED in batch.state and not batch.settings.live.get(ALLOW_EXPIRY)
