"""Benchmarks are run by hand and seldom: here at least what they import from the package is there."""

import importlib

import pytest

from tests.infra.infra_files import ROOT

MODULES = [file.relative_to(ROOT).with_suffix("") for file in (ROOT / "benchmarks").rglob("*.py")]


@pytest.mark.parametrize("name", sorted(".".join(module.parts) for module in MODULES))
def test_a_benchmark_can_be_started(name: str) -> None:
    importlib.import_module(name)
