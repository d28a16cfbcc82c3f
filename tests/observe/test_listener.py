"""OpenLineage's own listener: how it is set up, and what it can tell of our work and what not."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sessionlake.errors import ConfigError
from sessionlake.jars import load_list
from sessionlake.jars.cache import cache_directory
from sessionlake.observe.lineage import LISTENER, listener_conf
from tests.support import make_config, write_config, write_rows

JARS = cache_directory() / load_list("openlineage").folder
FILE = {"transport": "file", "path": "lineage.jsonl", "listener": True}
BOTH = """\
import sys
from sessionlake.cli import main
for arguments in (["run", sys.argv[1], "--once"], ["compact", sys.argv[1]]):
    main(arguments, standalone_mode=False)
"""


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "delta.jar").touch()
    monkeypatch.setenv("SESSIONLAKE_JARS", str(folder))
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    return folder


def test_without_a_listener_nothing_is_set(tmp_path: Path) -> None:
    assert listener_conf(make_config(tmp_path, lineage={**FILE, "listener": False})) == {}


def test_settings(tmp_path: Path, jars: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (jars / "openlineage").mkdir()
    jar = jars / "openlineage" / "io.openlineage_openlineage-spark_2.13-1.53.0.jar"
    jar.touch()
    common = {
        "spark.jars": f"{jars / 'delta.jar'},{jar}",
        "spark.extraListeners": LISTENER,
        "spark.openlineage.namespace": "sessionlake",
    }
    assert listener_conf(make_config(tmp_path, lineage=FILE)) == {
        **common,
        "spark.openlineage.transport.type": "file",
        "spark.openlineage.transport.location": str(tmp_path / "lineage.jsonl"),
    }
    monkeypatch.setenv("KEY", "secret")
    http = {"transport": "http", "url": "http://marquez:5000", "api_key_variable": "KEY", "listener": True}
    assert listener_conf(make_config(tmp_path, lineage=http)) == {
        **common,
        "spark.openlineage.transport.type": "http",
        "spark.openlineage.transport.url": "http://marquez:5000",
        "spark.openlineage.transport.endpoint": "api/v1/lineage",
        "spark.openlineage.transport.auth.type": "api_key",
        "spark.openlineage.transport.auth.apiKey": "secret",
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|apikey",
    }
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert listener_conf(make_config(tmp_path, lineage=FILE)) == {}


def test_no_jar(tmp_path: Path, jars: Path) -> None:
    with pytest.raises(ConfigError, match=rf"^SESSIONLAKE_JARS: '{jars}/openlineage' holds no jars; .* --to {jars}`"):
        listener_conf(make_config(tmp_path, lineage=FILE))


@pytest.mark.slow
@pytest.mark.skipif(not any(JARS.glob("*.jar")), reason="no listener: `sessionlake jars openlineage` fetches it")
def test_sees_what_spark_writes_and_no_batch(tmp_path: Path) -> None:
    config = write_config(tmp_path, lineage=FILE)
    write_rows(tmp_path, "1.json", [{"key": "a", "time_us": 1000, "v": 1}, {"key": "b", "time_us": 1005, "v": 1}])
    done = subprocess.run([sys.executable, "-c", BOTH, str(config)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "ContextFactory" not in done.stderr
    sent = [json.loads(line) for line in (tmp_path / "lineage.jsonl").read_text().splitlines()]
    ours = [e for e in sent if e["job"]["name"].startswith("test.")]
    assert {e["job"]["name"] for e in ours} == {"test.run", "test.compact"}
    sparks = [flow(e) for e in sent if e not in ours and "create_table" not in e["job"]["name"]]
    assert any("job_runs" in written for _, written in sparks)
    # Why the lineage of streams and folds is ours: were this to change, the docs and the reason are out of date.
    assert not any("sessions" in written for _, written in sparks)
    assert [written for read, written in sparks if "1.json" in read or "events" in read]
    assert not any(written for read, written in sparks if "1.json" in read or "events" in read)


def flow(event: dict[str, Any]) -> tuple[set[str], set[str]]:
    read, written = ({d["name"].rpartition("/")[2] for d in event.get(side, [])} for side in ("inputs", "outputs"))
    return read, written
