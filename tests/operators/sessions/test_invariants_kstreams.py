"""With one event per batch and a large retention the changes are those of Kafka Streams."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from tests.operators.sessions.strategies import Config, Event, Resolver, ci, configs, events, opened, slow
from tests.operators.sessions.valued import FOREVER, VALUED
from tests.oracle.kstreams import KStreamsSimulator


def check_equals_kafka_streams(config: Config, drafted: list[Event]) -> None:
    # The drafts keep the drawn retention: it places their times.
    resolver, config = Resolver(config), replace(config, retention=FOREVER)
    kafka, model = KStreamsSimulator(config.gap, config.grace), config.model()
    with opened(config) as harness:
        for draft in drafted:
            (row,) = resolver.batch([draft], model)
            model.process([row])
            out = harness.process([row])
            forwarded = kafka.process(row["key"], row["time_us"], row["v"])
            if forwarded is None:
                assert [late["id"] for late in out.late] == [row["id"]]
                assert out.changes == []
            else:
                actual = {
                    ("upsert", c["key"], c["start_us"], c["end_us"], c["event_count"], c["total"])
                    if c["op"] == "upsert"
                    else ("delete", c["key"], c["start_us"])
                    for c in out.changes
                }
                expected = {c if c[0] == "upsert" else c[:3] for c in kafka.by_start(forwarded)}
                assert actual == expected
                assert len(out.changes) == len(expected)


ONE_BY_ONE = {"config": configs(), "drafted": st.lists(events("ab", VALUED), min_size=1, max_size=14)}

test_one_event_per_batch_equals_kafka_streams = ci(40, **ONE_BY_ONE)(check_equals_kafka_streams)
test_one_event_per_batch_equals_kafka_streams_slow = slow(40, **ONE_BY_ONE)(check_equals_kafka_streams)
