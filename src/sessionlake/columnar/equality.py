"""Equality of keys, ids and the columns that joins and lookups compare: texts that are equal if the values are (docs/rules.md, rule 465)."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import Bools, Ints, combined, ranks
from sessionlake.columnar.keys import joint_key, key_parts

Doubles = npt.NDArray[np.float64]
NUMBER, TIME, TEXT, BOOLEAN = "number", "time", "text", "boolean"
"""The families of types. Values of two families are never equal."""
INSTANT = pa.timestamp("us", "UTC")
"""The type as which dates are compared with times."""
_LONGS = 2.0**63
_DECIMALS = 1e38
"""All decimals are smaller: from here on a double's text need not equal a decimal's."""
_PLACES = 38
"""The most digits of a decimal behind the point."""
_PLACES_OF_FRACTIONS = 16
"""Doubles with so many digits before the point, and one more, have no fraction."""
_WRITTEN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(?P<exponent>[eE][+-]?\d+)?", re.ASCII)
_WRITTEN_SPECIAL = re.compile(r"[+-]?(nan|inf|infinity)", re.ASCII | re.IGNORECASE)
"""Numbers as SQL and JSON write them. Python's readers also take spaces, `1_000` and digits of other scripts."""


def family_of(type_: pa.DataType) -> str:
    """Return the family of a type; the name of the type itself if no key can have it.

    >>> family_of(pa.decimal128(10, 2)), family_of(pa.date32()), family_of(pa.list_(pa.int64()))
    ('number', 'time', 'list<item: int64>')
    """
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return NUMBER
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
        return TIME
    if pa.types.is_boolean(type_):
        return BOOLEAN
    # Bytes equal the text that they are in UTF-8, as in Spark.
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return TEXT if any(is_text(type_) for is_text in texts) else str(type_)


def has_other_text(type_: pa.DataType) -> bool:
    """Say whether a value of a type may have another text than its type alone would give it, which it had before rule 465.

    >>> has_other_text(pa.float64()), has_other_text(pa.int64())
    (True, False)
    """
    return pa.types.is_floating(type_) or pa.types.is_decimal(type_)


