"""Expiry through the real engine: what the rule says goes, once, at a bounded pace, and nothing that changed meanwhile."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from sessionlake import read_sessions
from sessionlake.cli import main
from sessionlake.config.load import Config
from sessionlake.engine import failpoints
from sessionlake.errors import ConfigError, JobError, SessionlakeError
from sessionlake.jobs.apply import apply_corrections
from sessionlake.jobs.expire import Pace, expire
from sessionlake.operators.sessions.changelog import SESSIONS as CHANGELOG
from sessionlake.stream.run import run
from sessionlake.warehouse import schemas
from sessionlake.warehouse.tables import Tables
from tests.jobs.backup.copies import copy_pipeline
from tests.support import make_config, write_rows

KEYS = [f"k{i}" for i in range(5)]
LIVES = {"k0": 150, "k1": 350, "k3": 0}
"""Per-key time to live, in microseconds before the watermark; the others have none."""
NOW = 1_500
PER_KEY = "exists (select 1 from lives l where l.key = session_key and unix_micros(session_end) < 1500 - l.life)"


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline of 5 keys x 6 sessions, the older ones cold, and a table of lives."""
    root = tmp_path_factory.mktemp("expire") / "original"
    root.mkdir()
    config = make_config(root, source={"max_files_per_batch": 3})
    for batch in range(6):
        times = [(key, 1000 + 100 * batch + 3 * i + j) for i, key in enumerate(KEYS) for j in range(1 + batch % 3)]
        write_rows(root, f"{batch}.json", [{"key": key, "time_us": at, "v": at} for key, at in times])
    run(spark, config, once=True)
    spark.createDataFrame(list(LIVES.items()), "key string, life bigint").coalesce(1).write.format("delta").save(
        str(root / "lives")
    )
    return root


@pytest.fixture
def config(original: Path, tmp_path: Path) -> Config:
    return copy_pipeline(original, tmp_path / "copy", source={"max_files_per_batch": 3})


def live(spark: SparkSession, config: Config) -> list[tuple[str, int, int, int]]:
    rows = read_sessions(spark, config).selectExpr(
        "session_key", "unix_micros(session_start) a", "unix_micros(session_end) b", "event_count"
    )
    return sorted((r[0], r[1], r[2], r[3]) for r in rows.collect())


def sent(spark: SparkSession, config: Config) -> list[Any]:
    rows = Tables(spark, config.pipeline.warehouse, CHANGELOG)[schemas.CORRECTIONS].read().where("job = 'expire'")
    return rows.selectExpr("*", "unix_micros(start_time) start").collect()


