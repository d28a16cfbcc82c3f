"""Numbers without their exponents, against Python's decimals."""

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionlake.columnar.plain_numbers import plain_numbers


@given(st.from_regex(r"[+-]?([0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})([eE][+-]?[0-9]{1,2})?", fullmatch=True))
def test_a_number_keeps_its_value(text: str) -> None:
    (plain,) = plain_numbers(pa.chunked_array([[text]])).to_pylist()
    assert plain is None or ("e" not in plain.lower() and Decimal(plain) == Decimal(text))
    assert (plain is None) == (Decimal(text).adjusted() > 100)


@pytest.mark.parametrize(
    ("text", "plain"),
    [("1e999999999999", None), ("1e-999999999999", "0"), ("0e999999999999", "0"), ("1e101", None), ("9e-101", "0")],
)
def test_far_exponents_cost_nothing(text: str, plain: str | None) -> None:
    assert plain_numbers(pa.chunked_array([[text]])).to_pylist() == [plain]
