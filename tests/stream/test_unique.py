"""Duplicates beside a dictionary: an operator that gets each event once does what it does over a stream that has none."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.numeric import Count
from sessionlake.config.load import parse_config
from sessionlake.errors import ConfigError
from sessionlake.stream.unique.events import id_hashes
from sessionlake.testing import Harness
from tests.columnar.colliding import twins
from tests.operators_table import PROCESSORS
from tests.oracle.unique import UniqueModel
from tests.support import examples

Row = dict[str, Any]
RETENTION, UNIQUE = 60, 40
FILES = {"kind": "files", "path": "events", "format": "json"}
EVENT = {"key": "key", "time": "time_us", "time_unit": "us", "id": "id"}
SUMS = {"n": "count()", "total": "sum(v)", "last": "last(v)"}
OPERATORS: dict[str, Row] = {
    "session": {"session": {"gap": "5 us", "grace": "10 us", "retention": "60 us"}, "aggregates": SUMS},
    "shaped": {
        "session": {"gap": "5 us", "grace": "10 us", "retention": "60 us"},
        "aggregates": {**SUMS, "twice": "sum(twice)"},
    },
    "refusing": {
        "session": {
            "gap": "5 us",
            "gap_by": "case when v = 3 then interval 0 seconds end",
            "max_gap": "20 us",
            "grace": "10 us",
            "retention": "60 us",
        },
        "aggregates": SUMS,
    },
    "policy": {
        "session": {"gap": "5 us", "grace": "10 us", "retention": "60 us"},
        "emit": {"early": "off", "late": "close"},
        "aggregates": SUMS,
    },
    "tumbling": {
        "window": {"kind": "tumbling", "size": "20 us", "grace": "10 us", "retention": "60 us"},
        "emit": {"early": "batch", "late": "batch"},
        "aggregates": SUMS,
    },
    "hopping": {
        "window": {"kind": "hopping", "size": "20 us", "advance": "10 us", "grace": "10 us", "retention": "60 us"},
        "emit": {"early": "off", "late": "close"},
        "aggregates": SUMS,
    },
    "group": {"group": {}, "aggregates": SUMS},
    "process": {
        "process": {"class": "processors:Pauses", "columns": ["v", "tag"], "retention": "60 us", "grace": "10 us"},
    },
}
SIDES = ("left", "right")
SCHEMA = {"key": "string", "time_us": "long", "id": "string", "v": "long", "tag": "string"}


def config(operator: str, **event: Any) -> Row:
    if operator == "join":
        side = {"source": FILES, "columns": ["v"], "event": {"time": "time_us", "time_unit": "us", "id": "id", **event}}
        join = {"on": ["key"], "grace": "10 us", "retention": "60 us", "idle": "1000 days"}
        return {
            "join": {
                **join,
                "left": {**side, "name": "former", "size": "10 us"},
                "right": {**side, "name": "latter", "size": "5 us"},
            }
        }
    given = {"source": FILES, "event": {**EVENT, **event}, **OPERATORS[operator]}
    if operator == "shaped":
        given["event"] |= {"where": "v < 3", "columns": {"twice": "v * 2"}}
    if operator == "process":
        process = {**given["process"], "output": {"text": "string", "number": "long"}}
        given |= {
            "process": process,
            "pipeline": {"name": "p", "warehouse": "w", "store": "s", "code": str(PROCESSORS)},
        }
    return given


events = st.builds(
    dict,
    key=st.sampled_from(["a", "a", "b", None]),
    time_us=st.integers(0, 60),
    id=st.sampled_from(["x", "y", "x" * 70_000, "", None]) | st.sampled_from(["x", "y", "z"]),
    v=st.integers(0, 3),
    tag=st.sampled_from("abcde"),
)
batches = st.lists(st.tuples(st.lists(events, max_size=8), st.integers(0, 40), st.booleans(), st.randoms()), max_size=7)


@pytest.mark.parametrize("operator", [*OPERATORS, "join"])
@given(drafted=batches, shards=st.integers(1, 3))
@settings(examples(40), phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_an_operator_sees_no_duplicate(operator: str, drafted: Sequence[Any], shards: int) -> None:
    play_next_to_its_model(operator, drafted, shards, model_of)


def play_next_to_its_model(
    operator: str, drafted: Sequence[Any], shards: int, made: Callable[[str], UniqueModel]
) -> None:
    sides = SIDES if operator == "join" else ("events",)
    models, seen, start = {side: made(operator) for side in sides}, {side: [] for side in sides}, 1_000_000
    with (
        Harness(config(operator, unique_for="40 us"), schema=SCHEMA, shards=shards) as unique,
        Harness(config(operator), schema=SCHEMA, shards=1) as plain,
    ):
        for fresh, moved, lost, random in drafted:
            start += moved
            before = -math.inf if plain.watermark_us is None else plain.watermark_us
            rows, taken, counts, of_side = {}, {}, Counter[str](), Counter[str]()
            for number, side in enumerate(sides):
                rows[side] = [{**row, "time_us": row["time_us"] + start} for row in fresh[number :: len(sides)]]
                again = random.sample(seen[side], min(len(seen[side]), 4))
                rows[side] += [{**row, "v": random.randint(0, 3)} for row in again]
                random.shuffle(rows[side])
                seen[side] += rows[side]
                passed, numbers = models[side].batch(rows[side], before)
                taken[side], counts = [rows[side][at] for at in passed], counts + numbers
                of_side[f"duplicate:{side}"] = numbers["duplicate"]
            expected, found = (
                harness.process(some, clock_us=10**9) for harness, some in ((plain, taken), (unique, rows))
            )
            assert unchanged(found.changes) == unchanged(expected.changes)
            assert sorted(map(repr, found.late)) == sorted(map(repr, expected.late))
            assert found.counts.get("duplicate", 0) == counts["duplicate"]
            assert found.counts.get("dead", 0) == expected.counts.get("dead", 0) + counts["unknown"]
            if operator == "join":
                assert {name: found.counts.get(name, 0) for name in of_side} == of_side
            given = sum(map(len, rows.values()))
            outcomes = ("accepted", "late", "dead", "dropped", "emitted", "filtered", "duplicate")
            assert sum(found.counts.get(name, 0) for name in outcomes) == found.counts.get("input", 0) == given
            for name in ("accepted", "late"):
                assert found.counts.get(name, 0) == expected.counts.get(name, 0)
            assert unique.watermark_us == plain.watermark_us
            if lost:
                unique.lose_stores()


class WithoutLate(UniqueModel):
    """Late events are not remembered."""

    def batch(self, rows: Sequence[Row], watermark: float) -> tuple[list[int], Counter[str]]:
        found = super().batch(rows, watermark)
        self.taken = {named for named in self.taken if named[1] >= watermark - 15}
        return found


class WithoutTime(UniqueModel):
    """Copies may have times of their own."""

    def identity(self, row: Row) -> tuple[str, int, str]:
        return row["key"], 0, row["id"]


class WithoutKey(UniqueModel):
    """Ids are those of all keys."""

    def identity(self, row: Row) -> tuple[str, int, str]:
        return "", row["time_us"], row["id"]


WEAKER: dict[str, Callable[[], UniqueModel]] = {
    "late events are not remembered": lambda: WithoutLate(UNIQUE, RETENTION),
    "old events are compared": lambda: UniqueModel(math.inf, RETENTION),
    "the first to arrive counts": lambda: UniqueModel(UNIQUE, RETENTION, in_order=True),
    "the time is no part": lambda: WithoutTime(UNIQUE, RETENTION),
    "the key is no part": lambda: WithoutKey(UNIQUE, RETENTION),
}


def draft(random: Random) -> list[Any]:
    """Return batches as `batches` draws them, with more copies."""

    def event() -> Row:
        own = {"key": random.choice("aab"), "id": random.choice("xyz"), "tag": random.choice("abc")}
        return {**own, "time_us": random.randrange(60), "v": random.randrange(4)}

    return [([event() for _ in range(8)], random.randrange(40), random.random() < 0.3, random) for _ in range(7)]


def differs(seed: int, made: Callable[[str], UniqueModel]) -> bool:
    try:
        play_next_to_its_model("session", draft(Random(seed)), 2, made)
    except AssertionError:
        return True
    return False


def test_these_streams_are_as_the_rules_have_them() -> None:
    assert not any(differs(seed, model_of) for seed in range(8))


@pytest.mark.parametrize("weaker", WEAKER)
def test_a_weaker_rule_is_found(weaker: str) -> None:
    assert any(differs(seed, lambda _: WEAKER[weaker]()) for seed in range(20))


short = events.map(lambda row: {**row, "id": row["id"] and row["id"][:2]})
redeemed = st.tuples(st.sampled_from("ab"), st.integers(0, 60), st.sampled_from("xyz"))


@pytest.mark.parametrize("operator", ["session", "policy", "tumbling", "hopping"])
@given(
    drafted=st.lists(
        st.tuples(st.lists(short, max_size=5), st.lists(redeemed, max_size=4), st.integers(0, 40), st.booleans()),
        max_size=7,
    ),
    shards=st.integers(1, 3),
)
@settings(examples(40), phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_an_event_that_a_correction_brings_in_counts_once(operator: str, drafted: Sequence[Any], shards: int) -> None:
    """Corrections come before the events of their batch. One of an event that was taken, or is too old to know, changes nothing."""
    given, model, start = {**config(operator), "aggregates": {"n": "count()"}}, model_of(operator), 1_000_000
    unique_config = {**config(operator, unique_for="40 us"), "aggregates": {"n": "count()"}}
    by_corrections: set[tuple[str, int, str]] = set()
    with (
        Harness(unique_config, schema=SCHEMA, shards=shards) as unique,
        Harness(given, schema=SCHEMA, shards=1) as plain,
    ):
        for fresh, brought, moved, lost in drafted:
            start += moved
            before = -math.inf if plain.watermark_us is None else plain.watermark_us
            rows = [{**row, "time_us": row["time_us"] + start} for row in fresh]
            ids = [(key, time + start, id_) for key, time, id_ in brought]
            applied, told = [], []
            for number, identity in enumerate(ids):
                if identity[1] < before - UNIQUE:
                    told.append((number, "older than event.unique_for"))
                elif identity in model.taken:
                    told.append((number, "duplicate"))
                else:
                    model.taken.add(identity)
                    applied.append(identity)
                    by_corrections.add(identity)
            passed, numbers = model.batch(rows, before)
            # Such a duplicate moves the watermark, as any does; of others the first copy has moved it.
            again = [row["time_us"] for row in rows if (row["key"], row["time_us"], row["id"]) in by_corrections]
            moves = [{"kind": "advance", "start_time": max(again)}] if again and max(again) > before else []
            expected = plain.process(
                [rows[at] for at in passed], 10**9, corrections=[*restates(operator, applied), *moves]
            )
            found = unique.process(rows, 10**9, corrections=restates(operator, ids, unique._secret))
            assert unchanged(found.changes) == unchanged(expected.changes)
            assert [(int(one["correction_id"]), one["reason"]) for one in sorted(found.stale, key=repr)] == told
            assert found.counts.get("duplicate", 0) == numbers["duplicate"]
            assert found.counts.get("applied", 0) == len(applied) == expected.counts.get("applied", 0) - len(moves)
            assert unique.watermark_us == plain.watermark_us
            assert found.counts.get("stale", 0) + found.counts.get("expired", 0) == len(told)
            if lost:
                unique.lose_stores()


def restates(operator: str, identities: Sequence[tuple[str, int, str]], secret: str = "") -> list[Row]:
    """Return corrections that bring in one event each."""
    slice_us = {"tumbling": 20, "hopping": 10}.get(operator, 1)
    state = StateCodec([Count("n", None)]).encode([pa.array([1])], 1)[0].as_py()
    found = []
    for key, time, id_ in identities:
        hashed = id_hashes(pa.array([key]), pa.array([id_]), 0, secret)[0]
        first = time - time % slice_us
        place = {"key": key, "start_time": first, "end_time": first + slice_us - 1, "event_count": 1, "state": state}
        found.append({"kind": "restate", **place, "id_time": time, "id_hash": int(hashed)})
    return found


def test_id_that_somebody_chose_for_its_hash_takes_no_event_of_another_key() -> None:
    """Under XXH64 with Spark's seed both events have one identity: key, time and id of the first one are enough to make the second."""
    chosen = [
        {"key": "mallory1", "time_us": 5, "id": "VkNkvO8wgqkL62XR"},
        {"key": "victim", "time_us": 5, "id": "order-0000012345"},
    ]
    keys, ids = (pa.array([row[name] for row in chosen]) for name in ("key", "id"))
    assert len(set(id_hashes(keys, ids, 0, "").tolist())) == 1
    config = {"source": FILES, "event": {**EVENT, "unique_for": "40 us"}, **OPERATORS["session"]}
    harness = Harness(config)
    assert harness.process([{**chosen[0], "v": 1, "tag": ""}]).counts["accepted"] == 1
    found = harness.process([{**chosen[1], "v": 1, "tag": ""}, {**chosen[1], "v": 1, "tag": ""}])
    assert (found.counts["accepted"], found.counts["duplicate"]) == (1, 1)


