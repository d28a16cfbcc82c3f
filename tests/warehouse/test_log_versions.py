"""Versions of a log asked for one by one, against its whole listing; without Spark, on a log that is but numbers."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from sessionlake.warehouse.delta_log import DeltaLog, LogFiles
from sessionlake.warehouse.history import user_metadata

META = json.dumps({"commitInfo": {"userMetadata": user_metadata({"batch_id": 1})}})


class NumbersLog(DeltaLog, LogFiles):
    """A log whose commits are the numbers in `there`; counts what it is asked."""

    def __init__(self, there: range, checkpoint: int | None) -> None:
        super().__init__(self, "w/t")
        self.there, self.checkpoint = there, checkpoint
        self.asked = self.listed = 0

    def app_version(self, app_id: str) -> int | None:
        raise NotImplementedError

    def has(self, version: int) -> bool:
        self.asked += 1
        return version in self.there

    def names(self, uri: str) -> list[str]:
        self.listed += 1
        assert uri == "w/t/_delta_log"
        return ["_last_checkpoint", "0.crc", *(f"{version:020d}.json" for version in self.there)]

    def read_text(self, uri: str) -> str | None:
        file = uri.rpartition("/")[2]
        if file == "_last_checkpoint":
            return None if self.checkpoint is None else json.dumps({"version": self.checkpoint})
        return META if int(file.removesuffix(".json")) in self.there else None


logs = st.tuples(st.integers(0, 9), st.integers(0, 40)).map(lambda log: range(log[0], log[0] + log[1]))


@settings(deadline=None)
@given(log=logs, checkpoint=st.none() | st.integers(0, 60), grown=st.lists(st.integers(0, 40), max_size=3))
def test_versions_are_those_listed_however_the_log_grows(log: range, checkpoint: int | None, grown: list[int]) -> None:
    found = NumbersLog(log, checkpoint)
    for more in [0, *grown]:
        found.there = range(found.there.start, found.there.stop + more)
        assert found.latest_version() == max(found.there, default=-1)
        assert found.exists() == bool(found.there)
        assert list(found.versions()) == list(reversed(found.there))
        for after in (-1, found.there.start + 5, found.there.stop):
            assert [c.version for c in found.commits(after)] == [v for v in found.there if v > after]


def test_a_long_log_is_not_listed() -> None:
    log = NumbersLog(range(5_000, 260_000), 259_900)
    assert log.latest_version() == 259_999
    assert [c.version for c in log.commits(259_996)] == [259_997, 259_998, 259_999]
    last = log.last_commit()
    assert last is not None
    assert (last.version, log.listed) == (259_999, 0)
    assert log.asked < 40
    before = log.last_commit(until=5_001)
    assert before is not None
    assert before.version == 5_001
    assert log.last_commit(until=4_999) is None
    assert log.asked < 60


def test_a_log_that_was_put_back_is_looked_at_anew() -> None:
    log = NumbersLog(range(100), 90)
    assert log.latest_version() == 99
    log.there = range(50)
    assert log.latest_version() == 49
