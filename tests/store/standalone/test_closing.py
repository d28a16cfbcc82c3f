"""Closed stores and directories: what is refused, and what closing lets go of. For each variant of each kind."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessionlake.errors import CorruptionError, StoreClosedError, StoreError, StoreHeldError
from sessionlake.store.directory import remove_store
from sessionlake.store.segmented import SegmentedSessionStore
from sessionlake.stores import Serdes, Stores, Windowed, change_logged

TEXTS = (Serdes.string(), Serdes.string())
Make = Callable[[Path], Any]
MAKERS: dict[str, Make] = {
    "key-value on disk": lambda path: Stores.persistent_key_value_store("store", path, *TEXTS),
    "key-value in memory": lambda _: Stores.in_memory_key_value_store("store", *TEXTS),
    "lru": lambda _: Stores.lru_map("store", 5, *TEXTS),
    "windows on disk": lambda path: Stores.persistent_window_store("store", path, *TEXTS, retention=100, window_size=1),
    "windows in memory": lambda _: Stores.in_memory_window_store("store", *TEXTS, retention=100, window_size=1),
    "sessions on disk": lambda path: Stores.persistent_session_store("store", path, *TEXTS, retention=100),
    "sessions in memory": lambda _: Stores.in_memory_session_store("store", *TEXTS, retention=100),
    "logged": lambda path: change_logged(Stores.persistent_key_value_store("store", path, *TEXTS), lambda _, __: None),
}
ON_DISK = [name for name in MAKERS if "disk" in name]
OPENER = "import sys; sys.path[:0] = sys.argv[2:]; from pathlib import Path; from tests.store.standalone.test_closing import MAKERS\n"


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Make:
    return MAKERS[request.param]


def put(store: Any, number: int) -> None:
    if hasattr(store, "remove"):
        store.put(Windowed("a", 0, number), "v")
    elif hasattr(store, "fetch_all"):
        store.put("a", "v", number)
    else:
        store.put(f"{number:03}", "v")


def everything(store: Any) -> Any:
    return store.fetch_range(None, None) if hasattr(store, "remove") else store.all()


def methods(store: Any) -> dict[str, list[Any]]:
    """Return every call that reads or writes, with arguments that are right."""
    if hasattr(store, "remove"):
        window = Windowed("a", 0, 1)
        return {
            "fetch": ["a"],
            "backward_fetch": ["a"],
            "fetch_range": [None, None],
            "backward_fetch_range": [None, None],
            "find_sessions": ["a", 0, 1],
            "backward_find_sessions": ["a", 0, 1],
            "find_sessions_range": [None, None, 0, 1],
            "backward_find_sessions_range": [None, None, 0, 1],
            "fetch_session": ["a", 0, 1],
            "put": [window, "v"],
            "remove": [window],
        }
    if hasattr(store, "fetch_all"):
        return {
            "fetch_at": ["a", 0],
            "fetch": ["a", 0, 1],
            "backward_fetch": ["a", 0, 1],
            "fetch_range": [None, None, 0, 1],
            "backward_fetch_range": [None, None, 0, 1],
            "fetch_all": [0, 1],
            "backward_fetch_all": [0, 1],
            "all": [],
            "backward_all": [],
            "put": ["a", "v", 0],
        }
    return {
        "get": ["a"],
        "range": [None, None],
        "reverse_range": [None, None],
        "all": [],
        "reverse_all": [],
        "prefix_scan": ["a"],
        "approximate_num_entries": [],
        "put": ["a", "v"],
        "put_if_absent": ["a", "v"],
        "put_all": [[("a", "v")]],
        "delete": ["a"],
    }


def test_closed_store_refuses_every_call(make: Make, tmp_path: Path) -> None:
    store = make(tmp_path)
    calls = methods(store)
    for name, arguments in calls.items():
        getattr(store, name)(*arguments)
    store.flush()
    assert store.is_open
    store.close()
    store.close()
    assert not store.is_open
    assert store.name == "store"
    for name, arguments in {**calls, "flush": [], "restore": [[]]}.items():
        with pytest.raises(StoreClosedError, match=r"^store 'store' is closed; open it again$"):
            getattr(store, name)(*arguments)


def test_closing_the_store_ends_its_iterators(make: Make, tmp_path: Path) -> None:
    store = make(tmp_path)
    for number in range(3):
        put(store, number)
    unread, begun, peeked = everything(store), everything(store), everything(store)
    next(begun)
    assert peeked.has_next()
    assert store.open_iterators == 3
    store.close()
    assert store.open_iterators == 0
    for rows in (unread, begun, peeked):
        assert not rows.has_next()
        assert list(rows) == []


@pytest.mark.parametrize("name", ON_DISK)
def test_open_store_is_told_and_closing_it_with_iterators_lets_it_be_opened(name: str, tmp_path: Path) -> None:
    store = MAKERS[name](tmp_path)
    for number in range(3):
        put(store, number)
    rows = everything(store)
    next(rows)
    with pytest.raises(StoreHeldError, match=r"^store: '.*/store' is open already, here or in another process"):
        MAKERS[name](tmp_path)
    store.close()
    with MAKERS[name](tmp_path) as again:
        assert len(list(everything(again))) == 3


def test_store_that_another_process_has_open_is_told(tmp_path: Path) -> None:
    script = (
        OPENER + "store = MAKERS['key-value on disk'](Path(sys.argv[1])); print('open', flush=True); sys.stdin.read()"
    )
    arguments = [sys.executable, "-c", script, str(tmp_path), *sys.path]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(StoreHeldError):
            MAKERS["key-value on disk"](tmp_path)
        other.communicate("")
    MAKERS["key-value on disk"](tmp_path).close()


def test_forgotten_iterators_hold_nothing(make: Make, tmp_path: Path) -> None:
    store = make(tmp_path)
    put(store, 1)
    next(everything(store))
    assert store.open_iterators == 0
    store.close()


@pytest.mark.parametrize("name", ON_DISK)
def test_store_of_another_kind_is_refused(name: str, tmp_path: Path) -> None:
    MAKERS[name](tmp_path).close()
    other = next(kind for kind in ON_DISK if kind.split()[0] != name.split(maxsplit=1)[0])
    with pytest.raises(StoreError, match="was made with kind = "):
        MAKERS[other](tmp_path)


def test_directory_of_anything_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "letters.txt").write_text("dear")
    with pytest.raises(StoreError, match=r"holds 'letters.txt' and is no store of this kind"):
        MAKERS["key-value on disk"](tmp_path)
    assert [file.name for file in (tmp_path / "store").iterdir()] == ["letters.txt"]


def test_engine_neither_opens_nor_removes_it_nor_the_other_way_round(tmp_path: Path) -> None:
    with MAKERS["key-value on disk"](tmp_path) as store:
        store.put("a", "b")
    for take in (lambda: SegmentedSessionStore(tmp_path / "store", 100), lambda: remove_store(tmp_path / "store")):
        with pytest.raises(StoreError, match="is no store") as told:
            take()
        assert not isinstance(told.value, CorruptionError)
    with MAKERS["key-value on disk"](tmp_path) as store:
        assert store.get("a") == "b"
    SegmentedSessionStore(tmp_path / "engine" / "store", 100).close()
    with pytest.raises(StoreError, match="is no store of this kind"):
        MAKERS["sessions on disk"](tmp_path / "engine")


def test_unreadable_marker_and_other_versions_are_refused(tmp_path: Path) -> None:
    MAKERS["key-value on disk"](tmp_path).close()
    marker = tmp_path / "store" / "SESSIONLAKE-STORE"
    good = marker.read_text()
    for text in ("", "[]", good.replace('"version": 1', '"version": 2')):
        marker.write_text(text)
        with pytest.raises(StoreError, match=r"was made with version = (None|2), not 1; open it as it was made"):
            MAKERS["key-value on disk"](tmp_path)


def test_damaged_file_is_told(tmp_path: Path) -> None:
    with MAKERS["key-value on disk"](tmp_path) as store:
        store.put_all([(f"{n:05}", "v" * 100) for n in range(2000)])
        store.flush()
    for file in (tmp_path / "store").glob("*.sst"):
        data = bytearray(file.read_bytes())
        data[1000:60_000] = b"\xaa" * 59_000
        file.write_bytes(data)
    store = MAKERS["key-value on disk"](tmp_path)
    told = []
    for read in (lambda: list(store.all()), lambda: list(store.reverse_all()), lambda: store.get("00100")):
        with pytest.raises(StoreError, match=r"is damaged .* restore it from its log of changes") as error:
            read()
        told.append(error)
    store.close()
    MAKERS["key-value on disk"](tmp_path).close()  # which errors that are kept don't hinder


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "a\0"])
def test_names_that_are_no_directory_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^name: .* is no name of a directory"):
        Stores.persistent_key_value_store(name, tmp_path, *TEXTS)


def test_many_readers_beside_a_writer(make: Make, tmp_path: Path) -> None:
    """Rows that were there all along are in every reading, whatever is written meanwhile."""
    store = make(tmp_path)
    for number in range(1, 4):
        put(store, number)
    done = threading.Event()
    failures: list[object] = []

    def read() -> None:
        while not done.is_set():
            try:
                found = len(list(everything(store)))
                if found < 3:
                    failures.append(found)
            except Exception as error:  # noqa: BLE001 - of whatever kind, it must not come
                failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(100):
        for number in (4, 5):
            put(store, number)
    done.set()
    for reader in readers:
        reader.join()
    assert failures == []
    store.close()
