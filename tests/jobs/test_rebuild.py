"""Rebuild under another gap, and the switch of the config."""

import json
import shutil
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionlake import read_sessions
from sessionlake.cli import main
from sessionlake.config.load import load_config
from sessionlake.config.project import load_project
from sessionlake.errors import ConfigError, JobError, PipelineStateError
from sessionlake.jobs.rebuild import apply_switch, plan_switch
from sessionlake.jobs.rebuild.job import _own_store, _remove_store
from sessionlake.stream.lock import locked_store
from sessionlake.stream.run import run
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
    with pytest.raises(JobError, match="has changed meanwhile; write it into line 3 yourself"):
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


NO_LINE = [
    "",
    "pipeline = 'warehouse'\n",
    "[pipeline]\nname = 'x'\n",
    "[pipeline.warehouse]\nx = 1\n",
    "[[pipeline]]\nwarehouse = 'x'\n",
    '[pipeline]\nwarehouse = """\nx"""\n',
]
"""Configs without a line that has the warehouse."""


@pytest.mark.parametrize("text", NO_LINE)
def test_a_config_without_a_line_to_switch_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="has no line `warehouse"):
        plan_switch(write_config(tmp_path, text), "new")


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ("[pipeline]  # c\n# d\nshards = 2\n", '[pipeline]  # c\nwarehouse = "new"\n# d\nshards = 2\n', 2),
        ("# a\n[source]\nx = 1", '# a\n[source]\nx = 1\n\n[pipeline]\nwarehouse = "new"\n', 5),
        ("# a\r\n[source]\r\nx = 1\r\n", '# a\r\n[source]\r\nx = 1\r\n\r\n[pipeline]\r\nwarehouse = "new"\r\n', 5),
        ("x.y = [\n 1,\n]\n['pipeline']", "x.y = [\n 1,\n]\n['pipeline']\nwarehouse = \"new\"\n", 5),
        ("a.b = 1\npipeline.shards = 2 # c\n[x]\n", 'a.b = 1\npipeline.warehouse = "new"\npipeline.shards = 2 # c\n[x]\n', 2),
        ("[a]\npipeline.x = 1 # \u2028\n[[b]]\n[pipeline]\n", '[a]\npipeline.x = 1 # \u2028\n[[b]]\n[pipeline]\nwarehouse = "new"\n', 5),
        ("", '[pipeline]\nwarehouse = "new"\n', 1),
    ],
)  # fmt: skip
def test_a_pipeline_of_a_project_gets_the_line_and_the_rest_of_its_file_stays(
    tmp_path: Path, before: str, after: str, line: int
) -> None:
    (tmp_path / "project.toml").touch()
    path = tmp_path / "test.toml"
    for mark in (b"", b"\xef\xbb\xbf"):  # as some editors on Windows write it
        path.write_bytes(mark + before.encode())
        switch = plan_switch(path, "new")
        apply_switch(path, switch)
        assert path.read_bytes() == mark + after.encode()
        assert (switch.line, switch.before) == (line, None)
        added = switch.after.split("\n")
        assert [text.rstrip("\r") for text in after.split("\n")[line - 1 :]][: len(added)] == added


def test_a_pipeline_of_a_project_whose_section_is_one_line_gets_it_there(tmp_path: Path) -> None:
    (tmp_path / "project.toml").touch()
    switch = plan_switch(write_config(tmp_path, "a = 1\npipeline = { shards = 2 } # c\n"), "new")
    assert (switch.line, switch.before) == (2, "pipeline = { shards = 2 } # c")
    assert tomllib.loads(switch.text) == {"a": 1, "pipeline": {"shards": 2, "warehouse": "new"}}
    assert switch.after.endswith(" # c")


@pytest.mark.parametrize("text", [NO_LINE[1], *NO_LINE[3:]])
def test_a_warehouse_of_a_project_that_is_no_line_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "project.toml").touch()
    with pytest.raises(ConfigError, match="has no line `warehouse"):
        plan_switch(write_config(tmp_path, text), "new")


def test_an_edit_meanwhile_is_not_undone(tmp_path: Path) -> None:
    (tmp_path / "project.toml").touch()
    path = write_config(tmp_path, CONFIG.replace('warehouse = "old"  # where tables lie\n', ""))
    switch = plan_switch(path, "new")
    path.write_text(path.read_text() + "more = 1\n")
    with pytest.raises(JobError, match=r'meanwhile; add warehouse = "new" to its section \[pipeline\] yourself'):
        apply_switch(path, switch)
    path = write_config(tmp_path)
    switch = plan_switch(path, "new")
    path.write_text(CONFIG.replace("10 us", "11 us"))
    with pytest.raises(JobError, match="meanwhile; write it into line 3 yourself"):
        apply_switch(path, switch)
    assert "11 us" in path.read_text()


