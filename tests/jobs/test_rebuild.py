"""Rebuild under another gap, and the switch of the config."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake import read_sessions
from sessionlake.cli import main
from sessionlake.config.load import load_config
from sessionlake.errors import ConfigError, JobError
from sessionlake.jobs.rebuild import apply_switch, plan_switch
from sessionlake.jobs.rebuild.job import _own_store, _remove_store
from sessionlake.operators.run import run
from sessionlake.stream.lock import locked_store
from tests.oracle.sql import SqlOracle
from tests.support import write_rows

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


def test_the_switch_leaves_line_ends_and_refuses_what_is_no_text(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    path.write_bytes(CONFIG.replace("\n", "\r\n").encode())
    apply_switch(path, plan_switch(path, "new"))
    assert path.read_bytes().decode() == CONFIG.replace("\n", "\r\n").replace('"old"', '"new"')
    path.write_bytes(CONFIG.replace("here", "h\xe9re").encode("latin-1"))
    with pytest.raises(ConfigError, match="is no UTF-8"):
        plan_switch(path, "new")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("[ pipeline ]\n\twarehouse\t=  'x'\t# c", '[ pipeline ]\n\twarehouse\t=  "new"\t# c'),
        ('pipeline = { warehouse = "x" , name = 1 } # c', 'pipeline = { warehouse = "new" , name = 1 } # c'),
        ('pipeline.warehouse = """x"""', 'pipeline.warehouse = "new"'),
        ("[a]\nb = [ 1,\n  2 ] # c\n['pipeline']\n\"warehouse\"='x'", "[a]\nb = [ 1,\n  2 ] # c\n['pipeline']\n\"warehouse\"=\"new\""),
    ],
)  # fmt: skip
def test_the_switch_leaves_layout_and_comments_however_the_line_is_written(
    tmp_path: Path, before: str, after: str
) -> None:
    for end in ("", "\n", "\n[more]\nx = 0x1F  # y\n"):
        assert plan_switch(write_config(tmp_path, before + end), "new").text == after + end


def test_a_switch_to_where_it_is_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="'old' is the pipeline's warehouse; write a path that is not in use"):
        plan_switch(write_config(tmp_path), "old")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pipeline = 'warehouse'\n",
        "[pipeline]\nname = 'x'\n",
        "[pipeline.warehouse]\nx = 1\n",
        "[[pipeline]]\nwarehouse = 'x'\n",
        '[pipeline]\nwarehouse = """\nx"""\n',
    ],
)
def test_a_config_without_a_line_to_switch_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="has no line `warehouse"):
        plan_switch(write_config(tmp_path, text), "new")


@pytest.mark.parametrize("store", ["store", "${DISK}/store", "${ELSEWHERE}"])
def test_a_rebuild_locks_beside_a_stream_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.setenv("DISK", str(tmp_path / "disk"))
    config = load_config(write_config(tmp_path, CONFIG.replace('"store"', f'"{store}"')))
    building = _own_store(config)
    with locked_store(config):
        with locked_store(building):
            made = Path(building.driver_store_dir, "0")
            made.mkdir(parents=True)
        _remove_store(building)
        assert [p for p in tmp_path.rglob("*") if "rebuild-" in str(p)] == []
        assert made.exists() == (store == "${ELSEWHERE}"), "the stream's own stores may lie there"
        assert Path(config.lock_dir, "LOCK").exists()


@pytest.mark.slow
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
    assert [p.name for p in tmp_path.rglob(".rebuild-*")] == []
    write_rows(tmp_path, "1.json", [{"key": "a", "time_us": 50, "v": 1.0}])
    assert run(spark, config, once=True).counts["accepted"] == 1

    other = tmp_path / "other.toml"
    for taken in ("old", "new"):
        shutil.copy(path, other)
        again = cli.invoke(main, ["rebuild", str(other), "--warehouse", taken])
        assert again.exit_code == 2
        assert again.output.count("\n") == 1
    told = cli.invoke(main, ["rebuild", str(other), "--warehouse", "newer", "--from-topic"]).output
    assert "goes with source.kind 'kafka' only" in told
    topic = 'kind = "kafka"\ntopic = "clicks"\nbootstrap_servers = "localhost:1"'
    other.write_text(CONFIG.replace('kind = "files"\npath = "events"', topic))
    for arguments, code, told in (
        ([], 2, "or --from-topic to build"),
        (["--from-topic"], 7, "'localhost:1' does not answer"),
    ):
        refused = cli.invoke(main, ["rebuild", str(other), "--warehouse", "newer", *arguments])
        assert refused.exit_code == code
        assert told in refused.output
