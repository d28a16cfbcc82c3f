"""Streams of events with values."""

from __future__ import annotations

from hypothesis import strategies as st

FOREVER = 10**15
VALUED = st.sampled_from([0.0, 1.0, 2.0, 3.0])