@pytest.mark.parametrize(
    ("warehouse", "said"),
    [
        ("lake/test", "--warehouse: 'lake/test' is the pipeline's warehouse; write a path that is not in use"),
        ("lake/test/new", "--warehouse: 'lake/test/new' is inside the pipeline's warehouse 'lake/test' or around it; write a path outside of it"),
        ("lake", "--warehouse: 'lake' is inside the pipeline's warehouse 'lake/test' or around it; write a path outside of it"),
        ("lake/other", "--warehouse: 'lake/other' can't be one of the project: test.toml:2: pipeline.warehouse: 'lake/other' is the warehouse of other.toml, too; use one for each pipeline"),
        ("lake/other/new", "--warehouse: 'lake/other/new' can't be one of the project: test.toml:2: pipeline.warehouse: 'lake/other/new' is in the warehouse of other.toml, 'lake/other'; use a folder outside of it"),
    ],
)  # fmt: skip
def test_a_new_warehouse_that_is_no_place_of_its_own_is_refused_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warehouse: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "project.toml").write_text('[pipeline]\nwarehouse = "lake"\n')
    text = CONFIG.replace('warehouse = "old"  # where tables lie\n', "").replace('name = "test"\n', "")
    for name in ("test", "other"):
        (tmp_path / f"{name}.toml").write_text(text)
    done = CliRunner().invoke(main, ["rebuild", "test.toml", "--warehouse", warehouse, "--switch"])
    assert (done.exit_code, done.stderr.replace(f"{tmp_path}/", "")) == (2, f"sessionlake: {said}\n")
    assert (tmp_path / "test.toml").read_text() == text


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
    counts = json.loads(done.stdout.splitlines()[-1])
    assert (counts["job"], counts["batches"], counts["input"], counts["accepted"]) == ("rebuild", 1, 8, 8)
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


@pytest.mark.slow
def test_a_pipeline_of_a_project_is_rebuilt_and_its_readers_follow_or_are_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    up = CONFIG[CONFIG.index("[source]") :].replace("warehouse = ", "total = ")
    shared = "[event]\nkey = 'key'\ntime = 'event_time'\n[group]\n"
    files = {
        "project": '[pipeline]\nwarehouse = "lake"\nshards = 2\n',
        "up": up,
        "behind": "[source]\nkind = 'results'\nof = 'up'\nrows = 'changes'\n[event]\nkey = 'session_key'\n[group]\n",
        "late": f"[source]\nkind = 'delta'\npath = 'lake/up/late_events'\n{shared}",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.toml").write_text(text)
    (tmp_path / "events").mkdir()
    rows = [{"key": k, "time_us": t, "v": 1.0} for k in "ab" for t in (0, 20, 40, 100)]
    write_rows(tmp_path, "0.json", rows)
    late = {"key": "a", "time_us": 40, "v": 1.0}
    write_rows(tmp_path, "1.json", [late])
    for name in ("up", "behind", "late"):
        run(spark, load_config(f"{name}.toml"), once=True)
    changed = up.replace('"10 us"', '"20 us"')
    (tmp_path / "up.toml").write_text(changed)

    cli = CliRunner()
    done = cli.invoke(main, ["rebuild", "up.toml", "--warehouse", "new/up", "--switch"])
    assert done.exit_code == 0, done.output
    said, _, counts = done.output.removesuffix("\n").rpartition("\n")
    assert json.loads(counts)["accepted"] == 9
    assert said.endswith(
        """\
added to up.toml as line 18:
  + [pipeline]
  + warehouse = "new/up"
stop the stream on the old warehouse first, then start `sessionlake run` again
after that: behind.toml:3: source.of: reads results that are computed anew; rebuild this pipeline, too
after that: late.toml:3: source.path: names a table of the old warehouse; write 'new/up/late_events', and rebuild this pipeline, too"""
    )
    assert (tmp_path / "up.toml").read_text() == changed + '\n[pipeline]\nwarehouse = "new/up"\n'
    config = load_config("up.toml")
    assert config.checkpoint == f"{tmp_path}/new/up/_checkpoints/up"
    write_rows(tmp_path, "2.json", [{"key": "b", "time_us": 115, "v": 1.0}])
    assert run(spark, config, once=True).counts["accepted"] == 1
    expected = SqlOracle().sessionize_events(
        [{**row, "id": None} for row in [*rows, late, {"key": "b", "time_us": 115}]], 20
    )
    query = "select session_key, event_count from up.sessions_live order by 1, session_start"
    told = json.loads(cli.invoke(main, ["sql", ".", query, "--format", "json"]).stdout)
    assert [tuple(row.values()) for row in told] == [(r["key"], r["event_count"]) for r in expected]

    with pytest.raises(PipelineStateError, match="'up' is no longer the pipeline whose batch 0 was read"):
        run(spark, load_config("behind.toml"), once=True)
    (tmp_path / "late.toml").write_text(files["late"].replace("lake/up/", "new/up/"))
    for name in ("behind", "late"):
        done = cli.invoke(main, ["rebuild", f"{name}.toml", "--warehouse", f"new/{name}", "--switch"])
        assert done.exit_code == 0, done.output
    project = load_project(".")
    assert [(edge.upstream, edge.downstream) for edge in project.graph.edges] == [("up", "behind"), ("up", "late")]
    told = json.loads(
        cli.invoke(main, ["sql", ".", "select sum(event_count) n from behind.groups_live", "--format", "json"]).stdout
    )
    assert told == [{"n": len(expected)}]
