"""Tables opened without Spark, below directories whose names deltalake takes for others."""

import ast
import gc
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

import sessionlake
from sessionlake.propose.tables import read_delta
from sessionlake.warehouse.lake import opened

ROOT = Path(sessionlake.__file__).parent
NAMES = [
    "a%20b",
    "a%2520b",
    "a%2Fb",
    "a%5cb",
    "a\\b",
    "100%",
    "%zz",
    "a b",
    "a#b?c",
    "a[1]{b,c}*",
    "a:b+c&d=e;'\"`|<>^~ü",
    "[\\%20",
]
"""Among them are names that decode to one another."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a table below each name, whose only row has that name, and a partition of it."""
    root = tmp_path_factory.mktemp("names")
    for number, name in enumerate(NAMES):
        write_deltalake(root / str(number), pa.table({"name": [name], "part": [name]}), partition_by=["part"])
        (root / name).mkdir(parents=True)
        (root / str(number)).rename(root / name / "t")
    return root


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_each_name_is_its_own_table(root: Path, name: str, scheme: str) -> None:
    table = opened(f"{scheme}{root}/{name}/t")
    expected = [{"name": name, "part": name}]
    assert table.to_pyarrow_table().to_pylist() == expected
    assert pa.table(table.scan()).to_pylist() == expected
    assert pa.table(table.scan(predicate="part = 'of none'")).num_rows == 0
    assert table.get_add_actions().num_rows == 1


@pytest.mark.parametrize("name", NAMES)
def test_init_reads_it(root: Path, name: str) -> None:
    _, rows, whole = read_delta(root / name / "t", 1 << 20)
    assert ([part.to_pylist() for part in rows], whole) == ([[{"name": name, "part": name}]], True)


def test_links_last_as_long_as_the_table(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    table = opened(str(root / "a%20b" / "t"))
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(TableNotFoundError):
        opened(str(root / "a%20b"))
    assert len(list(tmp_path.iterdir())) == 1
    del table
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_later_version_is_not_seen_and_can_be_opened(root: Path) -> None:
    place = root / "a%2520b" / "t"
    before = opened(str(place))
    plain = root / "plain"
    place.rename(plain)
    write_deltalake(plain, pa.table({"name": ["2"], "part": ["2"]}), mode="append")
    plain.rename(place)
    assert (before.version(), before.to_pyarrow_table().num_rows) == (0, 1)
    assert (opened(str(place)).version(), opened(str(place)).to_pyarrow_table().num_rows) == (1, 2)
    place.rename(plain)
    DeltaTable(plain).delete("part = '2'")
    plain.rename(place)


def opens(text: str) -> Iterator[int]:
    """Yield the lines that give deltalake a place to open or to write."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called.rpartition(".")[2] in ("DeltaTable", "write_deltalake"):
                yield node.lineno


def test_deltalake_is_told_paths_in_one_place() -> None:
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in ROOT.rglob("*.py")}
    found = {name for name, text in texts.items() if "delta" in text and list(opens(text))}
    assert found == {"warehouse/lake.py"}
    assert list(opens("x = deltalake.DeltaTable(path)\nDeltaTable.create(path)\n")) == [1]
