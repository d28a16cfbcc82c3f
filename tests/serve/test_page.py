"""The page at `/`, in a real browser: it follows the stream, asks for a token, and draws the sessions of a key."""

import json
import re
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.airflow.browser import Browser, missing_browser, open_browser
from tests.airflow.live import free_port
from tests.airflow.support import wait_for
from tests.serve.letters_support import write_letters
from tests.serve.replica_support import GRACE, MINUTE, RETENTION, Stream, log_commit
from tests.serve.server_support import ask, serving

TOKEN = "a-token-of-the-page"  # noqa: S105 (of this test alone)
TOKENS = {"SESSIONLAKE_SERVE_TOKENS": TOKEN}
NASTY = "<img src=x onerror=document.title='caught'>"
TILES = "return [...document.querySelectorAll('.tile')].map(tile => [...tile.children].map(one => one.textContent))"
FOCUSED = "return document.activeElement.textContent"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as found:
        yield found


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """Each of three keys has three sessions, of which the newest is open."""
    stream = Stream(tmp_path)
    stream.times_us = now(-3, -2)
    stream.run([(key, n * 6 * MINUTE) for key in ("a", "b", NASTY) for n in range(3)])
    return stream


def now(*seconds: float) -> Any:
    return tuple(time.time_ns() // 1000 + int(s * 1e6) for s in seconds)


def text_is(browser: Browser, pattern: str) -> None:
    wait_for(lambda: re.search(pattern, browser.text()), 30)


def visit(browser: Browser, url: str) -> None:
    """Open a page as from another one: a change behind the # alone would load nothing."""
    browser.open("about:blank")
    browser.open(url)


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_browser()), reason=missing_browser() or "there is one")
class TestInABrowser:
    def test_it_follows_the_stream_and_shows_the_sessions_of_a_key(self, stream: Stream, browser: Browser) -> None:
        with serving(stream.config, TOKENS) as url:
            visit(browser, url)
            text_is(browser, "asks for a token")
            browser.write("//input[@id='token-text']", "not-a-token-of-ours")
            browser.click("//form[@id='token-form']/button")
            text_is(browser, "no token of this server")
            browser.write("//input[@id='token-text']", TOKEN)
            browser.click("//form[@id='token-form']/button")
            text_is(browser, "batch 0, committed")
            # All keys' newest sessions are open; the nasty one is text.
            text_is(browser, re.escape(NASTY))
            browser.click("//div[@id='open']//button[text()='a']")
            text_is(browser, r"3 sessions, 3 events As of batch 0, from the stores")
            assert len(re.findall(r'class="span', browser.source())) == 3
            browser.click("(//*[name()='rect'][@class='span'])[2]")
            browser.find("//tr[@class='picked']")
            stream.run([("a", 30 * MINUTE)])
            text_is(browser, r"4 sessions, 4 events As of batch 1, from the stores")
            assert browser.run("return document.querySelectorAll('tr.picked').length") == 1
            assert "caught" not in browser.source()

    def test_the_tiles_add_up(self, stream: Stream, browser: Browser) -> None:
        for counts in (
            {"input": 202_008, "accepted": 183_840, "late": 0, "dead": 168, "filtered": 16_158, "duplicate": 1_842},
            {"input": 12, "accepted": 3, "late": 2, "dropped": 4, "emitted": 3},
        ):
            stream.counts = counts
            stream.run([("a", 12 * MINUTE)])
            with serving(stream.config) as url:
                visit(browser, url)
                text_is(browser, f"batch {stream.batch_id}, committed")
                tiles = browser.run(TILES)
            shown = [(label, int(value.replace(",", ""))) for label, value in tiles if value.replace(",", "").isdigit()]
            assert shown[1] == ("Events in", counts["input"] + 202_008 * (counts["input"] == 12))
            assert sum(value for label, value in shown if label[0] in "=+") == shown[1][1]
            labels = [label for label, _ in shown if label[0] in "=+"]
            assert labels[:5] == ["=Accepted", "+Late", "+Dead", "+Filtered", "+Duplicates"]
            assert labels[5:] == ([] if "dead" in counts else ["+Dropped", "+Emitted"])

    def test_dead_letters_open_to_their_reasons_and_rows(self, stream: Stream, browser: Browser) -> None:
        rows = [
            {
                "reason": reason,
                "kind": "event",
                "raw": NASTY * (1 + 40 * (n == 0)),
                "source": f"f:{n:03}",
                "batch_id": 0,
            }
            for n, reason in enumerate(["null key", *[f"unparsable time: 'x{n}'" for n in range(59)]])
        ]
        write_letters(stream, rows)
        stream.counts = {"input": 61, "accepted": 1, "dead": 60}
        stream.run([("a", 12 * MINUTE)])
        with serving(stream.config) as url:
            visit(browser, url)
            text_is(browser, "batch 1, committed")
            assert "unparsable" not in browser.text()
            browser.click("//dl[@id='tiles']//button[text()='60']")
            text_is(browser, r"2 reasons; a click shows the rows of one")
            text_is(browser, r"Rows 1 to 25, as of batch 1, from the tables")
            reasons = browser.run("return document.querySelector('#reasons tbody').innerText").split("\n")
            assert [line.split("\t") for line in reasons] == [
                ["unparsable time: '...'", "59", "event", "0"],
                ["null key", "1", "event", "0"],
            ]
            # A row that came with a long text has its beginning.
            assert (
                browser.run(
                    "return Math.max(...[...document.querySelectorAll('#letters td')].map(one => one.textContent.length))"
                )
                == 501
            )
            browser.click("//div[@id='letters']//button[text()='Next page']")
            text_is(browser, r"Rows 26 to 50,")
            browser.click("//div[@id='letters']//button[text()='Next page']")
            text_is(browser, r"Rows 51 to 60,")
            browser.click("//div[@id='reasons']//button[text()='null key']")
            text_is(browser, r"Rows 1 to 1,")
            browser.click("//div[@id='reasons']//button[text()='null key']")
            text_is(browser, r"Rows 1 to 25,")
            assert browser.run("return [document.images.length, document.title]") == [0, "p · sessionlake"]

    def test_all_rows_page_by_page(self, stream: Stream, browser: Browser) -> None:
        stream.run([(f"k{n:02}", 12 * MINUTE) for n in range(60)])
        with serving(stream.config, max_rows=20) as url:
            visit(browser, url)
            text_is(browser, "batch 1, committed")
            browser.click("//summary[@id='all-title']")
            seen = []
            for told in ("1 to 20", "21 to 40", "41 to 60", "61 to 69"):
                text_is(browser, rf"Rows {told}, as of batch 1, from the stores")
                seen += browser.run("return [...document.querySelectorAll('#all .key')].map(one => one.textContent)")
                if told != "61 to 69":
                    browser.click("//div[@id='all']//button[text()='Next page']")
            assert seen == sorted([*["a", "b", NASTY] * 3, *[f"k{n:02}" for n in range(60)]])
            assert browser.run("return document.querySelector('#all .bar').innerText").endswith("Page before")
            browser.click("//div[@id='all']//button[text()='Page before']")
            text_is(browser, "Rows 41 to 60,")
            browser.click("//div[@id='all']//button[text()='First page']")
            text_is(browser, "Rows 1 to 20,")
            browser.click("//div[@id='all']//button[text()='k01']")
            text_is(browser, r"1 session, 1 event")
            assert browser.run("return location.hash") == "#key=k01"

    def test_a_field_for_each_column_of_the_key(self, tmp_path: Path, browser: Browser) -> None:
        stream = Stream(tmp_path, event={"key": ["day", "country"], "time": "time_us", "time_unit": "us"})
        stream.times_us = now(-3, -2)
        stream.run([('["2026-11-20","DE"]', 0), ('["2026-11-20","FR"]', 0), ('["2026-11-21","DE"]', 0)])
        with serving(stream.config) as url:
            visit(browser, f"{url}/#key.day=2026-11-20&key.country=DE")
            text_is(browser, r"1 session, 1 event As of batch 0")
            fields = "return [...document.querySelectorAll('#keys input')].map(one => [one.placeholder, one.value])"
            assert browser.run(fields) == [["day", "2026-11-20"], ["country", "DE"]]
            browser.run("document.querySelectorAll('#keys input')[1].value = ''")
            browser.click("//form[@id='look-up']/button")
            text_is(browser, r"2 sessions, 2 events")
            assert browser.run("return location.hash") == "#key.day=2026-11-20"
            browser.click("//div[@id='open']//button[text()='2026-11-21, DE']")
            text_is(browser, r"1 session, 1 event")
            assert browser.run(fields) == [["day", "2026-11-21"], ["country", "DE"]]

    def test_a_range_of_time_is_chosen_and_pauses_leave_room(self, tmp_path: Path, browser: Browser) -> None:
        """After 1.3 hours without batches the new ones have their room; an answer has 100 batches, so that older ones are asked for."""
        stream = Stream(tmp_path)
        for ago in [*(4700 + 2 * n for n in range(140, 0, -1)), *(30 - n for n in range(20))]:
            stream.times_us = now(-ago - 0.5, -ago)
            stream.run([("a", 30 * MINUTE)])
        label = "return document.querySelector('#lag svg')?.getAttribute('aria-label') ?? ''"
        with serving(stream.config) as url:
            visit(browser, url)
            wait_for(lambda: browser.run(label).startswith("160 batches from"), 30)
            box = "const box = document.querySelector('#lag .gap').getBBox(); return box.width / document.querySelector('#lag svg').viewBox.baseVal.width"
            assert browser.run(box) <= 1 / 3
            choose = "const one = document.getElementById('range'); one.value = arguments[0]; one.dispatchEvent(new Event('change'))"
            browser.run(choose, "1")
            wait_for(lambda: browser.run(label).startswith("20 batches from"), 30)
            browser.run(choose, "3")
            wait_for(lambda: browser.run(label).startswith("160 batches from"), 30)

    def test_stores_that_follow_say_so(self, stream: Stream, browser: Browser) -> None:
        stream.expected = ["another/1"] * len(stream.expected)
        stream.batch_id += 1
        log_commit(
            stream.root,
            1,
            "c9",
            stream.state,
            stream.expected,
            stream.operator.spec.columns.types,
            {"grace_us": GRACE, "retention_us": RETENTION},
            times_us=stream.times_us,
        )
        with serving(stream.config) as url:
            visit(browser, url)
            text_is(browser, "2 of 2 stores follow with the next batch; until then their rows come from the tables")

    def test_the_focus_stays_at_its_row_when_batches_come(self, stream: Stream, browser: Browser) -> None:
        with serving(stream.config) as url:
            visit(browser, url)
            browser.find("//div[@id='open']//button[text()='b']")
            browser.run("[...document.querySelectorAll('#open .key')].findLast(key => key.textContent === 'b').focus()")
            # The newest one of b is the last of those of no length; then it is the longest, and comes first.
            stream.run([("b", 13 * MINUTE)])
            wait_for(lambda: browser.run("return document.querySelector('#open .key').textContent") == "b", 30)
            assert browser.run(FOCUSED) == "b"
            # Where its row goes, the row at its place has it.
            stream.run([("c", 40 * MINUTE), ("d", 41 * MINUTE)])
            wait_for(lambda: browser.run("return document.querySelector('#open .key').textContent") == "c", 30)
            assert browser.run(FOCUSED) == "c"

    def test_a_key_is_in_the_address_for_sharing_and_for_going_back(self, stream: Stream, browser: Browser) -> None:
        with serving(stream.config) as url:
            visit(browser, f"{url}/#key={quote(NASTY)}")
            text_is(browser, r"3 sessions, 3 events As of batch 0")
            assert browser.run("return document.getElementById('key').value") == NASTY
            browser.click("//div[@id='open']//button[text()='a']")
            text_is(browser, "Sessions of a\n")
            assert browser.run("return location.hash") == "#key=a"
            browser.run("document.getElementById('key').value = 'nobody'")
            browser.click("//form[@id='look-up']/button")
            text_is(browser, r"No sessions of this key\.")
            browser.back()
            text_is(browser, "Sessions of a\n")
            browser.back()
            text_is(browser, f"Sessions of {re.escape(NASTY)}\n")

    def test_a_token_in_the_address_is_kept_and_removed_from_it(self, stream: Stream, browser: Browser) -> None:
        with serving(stream.config, TOKENS) as url:
            visit(browser, f"{url}/#token={TOKEN}&key=a")
            text_is(browser, r"3 sessions, 3 events As of batch 0")
            assert browser.run("return location.href") == f"{url}/#key=a"
            browser.open(f"{url}/?again")  # the tab knows it
            text_is(browser, "batch 0, committed")
            browser.click("//a[@href='openapi.json']")
            text_is(browser, "Interactive queries")
            visit(browser, f"{url}/#token=another-one")
            text_is(browser, "no token of this server")
            browser.run("sessionStorage.clear()")

    def test_a_server_that_is_stopped_is_told_since_when_and_tried_again(
        self, stream: Stream, browser: Browser
    ) -> None:
        port = free_port(19600)
        with serving(stream.config, port=port) as url:
            visit(browser, f"{url}/#key=a")
            text_is(browser, r"3 sessions, 3 events As of batch 0")
        text_is(
            browser,
            r"The server can't be reached since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\. It is tried again every 3 seconds\.",
        )
        assert browser.run("return document.getElementById('live').className") == "off"
        assert "3 sessions, 3 events" in browser.text()
        with serving(stream.config, port=port):
            text_is(browser, "batch 0, committed")
            assert "can't be reached" not in browser.text()

    def test_the_light_tells_of_the_stream(self, stream: Stream, browser: Browser) -> None:
        with serving(stream.config) as url:
            visit(browser, url)
            text_is(browser, "batch 0, committed")
            assert browser.run("return document.getElementById('live').className") == "on"
            stream.times_us = now(-41, -40)
            stream.run([("a", 30 * MINUTE)])
            text_is(browser, "no batch for 4[0-9] s: the stream has stopped, or has no events")
            assert browser.run("return document.getElementById('live').className") == "idle"

    def test_without_ranges_there_are_no_open_sessions_and_all_else(self, stream: Stream, browser: Browser) -> None:
        with serving(stream.config, ranges=False) as url:
            visit(browser, f"{url}/#key=a")
            text_is(browser, r"3 sessions, 3 events As of batch 0")
            assert not re.search("Longest open|Dead letters|All sessions", browser.text())
            assert browser.run("return document.querySelector('#tiles button')") is None
            assert "ranges" not in browser.text()

    def test_numbers_are_written_with_all_of_their_digits(self, stream: Stream, browser: Browser) -> None:
        with serving(stream.config) as url:
            visit(browser, url)
            for value, text in (
                (6727, "6,727"),
                (306533.75, "306,533.75"),
                (1234567.89, "1,234,567.89"),
                (544921.2000000001, "544,921.2000000001"),
                (-0.5, "-0.5"),
                (1.5e-9, "1.5e-9"),
                (12345678, "12,345,678"),
                (9007199254740993, "9,007,199,254,740,993"),  # beyond 2^53
            ):
                assert browser.run("return cell(parsed(arguments[0]))", json.dumps(value)) == text
            assert browser.run("return cell(parsed('[1.25, 9007199254740993, true, {\"n\": 9007199254740993}]'))") == (
                '1.25, 9,007,199,254,740,993, true, {"n":"9007199254740993"}'
            )

    def test_a_time_without_batches_is_a_gap_in_the_curves(self, stream: Stream, browser: Browser) -> None:
        for seconds in (600, 590, 580, 20, 10):
            stream.times_us = now(-seconds - 1, -seconds)
            stream.run([("a", 30 * MINUTE)])
        with serving(stream.config) as url:
            visit(browser, url)
            text_is(browser, "batch 5, committed")
            curves = "return document.querySelectorAll('#throughput .curve').length"
            assert browser.run(curves) == 2
            assert "no batches" in browser.text()

    def test_values_and_headings_for_those_who_do_not_see_them(self, stream: Stream, browser: Browser) -> None:
        with serving(stream.config) as url:
            visit(browser, f"{url}/#key=a")
            text_is(browser, r"3 sessions, 3 events As of batch 0")
            browser.click("//details[@id='values']/summary")
            browser.click("//details[@id='paths']/summary")
            text_is(browser, "GET /v1/metadata")
            label = browser.run("return document.querySelector('#throughput svg').getAttribute('aria-label')")
            assert re.match(r"One batch from .*; the last one: events a second 0; the most: 0\. The table below", label)
            assert browser.run("return document.querySelector('#batches tbody').innerText").startswith("0\t20")
            heads = browser.run(
                "return [...document.querySelectorAll('th')].map(head => [head.scope, !!head.textContent])"
            )
            assert len(heads) > 10
            assert {tuple(head) for head in heads} == {("col", True)}
            assert browser.run(
                "return [...document.querySelectorAll('table')].every(one => one.caption.textContent.length > 3)"
            )
            assert browser.run("return [...document.querySelectorAll('a')].map(one => one.getAttribute('href'))") == [
                "openapi.json",
                "metrics",
            ]

    def test_on_a_small_screen_labels_are_apart_and_wide_tables_say_so(self, stream: Stream, browser: Browser) -> None:
        with serving(stream.config) as url, browser.screen(400, 900, mobile=True):
            visit(browser, f"{url}/#key=a")
            text_is(browser, r"3 sessions, 3 events As of batch 0")
            boxes = browser.run(
                "return [...document.querySelectorAll('#time-line text')].map(one => one.getBoundingClientRect()).map(box => [box.left, box.right])"
            )
            assert len(boxes) >= 2
            assert all(after[0] - before[1] >= 8 for before, after in pairwise(boxes))
            assert "Scroll sideways" in browser.text()
            assert browser.run("return document.getElementById('found-scroll').tabIndex") == 0
            assert browser.run("return document.documentElement.scrollWidth") == 400


