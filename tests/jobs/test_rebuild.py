"""Rebuild under another gap, and the switch of the config."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake import read_sessions
from sessionlake.cli import main
from sessionlake.config import load_config
from sessionlake.errors import ConfigError, JobError
from sessionlake.jobs.rebuild import apply_switch, plan_switch
from sessionlake.jobs.sessionizer.run import run
from tests.jobs.support import write_rows
from tests.oracle.sql import SqlOracle

CONFIG = """\
[pipeline]  # here
name = "test"
warehouse = "old"  # where tables lie
store = "store"
shards = 2

[source]
kind = "files"
path = "events"
format = "json"

[event]
key = "key"
time = "time_us"
time_unit = "us"

[session]
gap = "10 us"
grace = "20 us"

[aggregates]
warehouse = "sum(v)"
"""


def write_config(root: Path, text: str = CONFIG) -> Path:
    path = root / "test.toml"
    path.write_text(text)
    return path


def test_the_switch_changes_one_line_of_the_pipelines_section(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    path.chmod(0o640)
    switch = plan_switch(path, 'new "one"')
    assert (switch.line, switch.before) == (3, 'warehouse = "old"  # where tables lie')
    assert path.read_text() == CONFIG
    apply_switch(path, switch)
    assert path.read_text() == CONFIG.replace('"old"', '"new \\"one\\""')
    assert path.stat().st_mode & 0o777 == 0o640
    with pytest.raises(JobError, match="has changed meanwhile; edit line 3"):
        apply_switch(path, switch)
    assert [p.name for p in tmp_path.iterdir()] == ["test.toml"]


@pytest.mark.parametrize(
    "text", ["[pipeline]\nname = 'x'\n", 'pipeline = { warehouse = "x" }\n', '[pipeline]\nwarehouse = """x"""\n']
)
def test_a_config_without_a_line_to_switch_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="has no line `warehouse"):
        plan_switch(write_config(tmp_path, text), "new")


def test_a_rebuild_under_another_gap_is_switched_to(spark: SparkSession, tmp_path: Path) -> None:
    path = write_config(tmp_path)
    (tmp_path / "events").mkdir()
    rows = [{"key": k, "time_us": t, "v": 1.0} for k in "ab" for t in (0, 5, 20, 40)]
    write_rows(tmp_path, "0.json", rows)
    run(spark, load_config(path), once=True)
    path.write_text(CONFIG.replace('"10 us"', '"15 us"'))

    cli = CliRunner()
    done = cli.invoke(main, ["rebuild", str(path), "--warehouse", "new", "--switch"])
    assert done.exit_code == 0, done.output
    assert "line 3" in done.output
    config = load_config(path)
    assert config.pipeline.warehouse == str(tmp_path / "new")
    times = [F.unix_micros(f"session_{edge}") for edge in ("start", "end")]
    found = read_sessions(spark, config).select("session_key", *times).collect()
    expected = SqlOracle().sessionize_events([{**row, "id": None} for row in rows], 15)
    assert sorted(tuple(r) for r in found) == [(r["key"], r["start_us"], r["end_us"]) for r in expected]
    assert not list((tmp_path / "store").glob(".rebuild-*"))
    write_rows(tmp_path, "1.json", [{"key": "a", "time_us": 50, "v": 1.0}])
    assert run(spark, config, once=True).counts["accepted"] == 1

    for taken in ("old", "new"):
        shutil.copy(path, tmp_path / "other.toml")
        again = cli.invoke(main, ["rebuild", str(tmp_path / "other.toml"), "--warehouse", taken])
        assert again.exit_code == 2
        assert again.output.count("\n") == 1
