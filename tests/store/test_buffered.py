"""An overlay of writes that wait: random writes beside the same ones applied directly, flushes, and crashes between them."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sessionlake.store.buffered import PARTS, BufferedSegments
from sessionlake.store.rocks import RocksSegments
from tests.support import examples

KEYS = [b"", b"a", b"a\0", b"b", b"\xff"]
keys = st.sampled_from(KEYS)
segments = st.integers(-2, 4)
values = st.none() | st.binary(max_size=3)
writes = st.dictionaries(segments, st.dictionaries(keys, values, min_size=1), max_size=3)


class OverlayMachine(RuleBasedStateMachine):
    """`direct` gets each write at once; `flushed` gets them with the flush, and is what a crash goes back to."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.root = Path(self.directory.name)
        self.direct, self.overlay = RocksSegments(self.root / "direct"), BufferedSegments(self.root / "overlay")
        self.live: dict[int, dict[bytes, bytes]] = {}
        self.flushed: dict[int, dict[bytes, bytes]] = {}
        self.meta: bytes | None = None

    def teardown(self) -> None:
        self.direct.close()
        self.overlay.close()
        self.directory.cleanup()

    @rule(given=writes)
    def write(self, given: dict[int, dict[bytes, bytes | None]]) -> None:
        batch = {number: (list(some), list(some.values())) for number, some in given.items()}
        self.direct.write(batch, {})
        self.overlay.write(batch, {})
        for number, some in given.items():
            segment = self.live.setdefault(number, {})
            for key, value in some.items():
                if value is None:
                    segment.pop(key, None)
                else:
                    segment[key] = value

    @rule(number=segments)
    def drop_before(self, number: int) -> None:
        self.direct.drop_before(number)
        self.overlay.drop_before(number)
        self.live = {n: some for n, some in self.live.items() if n >= number}

    @rule(meta=st.binary(max_size=3))
    def flush(self, meta: bytes) -> None:
        self.overlay.flush({"m": meta})
        self.flushed, self.meta = {n: dict(some) for n, some in self.live.items()}, meta

    @rule()
    def crash(self) -> None:
        """Closing writes nothing, as a crash does; what was not flushed is gone from the model, and from the direct one."""
        self.overlay.close()
        self.overlay = BufferedSegments(self.root / "overlay")
        self.live = {n: dict(some) for n, some in self.flushed.items()}
        self.direct.clear()
        self.direct.write({n: (list(some), list(some.values())) for n, some in self.live.items()}, {})

    @rule()
    def clear(self) -> None:
        self.direct.clear()
        self.overlay.clear()
        self.live, self.flushed, self.meta = {}, {}, None

    @rule(low=st.none() | keys, high=st.none() | keys)
    def a_range_is_the_same(self, low: bytes | None, high: bytes | None) -> None:
        for number in self.live:
            expected = [
                (key, value)
                for key, value in sorted(self.live[number].items())
                if (low is None or key >= low) and (high is None or key <= high)
            ]
            assert self.overlay.items(number, low, high) == self.direct.items(number, low, high) == expected

    @invariant()
    def reads_are_the_same(self) -> None:
        assert self.overlay.segments == self.direct.segments == sorted(self.live)
        assert self.overlay.meta("m") == self.meta
        for number, some in self.live.items():
            expected = [some.get(key) for key in KEYS]
            assert self.overlay.get(number, KEYS) == self.direct.get(number, KEYS) == expected
            assert self.overlay.items(number) == sorted(some.items())


class SlowOverlayMachine(OverlayMachine):
    pass


OverlayMachine.TestCase.settings = settings(examples(10), stateful_step_count=20)
SlowOverlayMachine.TestCase.settings = settings(examples(200), stateful_step_count=40)
TestOverlayMachine = OverlayMachine.TestCase
TestSlowOverlayMachine = pytest.mark.slow(SlowOverlayMachine.TestCase)


def test_a_dropped_segment_is_there_again_after_a_crash_before_the_flush(tmp_path: Path) -> None:
    db = BufferedSegments(tmp_path / "db")
    db.write({1: ([b"k"], [b"old"]), 2: ([b"k"], [b"v"])}, {})
    db.flush({})
    db.drop_before(2)
    assert db.segments == [2]
    db.close()
    again = BufferedSegments(tmp_path / "db")
    assert again.get(1, [b"k"]) == [b"old"]
    again.drop_before(2)
    again.write({1: ([b"l"], [b"new"])}, {})
    assert again.items(1) == [(b"l", b"new")]
    again.flush({})
    assert again.items(1) == [(b"l", b"new")]
    again.close()


def test_many_new_keys_come_in_order(tmp_path: Path) -> None:
    db = BufferedSegments(tmp_path / "db")
    names = [bytes([i * 37 % 251]) for i in range(251)]
    for name in names[:3]:
        db.write({0: ([name], [b"1"])}, {})
        assert db.items(0) == sorted((key, b"1") for key in names[: names.index(name) + 1])
    db.write({0: (names, [b"2"] * len(names))}, {})
    assert db.items(0, b"\x05", b"\x08") == [(bytes([i]), b"2") for i in range(5, 9)]
    db.close()


def test_parts_share_a_flush_and_nothing_else(tmp_path: Path) -> None:
    db = BufferedSegments(tmp_path / "db")
    first, second = (db.part(number) for number in range(PARTS))
    for number in (-3, 0, 5):
        first.write({number: ([b"k"], [b"1"])}, {})
    second.write({0: ([b"k"], [b"2"]), 7: ([b"k"], [b"3"])}, {})
    first.drop_before(0)
    assert (first.segments, second.segments) == ([0, 5], [0, 7])
    assert (first.get(0, [b"k"]), second.get(0, [b"k"])) == ([b"1"], [b"2"])
    db.flush({"m": b"1"})
    second.clear()
    assert (first.segments, second.segments) == ([0, 5], [])
    assert first.meta("m") == b"1"
    db.close()


def test_metadata_is_the_flushs_alone(tmp_path: Path) -> None:
    db = BufferedSegments(tmp_path / "db")
    with pytest.raises(ValueError, match="metadata m is written by flush alone"):
        db.write({}, {"m": b""})
    db.close()
