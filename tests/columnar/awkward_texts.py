"""Texts that keys of several columns may have, and that are easily taken for something else."""

AWKWARD = [
    "",
    '"',
    "\\",
    '\\"',
    '","',
    '["a","b"]',
    "\\u0000",
    "\x00",
    "\x1f",
    "\x7f",
    "é",
    "日本\U0001f600",
    "x" * 3000,
]
