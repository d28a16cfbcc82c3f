"""The change data feed of a Delta table as a source: a table and groups that equal it after each step."""

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionlake.config.load import Config, load_config
from sessionlake.errors import ConfigError, SourceError
from sessionlake.preflight.sources import sources_without_spark
from sessionlake.serve.queries import query_tables
from sessionlake.stream.run import run
from tests.engine.crash_support import crash_at

CONFIGS = {
    "people": """
[event]
key = "id"
time = "_commit_timestamp"
where = "country <> 'none'"

[table]
order = "offset"
columns = ["country", "spent"]
""",
    "countries": """
[event]
key = "country"
where = "country <> 'none'"

[group]

[aggregates]
number = "count()"
spent = "sum(spent)"
most = "max(spent)"
""",
}
LIVE = {
    "people": ("table_key, country, spent", "table_live", "cast(id as string), country, spent"),
    "countries": ("group_key, number, spent, most", "groups_live", "country, count(*), sum(spent), max(spent)"),
}
"""By pipeline the columns and the view of its rows, and the same of the table that it follows."""
COUNTRIES = ("de", "fr", "es", "none")
ENABLED = "delta.enableChangeDataFeed"
MERGED = "when matched and s.id % 3 = 0 then delete when matched then update set * when not matched then insert *"
Sql = Callable[[str], Any]


@pytest.fixture
def root(spark: SparkSession, tmp_path: Path) -> Path:
    for name, text in CONFIGS.items():
        head = f'[pipeline]\nname = "{name}"\nwarehouse = "{name}"\nshards = 2\n'
        (tmp_path / f"{name}.toml").write_text(f'{head}[source]\nkind = "change_feed"\npath = "customers"\n{text}')
    spark.sql(
        f"create table delta.`{tmp_path}/customers` (id bigint, country string, spent double) "
        f"using delta tblproperties ({ENABLED} = true)"
    )
    return tmp_path


def config(root: Path, name: str) -> Config:
    return load_config(root / f"{name}.toml")


def step(spark: SparkSession, root: Path, name: str) -> None:
    run(spark, config(root, name), once=True)


def assert_equal(spark: SparkSession, root: Path, name: str) -> None:
    columns, view, wanted = LIVE[name]
    rows = query_tables(config(root, name), f"select {columns} from {view}", 10_000)[1]
    group = " group by country" if name == "countries" else ""
    there = spark.sql(f"select {wanted} from delta.`{root}/customers` where country <> 'none'{group}").collect()
    assert sorted(map(tuple, rows)) == sorted(map(tuple, there))


def change(sql: Sql, table: str, rng: random.Random) -> None:
    """Change the table in one of the ways that Delta knows."""
    country = rng.choice(COUNTRIES)
    some = f"select id, '{country}' as country, id % 7 / 8 as spent from range({rng.randrange(20)}, {rng.randrange(20, 60)})"
    statements = (
        f"insert into {table} select id + 1000 * {rng.randrange(1, 10_000)}, country, spent from ({some})",
        f"update {table} set country = '{country}', spent = spent + 0.25 where id % 5 = {rng.randrange(5)}",
        f"update {table} set id = id + 100000 where id % 9 = {rng.randrange(9)}",
        f"delete from {table} where id % 6 = {rng.randrange(6)}",
        f"insert overwrite {table} {some}",
        f"merge into {table} t using ({some}) s on t.id = s.id {MERGED}",
        f"optimize {table}",
    )
    sql(rng.choice(statements))


