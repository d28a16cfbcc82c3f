"""Lower, upper and title case of texts as Spark has them: the mappings of Unicode 16 for the root locale, from its library ICU 77.

Python's mappings are those of Unicode 14 or later, by its version. The tables here have what the later versions of Unicode added.
Texts of ASCII are mapped as bytes, all others in one text with a sign between them.
"""

import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sessionlake.columnar.arrays import binary_array, combined, offsets_of

LOWER_FUNCTION, UPPER_FUNCTION, INITCAP_FUNCTION, REVERSE_FUNCTION = (
    "root_lower",
    "root_upper",
    "root_initcap",
    "reversed",
)
"""The names under which DuckDB calls `lower_case`, `upper_case`, `initial_case` and `reversed_texts`."""
_BETWEEN = " \0 "
"""Between texts: ends a word, and stands in no text that is usual."""
_LOWER = {0x1C89: 0x1C8A, 0xA7CB: 0x264, 0xA7CC: 0xA7CD, 0xA7DA: 0xA7DB, 0xA7DC: 0x19B}
_LOWER |= {letter: letter + 0x20 for letter in range(0x10D50, 0x10D66)}
"""The pairs of letters that Unicode 14 lacks."""
_UPPER = {small: letter for letter, small in _LOWER.items()}
_CASED = "1c89-1c8a a7cb-a7cd a7da-a7dc 10d50-10d65 10d70-10d85 1df25-1df2a"
_IGNORED = (
    "897 ece 10d4e 10d69-10d6d 10d6f 10efc-10eff 11241 113bb-113c0 113ce 113d0 113d2 113e1-113e2 11f00-11f01 11f36-11f3a 11f40 11f42 "
    "11f5a 13439-13440 13447-13455 1611e-16129 1612d-1612f 16d40-16d42 16d6b-16d6c 1e030-1e06d 1e08f 1e4eb-1e4ef 1e5ee-1e5ef"
)
"""Letters, and marks beside letters, that Unicode 14 does not know as such: they decide whether a sigma ends a word."""


def _stand_ins(ranges: str, by: str) -> dict[int, str]:
    bounds = (part.partition("-") for part in ranges.split())
    return {code: by for first, _, last in bounds for code in range(int(first, 16), int(last or first, 16) + 1)}


# U+1171E was a mark in Unicode 14. A small sigma stands for itself only: it is told from a capital one that was mapped.
_AROUND_SIGMA = {
    **_stand_ins(_CASED, "a"),
    **_stand_ins(_IGNORED, "\u0301"),
    0x1171E: "1",
    0x3C3: "a",
    0x3C2: "a",
}
_SMALL_SIGMAS = "\u03c3\u03c2"
_WORD = re.compile("([^ ])([^ ]*)")


def lower_case(texts: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return each text in lower case.

    >>> lower_case(pa.array(["TV", "ΟΔΟΣ", "İ", None])).to_pylist()
    ['tv', 'οδος', 'i̇', None]
    """
    return _mapped(texts, pc.ascii_lower, lowered)


def upper_case(texts: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return each text in upper case.

    >>> upper_case(pa.array(["tv", "straße", None])).to_pylist()
    ['TV', 'STRASSE', None]
    """
    return _mapped(texts, pc.ascii_upper, lambda text: text.upper().translate(_UPPER))


def initial_case(texts: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return each text with its words, which blanks end, in title case.

    >>> initial_case(pa.array(["on TV", "straße ǆ", None])).to_pylist()
    ['On Tv', 'Straße ǅ', None]
    """
    return _mapped(texts, _ascii_initials, lambda text: _WORD.sub(_titled, _with_ends(text)))


def reversed_texts(texts: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return each text's characters from the last to the first.

    >>> reversed_texts(pa.array(["ab", None])).to_pylist()
    ['ba', None]
    """
    return pc.utf8_reverse(combined(texts))


def lowered(text: str) -> str:
    """Return one text in lower case.

    >>> lowered("Straße ΣΑΣ")
    'straße σας'
    """
    return _with_ends(text).lower().translate(_LOWER)


def _with_ends(text: str) -> str:
    """Return a text with its capital sigmas small, each as it stands within a word or at its end."""
    if "Σ" not in text:
        return text
    small = iter([sign for sign in text.translate(_AROUND_SIGMA).lower() if sign in _SMALL_SIGMAS])
    return re.sub("Σ", lambda _: next(small), text)


def _titled(found: re.Match[str]) -> str:
    return found[1].title().translate(_UPPER) + found[2].lower().translate(_LOWER)


def _mapped(
    texts: pa.ChunkedArray | pa.Array, of_ascii: Callable[[pa.Array], pa.Array], of_any: Callable[[str], str]
) -> pa.Array:
    array = combined(texts)
    others = pc.fill_null(pc.invert(pc.string_is_ascii(array)), False)
    done = of_ascii(array)
    if not pc.any(others).as_py():
        return done
    some = array.filter(others).to_pylist()
    joined = _BETWEEN.join(some)
    one_by_one = joined.count("\0") >= len(some)
    parts = [of_any(text) for text in some] if one_by_one else of_any(joined).split(_BETWEEN)
    return pc.replace_with_mask(done, others, pa.array(parts, done.type))


def _ascii_initials(array: pa.Array) -> pa.Array:
    lower = pc.ascii_lower(array)
    offsets, data = offsets_of(lower)
    data = data.copy()
    starts = offsets[:-1][np.diff(offsets) > 0]
    first = np.concatenate([starts, np.flatnonzero(data[:-1] == ord(" ")) + 1])
    first = first[(data[first] >= ord("a")) & (data[first] <= ord("z"))]
    data[first] -= ord("a") - ord("A")
    capital = binary_array(data, offsets, lower.type)
    return pc.if_else(lower.is_valid(), capital, None) if lower.null_count else capital