@pytest.mark.parametrize("same", ["key", "id"])
def test_no_secret_free_collision_of_keys_or_ids_is_one_of_identities(same: str) -> None:
    """These texts have one XXH64 under every seed: to hash them under a secret one would not part them."""
    texts, one = pa.array(twins()), pa.array(["a", "a"])
    keys, ids = (one, texts) if same == "key" else (texts, one)
    assert len(set(id_hashes(keys, ids, 0, "00ff").tolist())) == 2


def test_identities_of_two_inputs_differ() -> None:
    keys, ids = pa.array(["a"]), pa.array(["1"])
    assert id_hashes(keys, ids, 0, "00ff")[0] != id_hashes(keys, ids, 1, "00ff")[0]


def model_of(operator: str) -> UniqueModel:
    if operator == "process":
        return UniqueModel(UNIQUE, RETENTION, in_order=True, raises=lambda row: row["tag"] == "e" and row["v"] % 2)
    if operator == "group":
        return UniqueModel(UNIQUE, math.inf)
    if operator == "shaped":
        return UniqueModel(UNIQUE, RETENTION, filtered=lambda row: row["v"] == 3)
    if operator == "refusing":
        return UniqueModel(UNIQUE, RETENTION, refused=lambda row: row["v"] == 3)
    return UniqueModel(UNIQUE, RETENTION, in_order=operator == "join")


