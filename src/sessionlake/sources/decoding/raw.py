"""The text of a row as dead letters and late events keep it: cut if it is long, so that one row never takes much room."""

import hashlib
import re

MAX_RAW_BYTES = 64 << 10
"""The number of bytes that are kept of a longer row."""
_CUT = re.compile(r"\.\.\. \[cut: \d+ bytes in all, sha256 [0-9a-f]{64}\]\Z")


def raw_text(content: bytes) -> str:
    """Return a row as text: bytes that are not UTF-8 become replacement characters. For a long row: its begin, length and hash."""
    if len(content) <= MAX_RAW_BYTES:
        return content.decode(errors="replace")
    return cut_text(content, len(content), hashlib.sha256(content).hexdigest())


def cut_text(head: bytes, length: int, sha256: str) -> str:
    """Give the text of a row of `length` bytes that begins with `head`."""
    return f"{head[:MAX_RAW_BYTES].decode(errors='replace')}... [cut: {length} bytes in all, sha256 {sha256}]"


def is_cut(raw: str) -> bool:
    """Say whether a text is only the begin of its row, and so can't be read as a row again."""
    return _CUT.search(raw[-120:]) is not None
