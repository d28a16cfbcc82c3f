"""Jobs on little data start a Java that compiles little."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sessionlake.cli import shared
from sessionlake.cli.shared import has_little_data
from sessionlake.config.load import Config, parse_config
from sessionlake.warehouse import schemas
from sessionlake.warehouse.lake import Lake


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return parse_config(
        {
            "pipeline": {"name": "p", "warehouse": "warehouse"},
            "source": {"kind": "files", "path": "events", "format": "json"},
            "event": {"key": "user", "time": "at"},
            "session": {"gap": "1 minute", "grace": "1 minute", "retention": "1 day"},
        },
        tmp_path,
    )


def test_all_tables_together_decide(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_little_data(config)  # there are none yet
    sizes = 0
    for name in ("session_changelog", "sessions", schemas.LATE_EVENTS):
        write_deltalake(f"{config.pipeline.warehouse}/{name}", pa.table({"n": range(1000)}))
        sizes += Lake.of(config)[name].size()[1]
    for bound, expected in ((sizes, True), (sizes - 1, False)):
        monkeypatch.setattr(shared, "LITTLE_BYTES", bound)
        assert has_little_data(config) is expected


def test_tables_that_only_spark_can_read_count_as_large(config: Config) -> None:
    log = Path(config.pipeline.warehouse, "session_changelog", "_delta_log")
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text('{"protocol": {"minReaderVersion": 99, "minWriterVersion": 99}}')
    assert not has_little_data(config)
