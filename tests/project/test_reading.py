"""The ways to name a pipeline whose results are read in Python, over tables that real streams have written; no JVM."""

from pathlib import Path

import pytest

import sessionlake
from sessionlake import Pipeline
from sessionlake.errors import SessionlakeError
from tests.cli.plan_support import lake, written


def member(root: Path, name: str) -> Path:
    """Make a project, and in it a pipeline of sessions that has run."""
    (root / "project.toml").touch()
    (root / name).mkdir()
    file = root / f"{name}.toml"
    file.write_text(written(lake(root / name, "session"), root / name).read_text())
    return file


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shop")
    member(root, "visits")
    return root


def test_every_natural_call_gives_the_same_rows(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = project / "visits.toml"
    config = sessionlake.load_config(file)
    expected = sorted(map(repr, sessionlake.read_sessions(config).fetchall()))
    assert len(expected) == 26
    name = config.pipeline.name
    calls = [(file,), (str(file),), (project,), (str(project),), (str(project), name), (Pipeline.from_toml(file),)]
    for call in calls:
        assert sorted(map(repr, sessionlake.read_sessions(*call).fetchall())) == expected, call
        assert sorted(map(repr, sessionlake.read(*call).fetchall())) == expected, call
    monkeypatch.chdir(project)
    assert sorted(map(repr, sessionlake.read_sessions().fetchall())) == expected
    assert sorted(map(repr, sessionlake.read().fetchall())) == expected


def test_packed_states_are_left_out(project: Path) -> None:
    assert "state" not in sessionlake.read_sessions(project).columns
    assert "state" not in sessionlake.read_sessions(project).df().columns


def test_a_call_that_names_no_pipeline_ends_in_one_line(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = sessionlake.load_config(project / "visits.toml").pipeline.name

    def line(*call: object, reader: str = "read_sessions") -> str:
        with pytest.raises(SessionlakeError) as raised:
            getattr(sessionlake, reader)(*call)
        (told,) = str(raised.value).splitlines()
        return told

    ways = "pass a config, a Pipeline, a file ('clicks.toml'), or a project and a name ('pipelines', 'clicks'); a Spark session comes first"
    assert line(42) == f"read_sessions: was called with (int); {ways}"
    assert line("a", "b", "c") == f"read_sessions: was called with ('a', 'b', 'c'); {ways}"
    assert line("shop.toml", None) == f"read_sessions: was called with ('shop.toml', NoneType); {ways}"
    assert "'shop'" in line("shop")
    assert line(project, "vists").startswith("project: 'vists' is no pipeline of ")
    there = f"there are {name} (sessionlake.read_sessions)"
    assert line(project, reader="read_windows") == f"read_windows: no pipeline of {str(project)!r} is for it; {there}"
    monkeypatch.chdir(tmp_path)
    assert line().startswith("project: '.' has no project.toml; add one, which may be empty, or name the file of one")


def test_a_project_of_several_asks_for_the_name(tmp_path: Path) -> None:
    for name in ("visits", "sittings"):
        file = member(tmp_path, name)
        file.write_text(file.read_text().replace('name = "', f'name = "{name}_', 1))
    with pytest.raises(
        SessionlakeError,
        match=r"^read_sessions: 2 pipelines of '.*' are for it; pass the name of one, of \w+, \w+, after the directory$",
    ):
        sessionlake.read_sessions(tmp_path)


def test_a_wrong_file_of_another_pipeline_does_no_harm(project: Path) -> None:
    wrong = project / "wrong.toml"
    wrong.write_text("nonsense")
    try:
        assert len(sessionlake.read_sessions(project).fetchall()) == 26
        with pytest.raises(SessionlakeError, match=r"wrong\.toml"):
            sessionlake.read_windows(project)
    finally:
        wrong.unlink()
