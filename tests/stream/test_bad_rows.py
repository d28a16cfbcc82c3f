"""A row at which something raises is a dead letter; the rows beside it go on."""

import asyncio
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sessionlake.aggregates import Events, build_aggregates
from sessionlake.columnar.identity import record_ids
from sessionlake.engine.operator import Aside, BatchContext, Counted, Keyed
from sessionlake.errors import AggregateError, BadEventsError, SourceError
from sessionlake.operators.sessions import operator
from sessionlake.operators.sessions.mapper import split_events
from sessionlake.operators.sessions.operator import Sessionizer
from sessionlake.operators.sessions.spec import SessionizerSpec
from sessionlake.operators.sessions.windows import SessionWindows
from sessionlake.sources.columns import EventColumns
from sessionlake.sources.decoding.files import LINK, NO_FILE, NUMBER, PARTS, PATH, FileDecoder, refusal
from sessionlake.sources.decoding.rows import Rows
from sessionlake.sources.decoding.tables import TableDecoder
from sessionlake.stream.ingest import DEAD, DEAD_LETTER, EMIT, EventSpec
from sessionlake.stream.watermark import NO_WATERMARK

TYPES = {"k": pa.string(), "t": pa.int64(), "v": pa.int64()}
COLUMNS = EventColumns("k", "t", "us", None, ("v",), TYPES)
WINDOWS = SessionWindows(10, 10, 100)
RAISES = {"net": "tests.stream.raising:Raising", "total": "sum(v)"}
ZERO = "aggregate net raised ZeroDivisionError: integer division or modulo by zero"


def spec_of(aggregates: dict[str, str], **more: object) -> SessionizerSpec:
    built = build_aggregates(aggregates, TYPES, with_id=False)
    return SessionizerSpec(EventSpec(TableDecoder(COLUMNS, None), **more), built, WINDOWS)


def spec_of_files(place: Path) -> SessionizerSpec:
    built = build_aggregates({}, TYPES, with_id=False)
    return SessionizerSpec(EventSpec(FileDecoder(COLUMNS, "json", str(place))), built, WINDOWS)


def rows_of(keys: list[str | None], times: list[int], values: list[int]) -> Rows:
    table = pa.table({"k": pa.array(keys, pa.string()), "t": times, "v": values})
    return Rows(table, None, lambda at: pa.array([f"raw {i}" for i in at]), lambda at: pa.array([f"f:{i}" for i in at]))


def pieces_of(spec: SessionizerSpec, rows: Rows, watermark: int = NO_WATERMARK) -> dict[str, pa.Table]:
    found: dict[str, list[pa.Table]] = {}
    for piece in split_events(spec, spec.windows.bounds(watermark), 0, rows):
        if not isinstance(piece, Counted) and piece.rows.num_rows:
            found.setdefault(piece.kind, []).append(piece.rows)
    return {kind: pa.concat_tables(tables) for kind, tables in found.items()}


def test_events_at_which_a_users_class_raises_are_dead_letters_and_the_others_merge() -> None:
    pieces = pieces_of(spec_of(RAISES, archive=True), rows_of(["a", "a", "b", "b"], [1, 2, 3, 4], [1, 0, 0, 5]))
    dead = pieces["dead"].sort_by("source")
    assert dead["reason"].to_pylist() == [ZERO, ZERO]
    assert dead["source"].to_pylist() == ["f:1", "f:2"]
    assert dead["key"].to_pylist() == ["a", "b"]
    assert sorted(zip(pieces["merged"]["key"].to_pylist(), pieces["merged"]["s0"].to_pylist(), strict=True)) == [
        ("a", b"10"),
        ("b", b"2"),
    ]
    assert pieces["archived"].num_rows == 2


@pytest.mark.parametrize("policy", [EMIT, DEAD_LETTER])
def test_an_old_event_at_which_a_users_class_raises_is_one_dead_letter(policy: str) -> None:
    pieces = pieces_of(spec_of(RAISES, beyond_retention=policy), rows_of(["a", "b"], [1, 2], [0, 1]), watermark=1000)
    assert pieces["dead"]["source"].to_pylist() == (["f:0"] if policy == EMIT else ["f:0", "f:1"])
    assert ("emit" in pieces) == (policy == EMIT)


def test_a_merger_that_raises_names_its_aggregate_but_not_the_key() -> None:
    with pytest.raises(AggregateError) as raised:
        pieces_of(spec_of(RAISES), rows_of(["secret", "secret"], [1, 2], [10, 5]))
    assert str(raised.value).startswith(
        "aggregates.net: tests.stream.raising:Raising.merger raised ValueError: one and two at raising.py:18, for a key whose CRC-32 is "
    )
    assert "secret" not in str(raised.value)


