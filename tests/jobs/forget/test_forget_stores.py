"""Local stores: a key's shard goes whole, others stay; short keys are told from chance."""

import socket
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.columnar.keys import shard_of
from sessionlake.config.load import Config
from sessionlake.config.store_engines import ENGINES
from sessionlake.engine.pending import Pending
from sessionlake.jobs.forget.keys import Keys
from sessionlake.jobs.forget.stores import await_removal, elsewhere, erase_stores, find_in_stores, store_if_free
from sessionlake.store.engines import opened_by
from sessionlake.store.segmented import WRITE_SCHEMA, SegmentedSessionStore, segment_interval
from sessionlake.stream.lock import locked_store
from tests.serve.replica_support import log_commit
from tests.store.sessions import OneSessionAtATime, Session
from tests.support import examples, make_config

NAMES = ["7", "anna@example.org", *(f"user{i}" for i in range(20))]


def shard(key: str, count: int = 4) -> int:
    return int(shard_of(pa.array([key]), count)[0])


on_files = pytest.mark.parametrize("config", ["files"], indirect=True)


@pytest.fixture(params=ENGINES)
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Config:
    """Four shards with sessions of all keys, the first key also pending, and the store of a fifth shard of old times."""
    config = make_config(tmp_path, pipeline={"shards": 4})
    folder = Path(config.store_dir)
    folder.mkdir(parents=True)
    for number in range(5):
        store = OneSessionAtATime(folder / str(number), segment_interval(70), opened_by(request.param))
        for key in NAMES:
            if shard(key) == number or (number == 4 and key == "user7"):
                store.put(Session(key, 100, 110, state=b"state"))
        store.close()
    rows: dict[str, Any] = {"segment": [0], "key": [b"7"], "value": [b"x"]}
    Pending(folder / f"{shard('7')}.pending").write("c", None, pa.table(rows, schema=WRITE_SCHEMA))
    return config


def names(paths: list[Path]) -> set[str]:
    return {path.name for path in paths}


@on_files
def test_find_tells_a_short_key_from_its_byte(config: Config) -> None:
    with locked_store(config):
        (run,) = (found := names(find_in_stores(config, Keys.of(["7"])))) - {"c.arrow", str(shard("7"))}
        assert (len(found), run in names([*(Path(config.store_dir) / str(shard("7"))).iterdir()])) == (3, True)
        assert find_in_stores(config, Keys.of(["8", "nobody@example.org"])) == []


@pytest.mark.parametrize("config", ["rocksdb"], indirect=True)
def test_a_store_of_rocksdb_is_asked_as_a_whole(config: Config) -> None:
    shard_name = str(shard("7"))
    with locked_store(config):
        assert names(find_in_stores(config, Keys.of(["7"]))) == {"c.arrow", shard_name}
        assert find_in_stores(config, Keys.of(["8", "nobody@example.org", "nna@example.org"])) == []
    store = OneSessionAtATime(Path(config.store_dir) / shard_name, segment_interval(70), opened_by("rocksdb"))
    try:  # beside the process that has it open
        store.put(Session("someone@example.org", 100, 110, state=b"state"))
        assert names(find_in_stores(config, Keys.of(["someone@example.org"]))) == {shard_name}
    finally:
        store.close()


@on_files
def test_find_tells_a_key_from_a_part_of_another(config: Config) -> None:
    assert find_in_stores(config, Keys.of(["nna@example.org", "anna@example.or"])) == []
    store = OneSessionAtATime(Path(config.store_dir) / "4", segment_interval(70))
    try:  # not merged yet
        store.put(Session("someone@example.org", 100, 110, state=b"state"))
        assert len(find_in_stores(config, Keys.of(["someone@example.org"]))) == 2
        assert find_in_stores(config, Keys.of(["one@example.org"])) == []
    finally:
        store.close()


def test_erase_takes_the_keys_shards_and_leftovers_only(config: Config) -> None:
    keys, folder = Keys.of(["anna@example.org", "7"]), Path(config.store_dir)
    (folder / "0.forget").touch()
    going = {shard("anna@example.org"), shard("7")}
    assert find_in_stores(config, keys) != []
    assert erase_stores(config, keys, alone=True) == (len(going | {4}), 0)
    assert find_in_stores(config, keys) == []
    assert {p.name for p in folder.iterdir() if p.is_dir()} == {str(n) for n in range(4) if n not in going}
    assert erase_stores(config, keys, alone=True) == (0, 0)


