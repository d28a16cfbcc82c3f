"""Regular expressions, for Java and for Python, that find a key in texts however its characters are escaped."""

_SHORT = {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t", '"': '"', "\\": "\\", "/": "/"}
"""The character that JSON may write after a backslash."""
_DOUBLED = {'"': '""', "'": "''"}
"""As CSV and SQL write a quote in quotes."""
_ENTITIES = {"&": ("&amp;",), "<": ("&lt;",), ">": ("&gt;",), '"': ("&quot;", "&#34;"), "'": ("&#39;", "&#x27;")}
_PARTS = r"\w.@+\-" + "\u00c0-\u1fff\u2c00-\ud7ff\uf900-\ufffd\U00010000-\U0010ffff"
"""Characters that make a longer word if they stand next to a key. Java's `\\w` knows ASCII letters only, hence the ranges."""
_TELLING = 6
"""Characters from which on a key is not found by chance."""
_OPENS, _CLOSES = r"""["'>;]""", r"""["'<&\\]"""


def written(text: str) -> str:
    """Return an expression for a text, each character as itself, as any escape of JSON's, or doubled if that is a quote's."""
    return "".join(f"(?:{'|'.join(_forms(character))})" for character in text)


def word(text: str) -> str:
    """Return an expression for a text that is not part of a longer word.

    >>> import re
    >>> bool(re.search(word("ann"), "key=ann")), bool(re.search(word("ann"), "annex"))
    (True, False)
    """
    return f"(?<![{_PARTS}]){written(text)}(?![{_PARTS}])"


def in_document(text: str) -> str:
    """Return an expression for a text in JSON or HTML: as a word, or if it is short, only if quotes or tags enclose it."""
    html = "".join(f"(?:{'|'.join([*_forms(c), *_ENTITIES.get(c, ())])})" for c in text)
    return f"(?<![{_PARTS}]){html}(?![{_PARTS}])" if len(text) >= _TELLING else f"{_OPENS}{html}{_CLOSES}"


def _forms(character: str) -> list[str]:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    escapes = "".join(rf"\\u(?i:{units[at : at + 4]})" for at in range(0, len(units), 4))
    forms = [_plain(character), escapes]
    if character in _SHORT:
        forms.append(r"\\" + _plain(_SHORT[character]))
    if character in _DOUBLED:
        forms.append(_DOUBLED[character])
    return forms


def _plain(character: str) -> str:
    """Return an expression for a character; other characters than letters and digits are escaped by a backslash."""
    return character if character.isalnum() or not character.isascii() else f"\\{character}"
