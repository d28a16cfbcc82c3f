"""The sections of a join: what is wrong is one line that names the key and the remedy."""

from pathlib import Path
from typing import Any

import pytest

from sessionlake.config.load import Config, parse_config
from sessionlake.errors import ConfigError
from sessionlake.operators.joins.spec import HOPPING, least_retention
from tests.operators.joins.join_support import join_config, join_raw
from tests.oracle.joins import Reach

TOPIC = {"kind": "kafka", "topic": "t", "bootstrap_servers": "${env:SERVERS}", "format": "json"}
COUNT = {"by": "count", "retention": None, "grace": None, "retention_count": 20}
SIZES = {"left": {"size": 3}, "right": {"size": "unbounded"}}
NO_SIZES = {"left": {"size": None}, "right": {"size": None}}
TUMBLING = {**NO_SIZES, "kind": "tumbling", "size": "10 us"}


def parse(**changes: Any) -> Config:
    return parse_config(join_raw(**changes), Path("/project"))


def test_each_side_is_a_config_of_its_own() -> None:
    config = parse(right={"source": {**TOPIC, "options": {"kafka.ssl.key": "${file:key.pem}"}}})
    left, right = config.inputs.values()
    assert list(config.inputs) == ["left", "right"]
    assert (left.source.path, right.source.topic) == ("/project/left", "t")
    assert right.source.options == {"kafka.ssl.key": "${file:/project/key.pem}"}
    assert left.checkpoint == config.checkpoint
    with pytest.raises(
        ConfigError, match=r"^source: this is for pipelines with one \[source\], and this one has several"
    ):
        _ = config.source.path


def test_future_skew_is_a_side_s_own_and_else_the_grace_but_a_minute_at_least() -> None:
    config = parse(grace="2 hours", retention="1 day", left={"event": {"time": "t", "max_future_skew": "3 hours"}})
    live = config.live_settings()
    assert (live["left"]["max_future_skew_us"], live["right"]["max_future_skew_us"]) == (10_800_000_000, 7_200_000_000)
    assert parse().inputs["left"].max_future_skew_us == 60_000_000
    assert [w.partition(":")[0] for w in config.warnings()] == ["join.left.event.max_future_skew"]


