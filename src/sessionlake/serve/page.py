"""The page at `/`: one file of HTML, which the browser lets do nothing but ask this server."""

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

_FILE = Path(__file__).with_name("page.html")
_POLICY = (
    "default-src 'none'; connect-src 'self'; img-src data:; style-src '{style}'; script-src '{script}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def read_page() -> tuple[str, dict[str, str]]:
    """Return the page, and the headers that go with it: its own style and script run, and nothing else."""
    text = _FILE.read_text(encoding="utf-8")
    hashes = {tag: _hash(re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)[0]) for tag in ("style", "script")}
    return text, {"content-security-policy": _POLICY.format(**hashes)}


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
