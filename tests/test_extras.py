"""Versions of packages that do not fit are told in one line, by the ranges of the package's own metadata."""

from collections.abc import Mapping
from importlib.metadata import distribution

import click
import pytest
from click.testing import CliRunner

from sessionlake import extras
from sessionlake.cli.registry import LazyGroup
from sessionlake.cli.shared import one_line_errors
from sessionlake.errors import MissingExtraError
from sessionlake.extras import require_extra, require_versions


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Versions that packages are taken to have."""
    found: dict[str, str] = {}
    real = extras._version
    monkeypatch.setattr(extras, "_version", lambda package: found.get(package) or real(package))
    return found


def test_what_is_installed_here_fits() -> None:
    require_versions()
    require_versions("spark")
    require_extra("serve", "fastapi", "serve")


def test_every_range_is_looked_at_once() -> None:
    wanted = [wanted.name for extra in ("", "serve", "spark") for wanted in extras._wanted(extra)]
    lines = distribution("sessionlake").requires or []
    assert len(wanted) == len(
        [
            line
            for line in lines
            if not any(f"'{extra}'" in line for extra in ("airflow", "demo", "kafka", "lineage", "postgres", "quality"))
        ]
    )
    assert "pyspark" in wanted


@pytest.mark.parametrize(
    ("version", "extra", "line"),
    [
        ({"pyspark": "3.5.1"}, "spark", "pyspark 3.5.1 is installed, sessionlake needs 4.1.x; run: pip install 'pyspark==4.1.1'"),
        ({"duckdb": "1.1.0"}, "", "duckdb 1.1.0 is installed, sessionlake needs >=2,<2.1; run: pip install 'duckdb>=2,<2.1'"),
        (
            {"duckdb": "1.1.0", "pyarrow": "27.0.0"},
            "",
            "duckdb 1.1.0 is installed, sessionlake needs >=2,<2.1; pyarrow 27.0.0 is installed, sessionlake needs >=26,<27; run: pip install 'duckdb>=2,<2.1' 'pyarrow>=26,<27'",
        ),
    ],
)  # fmt: skip
def test_another_version_is_named_with_the_command_that_mends_it(
    installed: dict[str, str], version: Mapping[str, str], extra: str, line: str
) -> None:
    installed |= version
    with pytest.raises(MissingExtraError) as raised:
        require_versions(extra)
    assert str(raised.value) == line
    require_versions("" if extra else "spark")


def test_missing_packages_of_an_extra_are_named_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_is_there", lambda wanted: wanted.name not in {"pyspark", "pandas", "uvicorn"})
    with pytest.raises(MissingExtraError) as raised:
        require_versions("spark")
    assert str(raised.value) == "pandas and pyspark are not installed; run: pip install 'sessionlake[spark]'"
    assert extras.lacking("serve") == "uvicorn is not installed; run: pip install 'sessionlake[serve]'"
    assert extras.lacking("kafka") is None
    # What an extra brings through another one is its own.
    assert extras.lacking("quality") == "pandas and pyspark are not installed; run: pip install 'sessionlake[quality]'"


def test_any_patch_release_of_spark_fits(installed: dict[str, str]) -> None:
    installed["pyspark"] = "4.1.9"
    require_versions("spark")
    installed["pyspark"] = "4.10.0"
    with pytest.raises(MissingExtraError, match=r"^pyspark 4\.10\.0 is installed, sessionlake needs 4\.1\.x"):
        require_versions("spark")


def test_an_extras_versions_are_asked_for_with_the_extra(installed: dict[str, str]) -> None:
    installed["uvicorn"] = "0.1"
    require_versions()
    with pytest.raises(
        MissingExtraError, match=r"^uvicorn 0\.1 is installed, sessionlake needs >=0\.40; run: pip install"
    ):
        require_extra("serve", "uvicorn", "serve")


@click.command("burst")
@one_line_errors
def burst() -> None:
    raise ImportError("cannot import name 'DuckDBPyConnection'")


def test_a_failed_import_is_told_by_the_version_that_causes_it(installed: dict[str, str]) -> None:
    installed["pyspark"] = "3.5.1"
    result = CliRunner().invoke(burst)
    assert result.exit_code == 2
    assert (
        result.stderr
        == "sessionlake: pyspark 3.5.1 is installed, sessionlake needs 4.1.x; run: pip install 'pyspark==4.1.1'\n"
    )


def test_a_command_that_can_not_be_imported_is_told_so_too(
    installed: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed["duckdb"] = "1.1.0"

    def refuse(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("sessionlake.cli.registry.import_module", refuse)
    result = CliRunner().invoke(LazyGroup("sessionlake"), ["status", "clicks.toml"])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith("sessionlake: duckdb 1.1.0 is installed, sessionlake needs ")
