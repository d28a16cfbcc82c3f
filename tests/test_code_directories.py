"""Two directories of users' code in one process have modules of the same names: each gets its own, by every way to ask for one."""

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sessionlake import code_directories
from sessionlake.aggregates.base import Events
from sessionlake.aggregates.spec import build_custom
from sessionlake.columnar.arrays import Groups
from sessionlake.config.load import parse_config
from sessionlake.errors import ConfigError
from sessionlake.operators.process.user_class import failure, load_class, made
from sessionlake.testing import Harness
from sessionlake.user_code import load, load_function

SHOP = """\
import dataclasses
import importlib
import pickle
from typing import ClassVar, NamedTuple

import helpers
import pkg.deep.inner
from pkg import *
from pkg import deep
from pkg.deep import inner as named

from sessionlake.operators.process import Processor


@dataclasses.dataclass
class Value:
    number: "int" = 1
    of: "ClassVar[str]" = "{who}"


class Pair(NamedTuple):
    who: str


class Net:
    columns = ("v",)
    value_type = "string"

    def initializer(self):
        return Pair("")

    def aggregator(self, key, event, aggregate):
        import lazy

        return Pair(lazy.WHO)

    def merger(self, key, left, right):
        return max(left, right)

    def result(self, aggregate):
        return f"{{type(aggregate).__qualname__}} {{aggregate.who}} {{helpers.WHO}}"

    def serialize(self, aggregate):
        return pickle.dumps(aggregate)

    def deserialize(self, data):
        return pickle.loads(data)


class F(Processor):
    def process(self, key, row, timers, state):
        if row["v"] == 1:
            raise ValueError("one")
        yield {{"who": "".join(ways())}}


def ways():
    import lazy

    yield from (helpers.WHO, pkg.deep.inner.WHO, deep.inner.WHO, named.WHO, listed.WHO, inner_of(), lazy.WHO, Value.of)
    yield importlib.import_module("late").WHO
    yield importlib.import_module("pkg.other").WHO
    yield pickle.loads(b"cold\\nOld\\n)\\x81.").who  # of a state that was stored by the plain name
    yield pickle.loads(pickle.dumps(Value(2))).of


def on_rows(rows, delivery):
    return "".join(ways())
"""


def write_code(root: Path, who: str) -> str:
    """Write a directory of modules whose names are those of the others, and return it."""
    package = root / who / "pkg"
    (package / "deep").mkdir(parents=True)
    (root / who / "shop.py").write_text(SHOP.format(who=who))
    word = f"WHO = {who!r}\n"
    for name in ("helpers", "lazy", "late", "pkg/other", "pkg/listed", "pkg/deep/inner"):
        (root / who / f"{name}.py").write_text(word)
    (root / who / "old.py").write_text(f"class Old:\n    who = {who!r}\n")
    (package / "__init__.py").write_text(
        "__all__ = ['listed', 'inner_of']\n\n\ndef inner_of():\n    from .deep import inner\n    return inner.WHO\n"
    )
    (package / "deep" / "__init__.py").write_text("from . import inner\n")
    return str(root / who)


