"""The page at `/`, in a real browser: it follows the stream, asks for a token, and draws the sessions of a key."""

import re
from pathlib import Path

import pytest

from tests.airflow.browser import Browser, missing_browser, open_browser
from tests.airflow.support import wait_for
from tests.serve.replica_support import MINUTE, Stream
from tests.serve.server_support import ask, serving

TOKEN = "a-token-of-the-page"  # noqa: S105 (of this test alone)
NASTY = "<img src=x onerror=document.title='caught'>"


def text_is(browser: Browser, pattern: str) -> None:
    wait_for(lambda: re.search(pattern, browser.text()), 30)


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_browser()), reason=missing_browser() or "there is one")
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    stream = Stream(tmp_path)
    stream.run([(key, n * 6 * MINUTE) for key in ("a", NASTY) for n in range(3)])
    with serving(stream.config, {"SESSIONLAKE_SERVE_TOKENS": TOKEN}) as url, open_browser() as browser:
        browser.open(url)
        text_is(browser, "asks for a token")
        browser.write("//input[@id='token-text']", "not-a-token-of-ours")
        browser.click("//form[@id='token-form']/button")
        text_is(browser, "no token of this server")
        browser.write("//input[@id='token-text']", TOKEN)
        browser.click("//form[@id='token-form']/button")
        text_is(browser, "batch 0, committed")
        # Both keys' newest sessions are open; the nasty one is text.
        text_is(browser, re.escape(NASTY))
        browser.click("//div[@id='open']//button[text()='a']")
        text_is(browser, r"3 sessions, 3 events \(batch 0, from the store")
        assert len(re.findall(r'class="span', browser.source())) == 3
        browser.click("(//*[name()='rect'][@class='span'])[2]")
        browser.find("//tr[@class='picked']")
        stream.run([("a", 30 * MINUTE)])
        text_is(browser, r"4 sessions, 4 events \(batch 1, from the store")
        assert "caught" not in browser.source()


def test_the_page_loads_nothing_from_outside(tmp_path: Path) -> None:
    with serving(Stream(tmp_path).config) as url:
        status, page, headers = ask(url, "/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; connect-src 'self'; ")
    assert re.findall(r"https?://\S+", page) == ['http://www.w3.org/2000/svg",']
    assert not re.search(r"\b(src|href|style|on\w+)=", page)
    assert not re.search("innerHTML|insertAdjacentHTML|document.write|eval", page)
