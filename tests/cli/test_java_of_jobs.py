"""Jobs on little data start a Java that compiles little."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sessionlake.cli import jobs, shared
from sessionlake.cli.jobs import run_job
from sessionlake.cli.shared import has_little_data
from sessionlake.config.load import Config, parse_config
from sessionlake.jobs.registry import BY_NAME
from sessionlake.warehouse import schemas
from sessionlake.warehouse.lake import Lake

FILES = {"kind": "files", "path": "events", "format": "json"}
TABLE = {"kind": "delta", "path": "events"}


def made(root: Path, source: dict[str, str], **sections: Any) -> Config:
    return parse_config(
        {
            "pipeline": {"name": "p", "warehouse": "warehouse"},
            "source": source,
            "event": {"key": "user", "time": "at"},
            "session": {"gap": "1 minute", "grace": "1 minute", "retention": "1 day"},
            **sections,
        },
        root,
    )


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return made(tmp_path, FILES)


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


@pytest.mark.parametrize(
    ("job", "source", "expire", "expected"),
    [
        ("compact", FILES, {}, True),
        ("compact", TABLE, {}, True),
        ("backfill", FILES, {}, True),  # Python opens the files
        ("backfill", TABLE, {}, False),
        ("expire", FILES, {}, True),
        ("expire", TABLE, {}, False),  # the pass of the stream after it
        ("expire", FILES, {"tables": {"blocked": "others"}}, False),
        ("forget", FILES, {}, False),  # Spark itself searches the source
    ],
)
def test_rows_that_the_tables_do_not_bound_keep_javas_own_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str, source: Any, expire: Any, *, expected: bool
) -> None:
    class StartedError(Exception):
        pass

    def started(_: Config, *, little_java: bool) -> None:
        raise StartedError(little_java)

    monkeypatch.setattr(jobs, "load_config", lambda _: made(tmp_path, source, expire=expire))
    monkeypatch.setattr("sessionlake.preflight.jobs.require_job", lambda *_: None)
    monkeypatch.setattr(jobs, "open_session", started)
    with pytest.raises(StartedError) as found:
        run_job(BY_NAME[job], "p.toml", lambda *_: pytest.fail("it was run"), dry_run=True)
    assert found.value.args == (expected,)
