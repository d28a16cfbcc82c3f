"""A headless Chromium, driven over the WebDriver protocol by Debian's chromedriver; no client library is needed for so little."""

import base64
import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.airflow.live import LiveAirflow, free_port
from tests.airflow.support import wait_for

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
TAB, ENTER = "\ue004", "\ue007"
"""Keys, as WebDriver names them."""
_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--window-size=1280,860",
    "--hide-scrollbars",
)


def missing_browser() -> str:
    """Return why there is no browser, or nothing."""
    missing = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    return f"not on PATH: {' and '.join(missing)} (Debian: apt-get install chromium chromium-driver)" if missing else ""


class Browser:
    """One browser window."""

    def __init__(self, url: str, session: str) -> None:
        self._base = f"{url}/session/{session}"

    def open(self, url: str) -> None:
        _send("POST", f"{self._base}/url", {"url": url})

    def find(self, xpath: str, seconds: float = 30) -> str:
        """Wait for an element and return it."""
        return str(wait_for(lambda: self._found(xpath), seconds))

    def click(self, xpath: str, seconds: float = 30) -> None:
        """Click an element as soon as that is possible."""

        def clicked() -> bool:
            try:
                _send("POST", f"{self._base}/element/{self.find(xpath)}/click", {})
            except urllib.error.HTTPError:  # covered by another or drawn anew
                return False
            return True

        wait_for(clicked, seconds)

    def write(self, xpath: str, text: str) -> None:
        _send("POST", f"{self._base}/element/{self.find(xpath)}/value", {"text": text})

    def press(self, key: str) -> None:
        """Press a key on whatever has the focus."""
        strokes = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        keyboard = {"type": "key", "id": "keyboard", "actions": strokes}
        _send("POST", f"{self._base}/actions", {"actions": [keyboard]})

    @contextmanager
    def screen(self, width: int, height: int, *, mobile: bool = False) -> Iterator[None]:
        """Have a screen of another size, for example that of a telephone."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.devtools("Emulation.setDeviceMetricsOverride", **size)
        try:
            yield
        finally:
            self.devtools("Emulation.clearDeviceMetricsOverride")

    def text(self) -> str:
        """Return what can be read on the page."""
        return str(self.run("return document.body.innerText"))

    def run(self, script: str, *args: Any) -> Any:
        """Run a script in the page; return what it returns."""
        return _send("POST", f"{self._base}/execute/sync", {"script": script, "args": list(args)})

    def back(self) -> None:
        _send("POST", f"{self._base}/back", {})

    def devtools(self, command: str, **parameters: Any) -> Any:
        """Give a command of Chromium's developer tools."""
        return _send("POST", f"{self._base}/goog/cdp/execute", {"cmd": command, "params": parameters})

    def source(self) -> str:
        return str(_send("GET", f"{self._base}/source"))

    def screenshot(self, file: Path) -> None:
        """Save a picture of the whole page."""
        width, height = self.run("const page = document.documentElement; return [page.clientWidth, page.scrollHeight]")
        with self.screen(width, height):
            file.write_bytes(base64.b64decode(_send("GET", f"{self._base}/screenshot")))

    def _found(self, xpath: str) -> str:
        found = _send("POST", f"{self._base}/elements", {"using": "xpath", "value": xpath})
        return str(found[0][_ELEMENT]) if found else ""


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start chromedriver and a browser; end both."""
    port = free_port(19515)
    url = f"http://127.0.0.1:{port}"
    driver = subprocess.Popen(
        [str(shutil.which("chromedriver")), f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: _ready(url), 30)
        options = {"binary": shutil.which("chromium"), "args": list(_ARGUMENTS)}
        answer = _send("POST", f"{url}/session", {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}})
        yield Browser(url, answer["sessionId"])
        _send("DELETE", f"{url}/session/{answer['sessionId']}")
    finally:
        driver.terminate()
        driver.wait(20)


def log_in(browser: Browser, airflow: LiveAirflow) -> None:
    """Open Airflow's UI as the user admin."""
    browser.open(airflow.place.url)
    browser.write("//input[@name='username']", "admin")
    browser.write("//input[@name='password']", airflow.place.password)
    browser.click("//button[contains(., 'Sign in')]")
    browser.find("//a[@href='/dags']")


def _ready(url: str) -> bool:
    try:
        return bool(_send("GET", f"{url}/status")["ready"])
    except OSError:
        return False


def _send(method: str, url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310 (loopback)
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return json.load(answer)["value"]
