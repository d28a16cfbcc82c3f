"""The page at `/`: one file of HTML, which may only send requests to this server."""

from base64 import b64encode
from hashlib import sha256
from pathlib import Path

_FOLDER = Path(__file__).with_name("web")
_COMMON = ("format", "elements", "asking")
_SCRIPTS = (*_COMMON, "charts", "found", "paged", "main")
"""In the order in which they need each other."""
_POLICY = (
    "default-src 'none'; connect-src 'self'; img-src data:; style-src '{style}'; script-src '{script}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def read_page() -> tuple[str, dict[str, str]]:
    """Return the page of a pipeline, and the headers that go with it."""
    return with_scripts(_text("page.html"), "".join(_text(f"{name}.js") for name in _SCRIPTS))


def with_scripts(page: str, script: str) -> tuple[str, dict[str, str]]:
    """Return a page with the common head, style and a script, and the headers that go with it: these two run, and nothing else."""
    page = page.replace("<!-- head -->\n", _text("head.html"))
    contents = {"style": _text("style.css"), "script": script}
    for tag, content in contents.items():
        page = page.replace(f"<{tag}></{tag}>", f"<{tag}>{content}</{tag}>")
    hashes = {tag: _hash(content) for tag, content in contents.items()}
    return page, {"content-security-policy": _POLICY.format(**hashes)}


def common_scripts() -> str:
    """Return the scripts that any page needs: how values are written, elements and tables."""
    return "".join(_text(f"{name}.js") for name in _COMMON)


def _text(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
