"""Late events reprocessed through real Spark, Delta and engine, against DuckDB over the events that count."""

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionlake.errors import JobError, OvertakenError
from sessionlake.jobs.late.ledger import CLAIMS
from sessionlake.jobs.late.status import LateStatus
from sessionlake.warehouse import schemas
from tests.engine.crash_support import CrashError, crash_at
from tests.jobs.late.late_support import (
    RETENTION,
    Late,
    dead_numbers,
    events,
    late_numbers,
    pipeline,
    sessionized,
)
from tests.support import write_rows

FILES = events(1)
ALL = [event for file in FILES for event in file]
POINTS = [
    "reprocess_late_started",
    *(f"reprocess_late_{when}_{table}" for table in ("corrections", "dead_letters") for when in ("before", "after")),
]


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Late:
    return pipeline(spark, tmp_path_factory.mktemp("ran") / "base", FILES)


@pytest.fixture(scope="module")
def reprocessed(ran: Late, tmp_path_factory: pytest.TempPathFactory) -> Late:
    """Reprocessed in one run, without a hitch, not yet applied."""
    done = ran.copy(tmp_path_factory.mktemp("reprocessed") / "copy")
    done.reprocess(run_id="one")
    return done


@dataclass(frozen=True)
class Outcome:
    """What one run without a hitch comes to."""

    written: tuple[list[Any], list[Any]]
    status: LateStatus


@pytest.fixture(scope="module")
def outcome(reprocessed: Late) -> Outcome:
    return Outcome(reprocessed.written(), reprocessed.late_status())


def slow(value: Any) -> Any:
    return pytest.param(value, marks=pytest.mark.slow)


@pytest.fixture
def late(ran: Late, tmp_path: Path) -> Late:
    return ran.copy(tmp_path / "copy")


def test_late_events_become_part_of_the_sessions_and_expired_ones_dead_letters(
    reprocessed: Late, tmp_path: Path
) -> None:
    late = reprocessed.copy(tmp_path / "copy")
    horizon = late.watermark() - RETENTION
    numbers = late_numbers(late)
    expired = {e["n"] for e in ALL if e["n"] in numbers and e["time_us"] < horizon}
    assert len(expired) > 10
    assert len(numbers - expired) > 10
    assert dead_numbers(late, of_jobs=True) == expired
    late.apply()
    refused = expired | dead_numbers(late, of_jobs=False)
    assert late.sessions() == sessionized([e for e in ALL if e["n"] not in refused])
    status = late.status()
    assert (status.reprocessed, status.expired, status.waiting) == (len(numbers - expired), len(expired), 0)


def test_ids_of_corrections_are_hashes_of_which_nobody_finds_two_alike(reprocessed: Late) -> None:
    """Keys are chosen by those who send events, and two texts of one MD5 can be made."""
    rows = reprocessed.tables[schemas.CORRECTIONS].read()
    found = rows.selectExpr("correction_id", "unix_micros(start_time)", "key").collect()
    assert len(found) > 10
    for id_, start_us, key in found:
        digest = sha256(f"{start_us}\0{key}".encode()).hexdigest()
        assert id_ == f"reprocess_late/one/{digest[:32]}"


@pytest.mark.slow
def test_nothing_is_counted_twice_with_one_run_id_or_two(reprocessed: Late, tmp_path: Path) -> None:
    late = reprocessed.copy(tmp_path / "copy")
    before, versions = late.written(), late.versions()
    again = late.reprocess(run_id="one")
    assert again.repeated
    assert late.versions() == versions
    other = late.reprocess(run_id="two")
    assert (other.counts["late_events"], other.counts["corrections"], other.counts["still_waiting"]) == (0, 0, 0)
    assert late.written() == before
    assert late.status().waiting == 0


@pytest.mark.slow
def test_a_dry_run_writes_nothing_and_says_what_a_run_would_do(late: Late) -> None:
    versions = late.versions()
    told = late.reprocess(dry_run=True)
    assert late.versions() == versions
    assert versions[schemas.JOB_RUNS] == -1
    assert late.late_status().waiting == told.counts["late_events"] == len(late_numbers(late))
    assert late.reprocess().counts == told.counts


