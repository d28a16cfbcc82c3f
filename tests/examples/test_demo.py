"""The demo's pipeline, as it is made before anything runs."""

from pathlib import Path

from rich.console import Console

from sessionlake.config.load import load_config
from sessionlake.examples.demo import CONFIG_NAME, prepare
from sessionlake.examples.windows import CONFIGS


def test_the_demo_has_its_events_and_a_config_that_holds(tmp_path: Path) -> None:
    prepare(tmp_path / "demo", Console(quiet=True))
    config = load_config(tmp_path / "demo" / CONFIG_NAME)
    assert len(list(Path(config.source.path).glob("*.json.gz"))) == 24
    assert config.operator == "session"


def test_the_demos_windows_have_configs_that_hold(tmp_path: Path) -> None:
    prepare(tmp_path / "demo", Console(quiet=True))
    configs = [load_config(tmp_path / "demo" / name) for name in CONFIGS]
    assert [(config.operator, config.event.key) for config in configs] == [("window", "repo"), ("window", "author")]
