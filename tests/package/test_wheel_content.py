"""What the wheel holds: all that runs without a checkout, and nothing that doesn't."""

import stat
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

import sessionlake
from sessionlake.errors import MissingExtraError
from sessionlake.extras import require_extra
from tests.package.support import ROOT, build, build_wheel

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(build_wheel(tmp_path_factory.mktemp("wheel")))


@pytest.fixture
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return message_from_string(wheel.read(name).decode())


def test_it_holds_what_runs_outside_a_checkout(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    for folder, pattern, least in (
        ("src/sessionlake", "**/*.py", 100),
        ("src/sessionlake/examples", "commits/*.json.gz", 24),
        ("src/sessionlake", "engine/log4j2.properties", 1),
        ("src/sessionlake", "py.typed", 1),
        ("src/sessionlake", "serve/web/*", 7),
    ):
        files = [f"sessionlake/{file.relative_to(ROOT / 'src/sessionlake')}" for file in (ROOT / folder).glob(pattern)]
        assert len(files) >= least
        assert set(files) <= names
    beside = [
        *(ROOT / "expectations").glob("*.json"),
        *(ROOT / "dags").rglob("*.py"),
        ROOT / "pipelines" / "command.py",
    ]
    assert {f"sessionlake/{file.relative_to(ROOT)}" for file in beside} <= names
    assert "sessionlake/infra/airflow/driver-python" in names


def test_a_wheel_of_the_source_distribution_is_the_same(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path / "sdist")) as source:
        source.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.glob("sessionlake-*")
    assert (unpacked / "dags" / "reprocess_late.py").is_file()
    again = zipfile.ZipFile(build("wheel", tmp_path / "wheel", unpacked))
    assert {info.filename: info.CRC for info in again.infolist()} == {
        info.filename: info.CRC for info in wheel.infolist()
    }


def test_spark_starts_its_python_by_a_script(wheel: zipfile.ZipFile) -> None:
    assert wheel.getinfo("sessionlake/infra/airflow/driver-python").external_attr >> 16 & stat.S_IXUSR


def test_it_holds_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {Path(name).parts[0] for name in wheel.namelist()}
    assert tops == {"sessionlake", f"sessionlake-{PROJECT['version']}.dist-info"}
    names = [Path(name).name for name in wheel.namelist()]
    assert not [name for name in names if name == "ruff.toml" or name.startswith("test_") or name.endswith(".pyc")]


def test_licence_and_metadata(wheel: zipfile.ZipFile, metadata: Message) -> None:
    (licence,) = [name for name in wheel.namelist() if name.endswith("licenses/LICENSE")]
    assert wheel.read(licence).decode().split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Version"] == sessionlake.__version__
    assert {"airflow", "demo", "kafka", "lineage", "postgres", "quality", "serve", "spark"} == set(
        metadata.get_all("Provides-Extra") or []
    )


def test_the_core_needs_no_extra(metadata: Message) -> None:
    needed = metadata.get_all("Requires-Dist") or []
    for package in ("matplotlib", "great-expectations", "apache-airflow", "openlineage-python", "confluent-kafka"):
        (line,) = [line for line in needed if line.startswith(tuple(f"{package}{sign}" for sign in "<>="))]
        assert "extra ==" in line


def test_it_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "sessionlake", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"sessionlake, version {PROJECT['version']}\n"


@pytest.mark.parametrize("module", ["no_such_module", "no_such_module.below"])
def test_a_missing_extra_is_one_line_with_the_remedy(module: str) -> None:
    with pytest.raises(MissingExtraError) as caught:
        require_extra("quality", module, "quality")
    assert str(caught.value) == (
        f"quality: Python module {module!r} is missing; run: pip install 'sessionlake[quality]'"
    )