@pytest.mark.slow
def test_ranges_take_from_inclusive_to_exclusive_and_leave_the_rest_waiting(late: Late, reprocessed: Late) -> None:
    numbers = late_numbers(late)
    times = sorted(e["time_us"] for e in ALL if e["n"] in numbers)
    middle = times[len(times) // 2]
    first = late.reprocess(run_id="new", from_us=middle)
    assert first.counts["late_events"] == sum(t >= middle for t in times)
    assert first.counts["still_waiting"] == late.late_status().waiting == sum(t < middle for t in times)
    late.apply()
    second = late.reprocess(run_id="old", to_us=middle)
    assert second.counts["late_events"] == sum(t < middle for t in times)
    late.apply()
    assert late.late_status().waiting == 0
    refused = dead_numbers(reprocessed, of_jobs=True) | dead_numbers(late, of_jobs=False)
    assert late.sessions() == sessionized([e for e in ALL if e["n"] not in refused])


def test_an_empty_range_is_refused(late: Late) -> None:
    with pytest.raises(JobError, match="--from: must be before --to"):
        late.reprocess(from_us=5, to_us=5)


def test_another_range_under_the_same_run_id_is_refused(reprocessed: Late) -> None:
    with pytest.raises(JobError, match="--run-id: 'one' of reprocess_late was started with"):
        reprocessed.reprocess(run_id="one", to_us=5)


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_killed_and_retried_is_once(late: Late, outcome: Outcome, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    with crash_at(monkeypatch, point), pytest.raises(CrashError):
        late.reprocess(run_id="one")
    half = late.late_status()
    assert (half.waiting == half.events) == (point in POINTS[:2])
    late.reprocess(run_id="one")
    assert late.written() == outcome.written
    assert late.late_status() == outcome.status


@pytest.mark.parametrize("point", [*map(slow, POINTS)])
def test_killed_and_taken_over_by_another_run_is_once(
    late: Late, outcome: Outcome, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    with crash_at(monkeypatch, point), pytest.raises(CrashError):
        late.reprocess(run_id="one")
    late.reprocess(run_id="two")
    assert late.written() == outcome.written
    assert late.late_status() == outcome.status
    if point == POINTS[-1]:
        late.reprocess(run_id="one")
    else:
        with pytest.raises(OvertakenError, match="'one' of reprocess_late was overtaken by run 'two'"):
            late.reprocess(run_id="one")
    assert late.written() == outcome.written


@pytest.mark.parametrize("point", [slow(POINTS[1]), slow(POINTS[3])])
def test_a_run_that_another_one_passes_ends(
    late: Late, outcome: Outcome, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    with (
        crash_at(monkeypatch, point, action=lambda: late.reprocess(run_id="two") and None),
        pytest.raises(OvertakenError, match="'one' of reprocess_late was overtaken by run 'two'"),
    ):
        late.reprocess(run_id="one")
    assert late.written() == outcome.written
    assert late.late_status() == outcome.status


@pytest.mark.slow
def test_an_erasure_keeps_out_what_was_read_before_it(
    late: Late, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        crash_at(monkeypatch, POINTS[1], action=lambda: CLAIMS.fence(late.tables)),
        pytest.raises(OvertakenError, match="'one' of reprocess_late was overtaken by an erasure"),
    ):
        late.reprocess(run_id="one")
    late.reprocess(run_id="two")
    assert late.written() == outcome.written


@pytest.mark.slow
def test_of_two_runs_that_see_each_other_the_earlier_gives_way(
    late: Late, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_another() -> None:
        with crash_at(monkeypatch, POINTS[0]), pytest.raises(CrashError):
            late.reprocess(run_id="two")

    with (
        crash_at(monkeypatch, POINTS[0], action=start_another),
        pytest.raises(OvertakenError, match="overtaken by run 'two'"),
    ):
        late.reprocess(run_id="one")
    late.reprocess(run_id="two")
    assert late.written() == outcome.written


@pytest.mark.slow
def test_what_the_sessionizer_finds_expired_takes_no_younger_event_along(
    late: Late, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = late.watermark() + RETENTION // 4
    row = {"correction_id": "on", "kind": "advance", "start_time": moved, "job": "test", "created_at": 0}

    def advance() -> None:
        late.tables[schemas.CORRECTIONS].append_rows(pa.Table.from_pylist([row], schema=schemas.CORRECTIONS_SCHEMA))
        late.apply()

    with crash_at(monkeypatch, POINTS[1], action=advance):
        late.reprocess()
    late.apply()
    numbers = late_numbers(late)
    expired = {e["n"] for e in ALL if e["n"] in numbers and e["time_us"] < moved - RETENTION}
    by_sessionizer = [r for r in late.rows(schemas.DEAD_LETTERS) if r["kind"] == "restate"]
    assert by_sessionizer
    status = late.status()
    assert status.expired == len(expired) > len(dead_numbers(late, of_jobs=True))
    refused = expired | {json.loads(r["raw"])["n"] for r in late.rows(schemas.DEAD_LETTERS) if r["kind"] == "event"}
    assert late.sessions() == sessionized([e for e in ALL if e["n"] not in refused])


@pytest.mark.slow
def test_later_batches_wait_for_the_next_run_and_events_of_one_id_count_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = events(3)
    files[3] += [{**event, "n": 3500 + i} for i, event in enumerate(files[2][40:60])]
    everything = [event for file in files for event in file]
    late = pipeline(spark, tmp_path / "ids", files[:3], id="id")
    first, earlier = late.reprocess(), late_numbers(late)
    horizon = late.watermark() - RETENTION
    restated = {e["id"]: e for e in everything if e["n"] in earlier and e["time_us"] >= horizon}
    assert first.counts["restated"] == len(restated)

    # First the corrections: in one batch with them, events of the same session would be accepted.
    late.apply()
    write_rows(late.root, "3.json", files[3])
    late.apply()
    later = late_numbers(late) - earlier
    assert late.late_status().waiting == len(later)
    second = late.reprocess()
    seen = {e["id"] for e in everything if e["n"] in earlier}
    found = [e for e in everything if e["n"] in later and e["time_us"] >= late.watermark() - RETENTION]
    new = {e["id"]: e for e in found if e["id"] not in seen}
    assert (second.counts["restated"], second.counts["duplicates"]) == (len(new), len(found) - len(new))
    assert second.counts["duplicates"] > 0
    late.apply()
    accepted = [e for e in everything if e["n"] not in earlier | later | dead_numbers(late, of_jobs=False)]
    assert late.sessions() == sessionized([*accepted, *restated.values(), *new.values()], with_ids=True)
    assert late.late_status().waiting == 0
