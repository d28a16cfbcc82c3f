"""Tombstones to a keyed table's topic for the rows that its cleanups removed, sent by the stream's driver after their commits.

Kafka has no compare-and-set: where a key gets an update between the look at its row and the tombstone, those who read the topic
lose the update. So a tombstone waits until the stream has read what the topic had when it became due, and is not sent
where the key has a row again (docs/rules.md, rule 180).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionlake.config.load import Config
from sessionlake.engine import failpoints
from sessionlake.jobs.expire.job import Pace
from sessionlake.jobs.expire.topic import send_expiries, source_cluster
from sessionlake.operators.cleanups.brake import JUMPED
from sessionlake.operators.keyed.section import TableSection
from sessionlake.operators.keyed.ttl_section import TtlSection
from sessionlake.stream.kind import ALLOW_EXPIRY
from sessionlake.warehouse.batch_commit import BatchCommit
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.changelog import CAUSE, LRU, TTL
from sessionlake.warehouse.tables import Table, Tables
from sessionlake.warehouse.views import changes, latest_changes

APP = "sessionlake.topic"
"""Delta's txnAppId under which the changelog says how far the topic is; its txnVersion is the first batch of which it may lack tombstones."""
_RECORD_EVERY = 1000
"""Batches without a tombstone after which that is written down, so that a start need not look through more."""


def telling(config: Config) -> TtlSection | None:
    """Return the section [ttl] that asks for tombstones in the topic; None where none does."""
    ttl = config.section.ttl if isinstance(config.section, TableSection) else None
    return ttl if ttl is not None and ttl.topic_tombstones else None


def first_untold(tables: Tables, config: Config) -> int | None:
    """Return the first batch of which tombstones may still have to be sent; None where there is none."""
    if telling(config) is None:
        return None
    changes_ = tables[tables.changelog.changes]
    return min(
        (batch.batch_id for batch in _since(changes_, changes_.app_version(APP) or 0) if removed_by(batch)),
        default=None,
    )


def _since(changes_: Table, first: int) -> Iterator[BatchCommit]:
    """Yield the committed batches from one on, the last one first, up to the last that was made when nobody asked for tombstones."""
    for version in changes_.versions():
        commit = changes_.commit(version)
        if commit is None or "batch_id" not in commit.metadata or commit.metadata.get("copied"):
            continue
        batch = BatchCommit.of(commit)
        if batch.batch_id < first or not _tells(batch):
            return
        yield batch


def removed_by(batch: BatchCommit) -> int:
    """Return how many rows a batch took away, at the most, of which the topic is to be told."""
    gone = sum(batch.counts.get(f"deleted_by_{cause}", 0) for cause in (TTL, LRU))
    return gone if _tells(batch) and not _follows_jump(batch) else 0


@dataclass
class _Round:
    """The tombstones of all batches up to one, which are sent in parts."""

    until: int
    ends: Mapping[int, int]
    """Where the topic's partitions ended when it began."""
    parts: int
    sent: int = 0


