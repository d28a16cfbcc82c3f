"""The pairs of JoinWindows of real Kafka Streams, an event a batch, beside the harness's."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sessionlake.testing.joins import JoinHarness
from tests.oracle.kafka_streams import forwarded, needs_kafka_streams
from tests.support import examples

pytestmark = needs_kafka_streams

START, SPREAD = 100, 40
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.integers(START, START + SPREAD),
        st.integers(0, 9),
        st.sampled_from(["left", "right"]),
    ),
    max_size=16,
)


@examples(25)
@given(before=st.integers(0, 12), after=st.integers(0, 12), events=MESSAGES, shards=st.integers(1, 2))
def test_every_event_makes_the_pairs_that_kafka_forwards_while_nothing_is_late(
    before: int, after: int, events: list[tuple[Any, ...]], shards: int
) -> None:
    real = forwarded({"kind": "join", "before": before, "after": after, "grace": SPREAD}, events)
    # A left message waits for right ones that come after it, a right one for left ones: Kafka's `before` is the right's.
    with JoinHarness(
        on=["k"],
        left={"name": "a", "size": f"{after} ms", "columns": ["v"]},
        right={"name": "b", "size": f"{before} ms", "columns": ["v"]},
        grace=f"{SPREAD} ms",
        retention="1 minute",
        shards=shards,
        schema={"k": "string", "v": "long"},
    ) as join:
        for (key, time, value, side), expected in zip(events, real, strict=True):
            rows = [{"k": key, "time_us": time * 1000, "v": value}]
            output = join.process(rows, []) if side == "left" else join.process([], rows)
            assert output.late == output.dead == []
            found = [
                (p["join_key"], max(p["left_time"], p["right_time"]) // 1000, p["a_v"], p["b_v"]) for p in output.pairs
            ]
            assert sorted(found) == sorted(expected)