@pytest.fixture
def both(tmp_path: Path) -> tuple[str, str]:
    return write_code(tmp_path, "a"), write_code(tmp_path, "b")


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no test see the modules of another one, or of a pipeline that ran before in this process."""
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setattr(code_directories, "_known", {})
    for name, module in [*sys.modules.items()]:
        if name.startswith(code_directories._PREFIX) or type(module) is code_directories._StandIn:
            monkeypatch.delitem(sys.modules, name)
    before = {*sys.modules}
    yield
    for name in {*sys.modules} - before:
        if not name.startswith(("sessionlake", "pyarrow", "numpy")):
            del sys.modules[name]


def test_functions_of_one_name_ask_their_own_modules_by_every_way(both: tuple[str, str]) -> None:
    functions = [load_function("sink.python.call", "shop:on_rows", directory) for directory in both]
    for _ in range(2):
        assert [function(None, None) for function in functions] == ["a" * 12, "b" * 12]
    assert [function.__module__ for function in functions] == ["shop", "shop"]


def test_aggregates_of_one_name(both: tuple[str, str]) -> None:
    custom = [pickle.loads(pickle.dumps(build_custom("net", "shop:Net", directory))) for directory in both]  # noqa: S301
    events = Events(pa.array(["k", "k"]), pa.array([1, 2]), {"v": pa.array([1, 2])})
    for one, who in zip(custom, "ab", strict=True):
        merged = one.merge(one.lift(events), Groups(np.array([0]), 2, lambda: pa.array(["k"])))
        assert one.value(merged).to_pylist() == [f"Pair {who} {who}"]
        # As a state of an earlier version: it does not have the directory, which may have another name by now.
        assert b"\x8c\x04shop\x94\x8c\x04Pair" in merged[0][0].as_py()


def test_harnesses_of_one_name(both: tuple[str, str], tmp_path: Path) -> None:
    names = {"name": "p", "warehouse": "w", "store": "s"}
    source = {"kind": "files", "path": "events", "format": "json"}
    processor = {"class": "shop:F", "columns": ["v"], "retention": "1 day", "output": {"who": "string"}}
    configs: list[dict[str, Any]] = [
        {
            "pipeline": {**names, "code": code},
            "source": source,
            "event": {"key": "key", "time": "at", "time_unit": "us"},
            **operator,
        }
        for operator in ({"process": processor}, {"group": {}, "aggregates": {"who": "shop:Net"}})
        for code in both
    ]
    harnesses = [Harness(parse_config(config, tmp_path)) for config in configs]
    for at in range(2):
        sent = [harness.process([{"key": "k", "at": at, "v": 2 + at}]).changes[-1]["who"] for harness in harnesses]
        assert sent == ["a" * 12, "b" * 12, "Pair a a", "Pair b b"]


def test_the_line_of_a_failure_is_that_of_the_own_file(both: tuple[str, str]) -> None:
    for directory in both:
        processor = made("shop:F", load_class("shop:F", directory))
        rows = processor.process("k", {"v": 1}, None, None)
        with pytest.raises(ValueError, match="one") as raised:
            list(rows)
        assert failure("shop:F", processor, raised.value, rows) == (
            f"class shop:F raised ValueError: one at shop.py:{1 + SHOP[: SHOP.index('raise')].count(chr(10))}"
        )


def test_a_name_outside_of_all_directories_is_that_of_none_if_two_have_it(both: tuple[str, str]) -> None:
    shops = [load("shop:Value", directory) for directory in both]
    assert [shop.of for shop in shops] == ["a", "b"]
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(shops[0]())
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'shop'$"):
        load("shop:Value", None)


def test_a_name_of_one_directory_is_known_to_the_whole_process(both: tuple[str, str]) -> None:
    value = load("shop:Value", both[0])(3)
    assert pickle.loads(pickle.dumps(value)) == value  # noqa: S301
    import shop  # type: ignore[import-not-found]

    assert shop.Value is type(value)
    shop.LEVEL = 3
    assert load("shop:LEVEL", both[0]) == 3


def code_of(root: Path, **modules: str) -> str:
    """Write a directory of modules, and return it."""
    root.mkdir(parents=True)
    for name, text in modules.items():
        (root / f"{name}.py").write_text(text)
    return str(root)


def test_a_module_that_is_imported_by_its_name_runs_in_each_directory_though_nothing_asks_it(tmp_path: Path) -> None:
    shop = "import importlib\n\nFOUND = []\n\n\ndef f():\n    importlib.import_module('rules')\n    return FOUND\n"
    rules = "import shop\n\nshop.FOUND.append(__file__)\n"
    codes = [code_of(tmp_path / who, shop=shop, rules=rules) for who in "ab"]
    assert [load("shop:f", code)() for code in codes] == [[f"{code}/rules.py"] for code in codes]


@pytest.mark.parametrize("first", ["b", "c"])
def test_a_module_that_cannot_be_imported_by_its_name_is_an_import_error_there(tmp_path: Path, first: str) -> None:
    """Also if another directory, which has it, was first."""
    shop = """\
import importlib
import pack

