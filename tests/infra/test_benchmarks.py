"""Benchmarks are run by hand and seldom: here at least what they import from the package is there."""

import importlib

import pytest

from tests.infra.infra_files import ROOT


@pytest.mark.parametrize("name", sorted(file.stem for file in (ROOT / "benchmarks").glob("*.py")))
def test_a_benchmark_can_be_started(name: str) -> None:
    importlib.import_module(f"benchmarks.{name}")
