"""The rules, and the transcription of Kafka Streams, beside the real one: its SessionWindows forward the same updates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from tests.operators.sessions.strategies import Config, Event, Resolver, ci, configs, events, slow
from tests.operators.sessions.valued import FOREVER, VALUED
from tests.oracle.kafka_streams import forwarded, needs_kafka_streams
from tests.oracle.kstreams import KStreamsSimulator

pytestmark = needs_kafka_streams

Update = tuple[Any, ...]
# Kafka knows no times before the epoch; the drafts' lie around 0, too.
SHIFT = 10**14


def check_equals_real_kafka_streams(config: Config, drafted: list[Event]) -> None:
    resolver, config = Resolver(config), replace(config, retention=FOREVER)
    model, simulator = config.model(), KStreamsSimulator(config.gap, config.grace)
    stream, expected = [], []
    for draft in drafted:
        (row,) = resolver.batch([draft], model)
        stream.append((row["key"], row["time_us"] + SHIFT, row["v"]))
        changes = model.process([row]).changes
        simulated = simulator.process(row["key"], row["time_us"], row["v"])
        expected.append((simulated, changes))
    topology = {"kind": "session", "gap": config.gap, "grace": config.grace, "retention": FOREVER}
    for real, (simulated, changes) in zip(forwarded(topology, stream), expected, strict=True):
        updates = [_update(*update) for update in real]
        assert sorted(updates) == sorted(_shortened(update) for update in simulated or ())
        by_start = {_named(change) for change in KStreamsSimulator.by_start(updates)}
        assert by_start == {_change(change) for change in changes}


def _update(key: str, start: int, end: int, count: int | None, total: float | None) -> Update:
    window = key, start - SHIFT, end - SHIFT
    return ("delete", *window) if count is None else ("upsert", *window, count, total)


def _shortened(update: Update) -> Update:
    return update[:4] if update[0] == "delete" else update


def _named(update: Update) -> Update:
    """Return an update as this project knows it: what is deleted is named by key and start."""
    return update[:3] if update[0] == "delete" else update


def _change(change: dict[str, Any]) -> Update:
    if change["op"] == "delete":
        return "delete", change["key"], change["start_us"]
    return change["op"], change["key"], change["start_us"], change["end_us"], change["event_count"], change["total"]


ONE_BY_ONE = {"config": configs(), "drafted": st.lists(events("ab", VALUED), min_size=1, max_size=14)}

test_one_event_per_batch_equals_real_kafka_streams = ci(150, **ONE_BY_ONE)(check_equals_real_kafka_streams)
test_one_event_per_batch_equals_real_kafka_streams_slow = slow(150, **ONE_BY_ONE)(check_equals_real_kafka_streams)
