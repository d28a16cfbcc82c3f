"""Pipelines that read the results of another one of their project."""

import json
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionlake.config.load import load_config
from sessionlake.config.project import load_project
from sessionlake.errors import AwaitedError, ExitCode, JobError, NotNeededError, PipelineStateError
from sessionlake.jobs.compact import compact
from sessionlake.jobs.expire import expire
from sessionlake.jobs.forget import check, forget
from sessionlake.observe.status import read_status
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.batches import last_batch
from sessionlake.warehouse.seen import readers_of
from sessionlake.warehouse.tables import Tables
from tests.engine.crash_support import DRIVER_POINTS, crash_at, run_killed
from tests.jobs.forget.forget_support import traces
from tests.project.chain_support import (
    AS_DAYS,
    CLICKS,
    DAYS,
    FOLLOWED,
    HOURS,
    finals,
    grouped,
    in_windows,
    latest,
    query,
    step,
    values_of,
    write,
)

SESSIONLAKE = str(Path(sys.executable).with_name("sessionlake"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in {"project": "[pipeline]\nshards = 2\n", "clicks": CLICKS, "days": DAYS, "hours": HOURS}.items():
        (tmp_path / f"{name}.toml").write_text(text)
    (tmp_path / "events").mkdir()
    return tmp_path


@pytest.mark.slow
def test_compact_forgets_the_deletions_of_a_table_that_follows_rows(spark: SparkSession, root: Path) -> None:
    """Nothing can meet them, because rows hold in the order of their source."""
    (root / "latest.toml").write_text(FOLLOWED)
    config = load_config(root / "latest.toml")
    for number in range(2):
        write(root, number)
        step(spark, root, "clicks", "latest")
    assert last_batch(Tables.of(spark, config)).counts["deletes"], "sessions have become one"
    assert compact(spark, config).counts["table_snapshot_upserted"]
    assert Tables.of(spark, config)["table_snapshot"].read().where("deleted").count() == 0
    step(spark, root, "latest")
    table, rows = latest(root)
    assert table == rows


def test_groups_are_a_group_by_of_the_live_view_after_each_batch(spark: SparkSession, root: Path) -> None:
    days = load_config(root / "days.toml")
    with pytest.raises(AwaitedError, match=r"source\.of: 'clicks' has no batches yet; run that pipeline"):
        run(spark, days, once=True)
    for number in range(2):
        write(root, number)
        step(spark, root, "clicks", "days")
        assert query(days, AS_DAYS) == grouped(root)
    counts = last_batch(Tables.of(spark, days)).counts
    assert counts["input"] == counts["accepted"]
    assert counts["deletes"] + counts["upserts"]
    clicks = Tables.of(spark, load_config(root / "clicks.toml"))
    (reader,) = readers_of(clicks, clicks.warehouse)
    assert (reader.name, reader.reached(Tables.of(spark, days))) == ("days", 1)


@pytest.mark.slow
def test_a_newest_commit_in_front_without_rows_is_no_batch(
    spark: SparkSession, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver in front dies between its term and its batch, or `compact` has trimmed: who begins there misses and doubles nothing, and does not wait."""
    (root / "clicks.toml").write_text(f'{CLICKS}\n[compact]\nsafety = "0 seconds"\n')
    (root / "latest.toml").write_text(FOLLOWED)
    clicks, days = (load_config(root / f"{name}.toml") for name in ("clicks", "days"))
    tables = Tables.of(spark, clicks)
    changelog = tables[schemas.CHANGELOG]

    def begun(name: str) -> None:
        with (
            crash_at(monkeypatch, "term_begun") as came,
            suppress(Exception),
        ):  # of Spark's, around the one that is raised
            step(spark, root, name)
        assert came == ["term_begun"]

    def newest() -> dict[str, Any]:
        commit = changelog.commit(changelog.latest_version())
        assert commit is not None
        assert commit.metadata["copied"]
        return commit.metadata

    write(root, 0)
    step(spark, root, "clicks")
    write(root, 1)
    begun("clicks")
    assert "term" in newest()
    step(spark, root, "days")
    assert query(days, AS_DAYS) == grouped(root)
    (follower,) = read_status(clicks).followers
    assert (follower.batch_id, follower.behind, follower.lacks_since_us) == (0, 0, None)

    step(spark, root, "clicks")
    begun("days")
    (follower,) = read_status(clicks).followers
    assert (follower.batch_id, follower.behind) == (0, 1)
    assert follower.lacks_since_us == last_batch(tables).committed_us
    for _ in range(2):  # the second run trims the changes that the first one has folded
        compact(spark, clicks)
    assert newest()["maintenance"]["trimmed_to"] == 1
    step(spark, root, "days", "latest")
    assert query(days, AS_DAYS) == grouped(root)
    table, rows = latest(root)
    assert table == rows
    assert [one.behind for one in read_status(clicks).followers] == [0, 0]
    write(root, 2)
    begun("clicks")
    step(spark, root, "clicks", "days", "latest")
    assert query(days, AS_DAYS) == grouped(root)
    table, rows = latest(root)
    assert table == rows
    counts = read_status(days).counts
    assert counts["input"] == counts["accepted"]


@pytest.mark.slow
def test_whatever_dies_whenever_the_tables_are_those_of_the_rows(
    spark: SparkSession, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader dies at each point; meanwhile the pipeline that it reads goes on, is compacted, and the reader's stores are lost.

    Some of the batches in front keep the rows that they replace.
    """
    seen: dict[Any, Any] = {}
    (root / "latest.toml").write_text(FOLLOWED)
    write(root, 0)
    step(spark, root, "clicks", "days", "hours", "latest")
    finals(spark, root, seen)
    for number, point in enumerate(["computed", "before_changelog", "after_changelog", "before_dead", "after_dead"], 1):
        keep = "[pipeline]\nkeep_replaced = true\n\n" if number in (2, 3, 4) else ""
        (root / "clicks.toml").write_text(keep + CLICKS)
        write(root, 2 * number)
        step(spark, root, "clicks")
        expected_now = finals(spark, root, seen)
        for name in ("days", "hours", "latest"):
            with crash_at(monkeypatch, point) as came, suppress(Exception):  # of Spark's, around the one that is raised
                step(spark, root, name)
            assert came
        if point == "after_changelog":  # that batch has happened
            assert in_windows(root) == expected_now
        write(root, 2 * number + 1)
        step(spark, root, "clicks")
        if number % 2:
            compact(spark, load_config(root / "clicks.toml"))
            shutil.rmtree(load_config(root / "days.toml").store_dir)
            shutil.rmtree(load_config(root / "hours.toml").store_dir)
            shutil.rmtree(load_config(root / "latest.toml").store_dir)
        step(spark, root, "days", "hours", "latest")
        assert query(load_config(root / "days.toml"), AS_DAYS) == grouped(root)
        table, rows = latest(root)
        assert table == rows
        assert in_windows(root) == finals(spark, root, seen)
    for name in ("days", "hours"):
        tables = Tables.of(spark, load_config(root / f"{name}.toml"))
        late = tables[schemas.LATE_EVENTS].read().count() if name == "hours" else 0
        assert late == 0, "a final row is never late while nothing is corrected"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_sigkill_in_front_and_behind(spark: SparkSession, root: Path) -> None:
    (root / "latest.toml").write_text(FOLLOWED)
    seen: dict[Any, Any] = {}
    write(root, 0)
    step(spark, root, "clicks", "days", "latest", "hours")
    points = ("computed", "before_changelog", "after_changelog", "worker_computed")
    for number, point in enumerate(points, 1):
        write(root, 2 * number)
        # A driver whose worker is killed ends with a line of its own.
        code = -signal.SIGKILL if point in DRIVER_POINTS else ExitCode.FAILED
        assert run_killed(root / "clicks.toml", point).returncode == code, point
        step(spark, root, "clicks")
        finals(spark, root, seen)
        for name in ("days", "latest", "hours"):
            assert run_killed(root / f"{name}.toml", point).returncode == code, (name, point)
    step(spark, root, "days", "latest", "hours")
    assert query(load_config(root / "days.toml"), AS_DAYS) == grouped(root)
    table, rows = latest(root)
    assert table == rows
    assert in_windows(root) == finals(spark, root, seen)


@pytest.mark.slow
def test_rows_that_were_sent_with_other_aggregates_are_taken_back_as_they_were(spark: SparkSession, root: Path) -> None:
    """An aggregate is added while no replaced rows are kept, and another one is dropped."""
    keep, added = "[pipeline]\nkeep_replaced = true\n\n", 'cheapest = "min(price)"\n'
    clicks, text = root / "clicks.toml", DAYS[: DAYS.index("[event]")]

    def follow(name: str, column: str) -> None:
        shape = f'[event]\nkey = "session_key"\n\n[group]\n\n[aggregates]\nn = "count()"\nvalue = "sum({column})"\n'
        (root / f"{name}.toml").write_text(text + shape)

    def assert_followed(name: str, column: str) -> None:
        found = query(load_config(root / f"{name}.toml"), "select group_key, n, value from groups_live order by 1")
        live = f"select session_key, count(*), sum({column}) from sessions_live group by 1 order by 1"
        assert found == query(load_config(clicks), live)

    clicks.write_text(keep + CLICKS)
    follow("longest", "longest")
    write(root, 0)
    step(spark, root, "clicks", "longest")
    clicks.write_text(CLICKS + added)
    write(root, 1)
    step(spark, root, "clicks", "longest")
    clicks.write_text(keep + CLICKS + added)
    follow("cheapest", "cheapest")
    step(spark, root, "cheapest")
    for number in (2, 3):
        write(root, number)
        step(spark, root, "clicks", "longest", "cheapest")
        assert_followed("longest", "longest")
        assert_followed("cheapest", "cheapest")
    clicks.write_text((keep + CLICKS + added).replace('longest = "max(price)"\n', ""))
    write(root, 4)
    run(spark, load_config(clicks), once=True, drop_aggregates=True)
    write(root, 5)
    step(spark, root, "clicks", "longest", "cheapest")
    assert_followed("longest", "longest")
    assert_followed("cheapest", "cheapest")


@pytest.mark.slow
def test_a_row_that_is_taken_back_is_a_dead_letter_without_its_text(spark: SparkSession, root: Path) -> None:
    for number in range(4):
        write(root, number)
    step(spark, root, "clicks", "days", "hours")
    before = in_windows(root)
    clicks = load_config(root / "clicks.toml")
    key, start, revision = query(
        clicks, "select session_key, session_start, revision from sessions_live order by session_end limit 1"
    )[0]
    row = {
        "correction_id": "c",
        "kind": "tombstone",
        "key": key,
        "start_time": start,
        "revision": revision,
        "job": "test",
        "created_at": 0,
    }
    Tables.of(spark, clicks)[schemas.CORRECTIONS].append_rows(
        pa.Table.from_pylist([row], schema=schemas.CORRECTIONS_SCHEMA)
    )
    step(spark, root, "clicks", "days", "hours")
    days = load_config(root / "days.toml")
    assert query(days, AS_DAYS) == grouped(root)
    with pytest.raises(NotNeededError, match="expire: the rows follow those of 'clicks'; expire them there"):
        expire(spark, days, where="true")
    ((group,), *_) = query(days, "select group_key from groups_live")
    with pytest.raises(
        JobError, match=r"forget: 1 rows have the keys, and follow the rows of 'clicks'; forget the keys there"
    ):
        forget(spark, days, [group])
    assert in_windows(root) == before, "a window of final rows keeps what it was given"
    letters = query(load_config(root / "hours.toml"), "select reason, key, raw, source from dead_letters")
    assert letters == [("retracted", key, None, "clicks")]


@pytest.mark.slow
def test_another_pipeline_in_the_same_place_is_refused(spark: SparkSession, root: Path) -> None:
    write(root, 0)
    step(spark, root, "clicks", "days")
    shutil.rmtree(load_config(root / "clicks.toml").pipeline.warehouse)
    write(root, 1)
    step(spark, root, "clicks")
    with pytest.raises(
        PipelineStateError,
        match=r"source\.of: 'clicks' is no longer the pipeline whose batch 0 was read: it was rebuilt",
    ):
        step(spark, root, "days")
    shutil.rmtree(load_config(root / "days.toml").pipeline.warehouse)
    step(spark, root, "days")
    assert query(load_config(root / "days.toml"), AS_DAYS) == grouped(root)


SENT = (
    CLICKS
    + """
[emit]
early = "off"
full = "close"
"""
)


@pytest.mark.slow
def test_a_row_that_is_sent_later_than_it_changed_comes_once(spark: SparkSession, root: Path) -> None:
    """A session is sent once it is closed, with the revision of the batch that changed it last."""
    (root / "clicks.toml").write_text(SENT)
    for number in range(4):
        write(root, 2 * number)
        step(spark, root, "clicks", "hours")
    rows = "select session_key, epoch_us(session_end) // 3600000000, count(*), sum(revenue) from sessions_live group by 1, 2 order by 1, 2"
    sent = query(load_config(root / "clicks.toml"), rows)
    assert sent
    assert in_windows(root) == sent


LATEST = """\
[source]
kind = "results"
of = "clicks"
rows = "changes"

[event]
key = "correction"
time = "session_start"

[group]

[aggregates]
sessions = "count()"
inputs = "sum(input)"
"""


@pytest.mark.slow
def test_a_zero_of_another_sign_is_another_row_and_columns_may_have_any_name(spark: SparkSession, root: Path) -> None:
    """`correction` is 0.0, then -0.0, and all else stays. The next row is taken back from the key of -0.0."""
    (root / "clicks.toml").write_text(f'{CLICKS}correction = "last(price)"\ninput = "count()"\n')
    (root / "latest.toml").write_text(LATEST)
    for number, price in enumerate((0.0, -0.0, 5.0)):
        row = {"user": "u", "at": 1_700_000_000 + number, "price": price}
        (root / "events" / f"{number}.json").write_text(f"{json.dumps(row)}\n")
        step(spark, root, "clicks", "latest")
        shown = query(load_config(root / "latest.toml"), "select group_key, sessions, inputs from groups_live")
        assert shown == [(f"{price:g}", 1, number + 1)]


@pytest.mark.slow
def test_a_table_whose_key_is_no_identity_stops(spark: SparkSession, root: Path) -> None:
    """Two sessions of a user would be one row, and the deletion of one of them that of the row."""
    (root / "latest.toml").write_text(FOLLOWED.replace("[table]", '[event]\nkey = "session_key"\n\n[table]'))
    write(root, 0)
    write(root, 9)
    step(spark, root, "clicks")
    with pytest.raises(
        PipelineStateError, match=r"^event\.key: two rows of 'clicks' have the same 'session_key', and "
    ):
        step(spark, root, "latest")


@pytest.mark.slow
def test_results_that_are_gone_are_told_in_one_line(spark: SparkSession, root: Path) -> None:
    write(root, 0)
    step(spark, root, "clicks", "days")
    for number in (1, 2):
        write(root, number)
        step(spark, root, "clicks")
    tables = Tables.of(spark, load_config(root / "clicks.toml"))
    changelog = Path(tables[schemas.CHANGELOG].uri)
    newest = tables[schemas.CHANGELOG].latest_version()
    file, *_ = tables[schemas.CHANGELOG].files_added(newest)[newest]
    told = r"source\.of: the results in '.*' as of the batch that was read last are gone; read all of it again"
    shutil.move(changelog / file, root / file)
    (changelog / f".{file}.crc").unlink(missing_ok=True)
    with pytest.raises(PipelineStateError, match=told):
        step(spark, root, "days")
    shutil.move(root / file, changelog / file)
    tables[schemas.CHANGELOG].checkpoint()
    for version in range(newest):  # as Delta does after delta.logRetentionDuration
        (changelog / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(PipelineStateError, match=told):
        step(spark, root, "days")


COUNTS = HOURS.replace(
    'kind = "tumbling"\nsize = "1 hour"\n', 'by = "count"\nkind = "tumbling"\nsize = 2\nretention_count = 100\n'
)


@pytest.mark.slow
def test_rows_have_the_order_of_their_times_if_it_counts(spark: SparkSession, root: Path) -> None:
    (root / "pairs.toml").write_text(COUNTS)
    for number in range(3):
        write(root, 2 * number)
        write(root, 2 * number + 1)
        step(spark, root, "clicks", "pairs")
    clicks = load_config(root / "clicks.toml")
    watermark = last_batch(Tables.of(spark, clicks)).watermark_us
    assert watermark is not None
    rows = query(clicks, "select session_key, epoch_us(session_end), revenue from sessions_live order by 2, 1")
    found: dict[str, list[float]] = {}
    for key, end, revenue in rows:
        if end + 90 * 60 * 1_000_000 < watermark:
            found.setdefault(key, []).append(revenue)
    pairs = [(key, at, sum(all_[at : at + 2])) for key, all_ in found.items() for at in range(0, len(all_), 2)]
    text = "select window_key, 2 * row_number() over (partition by window_key order by window_start) - 2, revenue from windows_live order by 1, 2"
    assert query(load_config(root / "pairs.toml"), text) == sorted(pairs)


@pytest.fixture
def ran(root: Path) -> Path:
    write(root, 0)
    write(root, 1)
    done = subprocess.run(
        [SESSIONLAKE, "run", str(root), "--once"], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(load_project(root).members) == ["clicks", "days", "hours"]
    return root


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_forget_waits_for_what_reads_the_results(ran: Path) -> None:
    keys = ran / "keys"
    keys.write_text("u3\n")
    keys.chmod(0o600)
    for file in (ran / "events").iterdir():
        file.unlink()  # the sender's, and they hold the key
    write(ran, 2)
    (ran / "events" / "2.json").write_text((ran / "events" / "2.json").read_text().replace("u3", "u4"))
    done = subprocess.run(
        [SESSIONLAKE, "forget", str(ran), "--keys-file", str(keys)],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, told["found"]) == (0, 0), done.stdout + done.stderr
    for name in ("clicks", "days", "hours"):
        assert traces(load_config(ran / f"{name}.toml"), ["u3"]) == []
    assert query(load_config(ran / "days.toml"), AS_DAYS) == grouped(ran)
    again = subprocess.run(
        [SESSIONLAKE, "run", str(ran), "--once"], capture_output=True, text=True, timeout=300, check=False
    )
    assert again.returncode == 0, again.stderr
    assert query(load_config(ran / "days.toml"), AS_DAYS) == grouped(ran)


def files_of(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.rglob("*")) if file.is_file()]


@pytest.mark.slow
def test_a_user_is_forgotten_in_a_table_of_the_sessions_in_front_whose_key_has_their_starts(
    spark: SparkSession, root: Path
) -> None:
    """The user is one of the columns of that key, and no key that anybody could name."""
    (root / "latest.toml").write_text(FOLLOWED)
    for number in range(3):
        write(root, number)
        step(spark, root, "clicks", "latest")
    configs = {name: load_config(root / f"{name}.toml") for name in ("clicks", "latest")}
    assert configs["latest"].key_columns == ("session_key", "session_start")
    assert [file for file in files_of(root / "store") if b'["u3",' in file.read_bytes()]
    assert check(spark, configs["latest"], ["u3"]).places.keys() >= {"rows of table_changelog", "files of local stores"}
    for config in configs.values():
        told = forget(spark, config, ["u3"])
        assert (told.failed, told.counts["found"]) == (False, 0)
    assert told.counts["rows_of_table_changelog"] > 0
    assert [file for file in files_of(root / "store") if b'["u3",' in file.read_bytes()] == []
    data = [file for file in files_of(root) if file.suffix == ".parquet" and "/_delta_log/" not in str(file)]
    assert [file for file in data if "u3" in values_of(file)] == []
    assert [log for log in root.rglob("_delta_log/*.json") if "u3" in log.read_text()] == []
    write(root, 7)
    step(spark, root, "clicks", "latest")
    table, rows = latest(root)
    assert table == rows
    assert any(row[0] == "u3" for row in rows), "a later event is a new session"
