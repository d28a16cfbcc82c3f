"""Numbers in texts with an exponent (`1.5e3`), without it: DuckDB's cast to decimal does not read all of them."""

from decimal import Context, Decimal

import pyarrow as pa

PLAIN_FUNCTION = "plain_number"
"""The name under which DuckDB calls `plain_numbers`."""
_EXACT = Context(prec=100_000)
_MOST_ZEROS = 100


def plain_numbers(texts: pa.ChunkedArray) -> pa.Array:
    """Return each number without an exponent; null beyond 10^100, and of what is no number. Digits that no decimal has are left out.

    >>> plain_numbers(pa.chunked_array([["1.5e3", "-5E-3", "1e999", "1e-999", None]])).to_pylist()
    ['1500', '-0.005', None, '0', None]
    """
    return pa.array([None if text is None else _plain(text) for text in texts.to_pylist()], pa.string())


def _plain(text: str) -> str | None:
    number, _, exponent = text.lower().partition("e")
    power = int(exponent or 0) if len(exponent) < 10 else None
    value = Decimal(number)
    if not value:
        return "0"
    if power is None:
        return "0" if exponent.startswith("-") else None
    value = (
        value.scaleb(power, _EXACT) if abs(power) < 10_000 else value.scaleb(10_000 if power > 0 else -10_000, _EXACT)
    )
    if value.adjusted() > _MOST_ZEROS:
        return None
    return "0" if value.adjusted() < -_MOST_ZEROS else f"{value:f}"