class Told:
    """Sends the tombstones of one run of a stream; where the config asks for none it does nothing.

    At least once: how far the topic is is written down after all tombstones of a round are there.
    """

    def __init__(self, spark: SparkSession, config: Config, pace: Pace | None = None) -> None:
        """Find what earlier runs have not sent. SourceError where there is such and the topic can't be reached."""
        self._spark, self._config, self._ttl = spark, config, telling(config)
        self._tables, self._pace = Tables.of(spark, config), pace or Pace()
        self._changes = self._tables[self._tables.changelog.changes]
        self._unsent: dict[int, int] = {}
        self._withheld: list[tuple[int, int]] = []
        """Batches of which nothing is told, as ranges: a day has many."""
        self._recorded, self._last = 0, -1
        self._round: _Round | None = None
        if self._ttl is not None and self._changes.exists():
            self._recorded = self._changes.app_version(APP) or 0
            last = find_last_batch(self._tables)
            self._last = -1 if last is None else last.batch_id
            for batch in _since(self._changes, self._recorded):
                self.committed(batch)
            # Now, so that a run that ends beside a busy producer leaves to the next one what is its own only.
            self._round = self._begun() if self._unsent else None

    def committed(self, batch: BatchCommit) -> None:
        """Note a batch that was committed."""
        self._last = max(self._last, batch.batch_id)
        if removed := removed_by(batch):
            self._unsent[batch.batch_id] = removed
        if _follows_jump(batch):
            self._withheld = joined(self._withheld, batch.batch_id)

    def wake(self) -> None:
        """Send a part of what is due, if anything is: to be called now and then beside the batches."""
        if self._ttl is None:
            return
        if self._round is None and self._unsent:
            self._round = self._begun()
        if self._round is None:
            if self._last + 1 - self._recorded >= _RECORD_EVERY:
                self._record(self._last + 1)
        elif self._pace.left_s == 0 and self._has_read(self._round):
            self._send(self._round)

    def finish(self) -> None:
        """Send all that is due, once the stream has ended; what it must first read more for is left to the next run."""
        while self._unsent:
            self._round = self._round or self._begun()
            if not self._has_read(self._round):
                return
            self._send(self._round)
        self.wake()

    def _begun(self) -> _Round:
        rows, topic = sum(list(self._unsent.values())), self._config.source.topic or ""
        most = max(1, int((self._ttl.max_tombstones_per_second if self._ttl else 1) * self._pace.interval_s))
        until = max(list(self._unsent))
        return _Round(until, source_cluster(self._config).end_offsets(self._spark, topic), -(-rows // most))

    def _has_read(self, round_: _Round) -> bool:
        """Say whether the last batch was of all that the topic had when the round began."""
        text = self._tables.read_text(f"{self._config.checkpoint}/offsets/{self._last}")
        lines = (text or "").splitlines()[2:]
        read = json.loads(lines[0]).get(self._config.source.topic, {}) if lines and lines[0] != "-" else {}
        return all(int(read.get(str(partition), 0)) >= end for partition, end in round_.ends.items())

    def _send(self, round_: _Round) -> None:
        """Send a part of a round; after the last one write down how far the topic is."""
        self._pace.wait()
        rows = self._gone(round_.until)
        if round_.parts > 1:
            part = F.pmod(F.xxhash64(self._tables.changelog.key), F.lit(round_.parts))
            rows = rows.where(part == round_.sent)
        send_expiries(self._config, rows)
        round_.sent += 1
        if round_.sent < round_.parts:
            return
        failpoints.hit("topic_sent")
        self._record(round_.until + 1)
        self._forget(round_.until + 1)
        self._round = None

    def _gone(self, until: int) -> DataFrame:
        """Return the changes by which rows went in batches up to one, of keys that have had no change since."""
        untold = changes(self._changes.read(), after=min(list(self._unsent)) - 1)
        latest = latest_changes(untold, self._tables.changelog)
        gone = latest.where((F.col("op") == "delete") & F.col(CAUSE).isin(TTL, LRU) & (F.col("batch_id") <= until))
        for first, last in self._withheld:
            gone = gone.where(~F.col("batch_id").between(first, last))
        return gone

    def _forget(self, first: int) -> None:
        """Forget batches before one; in place, since the stream notes others meanwhile."""
        for batch_id in [n for n in list(self._unsent) if n < first]:
            del self._unsent[batch_id]

    def _record(self, first: int) -> None:
        self._changes.set_app_versions({APP: lambda version: first if first > version else None})
        self._recorded = first


def joined(ranges: list[tuple[int, int]], number: int) -> list[tuple[int, int]]:
    """Return ranges, ends inclusive, that have a number, too; neighbours become one."""
    near = [r for r in ranges if r[0] - 1 <= number <= r[1] + 1]
    low, high = min([number, *(r[0] for r in near)]), max([number, *(r[1] for r in near)])
    return [*(r for r in ranges if r not in near), (low, high)]


def _tells(batch: BatchCommit) -> bool:
    """Say whether a batch was made under a config that asks for tombstones in the topic."""
    return bool((batch.settings.live.get("ttl") or {}).get("topic_tombstones"))


def _follows_jump(batch: BatchCommit) -> bool:
    """Say whether a batch came within a day of a jump of the clock that nobody has vouched for."""
    return JUMPED in batch.state and not batch.settings.live.get(ALLOW_EXPIRY)
