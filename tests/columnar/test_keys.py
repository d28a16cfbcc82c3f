"""The sharding rule: one number for a key, whoever asks."""

import pyarrow as pa
import pytest

from sessionlake.columnar.keys import shard_of, shard_of_key

KEYS = ["", "a", "b", "anna@example.org", "ü", "\U0001f600"]


def test_shard_of_a_key_is_its_crc32_modulo_the_shards() -> None:
    # CRC-32 of "a" is 0xe8b7be43.
    assert shard_of_key(b"a", 2) == 1
    assert shard_of_key(b"a", 1000) == 0xE8B7BE43 % 1000


@pytest.mark.parametrize("shards", [1, 2, 7, 256])
def test_shards_of_a_column_are_those_of_its_keys(shards: int) -> None:
    expected = [shard_of_key(key.encode(), shards) for key in KEYS]
    assert shard_of(pa.array(KEYS), shards).tolist() == expected
    assert shard_of(pa.array(KEYS).dictionary_encode(), shards).tolist() == expected