def test_tables_are_bound_to_what_pairs_are_of_and_not_to_what_may_change() -> None:
    settings = parse().rebuild_settings()
    for changed in ({"on": ["k = l"]}, {"left": {"size": "9 us"}}, {"right": {"columns": []}}, {"kind": "tumbling"}):
        more = {"size": "9 us", "left": {"size": None}, "right": {"size": None}} if "kind" in changed else {}
        assert parse(**changed, **more).rebuild_settings() != settings
    assert parse(left={"event": {"time": "other"}}).rebuild_settings() != settings
    assert parse(grace="1 us", idle="2 minutes", emit={"early": "1 s"}).rebuild_settings() == settings
    full = {early: parse(**TUMBLING, emit=emit) for early, emit in (("off", {"full": "end", "early": "off"}), ("", {}))}
    assert full["off"].rebuild_settings() == full[""].rebuild_settings()
    assert full["off"].live_settings() != full[""].live_settings()
    assert parse(idle="2 minutes").live_settings() != parse().live_settings()


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "hopping", "size": "10 us", "advance": "5 us", "left": {"size": None}, "right": {"size": None}},
        {"kind": "tumbling", "size": "10 us", "offset": "3 us", "left": {"size": None}, "right": {"size": None}},
        {"kind": "session", "gap": "10 us", "left": {"size": None}, "right": {"size": None}},
        {**TUMBLING, "emit": {"full": "end", "early": "off"}},
        {**TUMBLING, "type": "full", "idle": "1 s", "emit": {"full": "close", "early": "off", "unmatched": "close"}},
        {**COUNT, **SIZES},
        {**COUNT, **SIZES, "retention_count": 3},
        {"retention": "25 us"},
        {"retention": "25 us", "retention_count": 1},
        {**NO_SIZES, "kind": "hopping", "size": "10 us", "advance": "5 us", "retention": "20 us"},
        {**NO_SIZES, "kind": "tumbling", "size": "10 us", "retention": "15 us"},
        {**NO_SIZES, "kind": "session", "gap": "10 us", "retention": "25 us"},
        {"on": []},
        {"on": ["order = id", "day"], "emit": {"early": "1 minute", "late": "10 seconds", "tick_offset": "1 s"}},
    ],
)
def test_a_right_join(changes: dict[str, Any]) -> None:
    assert parse(**changes).operator == "join"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": {"kind": "delta"}}, "source: can't be used with [join], which has one on each side"),
        (
            {"event": {"time": "t"}},
            "event: can't be used with [join], which has one on each side; write join.left.event",
        ),
        ({"type": "left", "idle": "1 s", **COUNT, **SIZES}, "join.type: 'left' is of joins by time"),
        ({"type": "left"}, "join.idle: is missing; with type = 'left' it says after how long a silent side"),
        ({"emit": {"unmatched": "batch"}}, "emit.unmatched: 'batch' is of outer joins; write join.type = "),
        (
            {"type": "full", "idle": "1 s", "emit": {"unmatched": "batch", "early": "1 s"}},
            "emit.early: '1 s' does not go with unmatched = 'batch'",
        ),
        (
            {"aggregates": {"n": "sum(v)"}},
            "aggregates: goes with [session] or [window] or [group], and not with [join]; remove it",
        ),
        ({"session": {"gap": "1 s"}}, "join: can't be used with [session]: a pipeline has one operator"),
        (
            {"left": {"source": {"kind": "files", "format": "json"}}},
            "join.left.source.path: is missing; add it to the config",
        ),
        (
            {"left": {"source": {"kind": "files", "pth": "x"}}},
            "join.left.source.pth: is unknown (did you mean 'path'?)",
        ),
        ({"right": {"source": {**TOPIC, "topic": "a,b"}}}, "join.right.source.topic: 'a,b' is no topic"),
        (
            {"right": {"source": {**TOPIC, "options": {"subscribe": "x"}}}},
            "join.right.source.options.subscribe: is set by another key; write join.right.source.topic",
        ),
        ({"left": {"name": "${env:NAME}"}}, "join.left.name: '${env:NAME}' refers to a secret"),
        (
            {"right": {"event": {"time": "t", "key": "k"}}},
            "join.right.event.key: the key of a join is its equal fields",
        ),
        ({"right": {"name": "Orders"}}, "join.right.name: 'Orders' is the left side's name too; write another one"),
        ({"left": {"name": "1st"}}, "join.left.name: '1st' can't begin a column's name"),
        (
            {"left": {"name": "left", "columns": ["time"]}},
            "join.left.columns: 'time' would be called as a column of every join",
        ),
        (
            {"left": {"name": "a", "columns": ["b_c"]}, "right": {"name": "a_b", "columns": ["c"]}},
            "join.right.columns: 'c' would be called as a column of a, 'a_b_c'",
        ),
        ({"on": ["a ="]}, "join.on: 'a =' names no fields; write 'id', or 'order_id = id'"),
        ({"on": None}, "join.on: is missing; add it to the config"),
        ({"by": "size"}, "join.by: 'size' is not allowed; write 'time' or 'count'"),
        ({"size": "1 hour"}, "join.size: is of other joins than sliding ones; remove it"),
        ({"kind": "tumbling"}, "join.size: is missing; tumbling joins need one"),
        ({"kind": "tumbling", "size": "0 us"}, "join.size: '0 us' must be more than zero"),
        (
            {"kind": "tumbling", "size": "5 us"},
            "join.left.size: is of sliding joins, and this one is tumbling; remove it",
        ),
        (
            {"kind": "hopping", "size": "5 us", "advance": "6 us"},
            "join.advance: '6 us' is longer than the size, '5 us'",
        ),
        ({"kind": "session", "gap": "5 us", "on": []}, "join.on: is empty; sessions are of a key"),
        ({"left": {"size": None}}, "join.left.size: is missing; write a length, or 'unbounded'"),
        ({"left": {"size": "long"}}, "join.left.size: 'long' is not a duration"),
        (
            {"left": {"size": "unbounded"}, "right": {"size": "unbounded"}},
            "join.right.size: 'unbounded' stands on both sides",
        ),
        (
            {"retention": "24 us"},
            "join.retention: '24 us' is shorter than sizes and grace ask for; write '25 microseconds' or more",
        ),
        ({"retention": None}, "join.retention: is missing; joins by time need one"),
        (
            {"retention_count": 5, "left": {"size": "unbounded"}},
            "join.retention_count: is needed only with sizes on both sides, or with windows; here any stored message may have partners, remove it",
        ),
        (
            {**NO_SIZES, "kind": "session", "gap": "10 us", "retention_count": 5},
            "join.retention_count: is needed only with sizes on both sides, or with windows; here any stored message may have partners, remove it",
        ),
        (
            {**NO_SIZES, "kind": "hopping", "size": "10 us", "advance": "5 us", "retention": "19 us"},
            "join.retention: '19 us' is shorter than sizes and grace ask for; write '20 microseconds' or more",
        ),
        (
            {**NO_SIZES, "kind": "tumbling", "size": "10 us", "retention": "14 us"},
            "join.retention: '14 us' is shorter than sizes and grace ask for; write '15 microseconds' or more",
        ),
        (
            {**NO_SIZES, "kind": "session", "gap": "10 us", "retention": "24 us"},
            "join.retention: '24 us' is shorter than sizes and grace ask for; write '25 microseconds' or more",
        ),
        (
            {**COUNT, **SIZES, "retention_count": 2},
            "join.retention_count: 2 is shorter than sizes and grace ask for; write 3",
        ),
        ({**COUNT, **SIZES, "grace": "1 s"}, "join.grace: does not go with by = 'count'; remove it"),
        ({**COUNT, "left": {"size": "3 us"}}, "join.left.size: '3 us' is no number of messages; write a whole number"),
        ({**COUNT, "left": {"size": 0}, "right": {"size": 1}}, "join.left.size: 0 must be one message or more"),
        (
            {"emit": {"full": "end", "early": "off"}},
            "emit.full: 'end' is of tumbling and hopping joins, and this one is sliding, whose pairs have no window with a fixed end; remove it",
        ),
        (
            {**NO_SIZES, "kind": "session", "gap": "10 us", "emit": {"full": "close", "early": "off"}},
            "emit.full: 'close' is of tumbling and hopping joins, and this one is session, ",
        ),
        (
            {**COUNT, **NO_SIZES, "kind": "tumbling", "size": 5, "emit": {"full": "end", "early": "off"}},
            "emit.full: 'end' is of joins by time, and this one is by count; remove it",
        ),
        (
            {**TUMBLING, "emit": {"full": "end"}},
            "emit.early: 'batch' does not go with full = 'end', which holds pairs back; write 'off'",
        ),
        (
            {**TUMBLING, "emit": {"full": "end", "early": "1 s"}},
            "emit.early: '1 s' does not go with full = 'end', which holds pairs back; write 'off'",
        ),
        ({**TUMBLING, "emit": {"full": "now"}}, "emit.full: 'now' is not allowed; write 'end' or 'close'"),
        (
            {**TUMBLING, "type": "left", "idle": "1 s", "emit": {"full": "end", "early": "off", "unmatched": "batch"}},
            "emit.full: 'end' does not go with unmatched = 'batch', ",
        ),
        (
            {"emit": {"early": "off"}},
            "emit.early: 'off' sends no pair before its window is full; write emit.full = 'end' or 'close', too, or another policy",
        ),
        ({**TUMBLING, "emit": {"full": "end", "early": "off", "late": "off"}}, "emit.late: 'off' is no policy; "),
        ({"emit": {"late": "0 s"}}, "emit.late: '0 s' is no period; write 'batch'"),
    ],
)
def test_a_wrong_join(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(**changes)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_the_archive_of_either_side_is_not_its_source(tmp_path: Path) -> None:
    source = {"kind": "delta", "path": "warehouse/events"}
    with pytest.raises(ConfigError, match=r"^pipeline\.archive: .* is both the source and the place of the archive"):
        join_config(tmp_path, pipeline={"archive": True}, right={"source": source})


@pytest.mark.parametrize("size", range(1, 11))
def test_the_least_retention_keeps_all_partners_of_windows(size: int) -> None:
    for advance in range(1, size + 1):
        reach = Reach("hopping", size=size, advance=advance)
        kept = least_retention(HOPPING, (None, None), size, advance, 0)
        for place in range(3 * size):
            # The watermark stands at the last place at which the message is not late.
            watermark = reach.last("left", place)
            partners = [other for other in range(place - size, place + size) if reach.partners(place, other, ())]
            assert min(partners) >= watermark - kept, (size, advance, place)


def test_an_outer_join_is_bound_to_what_decides_its_partners() -> None:
    def bound(**changes: Any) -> set[str]:
        settings = parse(**changes).section.bound_settings()
        return {name for name in ("join.type", "emit.unmatched", "join.grace", "join.retention") if settings[name]}

    outer = {"type": "left", "idle": "1 s"}
    assert bound() == set()
    assert bound(**outer) == {"join.type", "emit.unmatched"}
    everything = {"join.type", "emit.unmatched", "join.grace", "join.retention"}
    assert bound(**outer, left={"size": "unbounded"}) == everything
    assert bound(**outer, kind="session", gap="5 us", **NO_SIZES) == everything
