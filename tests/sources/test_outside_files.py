"""A Delta table whose log names files outside of it: whoever writes the table would have any file read."""

import json
from pathlib import Path
from urllib.parse import unquote, urljoin

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from sessionlake.config.load import Config, parse_config
from sessionlake.errors import ConfigError, SourceError
from sessionlake.operators.sessions.changelog import SESSIONS
from sessionlake.stream.run import run
from sessionlake.warehouse.batches import find_last_batch
from sessionlake.warehouse.lake import Lake, opened
from sessionlake.warehouse.outside_files import outside_of_snapshot, outside_of_version
from sessionlake.warehouse.own_paths import is_outside, outside_of_opened
from sessionlake.warehouse.tables import Table, Tables
from tests.support import make_config

VECTOR = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "sizeInBytes": 1, "cardinality": 1}
OUTSIDE = [
    {"add": {"path": "file:///secret/x.parquet"}},
    {"add": {"path": "s3://other/x.parquet"}},
    {"add": {"path": "http://127.0.0.1/x.parquet"}},
    {"add": {"path": "/secret/x.parquet"}},
    {"add": {"path": "%2Fsecret/x.parquet"}},
    {"add": {"path": "file%3A///secret/x.parquet"}},
    {"add": {"path": "../other/x.parquet"}},
    {"add": {"path": "day=1/%2e%2E/..%2fother/x.parquet"}},
    {"cdc": {"path": "file:///secret/x.parquet"}},
    {"remove": {"path": "file:///secret/x.parquet"}},
    {"add": {"path": "a.parquet", "deletionVector": {**VECTOR, "storageType": "p", "pathOrInlineDv": "file:///x.bin"}}},
    {"add": {"path": "a.parquet", "deletionVector": {**VECTOR, "pathOrInlineDv": "../../" + "a" * 20}}},
]
OWN = [
    {"add": {"path": "a.parquet", "deletionVector": VECTOR}},
    {"add": {"path": "a.parquet", "deletionVector": {**VECTOR, "storageType": "i", "pathOrInlineDv": "../x"}}},
    {"add": {"path": "at=2026-01-01%2000%3A00%3A00/..a..parquet"}},
    {"cdc": {"path": "_change_data/cdc-0.parquet"}},
    {"commitInfo": {"path": "file:///x"}},
]


def log_of(root: Path, entry: object, version: int = 0) -> None:
    log = root / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{version:020}.json").write_text(f"{json.dumps(entry)}\n")


@pytest.mark.parametrize("entry", OUTSIDE)
def test_a_commit_that_names_a_file_outside_of_the_table(tmp_path: Path, entry: dict[str, dict[str, object]]) -> None:
    log_of(tmp_path / "t", entry)
    (action,) = entry.values()
    vector = action.get("deletionVector")
    named = vector["pathOrInlineDv"] if isinstance(vector, dict) else action["path"]
    assert outside_of_version(Lake(str(tmp_path), SESSIONS)["t"], 0) == named


@pytest.mark.parametrize(
    "text",
    [
        r'{"\u0061dd": {"path": "/secret/x"}}',
        '{"commitInfo": {}}\r{"add": {"path": "/secret/x"}}\r\n\n',
        ' { "add" :{"path": "\\u002fsecret/x"}}',
    ],
)
def test_a_commit_is_read_as_delta_reads_it(tmp_path: Path, text: str) -> None:
    log_of(tmp_path / "t", {})
    (tmp_path / "t" / "_delta_log" / f"{0:020}.json").write_bytes(text.encode())
    assert outside_of_version(Lake(str(tmp_path), SESSIONS)["t"], 0) == "/secret/x"


@pytest.mark.parametrize("entry", OWN)
def test_a_commit_of_own_files(tmp_path: Path, entry: dict[str, object]) -> None:
    log_of(tmp_path / "t", entry)
    assert outside_of_version(Lake(str(tmp_path), SESSIONS)["t"], 0) is None
    assert outside_of_version(Lake(str(tmp_path), SESSIONS)["t"], 1) is None