def unchanged(changes: Sequence[Row]) -> list[str]:
    """Return rows without the numbers of messages, which duplicates have too."""
    return sorted(repr({name: value for name, value in row.items() if "position" not in name}) for row in changes)


def test_an_id_is_of_its_key_and_time() -> None:
    rows = [{"key": key, "time_us": time, "id": "x", "v": 1, "tag": "a"} for key in "ab" for time in (5, 6)]
    with Harness(config("session", unique_for="40 us"), schema=SCHEMA) as harness:
        assert harness.process(rows, clock_us=10**9).counts["accepted"] == 4
        assert harness.process(rows, clock_us=10**9).counts["duplicate"] == 4


def test_a_message_is_numbered_once() -> None:
    rows = [{"key": "a", "time_us": time, "id": f"{time % 3}", "v": 1, "tag": "a"} for time in (1, 2, 3, 1, 2)]
    with Harness(config("process", unique_for="40 us"), schema=SCHEMA) as harness:
        output = harness.process(rows, clock_us=10**9)
        assert (output.counts["accepted"], output.counts["duplicate"]) == (3, 2)
        assert harness.state["positions"] == {"events": {"0": len(rows)}}, "those of duplicates stay free"


@pytest.mark.parametrize(
    ("operator", "event", "line"),
    [
        ("session", {"unique_for": "soon"}, r"event\.unique_for: "),
        ("session", {"unique_for": "40 us", "id": None}, r"event\.unique_for: needs an id; write event\.id, "),
        (
            "session",
            {"unique_for": "61 us"},
            r"event\.unique_for: '61 us' is longer than events are taken in, '60 microseconds'; ",
        ),
        (
            "session",
            {"unique_for": "9 us"},
            r"event\.unique_for: '9 us' is shorter than events wait for others, '15 microseconds'; ",
        ),
        (
            "refusing",
            {"unique_for": "29 us"},
            r"event\.unique_for: '29 us' is shorter than events wait for others, '30 microseconds'; ",
        ),
        (
            "hopping",
            {"unique_for": "29 us"},
            r"event\.unique_for: '29 us' is shorter than events wait for others, '30 microseconds'; ",
        ),
        ("session", {"duplicates": "all"}, r"event\.duplicates: "),
        ("table", {"unique_for": "40 us"}, r"event\.unique_for: is not for \[table\], "),
        ("count", {"unique_for": "40 us"}, r"event\.unique_for: is not for windows by count, "),
    ],
)
def test_settings_that_are_refused(operator: str, event: Row, line: str, tmp_path: Path) -> None:
    sections: dict[str, Row] = {
        **OPERATORS,
        "table": {"table": {"columns": ["v"], "retention": "60 us"}},
        "count": {"window": {"by": "count", "kind": "tumbling", "size": 3, "retention_count": 9, "retention": "60 us"}},
    }
    given = {"source": FILES, "event": {**EVENT, **event}, **sections[operator]}
    given["event"] = {name: value for name, value in given["event"].items() if value is not None}
    with pytest.raises(ConfigError, match=f"^{line}"):
        parse_config({"pipeline": {"name": "p", "warehouse": "w"}, **given}, tmp_path)


@pytest.mark.parametrize(
    ("changed", "least"),
    [
        ({}, "20 microseconds"),
        ({"left": {"size": "unbounded"}}, "1 minute"),
        ({"kind": "tumbling", "size": "40 us"}, "50 microseconds"),
        ({"kind": "session", "gap": "15 us"}, "25 microseconds"),
    ],
)
def test_messages_that_wait_for_partners_are_remembered(changed: Row, least: str, tmp_path: Path) -> None:
    given = config("join", unique_for="1 us")["join"]
    if least == "1 minute":
        given["retention"] = "1 minute"
    if "kind" in changed:
        given = {**given, "left": {**given["left"]}, "right": {**given["right"]}}
        del given["left"]["size"], given["right"]["size"]
    given = {**given, **changed, "left": {**given["left"], **changed.get("left", {})}}
    with pytest.raises(ConfigError, match=rf"'1 us' is shorter than events wait for others, '{least}'; "):
        parse_config({"pipeline": {"name": "p", "warehouse": "w"}, "join": given}, tmp_path)
