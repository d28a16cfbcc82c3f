"""The hash under a secret, against whole numbers of Python; and pairs that another hash can't part."""

import hashlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessionlake.columnar import keyed_hash
from sessionlake.columnar.identity import hash_bytes
from sessionlake.columnar.keyed_hash import keyed_hashes
from tests.columnar.colliding import twins

_MASK = (1 << 64) - 1


def plain(text: bytes, secret: bytes) -> int:
    """Return the hash by its definition."""
    words = [int.from_bytes(text[at : at + 4], "little") for at in range(0, len(text), 4)]
    stream = hashlib.shake_256(secret).digest(16 * (len(words) + 2))
    numbers = [int.from_bytes(stream[at : at + 8], "little") for at in range(0, len(stream), 8)]
    upper, lower = (
        numbers[half] + sum(n * w for n, w in zip(numbers[2 + half :: 2], [len(text), *words], strict=False)) & _MASK
        for half in (0, 1)
    )
    return upper >> 32 << 32 | lower >> 32


@settings(max_examples=50)
@given(
    texts=st.lists(st.binary(max_size=70), max_size=30),
    secret=st.binary(min_size=1, max_size=16),
    cut=st.integers(0, 3),
)
def test_hashes_are_those_of_the_definition(texts: list[bytes], secret: bytes, cut: int) -> None:
    array = pa.array(texts, pa.binary()).slice(cut)
    assert keyed_hashes(array, secret).tolist() == [plain(text, secret) for text in texts[cut:]]


def test_many_texts_of_one_size_are_hashed_by_the_definition() -> None:
    texts = [f"{number:0{size}}".encode() for size in (1, 4, 15, 16, 17) for number in range(66)]
    assert keyed_hashes(pa.array(texts), b"s").tolist() == [plain(text, b"s") for text in texts]


def test_parts_are_hashed_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = pa.array([b"x" * (n % 150) for n in range(100)] + [b"y"] * 70)
    whole = keyed_hashes(texts, b"s")
    monkeypatch.setattr(keyed_hash, "_WORDS", 7)
    assert np.array_equal(keyed_hashes(texts, b"s"), whole)


def test_long_text_differs_from_its_digest_and_from_others() -> None:
    long = [bytes(1 << 20), bytes((1 << 20) + 1), b"a" + bytes((1 << 20) - 1)]
    texts = [*long, *(hashlib.blake2b(text, key=b"s", digest_size=32).digest() for text in long), b"short"]
    found = keyed_hashes(pa.array(texts), b"s")
    assert len(set(found.tolist())) == len(texts)
    assert found[-1] == keyed_hashes(pa.array([b"short"]), b"s")[0]


def test_texts_that_no_seed_of_xxh64_parts_are_parted() -> None:
    texts = pa.array(twins()).cast(pa.binary())
    for seed in (0, 42, 0x123456789ABCDEF):
        first, second = hash_bytes(texts, seed)
        assert first == second
    first, second = keyed_hashes(texts, b"secret")
    assert first != second


def test_another_secret_gives_other_hashes() -> None:
    texts = pa.array([b"ann", b"bob"])
    assert not set(keyed_hashes(texts, b"one").tolist()) & set(keyed_hashes(texts, b"two").tolist())