def test_a_link_that_leads_out_of_a_local_table_names_a_file_outside(tmp_path: Path) -> None:
    table = tmp_path / "link to the table"
    table.symlink_to(tmp_path / "t")
    log_of(tmp_path / "t", {"add": {"path": "in/x%201.parquet"}})
    log_of(tmp_path / "t", {"add": {"path": "out/x.parquet"}}, 1)
    (tmp_path / "t" / "day=1").mkdir()
    (tmp_path / "t" / "in").symlink_to("day=1")
    (tmp_path / "t" / "out").symlink_to(tmp_path / "tt")
    log = Lake(str(tmp_path), SESSIONS)[table.name]
    assert [outside_of_version(log, version) for version in (0, 1)] == [None, "out/x.parquet"]


@given(st.lists(st.sampled_from(["..", "a", "%2e%2e", "%2E.", "a..", ".", "b=1", "%2F", ":"]), min_size=1, max_size=5))
def test_a_path_that_stays_is_below_the_table(parts: list[str]) -> None:
    path = "/".join(parts)
    if not is_outside(path):
        joined = urljoin("file:///lake/table/", unquote(path).replace(":", "%3A"))
        assert joined.startswith("file:///lake/table/")


def table_of(spark: SparkSession, root: Path, name: str) -> str:
    """Make a table with a change data feed of one row, and beside it a file that belongs to another one; return that one's URI."""
    for table, key in ((name, "own"), ("other", "secret")):
        rows = spark.sql(f"select '{key}' as key, 1L as time_us, 1.0D as v").coalesce(1)
        rows.write.format("delta").option("delta.enableChangeDataFeed", "true").save(str(root / table))
    (file,) = (root / "other").glob("*.parquet")
    return file.as_uri()


def add(root: Path, uri: str, version: int) -> None:
    (first,) = (
        json.loads(line)
        for line in (root / "_delta_log" / f"{0:020}.json").read_text().splitlines()
        if line.startswith('{"add"')
    )
    log_of(root, {"add": {**first["add"], "path": uri, "dataChange": True}}, version)


def config_of(root: Path, kind: str, name: str, **source: object) -> Config:
    operator = {"session": {"gap": "10 us"}} if kind == "delta" else {"group": {}}
    raw = {
        "pipeline": {"name": name, "warehouse": f"warehouse_{name}", "shards": 1},
        "source": {"kind": kind, "path": str(root / "table"), **source},
        "event": {"key": "key", "time": "time_us", "time_unit": "us"},
        "aggregates": {"total": "sum(v)"},
    }
    return parse_config({**raw, **operator}, root)


@pytest.mark.parametrize("kind", ["delta", pytest.param("change_feed", marks=pytest.mark.slow)])
def test_a_stream_reads_no_file_outside_of_its_table(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    uri = table_of(spark, tmp_path, "table")
    config = config_of(tmp_path, kind, "p")
    run(spark, config, once=True)
    add(tmp_path / "table", uri, 1)
    for name in ("p", "p", "anew"):
        with pytest.raises(
            SourceError, match=f"names a file outside of the table, '{uri}'; write the rows into the table"
        ):
            run(spark, config_of(tmp_path, kind, name), once=True)
    last = find_last_batch(Lake.of(config))
    assert last is not None
    assert last.batch_id == 0
    table = Table(Tables.of(spark, config), str(tmp_path / "table"))
    assert outside_of_snapshot(table, 0) is None
    assert outside_of_snapshot(table, 1) == uri
    run(spark, config_of(tmp_path, kind, "p", shallow_clones=True), once=True)


def test_a_snapshot_is_told_by_its_log_and_by_links_whatever_its_checksum_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    uri = table_of(spark, tmp_path, "table")
    root = tmp_path / "table"
    for _ in range(2):
        spark.read.format("delta").load(str(root)).write.format("delta").mode("append").save(str(root))
    assert "allFiles" in (root / "_delta_log" / f"{2:020}.crc").read_text()
    (root / "link.parquet").symlink_to(uri.removeprefix("file://"))
    for path in (uri, "link.parquet"):
        add(root, path, 1)
        (root / "_delta_log" / f".{1:020}.json.crc").unlink(missing_ok=True)
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        table = Table(Tables(spark, str(tmp_path), SESSIONS), str(root))
        assert outside_of_snapshot(table, 2) == path
        assert outside_of_opened(opened(str(root)), str(root)) == path


def test_only_delta_tables_may_have_shallow_clones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"source\.shallow_clones: goes with kinds 'delta' and 'change_feed' only"):
        make_config(tmp_path, source={"kind": "files", "path": "x", "format": "json", "shallow_clones": True})
