"""One random history on both engines of stores: every row, state and count is the same, whatever is lost or reopened on the way."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given as given_by
from hypothesis import strategies as st

from sessionlake.config.operators import OPERATORS
from sessionlake.config.store_engines import ENGINES
from sessionlake.local.stream import LocalBatch
from sessionlake.store.rocks import RocksSegments
from sessionlake.testing import Harness
from sessionlake.testing.configured import ConfigOutput
from tests.local.configs import CONFIGS, EVENT, SIDED, given
from tests.support import examples

SECOND = 1_000_000
SCHEMA = {"key": "string", "time_us": "long", "v": "long"}
TTL = {"ttl": "1 hour", "clock": "stream", "every": "1 minute"}
UNIQUE = {"event": {**EVENT, "id": "v", "unique_for": "1 day"}}
POLICIES = {"emit": {"early": "1 minute", "full": "close", "late": "close"}}
FORMS = {
    **CONFIGS,
    "table, scan": {**CONFIGS["table"], "ttl": {"pattern": "scan", **TTL}},
    "table, index": {**CONFIGS["table"], "ttl": {"pattern": "index", **TTL}},
    "table, segments": {**CONFIGS["table"], "ttl": {"pattern": "segments", "ttl": "1 hour"}},
    "table, lru": {**CONFIGS["table"], "ttl": {"pattern": "lru", "max_entries": 2}},
    "unique session": {**CONFIGS["session"], **UNIQUE},
    "unique group": {**CONFIGS["group"], **UNIQUE},
    "session by policy": {**CONFIGS["session"], **POLICIES},
    "window by policy": {**CONFIGS["window"], **POLICIES},
}
rows = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["", "a", "b", "é", "\x00", None]),
            "time_us": st.integers(0, 3 * 24 * 3600).map(lambda second: second * SECOND)
            | st.integers(0, 600).map(lambda second: second * SECOND),
            "v": st.none() | st.integers(-(2**40), 2**40),
        }
    ),
    max_size=12,
)
steps = st.lists(
    st.tuples(st.just("rows"), rows, rows)
    | st.tuples(st.sampled_from(["lost", "reopened"]))
    | st.tuples(st.just("advanced"), st.integers(0, 3 * 24 * 3600)),
    min_size=1,
    max_size=8,
)


class Tables(Harness):
    """A harness that keeps the tables of its last batch."""

    batch: LocalBatch

    def _told(self, batch: LocalBatch, given: Mapping[str, Any]) -> ConfigOutput:
        self.batch = batch
        return super()._told(batch, given)

    def reopen(self) -> None:
        self._shards.close()


def sent(batch: LocalBatch) -> list[dict[str, pa.Table]]:
    """Return the tables of each shard, states among them."""
    return [{"changes": result.changes, **result.side} for result in batch.results]


def counted(batch: LocalBatch) -> dict[str, int]:
    """Return the numbers of a batch but for a measured time."""
    return {name: number for name, number in batch.stats.items() if name != "cleanup_us"}


def do(harness: Tables, operator: str, step: tuple[Any, ...]) -> None:
    match step:
        case ("rows", left, right):
            harness.process({"left": left, "right": right} if operator in SIDED else given(operator, left + right))
        case ("advanced", second):
            harness.advance(second * SECOND)
        case ("lost",):
            harness.lose_stores()
        case _:
            harness.reopen()


def test_every_operator_is_here() -> None:
    assert CONFIGS.keys() == OPERATORS.keys()
    with Tables({**CONFIGS["group"], "pipeline": {**PIPELINE, "store_engine": "rocksdb"}}) as harness:
        harness.process([{"key": "a", "time_us": 0, "v": 1}])
        assert isinstance(harness._shards.store(harness._build(), 0)._db, RocksSegments)


@pytest.mark.parametrize("operator", FORMS)
@examples(12)
@given_by(steps, st.sampled_from([1, 3]))
def test_a_random_history_gives_the_same_on_both(operator: str, history: list[tuple[Any, ...]], shards: int) -> None:
    configs = ({**FORMS[operator], "pipeline": {**PIPELINE, "store_engine": engine}} for engine in ENGINES)
    files, rocks = (Tables(config, schema=SCHEMA, shards=shards) for config in configs)
    # The hashes of identities are as secret as the pipeline's own.
    rocks._secret = files._secret
    with files, rocks:
        for step in history:
            for harness in (files, rocks):
                do(harness, operator, step)
            if step[0] in ("rows", "advanced"):  # the other steps give no batch
                assert sent(files.batch) == sent(rocks.batch)
                assert counted(files.batch) == counted(rocks.batch)
                assert files.state == rocks.state


PIPELINE = {"name": "local", "warehouse": "warehouse", "store": "store"}