def f():
    failed = []
    for name in ("pack.more", "broken", "extra"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            failed.append(error.name)
    return failed
"""
    codes = {
        "b": code_of(tmp_path / "b", shop=shop, broken="import gone\n"),
        "c": code_of(tmp_path / "c", shop=shop, broken="", extra=""),
    }
    for who in codes:
        (tmp_path / who / "pack").mkdir()
    (tmp_path / "c" / "pack" / "more.py").touch()
    told = {who: load("shop:f", codes[who])() for who in sorted(codes, key=lambda who: who != first)}
    assert told == {"b": ["pack.more", "gone", "extra"], "c": []}


def test_a_look_at_all_modules_neither_fails_nor_imports(tmp_path: Path) -> None:
    """As `inspect.stack` does, and pickle for an object that says no module."""
    other = code_of(tmp_path / "b", shop="import script, more\nX = 1\n", script="", more="")
    shop = "import inspect\n\n\ndef f():\n    return inspect.stack()[0].function\n"
    own = code_of(tmp_path / "a", shop=shop, script="raise SystemExit\n")
    assert load("shop:X", other) == 1
    assert load("shop:f", own)() == "f"


def test_a_program_that_has_the_directory_on_its_path_imports_what_the_pipeline_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shops = {who: code_of(tmp_path / who, shop="import pack.inner\nWHO = pack.inner.WHO\n") for who in "ab"}
    for who in shops:
        (tmp_path / who / "pack").mkdir()
        (tmp_path / who / "pack" / "inner.py").write_text(f"WHO = {who!r}\n")
    assert [load("shop:WHO", code) for code in shops.values()] == ["a", "b"]
    monkeypatch.syspath_prepend(shops["b"])
    import pack.inner  # type: ignore[import-not-found]
    import shop  # type: ignore[import-not-found]

    assert (shop.WHO, pack.inner.WHO) == ("b", "b")


def test_a_module_that_the_program_has_imported_itself_is_not_loaded_again(
    both: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(both[0])
    import shop

    assert load("shop:Value", both[0]) is shop.Value
    # The other one is not the file beside its config.
    told = rf"'shop' is {both[1]}/shop.py in pipeline.code and {both[0]}/shop.py in an installed package; rename"
    with pytest.raises(ImportError, match=re.escape(told)):
        load("shop:Value", both[1])


def test_the_current_directory_is_nothing_installed(both: tuple[str, str]) -> None:
    """`python -m` puts it on the path, so Spark's workers have it."""
    code = "import sys; from sessionlake.user_code import load; print(load('shop:on_rows', sys.argv[1])(None, None))"
    run = [sys.executable, "-c", f"import sys; sys.path.insert(0, {both[0]!r}); {code}", both[1]]
    done = subprocess.run(run, cwd=both[0], capture_output=True, text=True, check=True)
    assert done.stdout == f"{'b' * 12}\n"


def test_an_installed_module_stays_the_installed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("loads = None\n")  # of Python itself
    (tmp_path / "duckdb.py").write_text("sql = None\n")
    for name in ("pyarrow", "shared"):  # folders of data
        (tmp_path / name).mkdir()
    code_of(tmp_path / "site" / "shared", part="X = 2\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    uses = "import json\nimport pyarrow\nfrom shared import part\nREAD = json.loads('1'), pyarrow.int64(), part.X\n"
    (tmp_path / "uses.py").write_text(uses)
    assert load("uses:READ", str(tmp_path)) == (1, pa.int64(), 2)
    with pytest.raises(
        ImportError, match=r"'duckdb' is .*duckdb.py in pipeline.code and .*duckdb/__init__.py in an installed"
    ):
        load("duckdb:sql", str(tmp_path))


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("gone:F", "ModuleNotFoundError: No module named 'gone'"),
        ("pkg.gone:F", "ModuleNotFoundError: No module named 'pkg.gone'"),
        ("shop.gone:F", "ModuleNotFoundError: No module named 'shop.gone'; 'shop' is not a package"),
        ("shop:Gone", "AttributeError: module 'shop' has no attribute 'Gone'"),
        ("needs:F", "ModuleNotFoundError: No module named 'gone' at needs.py:2"),
        ("circle:F", "ImportError: cannot import name 'F' from partially initialized module 'circle'"),
    ],
)
def test_errors_have_the_names_of_the_user(both: tuple[str, str], path: str, told: str) -> None:
    (Path(both[0]) / "needs.py").write_text("x = 1\nimport gone\n")
    (Path(both[0]) / "circle.py").write_text("from circle import F\n")
    with pytest.raises(ConfigError, match=re.escape(told)) as error:
        load_function("sink.python.call", path, both[0])
    assert "_sessionlake" not in str(error.value)


def test_a_module_that_came_later_is_found(both: tuple[str, str]) -> None:
    with pytest.raises(ModuleNotFoundError):
        load("later:X", both[0])
    (Path(both[0]) / "later.py").write_text("X = 1\n")
    os.utime(both[0], (1, 1))  # Python lists a directory again if its time has changed
    assert load("later:X", both[0]) == 1


def test_a_class_keeps_its_code_while_its_file_is_edited(both: tuple[str, str]) -> None:
    before = load("shop:F", both[0])
    (Path(both[0]) / "shop.py").write_text("F = 1\n")
    assert load("shop:F", both[0]) is before
