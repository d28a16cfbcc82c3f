"""All pipelines of the demo in a real Airflow: each runs green, the chain by its assets; jobs of one pipeline, and of all. The picture is the README's."""

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.browser import log_in, missing_browser, open_browser
from tests.airflow.live import ENDED, LiveAirflow, all_pipelines, ask_table, live_airflow
from tests.airflow.support import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(900)]
FILES = 6
"""So many of the demo's files have late events among them."""
PICTURE = Path(__file__).parents[2] / "docs" / "images" / "airflow.png"
CHAIN = ("days", "latecomers")
HAND = "by_hand"


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAirflow]:
    with live_airflow(tmp_path_factory.mktemp("live"), partial(all_pipelines, files=FILES)) as running:
        yield running


def names(airflow: LiveAirflow) -> set[str]:
    return {file.stem for file in airflow.root.glob("*.toml")} - {"project"}


def ended_run(airflow: LiveAirflow, dag: str) -> dict[str, Any]:
    """Return the first run of a DAG that had something to do, as soon as it has ended; its task is green."""

    def first() -> dict[str, Any] | None:
        ended = sorted(
            (run for run in airflow.runs(dag) if run["state"] in ENDED), key=lambda run: str(run["end_date"])
        )
        return next((run for run in ended if airflow.task(dag, run["dag_run_id"])["state"] != "skipped"), None)

    found: dict[str, Any] = wait_for(first, 600)
    assert found["state"] == "success", airflow.log_of(dag, found["dag_run_id"])
    return found


def by_hand(airflow: LiveAirflow, dag: str, **conf: Any) -> None:
    """Trigger a DAG, whose run ends green."""
    run = airflow.trigger(dag, HAND, **conf)
    assert airflow.wait_for_run(dag, run, 850) == "success", airflow.log_of(dag, run)
    assert airflow.task(dag, run)["state"] == "success"


def rows(airflow: LiveAirflow, table: str) -> int:
    return int(ask_table(airflow.root / "warehouse" / table, "select count(*) from t"))


def test_each_pipeline_runs_green(airflow: LiveAirflow) -> None:
    assert len(names(airflow)) == 9
    for name in sorted(names(airflow)):
        run = ended_run(airflow, f"{name}.run")
        assert airflow.result(f"{name}.run", run["dag_run_id"])["batches"] > 0
    assert airflow.call("GET", "/importErrors")["import_errors"] == []


@pytest.mark.parametrize("name", CHAIN)
def test_a_pipeline_behind_another_one_runs_by_its_asset(airflow: LiveAirflow, name: str) -> None:
    run = ended_run(airflow, f"{name}.run")
    assert run["run_type"] == "asset_triggered"
    came = airflow.call("GET", f"/dags/{name}.run/dagRuns/{run['dag_run_id']}/upstreamAssetEvents")["asset_events"]
    assert {(event["source_dag_id"], event["name"]) for event in came} == {("commits.run", "commits.sessions")}


def test_publish_follows_the_results_of_the_chain(airflow: LiveAirflow) -> None:
    run = ended_run(airflow, "days.publish")
    assert run["run_type"] == "asset_triggered"
    last = "select arg_max(op, batch_id) op from t group by session_key, session_start"
    sittings = airflow.query("session_changelog", f"select count(*) from ({last}) where op = 'upsert'")
    assert ask_table(airflow.root / "published" / "days", "select sum(sittings) from t") == sittings > 0


@pytest.mark.skipif(bool(missing_browser()), reason=missing_browser() or "-")
def test_the_runs_of_all_pipelines_in_the_browser(airflow: LiveAirflow, tmp_path: Path) -> None:
    with open_browser() as browser, browser.screen(1280, 900):
        log_in(browser, airflow)
        browser.open(f"{airflow.place.url}/dags?tags=job%3Arun")
        browser.click("//button[@aria-label='Show table view']")
        wait_for(lambda: all(f"{name}.run" in browser.text() for name in names(airflow)), 60)
        picture = PICTURE if os.environ.get("SESSIONLAKE_PICTURES") else tmp_path / PICTURE.name
        browser.screenshot(picture)
        assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_backup_is_put_back(airflow: LiveAirflow) -> None:
    airflow.pause("recent.run", paused=True)
    before = rows(airflow, "recent/table_changelog")
    backup = "before"
    by_hand(airflow, "recent.backup", directory=backup)
    assert airflow.result("recent.backup", HAND)["files"] > 0
    for kept in ("warehouse", "store"):
        shutil.move(airflow.root / kept / "recent", airflow.root.parent / f"{kept} of recent")
    by_hand(airflow, "recent.restore", directory=backup)
    assert rows(airflow, "recent/table_changelog") == before


def test_rebuild_makes_a_new_warehouse_and_names_it_in_the_config(airflow: LiveAirflow) -> None:
    airflow.pause("weeks.run", paused=True)
    by_hand(airflow, "weeks.rebuild", warehouse="weeks-again", switch=True)
    assert airflow.result("weeks.rebuild", HAND)["accepted"] > 0
    assert 'warehouse = "warehouse/weeks-again"' in (airflow.root / "weeks.toml").read_text()
    final = "select count(*) from (select distinct window_key, window_start from t)"
    old, new = (
        ask_table(airflow.root / "warehouse" / name / "window_changelog", final) for name in ("weeks", "weeks-again")
    )
    assert old == new > 0


def test_a_key_is_forgotten_in_all_pipelines(airflow: LiveAirflow) -> None:
    author = ask_table(airflow.warehouse / "late_events", "select key from t group by key order by count(*), key")
    keys = airflow.root.parent / "keys"
    keys.touch(mode=0o600)
    keys.write_text(f"{author}\n")
    by_hand(airflow, "project.forget", keys_file=str(keys))
    proof = airflow.result("project.forget", HAND)
    assert (proof["found"], proof["unsearched"]) == (0, 0)
    assert proof["tombstones"] > 0
    assert airflow.query("session_changelog", f"select count(*) from t where session_key = '{author}'") == 0
