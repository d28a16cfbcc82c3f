"""The examples in docstrings run, and every public name has one."""

import doctest
import inspect
from importlib import import_module
from types import ModuleType

import pytest

from sessionlake.define.classes import classes
from sessionlake.define.sections import Aggregate
from tests.infra.infra_files import ROOT

SOURCE = ROOT / "src"
MODULES = sorted(
    ".".join(file.relative_to(SOURCE).with_suffix("").parts)
    for file in (SOURCE / "sessionlake").rglob("*.py")
    if ">>> " in file.read_text()
)
PACKAGES = [
    "sessionlake",
    "sessionlake.client",
    "sessionlake.operators.process",
    "sessionlake.standalone",
    "sessionlake.stores",
    "sessionlake.testing",
]
NEEDS_A_PIPELINE = {"check", "load_config", "load_project", "open_replica", "read", "spark"} | {
    f"read_{name}" for name in ("sessions", "windows", "joins", "table")
}
"""Functions that read a file of the user, or the tables of a pipeline, or start Java: their examples are in the pages."""
SHOWN_ELSEWHERE = {
    "Config": "load_config returns it",
    "Project": "load_project returns it",
    "BackPressureError": "docs/standalone.md",
    "ConfigOutput": "Harness",
    "Output": "SessionizerHarness",
    "JoinOutput": "JoinHarness",
    "TableOutput": "TableHarness",
    "WindowOutput": "WindowHarness",
    "EmitSection": "WindowHarness",
    "Lazy": "docs/stores.md",
    "Serde": "Serdes has the ready ones",
    "Serdes": "Stores",
    "Windowed": "Stores.in_memory_session_store",
    **dict.fromkeys(
        (
            "KeyValueStore",
            "ReadOnlyKeyValueStore",
            "ReadOnlySessionStore",
            "ReadOnlyWindowStore",
            "SessionStore",
            "StateStore",
            "StoreIterator",
            "WindowStore",
        ),
        "protocols: Stores creates the stores",
    ),
}
"""Names whose use an example of another name shows, with that name or the page."""


def public_names() -> list[tuple[str, str]]:
    """Return the classes and functions that users import, each with its package; not the classes of `classes`."""
    return [
        (package, name)
        for package in PACKAGES
        for name in import_module(package).__all__
        if name not in classes()
        if inspect.isclass(found := getattr(import_module(package), name)) or inspect.isfunction(found)
    ]


def aggregates() -> dict[str, type]:
    """Return the classes of aggregates, which `sessionlake` makes of the registry. Those of sections have the keys of their pages."""
    return {name: found for name, found in classes().items() if issubclass(found, Aggregate)}


def has_example(found: object) -> bool:
    return ">>> " in (inspect.getdoc(found) or "")


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module_run(name: str) -> None:
    result = doctest.testmod(import_module(name), optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize(("package", "name"), public_names())
def test_a_public_name_has_an_example(package: str, name: str) -> None:
    found = getattr(import_module(package), name)
    assert has_example(found) or name in NEEDS_A_PIPELINE or name in SHOWN_ELSEWHERE, (
        f"{package}.{name} has no example; write one in its docstring"
    )


@pytest.mark.parametrize("name", sorted(aggregates()))
def test_an_aggregate_has_an_example_that_runs(name: str) -> None:
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(aggregates()[name]) or "", aggregates(), name, None, 0)
    assert doctest.DocTestRunner().run(test) == doctest.TestResults(failed=0, attempted=1)


def test_exceptions_name_what_exists() -> None:
    names = {name for _, name in public_names()}
    assert names >= {*NEEDS_A_PIPELINE, *SHOWN_ELSEWHERE}


def test_a_failing_example_is_found() -> None:
    module = ModuleType("wrong")
    module.__doc__ = "Say what it returns.\n\n>>> 1 + 1\n3\n"
    assert doctest.testmod(module, report=False, verbose=False).failed == 1
