"""The slice store beside a dict: what is written, found, listed, expired and reopened."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sessionlake.store.slices import GRID, Blocks, Slices, SliceStore
from tests.support import examples

BLOCK, BUCKET, RETENTION = 16, 10, 100
START, KEY = st.integers(-100, 400), st.sampled_from(["a", "b", "bb", "é"])


class SliceStores(RuleBasedStateMachine):
    """Writes whole blocks, as operators do, and lists; looks everything up after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.slices: dict[tuple[str, int], tuple[int, bytes]] = {}
        self.lists: dict[tuple[str, int], list[tuple[int, str]]] = {}
        self.number = 0
        self.oldest = -(10**6)
        self.store = self.opened()

    def opened(self) -> SliceStore:
        path = Path(self.folder.name) / "s"
        return SliceStore(path, block_us=BLOCK, bucket_us=BUCKET, retention_us=RETENTION, head=GRID)

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    @staticmethod
    def columns(keys: list[str], slices: dict[tuple[str, int], tuple[int, bytes]]) -> Slices:
        order = sorted(slices, key=lambda pair: (keys.index(pair[0]), pair[1]))
        head = np.zeros(len(order), GRID)
        head["start"] = [start for _, start in order]
        head["count"] = [slices[pair][0] for pair in order]
        codes = np.array([keys.index(key) for key, _ in order], np.int64)
        return Slices(codes, head, pa.array([slices[pair][1] for pair in order], pa.binary()))

    @rule(
        given=st.dictionaries(
            st.tuples(KEY, START), st.tuples(st.integers(1, 9), st.binary(max_size=5)), min_size=1, max_size=8
        )
    )
    def write(self, given: dict[tuple[str, int], tuple[int, bytes]]) -> None:
        blocks = {(key, start // BLOCK) for key, start in given}
        kept = {k: v for k, v in self.slices.items() if (k[0], k[1] // BLOCK) in blocks}
        whole = {**kept, **given}
        keys = sorted({key for key, _ in whole}, key=str.encode)
        self.store.apply(self.store.writes(pa.array(keys), self.columns(keys, whole)), {}, self.oldest)
        self.slices.update(given)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        """Remove some slices: of blocks that keep some the others are written, blocks that keep none are named."""
        gone = set(data.draw(st.lists(st.sampled_from(sorted(self.slices)), max_size=6))) if self.slices else set()
        blocks = {(key, start // BLOCK) for key, start in gone}
        kept = {k: v for k, v in self.slices.items() if (k[0], k[1] // BLOCK) in blocks and k not in gone}
        emptied = sorted(blocks - {(key, start // BLOCK) for key, start in kept})
        keys = sorted({key for key, _ in blocks}, key=str.encode)
        codes = np.array([keys.index(key) for key, _ in emptied], np.int64)
        numbers = np.array([block for _, block in emptied], np.int64)
        writes = self.store.writes(pa.array(keys, pa.string()), self.columns(keys, kept), Blocks(codes, numbers))
        self.store.apply(writes, {}, self.oldest)
        for pair in gone:
            del self.slices[pair]

    @rule(kind=st.sampled_from("EL"), named=st.lists(st.tuples(START, KEY), min_size=1, max_size=8))
    def add_list(self, kind: str, named: list[tuple[int, str]]) -> None:
        self.number += 1
        start, keys = np.array([at for at, _ in named]), pa.array([key for _, key in named])
        self.store.apply(self.store.list_writes(kind, self.number, start, keys), {}, self.oldest)
        self.lists[kind, self.number] = named

    @rule(kind=st.sampled_from("EL"), before=START)
    def end_lists(self, kind: str, before: int) -> None:
        self.store.apply(self.store.list_deletes(self.store.ended_lists(kind, before)), {}, self.oldest)
        for of, number in list(self.lists):
            if of == kind:
                left = [(at, key) for at, key in self.lists[of, number] if at // BUCKET >= before // BUCKET]
                self.lists[of, number] = left

    @rule(oldest=START)
    def expire(self, oldest: int) -> None:
        self.oldest = max(self.oldest, oldest)
        self.store.apply(self.store.list_deletes([]), {"commit_id": b"x"}, self.oldest)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.opened()

    @invariant()
    def finds_what_was_written(self) -> None:
        pairs = sorted({(key, start // BLOCK) for key, start in self.slices})
        keys = sorted({key for key, _ in pairs}, key=str.encode)
        asked = sorted((keys.index(key), block) for key, block in pairs)
        codes, blocks = (np.array([pair[i] for pair in asked], np.int64) for i in (0, 1))
        found = self.store.find(pa.array(keys, pa.string()), codes, blocks)
        rows = zip(
            found.codes.tolist(), found["start"].tolist(), found["count"].tolist(), found.state.to_pylist(), strict=True
        )
        stored: dict[Any, Any] = {(keys[code], start): (count, state) for code, start, count, state in rows}
        assert list(stored) == sorted(stored, key=lambda pair: (keys.index(pair[0]), pair[1]))
        kept = {pair: value for pair, value in self.slices.items() if pair[1] >= self.oldest}
        assert {pair: value for pair, value in stored.items() if pair[1] >= self.oldest} == kept
        self.slices = {pair: value for pair, value in self.slices.items() if pair in stored}
        scanned_keys, scanned = self.store.scan()
        assert sorted(
            zip((scanned_keys[c].decode() for c in scanned.codes), scanned["start"].tolist(), strict=True)
        ) == sorted(stored)

    @invariant()
    def lists_name_what_was_named(self) -> None:
        for kind in "EL":
            for low, high in ((-(10**9), 10**9), (0, 50), (13, 14)):
                found = self.store.lists(kind, low, high)
                expected = sorted(
                    pair
                    for (of, _), named in self.lists.items()
                    for pair in named
                    if of == kind and low // BUCKET <= pair[0] // BUCKET <= (high - 1) // BUCKET
                )
                assert sorted(zip(found.start.tolist(), found.keys.to_pylist(), strict=True)) == expected


TestSliceStores = SliceStores.TestCase
TestSliceStores.settings = settings(examples(25), stateful_step_count=15)