def test_lack_of_memory_is_no_fault_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    (aggregate, _) = build_aggregates(RAISES, TYPES, with_id=False)

    def no_memory(*_: object) -> int:
        raise MemoryError

    monkeypatch.setattr(aggregate.user, "aggregator", no_memory)
    events = Events(pa.array(["a"]), np.array([1]), {"v": pa.array([1])})
    with pytest.raises(MemoryError):
        aggregate.lift(events)
    monkeypatch.undo()
    with pytest.raises(BadEventsError, match=r"aggregates\.net: .*ZeroDivisionError.*; correct the class"):
        aggregate.lift(Events(pa.array(["a"]), np.array([1]), {"v": pa.array([0])}))


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit("3"), asyncio.CancelledError("3")])
def test_an_error_of_a_users_class_that_is_no_exception(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    spec = spec_of(RAISES)
    user = spec.aggregates[0].user

    def raising(*given: object) -> int:
        if given[1:] in (({"v": 2}, 0), (10, 5)):
            raise error
        return 10

    monkeypatch.setattr(user, "aggregator", raising)
    pieces = pieces_of(spec, rows_of(["a", "b"], [1, 2], [2, 5]))
    named = f"{type(error).__name__}: 3"
    assert pieces["dead"]["reason"].to_pylist() == [f"aggregate net raised {named}"]
    assert pieces["merged"]["key"].to_pylist() == ["b"]
    monkeypatch.undo()
    monkeypatch.setattr(user, "merger", raising)
    monkeypatch.setattr(user, "result", lambda _: raising(0, 10, 5), raising=False)
    with pytest.raises(AggregateError, match=f"Raising.merger raised {named} at test_bad_rows.py:"):
        pieces_of(spec, rows_of(["a", "a"], [1, 2], [1, 2]))
    with pytest.raises(AggregateError, match=f"Raising.result raised {named} at test_bad_rows.py:"):
        spec.aggregates[0].value([pa.array([b"1"])])


def test_a_key_above_the_limit_is_a_dead_letter_without_its_key() -> None:
    keys = ["é" * 5, "é" * 5 + "x", "", None]
    pieces = pieces_of(spec_of({}, max_key_bytes=10), rows_of(keys, [1] * 4, [1] * 4))
    assert pieces["merged"]["key"].to_pylist() == ["é" * 5]
    assert pieces["dead"]["reason"].to_pylist() == [
        "key too long: 11 bytes, event.max_key_bytes is 10",
        "empty key",
        "null key",
    ]
    assert pieces["dead"]["key"].to_pylist() == [None, "", None]


def test_dead_letters_are_made_in_pieces_of_bounded_size() -> None:
    spec, rows = spec_of({}), rows_of([None] * 100_000, [1] * 100_000, [1] * 100_000)
    split = list(split_events(spec, spec.windows.bounds(NO_WATERMARK), 0, rows))
    sizes = [piece.rows.num_rows for piece in split if isinstance(piece, Aside) and piece.kind == DEAD]
    assert sum(sizes) == 100_000
    assert max(sizes) == 1024


def test_links_below_the_source_and_pipes_are_not_read(tmp_path: Path) -> None:
    root, outside = tmp_path / "events", tmp_path / "secret.json"
    (root / "below").mkdir(parents=True)
    outside.write_text("{}")
    (root / "good.json").write_text("{}")
    (root / "inner.json").symlink_to(root / "good.json")
    (root / "outer.json").symlink_to(outside)
    (root / "folder").symlink_to(tmp_path)
    (root / "below" / "up.json").symlink_to("../../secret.json")
    os.mkfifo(root / "pipe.json")
    found = {
        name: refusal(str(root / name), str(root))
        for name in (
            "good.json",
            "inner.json",
            "outer.json",
            "folder/secret.json",
            "below/up.json",
            "pipe.json",
            "gone",
        )
    }
    assert found == {
        "good.json": None,
        "inner.json": LINK,
        "outer.json": LINK,
        "folder/secret.json": LINK,
        "below/up.json": LINK,
        "pipe.json": NO_FILE,
        "gone": None,
    }
    linked = tmp_path / "linked"
    linked.symlink_to(root)
    assert refusal(str(linked / "good.json"), str(linked)) is None
    assert refusal(str(linked / "inner.json"), str(linked)) == LINK


def split_files(spec: SessionizerSpec, **columns: list[object]) -> list[Keyed | Aside | Counted]:
    return list(Sessionizer(spec).split(pa.Table.from_pydict(columns), BatchContext(0, "c", {})))


def test_files_that_are_gone_or_links_are_counted_dead_letters(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    link = tmp_path / "events" / "link.json"
    link.symlink_to(__file__)
    spec = spec_of_files(tmp_path / "events")
    found = split_files(spec, **{PATH: ["/gone.json", str(link)], NUMBER: [0, 0], PARTS: [0, 2]})
    assert split_files(spec, **{PATH: [str(link)], NUMBER: [1], PARTS: [2]}) == []
    dead = pa.concat_tables([piece.rows for piece in found if isinstance(piece, Aside)])
    assert dead["source"].to_pylist() == ["/gone.json", str(link)]
    assert dead["reason"].to_pylist() == ["file is gone: it was there when the batch was planned", LINK]
    assert dead["raw"].null_count == 2
    counts = sum((Counter(piece.stats) for piece in found if isinstance(piece, Counted)), Counter[str]())
    assert counts == {"input": 2, "dead": 2, "cause:file is gone": 1, f"cause:{LINK}": 1}


def test_a_fault_of_ours_names_the_rows_it_is_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f.json"
    path.write_text('\n{"k": "a", "t": 1, "v": 1}\n')

    def fault(*_: object) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(operator, "split_events", fault)
    with pytest.raises(SourceError) as raised:
        split_files(spec_of_files(tmp_path), **{PATH: [str(path)]})
    assert str(raised.value).startswith(
        f"source: the 1 rows from {path}:2 on can't be processed (ZeroDivisionError: a fault); "
    )


def test_ids_of_long_keys_are_the_same_one_by_one_and_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    keys = pa.array([random.bytes(n).hex() for n in (1, 40, 40, 40, 200, 200, 1000, 1000, 5000)])
    starts = np.arange(len(keys))
    ids = record_ids(keys, starts)
    monkeypatch.setattr("sessionlake.columnar.identity._FEW", 0)
    assert record_ids(keys, starts).tolist() == ids.tolist()
    monkeypatch.setattr("sessionlake.columnar.identity._ROWS", 2)
    assert record_ids(keys, starts).tolist() == ids.tolist()