def test_beside_a_driver_shards_are_marked(config: Config) -> None:
    keys, folder = Keys.of(["anna@example.org"]), Path(config.store_dir)
    with store_if_free(config) as alone:
        assert alone
    with locked_store(config), store_if_free(config) as alone:
        assert not alone
    assert erase_stores(config, keys, alone=False) == (0, 2)
    asked = {f"{shard('anna@example.org')}.forget", "4.forget"}
    assert {p.name for p in folder.glob("*.forget")} == asked
    assert asked < names(find_in_stores(config, keys))
    # Whoever's they are, they are found: the bytes of what is to be removed are there still.
    assert names(find_in_stores(config, Keys.of(["nobody"]))) == asked
    left = [True, False]
    with locked_store(config):
        await_removal(config, lambda: left.pop(0))
    assert (left, names(find_in_stores(config, Keys.of(["nobody"])))) == ([], asked)
    await_removal(config, lambda: pytest.fail("nobody runs"))
    assert find_in_stores(config, keys) == []


def test_damaged_store_of_a_key_goes_too(config: Config) -> None:
    keys, own = Keys.of(["7"]), Path(config.store_dir) / str(shard("7"))
    (own / "CURRENT").write_text("damaged")
    assert own in find_in_stores(config, keys)
    erase_stores(config, keys, alone=True)
    assert not own.exists()


def test_stores_of_other_machines_are_named(config: Config) -> None:
    here = socket.gethostname()
    assert elsewhere(config, [here]) == []
    (line,) = elsewhere(config, [here, "worker-2", "worker-1"])
    assert line.startswith("stores: on worker-1, worker-2; stop the stream, remove ")
    pipeline = config.pipeline.model_copy(update={"store": "/data/$DISK"})
    (line,) = elsewhere(config.model_copy(update={"pipeline": pipeline}), [])
    assert line.startswith("stores: pipeline.store '/data/$DISK' may be another place for each executor")


@examples(20)
@given(
    some=st.lists(st.integers(0, 19_999), max_size=2),
    others=st.lists(st.text("ab0123456789", min_size=1, max_size=16), min_size=1, max_size=3),
)
def test_proof_finds_exactly_the_stores_that_have_a_key(crowded: Config, some: list[int], others: list[str]) -> None:
    """Keys with a common prefix are told apart; and a driver has the lock."""
    keys = Keys.of([*(crowded_key(number) for number in some), *others])
    with locked_store(crowded):
        found = names(find_in_stores(crowded, keys)) & {"0", "1"}
    assert found == {str(shard(key, 2)) for key in keys.values if key in CROWD}


def crowded_key(number: int) -> str:
    return f"customer-{number:05d}@example.org" if number % 2 else f"{number:016x}"


CROWD = {crowded_key(number) for number in range(20_000)}


@pytest.fixture(scope="module", params=ENGINES)
def crowded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Two shards of 20,000 keys, as the engine writes them."""
    config = make_config(tmp_path_factory.mktemp("crowded"), pipeline={"shards": 2})
    keys = np.array(sorted(CROWD))
    shards = shard_of(pa.array(keys), 2)
    for number in range(2):
        own = sorted(key.encode() for key in keys[shards == number])
        store = SegmentedSessionStore(
            Path(config.store_dir) / str(number), segment_interval(70), opened_by(request.param)
        )
        rows = {"segment": [0] * len(own), "key": own, "value": [b"state"] * len(own)}
        store.apply(pa.table(rows, schema=WRITE_SCHEMA), {}, 0)
        store.close()
    return config


def test_the_shards_of_a_driver_with_another_number_go_too(config: Config) -> None:
    """A running driver has the number of its last batch, whatever the config says by now."""
    key = next(key for key in NAMES if shard(key, 3) != shard(key))
    log_commit(Path(config.directory), 0, "c", {}, ["c"] * 3, {}, {})
    (Path(config.directory) / "lake").rename(config.pipeline.warehouse)
    erase_stores(config, Keys.of([key]), alone=False)
    marked = {path.name for path in Path(config.store_dir).glob("*.forget")}
    assert {f"{shard(key)}.forget", f"{shard(key, 3)}.forget"} <= marked
