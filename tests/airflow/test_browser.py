"""The UI as a person uses it: log in, trigger reprocess_late through its form, see it green."""

from pathlib import Path

import pytest

from tests.airflow.browser import Browser, log_in, missing_browser, open_browser
from tests.airflow.live import LiveAirflow, live_airflow
from tests.airflow.support import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(missing_browser()), reason=missing_browser() or "-"),
]
DAG = "commits.reprocess_late"


def trigger_by_form(browser: Browser, airflow: LiveAirflow) -> None:
    """Fill in the form, its params seen with title and help; then send it."""
    browser.open(f"{airflow.place.url}/dags/{DAG}")
    browser.click("//button[@data-testid='trigger-dag-button']")
    form = wait_for(lambda: (text := browser.text()) and "Dry run" in text and text)
    for words in (
        "Event time of the earliest late events",
        "Apply",
    ):
        assert words in form
    browser.click("//button[@data-testid='trigger-dag-submit']")


def test_reprocess_late_by_its_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with live_airflow(tmp_path) as airflow, open_browser() as browser:
        log_in(browser, airflow)
        wait_for(lambda: any((airflow.warehouse / "session_changelog" / "_delta_log").glob("*.json")), 120)
        wait_for(airflow.commits, 120)
        trigger_by_form(browser, airflow)
        run = wait_for(lambda: airflow.runs(DAG), 60)[0]["dag_run_id"]
        assert airflow.wait_for_run(DAG, run) == "success", airflow.log_of(DAG, run)
        browser.open(f"{airflow.place.url}/dags/{DAG}/runs/{run}")
        wait_for(lambda: "Success" in browser.text(), 60)
        with capsys.disabled():
            print(f"\nreprocess_late green in the UI {airflow.age():.0f} s after the start")  # noqa: T201