def test_a_table_and_groups_follow_each_change(spark: SparkSession, root: Path) -> None:
    table = f"delta.`{root}/customers`"
    spark.sql(f"insert into {table} values (1, 'de', 1.5), (2, 'fr', 2.5), (3, 'none', 4.0)")
    for name in CONFIGS:
        step(spark, root, name)
        assert_equal(spark, root, name)
    # Three versions in one batch: in the second one the row 3 is seen first, and in the third one no more.
    spark.sql(f"update {table} set spent = 9.0, country = 'es' where id = 1")
    spark.sql(f"update {table} set country = 'fr' where id > 1")
    spark.sql(f"delete from {table} where id = 3")
    for name in CONFIGS:
        step(spark, root, name)
        assert_equal(spark, root, name)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_any_history_with_crashes(spark: SparkSession, root: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng, table = random.Random(seed), f"delta.`{root}/customers`"
    spark.sql(f"insert into {table} select id, 'de', id / 4 from range(30)")
    for point in ("computed", "before_changelog", "after_changelog", None, None):
        for _ in range(rng.randrange(4)):
            change(spark.sql, table, rng)
        for name in CONFIGS:
            if point is not None:
                with crash_at(monkeypatch, point), suppress(Exception):
                    step(spark, root, name)
                if rng.random() < 0.5:
                    change(spark.sql, table, rng)
            if rng.random() < 0.3:
                shutil.rmtree(config(root, name).store_dir, ignore_errors=True)
            step(spark, root, name)
            assert_equal(spark, root, name)


def test_a_table_that_records_no_changes_is_told_before_a_jvm_starts(spark: SparkSession, root: Path) -> None:
    spark.sql(f"alter table delta.`{root}/customers` unset tblproperties ({ENABLED})")
    told = r"^source\.path: '.*customers' records no changes; switch its change data feed on: alter table delta\.`.*customers` set tblproperties \(delta\.enableChangeDataFeed = true\)$"
    (source,) = sources_without_spark(config(root, "people")).values()
    with pytest.raises(SourceError, match=told):
        source.check()
    with pytest.raises(SourceError, match=told):
        step(spark, root, "people")


def test_versions_whose_changes_were_not_recorded_are_told(spark: SparkSession, root: Path) -> None:
    table = f"delta.`{root}/customers`"
    spark.sql(f"insert into {table} values (1, 'de', 1.5)")
    step(spark, root, "people")
    spark.sql(f"alter table {table} set tblproperties ({ENABLED} = false)")
    spark.sql(f"update {table} set spent = 2.0")
    spark.sql(f"alter table {table} set tblproperties ({ENABLED} = true)")
    with pytest.raises(
        SourceError, match=r"has versions whose changes were not recorded; leave .* on, and read the whole table again"
    ):
        step(spark, root, "people")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            'order = "offset"\n',
            "",
            "table.order: rows of 'customers' hold in the order of its changes; write order = 'offset'",
        ),
        ("<> 'none'", "<> 'none' and _commit_version < 2", "event.where: _commit_version is of a change"),
        (
            "[event]",
            '[[lookup]]\nname = "l"\npath = "l"\non = "country = id"\ncolumns = ["c"]\n[event]',
            "lookup: a row would be taken back with other columns than it was added with",
        ),
        ("[event]", '[event]\nunique_for = "1 day"', "event.unique_for: rows of 'customers' come once; remove it"),
        (
            "shards = 2",
            "archive = true",
            "pipeline.archive: would keep rows that are taken back, and 'customers' has them",
        ),
        (
            "[event]",
            '[event]\nmax_future_skew = "1 day"',
            "event.max_future_skew: no clock judges changes of 'customers'; remove it",
        ),
        (
            '[table]\norder = "offset"\ncolumns = ["country", "spent"]',
            '[session]\ngap = "1 hour"\ngrace = "1 hour"\nretention = "1 day"',
            "source.kind: a [session] can't take rows back that change; write 'delta', if rows are only added there, or use [table] or [group]",
        ),
    ],
)
def test_what_does_not_go_with_changes_is_one_line(root: Path, old: str, new: str, told: str) -> None:
    file = root / "people.toml"
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_config(file)
    assert told in str(caught.value)


def test_columns_that_are_of_a_change_are_not_read_by_groups(spark: SparkSession, root: Path) -> None:
    spark.sql(f"insert into delta.`{root}/customers` values (1, 'de', 1.5)")
    file = root / "countries.toml"
    file.write_text(file.read_text().replace("max(spent)", "max(_commit_version)"))
    with pytest.raises(
        SourceError, match=r"^source\.kind: column '_commit_version' is of a change, and a row is taken back by another"
    ):
        step(spark, root, "countries")


def test_a_table_whose_columns_have_names_of_ours_is_refused_by_a_table_and_read_by_a_group(
    spark: SparkSession, root: Path
) -> None:
    table = f"delta.`{root}/bronze`"
    spark.sql(
        f"create table {table} (id bigint, _partition bigint, _offset bigint) using delta tblproperties ({ENABLED} = true)"
    )
    spark.sql(f"insert into {table} values (1, 7, 70), (2, 8, 80)")
    for name in CONFIGS:
        text = (
            (root / f"{name}.toml")
            .read_text()
            .replace("where = \"country <> 'none'\"\n", "")
            .replace("customers", "bronze")
        )
        text = text.replace('columns = ["country", "spent"]', "").replace('"country"', '"_partition"')
        (root / f"{name}.toml").write_text(text.replace("(spent)", "(_offset)"))
    step(spark, root, "countries")
    rows = query_tables(config(root, "countries"), "select group_key, number, most from groups_live", 9)[1]
    assert sorted(map(tuple, rows)) == [("7", 1, 70), ("8", 1, 80)]
    with pytest.raises(SourceError, match="has a column '_partition', which is a name of sessionlake's own"):
        step(spark, root, "people")


@pytest.mark.slow
def test_a_restore_to_other_columns_is_one_line(spark: SparkSession, root: Path) -> None:
    table = f"delta.`{root}/customers`"
    spark.sql(f"insert into {table} values (1, 'de', 1.5)")
    step(spark, root, "people")
    spark.sql(f"alter table {table} add columns (extra string)")
    spark.sql(f"update {table} set spent = 2.5")
    step(spark, root, "people")
    assert_equal(spark, root, "people")
    spark.sql(f"restore table {table} to version as of 1")
    with pytest.raises(SourceError, match=r"has versions of other columns than it has now, .* `sessionlake rebuild`$"):
        step(spark, root, "people")
