"""Local stores: a key's shard goes whole, others stay; short keys are told from chance."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sessionlake.config import Config
from sessionlake.engine.operator import shard_of
from sessionlake.engine.pending import Pending
from sessionlake.jobs.forget.keys import Keys
from sessionlake.jobs.forget.stores import erase_stores, find_in_stores, store_if_free
from sessionlake.jobs.sessionizer.single_driver import locked_store
from sessionlake.store.interface import StoredSession, Windowed
from sessionlake.store.segmented import WRITE_SCHEMA, SegmentedSessionStore, segment_interval
from tests.jobs.support import make_config

NAMES = ["7", "anna@example.org", *(f"user{i}" for i in range(20))]


def shard(key: str, count: int = 4) -> int:
    return int(shard_of(pa.array([key]), count)[0])


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Four shards with sessions of all keys, the first key also pending, and the store of a fifth shard of old times."""
    config = make_config(tmp_path, pipeline={"shards": 4})
    folder = Path(config.store_dir)
    folder.mkdir(parents=True)
    for number in range(5):
        store = SegmentedSessionStore(folder / str(number), segment_interval(70))
        for key in NAMES:
            if shard(key) == number or (number == 4 and key == "user7"):
                store.put(StoredSession(Windowed(key, 100, 110), 1, 0, b"state"))
        store.close()
    rows: dict[str, Any] = {"segment": [0], "key": [b"7"], "value": [b"x"]}
    Pending(folder / f"{shard('7')}.pending").write("c", None, pa.table(rows, schema=WRITE_SCHEMA))
    return config


def names(paths: list[Path]) -> set[str]:
    return {path.name for path in paths}


def test_find_tells_a_short_key_from_its_byte(config: Config) -> None:
    assert names(find_in_stores(config, Keys.of(["7"]), alone=True)) == {"c.arrow", str(shard("7"))}
    # Beside a driver the store can't be asked, and a byte says nothing.
    assert names(find_in_stores(config, Keys.of(["7"]), alone=False)) == {"c.arrow"}
    assert find_in_stores(config, Keys.of(["8", "nobody@example.org"]), alone=True) == []


def test_find_tells_a_key_from_a_part_of_another(config: Config) -> None:
    assert find_in_stores(config, Keys.of(["nna@example.org", "anna@example.or"]), alone=True) == []
    store = SegmentedSessionStore(Path(config.store_dir) / "4", segment_interval(70))
    try:  # still in RocksDB's log
        store.put(StoredSession(Windowed("someone@example.org", 100, 110), 1, 0, b"state"))
        assert len(find_in_stores(config, Keys.of(["someone@example.org"]), alone=False)) == 1
        assert find_in_stores(config, Keys.of(["one@example.org"]), alone=False) == []
    finally:
        store.close()


def test_erase_takes_the_keys_shards_and_leftovers_only(config: Config) -> None:
    keys, folder = Keys.of(["anna@example.org", "7"]), Path(config.store_dir)
    (folder / "0.forget").touch()
    going = {shard("anna@example.org"), shard("7")}
    assert find_in_stores(config, keys, alone=True) != []
    assert erase_stores(config, keys, alone=True) == (len(going | {4}), 0)
    assert find_in_stores(config, keys, alone=True) == []
    assert {p.name for p in folder.iterdir() if p.is_dir()} == {str(n) for n in range(4) if n not in going}
    assert erase_stores(config, keys, alone=True) == (0, 0)


def test_beside_a_driver_shards_are_marked(config: Config) -> None:
    keys, folder = Keys.of(["anna@example.org"]), Path(config.store_dir)
    with store_if_free(config) as alone:
        assert alone
    with locked_store(config), store_if_free(config) as alone:
        assert not alone
    assert erase_stores(config, keys, alone=False) == (0, 2)
    assert {p.name for p in folder.glob("*.forget")} == {f"{shard('anna@example.org')}.forget", "4.forget"}
    assert find_in_stores(config, keys, alone=False) != []


def test_damaged_store_of_a_key_goes_too(config: Config) -> None:
    keys, own = Keys.of(["7"]), Path(config.store_dir) / str(shard("7"))
    (own / "CURRENT").write_text("damaged")
    assert own in find_in_stores(config, keys, alone=True)
    erase_stores(config, keys, alone=True)
    assert not own.exists()