def test_the_page_loads_nothing_from_outside(tmp_path: Path) -> None:
    with serving(Stream(tmp_path).config) as url:
        status, page, headers = ask(url, "/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; connect-src 'self'; ")
    assert "unsafe" not in policy
    assert re.findall(r"https?://\S+", page) == ['http://www.w3.org/2000/svg";']
    assert not re.search(r"\b(src|style|on\w+)=", page)
    assert re.findall(r'href="(.*?)"', page) == ["openapi.json", "metrics"]
    assert not re.search("innerHTML|insertAdjacentHTML|document.write|eval", page)


@pytest.mark.parametrize(("name", "least"), [("edge", 3.0), ("text", 4.5), ("soft", 4.5), ("late", 4.5), ("dead", 4.5)])
def test_colours_stand_out_from_the_page_and_its_cards(name: str, least: float) -> None:
    style = (Path(__file__).parents[2] / "src/sessionlake/serve/web/style.css").read_text()
    schemes = [
        dict(re.findall(r"--(\w+): (#\w+);", block)) for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    ]
    assert len(schemes) == 2
    assert all(contrast(of[name], of[ground]) >= least for of in schemes for ground in ("page", "card"))


def contrast(one: str, other: str) -> float:
    """The contrast of two colours as WCAG 2 defines it."""
    low, high = sorted(luminance(colour) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