def commit_sizes(config: Config) -> list[int]:
    """Return the rows of each append of expire, oldest first."""
    sizes = []
    for file in sorted(Path(config.pipeline.warehouse, schemas.CORRECTIONS, "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        if any(a.get("txn", {}).get("appId") == "expire" for a in actions):
            sizes.append(sum(json.loads(a["add"]["stats"])["numRecords"] for a in actions if "add" in a))
    return sizes


def at_point(monkeypatch: pytest.MonkeyPatch, point: str, nth: int, action: Any) -> None:
    seen = []

    def hit(name: str) -> None:
        if name == point:
            seen.append(name)
            if len(seen) == nth:
                action()

    monkeypatch.setattr(failpoints, "hit", hit)


class Clock:
    """Time that passes in sleep only, but for a second that each look takes."""

    def __init__(self) -> None:
        self.now, self.slept = 0.0, []

    def time(self) -> float:
        self.now += 1
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def pace(self) -> Pace:
        return Pace(10, self.time, self.sleep)


@pytest.mark.slow
def test_per_key_ttl_by_subquery_then_nothing_is_left(spark: SparkSession, config: Config) -> None:
    before = live(spark, config)
    expected = [s for s in before if not (s[0] in LIVES and s[2] < NOW - LIVES[s[0]])]
    lives = {"lives": f"{config.directory}/lives"}
    report = expire(spark, config, where=PER_KEY, tables=lives, run_id="one")
    gone = len(before) - len(expected)
    assert gone == 4 + 2 + 5
    tables = Tables(spark, config.pipeline.warehouse, CHANGELOG)
    assert report.counts == {
        "rows_read": tables[schemas.SESSIONS].read().count() + tables[schemas.CHANGELOG].read().count(),
        "matched": gone,
        "emitted_before": 0,
        "expired": gone,
        "left_for_next_run": 0,
    }
    # Not applied yet: neither the same run nor another one emits again.
    assert expire(spark, config, where=PER_KEY, tables=lives, run_id="one").repeated
    second = expire(spark, config, where=PER_KEY, tables=lives, run_id="two")
    assert (second.counts["expired"], second.counts["emitted_before"]) == (0, gone)
    assert len({r.correction_id for r in sent(spark, config)}) == len(sent(spark, config)) == gone
    assert apply_corrections(spark, config)
    assert live(spark, config) == expected
    assert expire(spark, config, where=PER_KEY, tables=lives).counts["matched"] == 0
    spark.sql(f"delete from delta.`{config.pipeline.warehouse}/job_runs` where run_id = 'two' and event = 'started'")
    with pytest.raises(
        JobError, match=r"--run-id: 'two' of expire: its record is gone, by age or with a key; choose another"
    ):
        expire(spark, config, where=PER_KEY, tables=lives, run_id="two")


@pytest.mark.slow
def test_too_large_a_share_is_refused_before_the_first_tombstone(spark: SparkSession, config: Config) -> None:
    braked = config.model_copy(update={"expire": config.expire.model_copy(update={"max_share": 0.2})})
    every = len(live(spark, config))
    message = rf"expire.max_share: the run would remove {every} of {every} sessions \(100%\), more than 20%"
    with pytest.raises(JobError, match=message):
        expire(spark, braked, where="event_count > 0", run_id="r")
    assert sent(spark, config) == []
    assert expire(spark, braked, where="event_count > 0", max_share=1, run_id="r").counts["expired"] == every


@pytest.mark.slow
def test_throttle_and_limit_take_the_oldest_first(spark: SparkSession, config: Config) -> None:
    before = sorted((s[2], s[0], s[1]) for s in live(spark, config))
    clock = Clock()
    reports: list[str] = []
    first = expire(
        spark,
        config,
        where="event_count >= 1",
        max_per_run=45 // 2,
        max_per_second=1,
        pace=clock.pace(),
        on_step=reports.append,
    )
    assert (first.counts["expired"], first.counts["left_for_next_run"]) == (22, len(before) - 22)
    assert commit_sizes(config) == [10, 10, 2]
    assert reports == ["looking for expired rows"] + [f"{n} of 22 tombstones" for n in (10, 20, 22)]
    # A look takes a second, and there is one before and one after each wait.
    assert clock.slept == [9, 9]
    assert {(r.key, r.start) for r in sent(spark, config)} == {(k, a) for _, k, a in before[:22]}
    rest = expire(spark, config, where="event_count >= 1", pace=Clock().pace())
    assert (rest.counts["expired"], rest.counts["emitted_before"]) == (len(before) - 22, 22)


@pytest.mark.slow
def test_killed_run_resumes_with_the_next_chunk(
    spark: SparkSession, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attempt() -> Any:
        return expire(
            spark, config, where="event_count > 0", max_per_second=1, max_per_run=15, run_id="r", pace=Clock().pace()
        )

    def die() -> None:
        raise KeyboardInterrupt

    for point in ("expire_before_append", "expire_after_append"):
        at_point(monkeypatch, point, 1, die)
        with pytest.raises(KeyboardInterrupt):
            attempt()
    assert commit_sizes(config) == [10]
    monkeypatch.undo()
    # The pinned versions decide, whatever the stream has done since.
    assert apply_corrections(spark, config)
    report = attempt()
    assert (report.counts["expired"], report.counts["left_for_next_run"]) == (15, 15)
    assert commit_sizes(config) == [10, 5]
    assert len({(r.key, r.start, r.revision) for r in sent(spark, config)}) == 15
    with pytest.raises(JobError, match="was started with"):
        expire(spark, config, where="event_count > 1", run_id="r")


@pytest.mark.slow
@pytest.mark.parametrize("nth", [1, 2])
def test_of_two_runs_at_once_one_stops(
    spark: SparkSession, config: Config, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """The second run comes between the first one's look and its n-th append."""

    def other() -> None:
        monkeypatch.undo()
        expire(spark, config, where="event_count > 0", run_id="b")

    at_point(monkeypatch, "expire_before_append", nth, other)
    first = expire(spark, config, where="event_count > 0", max_per_second=1, run_id="a", pace=Clock().pace())
    total = len(live(spark, config))
    assert first.counts["expired"] == 10 * (nth - 1)
    assert first.counts["left_for_next_run"] == total - 10 * (nth - 1)
    assert first.notes
    names = [(r.key, r.start, r.revision) for r in sent(spark, config)]
    assert len(set(names)) == len(names) == total
    assert {r.run_id for r in sent(spark, config)} == ({"b"} if nth == 1 else {"a", "b"})


@pytest.mark.slow
def test_session_changed_after_the_pin_survives(
    spark: SparkSession, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = max(s[2] for s in live(spark, config) if s[0] == "k4")

    def change() -> None:
        write_rows(Path(config.directory), "late.json", [{"key": "k4", "time_us": newest + 5, "v": 1}])
        run(spark, config, once=True)

    at_point(monkeypatch, "expire_before_append", 1, change)
    expire(spark, config, ttl="1 day")
    monkeypatch.undo()
    assert apply_corrections(spark, config)
    (survivor,) = live(spark, config)
    assert (survivor[0], survivor[2]) == ("k4", newest + 5)
    assert expire(spark, config, ttl="1 day").counts["expired"] == 1
    assert apply_corrections(spark, config)
    assert live(spark, config) == []


@pytest.mark.slow
def test_command_line_takes_the_rule_from_the_config(spark: SparkSession, config: Config) -> None:
    path = Path(config.directory, "pipeline.toml")
    path.write_text(
        """
        pipeline = { name = "test", warehouse = "warehouse", shards = 2 }
        source = { kind = "files", path = "events", format = "json" }
        event = { key = "key", time = "time_us", time_unit = "us" }
        session = { gap = "10 us", grace = "20 us", retention = "60 us" }
        aggregates = { total = "sum(v)" }
        [expire]
        where = "session_key in (select key from lives)"
        tables = { lives = "lives" }
        max_share = 0.7
        """
    )
    done = CliRunner().invoke(main, ["expire", str(path)])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout.splitlines()[-1])["expired"] == 18
    assert {s[0] for s in live(spark, config)} == {"k2", "k4"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "no rule says what expires"),
        ({"where": "no_such_column > 1"}, "where: .*no_such_column"),
        ({"where": "event_count >"}, "where: .*correct the SQL"),
        ({"where": "event_count"}, "where: .*correct the SQL"),
        ({"where": "cast(session_key as int) = 1"}, "where: .*correct the SQL"),
        ({"where": "rand() < 0.5"}, "where: 'rand.*would differ"),
        ({"ttl": "90"}, "ttl: '90' is not a duration"),
        ({"where": "true", "tables": {"t": "/no/such/table"}}, "expire.tables.t: '/no/such/table' is no Delta table"),
    ],
)
def test_errors_are_one_line(spark: SparkSession, original: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SessionlakeError, match=message) as caught:
        expire(spark, make_config(original), **arguments, dry_run=True)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "share"), [("1 = 0", 0), ("1 = 1", 1), ("exists (select 1 from lives where life < 0)", 0)]
)
def test_rules_that_spark_answers_without_reading(spark: SparkSession, original: Path, where: str, share: int) -> None:
    config, lives = make_config(original, expire={"max_share": 0.2}), {"lives": str(original / "lives")}
    report = expire(spark, config, where=where, tables=lives, dry_run=True)
    assert report.counts["matched"] == share * len(live(spark, config))
    assert len(report.notes) == share, "a dry run says that the run would be refused"


def test_config_names_a_wrong_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"expire\.max_per_run"):
        make_config(tmp_path, expire={"max_per_run": 0})
