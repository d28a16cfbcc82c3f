"""The server of a project: its page, each pipeline below /p/NAME, tokens of one pipeline, and the page in a real browser."""

import re
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionlake.client import QueryClient
from sessionlake.config.project import Project, load_project
from sessionlake.errors import ConfigError, PipelineStateError
from sessionlake.observe import standing
from sessionlake.project import board
from sessionlake.project.picture import layout_of
from sessionlake.project.server import prepared
from sessionlake.serve.dispatch import Call
from sessionlake.serve.peers import target
from sessionlake.stream.run import run
from sessionlake.warehouse.batch_commit import BatchCommit
from tests.airflow.browser import ENTER, TAB, missing_browser, open_browser
from tests.airflow.support import wait_for
from tests.project.project_support import PROJECT, write_project
from tests.serve.server_support import ask, running

TOKEN, OTHER = "a-token-that-opens-all", "a-token-of-the-hours"


@pytest.fixture(scope="module")
def project(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project in which `sittings` and `hours` have batches, `latest` fails, and `stragglers` has none."""
    found = load_project(write_project(tmp_path_factory.mktemp("project"), 1))
    for name in ("sittings", "hours"):
        run(spark, found.configs[name], once=True)
    error = PipelineStateError("checkpoint: '/x' is missing; put it back")
    standing.failed(found.configs["latest"], error, 600)
    return found


@contextmanager
def serving(project: Project, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    section = project.configs["hours"].serve.model_copy(update={"port": 0, "tokens": bool(environment)})
    with running(prepared(project, section, section.tokens_in(environment or {}))) as url:
        yield url


def states(url: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the pipelines by name, as soon as all were looked at."""

    def seen() -> dict[str, Any] | None:
        found = ask(url, "/v1/project", headers)[1]["pipelines"]
        by_name = {one["name"]: one for one in found}
        return None if any(one["state"] == "unknown" for one in found) else by_name

    found: dict[str, Any] = wait_for(seen, 60)
    return found


def test_the_state_of_each_pipeline_and_what_to_do(project: Project) -> None:
    with serving(project) as url:
        found = states(url)
        page = ask(url, "/v1/project")[1]
    assert {name: one["state"] for name, one in found.items()} == {
        "sittings": "stopped", "hours": "stopped", "latest": "failing", "stragglers": "new"
    }  # fmt: skip
    assert {name: one["ended"] for name, one in found.items() if one["state"] == "stopped"} == {
        "sittings": True,
        "hours": True,
    }
    assert found["hours"]["advice"] == f"it ended as asked; to run it: sessionlake run {project.directory}"
    assert sum(found["hours"]["counts"][name] for name in page["outcomes"]) == found["hours"]["counts"]["input"]
    assert found["latest"]["advice"] == "checkpoint: '/x' is missing; put it back"
    assert found["stragglers"]["advice"] == f"it has no batches yet: sessionlake run {project.directory} --once"
    assert found["hours"]["counts"]["input"] == 10
    assert len(found["hours"]["history"]) == 1
    assert found["hours"]["reconciles"] is True
    assert found["stragglers"]["reads"] == ["sittings"]
    assert page["edges"] == [{"from": "sittings", "reads": "late_events", "to": "stragglers"}]
    assert page["picture"] == {
        **layout_of(project.graph).fields(),
        "places": {name: list(place) for name, place in layout_of(project.graph).places.items()},
    }


def test_each_pipeline_has_its_own_paths(project: Project) -> None:
    with serving(project) as url:
        status, found, _ = ask(url, "/p/hours/v1/status")
        assert (status, found["pipeline"]) == (200, "hours")
        assert ask(url, "/p/sittings/v1/sessions", key="u1")[1]["sessions"]
        moved = ask(url, "/p/hours")
        assert (moved[0], moved[2]["location"]) == (307, "/p/hours/")
        assert "<h1" in ask(url, "/p/hours/")[1]
        assert b"sessionlake_serve" in ask(url, "/p/hours/metrics")[1].encode()
        page = ask(url, "/")
        assert "sha256" in page[2]["content-security-policy"]
        # Who has no token is told nothing of the project.
        assert not re.search("|".join([*project.graph.names, re.escape(project.directory)]), page[1])
        status, found, _ = ask(url, "/p/nobody/v1/status")
        assert (status, found["error"]) == (
            404,
            "path: '/p/nobody/v1/status' is not served; ask /, /v1/project or /p/NAME/",
        )


def test_a_client_of_one_pipeline(project: Project) -> None:
    with serving(project) as url, QueryClient(f"{url}/p/sittings") as client:
        assert client.status()["pipeline"] == "sittings"
        assert [row["event_count"] for row in client.fetch("u1")] == [2]
        assert list(client.fetch_all(["u1", "no"])) == list(client.fetch("u1"))
    with pytest.raises(ValueError, match="is no address of a server"):
        QueryClient("http://127.0.0.1:1/elsewhere")


def test_what_other_hosts_are_asked_for_is_below_the_pipelines_path() -> None:
    call = Call("/v1/sessions", {"key": "a", "redirect": "true"}, {"root_path": "/p/sittings"})
    assert target(call) == "/p/sittings/v1/sessions?key=a"
    assert target(Call("/v1/sessions", {}, {})) == "/v1/sessions"


def test_a_token_of_one_pipeline_opens_that_one_alone(project: Project) -> None:
    def bearer(token: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {token}"}

    environment = {"SESSIONLAKE_SERVE_TOKENS": f"{TOKEN},hours:{OTHER}"}
    with serving(project, environment) as url:
        for path, token, status in (
            ("/v1/project", None, 401), ("/v1/project", OTHER, 401), ("/v1/project", TOKEN, 200),
            ("/p/hours/v1/status", None, 401), ("/p/hours/v1/status", OTHER, 200), ("/p/hours/v1/status", TOKEN, 200),
            ("/p/sittings/v1/status", OTHER, 401), ("/p/sittings/v1/status", TOKEN, 200),
            ("/p/hours/v1/status", f"hours:{OTHER}", 401), ("/", None, 200), ("/healthz", None, 200),
        ):  # fmt: skip
            assert ask(url, path, bearer(token) if token else None)[0] == status, (path, token)
    only = {"SESSIONLAKE_SERVE_TOKENS": f"hours:{OTHER}"}
    with (
        pytest.raises(ConfigError, match="has tokens of single pipelines only; add one without a name"),
        serving(project, only),
    ):
        pass


def batch(number: int, took_s: float, lag_s: float) -> dict[str, Any]:
    committed = 1_000_000_000 + number * 20_000_000
    return {"committed_at": committed, "started_at": committed - int(took_s * 1e6), "watermark": committed - int(lag_s * 1e6), "input": 5}  # fmt: skip


@pytest.mark.parametrize(
    ("took", "lags", "wanted"),
    [(9, (10, 20, 30), "yes"), (9, (30, 20, 30), "no"), (0.5, (10, 20, 30), "no"), (9, (20, 30), "no")],
)
def test_behind_is_slow_with_a_lag_that_grows(
    project: Project, took: float, lags: tuple[int, ...], wanted: str
) -> None:
    history = [batch(n, took, lag) for n, lag in enumerate(lags)]
    assert board._falls_behind(project.configs["hours"], history) is (wanted == "yes")


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_browser()), reason=missing_browser() or "there is one")
def test_the_page_in_a_browser(project: Project) -> None:
    with serving(project, {"SESSIONLAKE_SERVE_TOKENS": TOKEN}) as url, open_browser() as browser:
        browser.open(url)
        wait_for(lambda: "asks for a token" in browser.text(), 30)
        browser.write("//input[@id='token-text']", TOKEN)
        browser.click("//form[@id='token-form']/button")
        wait_for(lambda: "put it back" in browser.text() and "1 to look at" in browser.text(), 60)
        for state, ended, green in (
            ("running", False, True),
            ("idle", False, True),
            ("stopped", True, True),
            ("stopped", False, False),
            ("starting", False, False),
            ("behind", False, False),
            ("new", True, False),
            ("unknown", False, False),
        ):
            assert browser.run("return fine({state: arguments[0], ended: arguments[1]})", state, ended) is green, state
        heads = browser.run("return [...document.querySelectorAll('#states th')].map(one => one.textContent)")
        assert heads[4:10] == ["lag", "events", "accepted", "late", "dead", "filtered"]
        source = browser.source()
        assert "stragglers reads late_events of sittings" in source
        # On a telephone nothing but tables and the graph is wider than the screen.
        browser.run("document.body.style.width = '400px'")
        assert browser.run("return document.querySelector('main').scrollWidth <= 400")
        browser.click("//table//a[text()='hours']")
        wait_for(lambda: "Events in" in browser.text() and "10" in browser.text(), 60)
        assert browser.run("return location.pathname") == "/p/hours/"
        browser.click("//a[@id='back']")
        wait_for(lambda: "put it back" in browser.text(), 60)
        assert browser.run("return location.pathname") == "/"