def instant(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the type in which values of the first type are compared with the second type; None for the first itself."""
    return INSTANT if pa.types.is_date(one) and pa.types.is_timestamp(other) else None


def text_of(values: pa.Array | pa.ChunkedArray, compared_as: pa.DataType | None = None) -> pa.Array:
    """Return the text of each value, null of null: values of a family have the same text if and only if they are equal.

    Whole numbers have their digits, decimals no zeros at their end. A double with a fraction is the shortest decimal number that
    reads back as it, as everywhere where doubles are shown; a whole one is exact. `compared_as` is the result of `instant`.

    >>> text_of(pa.array([1.0, 1e16, 0.1, -0.0, float("nan")])).to_pylist()
    ['1', '10000000000000000', '0.1', '0', 'nan']
    >>> text_of(pa.array(["1.00", "0.10"]).cast(pa.decimal128(5, 2))).to_pylist()
    ['1', '0.1']
    >>> text_of(pa.array([0]).cast(pa.int32()).cast(pa.date32()), INSTANT).to_pylist()
    ['1970-01-01 00:00:00.000000Z']
    """
    flat = combined(values) if isinstance(values, pa.ChunkedArray) else values
    if flat.type == pa.string() or pa.types.is_dictionary(flat.type):
        return flat
    if pa.types.is_floating(flat.type):
        return _of_doubles(flat.cast(pa.float64()))
    if pa.types.is_decimal(flat.type):
        return _of_decimals(flat)
    return (flat if compared_as is None else flat.cast(compared_as)).cast(pa.string())


def _of_doubles(values: pa.Array) -> pa.Array:
    numbers: Doubles = values.fill_null(0.0).to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):
        whole = np.isfinite(numbers) & (numbers == np.trunc(numbers)) & (np.abs(numbers) < _DECIMALS)
    longs = whole & (np.abs(numbers) < _LONGS)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    texts = pa.array(np.where(longs, numbers, 0.0).astype(np.int64), mask=~valid).cast(pa.string())
    if longs.all():
        return texts
    texts = _replaced(texts, whole & ~longs, lambda at: _of_unscaled(*_halves(numbers[at])))
    return _replaced(texts, ~whole, lambda at: _plain(pa.array(numbers[at]).cast(pa.string())))


def _replaced(texts: pa.Array, rows: Bools, others: Callable[[Ints], pa.Array]) -> pa.Array:
    """Return texts with others in some rows."""
    if not rows.any():
        return texts
    return pc.replace_with_mask(texts, pa.array(rows), others(np.flatnonzero(rows)))


def _halves(numbers: Doubles) -> tuple[Ints, Ints]:
    """Return the upper and the lower 64 bits of whole doubles, exactly."""
    upper = np.floor(numbers / 2.0**64)
    # Both steps are exact: a power of two changes the exponent alone, and the rest has fewer bits than the number.
    lower = (numbers - upper * 2.0**64).astype(np.uint64)
    return upper.astype(np.int64), lower.view(np.int64)


def _of_unscaled(upper: Ints, lower: Ints) -> pa.Array:
    """Return the digits of whole numbers of 128 bits."""
    both = np.column_stack([lower, upper]).ravel()
    return pa.Array.from_buffers(pa.decimal128(38, 0), len(upper), [None, pa.py_buffer(both)]).cast(pa.string())


def _plain(texts: pa.Array) -> pa.Array:
    """Return the texts of doubles with a fraction, or beyond decimals, without exponents where decimals have none."""
    if not pc.any(pc.match_substring(texts, "e")).as_py():
        return texts
    # Arrow's texts have exponents from 1e10 on; no double of 2 ** 53 and more has a fraction.
    large = pc.struct_field(pc.extract_regex(texts, r"^-?\d\.\d+e\+(?P<places>\d+)$"), "places")
    for places in pc.unique(large.drop_null()).to_pylist():
        moved_by = rf"^(-?\d)\.(\d{{{int(places)}}})(\d+)e\+{places}$"
        if int(places) < _PLACES_OF_FRACTIONS:
            texts = pc.replace_substring_regex(texts, moved_by, r"\1\2.\3")
    small = pc.extract_regex(texts, r"^(?P<sign>-?)(?P<first>\d)\.?(?P<rest>\d*)e-(?P<places>\d+)$")
    places = pc.struct_field(small, "places").cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    rows = (places > 0) & (places <= _PLACES)

    def moved(at: Ints) -> pa.Array:
        sign, first, rest = (pc.struct_field(small, name).take(pa.array(at)) for name in ("sign", "first", "rest"))
        zeros = pc.binary_repeat(pa.repeat("0", len(at)), pa.array(places[at] - 1))
        return pc.binary_join_element_wise(sign, "0.", zeros, first, rest, "")

    return _replaced(texts, rows, moved)


def _of_decimals(values: pa.Array) -> pa.Array:
    """Return decimals' digits; Arrow's own texts have exponents, and zeros at the end."""
    scale = values.type.scale
    wide = pa.types.is_decimal256(values.type)
    if values.type.bit_width < 128:
        values = values.cast(pa.decimal128(values.type.precision, scale))
    whole = pa.decimal256(76, 0) if wide else pa.decimal128(38, 0)
    digits = pa.Array.from_buffers(whole, len(values), values.buffers(), offset=values.offset).cast(pa.string())
    if scale < 0:
        return pc.if_else(pc.equal(digits, "0"), digits, pc.binary_join_element_wise(digits, "0" * -scale, ""))
    if scale == 0:
        return digits
    sign = pc.if_else(pc.starts_with(digits, "-"), "-", "")
    padded = pc.ascii_lpad(pc.ascii_ltrim(digits, "-"), width=scale + 1, padding="0")
    before, behind = pc.utf8_slice_codeunits(padded, 0, -scale), pc.utf8_slice_codeunits(padded, -scale)
    text = pc.binary_join_element_wise(sign, before, ".", behind, "")
    return pc.ascii_rtrim(pc.ascii_rtrim(text, "0"), ".")


def asked_text(text: str, type_: pa.DataType) -> str:
    """Return the canonical text of a written value of a type: numbers may be written in many ways, all others in one.

    A whole number is exact unless it has an exponent, so a whole number asks for a double only if they are equal.

    >>> asked_text("1.00", pa.decimal128(5, 2)), asked_text("1e3", pa.float64()), asked_text("1.0", pa.string())
    ('1', '1000', '1.0')
    >>> asked_text("9007199254740993", pa.float64())
    '9007199254740993'
    """
    if family_of(type_) != NUMBER:
        return text
    written, is_floating = _WRITTEN.fullmatch(text), pa.types.is_floating(type_)
    if written is None:
        return _text_of_double(float(text)) if is_floating and _WRITTEN_SPECIAL.fullmatch(text) else text
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    if is_floating and not np.isinf(double := float(text)):
        is_exact = number == number.to_integral_value() and not written["exponent"]
        if not is_exact or Decimal(double) == number:
            return _text_of_double(double)
    if number and abs(number.adjusted()) > 2 * _PLACES:
        return text
    plain = f"{number:f}" if number else "0"
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def _text_of_double(number: float) -> str:
    return str(text_of(pa.array([number], pa.float64()))[0].as_py())


def as_texts(columns: Sequence[pa.Array | pa.ChunkedArray], casts: Sequence[bool]) -> list[pa.Array | pa.ChunkedArray]:
    """Return columns, some of them as texts, as `casts` says; without casts none is changed."""
    texts = casts or [False] * len(columns)
    return [text_of(column) if is_text else column for column, is_text in zip(columns, texts, strict=True)]


def key_of(columns: Sequence[pa.Array | pa.ChunkedArray], compared_as: Sequence[pa.DataType | None] = ()) -> pa.Array:
    """Return a column's texts, or the JSON arrays of several columns' texts; null if one of them is null.

    >>> key_of([pa.array([7, None])]).to_pylist(), key_of([pa.array(["a"]), pa.array([1])]).to_pylist()
    (['7', None], ['["a","1"]'])
    """
    as_ = compared_as or [None] * len(columns)
    texts = [text_of(column, type_) for column, type_ in zip(columns, as_, strict=True)]
    return joint_key([text.cast(pa.string()) for text in texts]) if len(texts) > 1 else texts[0]


@dataclass(frozen=True)
class IdOrder:
    """The order of ids: columns of numbers by number, other columns by their texts' bytes.

    No id is the least one. What is no number in a column of numbers, as a correction may name it, comes after all numbers.

    >>> IdOrder((True,)).ranks(pa.array(["10", "9", ""])).tolist(), BY_TEXT.ranks(pa.array(["10", "9", ""])).tolist()
    ([3, 2, 1], [2, 3, 1])
    """

    numbers: tuple[bool, ...] = ()
    """For each column of the id whether it has numbers; empty if none has any."""

    @classmethod
    def of(cls, types: Sequence[pa.DataType]) -> "IdOrder":
        """Return the order of ids made from columns with the given types."""
        numbers = tuple(family_of(type_) == NUMBER for type_ in types)
        return cls(numbers) if any(numbers) else BY_TEXT

    def ranks(self, ids: pa.Array) -> Ints:
        """Return ranks in the order: equal ids have the same. `ids` are texts, or their bytes, empty for none, and not null."""
        if not self.numbers or not len(ids):
            return ranks(ids)
        texts = ids.cast(pa.string())
        if len(self.numbers) == 1:
            return _ranks_of_numbers(texts)
        parts = key_parts(texts, len(self.numbers))
        keys = [
            _ranks_of_numbers(part.fill_null("")) if is_number else ranks(part.fill_null(""))
            for part, is_number in zip(parts, self.numbers, strict=True)
        ]
        # Text decides for ids that are no arrays of all columns, and for a missing id.
        keys += [np.where(part.is_null().to_numpy(zero_copy_only=False), ranks(texts), 0) for part in parts[:1]]
        order = np.lexsort(keys[::-1])
        changed = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
        rank = np.empty(len(order), np.int64)
        # In sorted order the rank grows by one at each change; equal ids share it.
        rank[order] = np.concatenate([[1], 1 + np.cumsum(changed)])
        return rank

    def compared(self, new: pa.Array, old: pa.Array) -> Ints:
        """Return for each pair 1 if the new id is greater, -1 if it is less, 0 if they are equal."""
        both = self.ranks(pa.concat_arrays([new.cast(pa.binary()), old.cast(pa.binary())]))
        signs: Ints = np.sign(both[: len(new)] - both[len(new) :])
        return signs


BY_TEXT = IdOrder()


def _ranks_of_numbers(texts: pa.Array) -> Ints:
    given = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    if pc.any(pc.match_substring_regex(texts, "[xX]")).as_py():
        # Arrow reads 0x10 as 16.
        return _ranks_of_any(texts)
    for type_ in (pa.int64(), pa.decimal256(76, _PLACES)):
        try:
            numbers = given.cast(type_)
        except pa.ArrowInvalid:
            continue
        return np.where(numbers.is_null().to_numpy(zero_copy_only=False), 0, ranks(numbers)) + 1
    return _ranks_of_any(texts)


def _ranks_of_any(texts: pa.Array) -> Ints:
    """Return the ranks of texts; some are numbers beyond decimals, or no numbers."""
    encoded = texts.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    places = {text: _placed(text) for text in distinct}
    order = {place: at for at, place in enumerate(sorted(set(places.values())))}
    return np.array([order[places[text]] for text in distinct], np.int64)[encoded.indices.to_numpy()] + 1


def _placed(text: str) -> tuple[Any, ...]:
    """Return a text's place among ids that are numbers: none, numbers, NaN, all others."""
    if not text:
        return (0,)
    if _WRITTEN_SPECIAL.fullmatch(text):
        return (1, float(text)) if "inf" in text.lower() else (2,)
    return (1, Decimal(text)) if _WRITTEN.fullmatch(text) else (3, text.encode())
