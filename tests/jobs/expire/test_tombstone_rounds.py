"""Which tombstones are due, and when: without Spark and without a broker."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sessionlake.config.load import parse_config
from sessionlake.jobs.expire import tombstone_sender
from sessionlake.jobs.expire.job import Pace
from sessionlake.jobs.expire.tombstone_sender import TombstoneSender
from sessionlake.operators.keyed.table import TABLE
from sessionlake.warehouse.batch_commit import BatchCommit, Settings
from sessionlake.warehouse.delta_log import Commit


def batch(number: int, removed: int, *, asked: bool = True) -> BatchCommit:
    settings = Settings({}, {"ttl": {"topic_tombstones": asked}}, {})
    return BatchCommit("t", "id", number, "c", {}, {"deleted_by_ttl": removed}, (None,), "", settings, None, 0, 0)


class Lake:
    """A changelog's log, the offsets that its batches had read, and the topic."""

    changelog = TABLE

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path, *batches: BatchCommit) -> None:
        self.commits = {n: Commit(n, one.metadata()) for n, one in enumerate(batches)}
        self.recorded: int | None = None
        self.read, self.end = 0, 0
        self.sent: list[tuple[int, int]] = []
        monkeypatch.setattr(tombstone_sender.Tables, "of", lambda *_: self)
        monkeypatch.setattr(tombstone_sender, "find_last_batch", lambda _: batches[-1] if batches else None)
        monkeypatch.setattr(tombstone_sender, "source_cluster", lambda _: self)
        monkeypatch.setattr(tombstone_sender, "send_tombstones", lambda _, __, rows: self.sent.append(rows))
        monkeypatch.setattr(TombstoneSender, "_gone", lambda run, until: (min(run._unsent), until))
        source = {"kind": "kafka", "topic": "t", "bootstrap_servers": "a:1", "format": "json", "tombstones": True}
        sections = {
            "pipeline": {"name": "t", "warehouse": "w"},
            "source": source,
            "event": {"key": "_key", "time": "_timestamp"},
            "table": {"columns": ["v"]},
            "ttl": {"pattern": "index", "ttl": "1 hour", "topic_tombstones": True},
        }
        self.config = parse_config(sections, root)

    def __getitem__(self, name: str) -> "Lake":
        return self

    def exists(self) -> bool:
        return bool(self.commits)

    def versions(self) -> Iterator[int]:
        return reversed(self.commits)

    def commit(self, version: int) -> Commit:
        return self.commits[version]

    def batch_commits(self) -> Iterator[Commit]:
        commits = (self.commits[version] for version in self.versions())
        return (one for one in commits if not one.metadata.get("copied") and "batch_id" in one.metadata)

    def app_version(self, _: str) -> int | None:
        return self.recorded

    def set_app_versions(self, change: Mapping[str, Callable[[int], int | None]]) -> None:
        found = change[tombstone_sender.APP](-1 if self.recorded is None else self.recorded)
        self.recorded = self.recorded if found is None else found

    def read_text(self, _: str) -> str:
        return f"v1\n{{}}\n{json.dumps({'t': {'0': self.read}})}\n-"

    def end_offsets(self, *_: Any) -> dict[int, int]:
        return {0: self.end}

    def run(self) -> TombstoneSender:
        spark: Any = None
        return TombstoneSender(
            spark, self.config, Pace(sleep=lambda _: None, clock=iter(range(0, 10**6, 100)).__next__)
        )


def test_a_round_waits_until_all_is_read_that_the_topic_held_when_it_began(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lake = Lake(monkeypatch, tmp_path)
    run = lake.run()
    lake.read, lake.end = 9, 10
    run.committed(batch(0, 3))
    run.wake()
    lake.end = 11
    run.committed(batch(1, 0))
    run.finish()
    assert lake.sent == []
    # What came after the round had begun is of no account; what is removed meanwhile is of the next round.
    lake.read = 10
    run.committed(batch(2, 4))
    run.wake()
    assert (lake.sent, lake.recorded) == ([(0, 0)], 1)
    run.wake()
    assert lake.sent == [(0, 0)]
    lake.read = 11
    run.wake()
    run.wake()
    assert (lake.sent, lake.recorded) == ([(0, 0), (2, 2)], 3)


@pytest.mark.parametrize(
    ("recorded", "sent", "then"),
    [(None, [(2, 4)], 5), (3, [(4, 4)], 5), (5, [], 5)],
)
def test_a_start_sends_what_is_not_known_to_be_sent_since_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, recorded: int | None, sent: list[tuple[int, int]], then: int
) -> None:
    made = [batch(0, 1), batch(1, 1, asked=False), batch(2, 1), batch(3, 0), batch(4, 1)]
    lake = Lake(monkeypatch, tmp_path, *made)
    lake.recorded = recorded
    tables: Any = lake
    assert tombstone_sender.first_unsent_batch(tables, lake.config) == (sent[0][0] if sent else None)
    lake.run().finish()
    assert (lake.sent, lake.recorded) == (sent, then)


def test_what_maintenance_copies_is_no_batch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A job writes down again what it saw last, after a batch that was committed beside it."""
    lake = Lake(monkeypatch, tmp_path, batch(0, 1), batch(1, 1))
    lake.commits[2] = Commit(2, {**lake.commits[0].metadata, "copied": True})
    lake.recorded = 1
    lake.run().finish()
    assert (lake.sent, lake.recorded) == ([(1, 1)], 2)


def test_many_batches_without_a_tombstone_are_written_down(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lake = Lake(monkeypatch, tmp_path)
    run = lake.run()
    run.committed(batch(998, 0))
    run.wake()
    assert lake.recorded is None
    run.committed(batch(999, 0))
    run.finish()
    assert (lake.recorded, lake.sent) == (1000, [])
