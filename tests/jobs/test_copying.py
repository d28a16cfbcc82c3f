"""What of a row PostgreSQL can't store, by its JSON."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.jobs.publish.copying import _ZERO


@given(st.lists(st.text("\\u0\0a", max_size=12), max_size=3))
def test_only_a_zero_byte_is_one(texts: list[str]) -> None:
    assert (re.search(_ZERO, json.dumps(texts)) is not None) == any("\0" in text for text in texts)


@pytest.mark.parametrize(("text", "found"), [("\\u0000", False), ("\0", True), ("\\\0", True), ("\\\\u0000", False)])
def test_letters_are_no_zero_byte(text: str, found: bool) -> None:  # noqa: FBT001 (a case)
    assert bool(re.search(_ZERO, json.dumps([text]))) == found
