"""Formats of files with their settings. Workers need them too, so this module needs no other one."""

from dataclasses import dataclass
from typing import Literal

Format = Literal["json", "csv", "parquet", "text"]
"""Formats of files."""
OF_CSV = ("delimiter", "quote", "escape", "header", "names", "comment")
"""The keys of a source that go with format 'csv'."""
OF_TEXT = ("pattern", "preset", "comment")
"""The keys of a source that go with format 'text'."""
OF_JSON = ("records",)
"""The keys of a source of files that go with format 'json'."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The format of files, and the settings that a format has."""

    format: Format
    delimiter: str = ","
    """The character between two fields of CSV."""
    quote: str = '"'
    """The character around a field of CSV that may have delimiters and line breaks; empty if there is none."""
    escape: str = ""
    """The character of CSV after which each other one stands for itself; empty if there is none."""
    header: bool = True
    """Whether the first record of a CSV file has the names of the columns."""
    names: tuple[str, ...] = ()
    """The names of columns without a header; if there are none: c1, c2, ..."""
    comment: str = ""
    """The begin of lines of CSV and text that are no rows; empty if each line is one."""
    records: str = ""
    """The path of the list in a JSON document whose elements are the rows, "." for the document itself; empty for lines of JSON."""
    pattern: str = ""
    """The regular expression of lines of text, RE2, whose named groups are the columns."""

    @classmethod
    def of(cls, form: "Layout | Format") -> "Layout":
        """Return a layout, or that of a format's defaults.

        >>> Layout.of("csv").delimiter
        ','
        """
        return form if isinstance(form, Layout) else cls(form)