@contextmanager
def always_behind(spark: SparkSession, root: Path) -> Iterator[Project]:
    """Yield a project in which `hours` falls behind: no batch takes a millisecond, and no event is newer than the first ones."""
    found = load_project(write_project(root, 1, PROJECT.replace('"1 second"', '"1 millisecond"')))
    first = root / "events" / "0.json"
    for number in range(1, 12):
        shutil.copy2(first, first.with_name(f"again{number}.json"))
    slow, seen = threading.Event(), threading.Event()

    def committed(batch: BatchCommit) -> None:
        if batch.batch_id >= 3:
            slow.set()
            seen.wait(20)  # it runs, and commits often enough not to be idle, for as long as it is looked at

    driver = threading.Thread(
        target=run, args=(spark, found.configs["hours"]), kwargs={"once": True, "on_commit": committed}
    )
    driver.start()
    try:
        assert slow.wait(100)
        yield found
    finally:
        seen.set()
        driver.join()


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_browser()), reason=missing_browser() or "there is one")
def test_a_pipeline_that_is_behind_on_a_small_screen_and_by_keyboard(spark: SparkSession, tmp_path: Path) -> None:
    focused = "const one = document.activeElement; return one.getAttribute('aria-label') || one.textContent"
    with (
        always_behind(spark, tmp_path / "p") as project,
        serving(project) as url,
        open_browser() as browser,
        browser.screen(400, 900, mobile=True),
    ):
        browser.open(url)
        wait_for(lambda: "behind and growing: give it more shards" in browser.text(), 60)
        drawn = "return [...document.querySelectorAll('.node.late + text + text')].map(one => one.textContent)"
        assert browser.run(drawn) == ["window, behind"]
        assert browser.run("return document.documentElement.scrollWidth") == 400
        assert "Scroll sideways for all columns" in browser.text()
        reached = []
        while not reached or reached[-1] != "hours":
            assert len(reached) < 10, reached
            browser.press(TAB)
            reached.append(browser.run(focused))
        assert "The pipelines" in reached
        browser.press(ENTER)
        wait_for(lambda: browser.run("return location.pathname") == "/p/hours/", 30)
