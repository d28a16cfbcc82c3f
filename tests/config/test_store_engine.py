"""`pipeline.store_engine`: of a pipeline or of its project, and refused in one line before anything runs."""

import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sessionlake.config import store_engines
from sessionlake.config.load import load_config
from sessionlake.errors import ConfigError
from sessionlake.store.directory import ROCKSDB_FORMAT
from sessionlake.store.layout import FORMAT

CLICKS = """\
[source]
kind = "files"
path = "events"
format = "json"
[event]
key = "key"
time = "at"
[session]
gap = "10 minutes"
[aggregates]
events = "count()"
"""


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    (tmp_path / "clicks.toml").write_text(CLICKS)
    return tmp_path / "clicks.toml"


def test_files_unless_project_or_pipeline_says_so(clicks: Path) -> None:
    project = clicks.with_name("project.toml")
    project.write_text("")
    assert load_config(clicks).pipeline.store_engine == "files"
    project.write_text('[pipeline]\nstore_engine = "rocksdb"\n')
    assert load_config(clicks).pipeline.store_engine == "rocksdb"
    clicks.write_text(f'[pipeline]\nstore_engine = "files"\n{CLICKS}')
    assert load_config(clicks).pipeline.store_engine == "files"


def test_another_value_is_refused_with_its_place(clicks: Path) -> None:
    clicks.with_name("project.toml").write_text('# defaults\n\n[pipeline]\nstore_engine = "rocks"\n')
    with pytest.raises(ConfigError) as raised:
        load_config(clicks)
    assert str(raised.value).removeprefix(f"{clicks.parent}/") == (
        "project.toml:4: pipeline.store_engine: 'rocks' is not allowed; write 'files' or 'rocksdb'"
    )


def test_the_version_is_that_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    needed = {canonicalize_name(one.name): one for one in map(Requirement, project["dependencies"])}
    assert str(needed[store_engines._PACKAGE].specifier) == f"=={store_engines._TESTED}"


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (None, "'rocksdb' needs rocksdict 0.3.29, which is not installed; "),
        ("0.3.28", "'rocksdb' needs rocksdict 0.3.29, and 0.3.28 is installed; "),
    ],
)
def test_a_missing_or_untried_rocksdict_is_told_with_the_version_to_install(
    clicks: Path, monkeypatch: pytest.MonkeyPatch, found: str | None, told: str
) -> None:
    def version(name: str) -> str:
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(store_engines, "version", version)
    named = '[pipeline]\nname = "clicks"\nwarehouse = "w"\n'
    clicks.write_text(f"{named}{CLICKS}")
    load_config(clicks)
    clicks.write_text(f'{named}store_engine = "rocksdb"\n{CLICKS}')
    with pytest.raises(ConfigError) as raised:
        load_config(clicks)
    assert f"{told}run `pip install rocksdict==0.3.29`, or write 'files'" in str(raised.value)


def test_bytes_of_values_have_a_version_in_each_engine() -> None:
    """Whoever raises one because records have other bytes raises the other, too."""
    assert (FORMAT, ROCKSDB_FORMAT) == (4, 1)
