"""pipeline.store: a local path that may hold variables."""

from pathlib import Path

import pytest

from sessionlake.errors import ConfigError
from tests.support import make_config


def test_variables_stay_for_the_executors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISK", "/disk1")
    config = make_config(tmp_path, pipeline={"store": "${DISK}/stores"})
    assert (config.store_dir, config.driver_store_dir) == ("${DISK}/stores/test", "/disk1/stores/test")


def test_relative_path_is_beside_the_config(tmp_path: Path) -> None:
    config = make_config(tmp_path, pipeline={"store": "cache/$DISK"})
    assert config.store_dir == f"{tmp_path}/cache/$DISK/test"


def test_driver_without_the_variable_has_a_store_beside_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISK", raising=False)
    config = make_config(tmp_path, pipeline={"store": "$DISK"})
    assert config.driver_store_dir == f"{tmp_path}/store/test"
    assert config.lock_dir == f"{tmp_path}/store/DISK/test"


def test_a_directory_may_be_named_with_a_dollar(tmp_path: Path) -> None:
    (home := tmp_path / "$(home)").mkdir()
    config = make_config(home, pipeline={"store": "cache"})
    assert config.driver_store_dir == f"{home}/cache/test"


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("s3://bucket/store", "must be a local directory; write a path"),
        ("/data/$(hostname)", "has a '$' that names no variable"),
        ("${}/store", "has a '$' that names no variable"),
        ("/data/$$/store", "has a '$' that names no variable"),
    ],
)
def test_other_paths_are_refused(tmp_path: Path, store: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"pipeline\.store:") as raised:
        make_config(tmp_path, pipeline={"store": store})
    assert message in str(raised.value)
