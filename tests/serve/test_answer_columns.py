"""Rows encoded one by one are byte for byte the rows encoded by column."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.aggregates.base import Events
from sessionlake.aggregates.codec import StateCodec
from sessionlake.aggregates.partials import lift
from sessionlake.aggregates.scalars import state_type, to_state
from sessionlake.columnar.records import Records
from sessionlake.config.load import parse_config
from sessionlake.operators.groups import operator as groups
from sessionlake.operators.groups.serving import GroupDecoder
from sessionlake.operators.keyed.serving import TableDecoder
from sessionlake.operators.sessions.serving import SessionDecoder
from sessionlake.serve.encoded import encoded, row_json
from sessionlake.serve.result_rows import Packed
from sessionlake.store.layout import pack
from sessionlake.store.rows import HEAD
from sessionlake.warehouse.batch_commit import BatchCommit, Settings
from tests.support import examples

MICROS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
LONGS = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "flag": (pa.bool_(), st.booleans()),
    "small": (pa.int8(), st.integers(-128, 127)),
    "long": (pa.int64(), LONGS),
    "double": (pa.float64(), st.floats()),
    "single": (pa.float32(), st.floats(width=32)),
    "text": (pa.string(), st.text()),
    "bytes": (pa.binary(), st.binary()),
    "time": (pa.timestamp("us", "UTC"), LONGS),
    "second": (pa.timestamp("s"), st.integers(-(10**9), 10**9)),
    "day": (pa.date32(), st.integers(-700_000, 2_900_000)),
    "money": (pa.decimal128(18, 2), st.decimals(-1000, 1000, places=2)),
}
TYPES = {name: type_ for name, (type_, _) in VALUES.items()}
ADDED = ("small", "long", "double", "single", "money")
AGGREGATES = {
    "n": "count()",
    **{f"last_{name}": f"last({name})" for name in VALUES},
    **{f"least_{name}": f"min({name})" for name in VALUES},
    **{f"{function}_{name}": f"{function}({name})" for name in ADDED for function in ("sum", "avg", "median")},
    "kinds": "count_distinct(text)",
    "all": "collect(day, 5)",
    "upper": "percentile(double, 0.9)",
}
KEYS = st.sampled_from([b"a", b"a\0b", "\U0001f600".encode(), b"k" * 40])
ROWS = st.lists(
    st.tuples(
        KEYS, MICROS, st.integers(0, 10**9), st.integers(1, 9), st.fixed_dictionaries({n: st.none() | of for n, (_, of) in VALUES.items()})
    ),
    max_size=6,
)  # fmt: skip


def config(**sections: Any) -> Any:
    raw = {
        "pipeline": {"name": "p", "warehouse": "lake", "shards": 2},
        "source": {"kind": "files", "path": "events", "format": "json"},
        "event": {"key": "key", "time": "time_us", "time_unit": "us", "id": "id"},
    }
    return parse_config({**raw, **sections}, Path("/nowhere"))


def columns(rows: list[dict[str, Any]]) -> dict[str, pa.Array]:
    return {name: pa.array([row[name] for row in rows], type_) for name, type_ in TYPES.items()}


@pytest.mark.parametrize("limits", [{}, {"gap_by": "interval 1 minute", "max_gap": "1 hour"}, {"max_length": "1 day"}])
@examples(40)
@given(rows=ROWS, rule=st.booleans())
def test_sessions(limits: dict[str, str], rows: list[Any], rule: bool) -> None:  # noqa: FBT001 (drawn)
    of = config(
        session={"gap": "5 minutes", "retention": "900 days", "emit": "final", **limits},
        aggregates=AGGREGATES,
        **({"quarantine": {"max_events": 5}} if rule else {}),
    )
    live = {"grace_us": 0, "retention_us": 1 << 55}
    # In the years 1 to 9999 those that began in the first half of them are cold.
    watermark = {"watermark_us": 100_000_000_000_000_000}
    settings = Settings({"aggregates": of.aggregates}, live, {})
    commit = BatchCommit("p", "id", 0, "c0", watermark, {}, (None,), "", settings, None, 0, 0)
    with patch("sessionlake.operators.sessions.serving.event_types", return_value=TYPES):
        decoder = SessionDecoder(of, commit)
    rows = sorted({(row[0], row[1]): row for row in rows}.values(), key=lambda row: row[:2])
    keys = sorted({row[0] for row in rows})
    start, length, count = (np.array([row[n] for row in rows], np.int64) for n in (1, 2, 3))
    ids = pa.array([f"i{n}" for n in range(len(rows))])
    events = Events(
        pa.array([row[0].decode() for row in rows], pa.string()), start, columns([row[4] for row in rows]), ids
    )
    states = StateCodec(decoder._aggregates).encode(lift(decoder._aggregates, events).states, len(rows))
    until = start + 60_000_000 if "gap_by" in limits else None
    records = Records(start, start, start + length, count, count * 3, states, until)
    # Each alone, and those of a key together.
    for sizes in (
        np.ones(len(rows), np.int64),
        np.array([sum(row[0] == key for row in rows) for key in keys], np.int64),
    ):
        values = pack(records, sizes).to_pylist() if rows else []
        owner = [keys.index(row[0]) for row in rows] if len(sizes) == len(rows) else range(len(keys))
        packed = Packed(keys, owner, values)
        for include in ((), ("open",), ("open", "quarantined")):
            same(decoder, packed, include)


@examples(40)
@given(rows=ROWS)
def test_groups(rows: list[Any]) -> None:
    of = config(group={}, aggregates=AGGREGATES)
    settings = Settings({"aggregates": of.aggregates}, {}, {})
    commit = BatchCommit("p", "id", 0, "c0", {}, {}, (None,), "", settings, None, 0, 0)
    with patch("sessionlake.operators.groups.serving.event_types", return_value=TYPES):
        decoder = GroupDecoder(of, commit)
    by_key = {row[0]: row for row in rows}
    keys = sorted(by_key)
    found = [by_key[key] for key in keys]
    time, count, revision = (np.array([row[n] for row in found], np.int64) for n in (1, 2, 3))
    ids = pa.array([f"i{n}" for n in range(len(found))])
    names = pa.array([key.decode() for key in keys], pa.string())
    events = Events(names, time, columns([row[4] for row in found]), ids)
    states = StateCodec(decoder._aggregates).encode(lift(decoder._aggregates, events).states, len(found))
    records = groups._records(np.arange(len(found)), time, count, revision, states)
    values = pack(records, np.ones(len(found), np.int64)).to_pylist() if found else []
    every = list(range(len(keys)))
    same(decoder, Packed(keys, every, values), ())
    same(decoder, Packed(keys, every[::-1], values[::-1]), ())


@examples(60)
@given(rows=ROWS)
def test_rows_of_a_table(rows: list[Any]) -> None:
    for source, id_ in (
        ({}, "id"),
        ({"kind": "kafka", "bootstrap_servers": "s", "topic": "t", "format": "json"}, None),
    ):
        event = {"key": "key", "time": "time_us", "time_unit": "us", **({"id": id_} if id_ else {})}
        files = {"kind": "files", "path": "events", "format": "json"}
        of = config(table={"columns": list(TYPES), "retention": "1 day"}, source=source or files, event=event)
        by_key = {row[0]: row for row in rows}
        keys = sorted(by_key)
        codec = StateCodec((), [state_type(type_, name) for name, type_ in TYPES.items()])
        found = [by_key[key] for key in keys]
        states = codec.encode([to_state(column) for column in columns([row[4] for row in found]).values()], len(found))
        head = np.zeros(len(found), HEAD)
        ids = [str(row[3]).encode() if id_ else b"" for row in found]
        for n, (_, time, offset, revision, _) in enumerate(found):
            head[n] = (time, offset, revision, revision, 0, revision, len(ids[n]))
        parts = zip(head, ids, states.to_pylist(), strict=True)
        values = [one.tobytes() + id_ + state for one, id_, state in parts]
        every = list(range(len(keys)))
        same(TableDecoder(of, TYPES), Packed(keys, every, values), ())
        # Of segments: some rows hidden, and each segment's rows by themselves.
        same(TableDecoder(of, TYPES, hidden_us=4), Packed(keys, every[::-1], values[::-1]), ())


def same(decoder: Any, packed: Packed, include: Any) -> None:
    for times in ("iso", "us"):
        found = decoder.result_rows(packed, include)
        assert [row_json(row) for row in decoder.json_values(found, times)] == encoded(
            decoder.rows(packed, include), times
        )
