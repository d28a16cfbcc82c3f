"""A run names a config of one directory: neither a path, nor dots, nor a link lead out of it, or into what lies below it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "dags"))
from sessionlake_airflow.configs import config_names, confined, default_config


@pytest.fixture
def configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Configs as Kubernetes mounts them: links to a directory that changes with each version; below it a place for events."""
    directory = tmp_path / "configs"
    (directory / "..2026_01").mkdir(parents=True)
    (directory / "events").mkdir()
    for file in (
        "configs/..2026_01/clicks.toml",
        "configs/events/evil.toml",
        "configs/views.toml",
        "outside.toml",
        "configs/a.txt",
    ):
        (tmp_path / file).touch()
    (directory / "clicks.toml").symlink_to("..2026_01/clicks.toml")
    (directory / "link.toml").symlink_to("../outside.toml")
    (directory / "events" / "up.toml").symlink_to("../views.toml")
    monkeypatch.setenv("SESSIONLAKE_CONFIGS", str(directory))
    monkeypatch.setenv("SESSIONLAKE_CONFIG", str(directory / "views.toml"))
    return directory


@pytest.mark.parametrize(
    "named",
    ["clicks.toml", "{d}/clicks.toml", "views.toml", "./views.toml", "events/../views.toml", "not_here_yet.toml"],
)
def test_a_config_of_the_directory(configs: Path, named: str) -> None:
    assert confined(named.format(d=configs)) == str(configs / Path(named).name)


@pytest.mark.parametrize(
    "named",
    [
        "../outside.toml", "{d}/../outside.toml", "/etc/passwd", "link.toml", "events/evil.toml", "events/up.toml", "a.txt",
        "..2026_01/clicks.toml", "", ".", "{d}", "s3://bucket/clicks.toml", "--help",
    ],
)  # fmt: skip
def test_another_one_is_refused_in_one_line(configs: Path, named: str) -> None:
    with pytest.raises(
        ValueError, match=r"is no \.toml file in .*; name one of those \(clicks\.toml, .*views\.toml\)"
    ) as caught:
        confined(named.format(d=configs))
    assert len(str(caught.value).splitlines()) == 1


def test_the_form_shows_names(configs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_config() == "views.toml"
    assert config_names() == ["clicks.toml", "link.toml", "views.toml"]
    monkeypatch.delenv("SESSIONLAKE_CONFIGS")
    assert confined("clicks.toml") == str(configs / "clicks.toml")
    monkeypatch.setenv("SESSIONLAKE_CONFIGS", "/nowhere")
    assert (config_names(), default_config()) == ([], str(configs / "views.toml"))
